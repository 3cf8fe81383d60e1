"""One base URL and key: what is sent with every request there, and whether the host is down."""

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
from coeval.models.transport.faults import from_exception, no_proxy, place
from coeval.models.transport.network import proxy_for
from coeval.models.transport.pool import Dialler, Origin, RequestRoute

OUTAGE_AFTER_S = 30.0
"""Only 5xx and time-outs for so long: what is left gets one attempt each."""
WAIT_S, LOOPBACK_WAIT_S = 35.0, 300.0
"""How long a server that takes no connection is waited for, unless the user says it: an engine on this
machine is restarted by whoever runs it, which takes minutes."""
REACH_S = 3.0
"""How long a host is tried at the start before it is said to be away, unless the user says it."""

# Connections that fail within a second of a success are the host's refusal of some, not its absence.
_LATELY_S = 1.0
# Two of `_CROWDED_SHARE`: enough to tell one broken connection from a refusal.
_REMEMBERED_FATES = 32
# Connections that break: fewer are the network's, more are the host's word that there are too many.
_CROWDED_SHARE = 1 / 16
# Addresses of one endpoint: deployments and models in its paths.
_REMEMBERED_ROUTES = 256
# Bearer tokens that rotate within a run; older ones have expired.
_REMEMBERED_TOKENS = 8

_log = logging.getLogger(__name__)


class Trouble(NamedTuple):
    """Since ``began`` (the clock's seconds) every request failed; ``reason`` is the last one's, which is sent
    again."""

    began: float
    reason: str


@cache
def _catalogued() -> frozenset[str]:
    """The names of hosts that stand in CoEval's own rows, rather than in anybody's settings."""
    places = (HOSTS[name].url.partition("://")[2].partition("/")[0] for name in HOSTS.own)
    return frozenset(place for place in places if place and "{" not in place)


