"""A folder's report, written as a page beside the measures that it shows; and the page of a comparison."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coeval.analysis.measures.run_measures import write_measures
from coeval.analysis.readers.reader import Reader
from coeval.pipeline.plan.run_reading import opened
from coeval.reports.content import Sentence
from coeval.reports.folder_report import FolderReport, reported
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_selection import select_items
from coeval.reports.site.page import write_page
from coeval.store.jsonl import write_bytes_atomic

PAGE = "report.html"
# Bytes: what goes by mail without a thought, and opens at once on a telephone.
LARGEST = 1_200_000
# Compressed: items have what is left of it, as base64; where that is room for some dozens alone, filters give
# way to them. 80,000 judgments of five factors leave room for both (`python -m perf.run report-80-thousand`).
ITEM_BYTES, _LEAST_ITEM_BYTES = 600_000, 80_000
# Their facets and counts, which stand beside them.
_BESIDE_ITEMS = 20_000
_NO_FILTERS = (
    "This page has no filters: with so many judgments they would make it too large to mail. "
    "The report in `coeval view` has them."
)


def write_report(folder: Path, out: Path) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run, or of what ``eval-framework`` filled, into
    ``out``; the notes of whoever read it.

    Raises UsageError: the folder is none of ours; StoreError: it cannot be read, or the files not be written.
    """
    with opened(folder, shown=True) as (reader, notes):
        found = reported(reader, notes)
        write_report_page(found, reader, out)
    write_measures(found.measured.measures, out)
    return found.notes


def write_report_page(found: FolderReport, reader: Reader, out: Path) -> None:
    """Write the report of what is read, and its items, into ``out``; raises as `write_report`."""
    write_bytes_atomic(out / PAGE, _fitting_page(found, found.flag(ItemBrowser(reader))))


def _fitting_page(found: FolderReport, browser: ItemBrowser) -> bytes:
    """A page of `LARGEST` bytes at most, with filters if these leave room for items."""
    report, scores = found.report, found.scores
    room = _room(write_page(report, scores=scores))
    if scores is not None and room < _LEAST_ITEM_BYTES:
        told = (
            msgspec.structs.replace(each, sentences=(*each.sentences, Sentence(_NO_FILTERS)))
            if each.anchor == "leads"
            else each
            for each in report.sections
        )
        report, scores = msgspec.structs.replace(report, sections=tuple(told)), None
        room = _room(write_page(report))
    items = select_items(browser, min(ITEM_BYTES, max(0, room)))
    return write_page(report, scores=scores, items=items)


def _room(page: bytes) -> int:
    """Bytes of compressed items that a page has room for."""
    return (LARGEST - len(page) - _BESIDE_ITEMS) * 3 // 4
