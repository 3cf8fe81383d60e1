"""Commands and options of the guides that this version does not have: each says what to use instead."""

from __future__ import annotations

import typer

from coeval.core.errors import UsageError

INSTEAD = {
    "sweep": "eval-framework once for each checkpoint, each with its own --output-dir",
}
"""Command → what there is in its place."""


def not_yet(what: str, instead: str) -> UsageError:
    return UsageError(f"{what}: not in this version; {instead}")


def add_to(app: typer.Typer) -> None:
    """Let the commands that come later be understood with any options, and left out of the help."""
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    for name in INSTEAD:
        app.command(name, hidden=True, context_settings=settings)(_refuse)


def _refuse(context: typer.Context) -> None:
    name = context.info_name or ""
    raise not_yet(f"coeval {name}", INSTEAD[name])
