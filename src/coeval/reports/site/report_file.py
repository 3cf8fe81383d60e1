"""A folder's report, written as a page beside the measures that it shows; and the page of a comparison."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coeval.analysis.comparison.comparison_report import ComparisonReport
from coeval.analysis.measures.measured_run import measure_output, measure_run
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import Measures, plain_measures
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.pipeline.plan.run_reading import opened
from coeval.reports.comparison_page import comparison_page
from coeval.reports.evaluation_report import evaluation_report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_evidence import evidence_of, score_blocks
from coeval.reports.items.item_browser import ItemBrowser, flagged_items
from coeval.reports.items.item_selection import select_items
from coeval.reports.site.page import write_page
from coeval.store.jsonl import store_error, write_bytes_atomic

__all__ = ["PAGE", "write_comparison", "write_report"]

PAGE = "report.html"
# Compressed: so much of a page is items.
ITEM_BYTES = 600_000


def write_report(folder: Path, out: Path, options: RobustOptions | None = None) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run, or of what ``eval-framework`` filled, into
    ``out``; the notes of whoever read it.

    Raises
    ------
    UsageError
        the folder is none of ours.
    StoreError
        it cannot be read, or the files not be written.
    """
    with opened(folder) as (reader, notes):
        page, found = _page(reader, notes, options)
        told = (*reader.notes(), *notes)
    measures = msgspec.json.encode(plain_measures(found))
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(out / "measures.json", msgspec.json.format(measures, indent=2) + b"\n")
        write_bytes_atomic(out / PAGE, page)
    except OSError as error:
        raise store_error("write", out, error) from error
    return told


def _page(reader: Reader, notes: tuple[str, ...], options: RobustOptions | None) -> tuple[bytes, Measures]:
    """The page, and the measures that it shows."""
    match reader:
        case RunReader():
            measured = measure_run(reader, options)
            report = experiment_report(evidence_of(reader, measured, notes))
            items = select_items(flagged_items(reader, measured), ITEM_BYTES)
            scores = score_blocks(measured) if measured.grid.valid.any() else None
            return write_page(report, scores=scores, items=items), measured.measures
        case OutputReader():
            items = select_items(ItemBrowser(reader), ITEM_BYTES)
            found = measure_output(reader)
            return write_page(evaluation_report(reader, found, notes), items=items), found
        case _:
            raise TypeError(f"there is no report of what a {type(reader).__name__} reads")


def write_comparison(compared: ComparisonReport, file: Path) -> None:
    """
    Raises
    ------
    StoreError
        the file cannot be written.
    """
    page = write_page(comparison_page(compared))
    try:
        write_bytes_atomic(file, page)
    except OSError as error:
        raise store_error("write", file, error) from error
