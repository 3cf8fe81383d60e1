"""Which request is sent next, and when: one `Limiter` per endpoint (base URL and key).

All models and phases share it. How many requests may be in flight adapts to the host (`Window`) and is
never guessed from the model's name.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import chain, count
from typing import NamedTuple, Self

from coeval.core.errors import CoevalError
from coeval.core.model import ModelSpec
from coeval.models.pacing.throttle import Turn
from coeval.models.pacing.window import Window

# --- Gate: when the next request of an endpoint may be sent, however few are in flight

# Seconds between two requests to a host that refuses everything.
LONGEST_GAP_S = 1.0
# The least gap after a refusal: about one round trip to a host nearby.
_SHORTEST_GAP_S = 0.01
# Half the shortest gap: below it, the event loop's own delays are as large.
_NO_GAP_S = 0.005


class Pace:
    """A rate of ``per_minute`` units, with bursts of ``burst_s`` seconds' worth. A charge delays later
    requests, even if it is made after the fact; a negative one is a refund. This is the generic cell rate
    algorithm: its only state is the time at which everything charged is paid for."""

    def __init__(self, per_minute: float, burst_s: float) -> None:
        self._seconds_each = 60.0 / per_minute
        self._burst_s = burst_s
        self._paid_at = 0.0

    def charge(self, now: float, units: float) -> None:
        self._paid_at = max(self._paid_at, now) + units * self._seconds_each

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next request may be sent; zero or less: now."""
        return self._paid_at - self._burst_s - now


