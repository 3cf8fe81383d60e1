"""Whether a host takes connections at all, found out soon and without asking it anything."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import cast

from yarl import URL

from coeval.core.errors import ModelError
from coeval.models.connections.dial import Dialler
from coeval.models.connections.route import Origin
from coeval.models.connections.wire_errors import ConnectTimeout, NoConnection
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.faults import from_exception, no_proxy, place

__all__ = ["REACH_S", "reach"]

REACH_S = 3.0
"""How long a host is tried before it is said to be away."""
_AGAIN_AFTER_S = 0.5
"""A host may be starting, a name service stumble; each further pause is twice as long."""


async def reach(endpoint: Endpoint, path: str, method: str = "POST") -> None:
    """Connect to the endpoint, or to the proxy on the way there, and hang up; ``path`` and ``method`` are
    those of the request that is to follow, for the error.

    Raises
    ------
    ConnectionFailed
        that was refused, not replied to or not resolved, again and again for `REACH_S`.
    """
    loop = asyncio.get_running_loop()
    dialler = Dialler()
    target = endpoint.proxy or URL(endpoint.url)
    origin = Origin(target.raw_host or "", target.port or 0, tls=False)
    deadline = loop.time() + REACH_S
    pause_s = _AGAIN_AFTER_S
    try:
        while True:
            try:
                caller = await dialler.dial(origin, _Caller, deadline - loop.time())
            except (NoConnection, ConnectTimeout, socket.gaierror) as error:
                if loop.time() + pause_s > deadline:
                    told = _told(endpoint, place(method, URL(endpoint.url + path)), error)
                    told.args = (endpoint.told(str(told)),)
                    raise told from None
            else:
                await caller.hang_up()
                return
            await asyncio.sleep(pause_s)
            pause_s *= 2
    finally:
        await dialler.aclose()


class _Caller(asyncio.Protocol):
    """A connection on which nothing is said."""

    def __init__(self) -> None:
        self._closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    async def hang_up(self) -> None:
        """Close the socket. Within `connection_made` uvloop does not own it yet, and it is closed twice."""
        self._transport.abort()
        await self._closed


def _told(
    endpoint: Endpoint, where: str, error: NoConnection | ConnectTimeout | socket.gaierror
) -> ModelError:
    if endpoint.proxy is None:
        return from_exception(error, where, REACH_S)
    match error:
        case NoConnection():
            return no_proxy(where, error.cause)
        case ConnectTimeout():
            return no_proxy(where, TimeoutError(errno.ETIMEDOUT, "no reply"))
        case _:
            return no_proxy(where, error)
