"""Records as rows of a sheet, a page at a time, and no more of them than a program opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coeval.analysis.readers.reader import Reader
from coeval.reports.content.report_content import ReportColumn
from coeval.reports.workbook.workbook_file import SheetTable

__all__ = ["ERROR", "ERROR_TYPE", "FAILED", "MOST_RECORDS", "PAGE", "failed_sheet", "record_pages"]

PAGE = 2_000
MOST_RECORDS = 100_000
"""Rows of a sheet of records; a program that opens texts of more would stall."""

ERROR = "error.kind AS kind, error.message AS message"
ERROR_TYPE = "STRUCT(kind VARCHAR, message VARCHAR)"
FAILED = "what VARCHAR, task VARCHAR, id VARCHAR, model VARCHAR, kind VARCHAR, message VARCHAR"
"""The columns of ``sheet_failures``, which `failed_sheet` shows."""


def record_pages(
    reader: Reader, sql: str, parameters: Sequence[object] = ()
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a query, which is asked once: so long as they are read, ``sheet_rows`` holds them."""
    reader.rows(f"CREATE OR REPLACE TEMP TABLE sheet_rows AS {sql} LIMIT {MOST_RECORDS:d}", parameters)
    [(count,)] = reader.rows("SELECT count(*) FROM sheet_rows")
    for first in range(0, count, PAGE):
        page = "SELECT * FROM sheet_rows WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
        yield reader.rows(page, [first, first + PAGE])


def failed_sheet(reader: Reader, whole: str) -> SheetTable:
    """A record that failed and did not come good later a row, in the order in which they were found."""
    columns = (
        ReportColumn("what", "What"),
        ReportColumn("task", "Task"),
        ReportColumn("id", "Record"),
        ReportColumn("model", "Model"),
        ReportColumn("reason", "Reason"),
        ReportColumn("message", "Message"),
    )
    [(total,)] = reader.rows("SELECT count(*) FROM sheet_failures")
    found = record_pages(
        reader,
        "SELECT * REPLACE (coalesce(kind, 'nothing usable') AS kind) FROM sheet_failures ORDER BY rowid",
    )
    rows = (row for page in found for row in page)
    return SheetTable("Failures", columns, rows, total=total, whole=whole)
