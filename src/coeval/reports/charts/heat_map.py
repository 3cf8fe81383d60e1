"""Numbers in a grid of rows and columns, shaded by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named, names_axis

__all__ = ["HeatMap", "heat_map"]

_STEP = 26
_COLUMN = 110
_LABELS = 220


class HeatMap(NamedTuple):
    """``rows`` and ``columns`` are the values of the columns ``row`` and ``column`` of the table, in order.
    ``value`` is written, ``shade`` gives the colour: around 0, where ``middle`` says how far from it colours
    are strongest. Where the column ``dot`` is true, a dot stands before the number. ``format`` is d3's."""

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
    row = alt.Y(f"{grid.row}:N", sort=list(grid.rows), title=None, axis=names_axis())
    slant = -35 if len(grid.columns) > 4 else 0
    axis = names_axis(orient="top", labelAngle=slant, labelLimit=160 if slant else 105)
    column = alt.X(f"{grid.column}:N", sort=list(grid.columns), title=None, axis=axis)
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
    words = base.transform_filter(f"isValid(datum['{grid.value}'])").mark_text()
    layers: list[alt.Chart] = [cells, words.encode(text=alt.Text(f"{grid.value}:Q", format=grid.format))]
    if grid.dot:
        layers.append(
            base.transform_filter(f"datum['{grid.dot}']")
            .mark_text(dx=-34, fontSize=9)
            .encode(text=alt.value("●"))
        )
    width = _LABELS + _COLUMN * max(len(grid.columns), 1)
    spec = chart_spec(alt.layer(*layers), max(len(grid.rows), 1) * _STEP, width)
    spec["usermeta"] |= {"row": grid.row, "step": _STEP}
    return spec
