"""The wire: HTTP/1.1 requests on connections that are kept, and the pool of each host's connections.

docs/decisions/0013-our-wire-stays.md says why it is ours, and what it costs beside others. Requests that have
to go through a proxy take `models.transport.proxied` instead.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection
from multidict import CIMultiDict
from yarl import URL

from coeval.models.transport.body import Closed, ConnectTimeout, NoConnection, NoTurn
from coeval.models.transport.connection import LARGE_BODY, Connection, HttpReply
from coeval.models.transport.network import trusted_certificates

# --- What is the same in every request to one place: the connection it needs and how it begins

UNPACKED = {"Accept-Encoding": "identity"}
"""Answers of models are short, and unpacking them costs more than it saves."""


class Origin(NamedTuple):
    """Whom a connection is with."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True, eq=False)
class RequestRoute:
    """One method at one URL, as one endpoint asks it; made once, used for every request.

    ``head`` is the beginning of the request in bytes, up to its length. ``proxy`` is how to get there
    where it is not straight.
    """

    method: str
    url: URL
    headers: Mapping[str, str]
    proxy: URL | None
    origin: Origin
    head: bytes

    @classmethod
    def to(cls, method: str, url: URL, headers: Mapping[str, str], proxy: URL | None = None) -> RequestRoute:
        """The route to an http(s) URL that names a host. ValueError: a header holds a line break."""
        host, port = url.raw_host, url.port
        if not host or port is None:
            raise ValueError(f"{url.scheme}: no host and port to connect to")
        fields = CIMultiDict({"Host": url.host_port_subcomponent or host, "Accept": "*/*", **UNPACKED})
        fields.update(headers)
        lines = [f"{method} {url.raw_path_qs} HTTP/1.1", *(f"{n}: {value}" for n, value in fields.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header holds a line break")
        head = "".join(f"{line}\r\n" for line in lines).encode()
        return cls(method, url, headers, proxy, Origin(host, port, url.scheme == "https"), head)


# --- From a host's name to a connection: addresses, the race between them, TLS

CONNECT_TIMEOUT_S = 30.0  # SYNs at 0, 1, 3, 7 and 15 s have had their chance

P = TypeVar("P", bound=asyncio.Protocol)
T = TypeVar("T")

_Found = asyncio.Future[list[AddrInfoType]]
_NAMES_KEPT_S = 10.0  # load balancers change addresses at TTLs of a minute; a burst asks once
_NEXT_ADDRESS_AFTER_S = 0.25  # Happy Eyeballs (RFC 8305, section 5)
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # A long answer means minutes of silence, after which routers in between forget a connection.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), 60)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
        if hasattr(socket, name)
    ),
)


