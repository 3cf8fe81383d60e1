"""The ``coeval`` command and its subcommands."""

from __future__ import annotations

import sys
from copy import copy
from typing import Annotated

import typer

from coeval import __version__
from coeval.cli.command_names import Commands
from coeval.cli.commands import datasets, judges_command
from coeval.cli.commands.analyze_command import analyze
from coeval.cli.commands.compare_command import compare
from coeval.cli.commands.exchange_commands import export, import_files, log
from coeval.cli.commands.gate_command import GateCommand, gate
from coeval.cli.commands.generate_command import generate
from coeval.cli.commands.ingest_command import ingest, init
from coeval.cli.commands.label_command import label
from coeval.cli.commands.models_command import models
from coeval.cli.commands.probe_command import probe
from coeval.cli.commands.repair_command import repair
from coeval.cli.commands.results import results
from coeval.cli.commands.run_command import describe, plan, run
from coeval.cli.commands.show import show
from coeval.cli.commands.simulate import simulate
from coeval.cli.commands.status import status
from coeval.cli.commands.sweep import sweep_group
from coeval.cli.commands.view_command import view
from coeval.cli.ending import run_to_exit
from coeval.cli.settings_flags import GroupedCommand
from coeval.core.options import Face

app = typer.Typer(
    name="coeval",
    cls=Commands,
    help="Your own benchmark, with error bars: models write it, answer it and judge it.",
    epilog="First steps: coeval run --config examples/quickstart.yaml  (simulated models, no key needed)",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command(cls=GroupedCommand, no_args_is_help=True)(init)
app.command("wizard", cls=GroupedCommand, no_args_is_help=True, hidden=True)(
    init
)  # its name in the specification
app.command()(plan)
app.command()(describe)
app.command()(generate)
app.command(cls=GroupedCommand)(ingest)
app.command()(probe)
app.command()(models)
app.command()(status)
app.command()(results)
app.command()(analyze)
app.command()(show)
app.command()(view)
app.command()(label)
app.command("import")(import_files)
app.command()(export)
app.command()(log)
app.command()(compare)
app.command(cls=GateCommand)(gate)
app.command()(repair)
app.command()(simulate)
app.add_typer(judges_command.app)
app.add_typer(datasets.app)
app.add_typer(sweep_group.app)


def _version(needed: bool) -> None:
    if needed:
        typer.echo(f"coeval {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Your own benchmark, with error bars: models write it, answer it and judge it."""


def _named(words: list[str]) -> typer.Typer:
    """The command line with the command of that name alone, where there is one: to build the options of all
    commands takes a start 0.1 s of CPU."""
    found = copy(app)
    found.registered_commands = [
        info
        for info in app.registered_commands
        if words == [info.name or getattr(info.callback, "__name__", None)]
    ]
    found.registered_groups = [
        info
        for info in app.registered_groups
        if info.typer_instance and words == [info.typer_instance.info.name]
    ]
    return found if found.registered_commands or found.registered_groups else app


def main() -> None:
    """Exit codes: 0 done, 1 wrong request, 2 a model is unavailable, 3 gaps remain, 4 a comparison failed its
    threshold or a gate said NO-GO, 130 interrupted."""
    run_to_exit(lambda: _named(sys.argv[1:2])(prog_name="coeval"), Face.COEVAL)  # however it was started
