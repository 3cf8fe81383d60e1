"""The two streams of a command: results on standard output, all that is said meanwhile on standard error.

So ``coeval run … > table.txt`` leaves nothing but the table in the file, and ``2> /dev/null`` nothing but
the table on the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import IO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.text import Text

from coeval.core.folding import wrap_lines
from coeval.core.plain import escape_line

# Cells. A file or pipe has no width, whatever ``COLUMNS`` says: names, paths and ids stay in one piece.
UNBOUNDED = 100_000


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


@contextmanager
def kept_for_results() -> Iterator[None]:
    """Context: what code of the user's, and what it starts, prints to standard output goes to standard
    error."""
    with ExitStack() as stack:
        if sys.stdout is not None and sys.stderr is not None:  # else these numbers are some other file's
            with suppress(BrokenPipeError):  # what is printed next says so
                sys.stdout.flush()
            ours = os.dup(1)
            stack.callback(os.close, ours)
            os.dup2(2, 1)
            stack.callback(os.dup2, ours, 1)
        stack.enter_context(redirect_stdout(sys.stderr))
        yield


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
                yield segment._replace(text="\n".join(map(escape_line, segment.text.split("\n"))))


# --- Messages on a console

_WARNING = "warning: "


def say(console: Console, sentence: str, style: str = "") -> None:
    """Print it, folded between words where the console is narrower."""
    for line in wrap_lines(escape_line(sentence), console.width):
        console.print(Text(line, style=style), soft_wrap=True)


def warn(console: Console, sentence: str) -> None:
    """Print it as the warning that it is: told by its first word, in a terminal by its colour too."""
    first, *others = wrap_lines(_WARNING + escape_line(sentence), console.width)
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
