"""Foreign sentences on a console."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from coeval.cli.plain import plain_lines


def say(console: Console, sentence: str, style: str) -> None:
    """Print it folded between words on a terminal, and in one piece elsewhere."""
    console.print(Text(plain_lines(sentence), style=style), soft_wrap=not console.is_terminal)
