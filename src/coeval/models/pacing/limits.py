"""Which request is sent next, and when: one `Limiter` per endpoint (base URL and key).

Every model and stage that asks there shares it. How many may be in flight adapts to the host
(`Window`); it is never guessed from the model's name.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterable
from itertools import chain, count
from typing import NamedTuple, Self

from coeval.core.errors import CoevalError
from coeval.core.model import ModelSpec
from coeval.models.pacing.throttle import Turn
from coeval.models.pacing.window import Window

# --- Gate
#
# When the next request of an endpoint may be sent, however few are in flight.

# --- Pace, and gaps after refusals

# Seconds between two requests to a host that refuses everything.
LONGEST_GAP_S = 1.0
# What the first refusal costs at least: the order of one round trip to a host nearby.
_SHORTEST_GAP_S = 0.01
# Half the shortest gap: below it the event loop's own delays are as large.
_NO_GAP_S = 0.005


class Pace:
    """At most ``per_minute`` units a minute, with bursts of ``burst_s`` seconds' worth.

    What is charged is waited off, also after it was spent; a charge below zero is a refund. This is
    the generic cell rate algorithm: one number, the time at which everything charged is paid for.
    """

    def __init__(self, per_minute: float, burst_s: float) -> None:
        self._seconds_each = 60.0 / per_minute
        self._burst_s = burst_s
        self._paid_at = 0.0

    def charge(self, now: float, units: float) -> None:
        self._paid_at = max(self._paid_at, now) + units * self._seconds_each

    def wait_s(self, now: float) -> float:
        """Seconds until the next may go; zero or less: now."""
        return self._paid_at - self._burst_s - now


class Spacing:
    """How far apart requests are sent to a host that refuses them.

    After a refusal nothing is sent for twice the time that the refusal took; each further refusal
    doubles the gap, each request sent without one halves it. So a host that refuses everything is
    asked about once a second, and one that takes requests again has its full load two seconds later.
    """

    def __init__(self) -> None:
        self._gap_s = self._sent_from = 0.0
        self._refused = False

    @property
    def open(self) -> bool:
        """Nothing is kept apart."""
        return self._gap_s == 0.0

    def refused(self, sent_at: float, now: float) -> None:
        self._refused = True
        self._gap_s = min(LONGEST_GAP_S, max(2 * self._gap_s, 2 * (now - sent_at), _SHORTEST_GAP_S))
        self._sent_from = now + self._gap_s

    def sent(self, now: float) -> None:
        if not self._refused:
            self._gap_s = self._gap_s / 2 if self._gap_s > _NO_GAP_S else 0.0
        self._refused = False
        self._sent_from = now + self._gap_s

    def wait_s(self, now: float) -> float:
        """Seconds until the next may go; zero or less: now."""
        return self._sent_from - now

    def forget(self) -> None:
        """Send as if nothing had been refused."""
        self._gap_s = 0.0


# The mean over about the last 16 answers.
_SMOOTHING = 1 / 16
_NEVER = float("-inf")


class Gate:
    """What keeps requests back: rates, refusals, times that the host named, and the turn among all processes.

    All times are seconds of one clock, but those of ``turn``, which has its own; None: no turn is waited for.
    """

    def __init__(self, turn: Turn | None = None) -> None:
        self._turn = turn
        self._spacing = Spacing()
        self._requests: Pace | None = None
        self._tokens: Pace | None = None
        self.counts_tokens = False
        """Whether it is to be told of answers (`answered`, `ended`)."""
        self._mean_tokens = self._charged_ahead = 0.0
        self._settled = False
        self._held_until = self._look_until = _NEVER
        self._is_paced = turn is not None
        self.shut = self._is_paced
        """Whether something may keep a request; where nothing can, nothing has to be asked."""

    def set_rates(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests = self._tokens = None
        if requests_per_minute is not None:
            # One second's worth may go at once: a fast pace then needs one timer a second's worth.
            self._requests = Pace(requests_per_minute, max(0.0, 1.0 - 60.0 / requests_per_minute))
        if tokens_per_minute is not None:
            self._tokens = Pace(tokens_per_minute, 6.0)
        self.counts_tokens = self._tokens is not None
        self._is_paced = any(each is not None for each in (self._requests, self._tokens, self._turn))
        self.shut = self.shut or self._is_paced

    def hold(self, until: float) -> None:
        """Let nothing pass until then."""
        self._held_until = max(self._held_until, until)
        self.shut = True

    def look_until(self, until: float) -> None:
        """Be asked of each request until then, as some of them are held."""
        self._look_until = max(self._look_until, until)
        self.shut = True

    @property
    def spaced(self) -> bool:
        """Requests are kept apart, as some were refused."""
        return not self._spacing.open

    def refused(self, sent_at: float, now: float) -> None:
        self._spacing.refused(sent_at, now)
        self.shut = True

    def forget_refusals(self) -> None:
        self._spacing.forget()

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may pass; it opens when nothing can keep one any more."""
        wait_s = self._held_until - now
        if not self._spacing.open:
            wait_s = max(wait_s, self._spacing.wait_s(now))
        if self._requests is not None:
            wait_s = max(wait_s, self._requests.wait_s(now))
        if self._tokens is not None:
            wait_s = max(wait_s, self._tokens.wait_s(now))
        if self._turn is not None and wait_s <= 0:
            wait_s = self._turn.wait_s()
        if wait_s <= 0:
            self.shut = self._is_paced or not self._spacing.open or self._look_until > now
        return wait_s

    def passed(self, now: float) -> None:
        """One request goes through."""
        if not self._spacing.open:
            self._spacing.sent(now)
        if self._requests is not None:
            self._requests.charge(now, 1)
        if self._tokens is not None:
            self._tokens.charge(now, self._mean_tokens)
            self._charged_ahead += self._mean_tokens
        if self._turn is not None:
            self._turn.take()

    def answered(self, tokens: int, in_flight: int, now: float) -> None:
        """A request took so many tokens; told before it has `ended`. ``in_flight`` counts it."""
        if self._tokens is not None:
            self._settle(self._tokens, tokens, in_flight, now)
            self._settled = True
            self._mean_tokens += (tokens - self._mean_tokens) * (_SMOOTHING if self._mean_tokens else 1.0)

    def ended(self, in_flight: int, now: float) -> None:
        """A request is over, however it went."""
        if self._tokens is not None and not self._settled:
            self._settle(self._tokens, 0, in_flight, now)
        self._settled = False

    def _settle(self, pace: Pace, tokens: int, in_flight: int, now: float) -> None:
        """Charge what one request took in place of its share of what was charged ahead."""
        share = self._charged_ahead / in_flight
        self._charged_ahead -= share
        pace.charge(now, tokens - share)


