"""The small process that ends programs when their run is gone, by whatever death.

It is run as a script, by its path and with nothing but Python's own modules. Its standard input is a pipe
that the run holds open, on which it is told of process groups, a line each: ``+N`` begins, ``-N`` has ended.
When the pipe ends, it kills the groups that are left (docs/decisions/0009-workers-with-a-lifeline.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress


def watch_groups(lines: Iterable[str]) -> None:
    """Follow the process groups that begin and end; kill those left at the end."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[:1], line[1:].strip()
        if number.isdecimal():
            (groups.add if sign == "+" else groups.discard)(int(number))
    for group in groups:
        kill_group(group)


def kill_group(group: int) -> None:
    """Kill a process group, if any of it is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class CommandGuard:
    """The guard of a run's programs, started for the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch_group(self, group: int) -> None:
        self._tell_started_guard(f"+{group}\n")

    def kill_and_forget_group(self, group: int) -> None:
        kill_group(group)
        self._tell_started_guard(f"-{group}\n")

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()

    def _tell_started_guard(self, line: str) -> None:
        if self._process is None:
            command = (sys.executable, "-I", "-S", __file__)
            self._process = subprocess.Popen(  # noqa: S603  this very file
                command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # without its guard, a run still ends its programs itself
                self._process.stdin.write(line.encode())


if __name__ == "__main__":
    watch_groups(sys.stdin)
