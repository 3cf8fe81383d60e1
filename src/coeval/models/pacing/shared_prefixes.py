"""Which request goes first where several begin alike, and the host's cache is to keep what they share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from coeval.core.records import Request
from coeval.core.text import digest

__all__ = ["SharedPrefixes"]

_KEPT_S = 240.0
"""Anthropic's cache keeps a prefix for five minutes from its last use; the clocks are not the same."""
_MOST = 8192
"""Prefixes that are remembered. One that is forgotten costs a turn."""


class SharedPrefixes:
    """One of the requests that begin alike goes ahead; the others follow when it has ended, however it did.

    A host's cache has a prefix from the first answer on: requests that are sent at once would each pay for
    writing it, and none would read it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ahead: dict[str, asyncio.Future[None]] = {}
        self._used: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        """Wait until a request may be sent; it has been when this ends."""
        prefix = _prefix(request)
        ahead = self._ahead.get(prefix)
        if ahead is None and not self._is_kept(prefix):
            self._ahead[prefix] = first = asyncio.get_running_loop().create_future()
            try:
                yield
            finally:
                del self._ahead[prefix]
                first.set_result(None)
                self._use(prefix)
            return
        if ahead is not None:
            await asyncio.wait((ahead,))
        yield
        self._use(prefix)

    def _is_kept(self, prefix: str) -> bool:
        return self._clock() - self._used.get(prefix, float("-inf")) < _KEPT_S

    def _use(self, prefix: str) -> None:
        self._used.pop(prefix, None)
        self._used[prefix] = self._clock()
        if len(self._used) > _MOST:
            del self._used[next(iter(self._used))]


def _prefix(request: Request) -> str:
    """What stands for all that a request shares."""
    *before, last = request.messages
    whole = (part for message in before for part in (message.role, message.content))
    return digest(*whole, last.role, last.content[: request.shared])
