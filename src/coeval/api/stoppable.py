"""Waiting for a run without a loop of one's own: in a script, or in a notebook, where one runs already."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, TypeVar

from coeval.core.process_limits import need_files

T = TypeVar("T")


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], interrupt: asyncio.Event) -> T:
    """Do the work on a loop in a thread of its own, and answer Ctrl-C (in a notebook: Stop) while waiting.

    The first one sets ``interrupt``; what the work makes of that is returned. A second one cancels the work.

    Raises
    ------
    UsageError
        this process may hold too few files open.
    KeyboardInterrupt
        at the second Ctrl-C, when the work has ended.
    """
    need_files()
    stopping = _Stopping(interrupt)
    context = copy_context()
    with _answered(stopping.again), ThreadPoolExecutor(1, thread_name_prefix="coeval") as executor:
        done = executor.submit(context.run, asyncio.run, stopping.stoppable(work))
        try:
            return done.result()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            if not done.done():  # an exception from elsewhere ends the waiting, so it ends the work too
                stopping.once()


class _Stopping:
    """Reaches into the loop of the work, from the thread that waits for it or a signal there."""

    def __init__(self, interrupt: asyncio.Event) -> None:
        self._interrupt = interrupt
        self._times = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    async def stoppable(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._stop()  # as may have been asked for before there was a loop
        return await work()

    def once(self) -> None:
        self._times = max(self._times, 1)
        self._tell()

    def again(self) -> None:
        self._times += 1
        self._tell()

    def _tell(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: all is done
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._times > 0:
            self._interrupt.set()
        if self._times > 1 and self._task is not None:
            self._task.cancel()


@contextmanager
def _answered(answer: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C answered while this is entered, before whoever else wants to know of it."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield  # ignored, or no affair of this thread
        return

    def handle(number: int, frame: FrameType | None) -> None:
        answer()
        if before is not signal.default_int_handler:  # which would raise here, where nothing may be lost
            before(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
