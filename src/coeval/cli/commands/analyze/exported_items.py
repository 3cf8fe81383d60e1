"""`coeval analyze export-benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coeval.cli.commands.analyze.analysis_names import ReportFormat

__all__ = ["export_items"]


def export_items(folder: Path, out: Path | None, wanted: ReportFormat | None) -> None:
    """Write a run's datapoints as a data set."""
    from coeval.core.errors import UsageError
    from coeval.core.process_limits import need_address_space
    from coeval.pipeline.existing_run import existing_run

    run = existing_run(folder)
    if out is None:
        raise UsageError("export-benchmark writes a data set; name a new folder for it with --out")
    if wanted is not None:
        raise UsageError("export-benchmark writes JSON lines and Parquet, and takes no --format")
    need_address_space()
    from coeval.analysis.measures.benchmark.benchmark_export import export_benchmark
    from coeval.analysis.measures.benchmark.benchmark_measures import benchmark_measures
    from coeval.analysis.measures.score_grid import score_grid
    from coeval.cli import streams
    from coeval.cli.say import say, warn
    from coeval.core.text import numbered
    from coeval.pipeline.plan.run_reading import reading

    messages = streams.messages()
    with reading(run) as (reader, notes):
        for note in (*reader.notes(), *notes):
            warn(messages, note)
        items = benchmark_measures(reader, score_grid(reader))["items"]
        found = export_benchmark(reader, items, out)
    rows = sum(file.rows for file in found.files if file.path.endswith(".jsonl"))
    say(messages, f"written: {numbered(rows, 'datapoint')} to {out}, with README.md and provenance.json")
