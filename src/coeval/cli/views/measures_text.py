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
from coeval.core.plain import plain

__all__ = ["MeasuresText", "as_csv", "as_json", "as_markdown", "json_of"]

MeasuresText: TypeAlias = Callable[[Branch], str]

_COLUMNS = ("part", "name", "measure", "of", "value", "low", "high", "n", "missing")


def as_json(tree: Branch) -> str:
    return json_of(plain_measures(tree))


def json_of(measures: dict[str, Any]) -> str:
    return json_text(measures, indent=2) + "\n"


def as_csv(tree: Branch) -> str:
    """A line for each number: the part and name it belongs to, the measure, and of what (``by_task`` of
    ``haiku``); with its interval, n and what is missing, where it has these."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for leaf in leaves(tree):
        writer.writerow([*map(_guarded, _place(leaf)), *("" if v is None else v for v in leaf.measured)])
    return text.getvalue()


def as_markdown(tree: Branch) -> str:
    """A table for each part of the measures."""
    lines: list[str] = []
    for part, found in groupby(leaves(tree), key=lambda leaf: leaf.path[0]):
        rows = list(_markdown_rows(found))
        lines += [f"## {part}", "", "| name | measure | value | 95 % interval | n | missing |"]
        lines += ["| --- | --- | ---: | --- | ---: | ---: |", *rows, ""]
    return "\n".join(lines)


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
    """Part, name, measure and of what."""
    part, *rest = leaf.path
    name = rest.pop(0) if len(rest) > 1 else ""
    return part, name, rest[0] if rest else part, " ".join(rest[1:])


def _cell(text: str) -> str:
    """Names of models and attributes are foreign: no sign of Markdown or HTML in them is one."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in plain(text))


def _guarded(text: str) -> str:
    """Text that a spreadsheet would take for a formula is marked as the text it is."""
    return plain(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)
