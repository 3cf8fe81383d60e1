"""A cell as people read it: so many digits as its interval justifies, missing as a dash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coeval.analysis.measures.measured import Measured
from coeval.core.plain import plain
from coeval.core.text import dollars
from coeval.reports.content.report_content import Cell, ReportColumn

__all__ = ["MISSING", "cell_text", "column_digits", "row_texts"]

MISSING = "–"
_NARROW = 0.02
"""An interval that is narrower than this earns its column a third digit."""


def row_texts(columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """All cells of a table; numbers of one column have the same digits, so that their points align."""
    digits = [column_digits([row[place] for row in rows]) for place in range(len(columns))]
    return [
        [cell_text(cell, column, many) for cell, column, many in zip(row, columns, digits, strict=True)]
        for row in rows
    ]


def column_digits(cells: Iterable[Cell]) -> int:
    """How many digits a column's scores have behind the point: 3 where every interval is narrow, else 2."""
    widths = [
        cell.high - cell.low
        for cell in cells
        if isinstance(cell, Measured) and cell.low is not None and cell.high is not None
    ]
    return 3 if widths and max(widths) < _NARROW else 2


def cell_text(cell: Cell, column: ReportColumn, digits: int = 2) -> str:
    """``0.81 [0.80, 0.82]``, ``1,985``, ``$5.12``, ``<0.001``."""
    match cell:
        case None:
            return MISSING
        case Measured():
            return _measured(cell, column, digits)
        case bool():
            return "yes" if cell else "no"
        case str():
            return plain(cell)
        case _:
            return _number(cell, column, digits)


def _measured(cell: Measured, column: ReportColumn, digits: int) -> str:
    if cell.value is None:
        return MISSING
    value = _figure(cell.value, column, digits)
    if cell.low is None or cell.high is None:
        return value
    low, high = (_figure(bound, column, digits) for bound in (cell.low, cell.high))
    return f"{value} [{low}, {high}]"


def _figure(number: float, column: ReportColumn, digits: int) -> str:
    """Of a measure: calls and dollars as such, all else with the digits of its column."""
    if column.kind in ("count", "usd"):
        return _number(number, column, digits)
    return _signless_zero(f"{number:.{digits}f}")


def _number(cell: float, column: ReportColumn, digits: int) -> str:
    match column.kind:
        case "count":
            return f"{cell:,.0f}"
        case "usd":
            return dollars(cell)
        case "probability":
            return "<0.001" if cell < 0.001 else f"{cell:.3f}"
        case "seconds":
            return f"{cell:,.1f} s"
        case "number":
            return f"{cell:,}" if isinstance(cell, int) else _signless_zero(f"{cell:,.3g}")
        case _:
            return _signless_zero(f"{cell:.{digits}f}")


def _signless_zero(text: str) -> str:
    """A difference that rounds to nothing has no direction; others have a real minus sign."""
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.,") else f"−{text[1:]}"
    return text
