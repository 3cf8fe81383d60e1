"""The one way to a host: retries, limits, outages, over connections that several sessions may share.

Every request of every dialect passes through `Http.post` or `Http.get`. A dialect says how to
read an answer (`Call`); this module decides when a request is sent, how often, and what its
failure is called.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

from yarl import URL

from coeval.core.errors import (
    ConnectionFailed,
    Draining,
    ModelError,
    RateLimited,
    RequestTimeout,
    Undecodable,
)
from coeval.core.text import pluralize
from coeval.models.address import EndpointKey, ModelAddress
from coeval.models.pacing.limits import LONGEST_HOLD_S, EndpointLimits, Limiter
from coeval.models.pacing.throttle import Throttle, throttle_of
from coeval.models.transport.call import (
    Answered,
    Call,
    Fault,
    Tries,
    requested_hold_s,
    requested_retry,
    requested_wait_s,
)
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint, reach, reported_of
from coeval.models.transport.faults import (
    foreign,
    from_exception,
    from_garbage,
    from_status,
    never_sent,
    perhaps_billed,
    place,
)
from coeval.models.transport.network import raise_open_file_limit
from coeval.models.transport.pool import RequestRoute, Wire

if TYPE_CHECKING:
    from coeval.models.transport.proxied import ProxiedWire


class Sender(Protocol):
    """What sends single requests, as `models.transport.pool.Wire` does."""

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply: ...
    async def aclose(self) -> None: ...


class _Known(NamedTuple):
    endpoint: Endpoint
    limits: EndpointLimits


class SharedHosts:
    """Connections, and an `Endpoint` for each base URL and who asks there.

    Sessions that are given one `SharedHosts` share what an endpoint knows of its host: requests in flight,
    rates, holds, outages. It outlives each of them, and is closed by whoever made it (`aclose`, or as an
    async context manager). ``wire`` sends what goes straight to its host (``straight``); None: a `Wire`.
    ``throttle`` is the pace that they keep with other processes; None: there is none.
    """

    def __init__(self, wire: Sender | None = None, throttle: Throttle | None = None) -> None:
        raise_open_file_limit()
        self._throttle = throttle
        self.straight = wire or Wire()
        self._proxied: ProxiedWire | None = None
        self._known: dict[EndpointKey, _Known] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def endpoints(self, addresses: Iterable[ModelAddress]) -> dict[EndpointKey, Endpoint]:
        """The endpoints of these models: the one that is known, with their limits besides, or a new one.

        Limits are the largest ``max_concurrency`` of all the models that were ever asked there (256 where
        none sets it), and the smallest rates. Each endpoint knows every credential that its host was sent: a
        host may repeat what others sent it, too.
        """
        sharing: defaultdict[EndpointKey, list[ModelAddress]] = defaultdict(list)
        for address in addresses:
            sharing[address.key].append(address)
        for key, theirs in sharing.items():
            self._join(key, theirs)
        self._exchange_secrets(address for theirs in sharing.values() for address in theirs)
        return {key: self._known[key].endpoint for key in sharing}

    def _join(self, key: EndpointKey, addresses: list[ModelAddress]) -> None:
        limits = EndpointLimits.of(address.spec for address in addresses)
        if (known := self._known.get(key)) is not None:
            if (joined := known.limits.joined(limits)) != known.limits:
                known.endpoint.limiter.limit_to(joined)
                self._known[key] = known._replace(limits=joined)
        else:
            first = addresses[0]
            limiter = self.limiter(limits, key[0])
            endpoint = Endpoint(key[0], first.signer, limiter, first.secrets, first.host.headers)
            self._known[key] = _Known(endpoint, limits)
        if waits := [a.spec.wait_s for a in addresses if a.spec.wait_s is not None]:
            self._known[key].endpoint.wait_at_most(max(waits))

    def limiter(self, limits: EndpointLimits, url: str) -> Limiter:
        """A new limiter of requests to a base URL."""
        return Limiter(limits, turn=None if self._throttle is None else self._throttle.turn_at(url))

    def throttle_problems(self) -> list[str]:
        """Why the throttle is not shared with other processes, if it is not; whoever asks first is told."""
        problem = None if self._throttle is None else self._throttle.untold_problem()
        return [] if problem is None else [problem]

    def _exchange_secrets(self, addresses: Iterable[ModelAddress]) -> None:
        at: defaultdict[str, list[Endpoint]] = defaultdict(list)
        for known in self._known.values():
            at[URL(known.endpoint.url).authority].append(known.endpoint)
        sent_to: defaultdict[str, set[str]] = defaultdict(set)
        names: defaultdict[str, set[str]] = defaultdict(set)
        for address in addresses:
            sent_to[place := URL(address.url).authority].update(address.secrets)
            names[place].update(address.spec.open_names)
        for place, secrets in sent_to.items():
            known_there = secrets.union(*(endpoint.secrets for endpoint in at[place]))
            for endpoint in at[place]:
                endpoint.keep_out(known_there)
                endpoint.leave_in(names[place])

    def proxied(self) -> ProxiedWire:
        """What sends requests that go through a proxy, opened when it is first needed."""
        from coeval.models.transport.proxied import ProxiedWire

        if self._proxied is None:
            self._proxied = ProxiedWire()
        return self._proxied

    async def aclose(self) -> None:
        """Close the connections: what is under way on them fails."""
        for wire in (self.straight, self._proxied):
            if wire is not None:
                await wire.aclose()


T = TypeVar("T")

# A century: a date beyond it is a mistake of the host's.
_LONGEST_SHOWN_S = 100 * 365.25 * 86_400
# Unavailable (RFC 9110), and Anthropic's own for the same.
_OVERLOADED = (503, 529)


class _Ask(NamedTuple, Generic[T]):
    endpoint: Endpoint
    route: RequestRoute
    body: bytes | None
    call: Call[T]

    @property
    def place(self) -> str:
        return place(self.route.method, self.route.url)


class Http:
    """One per session, opened at its first request, closed with `aclose`.

    Parameters
    ----------
    clock, sleep:
        seconds, monotonic; and how to wait for some of them.
    rng:
        spreads retries, so that requests which failed together do not come back together.
    hosts:
        connections and endpoints, which other sessions may share: ending one session leaves the others
        theirs. None: its own, closed with it, with the throttle that the environment asks for; raises
        UsageError as `throttle_of`.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        hosts: SharedHosts | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._sleep = sleep
        self.hosts = hosts or SharedHosts(throttle=throttle_of(os.environ))
        self._closes_hosts = hosts is None
        self._endpoints: set[Endpoint] = set()
        self.odd_replies: Counter[tuple[str, str]] = Counter()
        self._over: Draining | None = None

    def post(
        self, endpoint: Endpoint, path: str, body: bytes, call: Call[T]
    ) -> Coroutine[Any, Any, Answered[T]]:
        """Send ``body`` until it is answered or failed for good; ``path`` is appended to the base URL.

        Raises ModelError: all attempts failed, or one did in a way that another cannot mend; Gap: nothing
        (more) was sent: what ``call.permit`` raised, or Draining.
        """
        return self._ask(_Ask(endpoint, endpoint.route("POST", path), body, call))

    def get(self, endpoint: Endpoint, path: str, call: Call[T]) -> Coroutine[Any, Any, Answered[T]]:
        """As `post`, without a body."""
        return self._ask(_Ask(endpoint, endpoint.route("GET", path), None, call))

    def troubles(self) -> dict[Endpoint, str]:
        """The endpoints that give nothing but failures, or nothing at all, to those who wait: a sentence on
        each."""
        now = self._clock()
        said = ((endpoint, reported_of(endpoint, now)) for endpoint in self._endpoints)
        return {endpoint: sentence for endpoint, sentence in said if sentence is not None}

    def repeating(self) -> list[str]:
        """A sentence on each endpoint that has repeated a credential."""
        return sorted(endpoint.about_repeating for endpoint in self._endpoints if endpoint.repeated)

    def oddities(self) -> list[str]:
        """Return a sentence on each kind of replies of a model that could not be read as they came; see
        `Completion`."""
        return [
            f"{model}: {note} ({pluralize(count, 'answer')}; see `notes` in records)"
            for (model, note), count in sorted(self.odd_replies.items())
        ]

    def drain(self) -> None:
        """From now on nothing new is sent: who waits, and who asks later, gets Draining."""
        self._send_no_more(draining())

    async def aclose(self) -> None:
        """End it for good: who waits, or asks later, gets Draining. What is under way fails, unless its
        connections are shared: then it ends as it would have."""
        self._send_no_more(draining("the models are closed"))
        if self._closes_hosts:
            await self.hosts.aclose()

    def _send_no_more(self, reason: Draining) -> None:
        self._over = self._over or reason
        for endpoint in self._endpoints:
            endpoint.limiter.turn_away(self, reason)
            endpoint.wake(self)

    async def reach(self, endpoint: Endpoint, path: str) -> None:
        """Find out whether the endpoint takes connections, and say how long it is waited for: see `reach`."""
        self._endpoints.add(endpoint)
        await reach(endpoint, path)

    def _refuse(self, call: Call[T]) -> None:
        """Raise Draining where nothing new is sent."""
        if self._over is not None and not call.goes_on:
            raise Draining(str(self._over))

    async def _ask(self, ask: _Ask[T]) -> Answered[T]:
        endpoint, call = ask.endpoint, ask.call
        self._endpoints.add(endpoint)
        tries: Tries | None = None
        sent, again = 0, False
        while True:
            self._refuse(call)
            party = None if call.goes_on else self
            await endpoint.limiter.acquire(
                call.rank, again=again, refusal=call.refusal, lane=call.lane, party=party
            )
            again = True
            try:
                self._refuse(call)  # it may have ended as the slot was granted
                if (money := call.permit()) is None:
                    sent += 1
                    outcome = await self._attempt(ask, sent)
            finally:
                endpoint.limiter.release()
            if money is not None:
                await money
                continue
            if isinstance(outcome, Answered):
                if call.ended is not None:
                    call.ended(None)
                return outcome
            error = outcome.error
            error.attempts = sent
            tries = tries or Tries()
            again = tries.failed(outcome) and not (call.probe and isinstance(error, RequestTimeout))
            if endpoint.is_down:
                error.retry_advised = again = False
                error.args = (f"{error}; it has given nothing but errors for {endpoint.down_s:.0f} s",)
            if not again:
                if call.ended is not None:
                    call.ended(error)
                raise error
            self._refuse(call)
            endpoint.troubled(str(error), self._clock())
            await endpoint.nap(self._sleep(tries.wait_s(outcome, self._rng)), self)

    async def _attempt(self, ask: _Ask[T], attempt: int) -> Answered[T] | Fault:
        """Send once, holding a slot, and tell endpoint and limiter how it went."""
        endpoint, route, body, call = ask
        if endpoint.signs_each:
            try:
                route = await endpoint.signed(route, body, time.time())
            except ModelError as error:
                return self._unsigned(ask, error)
        wire = self.hosts.straight if route.proxy is None else self.hosts.proxied()
        sent_at = self._clock()
        on_the_way = endpoint.sent(sent_at, call)
        try:
            reply = await wire.send(route, body, call.timeout_s)
        except foreign() as error:
            if away := never_sent(error):
                call.unsent()
            failure = from_exception(error, ask.place, call.timeout_s, probe=call.probe)
            return self._broken(endpoint, failure, sent_at, away=away)
        finally:
            endpoint.ended(on_the_way)
        now = self._clock()
        # Nearly no answer says that a limit has nothing left.
        if "0" in reply.headers.values() and (hold_s := requested_hold_s(reply.headers)) <= LONGEST_HOLD_S:
            endpoint.limiter.hold(hold_s, call.lane)
        if not 200 <= reply.status < 300:
            fault = self._refused(ask, reply, sent_at)
            renewed = reply.status == 401 and endpoint.refused(route)
            return fault._replace(again=True) if renewed else fault
        try:
            value = call.decode(reply, endpoint.redactor)
        except ModelError as error:
            endpoint.answered()
            error.args = (f"{ask.place}: {error}",)
            return self._fault(ask, error, reply, sent_at)
        except Undecodable as error:
            garbage = from_garbage(reply.status, reply.body, error, ask.place, endpoint.redactor)
            return self._fault(ask, garbage, reply, sent_at)
        endpoint.succeeded(now)
        if call.lane is not None:
            call.lane.answered()
        limiter = endpoint.limiter
        tokens = call.tokens(value) if limiter.gate.counts_tokens and call.tokens is not None else 0
        limiter.succeeded(call.rank, now - sent_at, tokens)
        return Answered(value, now - sent_at, attempt)

    def _unsigned(self, ask: _Ask[T], error: ModelError) -> Fault:
        """It could not be sent: whoever signs has no credential for it."""
        ask.call.unsent()
        error.args = (f"{ask.place}: {ask.endpoint.reported(str(error))}",)
        return Fault(error, error.retryable and error.retry_advised)

    def _broken(self, endpoint: Endpoint, error: ModelError, sent_at: float, *, away: bool) -> Fault:
        """No answer came."""
        error.args = (endpoint.reported(str(error)),)
        crowded = False
        if isinstance(error, RequestTimeout):
            self._timed_out(endpoint, sent_at)
        elif isinstance(error, ConnectionFailed):
            crowded = endpoint.lost(sent_at, self._clock(), away=away)
            if crowded:
                endpoint.limiter.refused(sent_at)
        return Fault(error, error.retryable and error.retry_advised, crowded, away and endpoint.is_awaited)

    def _timed_out(self, endpoint: Endpoint, sent_at: float) -> None:
        alone = endpoint.timed_out(sent_at, self._clock())
        if not endpoint.is_down:
            endpoint.limiter.timed_out(sent_at, alone=alone)

    def _refused(self, ask: _Ask[T], reply: HttpReply, sent_at: float) -> Fault:
        """An answer came, and it is an error."""
        if not perhaps_billed(reply.status):
            ask.call.unbilled()
        redactor = ask.endpoint.redactor
        error = ask.call.explain(reply, redactor)
        if error is None:
            error = from_status(reply.status, reply.body, ask.place, redactor)
        else:
            error.args = (f"{ask.place} answered {reply.status}: {error}",)
        error.status = reply.status
        if isinstance(error, RequestTimeout):
            self._timed_out(ask.endpoint, sent_at)
        elif reply.status >= 500:
            ask.endpoint.failed(self._clock())
        else:
            ask.endpoint.answered()
        return self._fault(ask, error, reply, sent_at)

    def _fault(self, ask: _Ask[T], error: ModelError, reply: HttpReply, sent_at: float) -> Fault:
        """Add to an error what the reply's headers say about trying again."""
        endpoint = ask.endpoint
        if (isinstance(error, RateLimited) or error.status in _OVERLOADED) and not endpoint.is_down:
            endpoint.limiter.refused(sent_at)
        error.args = (endpoint.reported(str(error)),)
        if error.retry_after_s is None:
            error.retry_after_s = requested_wait_s(reply.headers)
        if isinstance(error, RateLimited) and (hold_s := requested_hold_s(reply.headers)):
            error.retry_after_s = max(error.retry_after_s or 0.0, hold_s)
        word = requested_retry(reply.headers)
        again = word if word is not None else error.retryable and error.retry_advised
        wait_s = error.retry_after_s
        if again and (pointless := self._pointless(ask, error)):
            error.retry_advised = again = False
            error.args = (f"{error}; {pointless}",)
        if again and wait_s and error.status in _OVERLOADED:
            endpoint.limiter.hold(wait_s)  # the host as a whole is away until then (RFC 9110 §15.6.4)
        return Fault(error, again)

    def _pointless(self, ask: _Ask[T], error: ModelError) -> str:
        """Say why another attempt cannot succeed within the longest wait; '' if it may."""
        wait_s, lane = error.retry_after_s or 0.0, ask.call.lane
        if wait_s > LONGEST_HOLD_S:
            until = datetime.now(UTC) + timedelta(seconds=min(wait_s, _LONGEST_SHOWN_S))
            return f"it asks to wait {wait_s:.0f} s, until {until:%Y-%m-%d %H:%M} UTC; run again then"
        if wait_s or lane is None or not isinstance(error, RateLimited):
            return ""
        lasted_s = lane.refused(self._clock())
        if lasted_s < LONGEST_HOLD_S:
            return ""
        return (
            f"it has answered nothing else for {lasted_s:.0f} s and gives no time to retry: its quota or "
            "the account's credit may be used up"
        )


def draining(why: str = "the run is being interrupted") -> Draining:
    return Draining(f"{why}; nothing new is sent")
