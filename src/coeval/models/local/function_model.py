"""Functions as models: synchronous ones in threads, asynchronous ones on the loop."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from abc import abstractmethod
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

import msgspec

from coeval.core import errors
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Request
from coeval.core.redaction import Redactor
from coeval.core.shown_url import strip_credentials
from coeval.models.local.callables import Answerer, Raised, call_catching_all, load_callable, parse_own_answer
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import LONGEST_HOLD_S
from coeval.models.transport.call import Fault, Tries, read_retry_wait_s
from coeval.models.transport.http import make_draining_error

_RNG = random.Random()


class OwnCode(Model):
    """A model that is the user's code: retried after passing errors, and redacted. A call's cost is known
    once it is over. Under a budget, one call runs alone until a first one has succeeded; from then on the
    largest cost so far is reserved before each call."""

    answer_limit = "max_answer_bytes"

    def __init__(self, spec: ModelSpec, admission: Admission) -> None:
        self.name = spec.name
        self.interface = spec.interface
        self._spec = spec
        self._admission = admission
        self._drained = asyncio.Event()
        hidden = os.environ.keys() - strip_credentials(os.environ).keys()
        self._redactor = Redactor(map(os.environ.__getitem__, sorted(hidden)), names=spec.open_names)

    async def is_listed(self) -> bool:
        """Return True: opening found the code, and it is not called before there is work."""
        return True

    async def complete(self, request: Request) -> Completion:
        """Call the code until it answers, or an error will not pass; redact the answer."""
        tries = Tries()
        for attempt in count(1):
            try:
                completion = await self._answer(request)
            except errors.ModelError as error:
                unread = isinstance(error, errors.Unreadable)  # which phases ask for anew, three times in all
                fault = Fault(error, again=error.retryable and error.retry_advised and not unread)
                if not tries.count_failure(fault):
                    raise
                with suppress(TimeoutError):  # nobody who is to end waits for a host's limit
                    wait_s = min(tries.wait_s(fault, _RNG), LONGEST_HOLD_S)
                    await asyncio.wait_for(self._drained.wait(), wait_s)
                continue
            text = self._redactor.redact_answer(completion.text)
            if attempt == 1 and text is completion.text:
                return completion
            return msgspec.structs.replace(completion, text=text, attempts=attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def drain(self) -> None:
        """Make no further calls; those that wait for one raise Draining."""
        self._drained.set()

    @abstractmethod
    async def _answer(self, request: Request) -> Completion:
        """Await a slot, then make the call by `_call_within_budget`."""

    async def _call_within_budget(
        self, request: Request, call: Callable[[Request], Awaitable[Completion]]
    ) -> Completion:
        """Make a call once the budget admits it, and book its cost; one that raises Draining was not made."""
        if self._drained.is_set() and not request.goes_on:
            raise make_draining_error()
        admission = self._admission
        async with admission.reserve_reported_cost(request.priority) as reservation:
            if self._drained.is_set() and not request.goes_on:
                raise make_draining_error()
            completion = await admission.call_once(request, self._spec, call, reservation)
        admission.record_reported_cost(completion.usage)
        return completion

    def _map_exception(self, error: BaseException, location: str) -> errors.ModelError:
        """Map an exception of the user's code to a ModelError: a passing one, or a failure of the item."""
        if isinstance(error, errors.ModelError):
            return error
        message = self._redactor.redact_message(f"{location} raised {errors.describe_error(error)}")
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", getattr(response, "status_code", None))
        kinds = {base.__name__ for base in type(error).__mro__}
        if status == 429:
            headers = getattr(response, "headers", None)
            header_items = headers.items() if isinstance(headers, Mapping) else ()
            wait_s = read_retry_wait_s({f"{name}".lower(): f"{value}" for name, value in header_items})
            return errors.RateLimited(message, status=429, retry_after_s=wait_s)
        if isinstance(status, int) and (status in (408, 409) or status >= 500):
            return errors.ServerFault(message, status=status)
        if isinstance(status, int) and status >= 400:
            return errors.BadRequest(message, status=status)
        if isinstance(error, TimeoutError) or kinds & {"Timeout", "TimeoutException", "APITimeoutError"}:
            return errors.RequestTimeout(message)
        if isinstance(error, ConnectionError) or kinds & {"TransportError", "APIConnectionError"}:
            return errors.ConnectionFailed(message)
        return errors.ServerFault(message, retry_advised=False)

    def _make_timeout(self, location: str) -> errors.RequestTimeout:
        return errors.RequestTimeout(
            f"{location} returned no answer in {self._spec.timeout_s:g} s", retry_advised=False
        )


# Threads of a function that waits, and calls of one on the loop, where the file says nothing.
_USUAL_THREADS, _USUAL_CALLS = 32, 256


class _WorkingDirectory:
    """The process's working directory, which functions may change: put back once none of them runs."""

    def __init__(self) -> None:
        self._home = ""
        self._running = 0

    def remember_before_first_call(self) -> None:
        if not self._running:
            with suppress(OSError):  # it is gone
                self._home = os.getcwd()  # noqa: PTH109  called for each call: a text is enough
        self._running += 1

    def restore_after_last_call(self) -> None:
        self._running -= 1
        if not self._running:
            with suppress(OSError):
                os.chdir(self._home)


_DIRECTORY = _WorkingDirectory()


