"""`coeval analyze`: what a run's scores mean; nobody is asked."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coeval.cli.command_names import RunFolder, RunWord, the_folder
from coeval.cli.commands.analyze.analysis_names import (
    OF_OUTPUTS,
    AnalysisName,
    ReportFormat,
    ReportPlaces,
    analysis_of,
    usual_format,
)
from coeval.core.errors import GAPS, UsageError

if TYPE_CHECKING:
    from coeval.analysis.measures.run_measures import MeasureOptions, Measures
    from coeval.cli.views.measures_view import MeasuresText


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


def analyze(
    what: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"What to show: {', '.join(AnalysisName)}.", show_default="all"),
    ] = None,
    word: RunWord = None,
    run: RunFolder = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write NAME.json, .csv, .md, .xlsx or .pdf, or report.html, into this folder, and "
            "measures.json.",
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
        Path | None,
        typer.Option("--figures", help="Write every chart to this folder, as PNG and SVG."),
    ] = None,
    appendix: Annotated[
        bool,
        typer.Option("--appendix", help="With --format pdf: add the whole report after the two-page brief."),
    ] = False,
    partial_ok: Annotated[
        bool, typer.Option("--partial-ok", help="Exit with 0, not 3, if records are missing.")
    ] = False,
    judge_selection: Annotated[
        JudgeChoice,
        typer.Option("--judge-selection", help="Robust filter: which of the ranked judges to use."),
    ] = JudgeChoice.TOP_HALF,
    agreement_metric: Annotated[
        AgreementChoice,
        typer.Option("--agreement-metric", help="Robust filter: the measure that ranks judges."),
    ] = AgreementChoice.WPA,
    agreement_threshold: Annotated[
        float,
        typer.Option(
            "--agreement-threshold", min=0, max=1, help="Robust filter: share of judges that must agree."
        ),
    ] = 0.5,
    teacher_score_formula: Annotated[
        FormulaChoice, typer.Option("--teacher-score-formula", help="The formula that ranks teachers.")
    ] = FormulaChoice.V1,
    score_tolerance: Annotated[
        float,
        typer.Option(
            "--score-tolerance",
            min=0,
            max=1,
            help="Robust filter: largest distance of judges from their mean.",
        ),
    ] = 0.25,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0,
            help="US dollars to spend on more items and judges; shows which detect the smallest gap.",
            show_default="as much as the run has cost",
        ),
    ] = None,
) -> None:
    """Explain a run's scores: who leads, and how sure that is.

    It says who leads, whether that is significant, where students differ, whether
    to trust the judges and what to buy next. No model is called. Every measure has
    its 95% interval, its number of items (n)
    and of missing scores (missing); docs/measures.md has the formulas. Without
    --out it writes nothing, except the look at an unfinished run.

    \b
    Examples:
      coeval analyze --run ./runs/quickstart
      coeval analyze agreement --run ./runs/quickstart
      coeval analyze judges --run ./runs/quickstart --budget 20
      coeval analyze all --run ./runs/quickstart --format json > measures.json
      coeval analyze students --run ./runs/quickstart --format markdown --out ./report
      coeval analyze --run ./runs/quickstart --format html --out ./report
      coeval analyze judge-report --run ./runs/quickstart --out ./report
      coeval analyze complete-report --run ./runs/quickstart --out ./report
      coeval analyze --run ./runs/quickstart --figures ./figures
      coeval analyze export-benchmark --run ./runs/quickstart --out ./my-benchmark
    """
    from coeval.core.process_limits import need_address_space
    from coeval.core.text import listed
    from coeval.pipeline.existing_run import existing_results
    from coeval.store.rundir import RunDir

    name, word = _named(what, word)
    folder = existing_results(the_folder(word, run, "analyze"))
    if name is AnalysisName.EXPORT_BENCHMARK:
        from coeval.cli.commands.analyze.analyze_files import export_items

        export_items(folder, out, report_format)
        return
    need_address_space()
    # Here, because they load duckdb and numpy.
    from coeval.analysis.load import need_run
    from coeval.analysis.measures.robust_set import RobustOptions
    from coeval.analysis.measures.run_measures import MeasureOptions
    from coeval.cli import streams
    from coeval.cli.streams import warn
    from coeval.cli.views.gaps_view import tell_missing
    from coeval.pipeline.upkeep.quick_look import look_for_gaps

    if name not in OF_OUTPUTS:
        need_run(folder, f"{name}; ask for {listed(OF_OUTPUTS)}")
    robust = RobustOptions(
        judge_selection.value,
        agreement_metric.value,
        agreement_threshold,
        teacher_score_formula.value,
        score_tolerance,
    )
    options = MeasureOptions(robust, budget)
    _show(folder, name, report_format, ReportPlaces(out, figures, appendix), options)
    missing = look_for_gaps(RunDir(folder))
    for note in missing.notes:
        warn(streams.messages(), note)
    tell_missing(missing, RunDir(folder), streams.messages())
    if missing.sentences and not partial_ok:
        raise typer.Exit(GAPS)


def _named(what: str | None, word: Path | None) -> tuple[AnalysisName, Path | None]:
    """What is to be shown, and of which folder: a word alone may be either."""
    if what is None:
        return AnalysisName.ALL, word
    if what in {*AnalysisName}:
        return AnalysisName(what), word
    if word is None and ("/" in what or Path(what).exists()):
        return AnalysisName.ALL, Path(what)
    near = get_close_matches(what, AnalysisName, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(AnalysisName)}"
    raise UsageError(f"there is nothing to analyze that is called {what}; {hint}")


def _show(
    folder: Path,
    name: AnalysisName,
    given: ReportFormat | None,
    places: ReportPlaces,
    options: MeasureOptions,
) -> None:
    """Show an analysis, or write it."""
    from coeval.analysis.measures.measured_run import measure
    from coeval.cli import streams
    from coeval.cli.commands.analyze.analyze_files import tell_files, tell_page
    from coeval.cli.streams import warn
    from coeval.cli.views.measures_view import print_measures
    from coeval.cli.views.name_table import without_incomparable
    from coeval.pipeline.plan.run_reading import opened

    needed = given or usual_format(name)
    out, figures = places.out, places.figures
    if places.appendix and needed is not ReportFormat.PDF:
        raise UsageError("--appendix belongs to --format pdf")
    if needed in (ReportFormat.EXCEL, ReportFormat.PDF) or figures is not None:
        tell_files(folder, name, needed, places, options)
    if needed is ReportFormat.HTML:
        tell_page(folder, name, out, options)
    elif needed not in (ReportFormat.EXCEL, ReportFormat.PDF) and (needed or out or figures is None):
        with opened(folder, shown=True) as (reader, notes):
            measures = measure(reader, options)
            for note in without_incomparable((*reader.notes(), *notes), streams.messages()):
                warn(streams.messages(), note)
            labels = None if reader.planned is None else reader.planned.labels
        if given is None and out is None:
            print_measures(measures, analysis_of(name), streams.results(), labels)
        elif out is None:
            typer.echo(_text_of(given or ReportFormat.JSON)(measures, analysis_of(name)), nl=False)
        else:
            _write(measures, out, name, given or ReportFormat.JSON)


def _write(measures: Measures, out: Path, name: AnalysisName, needed: ReportFormat) -> None:
    from coeval.cli import streams
    from coeval.cli.commands.analyze.analyze_files import refuse_file
    from coeval.cli.streams import say
    from coeval.cli.views.measures_view import as_json
    from coeval.store.jsonl import store_error, write_bytes_atomic

    refuse_file(out)
    suffix = "md" if needed is ReportFormat.MARKDOWN else needed.value
    report, all_measures = out / f"{name.value}.{suffix}", out / "measures.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(all_measures, as_json(measures, "all").encode())
        write_bytes_atomic(report, _text_of(needed)(measures, analysis_of(name)).encode())
    except OSError as error:
        raise store_error("write", out, error) from error
    say(streams.messages(), f"written: {report}, {all_measures}")


def _text_of(needed: ReportFormat) -> MeasuresText:
    from coeval.cli.views import measures_view

    match needed:
        case ReportFormat.JSON:
            return measures_view.as_json
        case ReportFormat.CSV:
            return measures_view.as_csv
        case ReportFormat.MARKDOWN:
            return measures_view.as_markdown
        case ReportFormat.HTML | ReportFormat.EXCEL | ReportFormat.PDF:
            raise AssertionError(f"{needed} is no text")
