"""Commands by name; for a misspelt one, those that this version has are suggested."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from typer.core import TyperGroup

from coeval.core.errors import UsageError

if TYPE_CHECKING:
    from typer._click.core import Command, Context

__all__ = ["Commands"]


class Commands(TyperGroup):
    """A group that leaves hidden commands, which are understood only to say what to use instead, out of
    its suggestions, and knows the commands of its own groups (``list`` for ``datasets list``)."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """
        Raises
        ------
        UsageError
            there is no such command.
        """
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            more = f"{ctx.command_path} --help lists them"
            raise UsageError(f"there is no command {args[0]}; {self._hint(args[0])} ({more})")
        return super().resolve_command(ctx, args)

    def _hint(self, name: str) -> str:
        known = dict(self._known())
        if near := get_close_matches(name, known, n=1):
            return f"did you mean {known[near[0]]}?"
        return f"there are {', '.join(path for word, path in known.items() if word == path)}"

    def _known(self) -> Iterator[tuple[str, str]]:
        """Each word that names a command, with the command in full; those of this group win."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        for name, command in shown.items():
            if isinstance(command, TyperGroup):
                yield from ((below, f"{name} {below}") for below in command.commands)
        yield from ((name, name) for name in shown)
