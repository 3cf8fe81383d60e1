"""`coeval analyze`: explains a run's scores, in tables or as files; no model is called."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import typer

from coeval.analysis.measures.compute import compute_measures
from coeval.analysis.measures.measure_tree import Analysis
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import Measures, write_measures
from coeval.analysis.readers.reader import Reader
from coeval.cli import streams
from coeval.cli.command_names import RunFolder, RunWord, require_folder
from coeval.cli.views import measures_view
from coeval.cli.views.gaps_view import print_missing_records
from coeval.cli.views.table_view import print_and_drop_incomparable
from coeval.core.errors import GAPS, UsageError
from coeval.core.shown_names import ShownNames
from coeval.core.text import join_names, pluralize
from coeval.pipeline.plan.run_reading import open_folder_reader, open_run_reader
from coeval.pipeline.upkeep.repair import MissingRecords, find_missing_records
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.output_folder import require_results, require_run, require_run_not_outputs
from coeval.store.rundir import RunDir

if TYPE_CHECKING:
    from coeval.reports.files import ReportFiles
    from coeval.reports.folder_report import FolderReport

ReportFormat: TypeAlias = Literal["json", "csv", "markdown", "html", "excel"]


class AnalysisName(NamedTuple):
    """A NAME of `coeval analyze`: the analysis whose measures it shows, the page's section that shows them,
    its format unless ``--format`` names one (None: terminal tables), and if it works for folders of
    eval-framework."""

    analysis: Analysis
    section: str = ""
    usual_format: ReportFormat | None = None
    for_outputs: bool = False


NAMES = {
    "all": AnalysisName("all", for_outputs=True),
    "students": AnalysisName("students", "leads"),
    "teachers": AnalysisName("teachers", "benchmark"),
    "judges": AnalysisName("judges", "judges", for_outputs=True),
    "agreement": AnalysisName("agreement", "judges", for_outputs=True),
    "robust": AnalysisName("robust"),
    "labels": AnalysisName("labels", "leads"),
    "calibration": AnalysisName("calibration", "leads"),
    "coverage": AnalysisName("coverage", "benchmark"),
    "items": AnalysisName("items", "benchmark"),
    "export-benchmark": AnalysisName("items"),
    "student-report": AnalysisName("students", "leads", "html"),
    "teacher-report": AnalysisName("teachers", "benchmark", "html"),
    "judge-report": AnalysisName("judges", "judges", "html", for_outputs=True),
    "coverage-report": AnalysisName("coverage", "benchmark", "html"),
    "complete-report": AnalysisName("all", "", "excel", for_outputs=True),
}
"""What can be analyzed."""


def analyze(
    what: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"What to show: {', '.join(NAMES)}.", show_default="all"),
    ] = None,
    word: RunWord = None,
    run: RunFolder = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write measures.json and NAME.json, .csv, .md or .xlsx, or report.html, into this folder."
        ),
    ] = None,
    report_format: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format",
            help="Output format instead of the terminal's tables; html is a page, excel a workbook.",
            show_default="with --out, excel of complete-report, html of another …-report, else json",
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every chart to this folder, as PNG and SVG.")
    ] = None,
    partial_ok: Annotated[
        bool, typer.Option("--partial-ok", help="Exit with 0, not 3, if records are missing.")
    ] = False,
    judge_selection: Annotated[
        Literal["top_half", "all"], typer.Option(help="Robust filter: which of the ranked judges to use.")
    ] = "top_half",
    agreement_metric: Annotated[
        Literal["wpa", "spa", "kappa"], typer.Option(help="Robust filter: the measure that ranks judges.")
    ] = "wpa",
    agreement_threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Robust filter: share of judges that must agree.")
    ] = 0.5,
    teacher_score_formula: Annotated[
        Literal["v1", "s2", "r3"], typer.Option(help="The formula that ranks teachers.")
    ] = "v1",
    score_tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Robust filter: largest distance of judges from their mean.")
    ] = 0.25,
) -> None:
    """Explain a run's scores: who leads, and how certain that is.

    It says who leads, whether that is significant, what would settle it, where
    students differ and whether to trust the judges. No model is called. Every
    measure has its 95% interval, its number of items (n) and of missing scores
    (missing); docs/measures.md has the formulas. Without --out it writes nothing,
    except the look at an unfinished run.

    \b
    Examples:
      coeval analyze --run ./runs/quickstart
      coeval analyze agreement --run ./runs/quickstart
      coeval analyze judges --run ./runs/quickstart
      coeval analyze all --run ./runs/quickstart --format json > measures.json
      coeval analyze students --run ./runs/quickstart --format markdown --out ./report
      coeval analyze --run ./runs/quickstart --format html --out ./report
      coeval analyze judge-report --run ./runs/quickstart --out ./report
      coeval analyze complete-report --run ./runs/quickstart --out ./report
      coeval analyze --run ./runs/quickstart --figures ./figures
      coeval analyze export-benchmark --run ./runs/quickstart --out ./my-benchmark
    """
    name, word = _split_analysis_and_folder(what, word)
    folder = require_results(require_folder(word, run, "analyze"))
    if name == "export-benchmark":
        _export_benchmark_items(folder, out, report_format)
        return

    if name == "robust" and report_format in ("html", "excel"):
        raise UsageError("robust has no page or workbook; use --format json, csv or markdown")
    if not NAMES[name].for_outputs:
        require_run_not_outputs(
            folder,
            f"{name}; ask for {join_names([other for other, row in NAMES.items() if row.for_outputs])}",
        )
    robust = RobustOptions(
        judge_selection, agreement_metric, agreement_threshold, teacher_score_formula, score_tolerance
    )
    missing = print_or_write_analysis(folder, name, report_format, out, figures=figures, options=robust)
    for note in missing.notes:
        streams.warn(streams.messages(), note)
    print_missing_records(missing, RunDir(folder), streams.messages())
    if missing.sentences and not partial_ok:
        raise typer.Exit(GAPS)


def _split_analysis_and_folder(analysis: str | None, word: Path | None) -> tuple[str, Path | None]:
    """Return the analysis and the folder; a single word may be either."""
    if analysis is None or analysis in NAMES:
        return analysis or "all", word
    if word is None and ("/" in analysis or Path(analysis).exists()):
        return "all", Path(analysis)
    near = get_close_matches(analysis, NAMES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
    raise UsageError(f"no analysis is named {analysis}; {hint}")


def print_or_write_analysis(
    folder: Path,
    name: str,
    report_format: ReportFormat | None,
    out: Path | None,
    *,
    figures: Path | None = None,
    options: RobustOptions,
) -> MissingRecords:
    """Print an analysis, or write it; the folder is read once. Return which records are missing."""
    effective_format, messages = report_format or NAMES[name].usual_format, streams.messages()
    pages = effective_format in ("html", "excel")
    prints_tables = not pages and bool(effective_format or out or figures is None)
    files = _choose_files(name, effective_format, out, figures) if pages or figures is not None else None
    with open_folder_reader(folder, is_look=True) as (reader, notes):
        if files is not None:
            report = _write_report_and_print_paths(reader, notes, name, files, options)
            measured, missing, notes = report.measured, report.missing, report.notes
        else:
            measured = compute_measures(reader, NAMES[name].analysis if out is None else "all", options)
            notes, missing = (*reader.notes(), *notes), find_missing_records(RunDir(folder))
        names = ShownNames.of(measured.models, None if reader.planned is None else reader.planned.labels)
    for note in print_and_drop_incomparable(notes, messages) if prints_tables else notes:
        streams.warn(messages, note)
    if prints_tables:
        _print_or_write_measures(measured.measures, name, report_format, out, names)
    return missing


def _print_or_write_measures(
    measures: Measures, name: str, report_format: ReportFormat | None, out: Path | None, names: ShownNames
) -> None:
    """Print an analysis as tables or text, or write the text into a folder."""
    analysis = NAMES[name].analysis
    format_text, suffix = {
        "csv": (measures_view.as_csv, "csv"),
        "markdown": (measures_view.as_markdown, "md"),
    }.get(report_format or "json", (measures_view.as_json, "json"))
    if report_format is None and out is None:
        measures_view.print_measures(measures, analysis, streams.results(), names)
    elif out is None:
        typer.echo(format_text(measures, analysis), nl=False)
    else:
        _refuse_file_as_folder(out)
        text_file, all_measures = out / f"{name}.{suffix}", write_measures(measures, out)
        write_bytes_atomic(text_file, format_text(measures, analysis).encode())
        streams.say(streams.messages(), f"written: {text_file}, {all_measures}")


def _export_benchmark_items(folder: Path, out: Path | None, report_format: ReportFormat | None) -> None:
    """Write a run's items as a data set."""
    run = require_run(folder)
    if out is None:
        raise UsageError("export-benchmark writes a data set; name a new folder for it with --out")
    if report_format is not None:
        raise UsageError("export-benchmark writes JSON lines and Parquet, and takes no --format")
    from coeval.analysis.measures.benchmark_measures import export_benchmark, measure_benchmark
    from coeval.analysis.measures.score_grid import read_score_grid

    messages = streams.messages()
    with open_run_reader(run) as (reader, notes):
        for note in (*reader.notes(), *notes):
            streams.warn(messages, note)
        items = measure_benchmark(reader, read_score_grid(reader)).items
        exported = export_benchmark(reader, items, out)
    rows = pluralize(sum(file.rows for file in exported.files if file.path.endswith(".jsonl")), "datapoint")
    streams.say(messages, f"written: {rows} to {out}, with provenance.json")


