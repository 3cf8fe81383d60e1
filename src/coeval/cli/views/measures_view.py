"""Measures on a terminal, and as JSON, CSV and Markdown; labels among them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.text import Text

from coeval.analysis.measures.measured import Branch, Leaf, leaves
from coeval.analysis.measures.run_measures import plain_measures
from coeval.analysis.panel.bias_ledger import BIASES
from coeval.analysis.run_results import SIMULATED, bounds_text, with_interval
from coeval.cli.streams import say
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.cli.views.results_view import json_text
from coeval.core.plain import plain
from coeval.core.text import listed

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.analysis.measures.measured import Measured


# --- Label accuracy on a terminal

NO_LABEL = "no label"
# Of a label, up to which a table of all of them against each other can be read.
MOST_VALUES = 12
# Rows of a screen; the commonest confusions come first.
_MOST_MISTAKES = 20
_NOTHING = "–"


def print_labels(labels: Branch, console: Console, *, whole: bool) -> None:
    """A table for each label of each task; ``whole``: and for each student what is taken for what."""
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            _print_label_students(f"Labels of {task}: {attribute}", found, console)
            if whole:
                for student, of_student in found["students"].items():
                    if of_student["accuracy"].n:
                        _print_confusion(f"{task} {attribute}, {student}", of_student, console)
            else:
                _tell_mistakes(task, attribute, found["students"], console)


def _print_label_students(title: str, found: Branch, console: Console) -> None:
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


# --- Measures as JSON, CSV and Markdown

MeasuresText: TypeAlias = Callable[[Branch], str]

_OF = " / "
_COLUMNS = ("part", "name", "measure", "of", "value", "low", "high", "n", "missing")


def as_json(tree: Branch) -> str:
    return json_of(plain_measures(tree))


def json_of(measures: dict[str, Any]) -> str:
    return json_text(measures, indent=2) + "\n"


def as_csv(tree: Branch) -> str:
    """A line for each number: the part and name it belongs to (no name: the run as a whole), the measure,
    and of what (``by_task`` of ``haiku``; of a label ``quiz / colour``); with its interval, n and what is
    missing, where it has these."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for leaf in leaves(tree):
        writer.writerow([*map(_guarded, _place(leaf)), *("" if v is None else v for v in leaf.measured)])
    return text.getvalue()


def as_markdown(tree: Branch) -> str:
    """Findings, a table for each part of the measures, and for each student and label what is taken for
    what."""
    lines = [f"**{_cell(SIMULATED)}**", ""] if tree.get("simulated") else []
    if findings := tree.get("findings"):
        lines += [*(f"- {_cell(finding)}" for finding in findings), ""]
    lines += [f"Scores that count (units): {tree['units']:,}.", ""]
    for part, found in groupby(leaves(tree), key=lambda leaf: leaf.path[0]):
        if part != "units" and (shown := [leaf for leaf in found if _place(leaf).measure not in _IN_TABLES]):
            lines += [f"## {part}", "", *_markdown_table(shown), ""]
    for task, labels in tree.get("labels", {}).items():
        for label, found in labels.items():
            for student, of_student in found["students"].items():
                if of_student["accuracy"].n:
                    lines += [f"### {_cell(task)} {_cell(label)}: {_cell(student)}", ""]
                    lines += [*_confusion(of_student), ""]
    return "\n".join(lines)


# Measures that have tables of their own.
_IN_TABLES = ("confusion", "expected")


def _confusion(found: Branch) -> Iterator[str]:
    """Expected labels below, stated ones beside; of many labels, the pairs that occur."""
    table = found["confusion"]
    if len(table) > MOST_VALUES:
        yield "| expected | stated | answers |"
        yield "| --- | --- | ---: |"
        for expected, stated, count in mistakes({"": found}):
            yield f"| {_cell(expected)} | {_cell(stated)} | {count:,} |"
        return
    yield f"| expected | {' | '.join(map(_cell, table))} | {NO_LABEL} |"
    yield f"| --- |{' ---: |' * (len(table) + 1)}"
    for expected, row in table.items():
        none = found["expected"][expected] - sum(row.values())
        yield f"| {_cell(expected)} | {' | '.join(f'{count:,}' for count in (*row.values(), none))} |"


