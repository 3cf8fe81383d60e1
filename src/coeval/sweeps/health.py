"""Waiting until a server is up, and being sure that it is ours that answers."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from yarl import URL

from coeval.core.errors import ServerDown, Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain import plain
from coeval.core.text import listed
from coeval.models.transport.body import WireError
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.pool import RequestRoute, Wire
from coeval.sweeps.guard import processes
from coeval.sweeps.server_process import ServerProcess

# --- Free ports and listeners

# Above the ports of common services (8000, 8080, 11434), below those that systems give to clients.
_LOWEST, _TRIES = 18_000, 200
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


class Listening(NamedTuple):
    """Who takes connections on a port: ``ours``; ``stranger``, the id of another process, 0 for one that
    cannot be seen into."""

    ours: bool
    stranger: int | None


def free_port(host: str) -> int:
    """A port on which nobody listens, below those that the system gives to outgoing connections: minutes may
    pass until the server takes it.

    Raises UsageError: there is none.
    """
    highest = _lowest_outgoing() - 1
    for port in random.sample(range(_LOWEST, highest), _TRIES):
        if is_free(host, port):
            return port
    raise UsageError(
        f"no free port was found on {host} between {_LOWEST} and {highest}; end what listens there"
    )


def _lowest_outgoing() -> int:
    try:
        lowest = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32_768
    return lowest if lowest > _LOWEST + 2 * _TRIES else 65_535


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    if any(True for _ in _listening_sockets(port)):
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


def listening(port: int, pids: Collection[int]) -> Listening:
    """Whether these processes take connections on a port, and whether any other does: servers of one user may
    share a port (``SO_REUSEPORT``), and then answer for each other."""
    if not any(table.exists() for table in _TABLES):  # then a server is taken at its word
        return Listening(ours=True, stranger=None)
    found = set(_listening_sockets(port))
    mine = found & _sockets_of(pids)
    others = found - mine
    if not others:
        return Listening(bool(mine), stranger=None)
    owner = next((pid for pid in processes() if others.intersection(_sockets_of([pid]))), 0)
    return Listening(bool(mine), stranger=owner)


def _listening_sockets(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on a port, at any address of this machine."""
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]


def _sockets_of(pids: Collection[int]) -> set[str]:
    targets: list[str] = []
    for pid in pids:
        with suppress(OSError):  # of another user, or just gone
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    targets.append(str(descriptor.readlink()))
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


# Between two looks, at first and later.
_LOOK_S = (0.1, 1.0)
# A server that loads weights answers late, if its event loop is blocked meanwhile.
_ANSWER_S = 10.0
# Servers without `/health` say so in one of these; the list of models is asked instead.
_NOT_THERE = (404, 405, 501)
# A served model may be named by its whole path; messages show where it begins.
_LONGEST_NAME = 120


async def until_up(server: ServerProcess, url: str, within_s: float, key: str | None = None) -> None:
    """Wait until /health, or ``url``/models where that is not there, answers 200, and it is this server that
    listens there.

    Raises ServerDown: the server has ended, it is not up in time, or another process listens on its port.
    """
    began, look_s = time.monotonic(), _LOOK_S[0]
    wire = Wire()
    try:
        while not server.down.is_set():
            if time.monotonic() - began > within_s:
                raise ServerDown(
                    f"the server was not up after {within_s:.0f} s; give it more time (--start-timeout), "
                    "or see why it hangs",
                    again=False,
                )
            if await asyncio.to_thread(_is_ours, server) and await _answers(wire, url, key):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    await server.down.wait()
            look_s = min(look_s * 1.5, _LOOK_S[1])
    finally:
        await wire.aclose()
    raise ServerDown("the server ended before it was up")


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
