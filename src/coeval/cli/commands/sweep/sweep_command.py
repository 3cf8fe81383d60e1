"""`coeval sweep`: evaluate the checkpoints of a training run. Its flags are `SweepSettings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coeval.cli.command_names import LogLevel
from coeval.cli.settings_flags import set_flags, with_settings
from coeval.sweeps.sweep_settings import SweepSettings


@with_settings(SweepSettings)
def sweep(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A YAML file with these flags as keys, _ for -; flags go over it."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count jobs and calls, price the judging; ask and write nothing."),
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Show how far OUT is, also while a sweep runs; needs --out alone."),
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="DEBUG also shows tracebacks.")] = LogLevel.INFO,
    **settings: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Evaluate the checkpoints of a training run: serve each, ask it every task N times, judge, aggregate.

    Slots (GPUs) take checkpoint after checkpoint; judging goes on meanwhile. The same command again goes on
    where it was stopped: what is there is never asked twice.

    \b
    Examples:
      coeval sweep --checkpoints ckpts/run_a --out outputs/run_a --tasks ifeval,ifbench
      coeval sweep --checkpoints ckpts/run_a --out outputs/run_a --steps 120,240 --gpus 0,1,2,3 \\
        --judge-model gpt-4.1 --judge-base-url https://api.openai.com/v1
      coeval sweep --config sweep.yaml --dry-run
      coeval sweep --out outputs/run_a --status

    \b
    Exit codes: 0 complete, 1 wrong request, 2 no server came up,
    3 finished with gaps or failed jobs, 130 interrupted (finished work is on disk).
    """
    if context.invoked_subcommand is not None:
        return
    from coeval.cli.commands.sweep import sweep_report

    given = sweep_report.settings_of(set_flags(context, SweepSettings), config)
    if status:
        raise typer.Exit(sweep_report.tell_status(given))
    raise typer.Exit(sweep_report.sweep_and_report(given, log_level, dry_run=dry_run))