class Spacing:
    """The gap between requests to a host that refuses them. After a refusal, nothing is sent for twice the
    time that the refusal took; each further refusal doubles the gap, each request sent without one halves it.
    A host that refuses everything gets about one request a second, and one that recovers has its full load
    two seconds later."""

    def __init__(self) -> None:
        self._gap_s = self._sent_from = 0.0
        self._refused = False

    @property
    def is_open(self) -> bool:
        return self._gap_s == 0.0

    def record_refusal(self, sent_at: float, now: float) -> None:
        self._refused = True
        self._gap_s = min(LONGEST_GAP_S, max(2 * self._gap_s, 2 * (now - sent_at), _SHORTEST_GAP_S))
        self._sent_from = now + self._gap_s

    def record_send(self, now: float) -> None:
        if not self._refused:
            self._gap_s = self._gap_s / 2 if self._gap_s > _NO_GAP_S else 0.0
        self._refused = False
        self._sent_from = now + self._gap_s

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next request may be sent; zero or less: now."""
        return self._sent_from - now

    def reset(self) -> None:
        self._gap_s = 0.0


# The mean over about the last 16 answers.
_SMOOTHING = 1 / 16
_NEVER = float("-inf")


class Gate:
    """Holds requests back: by rates, gaps after refusals, times that the host named, and the turn among
    processes. All times are seconds of one clock, except those of ``turn``, which has its own; None: no
    throttle."""

    def __init__(self, turn: Turn | None = None) -> None:
        self._turn = turn
        self.spacing = Spacing()
        self._requests: Pace | None = None
        self._tokens: Pace | None = None
        self.counts_tokens = False
        """Whether `charge_answer` and `refund_unless_answered` must be called."""
        self._mean_tokens = self._charged_ahead = 0.0
        self._settled = False
        self._held_until = self._look_until = _NEVER
        self._is_paced = turn is not None
        self.may_block = self._is_paced
        """Whether `wait_s` must be called: something may hold a request back."""

    def set_rates(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests = self._tokens = None
        if requests_per_minute is not None:
            # One second's worth may go at once: a fast pace then needs one timer a second's worth.
            self._requests = Pace(requests_per_minute, max(0.0, 1.0 - 60.0 / requests_per_minute))
        if tokens_per_minute is not None:
            self._tokens = Pace(tokens_per_minute, 6.0)
        self.counts_tokens = self._tokens is not None
        self._is_paced = any(pace is not None for pace in (self._requests, self._tokens, self._turn))
        self.may_block = self.may_block or self._is_paced

    def hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)
        self.may_block = True

    def recheck_until(self, until: float) -> None:
        self._look_until = max(self._look_until, until)
        self.may_block = True

    def record_refusal(self, sent_at: float, now: float) -> None:
        self.spacing.record_refusal(sent_at, now)
        self.may_block = True

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next request may be sent; clear `may_block` if nothing can block."""
        wait_s = self._held_until - now
        if not self.spacing.is_open:
            wait_s = max(wait_s, self.spacing.wait_s(now))
        if self._requests is not None:
            wait_s = max(wait_s, self._requests.wait_s(now))
        if self._tokens is not None:
            wait_s = max(wait_s, self._tokens.wait_s(now))
        if self._turn is not None and wait_s <= 0:
            wait_s = self._turn.wait_s()
        if wait_s <= 0:
            self.may_block = self._is_paced or not self.spacing.is_open or self._look_until > now
        return wait_s

    def charge_request(self, now: float) -> None:
        if not self.spacing.is_open:
            self.spacing.record_send(now)
        if self._requests is not None:
            self._requests.charge(now, 1)
        if self._tokens is not None:
            self._tokens.charge(now, self._mean_tokens)
            self._charged_ahead += self._mean_tokens
        if self._turn is not None:
            self._turn.use_send_time()

    def charge_answer(self, tokens: int, in_flight: int, now: float) -> None:
        """Charge an answer's tokens, before `refund_unless_answered`. ``in_flight`` includes its request."""
        if self._tokens is not None:
            self._replace_charge(self._tokens, tokens, in_flight, now)
            self._settled = True
            self._mean_tokens += (tokens - self._mean_tokens) * (_SMOOTHING if self._mean_tokens else 1.0)

    def refund_unless_answered(self, in_flight: int, now: float) -> None:
        """Refund what a request that ended was charged ahead, unless an answer was charged instead."""
        if self._tokens is not None and not self._settled:
            self._replace_charge(self._tokens, 0, in_flight, now)
        self._settled = False

    def _replace_charge(self, pace: Pace, tokens: int, in_flight: int, now: float) -> None:
        """Replace a request's share of what was charged ahead by the tokens it took."""
        share = self._charged_ahead / in_flight
        self._charged_ahead -= share
        pace.charge(now, tokens - share)


# --- Limits

# Longer waits, such as those of a daily quota, end the request instead.
LONGEST_HOLD_S = 600.0
# Four of the longest pauses between attempts: refusals further apart have different causes.
_ONE_TROUBLE_S = 120.0
# Below the event loop's resolution timers only burn CPU.
_SHORTEST_TIMER_S = 0.001


# Most hosts refuse earlier; above it, one process is bound by its CPU (docs/decisions/0003).
DEFAULT_CONCURRENCY = 256
# Doubling reaches 256 in four round trips, and a small host does not get hundreds at once.
DEFAULT_START = 16


class EndpointLimits(NamedTuple):
    """The most requests in flight, how many to start with, and rates; None if the user sets none."""

    max_concurrency: int | None = None
    start_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    @classmethod
    def combine(cls, specs: Iterable[ModelSpec]) -> Self:
        each = (cls(*(getattr(spec, name) for name in cls._fields)) for spec in specs)
        return reduce(cls.merge, each, cls())

    def merge(self, other: Self) -> Self:
        """Combine the limits of several models: the largest numbers in flight and the smallest rates."""
        pairs = zip((max, max, min, min), self, other, strict=True)
        return type(self)._make(
            choose((limit for limit in (mine, theirs) if limit is not None), default=None)
            for choose, mine, theirs in pairs
        )

    @property
    def in_flight(self) -> tuple[int, int]:
        """Return the most requests in flight, and the number to start with."""
        return self.max_concurrency or DEFAULT_CONCURRENCY, self.start_concurrency or DEFAULT_START


