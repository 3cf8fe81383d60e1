"""The one way to a host: one wire for the whole process, retries, limits, outages.

Every request of every dialect passes through `Http.post` or `Http.get`. A dialect says how to
read an answer (`Call`); this module decides when a request is sent, how often, and what its
failure is called.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from coeval.core.errors import (
    CoevalError,
    ConnectionFailed,
    Draining,
    ModelError,
    RateLimited,
    RequestTimeout,
    Unreadable,
)
from coeval.models.answer import Reply
from coeval.models.endpoint import Endpoint
from coeval.models.faults import foreign, from_exception, from_garbage, from_status, place
from coeval.models.limits import LONGEST_HOLD_S, unrefused
from coeval.models.network import raise_open_file_limit
from coeval.models.rate_headers import asked_hold_s, asked_retry, asked_wait_s
from coeval.models.route import Route
from coeval.models.wire import Wire

if TYPE_CHECKING:
    from coeval.models.proxied import ProxiedWire

__all__ = ["ATTEMPTS", "BACKOFF_S", "Answered", "Call", "Endpoint", "Http", "draining"]

T = TypeVar("T")

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 28.0)
"""Longest wait before each further attempt; 59.5 s in all."""
ATTEMPTS = len(BACKOFF_S) + 1
FEWER_ATTEMPTS: Mapping[type[ModelError], int] = {Unreadable: 2}
"""Of these, so many end a request, whatever else it met with: another try gains nothing."""
TOLD_AFTER_S = 3.0
"""Nothing but failures for so long is worth a line to whoever waits."""

_OVERLOADED = (503, 529)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What a dialect knows of a request.

    Attributes
    ----------
    decode:
        the value of a 2xx body. ValueError and msgspec's errors mean that it is no answer, which
        is asked for once more; a ModelError is taken as it is.
    explain:
        the dialect's reading of an error body, by status; None leaves it to the status alone.
    timeout_s:
        for one attempt, from sending to the last byte.
    rank:
        which waiting requests go first: larger before smaller.
    permit:
        called once per request sent, just before; raises QuotaExhausted or ModelStopped.
    tokens:
        how many tokens a value took, for the endpoint's ``tokens_per_minute``.
    ended:
        told once how it went: None for an answer, else the error that is raised.
    refusal:
        what ``permit`` would raise, asked of requests that wait for their turn.
    """

    decode: Callable[[bytes], T]
    explain: Callable[[int, bytes], ModelError | None]
    timeout_s: float
    rank: int
    permit: Callable[[], None]
    tokens: Callable[[T], int] | None = None
    ended: Callable[[ModelError | None], None] | None = None
    refusal: Callable[[], CoevalError | None] = unrefused


class Answered(NamedTuple, Generic[T]):
    """A decoded answer; ``latency_s`` is that of the attempt which brought it."""

    value: T
    latency_s: float
    attempts: int


class _Ask(NamedTuple, Generic[T]):
    endpoint: Endpoint
    route: Route
    body: bytes | None
    call: Call[T]

    @property
    def place(self) -> str:
        return place(self.route.method, self.route.url)


@dataclass(frozen=True, slots=True)
class _Fault:
    """A failed attempt; ``again`` says whether sending the same request again may help."""

    error: ModelError
    again: bool