# --- Limits

# A host that names hours (a daily quota) is not waited for.
LONGEST_HOLD_S = 600.0
# Four of the longest pauses between two attempts: refusals that lie further apart are not of one trouble.
_ONE_TROUBLE_S = 120.0
# Below the event loop's resolution timers only burn CPU.
_SHORTEST_TIMER_S = 0.001


# Hosts refuse before; from here on one process is bound by its CPU (docs/decisions/0003).
DEFAULT_CONCURRENCY = 256
# Doubling reaches 256 in four round trips; a small host is not met with hundreds at once.
DEFAULT_START = 16


class EndpointLimits(NamedTuple):
    """Requests in flight that are never exceeded, requests in flight to begin with, and the paces kept
    besides; None where the user sets none. Of several models, the largest numbers in flight and the smallest
    rates."""

    max_concurrency: int | None = None
    start_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    @classmethod
    def of(cls, specs: Iterable[ModelSpec]) -> Self:
        limits = cls()
        for spec in specs:
            limits = limits.joined(cls(*(getattr(spec, name) for name in cls._fields)))
        return limits

    def joined(self, other: Self) -> Self:
        """Those of more models."""
        pairs = zip((max, max, min, min), self, other, strict=True)
        return type(self)._make(
            choose((one for one in (mine, theirs) if one is not None), default=None)
            for choose, mine, theirs in pairs
        )

    @property
    def in_flight(self) -> tuple[int, int]:
        """The most requests in flight, and those to begin with."""
        return self.max_concurrency or DEFAULT_CONCURRENCY, self.start_concurrency or DEFAULT_START


NO_LIMITS = EndpointLimits()


class Lane:
    """The requests of one model among those of an endpoint: a host may hold them alone, or refuse them."""

    def __init__(self) -> None:
        self.held_until = self._refused_at = self._refused_since = float("-inf")

    def refused(self, now: float) -> float:
        """Note a 429 that names no time; return for how many seconds there has been nothing else."""
        if now - self._refused_at > _ONE_TROUBLE_S:
            self._refused_since = now
        self._refused_at = now
        return now - self._refused_since

    def answered(self) -> None:
        self._refused_at = float("-inf")


_Refusal = Callable[[], CoevalError | None]
# (−rank, 0 for a retry and 1 for new work, order of arrival, what to wake, why it need not be, its lane, its
# party).
_Waiter = tuple[int, int, int, "asyncio.Future[None]", _Refusal, Lane, object]


def unrefused() -> None:
    """There is nothing against a request, whenever its turn comes."""


