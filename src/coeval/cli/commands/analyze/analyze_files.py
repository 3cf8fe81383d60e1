"""A folder's report as files: a page, a workbook, a PDF, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coeval.cli.commands.analyze.analysis_names import (
    SECTIONS,
    AnalysisName,
    ReportFormat,
    ReportPlaces,
    analysis_of,
)

if TYPE_CHECKING:
    from coeval.analysis.measures.run_measures import MeasureOptions


# --- `coeval analyze export-benchmark`


def export_items(folder: Path, out: Path | None, needed: ReportFormat | None) -> None:
    """Write a run's datapoints as a data set."""
    from coeval.core.errors import UsageError
    from coeval.core.process_limits import need_address_space
    from coeval.pipeline.existing_run import existing_run

    run = existing_run(folder)
    if out is None:
        raise UsageError("export-benchmark writes a data set; name a new folder for it with --out")
    if needed is not None:
        raise UsageError("export-benchmark writes JSON lines and Parquet, and takes no --format")
    need_address_space()
    from coeval.analysis.measures.benchmark_export import export_benchmark
    from coeval.analysis.measures.benchmark_measures import benchmark_measures
    from coeval.analysis.measures.score_grid import score_grid
    from coeval.cli import streams
    from coeval.cli.streams import say, warn
    from coeval.core.text import numbered
    from coeval.pipeline.plan.run_reading import reading

    messages = streams.messages()
    with reading(run) as (reader, notes):
        for note in (*reader.notes(), *notes):
            warn(messages, note)
        items = benchmark_measures(reader, score_grid(reader)).items
        found = export_benchmark(reader, items, out)
    rows = sum(file.rows for file in found.files if file.path.endswith(".jsonl"))
    say(messages, f"written: {numbered(rows, 'datapoint')} to {out}, with README.md and provenance.json")


WHOLE = ("all", "complete-report", "items")
"""Analyses of which a workbook holds every item, answer and failure."""


def tell_files(
    folder: Path,
    name: AnalysisName,
    needed: ReportFormat | None,
    places: ReportPlaces,
    options: MeasureOptions,
) -> None:
    """Write a workbook or a PDF with ``measures.json`` beside it, and pictures, and say where they are."""
    from coeval.cli import streams
    from coeval.cli.streams import say, warn
    from coeval.cli.views.measures_view import as_json
    from coeval.core.errors import UsageError
    from coeval.reports.files import ReportFiles, files_reported, write_files
    from coeval.reports.folder_report import folder_report
    from coeval.store.jsonl import write_bytes_atomic

    out, figures, appendix = places
    kept = out if needed in (ReportFormat.EXCEL, ReportFormat.PDF) else None
    if needed in (ReportFormat.EXCEL, ReportFormat.PDF) and kept is None:
        raise UsageError(f"{needed} is written, not shown here; name a folder for it with --out")
    for place in filter(None, (out, figures)):
        refuse_file(place)
    stem = "report" if name is AnalysisName.ALL else name.value
    files = ReportFiles(
        kept / f"{stem}.xlsx" if kept and needed is ReportFormat.EXCEL else None,
        kept / f"{stem}.pdf" if kept and needed is ReportFormat.PDF else None,
        figures,
        appendix,
    )
    files.check()
    section = SECTIONS[analysis_of(name)]
    with folder_report(folder, options) as found:
        report = found.cut_to(section) if section else found.report
        if not report.sections:
            raise UsageError(f"there is nothing to write of {name.value}: {folder} holds none of it")
        whole = files.excel is not None and name.value in WHOLE
        written = write_files(
            report, files, found.records() if whole else (), ("items-shown",) if whole else ()
        )
        measures, notes = found.measures, found.notes
    if kept is not None:
        written.append(kept / "measures.json")
        write_bytes_atomic(written[-1], as_json(measures, "all").encode())
    messages = streams.messages()
    for note in notes if needed is None or kept else ():  # else they are told with what is shown
        warn(messages, note)
    say(messages, f"written: {files_reported(written, figures)}")


def tell_page(folder: Path, name: AnalysisName, out: Path | None, options: MeasureOptions) -> None:
    """Write the whole page, and name the section of it that somebody asked for."""
    from coeval.cli import streams
    from coeval.cli.streams import say, warn
    from coeval.core.errors import UsageError
    from coeval.reports.site.report_file import PAGE, write_report

    if out is None:
        raise UsageError("a page is written, not shown here; name a folder for it with --out")
    refuse_file(out)
    messages = streams.messages()
    for note in write_report(folder, out, options):
        warn(messages, note)
    anchor = SECTIONS[analysis_of(name)]
    say(messages, f"written: {out / PAGE}{anchor and '#'}{anchor}, {out / 'measures.json'}")


def refuse_file(out: Path) -> None:
    from coeval.core.errors import UsageError

    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder, in which the report is written")
