"""Waiting until a server is up, and being sure that it is ours that answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from yarl import URL

from coeval.core.errors import ServerDown, Undecodable
from coeval.core.foreign import decode
from coeval.core.plain import plain
from coeval.core.text import listed
from coeval.models.connections.reply_parser import HttpReply
from coeval.models.connections.route import RequestRoute
from coeval.models.connections.wire import Wire
from coeval.models.connections.wire_errors import WireError
from coeval.sweeps.servers.listening import listening
from coeval.sweeps.servers.server_process import ServerProcess

__all__ = ["served_names", "shown_names", "until_up"]

_LOOK_S = (0.1, 1.0)
"""Between two looks, at first and later."""
_ANSWER_S = 10.0
_NOT_THERE = (404, 405, 501)
_LONGEST_NAME = 120


async def until_up(
    server: ServerProcess, url: str, within_s: float, tell: Callable[[float], None], key: str | None = None
) -> None:
    """Wait until /health, or ``url``/models where that is not there, answers 200, and it is this server that
    listens there. ``tell`` is called at every look with the seconds that have passed.

    Raises
    ------
    ServerDown
        the server has ended, it is not up in time, or another process listens on its port.
    """
    began, look_s = time.monotonic(), _LOOK_S[0]
    wire = Wire()
    try:
        while not server.down.is_set():
            waited = time.monotonic() - began
            if waited > within_s:
                raise ServerDown(
                    f"the server was not up after {within_s:.0f} s; give it more time (--start-timeout), "
                    "or see why it hangs",
                    again=False,
                )
            tell(waited)
            if await asyncio.to_thread(_is_ours, server) and await _answers(wire, url, key):
                return
            await _pause(server, look_s)
            look_s = min(look_s * 1.5, _LOOK_S[1])
    finally:
        await wire.aclose()
    raise ServerDown("the server ended before it was up")


async def _pause(server: ServerProcess, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await server.down.wait()


def _is_ours(server: ServerProcess) -> bool:
    """Whether the server takes connections on its port; raises where anybody else does."""
    port = server.record.port
    found = listening(port, server.pids())
    if found.stranger:
        if server.down.is_set() or found.stranger in server.pids():  # it has just ended, or begun
            return False
        raise ServerDown(
            f"process {found.stranger} listens on port {port}, which is the server's, and is not of the "
            "server's process group: nothing was asked there. End it, or let the sweep choose the ports"
        )
    # It was free when the server was started: what listens there now and cannot be seen into came with it.
    return found.ours or found.stranger == 0


async def _answers(wire: Wire, url: str, key: str | None) -> bool:
    health = await _get(wire, f"{url.removesuffix('/v1')}/health", key)
    if health is None or health.status == 200:
        return health is not None
    if health.status not in _NOT_THERE:
        return False
    models = await _get(wire, f"{url}/models", key)
    return models is not None and models.status == 200


async def _get(wire: Wire, url: str, key: str | None) -> HttpReply | None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return await wire.send(RequestRoute.to("GET", URL(url), headers), None, _ANSWER_S)
    except (WireError, OSError):
        return None


async def served_names(url: str, key: str | None = None) -> list[str]:
    """The models that a server says it serves; none where it does not say."""
    wire = Wire()
    try:
        reply = await _get(wire, f"{url}/models", key)
    finally:
        await wire.aclose()
    try:
        found = decode(reply.body) if reply is not None and reply.status == 200 else None
    except Undecodable:
        found = None
    data = found.get("data") if isinstance(found, dict) else None
    rows = data if isinstance(data, list) else []
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def shown_names(names: Iterable[str]) -> str:
    """Names of models, as a message takes them."""
    return listed([plain(name)[:_LONGEST_NAME] for name in names])