class Dialler:
    """Makes connections. Neither loop offers all of it: uvloop has no race between addresses.

    A name is looked up once for all who ask at the same time, and again after ten seconds. IPv6 and
    IPv4 addresses are tried in turn, the next one when the last has not answered for a quarter of a
    second (RFC 8305).
    """

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], tuple[_Found, float]] = {}
        self._tls: ssl.SSLContext | None = None

    async def dial(self, origin: Origin, protocol: Callable[[], P], within_s: float | None = None) -> P:
        """Connect, within `CONNECT_TIMEOUT_S` or so many seconds.

        Where it is cancelled or fails after ``connection_made``, the protocol's ``connection_lost`` is
        called all the same; on some loops twice.

        Raises NoConnection, ConnectTimeout, socket.gaierror, ssl.SSLError: as `WireError` says.
        """
        return await self._in_time(self._connect(origin, protocol), origin, within_s)

    async def try_out(self, origin: Origin, within_s: float) -> None:
        """Connect as `dial` does, without TLS, and hang up."""
        (await self._in_time(self._socket(origin), origin, within_s)).close()

    async def _in_time(self, connecting: Coroutine[Any, Any, T], origin: Origin, within_s: float | None) -> T:
        timeout = asyncio.timeout(CONNECT_TIMEOUT_S if within_s is None else within_s)
        try:
            async with timeout:
                return await connecting
        except (socket.gaierror, ssl.SSLError):
            raise
        except OSError as error:
            if timeout.expired() and self._is_looked_up(origin):
                raise socket.gaierror(socket.EAI_AGAIN, "no answer from the name service") from None
            if timeout.expired():
                raise ConnectTimeout from None
            raise NoConnection(error) from None  # a TimeoutError too, if it is the system's own

    async def aclose(self) -> None:
        """End the look-ups of names that nobody waits for any more."""
        lookups = [lookup for lookup, _ in self._lookups.values()]
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _socket(self, origin: Origin) -> socket.socket:
        addresses = await self._addresses(asyncio.get_running_loop(), origin.host, origin.port)
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S)
        try:
            for option in _SOCKET_OPTIONS:
                connected.setsockopt(*option)
        except OSError:
            connected.close()
            raise
        return connected

    async def _connect(self, origin: Origin, protocol: Callable[[], P]) -> P:
        loop, connected = asyncio.get_running_loop(), await self._socket(origin)
        tls, name = (self._context(), origin.host.rstrip(".")) if origin.tls else (None, None)
        made: list[P] = []

        def make() -> P:
            made.append(protocol())
            return made[0]

        connection: P | None = None
        try:
            _, connection = await loop.create_connection(make, sock=connected, ssl=tls, server_hostname=name)
        finally:
            if connection is None:
                # Who was told of a connection may wait for its end; uvloop tells of none.
                for reported in made:
                    reported.connection_lost(None)
        return connection

    async def _addresses(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[AddrInfoType]:
        try:
            family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
            if "%" not in host:
                return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        except ValueError:
            pass  # a name
        lookup, begun_at = self._lookups.get((host, port), (None, 0.0))
        if lookup is None or (lookup.done() and (_failed(lookup) or loop.time() - begun_at > _NAMES_KEPT_S)):
            lookup = _look_up(loop, host, port)
            lookup.add_done_callback(_failed)
            self._lookups[host, port] = lookup, loop.time()
        return await asyncio.shield(lookup)

    def _is_looked_up(self, origin: Origin) -> bool:
        lookup, _ = self._lookups.get((origin.host, origin.port), (None, 0.0))
        return lookup is not None and not lookup.done()

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = trusted_certificates()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> _Found:
    """Ask the system for a host's addresses, in a thread that nobody waits for when the program ends.

    A name service that is away is asked for half a minute, and the loops' own threads are waited for.
    """
    found: _Found = loop.create_future()

    def settle(outcome: list[AddrInfoType] | OSError) -> None:
        if found.done():
            return
        if isinstance(outcome, OSError):
            found.set_exception(outcome)
        else:
            found.set_result(outcome)

    def ask() -> None:
        outcome: list[AddrInfoType] | OSError = socket.gaierror(socket.EAI_FAIL, "the look-up failed")
        try:
            outcome = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            outcome = error
        except ValueError:  # IDNA has rules for names
            outcome = socket.gaierror(socket.EAI_NONAME, "no host can have this name")
        finally:
            with suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=ask, name=f"look-up of {host}", daemon=True).start()
    return found


def _failed(lookup: _Found) -> bool:
    return lookup.cancelled() or lookup.exception() is not None


KEPT_IDLE_S = 60.0
"""A connection at rest for longer is not trusted to be there."""

_ROOM_AFTER_S = 0.05  # a round trip or two: a host that still listens has answered by then
_Waiter = asyncio.Future[Connection]


class _Unheard(NamedTuple):
    """A request on a new connection that has brought nothing yet.

    ``since`` (the loop's time) it waits, or waits again after room was made for it ``times`` times;
    ``answers`` is how many the host had given then.
    """

    since: float
    answers: int
    times: int