class Http:
    """One per process, opened at its first request, closed with `aclose`.

    Parameters
    ----------
    clock, sleep:
        seconds, monotonic; and how to wait for some of them.
    rng:
        spreads retries, so that requests which failed together do not come back together.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._straight: Wire | None = None
        self._proxied: ProxiedWire | None = None
        self._endpoints: set[Endpoint] = set()
        self._draining = False

    def post(
        self, endpoint: Endpoint, path: str, body: bytes, call: Call[T]
    ) -> Coroutine[Any, Any, Answered[T]]:
        """Send ``body`` until it is answered or failed for good; ``path`` is appended to the base URL.

        Raises
        ------
        ModelError
            all attempts failed, or one did in a way that another cannot mend.
        Gap
            nothing (more) was sent: what ``call.permit`` raised, or Draining.
        """
        return self._ask(_Ask(endpoint, endpoint.route("POST", path), body, call))

    def get(self, endpoint: Endpoint, path: str, call: Call[T]) -> Coroutine[Any, Any, Answered[T]]:
        """As `post`, without a body."""
        return self._ask(_Ask(endpoint, endpoint.route("GET", path), None, call))

    def troubles(self) -> dict[Endpoint, str]:
        """The endpoints that give nothing but failures to those who wait: a sentence on each."""
        now = self._clock()
        return {
            endpoint: f"nothing but failures for {now - trouble.began:.0f} s, trying again: {trouble.reason}"
            for endpoint in self._endpoints
            if (trouble := endpoint.trouble) is not None and now - trouble.began >= TOLD_AFTER_S
        }

    def drain(self) -> None:
        """From now on nothing new is sent: who waits, and who asks later, gets Draining."""
        self._draining = True
        for endpoint in self._endpoints:
            endpoint.limiter.close(draining())
            endpoint.wake()

    async def aclose(self) -> None:
        for wire in (self._straight, self._proxied):
            if wire is not None:
                await wire.aclose()
        self._straight = self._proxied = None

    async def _ask(self, ask: _Ask[T]) -> Answered[T]:
        endpoint, call = ask.endpoint, ask.call
        self._endpoints.add(endpoint)
        attempt = 0
        met: dict[type[ModelError], int] = {}
        while True:
            self._check_sending()
            await endpoint.limiter.acquire(call.rank, again=attempt > 0, refusal=call.refusal)
            attempt += 1
            try:
                self._check_sending()  # it may have begun as the slot was granted
                call.permit()
                outcome = await self._attempt(ask, attempt)
            finally:
                endpoint.limiter.release()
            if not isinstance(outcome, _Fault):
                if call.ended is not None:
                    call.ended(None)
                return outcome
            error, again = outcome.error, outcome.again
            error.attempts = attempt
            kind = type(error)
            met[kind] = met.get(kind, 0) + 1
            if met[kind] == FEWER_ATTEMPTS.get(kind):
                error.retry_advised = again = False
            if endpoint.is_down:
                error.retry_advised = again = False
                error.args = (f"{error}; it has given nothing but errors for {endpoint.down_s:.0f} s",)
            if not again or attempt == ATTEMPTS:
                if call.ended is not None:
                    call.ended(error)
                raise error
            self._check_sending()
            endpoint.troubled(str(error), self._clock())
            await endpoint.nap(self._sleep(self._wait_s(error, attempt)))

    def _check_sending(self) -> None:
        if self._draining:
            raise draining()

    async def _attempt(self, ask: _Ask[T], attempt: int) -> Answered[T] | _Fault:
        """Send once, holding a slot, and tell endpoint and limiter how it went."""
        endpoint, route, body, call = ask
        wire = self._wire(route)
        sent_at = self._clock()
        try:
            reply = await wire.send(route, body, call.timeout_s)
        except foreign() as error:
            return self._broken(ask, from_exception(error, ask.place, call.timeout_s), sent_at)
        latency_s = self._clock() - sent_at
        hold_s = asked_hold_s(reply.headers)
        if hold_s:
            endpoint.limiter.hold(hold_s)
        if not 200 <= reply.status < 300:
            return self._refused(ask, reply, sent_at)
        try:
            value = call.decode(reply.body)
        except ModelError as error:
            endpoint.answered()
            error.args = (f"{ask.place}: {error}",)
            return self._fault(ask, error, reply, sent_at)
        except (ValueError, msgspec.MsgspecError) as error:
            return self._fault(ask, from_garbage(reply.status, reply.body, error, ask.place), reply, sent_at)
        endpoint.succeeded()
        endpoint.limiter.succeeded(call.rank, latency_s, call.tokens(value) if call.tokens else 0)
        return Answered(value, latency_s, attempt)

    def _broken(self, ask: _Ask[T], error: ModelError, sent_at: float) -> _Fault:
        """No answer came."""
        if isinstance(error, RequestTimeout):
            ask.endpoint.limiter.overloaded(sent_at)
        elif isinstance(error, ConnectionFailed):
            ask.endpoint.failed(self._clock())
        return _Fault(error, error.retryable and error.retry_advised)

    def _refused(self, ask: _Ask[T], reply: Reply, sent_at: float) -> _Fault:
        """An answer came, and it is an error."""
        if reply.status >= 500:
            ask.endpoint.failed(self._clock())
        else:
            ask.endpoint.answered()
        error = ask.call.explain(reply.status, reply.body)
        if error is None:
            error = from_status(reply.status, reply.body, ask.place)
        else:
            error.args = (f"{ask.place} answered {reply.status}: {error}",)
        error.status = reply.status
        return self._fault(ask, error, reply, sent_at)

    def _fault(self, ask: _Ask[T], error: ModelError, reply: Reply, sent_at: float) -> _Fault:
        """Add to an error what the reply's headers say about trying again."""
        limiter = ask.endpoint.limiter
        if isinstance(error, RateLimited) or error.status in _OVERLOADED:
            limiter.overloaded(sent_at)
        error.args = (ask.endpoint.redact(str(error)),)
        if error.retry_after_s is None:
            error.retry_after_s = asked_wait_s(reply.headers)
        word = asked_retry(reply.headers)
        again = word if word is not None else error.retryable and error.retry_advised
        wait_s = error.retry_after_s
        if not again or not wait_s:
            return _Fault(error, again)
        if wait_s > LONGEST_HOLD_S:
            error.retry_advised = False
            error.args = (
                f"{error}; it asks to wait {wait_s:.0f} s, more than the {LONGEST_HOLD_S:.0f} s we do",
            )
            return _Fault(error, again=False)
        if error.status in _OVERLOADED:
            limiter.hold(wait_s)  # the host as a whole is away until then (RFC 9110 §15.6.4)
        return _Fault(error, again)

    def _wait_s(self, error: ModelError, attempt: int) -> float:
        """Our own backoff, or what the provider asked for if that is longer; never less than asked."""
        own_s = BACKOFF_S[attempt - 1] * self._rng.uniform(0.5, 1.0)
        asked_s = error.retry_after_s or 0.0
        return max(own_s, asked_s + self._rng.uniform(0.0, min(1.0, asked_s / 10)))

    def _wire(self, route: Route) -> Wire | ProxiedWire:
        """What sends a request there, opened when it is first needed."""
        if route.proxy is not None:
            return self._proxied or self._open_proxied()
        return self._straight or self._open_straight()

    def _open_straight(self) -> Wire:
        raise_open_file_limit()
        self._straight = Wire()
        return self._straight

    def _open_proxied(self) -> ProxiedWire:
        from coeval.models.proxied import ProxiedWire

        raise_open_file_limit()
        self._proxied = ProxiedWire()
        return self._proxied


def draining() -> Draining:
    return Draining("the run is being interrupted; nothing new is sent")
