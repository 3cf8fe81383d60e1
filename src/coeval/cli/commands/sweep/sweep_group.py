"""The group `coeval sweep`, to which its commands add themselves."""

from __future__ import annotations

import typer

from coeval.cli.command_names import Commands
from coeval.cli.commands.sweep import aggregate_command, judges_command, plot_command, sweep_command

app = typer.Typer(
    name="sweep",
    cls=Commands,
    invoke_without_command=True,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.callback()(sweep_command.sweep)
aggregate_command.add_to(app)
judges_command.add_to(app)
plot_command.add_to(app)
