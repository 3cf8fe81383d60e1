"""`coeval status`: what a folder holds and lacks, and what went wrong in it lately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coeval.store.rundir import RunDir


def status(
    run: Annotated[
        Path,
        typer.Option(
            "--run",
            help="A run folder, or an output folder of eval-framework. Example: --run ./runs/quickstart",
        ),
    ],
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
    watching: Annotated[
        bool, typer.Option("--watch", help="Show it again and again, until nobody is at work there.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; with --watch, one line for each change.")
    ] = False,
) -> None:
    """Show a run's phases, artifact counts, costs, batch jobs and recent errors.

    \b
    Examples:
      coeval status --run ./runs/quickstart
      coeval status --run ./runs/quickstart --watch
      coeval status --run ./runs/quickstart --json
      coeval status --run ./runs/quickstart --fetch-batches
      coeval status --run ./outputs
    """
    from coeval.cli import streams
    from coeval.cli.standing.output_place import OutputPlace
    from coeval.cli.standing.run_place import RunPlace
    from coeval.cli.standing.watching import watch
    from coeval.cli.views.json_text import json_text
    from coeval.pipeline.existing_run import existing_results
    from coeval.store.rundir import RunDir

    path = existing_results(run)
    place = RunPlace(RunDir(path)) if RunDir(path).is_run() else OutputPlace(path)
    if fetch_batches or cancel_batches:
        _fetch(RunDir(path), keys, cancel=cancel_batches)
    console = streams.results()

    def shown() -> str:
        if as_json:
            return json_text(place.standing(), indent=0 if watching else 2) + "\n"
        with console.capture() as captured:
            place.show(console)
        return captured.get()

    if watching:
        watch(shown, lambda: place.writer() is not None, console)
    elif as_json:
        typer.echo(shown(), nl=False)
    else:
        place.show(console)


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
