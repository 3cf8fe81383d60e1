"""A fake host in a thread of its own, for tests that wait in theirs for commands that are killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
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
