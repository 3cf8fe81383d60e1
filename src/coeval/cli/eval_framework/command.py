"""The ``eval-framework`` command: published benchmarks on one model. Its flags are `EvalSettings`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coeval import __version__
from coeval.benchmarks.run.eval_settings import EvalSettings
from coeval.cli.command_names import LogLevel
from coeval.cli.ending import run_to_exit
from coeval.cli.settings_flags import GroupedCommand, read_set_flags, with_settings_flags
from coeval.core.options import Frontend


def make_app() -> typer.Typer:
    """Build the command with the options of all tasks. Raises UsageError: another package's benchmark cannot
    be used."""
    app = typer.Typer(
        name="eval-framework",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(cls=GroupedCommand)(with_settings_flags(EvalSettings, task_flags=True)(evaluate))
    return app


def _version(needed: bool) -> None:
    if needed:
        typer.echo(f"eval-framework (coeval {__version__})")
        raise typer.Exit


def evaluate(
    context: typer.Context,
    estimate_only: Annotated[
        bool, typer.Option("--estimate-only", help="Estimate cost and time, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all summaries as JSON on stdout.")] = False,
    log_level: Annotated[
        LogLevel, typer.Option(help="Level of OUTPUT_DIR/run.log; DEBUG also shows tracebacks.")
    ] = "INFO",
    version: Annotated[  # noqa: ARG001  its callback has done it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    **settings: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Score a model on published benchmarks, with intervals.

    \b
    Examples:
      eval-framework --tasks ifeval --model Qwen3-4B --base-url http://localhost:8000/v1
      eval-framework --tasks ifeval --model Qwen/Qwen3-4B --local --max-examples 4
      eval-framework --tasks alpaca-eval --model Qwen3-4B --inference-only
      eval-framework --tasks alpaca-eval --model Qwen3-4B --judge-only --judge-model gpt-4-1106-preview \\
        --judge-base-url https://api.openai.com/v1
      eval-framework --tasks ifeval --ifeval-responses responses.jsonl
      eval-framework --tasks arena-hard --model Qwen3-4B --judge-model gpt-4.1 \\
        --judge-base-url https://api.openai.com/v1 --estimate-only

    \b
    The same command again continues where it stopped: finished work is never repeated.
    Exit codes: 0 complete, 1 usage error, 2 a model is unavailable,
    3 finished with gaps or a failed task, 130 interrupted (finished work is on disk).
    """
    from coeval.cli.eval_framework.eval_report import EvalOutput, evaluate_and_print

    output = EvalOutput(estimate_only=estimate_only, as_json=as_json, log_level=log_level)
    raise typer.Exit(evaluate_and_print(EvalSettings(**read_set_flags(context, EvalSettings)), output))


def main() -> None:
    """Run ``eval-framework``. Exit codes: 0 done, 1 usage error, 2 a model is unavailable, 3 gaps remain,
    130 interrupted."""
    run_to_exit(lambda: make_app()(prog_name="eval-framework"), Frontend.EVAL_FRAMEWORK)