class Pool:
    """Gives each request a connection of its own.

    The one used last is used next, so that those which a smaller load does not need grow old and are
    closed. Where none is at rest, a new one is made, and whichever comes first, it or one that comes to
    rest meanwhile, serves who has waited longest.

    Some servers serve only so many connections at a time and leave the others unread, though they seem
    connected. So while a new connection stays silent, others make room for it: one that nobody needs
    just now, and one of those in use when the host has answered many requests that came later. Room
    made in vain costs a handshake; each silent connection asks for it at growing intervals.
    """

    def __init__(self, origin: Origin, dialler: Dialler) -> None:
        self.loop = asyncio.get_running_loop()
        self._origin = origin
        self._dialler = dialler
        self._idle: deque[Connection] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._dials: dict[asyncio.Task[Connection], None] = {}
        self._unheard: dict[Connection, _Unheard] = {}
        self._answers = 0
        self._making_room: asyncio.TimerHandle | None = None
        self._closed = False
        self.open: set[Connection] = set()

    def take(self, now: float) -> Connection | None:
        """The connection that was used last, if there is one at rest that can be used."""
        idle = self._idle
        while idle and idle[0].at_rest_since < now - KEPT_IDLE_S:
            idle[0].end()
        while idle:
            connection = idle.pop()
            connection.resting = False
            if connection.usable:
                return connection
        return None

    async def wait(self, deadline: float) -> Connection:
        """A new connection, or one that comes to rest before that; ``deadline`` is in the loop's time.

        Raises WireError, TimeoutError, socket.gaierror, ssl.SSLError: none came about; see `WireError`.
        """
        if self._closed:
            raise Closed(sent=False)
        waiter: _Waiter = self.loop.create_future()
        self._waiters.append(waiter)
        self._dial()
        try:
            async with asyncio.timeout_at(deadline):
                connection = await waiter
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        except TimeoutError:
            self._withdraw(waiter)
            raise NoTurn from None
        if connection.usable:
            return connection
        if not connection.heard:
            raise NoConnection(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        return await self.wait(deadline)  # it ended as others do that were used: another may be had

    async def aclose(self) -> None:
        """End every connection, those being made included; returns when their sockets are closed."""
        self._closed = True
        if self._making_room is not None:
            self._making_room.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(Closed(sent=False))
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        await asyncio.gather(*(connection.aclose() for connection in list(self.open)))

    # What connections tell

    def opened(self, connection: Connection) -> None:
        self.open.add(connection)

    def requested_first(self, connection: Connection) -> None:
        """Its first request is sent."""
        self._unheard[connection] = _Unheard(self.loop.time(), self._answers, 0)

    def heard_first(self, connection: Connection) -> None:
        """Its first bytes have come."""
        self._unheard.pop(connection, None)

    def rests(self, connection: Connection) -> None:
        """Its answer is whole, and another request can follow."""
        self._answers += 1
        if self._unheard and self._is_overtaken():
            connection.end()
        elif self._waiters:
            self._offer(connection)
        else:
            self._rest(connection)

    def leaves(self, connection: Connection) -> None:
        """It is at rest no more, because it ends."""
        self._idle.remove(connection)

    def gone(self, connection: Connection) -> None:
        self.open.discard(connection)
        self._unheard.pop(connection, None)

    # Who waits

    def _offer(self, connection: Connection) -> None:
        if self._closed:
            connection.end()
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._rest(connection)

    def _rest(self, connection: Connection) -> None:
        connection.at_rest_since = self.loop.time()
        connection.resting = True
        self._idle.append(connection)
        if self._unheard and self._making_room is None:
            self._making_room = self.loop.call_later(_ROOM_AFTER_S, self._make_room)

    def _next_waiter(self) -> _Waiter | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _withdraw(self, waiter: _Waiter) -> None:
        """It waits no more, whatever it was given in the same moment."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif not waiter.cancelled() and waiter.exception() is None:
            self._offer(waiter.result())
        if len(self._dials) > len(self._waiters):
            next(reversed(self._dials)).cancel()

    # Making connections

    def _dial(self) -> None:
        """Make a connection, unless as many are being made as are waited for.

        What was begun for somebody who took another goes on: it will be needed if the load stays, and
        given up each time it would never be had.
        """
        if len(self._dials) < len(self._waiters):
            make = partial(Connection, self.loop, self)
            dial = self.loop.create_task(self._dialler.dial(self._origin, make))
            self._dials[dial] = None
            dial.add_done_callback(self._dialled)

    def _dialled(self, dial: asyncio.Task[Connection]) -> None:
        del self._dials[dial]
        if dial.cancelled():
            self._dial()  # for whoever came while it was being ended
            return
        error = dial.exception()
        if error is None:
            self._offer(dial.result())
        elif isinstance(error, ConnectTimeout) and self.open:
            self._dial()  # the host serves others meanwhile: one of theirs may come to rest
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_exception(error)

    # Making room

    def _is_overtaken(self) -> bool:
        """Whether the request that has waited longest makes room for itself now.

        As many answers as there are connections may belong to requests that were sent before it.
        """
        connection, unheard = next(iter(self._unheard.items()))
        if self._answers - unheard.answers < 2 * len(self.open) << unheard.times:
            return False
        self._made_room(connection, unheard)
        return True

    def _make_room(self) -> None:
        """Close connections at rest while requests on new ones hear nothing: one for each."""
        self._making_room = None
        now = self.loop.time()
        while self._unheard and self._idle:
            connection, unheard = next(iter(self._unheard.items()))
            rested_at = self._idle[0].at_rest_since
            due = max(rested_at + _ROOM_AFTER_S, unheard.since + (_ROOM_AFTER_S * 2**unheard.times))
            if due > now:
                self._making_room = self.loop.call_at(due, self._make_room)
                return
            self._made_room(connection, unheard)
            self._idle[0].end()

    def _made_room(self, connection: Connection, unheard: _Unheard) -> None:
        """Last in turn, and less eager the next time."""
        del self._unheard[connection]
        self._unheard[connection] = _Unheard(self.loop.time(), self._answers, unheard.times + 1)


class Wire:
    """Sends requests of one event loop, each on a connection of its own while it is under way."""

    def __init__(self) -> None:
        self._dialler = Dialler()
        self._pools: dict[Origin, Pool] = {}
        self._closed = False

    @property
    def connections(self) -> int:
        """Open sockets, at rest or not."""
        return sum(len(pool.open) for pool in self._pools.values())

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply:
        """Send one request, once, and bring its answer; redirects and errors are answers too.

        ``timeout_s`` is for all of it, connecting included. Cancelling ends the connection that the
        answer would have come on.

        Raises WireError, TimeoutError, socket.gaierror, ssl.SSLError: there is no answer; see `WireError`.
        """
        if self._closed:
            raise Closed(sent=False)
        if (pool := self._pools.get(route.origin)) is None:
            pool = self._pools[route.origin] = Pool(route.origin, self._dialler)
        now = pool.loop.time()
        deadline = now + timeout_s
        connection = pool.take(now) or await pool.wait(deadline)
        if body is None:
            data, large = route.head + b"\r\n", False
        else:
            large = len(body) > LARGE_BODY
            data = b"%bContent-Length: %d\r\n\r\n%b" % (route.head, len(body), b"" if large else body)
        waiter = connection.ask(data, deadline)
        try:
            if large and body is not None:
                await connection.pour(body)
            return await waiter
        except asyncio.CancelledError:
            connection.abandon(waiter)
            raise

    async def aclose(self) -> None:
        """End every connection, those still connecting included; returns when their sockets are closed.

        It is for good: what is under way, and whatever is sent later, gets `Closed`.
        """
        self._closed = True
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))
        await self._dialler.aclose()
