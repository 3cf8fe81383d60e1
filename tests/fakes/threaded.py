"""Fake hosts in a thread of their own, for tests that wait in theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

HostT = TypeVar("HostT")


@contextmanager
def in_a_thread(served: AbstractAsyncContextManager[HostT]) -> Iterator[HostT]:
    """The host that ``served`` gives, as long as this is open."""
    ready, end = threading.Event(), threading.Event()
    found: list[HostT] = []

    async def serve() -> None:
        async with served as host:
            found.append(host)
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        end.set()
        thread.join(30)


@contextmanager
def http_in_a_thread(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL at which ``handler`` answers, as long as this is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
