"""The figures of a choice of scores as a page's script takes them: HTML of the first screen, and rows of
tables, as short as they can be written without changing what people read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from coeval.analysis.measures.measured import Measured
from coeval.core.plain import plain
from coeval.reports.content import Cell, ReportColumn, ReportTable, cell_text
from coeval.reports.experiment.leading_section import FRONT
from coeval.reports.experiment.run_choices import ChoiceFigures
from coeval.reports.site.page import first_screen

# The tables that follow a choice: the script shows those that its page has.
_FOLLOWING = (
    *(FRONT, "students", "differences", "standings", "quality-cost"),
    *("parts", "values", "checks", "by-judge", "by-teacher", "levels"),
)
# Decimals that a share is written with, in the order in which they are tried: four are a tenth of the last
# digit that people read.
_DECIMALS = (4, 6, 9)


def choice_data(found: ChoiceFigures) -> bytes:
    """Return JSON: ``lead`` is HTML, ``tables`` by name have rows, cell by cell in the order of their columns
    (a measure is its value, ends and n), and the link of each row."""
    report = found.report
    tables = {table.name: table for section in report.sections for table in section.tables}
    tables |= {} if report.front is None else {FRONT: report.front}
    return msgspec.json.encode(
        {
            "lead": first_screen(report, found.students),
            "status": report.shown.text(plain(report.facts[0])),
            "order": found.order,
            "empty": found.is_empty,
            "tables": {name: _table(tables.get(name)) for name in _FOLLOWING},
        }
    )


def _table(table: ReportTable | None) -> dict[str, Any]:
    if table is None:
        return {"rows": [], "links": []}
    rows = [_row(table.columns, row) for row in table.rows]
    return {"rows": rows, "links": [table.links.get(at) for at in range(len(rows))] if table.links else []}


def _row(columns: Sequence[ReportColumn], row: Iterable[Cell]) -> list[Any]:
    return [_cell(cell, column) for cell, column in zip(row, columns, strict=True)]


def _cell(cell: Cell, column: ReportColumn) -> Any:
    if isinstance(cell, Measured):
        return list(_rounded(cell, column)[:4])
    if isinstance(cell, float):
        return _rounded(Measured(cell, None, None, None, None), column).value
    return plain(cell) if isinstance(cell, str) else cell


def _rounded(cell: Measured, column: ReportColumn) -> Measured:
    """Round a measure as far as its text stays the same."""
    text = cell_text(cell, column.kind)
    for decimals in _DECIMALS:
        value, low, high = (None if end is None else round(end, decimals) for end in cell[:3])
        rounded = Measured(value, low, high, cell.n, cell.missing)
        if cell_text(rounded, column.kind) == text:
            return rounded
    return cell
