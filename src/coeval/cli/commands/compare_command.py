"""`coeval compare`: compares models, folders or sweeps on the same items."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coeval.analysis.comparison.comparisons import compare_sides
from coeval.analysis.comparison.noninferiority import GatePolicy, gate_messages, gate_sides
from coeval.cli import streams
from coeval.cli.command_names import AsJson, ComparedStudents, split_names
from coeval.cli.views.comparison_view import comparison_markdown, print_comparisons, print_sweep_comparison
from coeval.cli.views.results_view import write_json
from coeval.core.errors import GAPS, WORSE, UsageError
from coeval.core.options import STUDENTS
from coeval.reports.compared_sides import open_side_groups_and_notes
from coeval.reports.content import Report
from coeval.reports.files import ReportFiles, describe_written_files, write_workbook_and_figures
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.output_folder import is_sweep


def compare(
    words: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A [B …]",
            help="Folders of runs, eval-framework or sweeps; a single run compares its students.",
        ),
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(help="Repeatable; the same as A [B …].")] = None,
    students: ComparedStudents = None,
    fail_if_worse: Annotated[
        str | None,
        typer.Option(
            metavar="DELTA",
            help="Exit with 4 if B is significantly worse than A, overall or in a task, by more than "
            "this share of the scale. Example: --fail-if-worse 0.02, or 2%",
        ),
    ] = None,
    any_difference: Annotated[
        bool, typer.Option("--any", help="With --fail-if-worse: even if the difference is not significant.")
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="For a pull request.")] = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an HTML page. Example: --html comparison.html"),
    ] = None,
    excel: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an Excel workbook.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every chart, as PNG and SVG.")
    ] = None,
) -> None:
    """Compare models on the same items, with intervals.

    Items are paired by their prompts and scored by the judges that both sides
    have. p-values are from paired tests, adjusted for the number of comparisons.
    With sweeps, runs are compared at equal steps, and the output names the
    checkpoint to ship and those tied with it. No model is called. docs/compare.md
    explains the figures.

    Exit codes: 0 compared, 1 usage error; with --fail-if-worse: 3 a side has no score to compare, 4 worse.

    \b
    Examples:
      coeval compare ./outputs/base ./outputs/tuned
      coeval compare ./runs/quickstart --students sim-large,sim-medium
      coeval compare ./outputs/base ./outputs/tuned --html comparison.html
      coeval compare ./outputs/base ./outputs/tuned --excel comparison.xlsx --figures ./figures
      coeval compare ./runs/monday ./runs/tuesday --json > comparison.json
      coeval compare ./outputs/run_a ./outputs/run_b --html sweeps.html
      coeval compare ./outputs/base ./outputs/tuned --fail-if-worse 2% --markdown
    """
    if as_json and as_markdown:
        raise UsageError("--json and --markdown exclude each other; give one of them")
    folders = _require_folders_given_one_way(words, run)
    if any_difference and fail_if_worse is None:
        raise UsageError("--any needs --fail-if-worse, for example --fail-if-worse 0 --any")
    threshold = _parse_share(fail_if_worse) if fail_if_worse is not None else None
    files = ReportFiles(excel, figures)
    _check_output_paths(html, files)
    if _check_all_are_sweeps(folders, has_run_flags=bool(students or fail_if_worse or as_markdown)):
        _compare_sweeps(folders, html, files, as_json=as_json)
        return
    significant_only = not any_difference
    with open_side_groups_and_notes(folders, split_names(students)) as (groups, notes):
        compared = compare_sides(groups, notes)
        gate_report, gate = None, list[str]()
        if threshold is not None:
            policy = GatePolicy(max_drop=100 * threshold)
            gate_report = gate_sides(groups, policy, significant_only=significant_only)
            gate += gate_messages(gate_report, threshold, significant_only=significant_only)
    if html is not None or any(files):
        # Here, because it loads what draws charts.
        from coeval.reports.comparison_page import comparison_page
        from coeval.reports.site.page import make_page

        report = comparison_page(compared)
        if html is not None:
            write_bytes_atomic(html, make_page(report))
        _write_files_and_print_paths(report, html, files)
    if as_json:
        write_json(compared)
    elif as_markdown:
        sys.stdout.write(comparison_markdown(compared, gate))
    else:
        print_comparisons(compared, streams.results())
    for line in gate:
        (streams.warn if line.startswith("gate failed") else streams.say)(streams.messages(), line)
    if gate_report is not None and (gate_report.verdict == "NO-GO" or gate_report.unscored_deciding_tasks):
        raise typer.Exit(WORSE if gate_report.verdict == "NO-GO" else GAPS)


def _check_all_are_sweeps(folders: Sequence[Path], *, has_run_flags: bool) -> bool:
    """Check whether all folders are sweeps; raises UsageError if only some are, or ``has_run_flags``."""
    sweeps = [folder for folder in folders if is_sweep(folder)]
    if others := [folder for folder in folders if folder not in sweeps] if sweeps else []:
        raise UsageError(
            f"{sweeps[0]} is a sweep, {others[0]} is not: compare two sweeps, or one checkpoint "
            f"({sweeps[0]}/step_N) with {others[0]}"
        )
    if sweeps and has_run_flags:
        raise UsageError(f"{STUDENTS}, --fail-if-worse and --markdown do not apply to sweeps; leave them out")
    return bool(sweeps)


def _compare_sweeps(folders: Sequence[Path], html: Path | None, files: ReportFiles, *, as_json: bool) -> None:
    """Compare sweeps at equal steps; print the result, and write the page and files."""
    from coeval.analysis.training.sweep_comparison import compare_sweeps, read_sweeps

    runs = read_sweeps(folders)
    compared = compare_sweeps(runs)
    if html is not None or any(files):
        # Here, because they load what draws charts.
        from coeval.reports.training_files import write_sweep_page
        from coeval.reports.training_report import training_report

        if html is not None:
            write_sweep_page(runs, compared, html)
        _write_files_and_print_paths(training_report(runs, compared), html, files)
    if as_json:
        write_json(compared)
    else:
        print_sweep_comparison(compared, streams.results())


def _write_files_and_print_paths(report: Report, written_page: Path | None, files: ReportFiles) -> None:
    """Write the workbook and the pictures, and print where they and the page are."""
    written = [*filter(None, [written_page]), *write_workbook_and_figures(report, files)]
    streams.say(streams.messages(), f"written: {describe_written_files(written, files.figures)}")


def _require_folders_given_one_way(words: list[Path] | None, run: list[Path] | None) -> list[Path]:
    """Return the folders, given as words or by ``--run``, not both: the parser keeps no common order."""
    if words and run:
        raise UsageError("write all folders after --run, or none: coeval compare A B, or --run A --run B")
    if not (folders := words or run):
        raise UsageError("name a folder: coeval compare A [B …], such as ./outputs/base ./outputs/tuned")
    return folders


def _check_output_paths(html: Path | None, files: ReportFiles) -> None:
    """Raise UsageError if a file cannot be written, before anything is compared."""
    for flag, path in ("--html", html), ("--excel", files.excel):
        if path is not None and path.is_dir():
            raise UsageError(f"{flag} {path} is a folder; name a file")
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{flag} {path}: there is no folder {path.parent}; make it, or name another")
    files.refuse_file_folder_mixups()


def _parse_share(text: str) -> float:
    """Parse ``0.02`` or ``2%`` as a share of the scale. Raises UsageError: it is no share, or one that no
    difference can exceed."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise UsageError(
            f"--fail-if-worse {text}: give a share of the scale from 0 to 1; for two points of a hundred, "
            "0.02 or 2%"
        )
    return share
