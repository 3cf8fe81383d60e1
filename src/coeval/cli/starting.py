"""Ctrl-C before there is anything to save: for most of a command's first second, while it is loaded."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # as typing has it, which takes a while to load
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


# --- Exit codes

# A model cannot be used; also Click's code for wrong usage, so: nothing was begun.
UNAVAILABLE = 2
# Results are there, and some are missing.
GAPS = 3
# `compare --fail-if-worse` found a significant loss.
WORSE = 4
# 128 + SIGINT, as shells report it.
INTERRUPTED = 130


NOTHING_BEGUN = "Interrupted before anything was asked or written."


@contextmanager
def nothing_begun() -> Iterator[None]:
    """While this is entered Ctrl-C ends the process at once and says that nothing was asked.

    Whatever begins something takes the signal over: an event loop by its own handler, others by `begin`.
    """
    before = signal.getsignal(signal.SIGINT)
    ours = callable(before) and threading.current_thread() is threading.main_thread()
    if not ours:  # ignored, as in a background job of a shell; or another program's affair
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, before)


def begin() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as it does in any Python program."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_quietly() -> None:
    """All is said and saved: Ctrl-C ends what is left of the process without a traceback of its exit."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Not by an exception: in the middle of an import it would be that module's failure, or be lost."""
    after_c = "\n" if os.isatty(2) else ""  # a terminal shows ^C
    with suppress(OSError):
        os.write(2, f"{after_c}{NOTHING_BEGUN}\n".encode())
    os._exit(INTERRUPTED)
