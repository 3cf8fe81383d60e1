"""How many requests an endpoint is given at once, in which order, and how fast.

One `Limiter` per endpoint (base URL and key), shared by every model and stage that asks there.
Concurrency adapts to the host: it grows while answers keep their pace and halves when the host
says it is too much. It is never guessed from the model's name.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count

from coeval.core.errors import CoevalError

__all__ = ["Limiter", "Pace"]

LONGEST_HOLD_S = 600.0
_WARM_UP = 16
_SMOOTHING = 1 / 16
_DRIFT_ROUNDS = 64.0
_SLACK_S = 0.05
_SHORTEST_TIMER_S = 0.001


class Pace:
    """At most ``per_minute`` units a minute, with bursts of ``burst_s`` seconds' worth.

    What is charged is waited off, also after it was spent; a charge below zero is a refund. This is
    the generic cell rate algorithm: one number, the time at which everything charged is paid for.
    """

    __slots__ = ("_burst_s", "_paid_at", "_seconds_each")

    def __init__(self, per_minute: float, burst_s: float) -> None:
        self._seconds_each = 60.0 / per_minute
        self._burst_s = burst_s
        self._paid_at = 0.0

    def charge(self, now: float, units: float) -> None:
        self._paid_at = max(self._paid_at, now) + units * self._seconds_each

    def wait_s(self, now: float) -> float:
        """Seconds until the next may go; zero or less: now."""
        return self._paid_at - self._burst_s - now


class _Latency:
    """Whether answers of one rank still take about as long as they did with less in flight."""

    __slots__ = ("_base_s", "_seen", "_smoothed_s")

    def __init__(self) -> None:
        self._seen = 0
        self._smoothed_s = self._base_s = 0.0

    def holds_after(self, latency_s: float, limit: float) -> bool:
        """Take in one latency; True while the smoothed one is at most about twice the base.

        The base is the mean of the first answers. It follows a faster host at once and a slower
        one over dozens of round trips, so that longer answers do not end growth for good. The
        slack keeps the jitter of our own event loop out of the judgment of a very fast host.
        """
        self._seen += 1
        if self._seen <= _WARM_UP:
            self._smoothed_s += (latency_s - self._smoothed_s) / self._seen
            self._base_s = self._smoothed_s
            return True
        self._smoothed_s += (latency_s - self._smoothed_s) * _SMOOTHING
        change = self._smoothed_s - self._base_s
        self._base_s += change * (_SMOOTHING if change < 0 else 1 / (_DRIFT_ROUNDS * limit))
        return self._smoothed_s <= 2 * self._base_s + _SLACK_S


_Refusal = Callable[[], CoevalError | None]
_Waiter = tuple[int, int, int, "asyncio.Future[None]", _Refusal]
"""(−rank, 0 for a retry and 1 for new work, order of arrival, what to wake, why it need not be woken)."""


def unrefused() -> None:
    """There is nothing against a request, whenever its turn comes."""


class Limiter:
    """Slots of one endpoint.

    Parameters
    ----------
    ceiling:
        requests in flight that are never exceeded.
    start:
        requests in flight to begin with; ``start=ceiling`` gives full concurrency at once.
    requests_per_minute, tokens_per_minute:
        paces kept besides; tokens are charged by the mean when a request goes, and set right by
        what its answer says it took.
    clock:
        seconds, monotonic.
    """

    def __init__(
        self,
        ceiling: int = 256,
        *,
        start: int = 16,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ceiling < 1 or start < 1:
            raise ValueError(f"concurrency must be at least 1, not ceiling={ceiling}, start={start}")
        if any(rate is not None and rate <= 0 for rate in (requests_per_minute, tokens_per_minute)):
            raise ValueError("requests_per_minute and tokens_per_minute must be above 0")
        self._ceiling = float(ceiling)
        self._limit = float(min(start, ceiling))
        self._clock = clock
        self._requests = self._tokens = None
        if requests_per_minute is not None:
            # One second's worth may go at once: a fast pace then needs one timer a second's worth.
            self._requests = Pace(requests_per_minute, max(0.0, 1.0 - 60.0 / requests_per_minute))
        if tokens_per_minute is not None:
            self._tokens = Pace(tokens_per_minute, 6.0)
        self._mean_tokens = self._charged_ahead = 0.0
        self._settled = False
        self._held_until = 0.0
        self._gated = self._requests is not None or self._tokens is not None
        self._in_flight = self._waiting = 0
        self._queue: list[_Waiter] = []
        self._order = count()
        self._latency: dict[int, _Latency] = {}
        self._doubling = True
        self._cut_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed: CoevalError | None = None

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return int(self._limit)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def waiting(self) -> int:
        return self._waiting

    async def acquire(self, rank: int, *, again: bool = False, refusal: _Refusal = unrefused) -> None:
        """Take a slot, which `release` gives back: higher ranks first, then first come first served.

        A retry (``again``) goes ahead of new work of its rank. Does not suspend when a slot is
        free and nothing has to be waited for. Raises what `close` was given, or what ``refusal``
        gives by then: who is not to be sent any more takes no slot and no part of the pace.
        """
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if not self._waiting and self._in_flight + 1 <= self._limit and not self._gated:
            self._in_flight += 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (-rank, 0 if again else 1, next(self._order), granted, refusal))
        self._waiting += 1
        self._grant()
        if granted.done():
            granted.result()
            return
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._waiting -= 1  # its place in the queue is skipped when it comes up
                if not self._waiting:
                    self._queue.clear()
            elif granted.exception() is None:
                self.release()  # granted and cancelled in the same turn of the loop
            raise

    def release(self) -> None:
        if self._tokens is not None and not self._settled:
            self._settle(self._tokens, 0)
        self._settled = False
        self._in_flight -= 1
        if self._waiting:
            self._grant()

    def succeeded(self, rank: int, latency_s: float, tokens: int = 0) -> None:
        """An answer came; called before its slot is released.

        While nothing was ever too much, each answer adds one (doubling per round trip); after a
        cut, a round trip adds one. A limit that is not being used is not raised.
        """
        latency = self._latency.get(rank)
        if latency is None:
            latency = self._latency[rank] = _Latency()
        holds = latency.holds_after(latency_s, self._limit)
        if holds and self._limit < self._ceiling and self._in_flight * 2 >= self._limit:
            self._limit = min(self._ceiling, self._limit + (1.0 if self._doubling else 1.0 / self._limit))
        if self._tokens is not None:
            self._settle(self._tokens, tokens)
            self._settled = True
            self._mean_tokens += (tokens - self._mean_tokens) * (_SMOOTHING if self._mean_tokens else 1.0)

    def overloaded(self, sent_at: float) -> None:
        """The host said a request sent at ``sent_at`` was too much: halve, once per round trip.

        News of requests sent before the last cut are about the concurrency that was cut then.
        """
        if sent_at <= self._cut_at:
            return
        self._doubling = False
        self._cut_at = self._clock()
        self._limit = max(1.0, self._limit / 2)

    def hold(self, seconds: float) -> None:
        """Grant nothing for so long (at most ten minutes): the host named the time itself."""
        self._held_until = max(self._held_until, self._clock() + min(seconds, LONGEST_HOLD_S))
        self._gated = True

    def close(self, error: CoevalError) -> None:
        """From now on waiters and later acquires raise ``error``; slots taken may be released."""
        self._closed = error
        queue, self._queue, self._waiting = self._queue, [], 0
        for *_, granted, _ in queue:
            if not granted.done():
                granted.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _grant(self) -> None:
        """Hand free slots to those who wait, as far as limit and pace allow."""
        while self._queue and self._in_flight + 1 <= self._limit:
            *_, granted, refusal = self._queue[0]
            if granted.done():  # cancelled
                heapq.heappop(self._queue)
                continue
            if (error := refusal()) is not None:
                heapq.heappop(self._queue)
                self._waiting -= 1
                granted.set_exception(error)
                continue
            if self._gated:
                now = self._clock()
                wait_s = self._gate_s(now)
                if wait_s > 0:
                    self._grant_later(wait_s)
                    return
                if self._requests is not None:
                    self._requests.charge(now, 1)
                if self._tokens is not None:
                    self._tokens.charge(now, self._mean_tokens)
                    self._charged_ahead += self._mean_tokens
            heapq.heappop(self._queue)
            self._waiting -= 1
            self._in_flight += 1
            granted.set_result(None)

    def _gate_s(self, now: float) -> float:
        """Seconds until pace and host allow the next request; opens the gate when nothing keeps it."""
        wait_s = self._held_until - now
        if self._requests is not None:
            wait_s = max(wait_s, self._requests.wait_s(now))
        if self._tokens is not None:
            wait_s = max(wait_s, self._tokens.wait_s(now))
        if wait_s <= 0:
            self._gated = self._requests is not None or self._tokens is not None
        return wait_s

    def _settle(self, pace: Pace, tokens: int) -> None:
        """Charge what one request took in place of its share of what was charged ahead."""
        share = self._charged_ahead / self._in_flight
        self._charged_ahead -= share
        pace.charge(self._clock(), tokens - share)

    def _grant_later(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(wait_s, _SHORTEST_TIMER_S)
        if self._timer is not None:
            if self._timer_at <= at:
                return  # it fires sooner and looks again
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._grant()
