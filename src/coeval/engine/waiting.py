"""What is to be said of the hosts of a run, such as why nothing comes; letting go when it is interrupted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from coeval.core.errors import Draining
from coeval.models.transport.http import Http

T = TypeVar("T")

LOOK_S = 1.0
AGAIN_AFTER_S = 60.0
"""A host that is still in trouble is named again."""


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
async def telling_of_hosts(
    http: Http,
    note: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Meanwhile, say of each host that gives nothing but failures what they are (see `Http.troubles`), and
    why the throttle is not shared, if it is not; in the end, which hosts have repeated a credential: their
    answers are kept without it, so they are not as they were."""
    telling = asyncio.create_task(_tell(http, note, clock, sleep), name="waits")
    try:
        yield
    finally:
        for sentence in (*http.hosts.throttle_problems(), *http.repeating()):
            note(sentence)
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
    told: dict[object, float] = {}
    while True:
        await sleep(LOOK_S)
        now = clock()
        for problem in http.hosts.throttle_problems():
            note(problem)
        for host, sentence in http.troubles().items():
            if now >= told.get(host, float("-inf")) + AGAIN_AFTER_S:
                told[host] = now
                note(sentence)
