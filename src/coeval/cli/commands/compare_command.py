"""`coeval compare`: whether one is better than another on the same items, and how sure that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from coeval.cli.command_names import names_in
from coeval.core.errors import UsageError
from coeval.core.options import STUDENTS
from coeval.store.jsonl import write_bytes_atomic

if TYPE_CHECKING:
    from coeval.analysis.comparison.comparison_report import ComparisonReport


def compare(
    words: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A [B …]",
            help="Folders of runs, of eval-framework or of sweeps; of a single run, its students.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option("--run", help="A, then again B; the same as A [B …].")
    ] = None,
    students: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y",
            help="Of one run, these students; of several folders, the student of each, or one for all.",
        ),
    ] = None,
    fail_if_worse: Annotated[
        str | None,
        typer.Option(
            metavar="DELTA",
            help="End with 4 where B is worse than A overall or in a task by more than this share of the "
            "scale, and significantly so. Example: --fail-if-worse 0.02, or 2%",
        ),
    ] = None,
    however_unsure: Annotated[
        bool, typer.Option("--any", help="With --fail-if-worse: even if the difference is not significant.")
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="For a pull request.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Also write an HTML page. Example: --html comparison.html"
        ),
    ] = None,
    excel: Annotated[
        Path | None, typer.Option("--excel", metavar="FILE", help="Also write an Excel workbook.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="Also write every chart, as PNG and SVG."),
    ] = None,
) -> None:
    """Compare models on the same items, with intervals.

    Items are paired by their prompts and scored by the judges that both sides
    have. p-values are from paired tests, adjusted for the number of comparisons.
    With sweeps, runs are compared at equal steps, and the output names the
    checkpoint to ship and those tied with it. No model is called. docs/compare.md
    explains the figures.

    Exit codes: 0 compared, 1 wrong request; with --fail-if-worse: 3 a side has no score to compare, 4 worse.

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
    folders = _in_order(words, run)
    if however_unsure and fail_if_worse is None:
        raise UsageError("--any belongs to --fail-if-worse, for example --fail-if-worse 0 --any")
    delta = _share(fail_if_worse) if fail_if_worse is not None else None
    from coeval.api.run_handle import sides_of
    from coeval.cli import streams
    from coeval.core.errors import GAPS, WORSE

    files = _ComparisonFiles(html, excel, figures)
    files.check()
    sure = not however_unsure
    if _are_sweeps(folders, runs_only=bool(students or fail_if_worse or as_markdown)):
        _compare_sweeps(folders, files, as_json=as_json)
        return
    with sides_of(folders, names_in(students)) as (groups, notes):
        # Here, because they load numpy.
        from coeval.analysis.comparison.comparisons import compare_sides
        from coeval.analysis.comparison.noninferiority import GatePolicy, gate_sides, worse_lines
        from coeval.cli.views.comparison_view import markdown, print_comparisons
        from coeval.cli.views.results_view import write_json

        compared = compare_sides(groups, notes)
        policy = None if delta is None else GatePolicy(max_drop=100 * delta)
        held = None if policy is None else gate_sides(groups, policy, sure=sure)
    gate = [*worse_lines(held, delta or 0.0, sure=sure)] if held is not None else []
    if written := _write(compared, files):
        streams.say(streams.messages(), f"written: {written}")
    if as_json:
        write_json(compared)
    elif as_markdown:
        sys.stdout.write(markdown(compared, gate))
    else:
        print_comparisons(compared, streams.results())
    for line in gate:
        (streams.warn if line.startswith("gate failed") else streams.say)(streams.messages(), line)
    if held is not None and (held.verdict == "NO-GO" or held.unscored):
        raise typer.Exit(WORSE if held.verdict == "NO-GO" else GAPS)


def _are_sweeps(folders: Sequence[Path], *, runs_only: bool) -> bool:
    """
    Raises UsageError: some are sweeps, others are not; or options were given that are for runs only.
    """
    from coeval.store.output_folder import is_sweep

    sweeps = [folder for folder in folders if is_sweep(folder)]
    if others := [folder for folder in folders if folder not in sweeps] if sweeps else []:
        raise UsageError(
            f"{sweeps[0]} is a sweep, {others[0]} is not: compare two sweeps, or one checkpoint "
            f"({sweeps[0]}/step_N) with {others[0]}"
        )
    if sweeps and runs_only:
        raise UsageError(f"{STUDENTS}, --fail-if-worse and --markdown are not for sweeps; leave them out")
    return bool(sweeps)


def _compare_sweeps(folders: Sequence[Path], files: _ComparisonFiles, *, as_json: bool) -> None:
    from coeval.cli import streams
    from coeval.core.process_limits import need_address_space

    need_address_space()
    # Here, because they load duckdb and numpy.
    from coeval.analysis.training.sweep_comparison import compare_sweeps, read_sweeps
    from coeval.cli.views.comparison_view import print_sweeps
    from coeval.cli.views.results_view import write_json

    runs = read_sweeps(folders)
    found = compare_sweeps(runs)
    if any(files):
        from coeval.reports.files import ReportFiles, files_reported, write_files
        from coeval.reports.training_files import write_sweep_page
        from coeval.reports.training_report import training_report

        if files.html is not None:
            write_sweep_page(runs, found, files.html)
        written = [files.html] if files.html is not None else []
        written += write_files(training_report(runs, found), ReportFiles(*files[1:]))
        streams.say(streams.messages(), f"written: {files_reported(written, files.figures)}")
    if as_json:
        write_json(found)
    else:
        print_sweeps(found, streams.results())


def _in_order(words: list[Path] | None, run: list[Path] | None) -> list[Path]:
    """The folders as they were given: the parser tells no order between words and options."""
    if words and run:
        raise UsageError("write all folders after --run, or none: coeval compare A B, or --run A --run B")
    if not (folders := words or run):
        raise UsageError("no folder is given: coeval compare A [B …], such as ./outputs/base ./outputs/tuned")
    return folders


class _ComparisonFiles(NamedTuple):
    """What the options name."""

    html: Path | None
    excel: Path | None
    figures: Path | None

    def check(self) -> None:
        """Refuse what cannot be written before anything is compared."""
        for flag, path in zip(("--html", "--excel"), self[:2], strict=True):
            if path is not None and path.is_dir():
                raise UsageError(f"{flag} {path} is a folder; name a file")
            if path is not None and not path.parent.is_dir():
                raise UsageError(f"{flag} {path}: there is no folder {path.parent}; make it, or name another")
        if any(self[1:]):
            from coeval.reports.files import ReportFiles

            ReportFiles(*self[1:]).check()


def _write(compared: ComparisonReport, files: _ComparisonFiles) -> str:
    """Write the page, the workbook and the pictures; where they are, in words."""
    if not any(files):
        return ""
    # Here, because they load what draws charts.
    from coeval.reports.comparison_page import comparison_page
    from coeval.reports.files import ReportFiles, files_reported, write_files
    from coeval.reports.site.page import write_page

    report, written = comparison_page(compared), []
    if files.html is not None:
        write_bytes_atomic(files.html, write_page(report))
        written.append(files.html)
    written += write_files(report, ReportFiles(*files[1:]))
    return files_reported(written, files.figures)


def _share(text: str) -> float:
    """``0.02`` or ``2%`` as a share of the scale.

    Raises UsageError: it is none, or one that no difference can exceed.
    """
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