def _markdown_table(found: Sequence[Leaf]) -> Iterator[str]:
    """Without a column of names where all is of the run as a whole."""
    named = any(_place(leaf).name for leaf in found)
    yield f"|{' name |' * named} measure | value | 95 % interval | n | missing |"
    yield f"|{' --- |' * named} --- | ---: | --- | ---: | ---: |"
    for leaf in found:
        _, name, measure, of = _place(leaf)
        value, low, high, n, missing = leaf.measured
        bounds = "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"
        shown = "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
        counts = ("" if count is None else f"{count:,}" for count in (n, missing))
        names = (_cell(name),) if named else ()
        yield f"| {' | '.join((*names, _cell(f'{measure} {of}'.strip()), shown, bounds, *counts))} |"


class _RowPlace(NamedTuple):
    part: str
    name: str
    measure: str
    of: str


def _place(leaf: Leaf) -> _RowPlace:
    """Where a number belongs; of labels the name is the student's, and they are part of what."""
    part, *rest = leaf.path
    match part, rest:
        case "units", _:
            return _RowPlace("run", "", part, "")
        case "labels", [task, label, _, *rest]:
            rest = [name for name in rest if name != "differences"]
            return _RowPlace(part, rest[0], rest[1], _OF.join((task, label, *rest[2:])))
        case "leak", [kind, name, measure]:
            return _RowPlace(part, name, measure, kind)
        case ("robust", ["students", name, measure, *of]) | (
            "ranking",
            ["scores" | "differences", name, measure, *of],
        ):
            return _RowPlace(part, name, measure, _OF.join(of))
    name = rest.pop(0) if len(rest) > 1 else ""
    return _RowPlace(part, name, rest[0], _OF.join(rest[1:]))


