"""Whose port it is: a server is asked only where nobody else could answer for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from coeval.sweeps.health import free_port, is_free, listening

LISTENER = """
import socket, sys
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.listen()
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def stranger() -> Iterator[tuple[int, int]]:
    """A process that listens on a port, and would share it; both numbers."""
    port = free_port("127.0.0.1")
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, f"{port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process.pid, port


def test_a_port_that_is_shared_is_a_strangers_too(stranger: tuple[int, int]) -> None:
    pid, port = stranger
    assert not is_free("127.0.0.1", port)
    assert listening(port, [os.getpid()]) == (False, pid)
    assert listening(port, [pid]) == (True, None)
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        mine.bind(("127.0.0.1", port))
        mine.listen()
        assert listening(port, [os.getpid()]) == (True, pid)
        assert listening(port, [os.getpid(), pid]) == (True, None)


def test_a_free_port_is_below_those_of_outgoing_connections() -> None:
    ports = [free_port("127.0.0.1") for _ in range(20)]
    assert max(ports) < 32_768
    assert len(set(ports)) > 15
    assert all(is_free("127.0.0.1", port) for port in ports)
    assert listening(ports[0], [os.getpid()]) == (False, None)