class Endpoint:
    """One base URL and who asks there: its headers, the limiter all its models share, whether it is down.

    ``url`` is the base URL, which holds no credentials (`address_of`). ``headers`` go with every request.
    ``secrets`` are further credentials that its host is sent; ``redactor`` keeps all of them, and what
    ``signer`` shows, out of what the host says.

    Raises UsageError: a header cannot be sent.
    """

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
        """Whether every request has headers of its own; see `signed`."""
        for name, value in (signer.fixed if signer is not None else {}).items():
            self.headers[name] = _printable(name, value)
        self.url = url.rstrip("/")
        self.limiter = limiter
        self.proxy = proxy_for(URL(self.url))
        self._routes: dict[tuple[str, str], RequestRoute] = {}
        self.secrets = (*secrets, *self._sent_secrets(url))
        self._shown: tuple[str, ...] = ()
        self.names = frozenset[str]()
        """What models that are asked there are called: see `leave_in`."""
        self._redact()
        self.repeated = False
        """Whether one of its answers held a credential that it was sent."""
        self._lanes: dict[str, Lane] = {}
        host = URL(self.url).host or ""
        own = host in ("localhost", "::1") or host.startswith("127.")
        self.wait_s = LOOPBACK_WAIT_S if own else WAIT_S
        """How long it may take no connection before it is down."""
        self.reach_s = REACH_S
        """How long it is tried at the start before it is said to be away."""
        self._away = False
        self._down_since: float | None = None
        self._failed_at = 0.0
        self._succeeded_at = float("-inf")
        self._lost_share = 0.0
        self._on_the_way: dict[int, tuple[float, Call[Any]]] = {}
        self._numbers = count()
        self._naps: dict[asyncio.Future[None], object] = {}
        self._trouble: Trouble | None = None

    def wait_at_most(self, seconds: float) -> None:
        """Wait for so long, at the start too, because the user says so."""
        self.wait_s, self.reach_s = seconds, max(REACH_S, seconds)

    def reported(self, message: str) -> str:
        """A message of our own without the credentials. The name of a host of the catalogue is none, even if
        a key has a part of it."""
        name = URL(self.url).host or ""
        if name not in _catalogued():
            return self.redactor.redact_own(message)
        return name.join(map(self.redactor.redact_own, message.split(name)))

    def route(self, method: str, path: str) -> RequestRoute:
        """How to ask for ``path``, which is appended to the base URL and sent as it stands: a host that holds
        requests against their signatures may know a quoted ``:`` from a plain one."""
        route = self._routes.get((method, path))
        if route is None:
            if len(self._routes) >= _REMEMBERED_ROUTES:
                self._routes.clear()
            route = RequestRoute.to(method, URL(self.url + path, encoded=True), self.headers, self.proxy)
            self._routes[method, path] = route
        return route

    async def signed(self, route: RequestRoute, body: bytes | None, now: float) -> RequestRoute:
        """The route with the headers that this one request is signed with; ``now`` in seconds since 1970.

        Raises ModelError: it cannot be signed.
        """
        if self._signer is None:
            return route
        headers = await self._signer.headers(route.method, str(route.url), body, now)
        self._keep_out_shown(self._signer.shown(headers))
        signed = CIMultiDict(route.headers)
        signed.update({name: _printable(name, value) for name, value in headers.items()})
        return RequestRoute.to(route.method, route.url, signed, route.proxy)

    def refused(self, route: RequestRoute) -> bool:
        """A signed route was answered with 401; whether another signature may fare better."""
        return self._signer is not None and self._signer.refused(route.headers)

    def keep_out(self, secrets: Iterable[str]) -> None:
        """Take these out of what the host says, too: it has them from others."""
        fresh = tuple(secret for secret in secrets if secret not in self.secrets)
        if fresh:
            self.secrets = (*self.secrets, *fresh)
            self._redact()

    def leave_in(self, names: Iterable[str]) -> None:
        """Leave the names of models that are asked there in what the host says, even if a key holds one."""
        if not self.names.issuperset(fresh := frozenset(names)):
            self.names |= fresh
            self._redact()

    def _keep_out_shown(self, shown: Iterable[str]) -> None:
        """Know what was just shown as a credential, and what was shown shortly before it."""
        fresh = [secret for value in shown if (secret := value.strip().rpartition(" ")[2]) not in self._shown]
        if fresh:
            self._shown = (*fresh, *self._shown)[:_REMEMBERED_TOKENS]
            self._redact()

    def _redact(self) -> None:
        self.redactor = Redactor((*self.secrets, *self._shown), self._tell_repeated, self.names)

    def _sent_secrets(self, url: str) -> Iterator[str]:
        """The credentials in what is sent: headers, the address, and those of a proxy on the way."""
        for name, value in self.headers.items():
            if is_credential_name(name):
                yield value.strip().rpartition(" ")[2]
        yield from find_url_secrets(url)
        if self.proxy is not None:
            yield from find_url_secrets(str(self.proxy))

    def _tell_repeated(self) -> None:
        if not self.repeated:
            self.repeated = True
            _log.info("an answer of %s held a credential, which was taken out of it", mask_url(self.url))

    @property
    def about_repeating(self) -> str:
        """The sentence for whoever asks a host that has `repeated` a credential."""
        return (
            f"{mask_url(self.url)} repeats a credential in its answers: it is taken out of them before "
            "anything is kept; ask whoever runs the host, and change the credential"
        )

    def lane(self, model: str) -> Lane:
        """What is shared by the requests for one model (the provider's name for it)."""
        return self._lanes.setdefault(model, Lane())

    def sent(self, now: float, call: Call[Any]) -> int:
        """A request goes out; the number is for `ended`."""
        number = next(self._numbers)
        self._on_the_way[number] = now, call
        return number

    def ended(self, number: int) -> None:
        """That request is over, however it went; told before its fate is."""
        del self._on_the_way[number]

    def answered(self) -> None:
        """It gave something else than a 5xx, a broken connection or silence."""
        self._down_since = None

    def failed(self, now: float, *, away: bool = False) -> None:
        """It gave a 5xx, a broken connection, silence, or took none (``away``); over ten minutes without any
        begin a new count."""
        self._away = away
        if self._down_since is None or now - self._failed_at > LONGEST_HOLD_S:
            self._down_since = now
        self._failed_at = now
        if self.is_down:
            self.limiter.reopen()
            self.wake()

    def lost(self, sent_at: float, now: float, *, away: bool = False) -> bool:
        """A connection was refused (``away``), or broke. True: there are too many, as others fare well."""
        self._lost_share += (1 - self._lost_share) / _REMEMBERED_FATES
        if self._has_succeeded(sent_at, now) or self._holds_another(sent_at):
            return self._lost_share > _CROWDED_SHARE
        self.failed(now, away=away)
        return False

    def timed_out(self, sent_at: float, now: float) -> bool:
        """A request had no answer in time. True: nor had any other, lately."""
        if self._has_succeeded(sent_at, now):
            return False
        self.failed(now)
        return True

    def _has_succeeded(self, sent_at: float, now: float) -> bool:
        """Whether others were answered while a request was under way that failed, lately at least."""
        return now - self._succeeded_at <= max(_LATELY_S, (now - sent_at) / 2)

    def _holds_another(self, sent_at: float) -> bool:
        """Whether a request is on its way that was sent well before this one, which has failed already."""
        first_sent_at = next((since for since, _ in self._on_the_way.values()), sent_at)
        return sent_at - first_sent_at > _LATELY_S

    @property
    def down_s(self) -> float:
        """For how long it has given only 5xx, connection errors and time-outs."""
        return 0.0 if self._down_since is None else self._failed_at - self._down_since

    @property
    def is_down(self) -> bool:
        return self.down_s >= (self.wait_s if self._away else OUTAGE_AFTER_S)

    @property
    def is_awaited(self) -> bool:
        """Whether it takes no connection, and is not down yet."""
        return self._away and self._down_since is not None and not self.is_down

    def succeeded(self, now: float) -> None:
        """It gave what it was asked for."""
        self._down_since = self._trouble = None
        self._succeeded_at = now
        self._lost_share -= self._lost_share / _REMEMBERED_FATES

    def troubled(self, reason: str, now: float) -> None:
        """A request failed, and is sent again."""
        self._trouble = Trouble(self._trouble.began if self._trouble else now, reason)

    @property
    def trouble(self) -> Trouble | None:
        """Why those who wait for this endpoint wait; None where nobody does, or it does answer."""
        waiting = self._naps or self.limiter.in_flight or self.limiter.waiting
        return self._trouble if waiting else None

    def silence(self, now: float) -> str | None:
        """A sentence on how long it has kept requests without answering any, where that is worth one."""
        for sent_at, call in islice(self._on_the_way.values(), 1):
            if (seconds := now - max(sent_at, self._succeeded_at)) >= SILENT_AFTER_S:
                requests = pluralize(len(self._on_the_way), "request")
                return (
                    f"{mask_url(self.url)} has answered nothing for {seconds:.0f} s; {requests} waiting "
                    f"there, each given up after {call.timeout_s:g} s{'' if call.probe else f' ({TIMEOUT})'}"
                )
        return None

    async def nap(self, sleep: Coroutine[Any, Any, None], party: object = None) -> None:
        """Sleep until it is over or the endpoint's retries, or those of ``party``, are woken."""
        nap = asyncio.ensure_future(sleep)
        self._naps[nap] = party
        try:
            await asyncio.wait((nap,))
        finally:
            del self._naps[nap]
            nap.cancel()

    def wake(self, party: object = None) -> None:
        """Let all retries wait no longer, or those of one who asks there."""
        for nap, whose in self._naps.items():
            if party is None or whose is party:
                nap.cancel()


