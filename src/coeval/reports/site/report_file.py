"""A folder's report, written as a page beside the measures that it shows; and the page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coeval.analysis.measures.run_measures import write_measures
from coeval.analysis.readers.reader import Reader
from coeval.pipeline.plan.run_reading import opened
from coeval.reports.folder_report import FolderReport, reported
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_selection import select_items
from coeval.reports.site.page import PageChoice, choice_data, packed, write_page
from coeval.store.jsonl import write_bytes_atomic

PAGE = "report.html"
# Bytes: what goes by mail without a thought, and opens at once on a telephone.
LARGEST = 1_000_000
# Compressed: choices of scores come first, and items have what is left of it, as base64, but for room for
# some dozens of them. 80,000 judgments leave room for both (`python -m perf.run report-80-thousand`).
ITEM_BYTES, _LEAST_ITEM_BYTES = 600_000, 40_000
# Their facets and counts, which stand beside them; of a choice its entry in the page's list.
_BESIDE_ITEMS, _BESIDE_CHOICE = 20_000, 200


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
    """A page of `LARGEST` bytes at most, with as many choices as leave room for items."""
    choices, left_out = _fitting_choices(found, _room(write_page(found.report)) - _LEAST_ITEM_BYTES)
    room = _room(write_page(found.report, choices=choices))
    items = select_items(browser, min(ITEM_BYTES, max(0, room)))
    return write_page(found.report, choices=choices, left_out=left_out, items=items)


def _fitting_choices(found: FolderReport, room: int) -> tuple[Sequence[PageChoice], int]:
    """The first choices whose figures, compressed, take no more than ``room`` bytes, and how many others
    there are."""
    if found.choices is None:
        return (), 0
    fitting: list[PageChoice] = []
    for pair in found.choices.single:
        data = packed(choice_data(found.choices.report_of([pair]), found.choices.evidence.students))
        room -= len(data) + _BESIDE_CHOICE
        if room < 0:
            break
        fitting.append(PageChoice(*pair, data))
    return fitting, len(found.choices.single) - len(fitting)


def _room(page: bytes) -> int:
    """Bytes of compressed data that a page has room for."""
    return (LARGEST - len(page) - _BESIDE_ITEMS) * 3 // 4
