"""The wire: HTTP/1.1 requests on connections that are kept.

Driving models is what this project exists for, and what a request costs in Python decides how many
hosts and cards one process keeps busy; docs/decisions/0003-our-own-wire.md has the figures. Requests
that have to go through a proxy take `models.transport.proxied` instead.
"""

from __future__ import annotations

import asyncio

from coeval.models.transport.body import Closed
from coeval.models.transport.connection import LARGE_BODY, HttpReply
from coeval.models.transport.pool import Dialler, Origin, Pool, RequestRoute


class Wire:
    """Sends requests of one event loop, each on a connection of its own while it is under way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
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

        Raises
        ------
        WireError, TimeoutError, socket.gaierror, ssl.SSLError
            there is no answer; see `WireError`.
        """
        if self._closed:
            raise Closed(sent=False)
        now = self._loop.time()
        deadline = now + timeout_s
        pool = self._pools.get(route.origin) or self._open_pool(route.origin)
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

    def _open_pool(self, origin: Origin) -> Pool:
        pool = self._pools[origin] = Pool(origin, self._dialler)
        return pool
