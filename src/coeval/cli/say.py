"""Sentences on a console, with foreign text in them."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from coeval.core.plain import plain


def say(console: Console, sentence: str, style: str = "") -> None:
    """Print it, folded between words where the console is narrower."""
    console.print(Text(plain(sentence), style=style))


def warn(console: Console, sentence: str) -> None:
    """Print it as the warning that it is: told by its first word, in a terminal by its colour too."""
    console.print(Text("warning: ", style="bold yellow") + Text(plain(sentence), style="yellow"))
