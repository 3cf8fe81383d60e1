"""Numbers in a grid of rows and columns, shaded by how far they are from zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from coeval.reports.charts.chart_spec import LONGEST_NAME, chart_spec, named, names_axis

__all__ = ["NOTEWORTHY", "HeatMap", "heat_map"]

NOTEWORTHY = 0.1
"""Of a score: where all differences are smaller, none has the strongest colour."""

_STEP = 26
_COLUMN, _NARROW, _UNWRITTEN = 110, 52, 22
"""Pixels of a column: the most that it makes good use of, the least with a number, and without."""
_LABELS, _LETTER = 220, 8
"""Pixels of names beside rows, and of a letter."""
_LONGEST_LEVEL = _COLUMN // _LETTER
"""Characters of a name above a column that has room."""
_DOTTED = len("● +0.123") + 1
_FEW_COLUMNS, _MOST_WRITTEN = 4, 24
"""Up to so many columns have their names above them level, if these are short, and numbers in their cells."""


class HeatMap(NamedTuple):
    """``rows`` and ``columns`` are the values of the columns ``row`` and ``column`` of the table, in order.
    ``value`` is written. ``shade`` gives the colour: none at 0, strongest at ``most`` and at ``-most``. Where
    the column ``dot`` is true, a dot stands before the number. ``format`` is d3's: a difference loses its
    third digit where columns are many."""

    table: str
    row: str
    column: str
    value: str
    shade: str
    rows: Sequence[str]
    columns: Sequence[str]
    most: float
    format: str = ".2f"
    dot: str = ""
    tooltip: Sequence[str] = ()


def heat_map(grid: HeatMap) -> dict[str, Any]:
    """``tooltip`` names further columns that a cell tells of."""
    many = len(grid.columns) > _FEW_COLUMNS
    names = dict.fromkeys((*grid.rows, *grid.columns))  # together, so that a name has one label
    above = names_axis(names, narrow=LONGEST_NAME, orient="top", labelAngle=-90)
    if not many:
        above = names_axis(names, _LONGEST_LEVEL, orient="top", labelAngle=0)
    column = alt.X(f"{grid.column}:N", sort=list(grid.columns), title=None, axis=above)
    row = alt.Y(
        f"{grid.row}:N", sort=list(grid.rows), title=None, axis=names_axis(names, narrow=LONGEST_NAME)
    )
    most = grid.most or 1.0  # where all are 0, none has a colour
    scale = alt.Scale(interpolate="rgb", domain=[-most, 0, most], range="diverging", clamp=True)
    told = [
        alt.Tooltip(f"{grid.row}:N"),
        alt.Tooltip(f"{grid.column}:N"),
        alt.Tooltip(f"{grid.value}:Q", format=grid.format),
        *(alt.Tooltip(f"{name}:Q", title=name.replace("_", " "), format=".3~f") for name in grid.tooltip),
    ]
    base = alt.Chart(named(grid.table)).encode(y=row, x=column, tooltip=told)
    cells = base.mark_rect(cornerRadius=3).encode(
        color=alt.Color(f"{grid.shade}:Q", scale=scale, legend=None)
    )
    written = len(grid.columns) <= _MOST_WRITTEN
    layers = [cells, _numbers(base, grid, many=many)] if written else [cells]
    columns = max(len(grid.columns), 1)
    spec = chart_spec(alt.layer(*layers), max(len(grid.rows), 1) * _STEP, _LABELS + _COLUMN * columns)
    narrowest = (_NARROW if written else _UNWRITTEN) if many else _least_level(grid.columns)
    least = _LABELS + narrowest * columns
    spec["usermeta"] |= {"row": grid.row, "step": _STEP, "least": least}
    return spec


def _least_level(columns: Sequence[str]) -> int:
    """Pixels of a column with its name level above it, or with a dot and three digits."""
    return _LETTER * max(_DOTTED, min(_LONGEST_LEVEL, max(map(len, columns), default=0)))


def _numbers(base: alt.Chart, grid: HeatMap, *, many: bool) -> alt.Chart:
    short = grid.format.replace(".3f", ".2f") if many else grid.format
    number = f"format(datum['{grid.value}'], '{short}')"
    if grid.dot:
        number = f"(datum['{grid.dot}'] ? '● ' : '') + {number}"
    known = base.transform_filter(f"isValid(datum['{grid.value}'])").transform_calculate(written=number)
    numbers: alt.Chart = known.mark_text(fontSize=11 if many else 12).encode(text="written:N")
    return numbers
