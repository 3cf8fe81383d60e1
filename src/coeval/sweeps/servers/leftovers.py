"""Servers that an earlier sweep has left on this machine: it was killed with all that looked after them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from coeval.sweeps.servers.server_process import GRACE_S
from coeval.sweeps.servers.server_record import RECORD, read_record

__all__ = ["end_leftover", "end_leftovers"]

WINDING_DOWN_S = 60.0
"""How long a leg whose sweep is gone may take to end by itself."""
_LOOK_S = 0.2

Sleep = Callable[[float], None]


def end_leftovers(legs: Path, patience_s: float = WINDING_DOWN_S, sleep: Sleep = time.sleep) -> list[str]:
    """End the servers of all legs below a folder, which nobody else works in; a sentence on each.

    A leg that still lives is waited for, since it is ending its server; one that does not end is killed.
    Servers of other machines are left to these.
    """
    until = time.monotonic() + patience_s
    folders = sorted(path.parent for path in legs.glob(f"*/{RECORD}"))
    told = (end_leftover(folder, until - time.monotonic(), sleep) for folder in folders)
    return [sentence for sentence in told if sentence is not None]


def end_leftover(folder: Path, patience_s: float = WINDING_DOWN_S, sleep: Sleep = time.sleep) -> str | None:
    """As `end_leftovers`, of one leg's folder."""
    record = read_record(folder)
    if record is None or not record.is_of_this_host:
        return None
    until = time.monotonic() + patience_s
    while record.leg_lives and record.leg != os.getpid() and time.monotonic() < until:
        sleep(_LOOK_S)
    if record.leg_lives and record.leg != os.getpid():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(record.leg, signal.SIGKILL)
    left = record.processes()  # nothing, where the machine has been started anew since
    for seconds in record.end(GRACE_S):
        sleep(seconds)
    with suppress(OSError):
        (folder / RECORD).unlink(missing_ok=True)
    if not left:
        return None
    of_it = "1 process" if len(left) == 1 else f"{len(left)} processes"
    return f"ended a server that an earlier sweep had left ({folder.name}, {of_it})"
