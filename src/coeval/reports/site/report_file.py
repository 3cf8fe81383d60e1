"""A folder's report, written as a page beside the measures that it shows; and the page of a comparison."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coeval.analysis.comparison.comparison_report import ComparisonReport
from coeval.analysis.measures.run_measures import MeasureOptions, plain_measures
from coeval.pipeline.plan.run_reading import opened
from coeval.reports.comparison_page import comparison_page
from coeval.reports.folder_report import reported
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_selection import select_items
from coeval.reports.site.page import write_page
from coeval.store.jsonl import store_error, write_bytes_atomic

PAGE = "report.html"
# Compressed: so much of a page is items.
ITEM_BYTES = 600_000


def write_report(folder: Path, out: Path, options: MeasureOptions | None = None) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run, or of what ``eval-framework`` filled, into
    ``out``; the notes of whoever read it.

    Raises UsageError: the folder is none of ours; StoreError: it cannot be read, or the files not be written.
    """
    with opened(folder, shown=True) as (reader, notes):
        found = reported(reader, notes, options)
        items = select_items(found.flag(ItemBrowser(reader)), ITEM_BYTES)
        page = write_page(found.report, scores=found.scores, items=items)
    measures = msgspec.json.encode(plain_measures(found.measures))
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(out / "measures.json", msgspec.json.format(measures, indent=2) + b"\n")
        write_bytes_atomic(out / PAGE, page)
    except OSError as error:
        raise store_error("write", out, error) from error
    return found.notes


def write_comparison(compared: ComparisonReport, file: Path) -> None:
    """
    Raises StoreError: the file cannot be written.
    """
    page = write_page(comparison_page(compared))
    try:
        write_bytes_atomic(file, page)
    except OSError as error:
        raise store_error("write", file, error) from error
