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
            help="Send N sample requests to each model, over its roles; 0 sends none.",
            show_default="the file's estimate_samples, else 2",
        ),
    ] = None,
    continue_run: Annotated[
        bool, typer.Option("--continue", help="Estimate what remains of this run.")
    ] = False,
    only_models: OnlyModels = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on standard output.")] = False,
    keys: KeyFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="As if started over.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="ID", help="As if artifacts of another run were taken over."),
    ] = None,
    redo_changed: Annotated[
        bool, typer.Option("--redo-changed", help="With records of another configuration regenerated.")
    ] = False,
    keep_changed: Annotated[
        bool, typer.Option("--keep-changed", help="With records of another configuration kept.")
    ] = False,
    phase_barriers: Annotated[
        bool, typer.Option("--phase-barriers", help="With each phase finished before the next begins.")
    ] = False,
) -> None:
    """Estimate calls, tokens, cost and time of an experiment.

    Every figure comes by phase, model and provider, with a 95% range. Text
    lengths come from existing records, from samples (--estimate-samples), or
    else from rules of thumb. All figures are in cost_estimate.json of the run's
    folder.

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
