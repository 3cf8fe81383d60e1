"""Showing something again and again, as long as somebody is at work on it."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

__all__ = ["watch"]

EVERY_S = 2.0
_LOOKED_SHARE = 0.1
"""Of the time, at most so much is spent on looking: a large folder is looked at less often."""


def watch(show: Callable[[], str], is_at_work: Callable[[], bool], console: Console) -> None:
    """Write what ``show`` makes until nobody is at work any more: over what stood there on a terminal, below
    it elsewhere, where it has changed."""
    last: str | None = None
    while True:
        going_on, began = is_at_work(), time.monotonic()
        text = show()
        if text != last:
            _write(text, console, first=last is None)
            last = text
        if not going_on or console.quiet:
            return
        time.sleep(max(EVERY_S, (time.monotonic() - began) / _LOOKED_SHARE))


def _write(text: str, console: Console, *, first: bool) -> None:
    if console.is_terminal:
        console.clear()
    elif not first and "\n" in text.rstrip("\n"):
        text = f"\n{text}"
    try:
        console.file.write(text)
        console.file.flush()
    except BrokenPipeError:
        console.on_broken_pipe()
