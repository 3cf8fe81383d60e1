"""`coeval status`: what a run holds, and what went wrong in it lately."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.engine.error_lines import ErrorLine
    from coeval.pipeline.config.schema import Phase
    from coeval.pipeline.plan.record_entry import Entry, EvaluationEntry
    from coeval.pipeline.plan.recorded import Recorded
    from coeval.pipeline.upkeep.quick_look import QuickLook
    from coeval.pipeline.upkeep.repair import Report
    from coeval.store.record_index import PhaseIndex
    from coeval.store.rundir import Meta, RunDir

_LAST = 10
_MOST_GROUPS = 20
_EXCERPT = 200


def status(
    run: Annotated[Path, typer.Option("--run", help="The run folder. Example: --run ./runs/quickstart")],
    fetch_batches: Annotated[
        bool,
        typer.Option("--fetch-batches", help="First collect the batch jobs that have ended."),
    ] = False,
    cancel_batches: Annotated[
        bool,
        typer.Option("--cancel-batches", help="First cancel all batch jobs; what is done is paid."),
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(help="Key file, for batch jobs. Example: --keys ~/work.keys.yaml"),
    ] = None,
) -> None:
    """Show a run's phases, artifact counts, batch jobs and recent errors.

    \b
    Examples:
      coeval status --run ./runs/quickstart
      coeval status --run ./runs/quickstart --fetch-batches
    """
    from coeval.cli import streams
    from coeval.pipeline.existing_run import existing_run
    from coeval.pipeline.upkeep.quick_look import quick_look

    folder = existing_run(run)
    if fetch_batches or cancel_batches:
        _fetch(folder, keys, cancel=cancel_batches)
    console = streams.results()
    look = quick_look(folder)
    _show_meta(folder, look.report, console)
    _show_phases(folder, look, console)
    _show_costs(folder, console)
    _show_batches(folder, console)
    _show_errors(folder, console)


def _fetch(folder: RunDir, keys: Path | None, *, cancel: bool) -> None:
    """Make records of what batch jobs have brought; nothing is asked."""
    from coeval.api import find_keys
    from coeval.cli import streams
    from coeval.cli.loop import interruptible, run_async
    from coeval.cli.say import say
    from coeval.cli.views.progress.progress_view import Terminal
    from coeval.core.text import numbered
    from coeval.pipeline.upkeep.batch_jobs import fetch_batches

    messages = streams.messages()
    if not folder.pending_batches.exists():
        say(messages, "There are no batch jobs.")
        return
    found = find_keys(keys)
    with Terminal(messages) as terminal:
        summary = run_async(
            interruptible(
                lambda event: fetch_batches(folder, found, terminal, event, cancel=cancel), terminal.note
            )
        )
    made = sum(outcome.made for outcome in summary.phases.values())
    say(messages, f"{numbered(made, 'record')} made of what batch jobs have brought.")


def _show_batches(folder: RunDir, console: Console) -> None:
    from coeval.cli.views.progress.batches_view import show_batches
    from coeval.models.batch.waiting.job_list import read_jobs

    if jobs := read_jobs(folder.pending_batches):
        show_batches(jobs, console)


def _show_costs(folder: RunDir, console: Console) -> None:
    from coeval.analysis.costs import model_costs
    from coeval.cli.say import warn
    from coeval.cli.views.cost_table import print_costs
    from coeval.core.errors import StoreError

    try:
        print_costs(model_costs(folder.usage), console)
    except StoreError as error:
        warn(console, f"what it cost cannot be told: {error}")


def _show_meta(folder: RunDir, report: Report | None, console: Console) -> None:
    from coeval.cli.say import say

    try:
        meta = folder.read_meta()
    except FileNotFoundError:
        say(console, f"{folder.path}: not started yet (no meta.json)")
        return
    kind = " (simulated models)" if meta.simulated else ""
    standing = f"{meta.experiment_id}: {_standing(folder, meta, report)}{kind}"
    say(console, standing, "bold")
    say(console, f"created {meta.created_at}, updated {meta.updated_at}", "dim")
    if meta.resume_from:
        say(console, f"resumed from {meta.resume_from}")


def _standing(folder: RunDir, meta: Meta, report: Report | None) -> str:
    """A run that was killed still says that it is running; whether it is, its lock tells. One that has lost
    records since says that it is complete."""
    if meta.status != "running":
        lacks = report is not None and (report.unsettled or any(file.owed for file in report.files))
        return "incomplete" if lacks and meta.status == "completed" else meta.status
    writer = folder.writer()
    if writer is not None:
        return f"running (process {writer})"
    return "stopped before its end; go on with coeval run --config FILE --continue"


def _show_phases(folder: RunDir, look: QuickLook, console: Console) -> None:
    from coeval.analysis.empty_answers import empty_answers_sentence
    from coeval.cli.say import say, warn
    from coeval.cli.views.name_table import Column, NameRow, print_table
    from coeval.pipeline.config.schema import PHASES

    meta = folder.read_meta() if folder.meta.exists() else None
    recorded, report, _ = look
    rows = []
    for phase in PHASES:
        said_complete = meta is not None and phase in meta.phases_completed
        missing = None if report is None else _missing(report, phase)
        complete = said_complete if missing is None else not missing
        index = _index(recorded, phase)
        if index is not None:
            good = sum(entry.good for entry in index.entries())
            figures = [len(folder.files(phase)), good, len(index) - good, missing]
        else:
            figures = [len(list(folder.folder(phase).glob("*.json"))), None, None, missing]
        cells = ("" if figure is None else f"{figure:,}" for figure in figures)
        rows.append(NameRow(phase, ("yes" if complete else "no", *cells)))
    columns = (Column("complete", words=True), *map(Column, ("files", "records", "failed", "missing")))
    print_table(console, "", "phase", columns, rows)
    if said := empty_answers_sentence(recorded.empty_answers(), "of"):
        warn(console, said)
    if report is None:
        if count := len(recorded.damaged):
            lines = "line is no record" if count == 1 else "lines are no records"
            waiting = "" if meta is not None else "; items of one's own are read when the run starts"
            say(console, f"{count:,} {lines}{waiting}")
    else:
        _show_state(report, folder, console)


def _missing(report: Report, phase: Phase) -> int | None:
    """Records of a phase that are owed, or, of phases 1–2, documents; None where it cannot be known."""
    if phase in ("attribute_mapping", "rubric_mapping"):
        damaged = sum(file.damaged is not None for file in report.files if file.phase == phase)
        return damaged or (None if report.no_plan or report.unsettled else 0)
    return report.owed(phase)


def _index(recorded: Recorded, phase: Phase) -> PhaseIndex[Entry] | PhaseIndex[EvaluationEntry] | None:
    match phase:
        case "data_generation":
            return recorded.items
        case "response_collection":
            return recorded.responses
        case "evaluation":
            return recorded.evaluations
        case _:
            return None


def _show_state(report: Report, folder: RunDir, console: Console) -> None:
    """What is invalid, what is owed, and what to do about both."""
    from coeval.cli.say import warn
    from coeval.cli.views.gaps_view import CONTINUE, tell_way_on
    from coeval.core.text import numbered

    if invalid := sum(file.invalid for file in report.files):
        mend = f"coeval repair --run {quote(str(folder.path))} --dry-run"
        warn(console, f"{numbered(invalid, 'invalid record')}; see {mend}")
    if report.no_plan:
        warn(console, f"what is missing cannot be counted: {report.no_plan}")
    if report.unsettled:
        warn(console, f"phases 1–2 are not finished for {', '.join(report.unsettled)}")
    owed = sum(file.owed for file in report.files)
    if (owed or report.unsettled) and folder.writer() is None:
        tell_way_on(console, report.short, CONTINUE, owed=owed + len(report.unsettled))


def _show_errors(folder: RunDir, console: Console) -> None:
    from collections import Counter, deque

    from rich.text import Text

    from coeval.cli.say import say
    from coeval.cli.views.name_table import Column, NameRow, print_table

    groups: Counter[tuple[str, str, str]] = Counter()
    last: deque[ErrorLine] = deque(maxlen=_LAST)
    for error in read_errors(folder):
        groups[error.phase, error.model, error.kind] += 1
        last.append(error)
    if not last:
        return
    rows = [
        NameRow(phase, (model, kind, f"{times:,}"))
        for (phase, model, kind), times in groups.most_common(_MOST_GROUPS)
    ]
    columns = (Column("model", words=True), Column("error", words=True), Column("times"))
    print_table(console, "Errors so far", "phase", columns, rows)
    if (left_out := len(groups) - _MOST_GROUPS) > 0:
        console.print(f"… and {left_out:,} more kinds")
    of_all = f" of {groups.total():,}" if groups.total() > len(last) else ""
    console.print(Text(f"Last {len(last)}{of_all}:"), style="bold")
    for error in last:
        about = error.id or error.phase or folder.errors.name
        say(console, f"{error.at}  {error.kind}  {about}")
        message = error.message if len(error.message) <= _EXCERPT else f"{error.message[:_EXCERPT]}…"
        say(console, f"  {message}", "dim")


def read_errors(folder: RunDir) -> Iterator[ErrorLine]:
    """The lines of ``run_errors.jsonl``, oldest first; what is none of ours is left out."""
    from coeval.core.errors import Undecodable
    from coeval.core.foreign import decoder
    from coeval.engine.error_lines import ErrorLine
    from coeval.store.jsonl import whole_lines

    read = decoder(ErrorLine)
    for line in whole_lines(folder.errors):
        with suppress(Undecodable):
            yield read(line.text)
