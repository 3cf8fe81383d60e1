"""A folder's report as a page, written beside its measures; and the page of a comparison."""

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
    compress_data,
    compressed_block,
    encode_choice_json,
    items_and_lost_blocks,
)
from coeval.store.jsonl import write_bytes_atomic

PAGE = "report.html"
# Bytes: what goes by mail without a thought, and opens at once on a telephone.
LARGEST = 1_000_000
# Compressed: choices of scores come first, and items have what is left of it, as base64, but for room for
# some dozens of them. 80,000 judgments leave room for both (`python -m perf.run report-80-thousand`).
ITEM_BYTES, _LEAST_ITEM_BYTES = 600_000, 40_000
# Their facets and counts, which stand beside them; of a choice its element.
_ITEM_OVERHEAD, _CHOICE_OVERHEAD = 20_000, 60


def write_report_and_measures(folder: Path, out: Path) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run, or of an ``eval-framework`` folder; return the
    notes.

    Raises UsageError: the folder is none of ours; StoreError: it cannot be read, or the files not be written.
    """
    with open_folder_reader(folder, is_look=True) as (reader, notes):
        report = make_folder_report(reader, notes)
        write_report_page(report, reader, out)
    write_measures(report.measured.measures, out)
    return report.notes


def write_report_page(folder_report: FolderReport, reader: Reader, out_folder: Path) -> None:
    """Write a folder's report with its items into ``out``; raises as `write_report_and_measures`."""
    browser = ItemBrowser(reader)
    folder_report.give_measures_to(browser)
    write_bytes_atomic(out_folder / PAGE, _make_page_within_limit(folder_report, browser))


def _make_page_within_limit(folder_report: FolderReport, browser: ItemBrowser) -> bytes:
    """Make a page of `LARGEST` bytes at most, with as many choices as leave room for items."""
    report, run_choices = folder_report.report, folder_report.choices
    all_choices = () if run_choices is None else run_choices.single
    choices = [PageChoice(*pair) for pair in all_choices]
    frame = PageFrame(report, choices=choices, has_items=True)
    bytes_left = (LARGEST - len(frame) - _ITEM_OVERHEAD) * 3 // 4
    blocks: list[DataBlock] = []
    for number, data in enumerate(_compress_choices_that_fit(run_choices, bytes_left - _LEAST_ITEM_BYTES)):
        blocks.append(compressed_block(f"choice-{number}", data))
        bytes_left -= len(data) + _CHOICE_OVERHEAD
    if left_out := len(all_choices) - len(blocks):
        frame = PageFrame(report, choices=choices[: len(blocks)], left_out=left_out, has_items=True)
    items = select_items(browser, min(ITEM_BYTES, max(0, bytes_left)))
    return frame.with_data((*blocks, *items_and_lost_blocks(items)))


def _compress_choices_that_fit(choices: RunChoices | None, bytes_left: int) -> Iterator[bytes]:
    """Yield the figures of the first choices, compressed, while they fit into ``bytes_left``."""
    if choices is None:
        return
    for pair in choices.single:
        data = compress_data(encode_choice_json(choices.report_choice([pair]), choices.evidence.students))
        bytes_left -= len(data) + _CHOICE_OVERHEAD
        if bytes_left < 0:
            return
        yield data