def _choose_files(
    name: str, report_format: ReportFormat | None, out: Path | None, figures: Path | None
) -> ReportFiles:
    """Return the paths of workbook, page and pictures; raises UsageError if a folder is missing or a file."""
    from coeval.reports.files import ReportFiles

    if report_format in ("html", "excel") and out is None:
        what = "a page" if report_format == "html" else report_format
        raise UsageError(f"{what} needs a folder; add --out DIR")
    for folder in filter(None, (out, figures)):
        _refuse_file_as_folder(folder)
    stem = "report" if name == "all" else name
    book, page = (out if report_format == kind else None for kind in ("excel", "html"))
    files = ReportFiles(book / f"{stem}.xlsx" if book is not None else None, figures, page)
    files.refuse_file_folder_mixups()
    return files


def _write_report_and_print_paths(
    reader: Reader, notes: tuple[str, ...], name: str, files: ReportFiles, options: RobustOptions
) -> FolderReport:
    """Write a page or a workbook with ``measures.json`` beside it, and pictures; print their paths."""
    from coeval.reports.files import describe_written_files, write_workbook_and_figures
    from coeval.reports.folder_report import make_folder_report
    from coeval.reports.site.report_file import PAGE, write_report_page

    report, section, written = make_folder_report(reader, notes, options), NAMES[name].section, list[Path]()
    if files.excel is not None or files.figures is not None:
        cut_report = report.keep_section_and_state_gaps(section) if section else report.report
        if not cut_report.sections:
            raise UsageError(f"nothing to write for {name}: {reader.folder} has no such results")
        written += write_workbook_and_figures(cut_report, files)
    if files.page is not None:
        write_report_page(report, reader, files.page)
        written.append(files.page / f"{PAGE}{section and '#'}{section}")
    if (measures_folder := files.page if files.excel is None else files.excel.parent) is not None:
        written.append(write_measures(report.measured.measures, measures_folder))
    streams.say(streams.messages(), f"written: {describe_written_files(written, files.figures)}")
    return report


def _refuse_file_as_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder for the report")
