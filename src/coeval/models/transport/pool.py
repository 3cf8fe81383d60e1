"""The wire: HTTP/1.1 requests over keep-alive connections, with a pool for each host.

docs/decisions/0013-our-wire-stays.md says why it is ours, and how it compares with others. Requests
through a proxy use `models.transport.proxied` instead.
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
from coeval.models.transport.network import load_certificates

# --- What all requests of a route share: the peer, and the head of the request

UNPACKED = {"Accept-Encoding": "identity"}
"""Models' replies are short: unpacking them would cost more than it saves."""


class Origin(NamedTuple):
    """The peer of a connection."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True, eq=False)
class RequestRoute:
    """One method at one URL with an endpoint's headers; made once and used for every request. ``head`` is the
    beginning of the request in bytes, up to its length. ``proxy`` is None without one."""

    method: str
    url: URL
    headers: Mapping[str, str]
    proxy: URL | None
    origin: Origin
    head: bytes

    @classmethod
    def make(
        cls, method: str, url: URL, headers: Mapping[str, str], proxy: URL | None = None
    ) -> RequestRoute:
        """Make the route to an http(s) URL that names a host. ValueError: a header holds a line break."""
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


# --- From a host name to a connection: addresses, the race between them, TLS

CONNECT_TIMEOUT_S = 30.0  # time for SYNs at 0, 1, 3, 7 and 15 s

P = TypeVar("P", bound=asyncio.Protocol)
T = TypeVar("T")

_Lookup = asyncio.Future[list[AddrInfoType]]
_NAMES_KEPT_S = 10.0  # a burst needs one lookup; load balancers change addresses at TTLs of a minute
_NEXT_ADDRESS_AFTER_S = 0.25  # Happy Eyeballs (RFC 8305, section 5)
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # A long answer means minutes of silence, after which routers drop a connection.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), 60)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
        if hasattr(socket, name)
    ),
)


class Dialler:
    """Makes connections. Neither event loop offers all of it: uvloop has no race between addresses.
    Concurrent lookups of a name share one, which is kept for ten seconds. IPv6 and IPv4 addresses are tried
    in turn, the next one after a quarter of a second without an answer (RFC 8305)."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], tuple[_Lookup, float]] = {}
        self._tls: ssl.SSLContext | None = None

    async def dial(self, origin: Origin, protocol: Callable[[], P]) -> P:
        """Connect. If cancelled, or if it fails after ``connection_made``, the protocol's
        ``connection_lost`` is called all the same; on some loops twice.
        Raises NoConnection, ConnectTimeout, socket.gaierror, ssl.SSLError: see `WireError`."""
        return await self._connect_or_raise_wire_error(
            self._connect(origin, protocol), origin, CONNECT_TIMEOUT_S
        )

    async def probe(self, origin: Origin, limit_s: float) -> None:
        """Connect as `dial` does, without TLS, and close the connection."""
        (await self._connect_or_raise_wire_error(self._connect_socket(origin), origin, limit_s)).close()

    async def _connect_or_raise_wire_error(
        self, connecting: Coroutine[Any, Any, T], origin: Origin, limit_s: float
    ) -> T:
        timeout = asyncio.timeout(limit_s)
        try:
            async with timeout:
                return await connecting
        except (socket.gaierror, ssl.SSLError):
            raise
        except OSError as error:
            if timeout.expired() and self._is_resolving(origin):
                raise socket.gaierror(socket.EAI_AGAIN, "no answer from the name service") from None
            if timeout.expired():
                raise ConnectTimeout from None
            raise NoConnection(error) from None  # a TimeoutError too, if it is the system's own

    async def aclose(self) -> None:
        """Cancel pending lookups."""
        lookups = [lookup for lookup, _ in self._lookups.values()]
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _connect_socket(self, origin: Origin) -> socket.socket:
        addresses = await self._resolve(asyncio.get_running_loop(), origin.host, origin.port)
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S)
        try:
            for option in _SOCKET_OPTIONS:
                connected.setsockopt(*option)
        except OSError:
            connected.close()
            raise
        return connected

    async def _connect(self, origin: Origin, protocol: Callable[[], P]) -> P:
        """Connect a protocol, with TLS if the origin asks for it."""
        loop, connected = asyncio.get_running_loop(), await self._connect_socket(origin)
        tls, name = (self._tls_context(), origin.host.rstrip(".")) if origin.tls else (None, None)
        made: list[P] = []

        def make() -> P:
            made.append(protocol())
            return made[0]

        connection: P | None = None
        try:
            _, connection = await loop.create_connection(make, sock=connected, ssl=tls, server_hostname=name)
        finally:
            if connection is None:
                # Observers may wait for the end of what was made; uvloop does not report it.
                for unconnected in made:
                    unconnected.connection_lost(None)
        return connection

    async def _resolve(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[AddrInfoType]:
        """Resolve a host's addresses, once for all who wait; an IP address needs no lookup."""
        try:
            family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
            if "%" not in host:
                return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        except ValueError:
            pass  # a name
        lookup, begun_at = self._lookups.get((host, port), (None, 0.0))
        if lookup is None or (
            lookup.done() and (_has_failed(lookup) or loop.time() - begun_at > _NAMES_KEPT_S)
        ):
            lookup = _resolve_in_thread(loop, host, port)
            lookup.add_done_callback(_has_failed)
            self._lookups[host, port] = lookup, loop.time()
        return await asyncio.shield(lookup)

    def _is_resolving(self, origin: Origin) -> bool:
        lookup, _ = self._lookups.get((origin.host, origin.port), (None, 0.0))
        return lookup is not None and not lookup.done()

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = load_certificates()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _resolve_in_thread(loop: asyncio.AbstractEventLoop, host: str, port: int) -> _Lookup:
    """Resolve a host's addresses, in a daemon thread that the end of the program does not wait for. If the
    name service is away, a lookup takes half a minute, and the loop would wait for threads of its own."""
    lookup: _Lookup = loop.create_future()

    def settle(outcome: list[AddrInfoType] | OSError) -> None:
        if lookup.done():
            return
        if isinstance(outcome, OSError):
            lookup.set_exception(outcome)
        else:
            lookup.set_result(outcome)

    def resolve() -> None:
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

    threading.Thread(target=resolve, name=f"look-up of {host}", daemon=True).start()
    return lookup


def _has_failed(lookup: _Lookup) -> bool:
    return lookup.cancelled() or lookup.exception() is not None


KEPT_IDLE_S = 60.0
"""A connection that was idle for longer may be dead."""

_ROOM_AFTER_S = 0.05  # one or two round trips: a host that reads the connection has answered by then
_Waiter = asyncio.Future[Connection]


class _SilentConnection(NamedTuple):
    """A request on a new connection that has brought nothing yet. It has waited ``since`` (the loop's time),
    or since room was last made for it, ``times`` times so far; ``answers`` counts the host's answers until
    then."""

    since: float
    answers: int
    times: int


class Pool:
    """Gives each request a connection of its own.

    The one used last is used next, so that connections which a smaller load does not need grow old and are
    closed. If none is idle, a new one is made; it, or one that becomes idle before, serves whoever has
    waited longest.

    Some servers serve only so many connections at a time and leave the others unread, though they accept
    them. So while a new connection stays silent, others make room for it: an idle one, or one in use once
    the host has answered many later requests. Room made in vain costs a handshake; each silent connection
    asks for it at growing intervals.
    """

    def __init__(self, origin: Origin, dialler: Dialler) -> None:
        self.loop = asyncio.get_running_loop()
        self._origin = origin
        self._dialler = dialler
        self._idle: deque[Connection] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._dials: dict[asyncio.Task[Connection], None] = {}
        self._silent: dict[Connection, _SilentConnection] = {}
        self._answers = 0
        self._room_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.open: set[Connection] = set()

    def take_idle(self, now: float) -> Connection | None:
        """Take the connection used last, if one is idle and usable."""
        idle = self._idle
        while idle and idle[0].idle_since < now - KEPT_IDLE_S:
            idle[0].end()
        while idle:
            connection = idle.pop()
            connection.is_idle = False
            if connection.is_usable:
                return connection
        return None

    async def wait_for_connection(self, deadline: float) -> Connection:
        """Wait for a new connection, or one that becomes idle before; ``deadline`` is in the loop's time.
        Raises WireError, TimeoutError, socket.gaierror, ssl.SSLError: there is none; see `WireError`."""
        if self._closed:
            raise Closed(sent=False)
        waiter: _Waiter = self.loop.create_future()
        self._waiters.append(waiter)
        self._start_dial_unless_enough()
        try:
            async with asyncio.timeout_at(deadline):
                connection = await waiter
        except asyncio.CancelledError:
            self._withdraw_waiter_and_spare_dial(waiter)
            raise
        except TimeoutError:
            self._withdraw_waiter_and_spare_dial(waiter)
            raise NoTurn from None
        if connection.is_usable:
            return connection
        if not connection.has_received:
            raise NoConnection(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        return await self.wait_for_connection(deadline)  # a used one ended, as they do: try another

    async def aclose(self) -> None:
        """End every connection, pending ones included; return when their sockets are closed."""
        self._closed = True
        if self._room_timer is not None:
            self._room_timer.cancel()
        while (waiter := self._pop_waiter()) is not None:
            waiter.set_exception(Closed(sent=False))
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        await asyncio.gather(*(connection.aclose() for connection in list(self.open)))

    # Events of connections

    def on_open(self, connection: Connection) -> None:
        self.open.add(connection)

    def on_first_request(self, connection: Connection) -> None:
        self._silent[connection] = _SilentConnection(self.loop.time(), self._answers, 0)

    def on_first_bytes(self, connection: Connection) -> None:
        self._silent.pop(connection, None)

    def on_idle(self, connection: Connection) -> None:
        """Reuse a connection whose reply is complete, or end it to make room for a silent one."""
        self._answers += 1
        if self._silent and self._postpone_silent_if_overtaken():
            connection.end()
        elif self._waiters:
            self._give_to_waiter(connection)
        else:
            self._keep_idle(connection)

    def on_no_longer_idle(self, connection: Connection) -> None:
        self._idle.remove(connection)

    def on_gone(self, connection: Connection) -> None:
        self.open.discard(connection)
        self._silent.pop(connection, None)

    # Waiting requests

    def _give_to_waiter(self, connection: Connection) -> None:
        if self._closed:
            connection.end()
        elif (waiter := self._pop_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._keep_idle(connection)

    def _keep_idle(self, connection: Connection) -> None:
        connection.idle_since = self.loop.time()
        connection.is_idle = True
        self._idle.append(connection)
        if self._silent and self._room_timer is None:
            self._room_timer = self.loop.call_later(_ROOM_AFTER_S, self._close_idle_for_silent)

    def _pop_waiter(self) -> _Waiter | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _withdraw_waiter_and_spare_dial(self, waiter: _Waiter) -> None:
        """Withdraw a waiter; pass on the connection it was given at the same moment."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif not waiter.cancelled() and waiter.exception() is None:
            self._give_to_waiter(waiter.result())
        if len(self._dials) > len(self._waiters):
            next(reversed(self._dials)).cancel()

    # Making connections

    def _start_dial_unless_enough(self) -> None:
        """Start a connection, unless as many are being made as are waited for. One begun for a waiter that
        took another goes on: it will be needed if the load stays, and if it were given up each time, there
        would never be one."""
        if len(self._dials) < len(self._waiters):
            make = partial(Connection, self.loop, self)
            dial = self.loop.create_task(self._dialler.dial(self._origin, make))
            self._dials[dial] = None
            dial.add_done_callback(self._finish_dial)

    def _finish_dial(self, dial: asyncio.Task[Connection]) -> None:
        del self._dials[dial]
        if dial.cancelled():
            self._start_dial_unless_enough()  # for requests that came while it was being cancelled
            return
        error = dial.exception()
        if error is None:
            self._give_to_waiter(dial.result())
        elif isinstance(error, ConnectTimeout) and self.open:
            self._start_dial_unless_enough()  # one of the host's open connections may become idle
        elif (waiter := self._pop_waiter()) is not None:
            waiter.set_exception(error)

    # Making room

    def _postpone_silent_if_overtaken(self) -> bool:
        """Check whether the silent request that has waited longest makes room for itself now. As many answers
        as there are connections may belong to requests sent before it."""
        connection, silent = next(iter(self._silent.items()))
        if self._answers - silent.answers < 2 * len(self.open) << silent.times:
            return False
        self._postpone_silent(connection, silent)
        return True

    def _close_idle_for_silent(self) -> None:
        """Close an idle connection for each silent one that is due."""
        self._room_timer = None
        now = self.loop.time()
        while self._silent and self._idle:
            connection, silent = next(iter(self._silent.items()))
            rested_at = self._idle[0].idle_since
            due = max(rested_at + _ROOM_AFTER_S, silent.since + (_ROOM_AFTER_S * 2**silent.times))
            if due > now:
                self._room_timer = self.loop.call_at(due, self._close_idle_for_silent)
                return
            self._postpone_silent(connection, silent)
            self._idle[0].end()

    def _postpone_silent(self, connection: Connection, silent: _SilentConnection) -> None:
        """Put a silent connection last in turn, with a longer wait."""
        del self._silent[connection]
        self._silent[connection] = _SilentConnection(self.loop.time(), self._answers, silent.times + 1)


class Wire:
    """Sends requests of one event loop, each on a connection of its own while it is in flight."""

    def __init__(self) -> None:
        self._dialler = Dialler()
        self._pools: dict[Origin, Pool] = {}
        self._closed = False

    @property
    def connections(self) -> int:
        return sum(len(pool.open) for pool in self._pools.values())

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply:
        """Send one request, once, and return its reply; redirects and errors are replies too. ``timeout_s``
        covers all of it, connecting included. Cancelling ends the connection. Raises WireError, TimeoutError,
        socket.gaierror, ssl.SSLError: there is no reply; see `WireError`."""
        if self._closed:
            raise Closed(sent=False)
        if (pool := self._pools.get(route.origin)) is None:
            pool = self._pools[route.origin] = Pool(route.origin, self._dialler)
        now = pool.loop.time()
        deadline = now + timeout_s
        connection = pool.take_idle(now) or await pool.wait_for_connection(deadline)
        if body is None:
            data, large = route.head + b"\r\n", False
        else:
            large = len(body) > LARGE_BODY
            data = b"%bContent-Length: %d\r\n\r\n%b" % (route.head, len(body), b"" if large else body)
        waiter = connection.send_request(data, deadline)
        try:
            if large and body is not None:
                await connection.write_body_until_reply(body)
            return await waiter
        except asyncio.CancelledError:
            connection.abandon(waiter)
            raise

    async def aclose(self) -> None:
        """End every connection for good: requests get `Closed`. Return when all sockets are closed."""
        self._closed = True
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))
        await self._dialler.aclose()
