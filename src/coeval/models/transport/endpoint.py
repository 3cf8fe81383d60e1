"""One base URL and credential: what every request there carries, and whether the host is down."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import cache
from itertools import count, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from multidict import CIMultiDict
from yarl import URL

from coeval import __version__
from coeval.core.errors import ModelError, UsageError
from coeval.core.options import TIMEOUT
from coeval.core.redaction import Redactor
from coeval.core.shown_url import find_url_secrets, is_credential_name, mask_url
from coeval.core.text import pluralize
from coeval.models.catalog import HOSTS
from coeval.models.pacing.limits import LONGEST_HOLD_S, Lane, Limiter
from coeval.models.signers import RequestSigner, Signer
from coeval.models.transport.body import ConnectTimeout, NoConnection
from coeval.models.transport.call import Call
from coeval.models.transport.faults import describe_request, error_from_exception, make_proxy_error
from coeval.models.transport.network import find_proxy
from coeval.models.transport.pool import Dialler, Origin, RequestRoute

OUTAGE_AFTER_S = 30.0
"""After so long with only 5xx and time-outs, each remaining request gets one attempt."""
WAIT_S, LOOPBACK_WAIT_S = 35.0, 300.0
"""How long to wait for a server that takes no connections, by default: whoever runs an engine on this machine
restarts it, which takes minutes."""
REACH_S = 3.0
"""How long the check at the start tries to reach a host, by default."""

# Connections that fail within a second of a success: the host refuses some, but is not away.
_LATELY_S = 1.0
# Two of `_CROWDED_SHARE`: enough to tell one broken connection from a refusal.
_REMEMBERED_FATES = 32
# Share of broken connections that means too many of them; a smaller one is the network's fault.
_CROWDED_SHARE = 1 / 16
# Addresses of one endpoint: deployments and models in its paths.
_REMEMBERED_ROUTES = 256
# Bearer tokens that rotate within a run; older ones have expired.
_REMEMBERED_TOKENS = 8

_log = logging.getLogger(__name__)


class Outage(NamedTuple):
    """Every request has failed since ``began`` (the clock's seconds); ``reason`` is that of the last, which
    is retried."""

    began: float
    reason: str


@cache
def _catalog_host_names() -> frozenset[str]:
    """Return the host names in CoEval's own catalog, which no user configured."""
    names = (HOSTS[name].url.partition("://")[2].partition("/")[0] for name in HOSTS.own)
    return frozenset(name for name in names if name and "{" not in name)


class Endpoint:
    """One base URL and credential: its headers, the limiter that its models share, and whether it is down.
    ``url`` is the base URL, without credentials (`resolve_address`). ``headers`` go with every request.
    ``secrets`` are further credentials that its host receives; ``redactor`` removes these, and those that
    ``signer`` sends, from its replies. Raises UsageError: a header cannot be sent."""

    def __init__(
        self,
        url: str,
        signer: Signer | None,
        limiter: Limiter,
        secrets: Iterable[str] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.headers = CIMultiDict(
            {"Content-Type": "application/json", "User-Agent": f"coeval/{__version__}", **headers}
        )
        self.signer = signer
        self._signer = signer if isinstance(signer, RequestSigner) else None
        self.signs_each = self._signer is not None
        """Whether every request has headers of its own; see `sign_route`."""
        for name, value in (signer.fixed if signer is not None else {}).items():
            self.headers[name] = _check_header(name, value)
        self.url = url.rstrip("/")
        self.limiter = limiter
        self.proxy = find_proxy(URL(self.url))
        self._routes: dict[tuple[str, str], RequestRoute] = {}
        self.secrets = (*secrets, *self._find_secrets_in_headers_and_urls(url))
        self._sent_tokens: tuple[str, ...] = ()
        self.names = frozenset[str]()
        """Names of models; see `exempt_names`."""
        self._rebuild_redactor()
        self.repeats_credential = False
        """Whether one of its replies held a credential."""
        self._lanes: dict[str, Lane] = {}
        host = URL(self.url).host or ""
        own = host in ("localhost", "::1") or host.startswith("127.")
        self.wait_s = LOOPBACK_WAIT_S if own else WAIT_S
        """How long it may take no connections before it counts as down."""
        self.reach_s = REACH_S
        """How long the check at the start tries to reach it."""
        self._away = False
        self._down_since: float | None = None
        self._failed_at = 0.0
        self._succeeded_at = float("-inf")
        self._lost_share = 0.0
        self._in_flight: dict[int, tuple[float, Call[Any]]] = {}
        self._numbers = count()
        self._backoffs: dict[asyncio.Future[None], object] = {}
        self._outage: Outage | None = None

    def set_wait(self, seconds: float) -> None:
        """Set how long to wait for the host, at the start too, as the user configured."""
        self.wait_s, self.reach_s = seconds, max(REACH_S, seconds)

    def redact_own_message(self, message: str) -> str:
        """Redact a message of our own, but not a catalog host's name, even if a key contains part of it."""
        name = URL(self.url).host or ""
        if name not in _catalog_host_names():
            return self.redactor.redact_own_message(message)
        return name.join(map(self.redactor.redact_own_message, message.split(name)))

    def route(self, method: str, path: str) -> RequestRoute:
        """Return the route for ``path``, appended to the base URL and sent unchanged: a host that checks
        signatures may distinguish a quoted ``:`` from a plain one."""
        route = self._routes.get((method, path))
        if route is None:
            if len(self._routes) >= _REMEMBERED_ROUTES:
                self._routes.clear()
            route = RequestRoute.make(method, URL(self.url + path, encoded=True), self.headers, self.proxy)
            self._routes[method, path] = route
        return route

    async def sign_route(self, route: RequestRoute, body: bytes | None, now: float) -> RequestRoute:
        """Sign a route for one request; ``now`` in seconds since 1970. ModelError if that fails."""
        if self._signer is None:
            return route
        try:
            headers = await self._signer.headers(route.method, str(route.url), body, now)
        except ModelError as error:
            where = describe_request(route.method, route.url)
            error.args = (f"{where}: {self.redact_own_message(str(error))}",)
            raise
        self._remember_sent_tokens(self._signer.secret_values(headers))
        signed = CIMultiDict(route.headers)
        signed.update({name: _check_header(name, value) for name, value in headers.items()})
        return RequestRoute.make(route.method, route.url, signed, route.proxy)

    def discard_refused(self, route: RequestRoute) -> bool:
        """Discard the signature of a route that got 401; return whether another may succeed."""
        return self._signer is not None and self._signer.discard_refused(route.headers)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        fresh = tuple(secret for secret in secrets if secret not in self.secrets)
        if fresh:
            self.secrets = (*self.secrets, *fresh)
            self._rebuild_redactor()

    def exempt_names(self, names: Iterable[str]) -> None:
        if not self.names.issuperset(fresh := frozenset(names)):
            self.names |= fresh
            self._rebuild_redactor()

    def _remember_sent_tokens(self, values: Iterable[str]) -> None:
        """Redact tokens that were just sent, and the last few before them."""
        fresh = [
            secret
            for value in values
            if (secret := value.strip().rpartition(" ")[2]) not in self._sent_tokens
        ]
        if fresh:
            self._sent_tokens = (*fresh, *self._sent_tokens)[:_REMEMBERED_TOKENS]
            self._rebuild_redactor()

    def _rebuild_redactor(self) -> None:
        self.redactor = Redactor(
            (*self.secrets, *self._sent_tokens), self._log_repeated_credential, self.names
        )

    def _find_secrets_in_headers_and_urls(self, url: str) -> Iterator[str]:
        """Yield the credentials in what is sent: in headers, in the URL, and a proxy's."""
        for name, value in self.headers.items():
            if is_credential_name(name):
                yield value.strip().rpartition(" ")[2]
        yield from find_url_secrets(url)
        if self.proxy is not None:
            yield from find_url_secrets(str(self.proxy))

    def _log_repeated_credential(self) -> None:
        if not self.repeats_credential:
            self.repeats_credential = True
            _log.info("an answer of %s held a credential, which was taken out of it", mask_url(self.url))

    @property
    def repeated_credential_warning(self) -> str:
        return (
            f"{mask_url(self.url)} repeats a credential in its answers: it is taken out of them before "
            "anything is kept; tell the host's operator, and change the credential"
        )

    def lane(self, model: str) -> Lane:
        """Return the lane shared by the requests for one model (the provider's name for it)."""
        return self._lanes.setdefault(model, Lane())

    def add_in_flight(self, now: float, call: Call[Any]) -> int:
        """Add a request that is sent; return its number, for `remove_in_flight`."""
        number = next(self._numbers)
        self._in_flight[number] = now, call
        return number

    def remove_in_flight(self, number: int) -> None:
        del self._in_flight[number]

    def record_reply(self) -> None:
        """Record a reply other than a 5xx."""
        self._down_since = None

    def record_failure_and_wake_if_down(self, now: float, *, away: bool = False) -> None:
        """Record a 5xx, a time-out, a broken or no connection (``away``); a gap of 10 min restarts."""
        self._away = away
        if self._down_since is None or now - self._failed_at > LONGEST_HOLD_S:
            self._down_since = now
        self._failed_at = now
        if self.is_down:
            self.limiter.forget_refusals()
            self.wake_retries()

    def record_disconnect_and_check_crowding(self, sent_at: float, now: float, *, away: bool = False) -> bool:
        """Record a lost or refused (``away``) connection; return True if there are too many."""
        self._lost_share += (1 - self._lost_share) / _REMEMBERED_FATES
        if self._has_recent_success(sent_at, now) or self._has_older_request(sent_at):
            return self._lost_share > _CROWDED_SHARE
        self.record_failure_and_wake_if_down(now, away=away)
        return False

    def record_timeout_and_check_silence(self, sent_at: float, now: float) -> bool:
        """Record a request without an answer in time; return True if no other had one lately."""
        if self._has_recent_success(sent_at, now):
            return False
        self.record_failure_and_wake_if_down(now)
        return True

    def _has_recent_success(self, sent_at: float, now: float) -> bool:
        return now - self._succeeded_at <= max(_LATELY_S, (now - sent_at) / 2)

    def _has_older_request(self, sent_at: float) -> bool:
        """Check whether a request is in flight that was sent well before this one, which has failed."""
        first_sent_at = next((since for since, _ in self._in_flight.values()), sent_at)
        return sent_at - first_sent_at > _LATELY_S

    @property
    def down_s(self) -> float:
        """Return for how many seconds there have been only 5xx, connection errors and time-outs."""
        return 0.0 if self._down_since is None else self._failed_at - self._down_since

    @property
    def is_down(self) -> bool:
        return self.down_s >= (self.wait_s if self._away else OUTAGE_AFTER_S)

    @property
    def is_awaited(self) -> bool:
        """Check whether the host takes no connections, and is not down yet."""
        return self._away and self._down_since is not None and not self.is_down

    def record_success(self, now: float) -> None:
        self._down_since = self._outage = None
        self._succeeded_at = now
        self._lost_share -= self._lost_share / _REMEMBERED_FATES

    def record_retry(self, reason: str, now: float) -> None:
        self._outage = Outage(self._outage.began if self._outage else now, reason)

    @property
    def outage(self) -> Outage | None:
        """Return why requests of this endpoint wait; None if none waits, or it answers."""
        waiting = self._backoffs or self.limiter.in_flight or self.limiter.waiting
        return self._outage if waiting else None

    def describe_silence(self, now: float) -> str | None:
        """Say for how long the host has answered none of the requests in flight, once that is long."""
        for sent_at, call in islice(self._in_flight.values(), 1):
            if (seconds := now - max(sent_at, self._succeeded_at)) >= SILENT_AFTER_S:
                requests = pluralize(len(self._in_flight), "request")
                return (
                    f"{mask_url(self.url)} has not answered for {seconds:.0f} s; {requests} waiting "
                    f"there, each given up after {call.timeout_s:g} s{'' if call.probe else f' ({TIMEOUT})'}"
                )
        return None

    async def back_off(self, sleep: Coroutine[Any, Any, None], owner: object = None) -> None:
        """Sleep until ``sleep`` is over, or the endpoint's or the ``owner``'s retries are woken."""
        backoff = asyncio.ensure_future(sleep)
        self._backoffs[backoff] = owner
        try:
            await asyncio.wait((backoff,))
        finally:
            del self._backoffs[backoff]
            backoff.cancel()

    def wake_retries(self, owner: object = None) -> None:
        for nap, retry_owner in self._backoffs.items():
            if owner is None or retry_owner is owner:
                nap.cancel()


def _check_header(name: str, value: str) -> str:
    if not value.isprintable():
        raise UsageError(f"the {name} header holds a line break or the like; check its key")
    return value


# --- Messages while requests wait

TOLD_AFTER_S = 3.0
"""After so long with only failures, the user gets a message."""

SILENT_AFTER_S = 30.0
"""So too if a host answers none of its requests for so long: most answer within it."""


def describe_outage(endpoint: Endpoint, now: float) -> str | None:
    """Describe in a sentence an endpoint that gives only failures, or nothing at all; None for any other."""
    outage = endpoint.outage
    if outage is not None and now - outage.began >= TOLD_AFTER_S:
        failing_s = now - outage.began
        remaining = f" for {endpoint.wait_s - failing_s:.0f} s more" if endpoint.is_awaited else ""
        return f"only failures for {failing_s:.0f} s, trying again{remaining}: {outage.reason}"
    return endpoint.describe_silence(now)


# --- Reachability check of a host

# A host may be starting, or the name service fail once; pauses double, up to a few seconds.
_AGAIN_AFTER_S, _LONGEST_PAUSE_S = 0.5, 4.0


async def check_reachable(endpoint: Endpoint, path: str, method: str = "POST") -> None:
    """Connect to the endpoint, or to its proxy, and close the connection. ``path`` and ``method`` are those
    of the request that will follow, for the message. Raises ConnectionFailed: the host refused, did not reply
    or could not be resolved, repeatedly for ``reach_s``."""
    loop = asyncio.get_running_loop()
    dialler = Dialler()
    target = endpoint.proxy or URL(endpoint.url)
    origin = Origin(target.raw_host or "", target.port or 0, tls=False)
    deadline = loop.time() + endpoint.reach_s
    pause_s = _AGAIN_AFTER_S
    try:
        while True:
            try:
                await dialler.probe(origin, deadline - loop.time())
            except (NoConnection, ConnectTimeout, socket.gaierror) as error:
                failed_request = describe_request(method, URL(endpoint.url + path))
                failure = _make_connect_error(endpoint, failed_request, error)
                failure.args = (endpoint.redact_own_message(str(failure)),)
                if loop.time() + pause_s > deadline:
                    raise failure from None
                endpoint.record_failure_and_wake_if_down(loop.time(), away=True)
                endpoint.record_retry(str(failure), loop.time())
            else:
                endpoint.record_success(loop.time())
                return
            await endpoint.back_off(asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    finally:
        await dialler.aclose()


def _make_connect_error(
    endpoint: Endpoint, where: str, error: NoConnection | ConnectTimeout | socket.gaierror
) -> ModelError:
    if endpoint.proxy is None:
        return error_from_exception(error, where, endpoint.reach_s)
    match error:
        case NoConnection():
            return make_proxy_error(where, error.cause)
        case ConnectTimeout():
            return make_proxy_error(where, TimeoutError(errno.ETIMEDOUT, "no reply"))
        case _:
            return make_proxy_error(where, error)
