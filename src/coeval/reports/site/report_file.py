"""A folder's report, written as a page beside the measures that it shows; and the page of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coeval.analysis.measures.run_measures import write_measures
from coeval.analysis.readers.reader import Reader
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.reports.experiment.run_choices import RunChoices
from coeval.reports.folder_report import FolderReport, make_folder_report
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_selection import select_items
from coeval.reports.site.page import (
    DataBlock,
    PageChoice,
    PageFrame,
    choice_data,
    item_blocks,
    packed,
    packed_block,
)
from coeval.store.jsonl import write_bytes_atomic

PAGE = "report.html"
# Bytes: what goes by mail without a thought, and opens at once on a telephone.
LARGEST = 1_000_000
# Compressed: choices of scores come first, and items have what is left of it, as base64, but for room for
# some dozens of them. 80,000 judgments leave room for both (`python -m perf.run report-80-thousand`).
ITEM_BYTES, _LEAST_ITEM_BYTES = 600_000, 40_000
# Their facets and counts, which stand beside them; of a choice its element.
_BESIDE_ITEMS, _BESIDE_CHOICE = 20_000, 60


def write_report(folder: Path, out: Path) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run, or of what ``eval-framework`` filled, into
    ``out``; the notes of whoever read it.

    Raises UsageError: the folder is none of ours; StoreError: it cannot be read, or the files not be written.
    """
    with open_folder_reader(folder, is_look=True) as (reader, notes):
        found = make_folder_report(reader, notes)
        write_report_page(found, reader, out)
    write_measures(found.measured.measures, out)
    return found.notes


def write_report_page(found: FolderReport, reader: Reader, out: Path) -> None:
    """Write the report of what is read, and its items, into ``out``; raises as `write_report`."""
    write_bytes_atomic(out / PAGE, _fitting_page(found, found.add_measures(ItemBrowser(reader))))


def _fitting_page(found: FolderReport, browser: ItemBrowser) -> bytes:
    """A page of `LARGEST` bytes at most, with as many choices as leave room for items."""
    report, every = found.report, () if found.choices is None else found.choices.single
    choices = [PageChoice(*pair) for pair in every]
    frame = PageFrame(report, choices=choices, has_items=True)
    room = (LARGEST - len(frame) - _BESIDE_ITEMS) * 3 // 4
    blocks: list[DataBlock] = []
    for at, data in enumerate(_choice_data(found.choices, room - _LEAST_ITEM_BYTES)):
        blocks.append(packed_block(f"choice-{at}", data))
        room -= len(data) + _BESIDE_CHOICE
    if left_out := len(every) - len(blocks):
        frame = PageFrame(report, choices=choices[: len(blocks)], left_out=left_out, has_items=True)
    items = select_items(browser, min(ITEM_BYTES, max(0, room)))
    return frame.with_data((*blocks, *item_blocks(items)))


def _choice_data(choices: RunChoices | None, room: int) -> Iterator[bytes]:
    """The figures of the first choices, compressed, that take no more than ``room`` bytes."""
    if choices is None:
        return
    for pair in choices.single:
        data = packed(choice_data(choices.report_choice([pair]), choices.evidence.students))
        room -= len(data) + _BESIDE_CHOICE
        if room < 0:
            return
        yield data
