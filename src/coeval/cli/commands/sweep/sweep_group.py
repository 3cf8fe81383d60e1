"""The group `coeval sweep`, to which its commands add themselves."""

from __future__ import annotations

import typer

from coeval.cli.command_names import Commands
from coeval.cli.commands.sweep import aggregate_command, plot_command

app = typer.Typer(
    name="sweep",
    cls=Commands,
    help="Many checkpoints of a training run: their figures put together and compared.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
aggregate_command.add_to(app)
plot_command.add_to(app)
