"""Tables of a workbook: each on the sheet with its name."""

from __future__ import annotations

from typing import Any

from openpyxl.workbook import Workbook

Line = tuple[Any, ...]


def table_lines(book: Workbook, title: str) -> tuple[Line, list[Line]]:
    """Head and rows of a table, by its title; a line without any cell ends it."""
    head, *lines = book[title[:31]].iter_rows(values_only=True)
    end = next((at for at, line in enumerate(lines) if all(cell is None for cell in line)), len(lines))
    return head, lines[:end]


def summary_lines(book: Workbook) -> list[str]:
    """All texts of the summary."""
    return [str(cell) for line in book["Summary"].iter_rows(values_only=True) for cell in line if cell]


def table_rows(book: Workbook, title: str) -> list[dict[str, Any]]:
    """Rows by the headings of their columns."""
    head, rows = table_lines(book, title)
    return [
        {str(name): cell for name, cell in zip(head, row, strict=True) if name is not None} for row in rows
    ]
