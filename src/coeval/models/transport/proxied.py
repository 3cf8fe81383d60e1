"""Requests through a proxy, by aiohttp, which implements CONNECT, TLS inside it and proxy credentials.

Imported with the first request that needs it: the import takes longer than the start of many runs.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from coeval.models.transport.body import (
    Body,
    Closed,
    ConnectTimeout,
    Lost,
    NoConnection,
    NoProxy,
    NotHttp,
    ProxyRefusal,
    WireError,
)
from coeval.models.transport.connection import LARGE_BODY, LONGEST_LINE, HttpReply
from coeval.models.transport.network import load_certificates
from coeval.models.transport.pool import CONNECT_TIMEOUT_S, UNPACKED, RequestRoute


def open_session(*, limit: int = 100, **settings: Any) -> aiohttp.ClientSession:
    """Open a session of at most ``limit`` connections (0: any number) that keeps no cookies, accepts headers
    as long as our own wire does, and never retries by itself."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, ssl=load_certificates()),
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
        **settings,
    )
    # aiohttp would send some requests a second time by itself, unseen by quota and attempts.
    session._retry_connection = False
    return session


def read_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return a reply's headers by lower-case name; the first of a repeated one."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    return headers


@contextmanager
def raise_wire_errors() -> Iterator[None]:
    """Raise aiohttp's exceptions as those that our own wire raises, the sockets' as they are."""
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError, aiohttp.EofStream) as error:
        raise _to_wire_error(error) from None


def _to_wire_error(error: Exception) -> Exception:
    match error:
        case aiohttp.ClientProxyConnectionError():
            return NoProxy(error.os_error)
        case aiohttp.ClientHttpProxyError():
            return ProxyRefusal(error.status, error.message)
        case aiohttp.ConnectionTimeoutError():
            return ConnectTimeout()
        case aiohttp.ClientConnectorCertificateError():
            return error.certificate_error
        case aiohttp.ClientSSLError():
            return error.os_error
        case aiohttp.ClientConnectorDNSError():
            return socket.gaierror(socket.EAI_NONAME, error.os_error.strerror)
        case aiohttp.ClientConnectorError():
            return NoConnection(error.os_error)
        case aiohttp.ServerDisconnectedError() | aiohttp.EofStream():
            return Lost(begun=False)
        case aiohttp.ClientPayloadError():
            return Lost(begun=True)
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return NotHttp(error.message)
        case OSError():
            return error
        case _:
            return Lost(begun=False, cause=error)


class ProxiedWire:
    """Sends requests as `models.transport.pool.Wire` does, through each route's proxy."""

    def __init__(self) -> None:
        self._session = open_session(
            limit=0,
            headers=UNPACKED,
            auto_decompress=False,  # it knows no bound; `Body` does
        )
        self._closed = False

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply:
        """Send as `models.transport.pool.Wire.send`."""
        if self._closed:
            raise Closed(sent=False)
        try:
            with raise_wire_errors():
                return await self._exchange(route, body, timeout_s)
        except (WireError, OSError):
            if self._closed:
                raise Closed(sent=True) from None
            raise

    async def _exchange(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply:
        """Send a request through the route's proxy, and read its reply."""
        large = body is not None and len(body) > LARGE_BODY
        async with self._session.request(
            route.method,
            route.url,
            data=io.BytesIO(body) if body is not None and large else body,  # piece by piece
            headers=route.headers,
            allow_redirects=False,
            proxy=route.proxy,
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S),
        ) as response:
            content = Body(", ".join(response.headers.getall("Content-Encoding", ())) or None)
            async for piece in response.content.iter_any():
                content.add(piece)
        return HttpReply.read(response.status, read_headers(response), content)

    async def aclose(self) -> None:
        """Close as `models.transport.pool.Wire.aclose`."""
        self._closed = True
        await self._session.close()