def _cell(text: str) -> str:
    """Names of models and attributes are foreign: no sign of Markdown or HTML in them is one."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in plain(text))


def _guarded(text: str) -> str:
    """Text that a spreadsheet would take for a formula is marked as the text it is."""
    return plain(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)


def print_measures(tree: Branch, console: Console) -> None:
    """A table for each part that there is anything of."""
    if tree.get("simulated"):
        console.print(Text(SIMULATED, style="bold yellow"))
    findings = tree.get("findings", ())
    for finding in findings:
        say(console, finding)
    if _print_parts(tree, console):
        say(console, "[low, high]: 95 % interval, clustered by datapoint (n). docs/measures.md", "dim")
    elif not findings:
        bare = "labels" in tree and "students" not in tree
        say(console, "No task of this run has labels." if bare else "There is nothing to show yet.")


def _print_parts(tree: Branch, console: Console) -> bool:
    """Whether there was anything to print."""
    printed = False
    if students := tree.get("students"):
        printed |= _print_students(students, tree["ranking"], console)
        if (others := tree["without_own"])["applicable"]:
            _print_standing("Without the scores that students gave themselves", others, console)
    if labels := tree.get("labels"):
        print_labels(labels, console, whole="students" not in tree)
        printed = True
    for part, title, heading, names in _PLAIN_PARTS:
        printed |= _print_rows(title, heading, tree.get(part, {}), names, console)
        if part == "judges":
            printed |= _print_ledger(tree.get(part, {}), console)
    if (robust := tree.get("robust")) and (tree["units"] or "students" not in tree):
        _print_robust(robust, console)
        printed |= robust["applicable"]
    if coverage := tree.get("coverage"):
        _print_coverage(coverage, console)
        printed = True
    if (leak := tree.get("leak")) and leak["students"]:
        _print_leak(leak["students"], console)
    if items := tree.get("items"):
        printed |= _print_items(items, console)
    for model, tasks in tree.get("metrics", {}).items():
        for task, metrics in tasks.items():
            samples = tree["samples"].get(model, {}).get(task, {})
            _print_metrics(f"{model} in {task}", metrics, samples, console)
            printed = True
    return printed


def _print_metrics(title: str, metrics: Branch, samples: Branch, console: Console) -> None:
    """``samples``: of a task with several samples of each prompt, by metric."""
    columns = [Column("value"), Column("n")]
    rows = [NameRow(name, (_shown(found), f"{found.n:,}")) for name, found in metrics.items()]
    if samples:
        runs = max(found["n_runs"] for found in samples.values())
        title += f", {runs} samples of each prompt"
        columns += [Column("item s.e."), Column("sd of samples")]
        rows = [
            NameRow(
                row.name, (*row.cells, *(_digits(samples[row.name][part]) for part in ("item_se", "std")))
            )
            for row in rows
        ]
    print_table(console, title, "metric", columns, rows)


def _digits(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3g}"


def _print_robust(robust: Branch, console: Console) -> None:
    if not robust["applicable"]:
        say(console, f"No robust set: {robust['reason']}.", "dim")
        return
    title = f"Robust set: {robust['datapoints']:,} of {robust['of_datapoints']:,} datapoints"
    _print_standing(title, robust, console)
    whose = f"judges {listed(robust['judges'])}; teachers {listed(robust['teachers'])}"
    say(console, f"Where the judges who agree best agree: {whose}.", "dim")
    say(console, "These items were selected by the same scores, so there are no ranks or p-values.", "dim")


def _print_standing(title: str, of: Branch, console: Console) -> None:
    """Scores by some of the judgments, and ranks where there are any."""
    ranges = of["ranking"]["ranges"]
    scores = {name: found["headline"] for name, found in (of["students"] | of["ranking"]["scores"]).items()}

    def ranked(name: str) -> list[str]:
        return [_rank(ranges.get(name))] if ranges else []

    rows = [
        NameRow(name, (*ranked(name), _shown(score), f"{score.n:,}"))
        for name, score in sorted(scores.items(), key=lambda one: _best_first(*one))
    ]
    columns = [*([Column("rank")] if ranges else []), Column("score"), Column("n")]
    print_table(console, title, "student", columns, rows)


def _print_ledger(judges: Branch, console: Console) -> bool:
    """What can be told of any of them."""
    cells = {
        name: {bias: _leaning(of) for bias, of in found["bias"].items()}
        | {"itself": _shown(found["consistency"]["spa"]) if found["consistency"] else _NOTHING}
        for name, found in judges.items()
    }
    known = [what for what in (*BIASES, "itself") if any(of[what] != _NOTHING for of in cells.values())]
    if known:
        rows = [NameRow(name, tuple(of[what] for what in known)) for name, of in cells.items()]
        title = "What judges lean on, and how often they agree with themselves"
        print_table(console, title, "judge", [*map(Column, known)], rows)
    return bool(known)


def _print_leak(students: Branch, console: Console) -> None:
    rows = [NameRow(name, (_leaning(found), f"{found['items']:,}")) for name, found in students.items()]
    title = "What students gain on items that teachers of their own family wrote"
    print_table(console, title, "student", [Column("gain"), Column("items")], rows)


def _leaning(bias: Branch) -> str:
    low, high = bias["ci95"] or (None, None)
    return with_interval(bias["value"], low, high) or _NOTHING


_OF_COVERAGE = ("acr", "rar", "surface_bias", "difficulty", "discrimination")


def _print_coverage(coverage: Branch, console: Console) -> None:
    columns = [*map(Column, ("acr", "rar", "likeness", "difficulty", "discrimination", "n"))]
    rows = [
        NameRow(task, (*(_plain(found[name].value) for name in _OF_COVERAGE), f"{found['acr'].n:,}"))
        for task, found in coverage.items()
    ]
    print_table(console, "The benchmark", "task", columns, rows)
    for task, found in coverage.items():
        told = [
            f"{words} {found[name]:,}"
            for name, words in (
                ("all_pass", "all students pass"),
                ("all_fail", "all fail"),
                ("near_duplicates", "nearly the same as another are"),
            )
            if found[name]
        ]
        if told:
            say(console, f"Of the datapoints of {task}, {listed(told)}.")


# Rows of a screen; `--json` and the report have all.
_MOST_ITEMS = 20


def _print_items(items: Branch, console: Console) -> bool:
    """Those that tell least of students, or the opposite: worst discrimination first."""
    known = sorted(
        (one["discrimination"], name) for name, one in items.items() if one["discrimination"] is not None
    )
    rows = [
        NameRow(name, (_plain(items[name]["difficulty"]), _plain(value), str(items[name]["students"])))
        for value, name in known[:_MOST_ITEMS]
    ]
    if rows:
        columns = [Column("difficulty"), Column("discrimination"), Column("students")]
        print_table(console, "Datapoints that tell students apart least", "item", columns, rows)
    return bool(rows)


def _plain(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}"


# Of the measures, what each row of their table is called, and its figures.
_PLAIN_PARTS = (
    ("agreement", "How far judges agree", "judges", ("spa", "wpa", "kappa")),
    ("judges", "Judges, mean over the others", "judge", ("spa_mean", "wpa_mean", "kappa_mean")),
    ("teachers", "How far teachers' items tell students apart", "teacher", ("v1", "s2", "r3")),
)


def _print_students(students: Branch, ranking: Branch, console: Console) -> bool:
    """Nothing where nobody has a score, and none is known to be missing."""
    if not any(
        found["headline"].value is not None or found["overall"].missing for found in students.values()
    ):
        return False
    scores = {name: found["headline"] for name, found in (students | ranking["scores"]).items()}
    rows = [
        NameRow(
            name,
            (
                _rank(ranking["ranges"].get(name)),
                _shown(score),
                _shown(students[name]["overall"]),
                f"{score.n:,}",
                f"{students[name]['overall'].missing:,}",
            ),
        )
        for name, score in sorted(scores.items(), key=lambda one: _best_first(*one))
    ]
    columns = [Column("rank"), Column("score"), Column("over units"), Column("n"), Column("missing")]
    bounds = {name: found["bounds"]["headline"] or (None, None) for name, found in students.items()}
    if any(least != most for least, most in bounds.values()):
        columns.append(Column("bounds"))
        rows = [NameRow(row.name, (*row.cells, bounds_text(*bounds[row.name]) or _NOTHING)) for row in rows]
    print_table(console, "Students", "student", columns, rows)
    if len(columns) > 5:
        say(console, "bounds: the score with all that is missing counted as 0, and as 1.", "dim")
    return True


def _rank(found: Sequence[int] | None) -> str:
    """``2``, or ``2–4`` where it is not sure."""
    return "–".join(str(rank) for rank in dict.fromkeys(found or ())) or _NOTHING


def _print_rows(title: str, heading: str, part: Branch, names: tuple[str, ...], console: Console) -> bool:
    """Nothing where no row has a figure."""
    if all(found[measure].value is None for found in part.values() for measure in names):
        return False
    columns = [*(Column(name.removesuffix("_mean")) for name in names), Column("n")]
    rows = [
        NameRow(name, (*(_shown(found[measure]) for measure in names), f"{found[names[0]].n:,}"))
        for name, found in part.items()
    ]
    print_table(console, title, heading, columns, rows)
    return True


def _best_first(name: str, found: Measured) -> tuple[bool, float, str]:
    return found.value is None, -(found.value or 0.0), name
