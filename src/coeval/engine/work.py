"""Works, and asking a model until its answer can be parsed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from coeval.core.errors import (
    AskError,
    BadRequest,
    CoevalError,
    ContentFiltered,
    CutByWindow,
    CutOff,
    Draining,
    EmptyReply,
    Gap,
    ModelError,
    Pending,
    Refused,
    ReplyError,
    Unparsable,
    Unreadable,
    describe_error,
)
from coeval.core.model import WINDOW, Model
from coeval.core.records import Completion, Kept, Request, Usage, is_good

ValueT = TypeVar("ValueT")
log = logging.getLogger("coeval")


class Work(Protocol):
    """The making of one record. ``weight`` is the number of records that may follow from it, itself included:
    it bounds how many are begun ahead. ``model`` is the model asked; ``calls`` the requests so far.
    ``at_once``: `do` computes, and waits for nothing."""

    @property
    def key(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def at_once(self) -> bool: ...

    async def do(self) -> Kept:
        """Make the record. Raises Gap: nothing was asked; the record stays owed; AskError: it failed;
        `failed` makes the record that says so."""

    def make_failed_record(self, error: Exception) -> Kept: ...


class Tally:
    """Usage of all requests for a record, failed ones included, and the last answer. ``attempts`` counts
    requests for the same thing, ``unanswered`` those of them that brought no reply; ``calls`` all requests:
    they differ where a record is made in parts."""

    __slots__ = ("attempts", "calls", "last", "unanswered", "usage")

    def __init__(self) -> None:
        self.attempts = self.calls = self.unanswered = 0
        self.usage: Usage | None = None
        self.last: Completion | None = None

    def spend(self, usage: Usage) -> None:
        self.usage = usage if self.usage is None else self.usage + usage

    def merge(self, other: Tally) -> None:
        """Add the usage of another part of the same record."""
        tried = max(self.attempts - self.unanswered, other.attempts - other.unanswered)
        self.attempts = max(self.attempts, other.attempts)
        self.unanswered = self.attempts - tried
        self.calls += other.calls
        self.last = other.last or self.last
        if other.usage is not None:
            self.spend(other.usage)


async def ask(
    model: Model,
    make: Callable[[int], Request],
    parse: Callable[[Completion], ValueT],
    *,
    retries: int,
    tally: Tally,
) -> ValueT:
    """Request answers until ``parse`` accepts one, at most ``1 + retries`` times.

    ``make(i)`` is the i-th request, from 0. A reply that ``parse`` refuses with `ReplyError`, and a request
    that failed for a passing reason, is retried. Greedy decoding would repeat a refused reply: there only one
    that was cut off at a limit of ours is retried, with twice the limit. ``tally`` counts every request.

    Raises AskError: the last failure; Gap: nothing could be asked.
    """
    limit: int | None = None
    cut: AskError | None = None
    for attempt in range(retries + 1):
        request = make(attempt)
        if limit is not None:
            sampling = msgspec.structs.replace(request.sampling, max_tokens=limit)
            request = msgspec.structs.replace(request, sampling=sampling, raised=True)
        tally.attempts += 1
        tally.calls += 1
        try:
            completion = await model.complete(request)
            tally.last = completion
            tally.spend(completion.usage)
            return _parse_or_name_cut(model, request, completion, parse)
        except AskError as error:
            if isinstance(error, ReplyError) and not isinstance(error, Refused):
                model.forget(request)
            advised = not isinstance(error, ModelError) or error.retry_advised
            if isinstance(error, ModelError):
                tally.unanswered += not isinstance(error, ContentFiltered | Unreadable)
                if error.usage is not None:
                    tally.spend(error.usage)
            if cut is not None and isinstance(error, BadRequest):
                raise cut from error  # the host does not take the higher limit
            if attempt == retries or not error.retryable or not advised:
                raise
            if isinstance(error, ReplyError) and _would_repeat(request, make(attempt + 1), tally.last):
                limit, cut = _double_own_limit(request, error), error
                if limit is None:
                    error.args = (f"{error}; not retried: at temperature 0 the reply would be the same",)
                    raise
                log.info("%s was cut off at CoEval's own limit; retrying with %d tokens", request.call, limit)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _parse_or_name_cut(
    model: Model, request: Request, completion: Completion, parse: Callable[[Completion], ValueT]
) -> ValueT:
    """Parse an answer; if a cut one without log-probabilities fails, raise CutOff or CutByWindow."""
    try:
        return parse(completion)
    except (EmptyReply, Unparsable) as error:
        if not completion.truncated or request.top_logprobs is not None:
            raise
        if completion.finish_reason == WINDOW:
            end = "its server's window (--max-model-len) or own limit"
            message = f"the answer was cut off below max_tokens, at {end}, so that {error}"
            raise CutByWindow(message, raw=error.raw) from error
        message = f"the answer was cut off at {_name_limit(model, request)}, so that {error}"
        raise CutOff(message, raw=error.raw) from error


def _name_limit(model: Model, request: Request) -> str:
    """Name the limit that cut an answer off, with its value if the user set it."""
    most = request.sampling.max_tokens
    theirs = model.answer_limit == "max_tokens" and most is not None and "max_tokens" not in request.droppable
    return f"your max_tokens of {most}" if theirs else model.answer_limit


def _would_repeat(request: Request, following: Request, completion: Completion | None) -> bool:
    """Check whether a retry would repeat the reply: same messages, temperature 0."""
    greedy = request.sampling.temperature == 0 and following.messages == request.messages
    return greedy and completion is not None and "temperature" not in completion.dropped


def _double_own_limit(request: Request, error: AskError) -> int | None:
    """Return twice the limit that cut a reply off; None if the user set it, or it was not the cause."""
    most = request.sampling.max_tokens
    ours = type(error) is CutOff and "max_tokens" in request.droppable
    return 2 * most if ours and most is not None else None


# --- Flow of work items in bounded memory
#
# `Flow` draws works from an iterator as room allows, runs each in its own task, keeps its record, and
# begins at once what follows from it, so stages overlap without queues between them. How many requests are on
# the wire is not decided here but by the endpoints' limiters, which serve downstream work first.

# Records begun ahead of being finished: enough to keep thousands of requests in flight, and at some 3 KB each
# no burden on memory.
ROOM = 16_384
# Works begun whatever their weight, so that a huge fan-out does not starve the first stage.
MIN_STARTED = 8


class Done(NamedTuple):
    """Outcome of a work: its record (``good``: see `is_good`), or the gap that left it missing; with neither
    it waits for a batch job and is run again later."""

    work: Work
    record: Kept | None
    gap: Gap | None
    error: CoevalError | None
    good: bool = False

    @property
    def pending(self) -> bool:
        return self.record is None and self.gap is None


class Flow:
    """One execution of works. ``keep`` stores a record; ``follow`` returns the works that result from it;
    ``begin`` is called before each work starts."""

    def __init__(
        self,
        keep: Callable[[Work, Kept], None],
        follow: Callable[[Work, Kept], Iterable[Work]],
        *,
        begin: Callable[[str], None] | None = None,
        room: int = ROOM,
    ) -> None:
        """Set up a flow that begins works while their weights add up to less than ``room``."""
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
        """Begin no more works. The iteration ends when running ones have."""
        self._draining = True
        self._wake.set()

    def cancel(self) -> None:
        """Cancel the running works; their records stay missing."""
        self.drain()
        for task in self._tasks:
            task.cancel()

    async def run(self, works: AsyncIterator[Work]) -> AsyncIterator[Done]:
        """Yield each work's outcome, in order of completion. Raises StoreError: a record could not be kept.
        What runs is ended first; all that was kept stays."""
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
            self._begin(work.phase)
        if work.at_once:  # a task of its own would cost more than what it computes
            try:
                self._run_work(work).send(None)
            except StopIteration:
                return
            raise AssertionError(f"unreachable: {work.key} waits for nothing")
        task = asyncio.get_running_loop().create_task(self._run_work(work))
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = self._fatal or error
            self.cancel()

    async def _run_work(self, work: Work) -> None:
        """Run a work to its end: keep its record and start what follows, or queue its gap."""
        error: CoevalError | None = None
        try:
            record = await work.do()
        except Gap as gap:
            self._queue_outcome(Done(work, None, gap, None))
            return
        except Pending:
            self._queue_outcome(Done(work, None, None, None))
            return
        except AskError as failure:
            error, record = failure, work.make_failed_record(failure)
        except asyncio.CancelledError:
            self._queue_outcome(Done(work, None, Draining("abandoned when the run was interrupted"), None))
            raise
        except Exception as bug:  # noqa: BLE001  one of the two: a work item never ends its neighbours
            error, record = AskError(f"internal error: {describe_error(bug)}"), work.make_failed_record(bug)
        self._keep(work, record)
        if not self._draining:
            for follower in self._follow(work, record):
                self._start(follower)
        self._queue_outcome(Done(work, record, None, error, is_good(record)))

    def _queue_outcome(self, done: Done) -> None:
        self._weight -= done.work.weight
        self._done.append(done)


# Works after which other tasks have their turn.
_BREATH = 512


async def iterate_works(works: Iterable[Work]) -> AsyncIterator[Work]:
    """Iterate over ``works`` asynchronously, yielding to other tasks now and then."""
    for count, work in enumerate(works, 1):
        yield work
        if not count % _BREATH:
            await asyncio.sleep(0)
