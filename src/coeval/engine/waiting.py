"""While nothing comes: say why, and let go when the run is interrupted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from coeval.core.errors import Draining
from coeval.models.http import Http

T = TypeVar("T")

LOOK_S = 1.0
TOLD_AFTER_S = 3.0
"""A host whose requests have waited so long without a pause is worth a line …"""
AGAIN_AFTER_S = 60.0
"""… and another after this."""


async def unless_interrupted(work: Coroutine[Any, Any, T], interrupt: asyncio.Event, message: str) -> T:
    """The result of ``work``, or Draining with ``message`` as soon as the run is interrupted."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(interrupt.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Draining(message)
        return working.result()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


@asynccontextmanager
async def telling_waits(
    http: Http,
    note: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Meanwhile, say of each host whose requests have to be sent again why that is so."""
    telling = asyncio.create_task(_tell(http, note, clock, sleep), name="waits")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        if not telling.cancelled():
            telling.result()  # it ends by itself only where nobody can be told


async def _tell(
    http: Http,
    note: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], Coroutine[Any, Any, None]],
) -> None:
    since: dict[object, float] = {}
    told: dict[object, float] = {}
    while True:
        await sleep(LOOK_S)
        now, waits = clock(), http.waits()
        since = {host: since.get(host, now) for host in waits}
        for host, wait in waits.items():
            due = told[host] + AGAIN_AFTER_S if host in told else since[host] + TOLD_AFTER_S
            if now >= due:
                told[host] = now
                note(wait.sentence)