class FunctionModel(OwnCode):
    """A function of the user's, by ``callable``; loading it runs its file. Raises UsageError: it is not
    there, or takes what no request has."""

    def __init__(self, spec: ModelSpec, admission: Admission) -> None:
        super().__init__(spec, admission)
        self._place = str(spec.options["callable"])
        _DIRECTORY.remember_before_first_call()
        try:
            self._answerer = Answerer.by_signature(load_callable(self._place), self._place)
        finally:
            _DIRECTORY.restore_after_last_call()
        self._room = asyncio.Semaphore(spec.max_concurrency or _USUAL_CALLS)
        self._threads = CallThreads(
            self._answerer.call, spec.max_concurrency or _USUAL_THREADS, spec.timeout_s, self._place
        )

    async def aclose(self) -> None:
        """End idle threads; one whose call hangs ends with the process."""
        self._threads.close()

    def drain(self) -> None:
        super().drain()
        self._threads.refuse_waiting(make_draining_error)

    async def _answer(self, request: Request) -> Completion:
        _DIRECTORY.remember_before_first_call()
        try:
            if not self._answerer.waits:
                return await self._call_within_budget(request, self._call_in_thread)
            async with self._room:
                return await self._call_within_budget(request, self._call_on_loop)
        finally:
            _DIRECTORY.restore_after_last_call()

    async def _call_in_thread(self, request: Request) -> Completion:
        outcome, latency_s = await self._threads.run(request)
        if isinstance(outcome, Raised):
            raise self._map_exception(outcome.error, self._place)
        if outcome is _LATE:
            raise self._make_timeout(self._place)
        return msgspec.structs.replace(
            parse_own_answer(outcome, self._place, structured=request.schema is not None), latency_s=latency_s
        )

    async def _call_on_loop(self, request: Request) -> Completion:
        began = time.perf_counter()
        limit = asyncio.timeout(self._spec.timeout_s)
        try:
            async with limit:
                value = await self._answerer.call(request)
        except (Exception, SystemExit) as error:
            if limit.expired():
                raise self._make_timeout(self._place) from None
            raise self._map_exception(error, self._place) from error
        answer = parse_own_answer(value, self._place, structured=request.schema is not None)
        return msgspec.structs.replace(answer, latency_s=time.perf_counter() - began)


# --- Threads

_LATE = object()


class CallThreads:
    """Makes calls in at most ``most`` threads, which end with the process. A call that takes longer than
    ``timeout_s`` is given up; Python cannot end its thread, so that one fewer is left for others."""

    def __init__(self, call: Callable[[Request], Any], most: int, timeout_s: float, name: str) -> None:
        self._call = call
        self._most = most
        self._timeout_s = timeout_s
        self._name = name
        self._waiting: deque[tuple[Future[Any], Request]] = deque()
        self._queue: SimpleQueue[tuple[Future[Any], Request, TimerHandle] | None] = SimpleQueue()
        self._threads = self._running = 0
        self._hanging: set[Future[Any]] = set()

    def run(self, request: Request) -> Future[Any]:
        """Queue a call; the future holds its value (a `Raised` or ``_LATE`` instead) and its seconds. Raises
        ModelStopped: as many calls hang as there may be threads."""
        if len(self._hanging) >= self._most:
            raise self._make_stopped_error()
        loop = asyncio.get_running_loop()
        answered: Future[Any] = loop.create_future()
        self._waiting.append((answered, request))
        self._start_waiting(loop)
        return answered

    def _start_waiting(self, loop: AbstractEventLoop) -> None:
        """Hand waiting calls to threads, and start threads while all are in use."""
        while self._waiting and self._running < self._most:
            answered, request = self._waiting.popleft()
            if answered.done():  # nobody waits for one that was cancelled
                continue
            self._running += 1
            if self._threads < self._running:
                self._threads += 1
                thread = threading.Thread(
                    target=self._make_calls, args=(loop,), daemon=True, name=f"calls {self._name}"
                )
                thread.start()
            self._queue.put(
                (answered, request, loop.call_later(self._timeout_s, self._count_hanging_call, answered))
            )

    def _make_calls(self, loop: AbstractEventLoop) -> None:
        while (job := self._queue.get()) is not None:
            answered, request, timer = job
            began = time.perf_counter()
            outcome = call_catching_all(self._call, request)
            took = time.perf_counter() - began
            with suppress(RuntimeError):  # the run has ended
                loop.call_soon_threadsafe(self._on_call_end, loop, answered, timer, (outcome, took))

    def _on_call_end(
        self, loop: AbstractEventLoop, answered: Future[Any], timer: TimerHandle, result: tuple[Any, float]
    ) -> None:
        timer.cancel()
        self._running -= 1
        self._hanging.discard(answered)
        if not answered.done():
            answered.set_result(result)
        self._start_waiting(loop)

    def _count_hanging_call(self, answered: Future[Any]) -> None:
        self._hanging.add(answered)
        if not answered.done():
            answered.set_result((_LATE, self._timeout_s))
        if len(self._hanging) >= self._most:
            self.refuse_waiting(self._make_stopped_error)

    def _make_stopped_error(self) -> errors.ModelStopped:
        return errors.ModelStopped(
            f"{self._name} is no longer called: {len(self._hanging)} calls took more than "
            f"{self._timeout_s:g} s and still hang; fix it, or raise parameters.timeout_s"
        )

    def refuse_waiting(self, error: Callable[[], errors.CoevalError]) -> None:
        """Refuse the calls that wait; each gets an ``error`` of its own."""
        while self._waiting:
            answered, _ = self._waiting.popleft()
            if not answered.done():
                answered.set_exception(error())

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)
