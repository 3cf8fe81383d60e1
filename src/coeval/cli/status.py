"""`coeval status`: what a run holds, and what went wrong in it lately."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coeval.cli.later import FETCH_BATCHES, not_yet
from coeval.core.plain import plain

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.pipeline.outcome import ErrorLine
    from coeval.pipeline.recorded import Entry, EvaluationEntry
    from coeval.store.journal import Index
    from coeval.store.rundir import Meta, RunDir

_LAST = 10
_MOST_GROUPS = 20
_EXCERPT = 200


def status(
    run: Annotated[Path, typer.Option("--run", help="The run folder. Example: --run ./runs/quickstart")],
    fetch_batches: Annotated[bool, typer.Option("--fetch-batches", hidden=True)] = False,
) -> None:
    """Show a run's phases, artifact counts and recent errors.

    \b
    Example:
      coeval status --run ./runs/quickstart
    """
    from coeval.cli import streams
    from coeval.cli.run_folder import run_folder

    if fetch_batches:
        raise not_yet("--fetch-batches", FETCH_BATCHES)
    folder = run_folder(run)
    console = streams.results()
    _show_meta(folder, console)
    _show_phases(folder, console)
    _show_errors(folder, console)


def _show_meta(folder: RunDir, console: Console) -> None:
    from rich.text import Text

    try:
        meta = folder.read_meta()
    except FileNotFoundError:
        console.print(Text(f"{folder.path}: not started yet (no meta.json)"))
        return
    kind = " (simulated models)" if meta.simulated else ""
    standing = plain(f"{meta.experiment_id}: {_standing(folder, meta)}{kind}")
    console.print(Text(standing, style="bold"), soft_wrap=True)
    console.print(Text(plain(f"created {meta.created_at}, updated {meta.updated_at}"), style="dim"))
    if meta.resume_from:
        console.print(Text(plain(f"resumed from {meta.resume_from}")))


def _standing(folder: RunDir, meta: Meta) -> str:
    """A run that was killed still says that it is running; whether it is, its lock tells."""
    if meta.status != "running":
        return meta.status
    writer = folder.writer()
    if writer is not None:
        return f"running (process {writer})"
    return "stopped before its end; go on with coeval run --config FILE --continue"


def _show_phases(folder: RunDir, console: Console) -> None:
    from rich.text import Text

    from coeval.analysis.empty_answers import empty_answers_sentence
    from coeval.cli.name_table import Column, Row, print_table
    from coeval.cli.say import warn
    from coeval.pipeline.recorded import Recorded
    from coeval.pipeline.supplied import waiting_items

    meta = folder.read_meta() if folder.meta.exists() else None
    recorded = Recorded().read(folder, supplied=waiting_items(folder))
    counts: dict[str, Index[Entry] | Index[EvaluationEntry]] = {
        "data_generation": recorded.items,
        "response_collection": recorded.responses,
        "evaluation": recorded.evaluations,
    }
    rows = []
    for phase in ("attribute_mapping", "rubric_mapping", *counts):
        complete = "yes" if meta is not None and phase in meta.phases_completed else "no"
        if (index := counts.get(phase)) is not None:
            good = sum(1 for key in index if (entry := index.get(key)) is not None and entry.good)
            figures = [len(folder.files(phase)), good, len(index) - good]
        else:
            figures = [len(list(folder.folder(phase).glob("*.json")))]
        rows.append(Row(phase, (complete, *(f"{figure:,}" for figure in figures))))
    columns = (Column("complete", words=True), *map(Column, ("files", "records", "failed")))
    print_table(console, "", "phase", columns, rows)
    if said := empty_answers_sentence(recorded.empty_answers(), "of"):
        warn(console, said)
    if count := len(recorded.damaged):
        lines = "line is no record" if count == 1 else "lines are no records"
        waiting = "; items of one's own are read when the run starts"
        started = meta is not None or folder.config.exists()
        way = f"; see coeval repair --run {folder.path} --dry-run" if started else waiting
        console.print(Text(f"{count:,} {lines}{way}"), soft_wrap=True)


def _show_errors(folder: RunDir, console: Console) -> None:
    from collections import Counter, deque

    from rich.text import Text

    from coeval.cli.name_table import Column, Row, print_table

    groups: Counter[tuple[str, str, str]] = Counter()
    last: deque[ErrorLine] = deque(maxlen=_LAST)
    for error in read_errors(folder):
        groups[error.phase, error.model, error.kind] += 1
        last.append(error)
    if not last:
        return
    rows = [
        Row(phase, (model, kind, f"{times:,}"))
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
        console.print(Text(plain(f"{error.at}  {error.kind}  {about}")), soft_wrap=True)
        message = error.message if len(error.message) <= _EXCERPT else f"{error.message[:_EXCERPT]}…"
        console.print(Text(plain(f"  {message}")), style="dim")


def read_errors(folder: RunDir) -> Iterator[ErrorLine]:
    """The lines of ``run_errors.jsonl``, oldest first; what is none of ours is left out."""
    from coeval.core.errors import Undecodable
    from coeval.core.foreign import decoder
    from coeval.pipeline.outcome import ErrorLine
    from coeval.store.jsonl import whole_lines

    read = decoder(ErrorLine)
    for line in whole_lines(folder.errors):
        with suppress(Undecodable):
            yield read(line.text)
