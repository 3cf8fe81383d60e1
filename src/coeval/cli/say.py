"""Sentences on a console, with foreign text in them."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from coeval.cli.views.folding import folded
from coeval.core.plain import plain

__all__ = ["say", "warn", "warn_at_length"]

_WARNING = "warning: "


def say(console: Console, sentence: str, style: str = "") -> None:
    """Print it, folded between words where the console is narrower."""
    for line in folded(plain(sentence), console.width):
        console.print(Text(line, style=style), soft_wrap=True)


def warn(console: Console, sentence: str) -> None:
    """Print it as the warning that it is: told by its first word, in a terminal by its colour too."""
    first, *others = folded(_WARNING + plain(sentence), console.width)
    console.print(
        Text(_WARNING, style="bold yellow") + Text(first[cell_len(_WARNING) :], style="yellow"),
        soft_wrap=True,
    )
    for line in others:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def warn_at_length(console: Console, text: str) -> None:
    """`warn` of a text of several lines: those after the first stand below it, set in, so that none of them
    passes for a line of ours."""
    first, *others = text.split("\n")
    warn(console, first)
    for line in others:
        say(console, f"  {line}")
