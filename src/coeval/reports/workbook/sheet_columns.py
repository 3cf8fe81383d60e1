"""How the columns of a report's table lie in a sheet: a measure takes one for its value, and others for the
ends of its interval and for what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from coeval.analysis.measures.measured import Measured
from coeval.reports.content.report_content import Cell, ColumnKind, ReportColumn

__all__ = ["SheetColumn", "Simple", "number_format", "sheet_columns", "simple_cell"]

Part: TypeAlias = Literal["value", "low", "high", "n"]
Simple: TypeAlias = str | int | float | bool | None

_FORMATS: dict[ColumnKind, str] = {
    "text": "General",
    "count": "#,##0",
    "score": "0.000",
    "share": "0.000",
    "number": "0.000",
    "probability": '[<0.001]"<0.001";0.000',
    "usd": '[=0]"$"0.00;[<0.1]"$"0.0000;"$"#,##0.00',
    "seconds": '0.0" s"',
}
_WORDS: dict[Part, str] = {"value": "", "low": ", from", "high": ", to", "n": ", n"}


class SheetColumn(NamedTuple):
    """``place`` is that of the table's column, ``kind`` how its numbers are written."""

    place: int
    part: Part
    name: str
    title: str
    kind: ColumnKind
    meaning: str


def sheet_columns(columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> list[SheetColumn]:
    """``rows`` tell which columns hold measures."""
    return [
        SheetColumn(
            place,
            part,
            column.name if part == "value" else f"{column.name}_{part}",
            column.title + _WORDS[part],
            "count" if part == "n" else column.kind,
            column.meaning if part == "value" else "",
        )
        for place, column in enumerate(columns)
        for part in _parts([row[place] for row in rows])
    ]


def _parts(cells: Sequence[Cell]) -> Iterator[Part]:
    measured = [cell for cell in cells if isinstance(cell, Measured)]
    yield "value"
    if any(cell.low is not None for cell in measured):
        yield "low"
        yield "high"
    if any(cell.n is not None for cell in measured):
        yield "n"


def simple_cell(cell: Cell, part: Part) -> Simple:
    """What of a cell stands in a column."""
    if isinstance(cell, Measured):
        found: float | None = getattr(cell, part)
        return found
    return cell if part == "value" else None


def number_format(kind: ColumnKind) -> str:
    return _FORMATS[kind]
