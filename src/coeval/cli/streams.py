"""The two streams of a command: results on standard output, messages on standard error.

So ``coeval run … > table.txt`` puts only the table into the file, and ``2> /dev/null`` only the table on
the terminal.
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
    """Return a console on standard output, for results."""
    return _make_console(stderr=False)


def messages() -> Console:
    """Return a console on standard error, for progress, notes, warnings and hints."""
    return _make_console(stderr=True)


def _make_console(*, stderr: bool) -> Console:
    """Make a console that shows names and model output literally, never as markup or emoji codes."""
    console = _PipedConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.file.isatty():
        console.width = UNBOUNDED
    console.push_render_hook(_Escaping())
    return console


class _PipedConsole(Console):
    """A console whose reader may stop early (``| head``): later output is discarded, and is no error."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard_stream(self.file)


def discard_stream(stream: IO[str]) -> None:
    """Redirect a stream that nobody reads any more, with what it still buffers, to the null device."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


@contextmanager
def send_user_output_to_stderr() -> Iterator[None]:
    """Send what the user's code and its subprocesses print to standard error while entered."""
    with ExitStack() as stack:
        if sys.stdout is not None and sys.stderr is not None:  # else these numbers are some other file's
            with suppress(BrokenPipeError):  # what is printed next says so
                sys.stdout.flush()
            saved_stdout = os.dup(1)
            stack.callback(os.close, saved_stdout)
            os.dup2(2, 1)
            stack.callback(os.dup2, saved_stdout, 1)
        stack.enter_context(redirect_stdout(sys.stderr))
        yield


class _Escaping(RenderHook):
    """Escapes unprintable characters in everything that is printed: see `coeval.core.plain`."""

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
    """Print a sentence, folded between words if the console is narrower."""
    for line in wrap_lines(escape_line(sentence), console.width):
        console.print(Text(line, style=style), soft_wrap=True)


def warn(console: Console, sentence: str) -> None:
    """Print a warning: marked by its first word, on a terminal also by colour."""
    first, *others = wrap_lines(_WARNING + escape_line(sentence), console.width)
    console.print(
        Text(_WARNING, style="bold yellow") + Text(first[cell_len(_WARNING) :], style="yellow"),
        soft_wrap=True,
    )
    for line in others:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def warn_in_lines(console: Console, text: str) -> None:
    """Print a warning of several lines, all but the first indented so that none looks like a line of ours."""
    first, *others = text.split("\n")
    warn(console, first)
    for line in others:
        say(console, f"  {line}")
