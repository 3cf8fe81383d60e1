"""A wire with one place to ask, and servers that are nothing but a handler."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from raw_server import Script, reply
from yarl import URL

from coeval.models.transport.connection import HttpReply
from coeval.models.transport.pool import RequestRoute, Wire

OK = reply(200, b"fine")
LONG_S = 20.0


class Asking:
    """A wire, and one place to ask."""

    def __init__(self, url: str) -> None:
        self.wire = Wire()
        self.route = RequestRoute.make("POST", URL(f"{url}/chat"), {"Authorization": "Bearer x"})

    async def send(self, body: bytes | None = b"{}", timeout_s: float = LONG_S) -> HttpReply:
        return await self.wire.send(self.route, body, timeout_s)


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[Asking]:
    """Afterwards no socket is open and no request under way."""
    client = Asking(url)
    try:
        yield client
    finally:
        await client.wire.aclose()
        assert client.wire.connections == 0


def in_pieces(data: bytes, size: int) -> Script:
    async def write(writer: asyncio.StreamWriter) -> None:
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)

    return write


def then_closing(data: bytes) -> Script:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return write


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    handler: Handler, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A server that is nothing but this handler; its port. What it accepted is closed with it."""
    handling: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.create_task(handle(reader, writer)))

    async with await asyncio.start_server(accept, host, 0, ssl=tls, limit=1 << 23) as listener:
        yield listener.sockets[0].getsockname()[1]
        for task in handling:
            task.cancel()
        await asyncio.gather(*handling, return_exceptions=True)
        await asyncio.sleep(0)
