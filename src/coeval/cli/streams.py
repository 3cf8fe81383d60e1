"""The two streams of a command: results on standard output, all that is said meanwhile on standard error.

So ``coeval run … > table.txt`` leaves nothing but the table in the file, and ``2> /dev/null`` nothing but
the table on the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from coeval.core.plain import plain

UNBOUNDED = 100_000
"""Cells. A file or pipe has no width, whatever ``COLUMNS`` says: names, paths and ids stay in one piece."""


def results() -> Console:
    """Standard output."""
    return _console(stderr=False)


def messages() -> Console:
    """Standard error: progress, notes, warnings, the way on."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Names and model output are shown as they are: never as markup or emoji codes."""
    console = _PipedConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.file.isatty():
        console.width = UNBOUNDED
    console.push_render_hook(_Escaping())
    return console


class _PipedConsole(Console):
    """Whoever reads may stop when he has enough (``| head``): that is no error. What is left to say goes
    nowhere, and the command ends as its work did."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        let_go(self.file)


def let_go(stream: IO[str]) -> None:
    """Lead a stream that nobody reads any more to nowhere, with what it still holds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Escaping(RenderHook):
    """Escapes what cannot be shown in all that is printed, whoever forgot to: see `coeval.core.plain`."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            if segment.control or segment.text == "\n":
                yield segment
            else:
                yield segment._replace(text="\n".join(map(plain, segment.text.split("\n"))))
