"""``python -m coeval.sweeps.guard``: the small process between a worker and its server.

It starts the server in a session of its own and writes its output to a bounded log. Its standard input is a
pipe that the worker holds open, whose first line says what to start: when it ends, by whatever death of the
worker, the guard ends the server's process group. On standard output it says what became of the server, one
line each: ``started PID PIPE`` or ``refused WHY``; ``down`` when it has ended or is being ended, ``ended
CODE`` when nothing of its group is left.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from coeval.core.foreign import decode

# --- Server processes in ``/proc``
#
# A process group is ended by its number, and a number alone is given again to others. So whatever ends one
# that it has not started itself holds its members against the mark that they were started with: a variable in
# their environment, or the pipe that they write to, where a process has written over its environment (as
# those do that set a title for themselves).
#
# Without ``/proc`` a group is what the system says of its number.

MARK = "COEVAL_SWEEP_SERVER"
"""The variable that holds a server's mark, a random text; whatever it starts inherits it."""

_PROC = Path("/proc")
_ENDED = "ZXx"
# Seconds: a GPU's driver frees a process's memory before it is gone.
_KILLED_WITHIN_S = 30.0
# Between two looks at processes and files of this machine: too short to notice, and a look costs nothing.
LOOK_S = 0.2


def list_processes() -> list[int]:
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def list_group_members(group: int) -> list[int]:
    """List the living processes of a group; its leader may have ended before."""
    if (_PROC / "self" / "stat").exists():
        return [pid for pid in list_processes() if _read_group(pid) == group]
    with suppress(OSError):  # there is none
        os.killpg(group, 0)
        return [group]
    return []


def _read_group(pid: int) -> int | None:
    """Return a process's group, or None if it has exited (zombie included)."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, _, group = stat.rpartition(")")[2].split()[:3]
    return None if state in _ENDED else int(group)


def is_marked(pid: int, mark: str, output: str) -> bool:
    """Check whether a process was started with ``mark``, or writes to ``output``, a pipe as ``/proc`` names
    it."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # of another user, or just gone
        return False
    if f"{MARK}={mark}".encode() in environment.split(b"\0"):
        return True
    return bool(output) and any(read_descriptor_target(pid, stream) == output for stream in (1, 2))


def read_descriptor_target(pid: int, descriptor: int) -> str:
    """Return what a process's descriptor leads to, as ``/proc`` names it; empty if it cannot be read."""
    try:
        return str((_PROC / str(pid) / "fd" / str(descriptor)).readlink())
    except OSError:
        return ""


def find_marked_processes(mark: str, output: str) -> list[int]:
    """Find all processes with a mark except this one, in whatever group they are by now."""
    return [pid for pid in list_processes() if pid != os.getpid() and is_marked(pid, mark, output)]


def end_group(group: int, list_remaining: Callable[[], list[int]], grace_s: float) -> Iterator[float]:
    """End the remaining processes of a group, and those that have left it: TERM, and KILL after ``grace_s``.
    Yield the seconds to wait before the next step, so that callers wait in their own way, until nothing
    remains, or half a minute after the KILL: what a driver holds ends late, even so."""
    for number, within_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_WITHIN_S)):
        until = time.monotonic() + within_s
        pids = list_remaining()
        signal_group(group, pids, number)
        while pids and time.monotonic() < until:
            yield LOOK_S
            pids = list_remaining()
            if number == signal.SIGKILL:
                signal_group(group, pids, number)  # what was born meanwhile


