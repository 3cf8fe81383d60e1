"""The only way to a host: retries, limits and outages, over connections that several sessions may share.

Every request of every dialect passes through `Http.post` or `Http.get`. A dialect says how to read an answer
(`Call`); this module decides when a request is sent, how often, and which error its failure becomes.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

from yarl import URL

from coeval.core import errors
from coeval.core.text import pluralize
from coeval.models.address import EndpointKey, ModelAddress
from coeval.models.pacing.limits import LONGEST_HOLD_S, EndpointLimits, Limiter
from coeval.models.pacing.throttle import Throttle, read_throttle
from coeval.models.transport import faults
from coeval.models.transport.call import (
    Answered,
    Call,
    Fault,
    Tries,
    read_limit_hold_s,
    read_retry_advice,
    read_retry_wait_s,
)
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint, check_reachable, describe_outage
from coeval.models.transport.network import raise_open_file_limit
from coeval.models.transport.pool import RequestRoute, Wire

if TYPE_CHECKING:
    from coeval.models.transport.proxied import ProxiedWire


class Sender(Protocol):
    """Sends single requests, as `models.transport.pool.Wire` does."""

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply: ...
    async def aclose(self) -> None: ...


class SharedHosts:
    """Connections, and an `Endpoint` for each base URL and credential. Sessions with the same `SharedHosts`
    share what an endpoint knows of its host: requests in flight, rates, holds, outages. It outlives them;
    whoever made it closes it (`aclose`, or as an async context manager). ``wire`` sends requests without a
    proxy; None: a `Wire`. ``throttle`` is the pace kept with other processes; None: none."""

    def __init__(self, wire: Sender | None = None, throttle: Throttle | None = None) -> None:
        raise_open_file_limit()
        self._throttle = throttle
        self.straight = wire or Wire()
        self._proxied: ProxiedWire | None = None
        self._endpoints: dict[EndpointKey, Endpoint] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def open_endpoints(self, addresses: Iterable[ModelAddress]) -> dict[EndpointKey, Endpoint]:
        """Return the endpoints of these models, existing ones with their limits merged, new ones opened.
        Limits are the largest ``max_concurrency`` of all models ever served there (256 if none sets it), and
        the smallest rates. Each endpoint knows every credential that its host received: a host may repeat
        what others sent it."""
        sharing: defaultdict[EndpointKey, list[ModelAddress]] = defaultdict(list)
        for address in addresses:
            sharing[address.key].append(address)
        for key, models in sharing.items():
            self._open_or_merge_endpoint(key, models)
        self._share_secrets_and_names(address for models in sharing.values() for address in models)
        return {key: self._endpoints[key] for key in sharing}

    def _open_or_merge_endpoint(self, key: EndpointKey, addresses: list[ModelAddress]) -> None:
        limits = EndpointLimits.combine(address.spec for address in addresses)
        if (shared := self._endpoints.get(key)) is not None:
            shared.limiter.set_limits(shared.limiter.limits.merge(limits))
        else:
            first = addresses[0]
            limiter = Limiter(limits, turn=self._throttle.open_turn(key[0]) if self._throttle else None)
            shared = Endpoint(key[0], first.signer, limiter, first.secrets, first.host.headers)
            self._endpoints[key] = shared
        if waits := [a.spec.wait_s for a in addresses if a.spec.wait_s is not None]:
            shared.set_wait(max(waits))

    def pop_throttle_problems(self) -> list[str]:
        """Say why the throttle is not shared with other processes, if so; on the first call only."""
        problem = None if self._throttle is None else self._throttle.pop_unreported_problem()
        return [] if problem is None else [problem]

    def _share_secrets_and_names(self, addresses: Iterable[ModelAddress]) -> None:
        endpoints_by_host: defaultdict[str, list[Endpoint]] = defaultdict(list)
        for endpoint in self._endpoints.values():
            endpoints_by_host[URL(endpoint.url).authority].append(endpoint)
        secrets_by_host: defaultdict[str, set[str]] = defaultdict(set)
        names_by_host: defaultdict[str, set[str]] = defaultdict(set)
        for address in addresses:
            secrets_by_host[host := URL(address.url).authority].update(address.secrets)
            names_by_host[host].update(address.spec.open_names)
        for host, secrets in secrets_by_host.items():
            all_secrets = secrets.union(*(endpoint.secrets for endpoint in endpoints_by_host[host]))
            for endpoint in endpoints_by_host[host]:
                endpoint.add_secrets(all_secrets)
                endpoint.exempt_names(names_by_host[host])

    def open_proxied_wire(self) -> ProxiedWire:
        """Return the wire for requests through a proxy, opened when first needed."""
        from coeval.models.transport.proxied import ProxiedWire

        if self._proxied is None:
            self._proxied = ProxiedWire()
        return self._proxied

    async def aclose(self) -> None:
        """Close the connections; requests on them fail."""
        for wire in (self.straight, self._proxied):
            if wire is not None:
                await wire.aclose()


T = TypeVar("T")

# A century: a later date is the host's mistake.
_LONGEST_SHOWN_S = 100 * 365.25 * 86_400
# Unavailable (RFC 9110), and Anthropic's own status for it.
_OVERLOADED = (503, 529)


class _Exchange(NamedTuple, Generic[T]):
    endpoint: Endpoint
    route: RequestRoute
    body: bytes | None
    call: Call[T]

    @property
    def description(self) -> str:
        return faults.describe_request(self.route.method, self.route.url)


class Http:
    """Sends requests of one session, with retries; opened with the first, closed with `aclose`. ``clock`` and
    ``sleep`` are monotonic seconds, and how to wait for some; ``rng`` spreads retries, so that requests that
    failed together are not retried together. ``hosts`` may be shared with other sessions; None: its own, with
    the environment's throttle; raises UsageError as `read_throttle`."""

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
        self.hosts = hosts or SharedHosts(throttle=read_throttle(os.environ))
        self._closes_hosts = hosts is None
        self._endpoints: set[Endpoint] = set()
        self.odd_replies: Counter[tuple[str, str]] = Counter()
        self._over: errors.Draining | None = None

    def post(
        self, endpoint: Endpoint, path: str, body: bytes, call: Call[T]
    ) -> Coroutine[Any, Any, Answered[T]]:
        """Send ``body`` until it is answered or has failed for good; ``path`` is appended to the base URL.
        Raises ModelError: all attempts failed, or one in a way that a retry cannot mend; Gap: nothing (more)
        was sent: what ``call.permit`` raised, or Draining."""
        return self._send_until_answered(_Exchange(endpoint, endpoint.route("POST", path), body, call))

    def get(self, endpoint: Endpoint, path: str, call: Call[T]) -> Coroutine[Any, Any, Answered[T]]:
        """Send a request without a body, as `post`."""
        return self._send_until_answered(_Exchange(endpoint, endpoint.route("GET", path), None, call))

    def describe_outages(self) -> dict[Endpoint, str]:
        """Describe in a sentence each endpoint that gives only failures, or nothing, to waiting requests."""
        now = self._clock()
        sentences = ((endpoint, describe_outage(endpoint, now)) for endpoint in self._endpoints)
        return {endpoint: sentence for endpoint, sentence in sentences if sentence is not None}

    def describe_repeated_credentials(self) -> list[str]:
        return sorted(
            endpoint.repeated_credential_warning
            for endpoint in self._endpoints
            if endpoint.repeats_credential
        )

    def describe_odd_replies(self) -> list[str]:
        """Describe in a sentence each kind of odd replies of a model; see `Completion`."""
        return [
            f"{model}: {note} ({pluralize(count, 'answer')}; see `notes` in records)"
            for (model, note), count in sorted(self.odd_replies.items())
        ]

    def drain(self) -> None:
        """Send nothing new: waiting requests, and later ones, raise Draining."""
        self._stop_sending(make_draining_error())

    async def aclose(self) -> None:
        """Close for good, as `drain`. Requests in flight fail, unless their connections are shared."""
        self._stop_sending(make_draining_error("the models are closed"))
        if self._closes_hosts:
            await self.hosts.aclose()

    def _stop_sending(self, reason: errors.Draining) -> None:
        self._over = self._over or reason
        for endpoint in self._endpoints:
            endpoint.limiter.reject_waiting(self, reason)
            endpoint.wake_retries(self)

    async def check_connection(self, endpoint: Endpoint, path: str) -> None:
        """Check whether the endpoint takes connections: see `check_reachable`."""
        self._endpoints.add(endpoint)
        await check_reachable(endpoint, path)

    def _raise_if_draining(self, call: Call[T]) -> None:
        if self._over is not None and not call.goes_on:
            raise errors.Draining(str(self._over))

    async def _send_until_answered(self, exchange: _Exchange[T]) -> Answered[T]:
        """Send until there is an answer, or an error that a retry cannot mend."""
        endpoint, call = exchange.endpoint, exchange.call
        self._endpoints.add(endpoint)
        tries: Tries | None = None
        sent, again = 0, False
        while True:
            self._raise_if_draining(call)
            owner = None if call.goes_on else self
            await endpoint.limiter.acquire(
                call.priority, is_retry=again, refusal=call.refusal, lane=call.lane, owner=owner
            )
            again = True
            try:
                self._raise_if_draining(call)  # the session may have ended as the slot was granted
                if (money := call.permit()) is None:
                    sent += 1
                    outcome = await self._send_once(exchange, sent)
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
            again = tries.count_failure(outcome) and not (
                call.probe and isinstance(error, errors.RequestTimeout)
            )
            if endpoint.is_down:
                error.retry_advised = again = False
                error.args = (f"{error}; it has returned only errors for {endpoint.down_s:.0f} s",)
            if not again:
                if call.ended is not None:
                    call.ended(error)
                raise error
            self._raise_if_draining(call)
            endpoint.record_retry(str(error), self._clock())
            await endpoint.back_off(self._sleep(tries.wait_s(outcome, self._rng)), self)

    async def _send_once(self, exchange: _Exchange[T], attempt: int) -> Answered[T] | Fault:
        """Send once, holding a slot, and record the outcome at endpoint and limiter."""
        endpoint, route, body, call = exchange
        if endpoint.signs_each:
            try:
                route = await endpoint.sign_route(route, body, time.time())
            except errors.ModelError as error:
                call.unsent()
                return Fault(error, error.retryable and error.retry_advised)
        wire = self.hosts.straight if route.proxy is None else self.hosts.open_proxied_wire()
        sent_at = self._clock()
        request_number = endpoint.add_in_flight(sent_at, call)
        try:
            reply = await wire.send(route, body, call.timeout_s)
        except faults.SENDING_ERRORS as error:
            if away := faults.was_never_sent(error):
                call.unsent()
            failure = faults.error_from_exception(
                error, exchange.description, call.timeout_s, probe=call.probe
            )
            return self._record_connection_fault(endpoint, failure, sent_at, away=away)
        finally:
            endpoint.remove_in_flight(request_number)
        now = self._clock()
        # Cheap test first: few replies report a limit with nothing left.
        if "0" in reply.headers.values() and (hold_s := read_limit_hold_s(reply.headers)) <= LONGEST_HOLD_S:
            endpoint.limiter.hold(hold_s, call.lane)
        if not 200 <= reply.status < 300:
            fault = self._record_status_fault(exchange, reply, sent_at)
            renewed = reply.status == 401 and endpoint.discard_refused(route)
            return fault._replace(again=True) if renewed else fault
        try:
            value = call.decode(reply, endpoint.redactor)
        except errors.ModelError as error:
            endpoint.record_reply()
            error.args = (f"{exchange.description}: {error}",)
            return self._apply_retry_headers(exchange, error, reply, sent_at)
        except errors.Undecodable as error:
            garbage = faults.error_from_garbage(
                reply.status, reply.body, error, exchange.description, endpoint.redactor
            )
            return self._apply_retry_headers(exchange, garbage, reply, sent_at)
        endpoint.record_success(now)
        if call.lane is not None:
            call.lane.record_answer()
        limiter = endpoint.limiter
        tokens = call.tokens(value) if limiter.gate.counts_tokens and call.tokens is not None else 0
        limiter.record_answer(call.priority, now - sent_at, tokens)
        return Answered(value, now - sent_at, attempt)

    def _record_connection_fault(
        self, endpoint: Endpoint, error: errors.ModelError, sent_at: float, *, away: bool
    ) -> Fault:
        error.args = (endpoint.redact_own_message(str(error)),)
        crowded = False
        if isinstance(error, errors.RequestTimeout):
            self._record_timeout(endpoint, sent_at)
        elif isinstance(error, errors.ConnectionFailed):
            crowded = endpoint.record_disconnect_and_check_crowding(sent_at, self._clock(), away=away)
            if crowded:
                endpoint.limiter.record_refusal(sent_at)
        return Fault(error, error.retryable and error.retry_advised, crowded, away and endpoint.is_awaited)

    def _record_timeout(self, endpoint: Endpoint, sent_at: float) -> None:
        alone = endpoint.record_timeout_and_check_silence(sent_at, self._clock())
        if not endpoint.is_down:
            endpoint.limiter.record_timeout(sent_at, alone=alone)

    def _record_status_fault(self, exchange: _Exchange[T], reply: HttpReply, sent_at: float) -> Fault:
        if not faults.may_be_billed(reply.status):
            exchange.call.unbilled()
        redactor = exchange.endpoint.redactor
        error = exchange.call.explain(reply, redactor)
        if error is None:
            error = faults.error_from_status(reply.status, reply.body, exchange.description, redactor)
        else:
            error.args = (f"{exchange.description} answered {reply.status}: {error}",)
        error.status = reply.status
        if isinstance(error, errors.RequestTimeout):
            self._record_timeout(exchange.endpoint, sent_at)
        elif reply.status >= 500:
            exchange.endpoint.record_failure_and_wake_if_down(self._clock())
        else:
            exchange.endpoint.record_reply()
        return self._apply_retry_headers(exchange, error, reply, sent_at)

    def _apply_retry_headers(
        self, exchange: _Exchange[T], error: errors.ModelError, reply: HttpReply, sent_at: float
    ) -> Fault:
        """Make a fault that follows what the reply's headers say about retries."""
        endpoint = exchange.endpoint
        if (isinstance(error, errors.RateLimited) or error.status in _OVERLOADED) and not endpoint.is_down:
            endpoint.limiter.record_refusal(sent_at)
        error.args = (endpoint.redact_own_message(str(error)),)
        if error.retry_after_s is None:
            error.retry_after_s = read_retry_wait_s(reply.headers)
        if isinstance(error, errors.RateLimited) and (hold_s := read_limit_hold_s(reply.headers)):
            error.retry_after_s = max(error.retry_after_s or 0.0, hold_s)
        advice = read_retry_advice(reply.headers)
        again = advice if advice is not None else error.retryable and error.retry_advised
        wait_s = error.retry_after_s
        if again and (pointless := self._record_refusal_and_explain_end(exchange, error)):
            error.retry_advised = again = False
            error.args = (f"{error}; {pointless}",)
        if again and wait_s and error.status in _OVERLOADED:
            endpoint.limiter.hold(wait_s)  # the whole host is unavailable until then (RFC 9110 §15.6.4)
        return Fault(error, again)

    def _record_refusal_and_explain_end(self, exchange: _Exchange[T], error: errors.ModelError) -> str:
        """Say why another attempt cannot succeed within the longest wait; '' if it may."""
        wait_s, lane = error.retry_after_s or 0.0, exchange.call.lane
        if wait_s > LONGEST_HOLD_S:
            until = datetime.now(UTC) + timedelta(seconds=min(wait_s, _LONGEST_SHOWN_S))
            return f"it asks to wait {wait_s:.0f} s, until {until:%Y-%m-%d %H:%M} UTC; run again then"
        if wait_s or lane is None or not isinstance(error, errors.RateLimited):
            return ""
        lasted_s = lane.record_refusal(self._clock())
        if lasted_s < LONGEST_HOLD_S:
            return ""
        return (
            f"it has answered only this for {lasted_s:.0f} s and names no time to retry: its quota or "
            "the account's credit may be used up"
        )


def make_draining_error(why: str = "the run is being interrupted") -> errors.Draining:
    return errors.Draining(f"{why}; nothing new is sent")
