"""Training curves as files: a picture of each task, one of all, and a page with the items behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from coeval.analysis.training.training_run import TrainingRun
from coeval.reports.charts.drawn_pictures import figures
from coeval.reports.site.page import write_page
from coeval.reports.training.checkpoint_items import select_checkpoint_items, shown_checkpoints
from coeval.reports.training.training_report import ErrorBar, overview_report, training_report
from coeval.store.jsonl import store_error, write_bytes_atomic

__all__ = ["PAGE", "write_curves"]

PAGE = "curves.html"
_ITEM_BYTES = 900_000
"""Compressed: so much of the page is items."""


def write_curves(runs: Sequence[TrainingRun], out: Path, error_bar: ErrorBar = "ci95") -> Iterator[Path]:
    """Write ``<task>.png`` and ``.svg``, ``all_tasks.png`` and ``.svg``, and ``curves.html``; each file as
    it is written, in place of an older one.

    Raises
    ------
    StoreError
        results cannot be read, or a file not be written.
    """
    checkpoints = shown_checkpoints(runs)
    held = {(shown.task, shown.name) for shown in checkpoints}
    report = training_report(runs, error_bar, held)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for drawn in (report, overview_report(runs, error_bar)):
            for figure in figures(drawn):
                for suffix, data in ((".png", figure.png), (".svg", figure.svg.encode())):
                    place = out / f"{figure.name}{suffix}"
                    write_bytes_atomic(place, data)
                    yield place
        items = select_checkpoint_items(runs, checkpoints, _ITEM_BYTES)
        write_bytes_atomic(out / PAGE, write_page(report, items=items))
        yield out / PAGE
    except OSError as error:
        raise store_error("write", out, error) from error