def signal_group(group: int, pids: Sequence[int], number: signal.Signals) -> None:
    """Signal these processes, and the group they belong to, without waiting."""
    within = set(list_group_members(group)) if group else set[int]()
    if within.intersection(pids):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in pids:
        if pid not in within:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def read_boot_id() -> str:
    """Return the id of this machine's current boot; empty if unknown."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


MODULE = "coeval.sweeps.guard"
# Standard input and output, which the starting process holds the other ends of.
LIFELINE, SAYING = 0, 1
# What a Linux pipe holds by default.
_CHUNK = 1 << 16
# More than a pipe holds; what still writes then is no process of the group.
_LAST_CHUNKS = 64


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A guard's order. ``environment`` goes over its own; ``most_bytes`` of the output are kept, the newer
    half in ``log`` and the older in ``log`` + ``.1``; ``grace_s`` is how long the group may take to end by
    itself."""

    command: tuple[str, ...]
    environment: dict[str, str]
    log: str
    most_bytes: int
    grace_s: float


class RotatingLog:
    """A log that takes no more than ``most_bytes`` on disk: the older half goes when there is more. What the
    disk refuses is lost: the server goes on."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._half = most_bytes // 2
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, data: bytes) -> None:
        with suppress(OSError):
            if self._size and self._size + len(data) > self._half:
                self._file.close()
                self._path.replace(rotated_log(self._path))
                self._file, self._size = self._path.open("wb", buffering=0), 0
            self._size += self._file.write(data)

    def close(self) -> None:
        self._file.close()


def rotated_log(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


class Guard:
    """A server with its output, until it or the lifeline ends. Constructing it starts the server."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._log = RotatingLog(Path(launch.log), launch.most_bytes)
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

        # The output pipe, as ``/proc`` names it; empty without ``/proc``.
        self._pipe = read_descriptor_target(os.getpid(), self._output)
        self.started = f"started {self._server.pid} {self._pipe}"

    def request_end(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = True

    def supervise_until_group_ends(self) -> int:
        """Wait for the end of the server or of the lifeline, and end the group; return the server's exit
        code."""
        while not (self._ending or self._has_server_ended()):
            self._log_output_and_watch_lifeline(LOOK_S)
        _tell_worker("down")
        for seconds in end_group(self._server.pid, self._list_remaining, self._launch.grace_s):
            self._log_output_and_watch_lifeline(seconds)
        for _ in range(_LAST_CHUNKS):
            if not self._log_output_and_watch_lifeline(0.0):
                break
        return self._server.poll() or 0

    def _has_server_ended(self) -> bool:
        """Check without waiting for the process: until the group has ended, its number must not be given to
        others."""
        if sys.platform == "darwin":
            return self._server.poll() is not None
        return os.waitid(os.P_PID, self._server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _list_remaining(self) -> list[int]:
        mark = self._launch.environment.get(MARK, "")
        return sorted({*list_group_members(self._server.pid), *find_marked_processes(mark, self._pipe)})

    def _log_output_and_watch_lifeline(self, patience_s: float) -> bool:
        """Write arriving output to the log, and note the end of the lifeline. False: no output came."""
        has_output = False
        for key, _ in self._selector.select(patience_s):
            data = _read_chunk(key.fd)
            if not data:
                self._selector.unregister(key.fd)
            if key.fd == LIFELINE:
                self._ending = self._ending or not data
            elif data:
                has_output = True
                self._log.write(data)
        return has_output


def main() -> None:
    if not (line := _read_until_line_end()).endswith(b"\n"):
        return  # the worker was gone before it could say what to start
    try:
        guard = Guard(decode(line, Launch))
    except OSError as error:
        _tell_worker(f"refused {error.strerror}")
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, guard.request_end)
    _tell_worker(guard.started)
    _tell_worker(f"ended {guard.supervise_until_group_ends()}")


def _read_until_line_end() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (data := _read_chunk(LIFELINE)):
        line += data
    return line


def _read_chunk(descriptor: int) -> bytes:
    """Read what has come; nothing at the end, which may be a reset if it is a socket."""
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""


def _tell_worker(state: str) -> None:
    with suppress(OSError):  # the worker is gone: nobody listens
        os.write(SAYING, f"{state}\n".encode())


if __name__ == "__main__":
    main()
