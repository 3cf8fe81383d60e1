"""A folder's report as a page, written where somebody wants it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coeval.analysis.measures.robust_set import RobustOptions

__all__ = ["PAGE", "write_html"]

PAGE = "report.html"


def write_html(folder: Path, out: Path, options: RobustOptions | None = None) -> tuple[str, ...]:
    """Write ``report.html`` and ``measures.json`` of a run into ``out``; the notes of whoever read it.

    Raises
    ------
    StoreError
        the run cannot be read, or the files not be written.
    """
    from coeval.analysis.measures.run_measures import measure_run, plain_measures, selected
    from coeval.cli.views.measures.measures_text import json_of
    from coeval.pipeline.plan.run_reading import reading
    from coeval.reports.experiment.experiment_report import experiment_report
    from coeval.reports.experiment.run_evidence import evidence_of
    from coeval.reports.site.page import write_page
    from coeval.store.jsonl import store_error, write_bytes_atomic
    from coeval.store.rundir import RunDir

    with reading(RunDir(folder)) as (reader, notes):
        measured = measure_run(reader, options)
        page = write_page(experiment_report(evidence_of(reader, measured, notes)))
        told = (*reader.notes(), *notes)
    measures = json_of(plain_measures(selected(measured.tree, "all"))).encode()
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(out / "measures.json", measures)
        write_bytes_atomic(out / PAGE, page)
    except OSError as error:
        raise store_error("write", out, error) from error
    return told
