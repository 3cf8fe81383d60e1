"""Tables of a workbook, wherever they stand on its sheets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openpyxl.workbook import Workbook
from openpyxl.worksheet.worksheet import Worksheet

Line = tuple[Any, ...]


def blocks(sheet: Worksheet) -> Iterator[tuple[str, Line, list[Line]]]:
    """Title, head and rows of each table: the first begins the sheet that is named like it, others stand
    below their titles; a line without any cell ends one."""
    title, lines = sheet.title, []
    for line in (*sheet.iter_rows(values_only=True), ()):
        if any(cell is not None for cell in line):
            lines.append(line)
            continue
        if lines and lines[0][0] is not None and len(lines) == 1:
            lines = []  # a note
        if lines:
            alone = lines[0][0] is not None and not any(cell is not None for cell in lines[0][1:])
            if alone and len(lines) > 1:
                title, *lines = lines[0][0], *lines[1:]
            yield title, lines[0], lines[1:]
        lines = []


def table_lines(book: Workbook, title: str) -> tuple[Line, list[Line]]:
    """Head and rows of a table, by its title or the name of its sheet."""
    return next(
        (head, rows)
        for sheet in book.worksheets[1:]
        for name, head, rows in blocks(sheet)
        if name.partition(":")[0] == title
    )


def summary_lines(book: Workbook) -> list[str]:
    """All texts of the summary."""
    return [str(cell) for line in book["Summary"].iter_rows(values_only=True) for cell in line if cell]


def table_rows(book: Workbook, title: str) -> list[dict[str, Any]]:
    """Rows by the headings of their columns."""
    head, rows = table_lines(book, title)
    return [
        {str(name): cell for name, cell in zip(head, row, strict=True) if name is not None} for row in rows
    ]
