"""No test reaches beyond this machine; the ``coeval`` command as a user calls it, in this process."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from cli.invoked import Command, Ended
from hypothesis import settings

from coeval.cli.main import main

# Machines are shared and slow at times; how long an example takes is `perf`'s business.
settings.register_profile("coeval", deadline=None)
settings.load_profile("coeval")


def pytest_configure() -> None:
    """Who runs the tests in the background may have had signals ignored; the commands under test must not."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


_STARTS_A_PROCESS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_unit_test = False


def _no_process(event: str, _: object) -> None:
    if _unit_test and event in _STARTS_A_PROCESS:
        raise RuntimeError("a unit test started a process: mark it with @pytest.mark.process")


sys.addaudithook(_no_process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    global _unit_test
    _unit_test = not any(item.iter_markers("process")) and not any(item.iter_markers("system"))
    try:
        return (yield)
    finally:
        _unit_test = False


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting or resolving anything but this machine fails the test, whoever would catch an OSError.

    Names below ``.invalid`` may be resolved: they are there to fail (RFC 6761).
    """
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]):
            raise RuntimeError(f"a test tried to connect to {address[0]}")
        connect(self, address)

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name and not _is_here(name) and not name.endswith(".invalid"):
            raise RuntimeError(f"a test tried to resolve {name}")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_resolve)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")  # pip is a process of its own


@pytest.fixture(autouse=True)
def out_of_time_as_before() -> Iterator[None]:
    """A command that ran in this process ignores SIGXCPU from its end on; what tests start inherits that."""
    before = signal.getsignal(signal.SIGXCPU)
    yield
    if signal.getsignal(signal.SIGXCPU) is not before:
        signal.signal(signal.SIGXCPU, before)


@pytest.fixture
def coeval(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """``coeval(*arguments)``; paths are written as text. What a run sets for its process is set back."""
    monkeypatch.setenv("COLUMNS", "200")
    package = logging.getLogger("coeval")
    level, thresholds = package.level, gc.get_threshold()

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["coeval", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        code = end.value.code
        assert isinstance(code, int)
        return Ended(code, *capsys.readouterr())

    yield call
    package.setLevel(level)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
