"""Labels on a terminal: how often they are right, and what is taken for what."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coeval.analysis.run_results import bounds_text, with_interval
from coeval.cli.say import say
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.text import listed

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.analysis.measures.measured import Branch, Measured

__all__ = ["MOST_VALUES", "NO_LABEL", "mistakes", "print_labels"]

NO_LABEL = "no label"
MOST_VALUES = 12
"""Of a label, up to which a table of all of them against each other can be read."""
_MOST_MISTAKES = 20
_NOTHING = "–"


def print_labels(labels: Branch, console: Console, *, whole: bool) -> None:
    """A table for each label of each task; ``whole``: and for each student what is taken for what."""
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            _print_students(f"Labels of {task}: {attribute}", found, console)
            if whole:
                for student, of_student in found["students"].items():
                    if of_student["accuracy"].n:
                        _print_confusion(f"{task} {attribute}, {student}", of_student, console)
            else:
                _tell_mistakes(task, attribute, found["students"], console)


def _print_students(title: str, found: Branch, console: Console) -> None:
    students, ranges = found["students"], found["ranking"]["ranges"]
    order = [*found["ranking"]["order"], *(name for name in students if name not in ranges)]
    rows = [
        NameRow(
            name,
            (
                "–".join(str(rank) for rank in dict.fromkeys(ranges.get(name, ()))) or _NOTHING,
                _shown(students[name]["accuracy"]),
                _shown(students[name]["macro_f1"]),
                f"{students[name]['none_of_the_labels']:,}",
                f"{students[name]['accuracy'].n:,}",
                f"{students[name]['accuracy'].missing:,}",
            ),
        )
        for name in order
    ]
    headings = ["rank", "accuracy", "macro-F1", NO_LABEL, "n", "missing"]
    bounds = {name: bounds_text(*(students[name]["bounds"]["accuracy"] or (None, None))) for name in order}
    if any(bounds.values()):
        headings.append("bounds")
        rows = [NameRow(row.name, (*row.cells, bounds[row.name] or _NOTHING)) for row in rows]
    print_table(console, title, "student", [*map(Column, headings)], rows)


def _shown(found: Measured) -> str:
    return with_interval(found.value, found.low, found.high) or _NOTHING


def mistakes(students: Branch) -> list[tuple[str, str, int]]:
    """What is expected and what is stated in its place, of all students together: the most frequent first."""
    counts = Counter[tuple[str, str]]()
    for found in students.values():
        for expected, row in found["confusion"].items():
            counts.update({(expected, stated): count for stated, count in row.items() if stated != expected})
    return sorted(
        ((*pair, count) for pair, count in counts.items() if count), key=lambda each: (-each[2], each[:2])
    )


def _tell_mistakes(task: str, attribute: str, students: Branch, console: Console) -> None:
    if found := mistakes(students):
        of = Counter[str]()
        for each in students.values():
            of.update(each["expected"])
        told = [
            f"{said} for {expected} ({count:,} of {of[expected]:,})" for expected, said, count in found[:3]
        ]
        say(console, f"Most often mistaken in {task} ({attribute}): {listed(told)}.")


def _print_confusion(title: str, found: Branch, console: Console) -> None:
    """Expected labels below, stated ones beside; of many labels, the most frequent mistakes."""
    values = list(found["confusion"])
    if len(values) > MOST_VALUES:
        rows = [
            NameRow(f"{expected}: {said}", (f"{count:,}",))
            for expected, said, count in mistakes({"": found})[:_MOST_MISTAKES]
        ]
        print_table(
            console, f"{title}: most frequent mistakes", "expected: stated", [Column("answers")], rows
        )
        return
    none = {value: found["expected"][value] - sum(row.values()) for value, row in found["confusion"].items()}
    rows = [
        NameRow(value, (*(f"{row[said]:,}" for said in values), f"{none[value]:,}"))
        for value, row in found["confusion"].items()
    ]
    columns = [*map(Column, values), Column(NO_LABEL)]
    print_table(console, f"{title}: expected labels below, stated ones beside", "expected", columns, rows)
