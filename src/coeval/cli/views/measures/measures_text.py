"""Measures as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, TypeAlias

from coeval.analysis.measures.measured import Branch, Leaf, leaves
from coeval.analysis.measures.run_measures import plain_measures
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
    """A line for each number: the part and name it belongs to, the measure, and of what (``by_task`` of
    ``haiku``; of a label ``quiz / colour``); with its interval, n and what is missing, where it has these."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for leaf in leaves(tree):
        writer.writerow([*map(_guarded, _place(leaf)), *("" if v is None else v for v in leaf.measured)])
    return text.getvalue()


def as_markdown(tree: Branch) -> str:
    """A table for each part of the measures, and for each student and label what is taken for what."""
    lines: list[str] = []
    for part, found in groupby(leaves(tree), key=lambda leaf: leaf.path[0]):
        rows = list(_markdown_rows(leaf for leaf in found if _place(leaf)[2] not in _IN_TABLES))
        lines += [f"## {part}", "", "| name | measure | value | 95 % interval | n | missing |"]
        lines += ["| --- | --- | ---: | --- | ---: | ---: |", *rows, ""]
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


def _markdown_rows(found: Iterator[Leaf]) -> Iterator[str]:
    for leaf in found:
        _, name, measure, of = _place(leaf)
        value, low, high, n, missing = leaf.measured
        bounds = "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"
        shown = "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
        counts = ("" if count is None else f"{count:,}" for count in (n, missing))
        cells = (_cell(name), _cell(f"{measure} {of}".strip()), shown, bounds, *counts)
        yield f"| {' | '.join(cells)} |"


def _place(leaf: Leaf) -> tuple[str, str, str, str]:
    """Part, name, measure and of what; of labels the name is the student's, and they are part of what."""
    part, *rest = leaf.path
    if part == "labels":
        task, label, _, *rest = rest
        rest = [name for name in rest if name != "differences"]
        return part, rest[0], rest[1], _OF.join((task, label, *rest[2:]))
    name = rest.pop(0) if len(rest) > 1 else ""
    return part, name, rest[0] if rest else part, _OF.join(rest[1:])


def _cell(text: str) -> str:
    """Names of models and attributes are foreign: no sign of Markdown or HTML in them is one."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in plain(text))


def _guarded(text: str) -> str:
    """Text that a spreadsheet would take for a formula is marked as the text it is."""
    return plain(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)