def _printable(name: str, value: str) -> str:
    if not value.isprintable():
        raise UsageError(f"the {name} header holds a line break or the like; check the key it is made of")
    return value


# --- Messages while requests wait

TOLD_AFTER_S = 3.0
"""Nothing but failures for so long is worth a line to whoever waits."""

SILENT_AFTER_S = 30.0
"""A host that keeps requests for so long and answers none is worth one, too: most answer within it."""


def reported_of(endpoint: Endpoint, now: float) -> str | None:
    """A sentence on an endpoint that gives nothing but failures, or nothing at all; None of any other."""
    trouble = endpoint.trouble
    if trouble is not None and now - trouble.began >= TOLD_AFTER_S:
        failing_s = now - trouble.began
        left = f" for {endpoint.wait_s - failing_s:.0f} s more" if endpoint.is_awaited else ""
        return f"only failures for {failing_s:.0f} s, trying again{left}: {trouble.reason}"
    return endpoint.silence(now)


# --- Reachability check of a host

# A host may be starting, a name service stumble; each further pause is twice as long, up to a few seconds.
_AGAIN_AFTER_S, _LONGEST_PAUSE_S = 0.5, 4.0


async def reach(endpoint: Endpoint, path: str, method: str = "POST") -> None:
    """Connect to the endpoint, or to the proxy on the way there, and hang up; ``path`` and ``method`` are
    those of the request that is to follow, for the error.

    Raises ConnectionFailed: that was refused, not replied to or not resolved, again and again for its
    ``reach_s``.
    """
    loop = asyncio.get_running_loop()
    dialler = Dialler()
    target = endpoint.proxy or URL(endpoint.url)
    origin = Origin(target.raw_host or "", target.port or 0, tls=False)
    deadline = loop.time() + endpoint.reach_s
    pause_s = _AGAIN_AFTER_S
    try:
        while True:
            try:
                await dialler.try_out(origin, deadline - loop.time())
            except (NoConnection, ConnectTimeout, socket.gaierror) as error:
                reported = _reported(endpoint, place(method, URL(endpoint.url + path)), error)
                reported.args = (endpoint.reported(str(reported)),)
                if loop.time() + pause_s > deadline:
                    raise reported from None
                endpoint.failed(loop.time(), away=True)
                endpoint.troubled(str(reported), loop.time())
            else:
                endpoint.succeeded(loop.time())
                return
            await endpoint.nap(asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    finally:
        await dialler.aclose()


def _reported(
    endpoint: Endpoint, where: str, error: NoConnection | ConnectTimeout | socket.gaierror
) -> ModelError:
    if endpoint.proxy is None:
        return from_exception(error, where, endpoint.reach_s)
    match error:
        case NoConnection():
            return no_proxy(where, error.cause)
        case ConnectTimeout():
            return no_proxy(where, TimeoutError(errno.ETIMEDOUT, "no reply"))
        case _:
            return no_proxy(where, error)
