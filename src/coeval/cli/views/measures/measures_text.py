"""Measures as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from coeval.analysis.measures.measured import Branch, Leaf, leaves
from coeval.analysis.measures.run_measures import plain_measures
from coeval.analysis.run_results import SIMULATED
from coeval.cli.views.json_text import json_text
from coeval.cli.views.measures.label_view import MOST_VALUES, NO_LABEL, mistakes
from coeval.core.plain import plain

__all__ = ["MeasuresText", "as_csv", "as_json", "as_markdown", "json_of"]

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


_IN_TABLES = ("confusion", "expected")
"""Measures that have tables of their own."""


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
