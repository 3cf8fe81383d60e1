"""The two streams of a command: results on standard output, all that is said meanwhile on standard error.

So ``coeval run … > table.txt`` leaves nothing but the table in the file, and ``2> /dev/null`` nothing but
the table on the terminal.
"""

from __future__ import annotations

from rich.console import Console

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
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.file.isatty():
        console.width = UNBOUNDED
    return console
