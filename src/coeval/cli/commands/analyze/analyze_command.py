"""`coeval analyze`: what a run's scores mean; nobody is asked."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coeval.analysis.measures.measured import Branch
    from coeval.analysis.measures.robust_set import RobustOptions
    from coeval.cli.views.measures.measures_text import MeasuresText

GAPS = 3


class AnalysisName(StrEnum):
    ALL = "all"
    STUDENTS = "students"
    TEACHERS = "teachers"
    JUDGES = "judges"
    AGREEMENT = "agreement"
    ROBUST = "robust"
    LABELS = "labels"
    COVERAGE = "coverage"
    ITEMS = "items"
    EXPORT_BENCHMARK = "export-benchmark"
    STUDENT_REPORT = "student-report"
    TEACHER_REPORT = "teacher-report"
    JUDGE_REPORT = "judge-report"
    COVERAGE_REPORT = "coverage-report"


_PARTS = {
    "student-report": "students",
    "teacher-report": "teachers",
    "judge-report": "judges",
    "coverage-report": "coverage",
}
"""A report → the analysis whose numbers it shows."""

_SECTIONS = {
    "all": "",
    "students": "leads",
    "robust": "leads",
    "judges": "judges",
    "agreement": "judges",
    "teachers": "benchmark",
    "coverage": "benchmark",
    "items": "benchmark",
}
"""Analysis → the section of the page that shows it."""


_OF_OUTPUTS = (AnalysisName.ALL, AnalysisName.JUDGES, AnalysisName.AGREEMENT)
"""What can be said of a folder of eval-framework."""


class JudgeChoice(StrEnum):
    TOP_HALF = "top_half"
    ALL = "all"


class AgreementChoice(StrEnum):
    WPA = "wpa"
    SPA = "spa"
    KAPPA = "kappa"


class FormulaChoice(StrEnum):
    V1 = "v1"
    S2 = "s2"
    R3 = "r3"


class ReportFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"


def analyze(
    run: Annotated[Path, typer.Option("--run", help="The run folder. Example: --run ./runs/quickstart")],
    name: Annotated[
        AnalysisName, typer.Argument(metavar="[NAME]", help="What to show.", show_choices=True)
    ] = AnalysisName.ALL,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write NAME.json, .csv or .md, or report.html, into this folder, and measures.json."
        ),
    ] = None,
    report_format: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format",
            help="In place of the table of the terminal; html is a page for a browser.",
            show_default="with --out, html of a …-report, else json",
        ),
    ] = None,
    partial_ok: Annotated[
        bool, typer.Option("--partial-ok", help="End with 0 where records are missing, instead of with 3.")
    ] = False,
    judge_selection: Annotated[
        JudgeChoice, typer.Option("--judge-selection", help="Robust filter: which of the ranked judges.")
    ] = JudgeChoice.TOP_HALF,
    agreement_metric: Annotated[
        AgreementChoice, typer.Option("--agreement-metric", help="Robust filter: what judges are ranked by.")
    ] = AgreementChoice.WPA,
    agreement_threshold: Annotated[
        float,
        typer.Option("--agreement-threshold", min=0, max=1, help="Share of its judges that must agree."),
    ] = 0.5,
    teacher_score_formula: Annotated[
        FormulaChoice, typer.Option("--teacher-score-formula", help="What teachers are ranked by.")
    ] = FormulaChoice.V1,
    score_tolerance: Annotated[
        float, typer.Option("--score-tolerance", min=0, max=1, help="How far from their mean they may be.")
    ] = 0.25,
) -> None:
    """Say what a run's scores mean: who leads, whether that is sure, whether the judges are to be trusted.

    Nobody is asked. Every measure has its 95 % interval, the datapoints that it rests on (n), and the scores
    that it lacks (missing); docs/measures.md has the formulas. Without --out the run is only read.

    \b
    Examples:
      coeval analyze --run ./runs/quickstart
      coeval analyze agreement --run ./runs/quickstart
      coeval analyze all --run ./runs/quickstart --format json > measures.json
      coeval analyze students --run ./runs/quickstart --format markdown --out ./report
      coeval analyze --run ./runs/quickstart --format html --out ./report
      coeval analyze judge-report --run ./runs/quickstart --out ./report
      coeval analyze export-benchmark --run ./runs/quickstart --out ./my-benchmark
    """
    from coeval.core.errors import UsageError
    from coeval.core.process_limits import need_address_space
    from coeval.core.text import listed
    from coeval.pipeline.existing_run import existing_results
    from coeval.store.rundir import RunDir

    folder = existing_results(run)
    if name is AnalysisName.EXPORT_BENCHMARK:
        _export(folder, out, report_format)
        return
    if name not in _OF_OUTPUTS and not RunDir(folder).is_run():
        raise UsageError(
            f"{run} holds results of eval-framework, which have no {name}; ask for {listed(_OF_OUTPUTS)}"
        )
    need_address_space()
    # Here, because they load duckdb and numpy.
    from coeval.analysis.measures.robust_set import RobustOptions
    from coeval.analysis.measures.run_measures import measure_tree, selected
    from coeval.cli import streams
    from coeval.cli.say import warn
    from coeval.cli.views.gaps_view import tell_missing
    from coeval.pipeline.plan.run_reading import opened
    from coeval.pipeline.upkeep.quick_look import Missing, look_for_gaps

    messages = streams.messages()
    options = RobustOptions(
        judge_selection.value,
        agreement_metric.value,
        agreement_threshold,
        teacher_score_formula.value,
        score_tolerance,
    )
    if report_format is ReportFormat.HTML or (report_format is None and name.value in _PARTS):
        _write_page(folder, name, out, options)
    else:
        with opened(folder) as (reader, notes):
            tree = measure_tree(reader, options)
            for note in (*reader.notes(), *notes):
                warn(messages, note)
        _report(selected(tree, _PARTS.get(name.value, name.value)), tree, name, report_format, out)
    missing = look_for_gaps(RunDir(folder)) if RunDir(folder).is_run() else Missing(None, ())
    tell_missing(missing, messages)
    if missing.sentences and not partial_ok:
        raise typer.Exit(GAPS)


def _write_page(folder: Path, name: AnalysisName, out: Path | None, options: RobustOptions) -> None:
    """Write the whole page, and name the section of it that somebody asked for."""
    from coeval.cli import streams
    from coeval.cli.say import say, warn
    from coeval.core.errors import UsageError
    from coeval.reports.site.report_file import PAGE, write_report

    if out is None:
        raise UsageError("a page is written, not shown here; name a folder for it with --out")
    _refuse_file(out)
    messages = streams.messages()
    for note in write_report(folder, out, options):
        warn(messages, note)
    anchor = _SECTIONS[_PARTS.get(name.value, name.value)]
    say(messages, f"written: {out / PAGE}{anchor and '#'}{anchor}, {out / 'measures.json'}")


def _refuse_file(out: Path) -> None:
    from coeval.core.errors import UsageError

    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; name a folder, in which the report is written")


def _export(folder: Path, out: Path | None, wanted: ReportFormat | None) -> None:
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


def _report(
    shown: Branch, tree: Branch, name: AnalysisName, wanted: ReportFormat | None, out: Path | None
) -> None:
    from coeval.cli import streams
    from coeval.cli.views.measures.measures_view import print_measures

    if out is not None:
        _write(shown, tree, out, f"{name.value}", wanted or ReportFormat.JSON)
    elif wanted is None:
        print_measures(shown, streams.results())
    else:
        typer.echo(_text_of(wanted)(shown), nl=False)


def _write(shown: Branch, tree: Branch, out: Path, name: str, wanted: ReportFormat) -> None:
    from coeval.analysis.measures.run_measures import plain_measures, selected
    from coeval.cli import streams
    from coeval.cli.say import say
    from coeval.cli.views.measures.measures_text import json_of
    from coeval.store.jsonl import store_error, write_bytes_atomic

    _refuse_file(out)
    suffix = "md" if wanted is ReportFormat.MARKDOWN else wanted.value
    report, measures = out / f"{name}.{suffix}", out / "measures.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(measures, json_of(plain_measures(selected(tree, "all"))).encode())
        write_bytes_atomic(report, _text_of(wanted)(shown).encode())
    except OSError as error:
        raise store_error("write", out, error) from error
    say(streams.messages(), f"written: {report}, {measures}")


def _text_of(wanted: ReportFormat) -> MeasuresText:
    from coeval.cli.views.measures import measures_text

    match wanted:
        case ReportFormat.JSON:
            return measures_text.as_json
        case ReportFormat.CSV:
            return measures_text.as_csv
        case ReportFormat.MARKDOWN:
            return measures_text.as_markdown
        case ReportFormat.HTML:
            raise AssertionError("a page is written by write_report")
