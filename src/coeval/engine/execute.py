"""Doing work: any number of items, in bounded memory, each failure kept to itself.

`execute` draws works from an iterator as room allows, runs each in its own task, keeps its
record, and begins at once what follows from it, so stages overlap without queues between them.
How many requests are on the wire is not decided here but by the endpoints' limiters, which
serve downstream work first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from coeval.core.errors import AskError, CoevalError, Draining, Gap, Pending, named
from coeval.core.records import Kept
from coeval.engine.work import Work

ROOM = 16_384
"""Records begun ahead of being finished: enough to keep thousands of requests in flight, and few
enough (some 3 KB each) to forget about."""
MIN_STARTED = 8
"""Works drawn whatever their weight, so that a huge fan-out does not starve the first stage."""


class Done(NamedTuple):
    """What became of a work: its record, or the gap that left it owed; with neither, it waits for a batch
    job, and is to be done again when results have come."""

    work: Work
    record: Kept | None
    gap: Gap | None
    error: CoevalError | None

    @property
    def pending(self) -> bool:
        return self.record is None and self.gap is None


class Flow:
    """One execution. ``keep`` writes a record; ``follow`` names the works that it brings about;
    ``begin`` is told of each work before it is asked for."""

    def __init__(
        self,
        keep: Callable[[Work, Kept], None],
        follow: Callable[[Work, Kept], Iterable[Work]],
        *,
        begin: Callable[[Work], None] | None = None,
        room: int = ROOM,
    ) -> None:
        self._keep = keep
        self._begin = begin
        self._follow = follow
        self._room = room
        self._weight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: deque[Done] = deque()
        self._wake = asyncio.Event()
        self._fatal: BaseException | None = None
        self._draining = False

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def drain(self) -> None:
        """Begin nothing more. What runs may finish; the iteration ends when it has."""
        self._draining = True
        self._wake.set()

    def cancel(self) -> None:
        """Give up what still runs: those works stay owed."""
        self.drain()
        for task in self._tasks:
            task.cancel()

    async def run(self, works: AsyncIterator[Work]) -> AsyncIterator[Done]:
        """Yield each work's end, in order of completion.

        Raises
        ------
        StoreError
            a record could not be kept. What runs is ended first; all that was kept stays.
        """
        source = aiter(works)
        exhausted = False
        try:
            while True:
                while self._done:
                    yield self._done.popleft()
                if self._fatal is not None:
                    raise self._fatal
                while not (exhausted or self._draining or self._done) and self._has_room():
                    try:
                        self._start(await anext(source))
                    except StopAsyncIteration:
                        exhausted = True
                if not self._tasks and not self._done and (exhausted or self._draining):
                    return
                if not self._done:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _has_room(self) -> bool:
        return self._weight < self._room or len(self._tasks) < MIN_STARTED

    def _start(self, work: Work) -> None:
        self._weight += work.weight
        if self._begin is not None:
            self._begin(work)
        task = asyncio.get_running_loop().create_task(self._one(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = self._fatal or error
            self.cancel()

    async def _one(self, work: Work) -> None:
        error: CoevalError | None = None
        try:
            record = await work.do()
        except Gap as gap:
            self._finish(Done(work, None, gap, None))
            return
        except Pending:
            self._finish(Done(work, None, None, None))
            return
        except AskError as failure:
            error, record = failure, work.failed(failure)
        except asyncio.CancelledError:
            self._finish(Done(work, None, Draining("given up when the run was interrupted"), None))
            raise
        except Exception as bug:  # noqa: BLE001  one of the two: a work item never ends its neighbours
            error, record = AskError(f"internal error: {named(bug)}"), work.failed(bug)
        self._keep(work, record)
        if not self._draining:
            for follower in self._follow(work, record):
                self._start(follower)
        self._finish(Done(work, record, None, error))

    def _finish(self, done: Done) -> None:
        self._weight -= done.work.weight
        self._done.append(done)


async def from_iterable(works: Iterable[Work], *, breath: int = 512) -> AsyncIterator[Work]:
    """An async iterator over ``works`` that lets other tasks run every ``breath`` items."""
    for count, work in enumerate(works, 1):
        yield work
        if not count % breath:
            await asyncio.sleep(0)
