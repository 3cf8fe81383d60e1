"""`coeval sweep plot`: training curves of one run or several."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ShownErrorBar(StrEnum):
    CI95 = "ci95"
    SEM = "sem"
    STD = "std"
    NONE = "none"


def add_to(app: typer.Typer) -> None:
    app.command("plot")(plot)


def plot(
    runs: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=DIR",
            help="A training run by a name of yours, and the folder of its checkpoints' folders; repeatable. "
            "Example: --runs run_a=outputs/run_a",
        ),
    ],
    plot_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the files go. Example: --plot-dir outputs/plots")
    ],
    name_pattern: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN",
            help="What a run's checkpoints' folders are called; repeatable.",
            show_default="step_{step}",
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="120,240", help="Of these steps only; without it, of all there are.")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="ifeval,…", help="Of these tasks only; without it, of all there are."),
    ] = None,
    show_errorbar: Annotated[
        ShownErrorBar,
        typer.Option(help="Interval over items, standard error or deviation over samples, or none."),
    ] = ShownErrorBar.CI95,
) -> None:
    """Draw a figure for each task over training steps, and a page with the items behind each point.

    Writes TASK.png and TASK.svg for print, all_tasks.png and all_tasks.svg, and curves.html, which opens
    without a network. Steps without a summary_agg.json (coeval sweep aggregate writes it) are drawn as a
    plain line. docs/training-runs.md explains bars, bands and sentences.

    \b
    Examples:
      coeval sweep plot --runs run_a=outputs/run_a --plot-dir outputs/plots
      coeval sweep plot --runs a=outputs/a --runs b=outputs/b --tasks ifeval,healthbench \\
        --steps 120,240,360 --show-errorbar sem --plot-dir outputs/plots

    \b
    Exit codes: 0 drawn, 1 wrong request.
    """
    from coeval.cli import streams
    from coeval.cli.commands.sweep import sweep_flags
    from coeval.cli.streams import say, warn
    from coeval.sweeps import sweep_settings

    folders = sweep_flags.folders(runs, "--runs")
    patterns = sweep_flags.patterns(name_pattern or [], folders)
    wanted, asked = sweep_settings.steps(steps), sweep_settings.names(tasks)
    # Here, because they load duckdb and vl-convert.
    from coeval.analysis.training.training_curves import training_curves
    from coeval.reports.training_files import write_curves

    messages = streams.messages()
    found = training_curves(folders, asked, wanted, patterns)
    for run in found:
        for note in run.notes:
            warn(messages, note if len(found) == 1 else f"{run.label}: {note}")
        for alarm in run.alarms:
            warn(messages, alarm if len(found) == 1 else f"{run.label}: {alarm}")
    results = streams.results()
    for run in found:
        for task, curve in run.curves.items():
            for said in curve.conclusions:
                of = task if len(found) == 1 else f"{run.label}, {task}"
                say(results, f"{of}: {said}")
    written = list(write_curves(found, plot_dir, show_errorbar.value))
    say(messages, f"written: {written[-1]} and {len(written) - 1} pictures beside it")
