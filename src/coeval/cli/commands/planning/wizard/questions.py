"""Questions on a terminal: asked until the answer can be used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console

from coeval.cli.say import say
from coeval.core.errors import UsageError
from coeval.core.plain import plain

__all__ = ["Questions"]

T = TypeVar("T")


class Questions:
    """Asks on the console, and reads answers from standard input, one a line."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def ask(self, question: str, read: Callable[[str], T], default: str = "") -> T:
        """What ``read`` makes of the answer, or of the ``default`` where there is none.

        Raises
        ------
        UsageError
            the answers end here.
        """
        while True:
            answer = self._line(f"{question} [{default}]" if default else question, question)
            try:
                return read(answer or default)
            except UsageError as error:
                say(self._console, f"  {error}", "yellow")

    def lines(self, question: str, read: Callable[[str], T]) -> list[T]:
        """One answer a line, until an empty one."""
        self.tell(question)
        found: list[T] = []
        while True:
            prompt = f"  {len(found) + 1}. (Return: {'no more' if found else 'none'})"
            answer = self.ask(prompt, lambda text: read(text) if text else None)
            if answer is None:
                return found
            found.append(answer)

    def tell(self, sentence: str) -> None:
        say(self._console, sentence)

    def _line(self, prompt: str, question: str) -> str:
        self._console.print(f"{plain(prompt)} ", end="", soft_wrap=True)
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            self._console.print(plain(line.strip()), soft_wrap=True)
        if not line:
            raise UsageError(
                f"the answers end at {question!r}; answer in a terminal, or give a line for each"
            )
        return line.strip()
