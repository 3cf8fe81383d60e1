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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["MARK", "boot_id", "escaped", "is_marked", "members", "signal_group"]

MARK = "COEVAL_SWEEP_SERVER"
"""The variable that holds a server's mark, a random text; whatever it starts inherits it."""

_PROC = Path("/proc")
_ENDED = "ZXx"


def processes() -> Iterator[int]:
    """The ids of all processes that can be seen."""
    with suppress(OSError):
        yield from (int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal())


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
    return bool(output) and any(_target(pid, stream) == output for stream in (1, 2))


def _target(pid: int, descriptor: int) -> str:
    try:
        return str((_PROC / str(pid) / "fd" / str(descriptor)).readlink())
    except OSError:
        return ""


def escaped(mark: str, output: str) -> list[int]:
    """All living processes with a mark, in whatever group they are by now."""
    return [pid for pid in processes() if is_marked(pid, mark, output)]


def signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def boot_id() -> str:
    """Which start of this machine it is; empty where the system does not tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