NO_LIMITS = EndpointLimits()


class Lane:
    """One model's requests among those of an endpoint: the host may hold back or refuse these alone."""

    def __init__(self) -> None:
        self.held_until = self._refused_at = self._refused_since = float("-inf")

    def record_refusal(self, now: float) -> float:
        """Record a 429 without a retry time; return for how many seconds nothing else has come."""
        if now - self._refused_at > _ONE_TROUBLE_S:
            self._refused_since = now
        self._refused_at = now
        return now - self._refused_since

    def record_answer(self) -> None:
        self._refused_at = float("-inf")


_Refusal = Callable[[], CoevalError | None]
# (−priority, 0 for a retry and 1 for new work, order of arrival, future to resolve, refusal, lane, owner).
_Waiter = tuple[int, int, int, "asyncio.Future[None]", _Refusal, Lane, object]


def refuse_nothing() -> None:
    """Permit every request: return None where a `_Refusal` would return an error."""


class Limiter:
    """Grants the slots of one endpoint to its requests, by priority. ``start_concurrency=max_concurrency``
    gives full concurrency at once. A request is charged the mean number of tokens when it is sent, and
    corrected by its answer. ``turn`` is its turn among all processes, if there is a throttle; ``clock`` is
    monotonic, in seconds."""

    def __init__(
        self,
        limits: EndpointLimits = NO_LIMITS,
        *,
        turn: Turn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window = Window(*limits.in_flight)
        self.gate = Gate(turn)
        self._clock = clock
        self._host = Lane()  # of requests without a lane of their own
        self.in_flight = self.waiting = 0
        self._queue: list[_Waiter] = []
        self._parked: dict[Lane, list[_Waiter]] = {}
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.limits = limits
        self.gate.set_rates(limits.requests_per_minute, limits.tokens_per_minute)

    def set_limits(self, limits: EndpointLimits) -> None:
        """Set limits if they are others, and keep what the host has taught."""
        if limits == self.limits:
            return
        self.limits = limits
        self._window.set_limits(*limits.in_flight)
        self.gate.set_rates(limits.requests_per_minute, limits.tokens_per_minute)

    @property
    def max_in_flight(self) -> int:
        return int(self._window.size)

    async def acquire(
        self,
        priority: int,
        *,
        is_retry: bool = False,
        refusal: _Refusal = refuse_nothing,
        lane: Lane | None = None,
        owner: object = None,
    ) -> None:
        """Take a slot, which `release` gives back: higher priorities first, then first come first served. A
        retry goes before new work of its priority. Does not suspend if a slot is free and nothing holds back.
        Raises the error given to `reject_waiting`, or what ``refusal`` returns by then; such a request takes
        no slot and is not charged. ``owner`` is whom `reject_waiting` may name."""
        if (
            not self.waiting
            and self.in_flight + 1 <= self._window.size
            and (not self.gate.may_block or self._charge_if_unblocked(lane or self._host, refusal))
        ):
            self.in_flight += 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        order = (-priority, 0 if is_retry else 1, next(self._order))
        heapq.heappush(self._queue, (*order, granted, refusal, lane or self._host, owner))
        self.waiting += 1
        self._grant_slots()
        if granted.done():
            granted.result()
            return
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self.waiting -= 1  # its entry in the queue is skipped when it comes up
                if not self.waiting:
                    self._queue.clear()
                    self._parked.clear()
            elif granted.exception() is None:
                self.release()  # granted and cancelled in the same turn of the loop
            raise

    def release(self) -> None:
        if self.gate.counts_tokens:
            self.gate.refund_unless_answered(self.in_flight, self._clock())
        self.in_flight -= 1
        if self.waiting:
            self._grant_slots()

    def record_answer(self, priority: int, latency_s: float, tokens: int = 0) -> None:
        """Record an answer, before its slot is released."""
        now = self._clock()
        self._window.record_answer_and_resize(priority, latency_s, self.in_flight, now)
        if self.gate.counts_tokens:
            self.gate.charge_answer(tokens, self.in_flight, now)

    def record_refusal(self, sent_at: float) -> None:
        """Record that the host refused a request for overload."""
        now = self._clock()
        if self._window.record_refusal_and_check_spacing(
            sent_at, now, is_spacing=not self.gate.spacing.is_open
        ):
            self.gate.record_refusal(sent_at, now)

    def record_timeout(self, sent_at: float, *, alone: bool) -> None:
        """Record a request that was not answered in time; ``alone``: nor was any other, lately."""
        self._window.record_timeout_and_shrink(sent_at, self._clock(), alone=alone)

    def forget_refusals(self) -> None:
        """Forget refusals: the host was down for another reason than load."""
        self._window.grow_to_start()
        self.gate.spacing.reset()

    def hold(self, seconds: float, lane: Lane | None = None) -> None:
        """Grant nothing (in a lane) for the time that the host named, at most `LONGEST_HOLD_S`."""
        until = self._clock() + min(seconds, LONGEST_HOLD_S)
        if lane is None:
            self.gate.hold(until)
        else:
            lane.held_until = max(lane.held_until, until)
            self.gate.recheck_until(until)

    def reject_waiting(self, owner: object, error: CoevalError) -> None:
        """Raise ``error`` in the waiting requests of an owner, or in all (None). Later ones may wait."""
        for *_, granted, _, _, waiter_owner in chain(self._queue, *self._parked.values()):
            if not granted.done() and (owner is None or waiter_owner is owner):
                granted.set_exception(error)  # its entry in the queue is skipped when it comes up
                self.waiting -= 1
        if not self.waiting:
            self._queue.clear()
            self._parked.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _grant_slots(self) -> None:
        """Grant free slots to waiting requests, as far as the window and the gate allow."""
        while self._queue and self.in_flight + 1 <= self._window.size:
            *_, granted, refusal, lane, _ = self._queue[0]
            if granted.done():  # cancelled, or rejected
                heapq.heappop(self._queue)
                continue
            if (error := refusal()) is not None:
                heapq.heappop(self._queue)
                self.waiting -= 1
                granted.set_exception(error)
                continue
            if self.gate.may_block:
                now = self._clock()
                if lane.held_until > now:
                    self._parked.setdefault(lane, []).append(heapq.heappop(self._queue))
                    self._schedule_grant(lane.held_until - now)
                    continue
                wait_s = self.gate.wait_s(now)
                if wait_s > 0:
                    self._schedule_grant(wait_s)
                    return
                self.gate.charge_request(now)
            heapq.heappop(self._queue)
            self.waiting -= 1
            self.in_flight += 1
            granted.set_result(None)

    def _charge_if_unblocked(self, lane: Lane, refusal: _Refusal) -> bool:
        """Charge a request and return True if nothing holds it back; for when no other request waits."""
        now = self._clock()
        if lane.held_until > now or refusal() is not None or self.gate.wait_s(now) > 0:
            return False
        self.gate.charge_request(now)
        return True

    def _schedule_grant(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(wait_s, _SHORTEST_TIMER_S)
        if self._timer is not None:
            if self._timer_at <= at:
                return  # it fires sooner and looks again
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self._grant_on_timer)

    def _grant_on_timer(self) -> None:
        """Return requests of lanes that are no longer held to their place in the queue, and grant slots."""
        self._timer = None
        now = self._clock()
        for lane in [lane for lane in self._parked if lane.held_until <= now]:
            for waiter in self._parked.pop(lane):
                heapq.heappush(self._queue, waiter)
        if self._parked:
            self._schedule_grant(min(lane.held_until for lane in self._parked) - now)
        self._grant_slots()
