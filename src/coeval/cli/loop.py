"""Starts the one event loop of a command, and ends it at Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from coeval.cli.entry import remember_and_raise_interrupt
from coeval.core.errors import UsageError
from coeval.core.options import CONTINUE
from coeval.core.process_limits import increase_open_file_limit
from coeval.engine.progress import STOPPING

T = TypeVar("T")

# Comes each second from the soft limit of CPU time on (`ulimit -St`); the hard one ends the process.
_OUT_OF_TIME = [signal.SIGXCPU] if sys.platform != "win32" else []
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *_OUT_OF_TIME)


_held_signals: list[int] = []


def _hold_ctrl_c(number: int, _: FrameType | None) -> None:
    """Remember a Ctrl-C until the loop is closed: an exception would leave it half closed."""
    _held_signals.append(number)


async def run_interruptible(
    begin: Callable[[asyncio.Event], Coroutine[Any, Any, T]], note: Callable[[str], None]
) -> T:
    """Await what ``begin`` starts. A first Ctrl-C sets its event, a second one cancels it."""
    interrupt = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def set_event_or_cancel() -> None:
        if interrupt.is_set() and task is not None:
            task.cancel()
            return
        note(STOPPING)
        interrupt.set()

    # What is ignored stays so, as nohup has it.
    handled = [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, set_event_or_cancel)
    try:
        return await begin(interrupt)
    except asyncio.CancelledError:
        if not interrupt.is_set():  # nobody stopped it: an exit in foreign code has ended the loop
            raise
        raise KeyboardInterrupt(
            f"Stopped at once; finished work is on disk; {CONTINUE} resumes it."
        ) from None
    finally:
        for number in handled:  # uvloop would leave handlers that do nothing, and results may take a while
            loop.remove_signal_handler(number)
        if signal.SIGINT in handled:
            signal.signal(signal.SIGINT, _hold_ctrl_c)
        for number in _OUT_OF_TIME:  # what is left to do is to show what there is
            signal.signal(number, signal.SIG_IGN)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as the only work of this process, on uvloop if installed, with the garbage collector
    skipping what start-up made (a fifth of all CPU at a thousand requests in flight)."""
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        if (
            on_ctrl_c is remember_and_raise_interrupt
        ):  # asyncio ends a loop well on Python's own handler alone
            signal.signal(signal.SIGINT, signal.default_int_handler)
        increase_open_file_limit()
        gc.freeze()  # without collecting: start-up leaves little, and looking for it takes 0.05 s of CPU
        gc.set_threshold(50_000, 20, 100)  # perf.run throughput-256: at the usual one a fifth of all CPU
        try:
            import uvloop
        except ImportError:
            return asyncio.run(work)
        return uvloop.run(work)
    finally:
        gc.unfreeze()  # else what is frozen outlives the exit, and DuckDB calls its own modules leaked
        work.close()  # it was never begun where somebody stopped us before that
        if signal.getsignal(signal.SIGINT) is not on_ctrl_c:
            signal.signal(signal.SIGINT, on_ctrl_c)
        if _held_signals:
            _held_signals.clear()
            raise KeyboardInterrupt


def run_server(serving: Coroutine[Any, Any, None], host: str, port: int) -> None:
    """Serve until Ctrl-C. Raises UsageError: it cannot listen there."""
    try:
        run_async(serving)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port, or 0 for any"
        ) from error
