"""Ports of this machine: a free one, and who listens on it."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.sweeps.servers.process_group import processes

__all__ = ["Listening", "free_port", "is_free", "listening"]

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

    Raises
    ------
    UsageError
        there is none.
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
