"""A folder's report, written as a page beside the measures that it shows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import measure_run, plain_measures, selected
from coeval.pipeline.plan.run_reading import reading
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_evidence import evidence_of
from coeval.reports.experiment.score_blocks import score_blocks
from coeval.reports.items.item_browser import flagged_items
from coeval.reports.items.item_selection import select_items
from coeval.reports.site.page import write_page
from coeval.store.jsonl import store_error, write_bytes_atomic
from coeval.store.rundir import RunDir

__all__ = ["PAGE", "write_report"]

PAGE = "report.html"
ITEM_BYTES = 600_000
"""Compressed: so much of a page is items."""


def write_report(folder: Path, out: Path, options: RobustOptions | None = None) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run into ``out``; the notes of whoever read it.

    Raises
    ------
    UsageError
        there is no run.
    StoreError
        the run cannot be read, or the files not be written.
    """
    with reading(RunDir(folder)) as (reader, notes):
        measured = measure_run(reader, options)
        report = experiment_report(evidence_of(reader, measured, notes))
        items = select_items(flagged_items(reader, measured), ITEM_BYTES)
        page = write_page(report, scores=score_blocks(measured.grid), items=items)
        told = (*reader.notes(), *notes)
    measures = msgspec.json.encode(plain_measures(selected(measured.tree, "all")))
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(out / "measures.json", msgspec.json.format(measures, indent=2) + b"\n")
        write_bytes_atomic(out / PAGE, page)
    except OSError as error:
        raise store_error("write", out, error) from error
    return told
