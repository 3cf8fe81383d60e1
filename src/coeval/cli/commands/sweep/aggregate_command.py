"""`coeval sweep aggregate`: the samples of each checkpoint and task put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("aggregate")(aggregate)


def aggregate(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "--out-dir",
            metavar="DIR",
            help="The folder that holds the checkpoints' folders. Example: --out outputs/run_a",
        ),
    ],
    steps: Annotated[
        str | None, typer.Option(metavar="120,240", help="Of these steps only; without it, of all there are.")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="ifeval,…", help="Of these tasks only; without it, of all there are."),
    ] = None,
    n_samples: Annotated[
        str | None,
        typer.Option(
            metavar="ifeval=8,…",
            help="Number of samples expected: missing ones are reported, and runs beyond it do not count.",
        ),
    ] = None,
    name_pattern: Annotated[
        str, typer.Option(metavar="PATTERN", help="What the checkpoints' folders are called.")
    ] = "step_{step}",
    base: Annotated[
        int | None,
        typer.Option(metavar="STEP", help="Hold checkpoints against this step; without it, the first one."),
    ] = None,
) -> None:
    """Write each checkpoint's summary_agg.json, and say what follows from all of them.

    Nobody is asked. Of each task it is told which step is the first that is better than the base, what the
    best one is worth with its luck taken off, and whether the last ones still gained. Samples count together
    where they were made with the same sampling and judged alike; those that were not, or are unfinished, are
    left out and told. docs/training-runs.md explains the figures.

    Exit codes: 0 all there, 1 wrong request, 3 something is missing.

    \b
    Examples:
      coeval sweep aggregate --out outputs/run_a
      coeval sweep aggregate --out outputs/run_a --steps 120,240 --tasks ifeval,healthbench --base 120
      coeval sweep aggregate --out outputs/run_a --n-samples ifeval=8,healthbench=8,arena-hard=1
    """
    from coeval.cli import streams
    from coeval.cli.ending import GAPS
    from coeval.cli.streams import say, warn
    from coeval.core.text import numbered
    from coeval.sweeps import sweep_settings

    asked, wanted = sweep_settings.names(tasks), sweep_settings.steps(steps)
    expected = sweep_settings.counts(n_samples)
    # Here, because they load duckdb and numpy.
    from coeval.analysis.training.aggregate import aggregate as put_together
    from coeval.analysis.training.aggregate import evaluated_steps, require_base, write_aggregates
    from coeval.analysis.training.training_curves import training_curves
    from coeval.cli.commands.sweep.sweep_tables import print_aggregates, print_conclusions, told_of

    checkpoints = evaluated_steps(out, name_pattern, wanted)
    require_base(base, checkpoints, out)
    found, written = [], 0
    for checkpoint in checkpoints:
        one = put_together(checkpoint, asked, expected)
        written += len(write_aggregates(one))
        found.append(one)
    print_aggregates(found, streams.results())
    if written:
        [run] = training_curves({out.name: out}, asked, wanted, {out.name: name_pattern}, base)
        print_conclusions(run, found, streams.results())
    told = told_of(found, out, asked, wanted)
    for sentence in told.notes:
        warn(streams.messages(), sentence)
    say(
        streams.messages(),
        f"written: {out}/{name_pattern}/<task>/summary_agg.json, {numbered(written, 'file')}",
    )
    if told.gaps:
        raise typer.Exit(GAPS)
