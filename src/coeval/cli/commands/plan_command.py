"""`coeval plan`: what an experiment will cost and take, before it is run."""

from __future__ import annotations

from typing import Annotated

import typer

from coeval.cli.command_names import ExperimentFile, KeyFile, OnlyModels


def plan(
    config: ExperimentFile,
    estimate_samples: Annotated[
        int | None,
        typer.Option(
            "--estimate-samples",
            min=0,
            metavar="N",
            help="Really ask each model N times, its roles by turns; 0 calls none.",
            show_default="the file's estimate_samples, else 2",
        ),
    ] = None,
    continue_run: Annotated[
        bool, typer.Option("--continue", help="What is left of the run of this id.")
    ] = False,
    only_models: OnlyModels = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on standard output.")] = False,
    keys: KeyFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="As if begun anew.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="ID", help="As if artifacts of another run were taken over."),
    ] = None,
    redo_changed: Annotated[
        bool, typer.Option("--redo-changed", help="With records of another configuration made again.")
    ] = False,
    keep_changed: Annotated[
        bool, typer.Option("--keep-changed", help="With records of another configuration left as they are.")
    ] = False,
    phase_barriers: Annotated[
        bool, typer.Option("--phase-barriers", help="With each phase finished before the next begins.")
    ] = False,
) -> None:
    """Tell what an experiment will cost and take.

    Calls, tokens, money and hours, by phase, model and provider: each with what is expected, and the range
    that holds it in 95 of 100 cases. How long texts will be is taken from records that are there already,
    from samples, and else from rules of thumb. cost_estimate.json of the run's folder holds all figures.

    \b
    Examples:
      coeval plan --config my.yaml
      coeval plan --config my.yaml --estimate-samples 0
      coeval plan --config my.yaml --continue
      coeval plan --config my.yaml --estimate-samples 0 --json | jq .cost_usd.central

    \b
    Exit codes: 0 estimated, 1 wrong request, 130 interrupted.
    """
    from coeval.cli.commands.estimate_report import estimate_and_report
    from coeval.cli.commands.run_command import only_named, stance_of, started_file
    from coeval.pipeline.run_options import RunOptions

    stance = stance_of(redo_changed, keep_changed)
    options = RunOptions(continue_run, overwrite, only_named(only_models), stance, phase_barriers)
    settled = started_file(config, options, resume).with_settings(estimate_samples=estimate_samples)
    raise typer.Exit(estimate_and_report(settled.config, options, keys, as_json=as_json))
