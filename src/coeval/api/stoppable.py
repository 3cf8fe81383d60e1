"""Runs a coroutine from a script, or from a notebook beside its running loop, and shows its progress."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, Generic, TypeVar

from coeval.core.html_table import Bar, html_lines, html_table
from coeval.core.plain import escape_line
from coeval.core.process_limits import increase_open_file_limit
from coeval.engine.progress import (
    HEADINGS,
    STOPPING,
    Board,
    PhaseCount,
    Unwatched,
    Watcher,
    phase_figures,
    phase_sentence,
)

# --- Progress display for Python and notebooks

# Above a notebook's table; earlier ones are in the run's log.
_MOST_MESSAGES = 5


@asynccontextmanager
async def forward_and_draw_progress(
    progress: bool | None, watcher: Watcher | None, interrupt: asyncio.Event
) -> AsyncIterator[Watcher]:
    """Enter a watcher for a run that forwards to ``watcher``, and draws progress: outside a notebook as lines
    on stderr if ``progress``; None: in a notebook alone, without a ``watcher``."""
    view = RunView(watcher or Unwatched(), interrupt)
    async with draw_progress(view, progress, own_watcher=watcher is not None):
        yield view


@asynccontextmanager
async def draw_progress(view: View[Any], progress: bool | None, *, own_watcher: bool) -> AsyncIterator[None]:
    """Draw a view while entered, unless ``progress`` forbids it. ``own_watcher``: the user has one."""
    screen = _choose_screen(progress, own_watcher=own_watcher)
    if screen is None:
        yield
        return
    drawing = asyncio.create_task(_keep_drawing(view, screen))
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.wait([drawing])
        screen.draw(view)


BoardT = TypeVar("BoardT")


class View(ABC, Generic[BoardT]):
    """A watcher that keeps messages and counts for display, and forwards them to ``watcher``."""

    def __init__(self, watcher: Any, interrupt: asyncio.Event) -> None:
        self._watcher = watcher
        self._interrupt = interrupt
        self._messages: list[str] = []
        self.board: BoardT | None = None

    def note(self, message: str) -> None:
        self._messages.append(escape_line(message))
        self._watcher.note(message)

    def warn(self, message: str) -> None:
        self._messages.append(f"warning: {escape_line(message)}")
        self._watcher.warn(message)

    def begin(self, board: BoardT) -> None:
        self.board = board
        self._watcher.begin(board)

    @property
    def messages(self) -> list[str]:
        return self._messages + [STOPPING] * self._interrupt.is_set()

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return the current progress, a line each."""

    def html(self) -> str:
        """Return the latest messages, and the progress below them."""
        return html_lines([*self.messages[-_MOST_MESSAGES:], *self.sentences()])


class RunView(View[Board]):
    """A `Watcher` of a run or an evaluation: a line, or a bar, for each phase with planned work."""

    def sentences(self) -> list[str]:
        return [phase_sentence(board, count) for board, count in self._counts()]

    def html(self) -> str:
        rows = [
            (count.name, Bar(count.recorded + count.ended, count.planned), *phase_figures(board, count))
            for board, count in self._counts()
        ]
        table = html_table("", ("phase", "", *HEADINGS), rows) if rows else ""
        return html_lines(self.messages[-_MOST_MESSAGES:]) + table

    def _counts(self) -> list[tuple[Board, PhaseCount]]:
        board = self.board
        return [(board, count) for count in board.phases.values() if count.planned] if board else []


async def _keep_drawing(view: View[Any], screen: _Notebook | _StderrLines) -> None:
    while True:
        screen.draw(view)
        await asyncio.sleep(screen.interval_s)


def _choose_screen(progress: bool | None, *, own_watcher: bool) -> _Notebook | _StderrLines | None:
    if progress is False or (progress is None and own_watcher):
        return None
    if _in_notebook():
        return _Notebook()
    return _StderrLines() if progress else None


def _in_notebook() -> bool:
    """Check whether Jupyter runs this process; it loads IPython before any cell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class _Notebook:
    """One output of the cell, updated in place; plain text for what shows no HTML."""

    interval_s = 0.5

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn: dict[str, str] = {}

    def draw(self, view: View[Any]) -> None:
        from IPython.display import display

        text = "\n".join([*view.messages[-_MOST_MESSAGES:], *view.sentences()])
        bundle = {"text/html": view.html(), "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        elif bundle != self._drawn:
            self._handle.update(bundle, raw=True)
        self._drawn = bundle


class _StderrLines:
    """Prints new messages and changed counts as lines on stderr."""

    interval_s = 5.0

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def draw(self, view: View[Any]) -> None:
        for line in [*view.messages, *view.sentences()]:
            if line not in self._printed:
                self._printed.add(line)
                print(line, file=sys.stderr, flush=True)


T = TypeVar("T")


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], interrupt: asyncio.Event) -> T:
    """Run a coroutine on a loop in its own thread, and handle Ctrl-C (in a notebook: Stop) while waiting.

    The first one sets ``interrupt``, and the work's own result is returned. A second one cancels the work.

    Raises UsageError: this process may open too few files; KeyboardInterrupt: at the second Ctrl-C, once the
    work has ended.
    """
    increase_open_file_limit()
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def stoppable() -> T:
        running.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work()

    def stop_or_cancel(*, may_cancel: bool = True) -> None:
        """Set ``interrupt``; if it is set already, cancel the work."""
        loop, task = running.result()
        action = task.cancel if may_cancel and task is not None and interrupt.is_set() else interrupt.set
        with suppress(RuntimeError):  # the loop is closed: all is done
            loop.call_soon_threadsafe(action)

    context = copy_context()
    with _handle_ctrl_c(stop_or_cancel), ThreadPoolExecutor(1, thread_name_prefix="coeval") as executor:
        done = executor.submit(context.run, asyncio.run, stoppable())
        try:
            return done.result()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            if not done.done():  # an exception from elsewhere ends the waiting, so it ends the work too
                stop_or_cancel(may_cancel=False)


@contextmanager
def _handle_ctrl_c(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at Ctrl-C while entered, before any other handler of the process."""
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous) or threading.current_thread() is not threading.main_thread():
        yield  # ignored, or no affair of this thread
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        if previous is not signal.default_int_handler:  # which would raise here, where nothing may be lost
            previous(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
