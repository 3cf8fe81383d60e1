"""From a host's name to a connection: addresses, the race between them, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection

from coeval.models.connections.route import Origin
from coeval.models.connections.wire_errors import ConnectTimeout, NoConnection
from coeval.models.transport.network import trusted_certificates

__all__ = ["CONNECT_TIMEOUT_S", "Dialler"]

CONNECT_TIMEOUT_S = 30.0

P = TypeVar("P", bound=asyncio.Protocol)

_Found = asyncio.Future[list[AddrInfoType]]
_NAMES_KEPT_S = 10.0
_NEXT_ADDRESS_AFTER_S = 0.25
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

        Raises
        ------
        NoConnection, ConnectTimeout, socket.gaierror, ssl.SSLError
            as `models.wire_errors` says.
        """
        timeout = asyncio.timeout(CONNECT_TIMEOUT_S if within_s is None else within_s)
        try:
            async with timeout:
                return await self._connect(asyncio.get_running_loop(), origin, protocol)
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

    async def _connect(self, loop: asyncio.AbstractEventLoop, origin: Origin, protocol: Callable[[], P]) -> P:
        addresses = await self._addresses(loop, origin.host, origin.port)
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S)
        try:
            for option in _SOCKET_OPTIONS:
                connected.setsockopt(*option)
        except OSError:
            connected.close()
            raise
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
                for told in made:  # who was told of a connection may wait for its end; uvloop tells of none
                    told.connection_lost(None)
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
            trusted = trusted_certificates()
            self._tls = trusted if isinstance(trusted, ssl.SSLContext) else ssl.create_default_context()
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
