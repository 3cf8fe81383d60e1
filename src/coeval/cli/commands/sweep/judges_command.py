"""`coeval sweep judges`: the same answers judged by different judges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("judges")(judges)


def judges(
    judges: Annotated[
        list[str],
        typer.Option(
            "--judges",
            metavar="NAME=DIR",
            help="A judge's folder: an output folder, or that of a whole sweep. Once for each judge.",
        ),
    ],
    tasks: Annotated[str | None, typer.Option(metavar="healthbench,…", help="Of these tasks only.")] = None,
    steps: Annotated[str | None, typer.Option(metavar="120,240", help="Of these steps only.")] = None,
    name_pattern: Annotated[
        str, typer.Option(metavar="PATTERN", help="What the checkpoints' folders are called.")
    ] = "step_{step}",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.json", help="Write all of it as one JSON document too."),
    ] = None,
) -> None:
    """Compare judges: who is milder, whether they order checkpoints alike, which items they dispute.

    Nobody is asked. Items are paired, samples that only one of them judged are left out, and answers that are
    not the same in both folders are told. docs/training-runs.md explains the figures.

    \b
    Examples:
      coeval sweep judges --judges flash=outputs/run_a --judges plus=outputs/run_a-plus
      coeval sweep judges --judges flash=outputs/a --judges plus=outputs/b --out judges.json
    """
    from coeval.cli import streams
    from coeval.cli.commands.sweep import sweep_flags
    from coeval.cli.streams import say
    from coeval.core.errors import UsageError
    from coeval.sweeps import sweep_settings

    folders = sweep_flags.folders(judges, "--judges")
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder; name a file")
    asked, wanted = sweep_settings.names(tasks), sweep_settings.steps(steps)
    # Here, because they load duckdb and numpy.
    from coeval.analysis.training.judge_comparison import compare_judges
    from coeval.cli.commands.sweep.sweep_tables import print_judges
    from coeval.store.jsonl import write_json_atomic

    compared = compare_judges(folders, asked, wanted, name_pattern)
    print_judges(compared, streams.results())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(out, compared)
        say(streams.messages(), f"written: {out}")