class Limiter:
    """Slots of one endpoint.

    Parameters
    ----------
    limits:
        ``start_concurrency=max_concurrency`` gives full concurrency at once; tokens are charged by the mean
        when a request goes, and set right by what its answer says it took.
    turn:
        its turn among the requests of all processes, where there is a throttle.
    clock:
        seconds, monotonic.
    """

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
        self._host = Lane()  # of requests that name no lane of their own
        self.in_flight = self.waiting = 0
        self._queue: list[_Waiter] = []
        self._parked: dict[Lane, list[_Waiter]] = {}
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.limit_to(limits)

    def limit_to(self, limits: EndpointLimits) -> None:
        """Keep to these limits from now on, and to all that the host has taught."""
        self._window.limit_to(*limits.in_flight)
        self.gate.set_rates(limits.requests_per_minute, limits.tokens_per_minute)

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return int(self._window.size)

    async def acquire(
        self,
        rank: int,
        *,
        again: bool = False,
        refusal: _Refusal = unrefused,
        lane: Lane | None = None,
        party: object = None,
    ) -> None:
        """Take a slot, which `release` gives back: higher ranks first, then first come first served.

        A retry (``again``) goes ahead of new work of its rank. Does not suspend when a slot is
        free and nothing has to be waited for. Raises what `turn_away` was given, or what ``refusal``
        gives by then: who is not to be sent any more takes no slot and no part of the pace. ``party`` is
        whom `turn_away` may name.
        """
        if (
            not self.waiting
            and self.in_flight + 1 <= self._window.size
            and (not self.gate.shut or self._passes(lane or self._host, refusal))
        ):
            self.in_flight += 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (-rank, 0 if again else 1, next(self._order))
        heapq.heappush(self._queue, (*place, granted, refusal, lane or self._host, party))
        self.waiting += 1
        self._grant()
        if granted.done():
            granted.result()
            return
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self.waiting -= 1  # its place in the queue is skipped when it comes up
                if not self.waiting:
                    self._queue.clear()
                    self._parked.clear()
            elif granted.exception() is None:
                self.release()  # granted and cancelled in the same turn of the loop
            raise

    def release(self) -> None:
        if self.gate.counts_tokens:
            self.gate.ended(self.in_flight, self._clock())
        self.in_flight -= 1
        if self.waiting:
            self._grant()

    def succeeded(self, rank: int, latency_s: float, tokens: int = 0) -> None:
        """An answer came; called before its slot is released."""
        now = self._clock()
        self._window.answered(rank, latency_s, self.in_flight, now)
        if self.gate.counts_tokens:
            self.gate.answered(tokens, self.in_flight, now)

    def refused(self, sent_at: float) -> None:
        """The host would not take a request sent at ``sent_at``, because it has too many."""
        now = self._clock()
        if self._window.refused(sent_at, now, again=self.gate.spaced):
            self.gate.refused(sent_at, now)

    def timed_out(self, sent_at: float, *, alone: bool) -> None:
        """A request sent at ``sent_at`` was not answered in time; ``alone``: nor was any other, lately."""
        self._window.timed_out(sent_at, self._clock(), alone=alone)

    def reopen(self) -> None:
        """What was refused says nothing more: the host is down for another reason than load."""
        self._window.reopen()
        self.gate.forget_refusals()

    def hold(self, seconds: float, lane: Lane | None = None) -> None:
        """Grant nothing (of a lane) for so long, at most ten minutes: the host named the time itself."""
        until = self._clock() + min(seconds, LONGEST_HOLD_S)
        if lane is None:
            self.gate.hold(until)
        else:
            lane.held_until = max(lane.held_until, until)
            self.gate.look_until(until)

    def turn_away(self, party: object, error: CoevalError) -> None:
        """Those of one party who wait now raise ``error``, or all; who comes later may wait again."""
        for *_, granted, _, _, whose in chain(self._queue, *self._parked.values()):
            if not granted.done() and (party is None or whose is party):
                granted.set_exception(error)  # its place in the queue is skipped when it comes up
                self.waiting -= 1
        if not self.waiting:
            self._queue.clear()
            self._parked.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _grant(self) -> None:
        """Hand free slots to those who wait, as far as the window and the gate allow."""
        while self._queue and self.in_flight + 1 <= self._window.size:
            *_, granted, refusal, lane, _ = self._queue[0]
            if granted.done():  # cancelled, or turned away
                heapq.heappop(self._queue)
                continue
            if (error := refusal()) is not None:
                heapq.heappop(self._queue)
                self.waiting -= 1
                granted.set_exception(error)
                continue
            if self.gate.shut:
                now = self._clock()
                if lane.held_until > now:
                    self._parked.setdefault(lane, []).append(heapq.heappop(self._queue))
                    self._look_again_in(lane.held_until - now)
                    continue
                wait_s = self.gate.wait_s(now)
                if wait_s > 0:
                    self._look_again_in(wait_s)
                    return
                self.gate.passed(now)
            heapq.heappop(self._queue)
            self.waiting -= 1
            self.in_flight += 1
            granted.set_result(None)

    def _passes(self, lane: Lane, refusal: _Refusal) -> bool:
        """Whether a request that nobody waits before goes through the gate at once."""
        now = self._clock()
        if lane.held_until > now or refusal() is not None or self.gate.wait_s(now) > 0:
            return False
        self.gate.passed(now)
        return True

    def _look_again_in(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(wait_s, _SHORTEST_TIMER_S)
        if self._timer is not None:
            if self._timer_at <= at:
                return  # it fires sooner and looks again
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        """Those whose lane is held no more take their old places in the queue."""
        self._timer = None
        now = self._clock()
        for lane in [lane for lane in self._parked if lane.held_until <= now]:
            for waiter in self._parked.pop(lane):
                heapq.heappush(self._queue, waiter)
        if self._parked:
            self._look_again_in(min(lane.held_until for lane in self._parked) - now)
        self._grant()
