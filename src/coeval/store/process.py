"""Which process that is: a number alone is given again to others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["started"]

_AFTER_NAME = 19
"""Fields of ``/proc/PID/stat`` from the state, which follows the name, to the start (proc_pid_stat(5))."""


def started(pid: int) -> str | None:
    """When a process of this machine started, in the system's own words; None where there is none.

    One that has ended, and that nobody has waited for, is none. Where the system does not tell the time, it
    is empty.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else fields[_AFTER_NAME]
    try:
        os.kill(pid, 0)  # sends nothing: asks whether there is one
    except PermissionError:
        pass  # there is, of another user
    except (OSError, OverflowError):
        return None
    try:
        told = subprocess.run(  # noqa: S603  a number
            ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607  where it lies differs
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return told.stdout.strip()
