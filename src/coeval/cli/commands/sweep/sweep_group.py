"""The group `coeval sweep`, to which its commands add themselves."""

from __future__ import annotations

import typer

from coeval.cli.commands.sweep import aggregate_command, judges_command, plot_command, sweep_command
from coeval.cli.settings_flags import GroupedCommands

app = typer.Typer(
    name="sweep",
    cls=GroupedCommands,
    invoke_without_command=True,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.callback()(sweep_command.sweep)
aggregate_command.add_to(app)
judges_command.add_to(app)
plot_command.add_to(app)
