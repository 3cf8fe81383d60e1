"""`coeval judges`: checks whether a judge still scores as before."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from coeval.analysis.panel.judge_drift import JudgeDrift
from coeval.cli import streams
from coeval.cli.command_names import AsJson, Commands, KeyFile
from coeval.cli.commands.run_command import print_dry_run, run_with_progress
from coeval.cli.streams import say, warn
from coeval.cli.views.results_view import json_text
from coeval.cli.views.table_view import show_table
from coeval.core.errors import GAPS, WORSE, RecordsChanged, UsageError
from coeval.core.figures import figure_with_interval, format_points
from coeval.core.text import join_names, pluralize
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.upkeep.judge_check import RESULT, CheckRequest, JudgeCheck, prepare_check
from coeval.reports.content import ReportTable, make_columns
from coeval.store.jsonl import write_json_atomic

app = typer.Typer(
    name="judges",
    cls=Commands,
    help="Check a judge against its earlier scores.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JudgeName = Annotated[str, typer.Option("--judge", metavar="NAME", help="The judge, by its name in the run.")]
JudgeNow = Annotated[
    Path | None,
    typer.Option("--config", help="Experiment file with the judge's current settings; default: the run's."),
]
BudgetUsd = Annotated[
    float | None, typer.Option("--budget-usd", metavar="USD", min=0, help="Maximum cost of the check.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the calls; send and write nothing.")]
StartOver = Annotated[
    bool, typer.Option("--start-over", help="Start a new check instead of continuing the last.")
]


@app.command("check")
def check(
    judge: JudgeName,
    anchor: Annotated[
        Path,
        typer.Option(
            metavar="RUN|LABELS",
            help="Scores to compare with: the judge's own in a run, or people's in RUN/labels.jsonl.",
        ),
    ],
    max_shift: Annotated[
        float, typer.Option(metavar="POINTS", min=0, max=100, help="Shift of its mean score to tolerate.")
    ] = 0.0,
    items: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Judge the answers to N items, always the same ones."),
    ] = None,
    config: JudgeNow = None,
    budget_usd: BudgetUsd = None,
    dry_run: DryRun = False,
    start_over: StartOver = False,
    as_json: AsJson = False,
    keys: KeyFile = None,
) -> None:
    """Judge an anchor set again: flip rate, shift and smallest detectable shift.

    The anchor is a run that you keep. Its answers are judged again in a folder
    beside it, RUN-check-NAME-1; a check that was interrupted continues there. The
    command warns if replies name another model than before.

    \b
    Examples:
      coeval judges check --judge gpt-4.1 --anchor runs/support --dry-run
      coeval judges check --judge gpt-4.1 --anchor runs/support --items 60 --max-shift 3
      coeval judges check --judge gpt-4.1 --anchor runs/support/labels.jsonl

    \b
    Exit codes: 0 no shift beyond --max-shift is shown, 1 usage error,
    2 the judge is unavailable, 3 scores are missing, 4 it has shifted further,
    130 interrupted.
    """
    request = CheckRequest(judge, anchor, items, config, budget_usd, start_over)
    prepared, code = _run_check_or_exit(request, keys, dry_run=dry_run)

    drift_result = prepared.measure_drift()
    if code == 0:  # the next check is in another folder then
        write_json_atomic(prepared.folder.path / RESULT, drift_result)
    if as_json:
        streams.results().print(json_text(drift_result, indent=2), markup=False, soft_wrap=True)
    else:
        _print_drift(prepared, drift_result, max_shift, streams.results())
    raise typer.Exit(WORSE if drift_result.significantly_exceeds(max_shift / 100) else code)


def _run_check_or_exit(request: CheckRequest, keys: Path | None, *, dry_run: bool) -> tuple[JudgeCheck, int]:
    """Run the check; return it with its exit code. Ends the command after a dry run, or if the run failed."""
    if dry_run:
        with TemporaryDirectory() as nowhere:
            counted = prepare_check(request, Path(nowhere))
            print_dry_run(counted.config, RunOptions(checked_judge=counted.judge), keys)
            raise typer.Exit
    prepared = prepare_check(request)
    if prepared.continues:
        begun = prepared.folder.read_meta().created_at[:16].replace("T", " ")
        warn(
            streams.messages(),
            f"{prepared.folder.path.name} is continued. Scores it has since {begun} are not requested again; "
            "--start-over begins a new one.",
        )
    options = RunOptions(continue_run=prepared.continues, checked_judge=prepared.judge)
    try:
        run = run_with_progress(prepared.config, options, keys)
    except RecordsChanged as error:
        raise UsageError(f"{error.changes}\nIt did not end; --start-over begins another.") from error
    if run.exit_code not in (0, GAPS):
        for sentence in () if run.summary is None else (*run.summary.notes, *run.summary.stopped.values()):
            warn(streams.messages(), sentence)
        raise typer.Exit(run.exit_code)
    return prepared, run.exit_code


def _print_drift(check: JudgeCheck, drift: JudgeDrift, max_shift: float, console: Console) -> None:
    """Print the shift, changed scores, the detectable shift, a table by factor, and models that replies
    named."""
    shift, flips = drift.shift, drift.flips
    gap = figure_with_interval("gap", shift.difference, shift.low, shift.high)
    if drift.significantly_exceeds(max_shift / 100):
        direction = "higher" if shift.difference > 0 else "lower"
        say(console, f"{drift.judge} judges {direction} than the anchor: {gap} points.", "bold red")
    else:
        least = f" beyond {max_shift:g} points" if max_shift else ""
        say(console, f"{drift.judge}: no shift{least} is shown ({gap} points).", "bold green")
    rate = "not known"
    if flips.mean is not None:
        rate = figure_with_interval("share", flips.mean, flips.low, flips.high)
    answers, items = pluralize(drift.answers, "answer"), pluralize(drift.items, "item")
    say(console, f"Changed scores: {rate} of {drift.scores:,}, on {answers} to {items}.")
    if shift.minimum_detectable is not None:
        least = format_points(shift.minimum_detectable)
        power = "would be detected four times in five"
        say(console, f"With this anchor, a true shift of {least} points {power}.")
    columns = (
        *make_columns("task", "factor"),
        *make_columns("scores", kind="count"),
        *make_columns("changed", kind="share"),
        *make_columns("shift", kind="points"),
    )
    rows = tuple((row.task, row.factor, row.n, row.flips, row.shift) for row in drift.factors)
    show_table(console, ReportTable("", "", columns, rows, names=2))
    legend = "Shift in points: new − anchor, tasks counting alike, with the 95% interval over items."
    say(console, legend, "dim")
    if drift.missing:
        warn(console, f"{pluralize(drift.missing, 'anchor score')} missing from the new check.")
    then, now = (join_names(names) for names in drift.served)
    if then != now:
        none = "no other model"
        warn(console, f"Replies named {then or none} then, {now or none} now.")
    elif now:
        warn(console, f"The host serves this name as {now}. Use that name in the config to pin it.")
    say(console, f"The check is the run {check.folder.path.name}, beside the anchor.", "dim")
