"""The processes of a server, as ``/proc`` shows them: a group, its members, what marks them as ours.

A process group is ended by its number, and a number alone is given again to others. So whatever ends one that
it has not started itself holds its members against the mark that they were started with: a variable in their
environment, or the pipe that they write to, where a process has written over its environment (as those do
that set a title for themselves).

Without ``/proc`` a group is what the system says of its number.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = [
    "MARK",
    "boot_id",
    "end_group",
    "is_marked",
    "kill_group",
    "marked",
    "members",
    "processes",
    "target",
]

MARK = "COEVAL_SWEEP_SERVER"
"""The variable that holds a server's mark, a random text; whatever it starts inherits it."""

_PROC = Path("/proc")
_ENDED = "ZXx"
_LOOK_S = 0.1
_KILLED_WITHIN_S = 30.0


def processes() -> list[int]:
    """The ids of all processes that can be seen."""
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def members(group: int) -> list[int]:
    """The living processes of a group; its leader may have ended before."""
    if not (_PROC / "self" / "stat").exists():
        return [group] if _answers(group) else []
    return [pid for pid in processes() if _group_of(pid) == group]


def _answers(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _group_of(pid: int) -> int | None:
    """None of one that has ended, whether somebody has waited for it or not."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, _, group = stat.rpartition(")")[2].split()[:3]
    return None if state in _ENDED else int(group)


def is_marked(pid: int, mark: str, output: str) -> bool:
    """Whether a process was started with ``mark``, or writes to ``output``, a pipe as ``/proc`` names it."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # of another user, or just gone
        return False
    if f"{MARK}={mark}".encode() in environment.split(b"\0"):
        return True
    return bool(output) and any(target(pid, stream) == output for stream in (1, 2))


def target(pid: int, descriptor: int) -> str:
    """What a descriptor of a process leads to, as ``/proc`` names it; empty where it does not tell."""
    try:
        return str((_PROC / str(pid) / "fd" / str(descriptor)).readlink())
    except OSError:
        return ""


def marked(mark: str, output: str) -> list[int]:
    """All processes with a mark but this one, in whatever group they are by now."""
    return [pid for pid in processes() if pid != os.getpid() and is_marked(pid, mark, output)]


def end_group(group: int, left: Callable[[], list[int]], grace_s: float) -> Iterator[float]:
    """End the processes that are ``left`` of a group, and those that have left it: TERM, and KILL after
    ``grace_s``.

    Yields the seconds to wait before it is taken further, so that whoever ends it waits in his own way. It
    ends when nothing is left, or half a minute after the KILL: what a driver holds ends late, even so.
    """
    for number, within_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_WITHIN_S)):
        until = time.monotonic() + within_s
        there = left()
        _signal(group, there, number)
        while there and time.monotonic() < until:
            yield _LOOK_S
            there = left()
            if number == signal.SIGKILL:
                _signal(group, there, number)  # what was born meanwhile


def kill_group(group: int, left: Callable[[], list[int]]) -> None:
    """Kill them, and wait for nothing."""
    _signal(group, left(), signal.SIGKILL)


def _signal(group: int, pids: Sequence[int], number: signal.Signals) -> None:
    within = set(members(group)) if group else set[int]()
    if within.intersection(pids):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in pids:
        if pid not in within:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def boot_id() -> str:
    """Which start of this machine it is; empty where the system does not tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
