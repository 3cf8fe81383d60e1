"""Charts of a sheet that Excel draws itself, beside the table that they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coeval.analysis.measures.measured import Measured
from coeval.reports.charts.theme import LIGHT
from coeval.reports.content.report_content import Cell, ReportTable
from coeval.reports.workbook.workbook_file import WorkbookFile, WrittenSheet

__all__ = ["add_chart"]

SHOWN = "shown"
"""A column that holds a measure in the same unit for all rows, whatever theirs are."""
_MOST_BARS = 40
_WIDTH, _STEP, _REST = 620, 26, 90
"""Pixels: the width of a chart, the height of a bar, and of all else."""


def add_chart(book: WorkbookFile, written: WrittenSheet, table: ReportTable) -> None:
    """A bar for each row, with the interval of its measure: of the first column that holds such, or money.
    Where names do not tell the rows apart, or there are too many, there is none."""
    names = [row[0] for row in table.rows]
    if table.columns[0].kind != "text" or not 1 < len(names) <= _MOST_BARS or len(set(names)) < len(names):
        return
    place = _shown(table)
    if place is None:
        return
    column = table.columns[place]
    chart = book.book.add_chart({"type": "bar"})
    series: dict[str, Any] = {
        "name": column.title,
        "categories": written.reference(table.columns[0].name),
        "values": written.reference(column.name),
        "fill": {"color": LIGHT.most},
        "gap": 60,
    }
    if bars := _error_bars([row[place] for row in table.rows]):
        series["x_error_bars"] = bars
    chart.add_series(series)
    chart.set_title({"name": f"{table.title}: {column.title}", "name_font": {"size": 12}})
    chart.set_legend({"none": True})
    chart.set_y_axis({"reverse": True})
    chart.set_x_axis({"major_gridlines": {"visible": True, "line": {"color": LIGHT.lines}}})
    chart.set_size({"width": _WIDTH, "height": _REST + _STEP * written.rows})
    written.sheet.insert_chart(1, len(written.columns) + 1, chart)


def _shown(table: ReportTable) -> int | None:
    """The place of the column that is worth a chart: the one in the same unit, where there is such."""
    places = sorted(range(1, len(table.columns)), key=lambda place: table.columns[place].name != SHOWN)
    for place in places:
        if _error_bars([row[place] for row in table.rows]) is not None:
            return place
    money = (place for place, column in enumerate(table.columns) if column.kind == "usd")
    return next((place for place in money if any(row[place] for row in table.rows)), None)


def _error_bars(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """From each value to the ends of its interval; nothing where there is none."""
    ends = [_ends(cell) for cell in cells]
    if not any(low or high for low, high in ends):
        return None
    return {
        "type": "custom",
        "minus_values": [low for low, _ in ends],
        "plus_values": [high for _, high in ends],
        "line": {"color": LIGHT.text},
    }


def _ends(cell: Cell) -> tuple[float, float]:
    if not isinstance(cell, Measured) or cell.value is None or cell.low is None or cell.high is None:
        return 0.0, 0.0
    return cell.value - cell.low, cell.high - cell.value
