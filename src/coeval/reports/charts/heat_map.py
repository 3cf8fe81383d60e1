"""Numbers in a grid of rows and columns, shaded by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named, names_axis

__all__ = ["HeatMap", "heat_map"]

_STEP = 26
_COLUMN, _NARROW, _UNWRITTEN = 110, 52, 22
"""Pixels of a column: the most that it makes good use of, the least with a number, and without."""
_LABELS = 220
_FEW_COLUMNS, _MOST_WRITTEN = 4, 24
"""Up to so many columns have their names above them in lines, and numbers in their cells."""
_LONGEST = 30
_SHORTENED = (
    f"length(datum.label) > {_LONGEST} "
    "? slice(datum.label, 0, 14) + '…' + slice(datum.label, -15) : datum.label"
)
"""Names differ at their beginnings and at their ends."""


class HeatMap(NamedTuple):
    """``rows`` and ``columns`` are the values of the columns ``row`` and ``column`` of the table, in order.
    ``value`` is written, ``shade`` gives the colour: around 0, where ``middle`` says how far from it colours
    are strongest. Where the column ``dot`` is true, a dot stands before the number. ``format`` is d3's: a
    difference loses its third digit where columns are many."""

    table: str
    row: str
    column: str
    value: str
    shade: str
    rows: Sequence[str]
    columns: Sequence[str]
    format: str = ".2f"
    middle: float = 0.0
    dot: str = ""
    tooltip: Sequence[str] = ()


def _ends(grid: HeatMap) -> dict[str, Any]:
    if not grid.middle:
        return {"zero": False}
    return {"domain": [-grid.middle, 0, grid.middle], "range": "diverging", "clamp": True}


def heat_map(grid: HeatMap) -> dict[str, Any]:
    """``tooltip`` names further columns that a cell tells of."""
    many = len(grid.columns) > _FEW_COLUMNS
    column = alt.X(f"{grid.column}:N", sort=list(grid.columns), title=None, axis=_column_axis(many=many))
    names = names_axis(labelExpr=_SHORTENED, labelLimit=_LABELS)
    row = alt.Y(f"{grid.row}:N", sort=list(grid.rows), title=None, axis=names)
    scale = alt.Scale(interpolate="rgb", **_ends(grid))
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
    least = _LABELS + (_NARROW if written else _UNWRITTEN) * columns
    spec["usermeta"] |= {"row": grid.row, "step": _STEP, "least": least}
    return spec


def _column_axis(*, many: bool) -> alt.Axis:
    """Names of many columns stand upright, so that none reaches into another, or out of the picture."""
    if many:
        return names_axis(orient="top", labelAngle=-90, labelExpr=_SHORTENED, labelLimit=_LABELS)
    return names_axis(orient="top", labelAngle=0, labelLimit=_COLUMN - 5)


def _numbers(base: alt.Chart, grid: HeatMap, *, many: bool) -> alt.Chart:
    short = grid.format.replace(".3f", ".2f") if many else grid.format
    number = f"format(datum['{grid.value}'], '{short}')"
    if grid.dot:
        number = f"(datum['{grid.dot}'] ? '● ' : '') + {number}"
    known = base.transform_filter(f"isValid(datum['{grid.value}'])").transform_calculate(written=number)
    numbers: alt.Chart = known.mark_text(fontSize=11 if many else 12).encode(text="written:N")
    return numbers
