"""What sessions of one event loop share on their way to hosts: connections, and the limits of each host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from yarl import URL

from coeval.models.address import EndpointKey, ModelAddress
from coeval.models.pacing.limits import EndpointLimits, Limiter
from coeval.models.pacing.throttle import Throttle
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
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
                joined.apply_to(known.endpoint.limiter)
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
        return limits.limiter(None if self._throttle is None else self._throttle.turn_at(url))

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
