"""The ``coeval`` command and its subcommands, each loaded when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer
from typer.core import TyperCommand

from coeval import __version__
from coeval.cli.command_names import Commands
from coeval.cli.ending import run_to_exit
from coeval.core.options import Frontend
from coeval.core.process_limits import require_address_space_for_results

_ABOUT = "Your own benchmark, with error bars: models write it, answer it and judge it."


COMMANDS = {
    "run": ("run_command", "Run an experiment and print its scores."),
    "init": ("init_command", "Write an experiment file for your data, and price it."),
    "wizard": ("init_command", ""),
    "plan": ("run_command", "Estimate calls, tokens, cost and time of an experiment."),
    "describe": ("run_command", "Show an experiment before it runs: prompts, calls, cost."),
    "generate": ("generate_command", "Let teachers propose attributes and rubrics, as a file to edit."),
    "ingest": ("ingest_command", "Import items from a table, a data set or a benchmark."),
    "probe": ("probe_command", "Check that each model of an experiment answers."),
    "models": ("models_command", "List the models that your keys reach, with their prices."),
    "status": ("status", "Show a run's progress, costs, batch jobs and recent errors."),
    "results": ("results", "Show the scores of a run or of an `eval-framework` folder."),
    "analyze": ("analyze_command", "Explain a run's scores: who leads, and how certain that is."),
    "show": ("show", "Show items with their answers and judgments."),
    "view": ("view_command", "Browse runs: progress, results, every item and answer."),
    "label": ("label_command", "Label a random sample of answers, blind to student and judges."),
    "import": (
        "exchange_commands",
        "Import results from other tools, to use in results, compare, gate and view.",
    ),
    "export": ("exchange_commands", "Export results as tables or as Inspect logs."),
    "log": ("exchange_commands", "Log results to an experiment tracker: headlines with their intervals."),
    "compare": ("compare_command", "Compare models on the same items, with intervals."),
    "gate": ("gate_command", "Decide whether a candidate may replace a base: GO or NO-GO."),
    "repair": ("repair_command", "Set invalid records aside; --continue regenerates them."),
    "simulate": ("simulate", "Serve simulated models on this machine."),
    "judges": ("judges_command", "Check a judge against its earlier scores."),
    "datasets": ("datasets", "List, fetch and verify the benchmarks' data."),
    "sweep": ("sweep.sweep_group", "Evaluate the checkpoints of a training run, with curves."),
}
"""The module of each command below ``cli/commands``, and its line in the list of commands."""
_READERS = frozenset({"results", "analyze", "show", "view", "label", "compare", "gate"})
"""Commands that load duckdb and numpy, which end the process where they get no address space."""
_HIDDEN = "wizard"
"""The name of `init` in the specification."""
_FUNCTIONS = {"import": "import_files", _HIDDEN: "init"}
"""Functions that have another name than their command."""


def _version(needed: bool) -> None:
    if needed:
        typer.echo(f"coeval {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _make_app_without_commands() -> typer.Typer:
    app = typer.Typer(
        name="coeval",
        cls=Commands,
        help=_ABOUT,
        epilog="First steps: coeval run --config examples/quickstart.yaml  (simulated models, no key needed)",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    return app


def build_app(*names: str) -> typer.Typer:
    """Build the command line with these commands, by default all. Raises UsageError: there is too little
    address space to load one."""
    app = _make_app_without_commands()
    for name in names or COMMANDS:
        if name in _READERS:
            require_address_space_for_results()
        module = import_module(f"coeval.cli.commands.{COMMANDS[name][0]}")
        if hasattr(module, "app"):
            app.add_typer(module.app)
            continue
        kind, function = getattr(module, "KIND", TyperCommand), getattr(module, _FUNCTIONS.get(name, name))
        command = app.command(
            name, cls=kind, hidden=name == _HIDDEN, no_args_is_help=name in ("init", _HIDDEN)
        )
        command(function)
    return app


def _make_app(words: list[str]) -> typer.Typer:
    """Build the command line for these words. The list of commands loads no command, a command only its own
    module, an unknown word all of them, to suggest one."""
    if not words or words[0] in ("-h", "--help", "--version"):
        app = _make_app_without_commands()
        for name, (_, about) in COMMANDS.items():
            app.command(name, help=about, hidden=name == _HIDDEN)(lambda: None)
        return app
    return build_app(*(words[:1] if words[0] in COMMANDS else ()))


def main() -> None:
    """Run ``coeval``. Exit codes: 0 done, 1 usage error, 2 a model is unavailable, 3 gaps remain, 4 a
    comparison failed its threshold or a gate said NO-GO, 130 interrupted."""
    run_to_exit(lambda: _make_app(sys.argv[1:])(prog_name="coeval"), Frontend.COEVAL)  # however it is started
