"""``python -m coeval.sweeps.servers.guard``: the small process between a leg and its server.

It starts the server in a session of its own and writes its output to a bounded log. Its standard input is a
pipe that the leg holds open, whose first line says what to start: when it ends, by whatever death of the leg,
the guard ends the server's process group. On standard output it says what became of the server, one line
each: ``started PID PIPE`` or ``refused WHY``; ``down`` when it has ended or is being ended, ``ended CODE``
when nothing of its group is left.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from coeval.core.foreign import decode
from coeval.sweeps.servers.process_group import MARK, end_group, marked, members, target

__all__ = ["MODULE", "Launch"]

MODULE = "coeval.sweeps.servers.guard"
LIFELINE, SAYING = 0, 1
LOOK_S = 0.2
_CHUNK = 1 << 16
_LAST_CHUNKS = 64
"""More than a pipe holds; what still writes then is no process of the group."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a guard is told. ``environment`` goes over its own; of the output ``most_bytes`` are kept, half of
    them in ``log`` and what was before in ``log`` with ``.1`` after it; ``grace_s`` is how long the group may
    take to end by itself."""

    command: tuple[str, ...]
    environment: dict[str, str]
    log: str
    most_bytes: int
    grace_s: float


class BoundedLog:
    """A log that takes no more than ``most_bytes`` on disk: the older half goes when there is more.

    What the disk refuses is lost: the server goes on.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._half = most_bytes // 2
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, data: bytes) -> None:
        with suppress(OSError):
            if self._size and self._size + len(data) > self._half:
                self._file.close()
                self._path.replace(older(self._path))
                self._file, self._size = self._path.open("wb", buffering=0), 0
            self._size += self._file.write(data)

    def close(self) -> None:
        self._file.close()


def older(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


class Guard:
    """A server with its output, until it or the lifeline ends."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._log = BoundedLog(Path(launch.log), launch.most_bytes)
        self._ending = False
        self._selector = selectors.DefaultSelector()
        self._output, writing = os.pipe()
        try:
            self._server = subprocess.Popen(  # noqa: S603  the user's own command
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env={**os.environ, **launch.environment},
                start_new_session=True,
            )
        finally:
            os.close(writing)
        self._selector.register(self._output, selectors.EVENT_READ)
        self._selector.register(LIFELINE, selectors.EVENT_READ)

    @property
    def started(self) -> str:
        return f"started {self._server.pid} {self._pipe}"

    @property
    def _pipe(self) -> str:
        """Its output, as ``/proc`` names it; empty where there is none."""
        return target(os.getpid(), self._output)

    def end_soon(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = True

    def watch(self) -> int:
        """Wait for the end of the server or of the lifeline, and end the group; the server's exit code."""
        while not (self._ending or self._has_ended()):
            self._pass_on(LOOK_S)
        _say("down")
        for seconds in end_group(self._server.pid, self._left, self._launch.grace_s):
            self._pass_on(seconds)
        for _ in range(_LAST_CHUNKS):
            if not self._pass_on(0.0):
                break
        return self._server.poll() or 0

    def _has_ended(self) -> bool:
        """It is not waited for yet: until the group has ended, its number must not be given to others."""
        if sys.platform == "darwin":
            return self._server.poll() is not None
        return os.waitid(os.P_PID, self._server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _left(self) -> list[int]:
        mark = self._launch.environment.get(MARK, "")
        return sorted({*members(self._server.pid), *marked(mark, self._pipe)})

    def _pass_on(self, patience_s: float) -> bool:
        """Take what comes meanwhile: output, and the end of the lifeline. False: no output came."""
        came = False
        for key, _ in self._selector.select(patience_s):
            data = _read(key.fd)
            if not data:
                self._selector.unregister(key.fd)
            if key.fd == LIFELINE:
                self._ending = self._ending or not data
            elif data:
                came = True
                self._log.write(data)
        return came


def main() -> None:
    if not (line := _first_line()).endswith(b"\n"):
        return  # the leg was gone before it could say what to start
    try:
        guard = Guard(decode(line, Launch))
    except OSError as error:
        _say(f"refused {error.strerror}")
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, guard.end_soon)
    _say(guard.started)
    _say(f"ended {guard.watch()}")


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (data := _read(LIFELINE)):
        line += data
    return line


def _read(descriptor: int) -> bytes:
    """What has come; nothing at the end, which may be a reset where it is a socket."""
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""


def _say(what: str) -> None:
    with suppress(OSError):  # the leg is gone: nobody listens
        os.write(SAYING, f"{what}\n".encode())


if __name__ == "__main__":
    main()
