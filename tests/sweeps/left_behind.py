"""Processes that a command has started, found by what stands in their environment."""

from __future__ import annotations

import time
from pathlib import Path

MARK = "COEVAL_TEST_MARK"


def marked(mark: str) -> dict[int, str]:
    """Living processes of this machine that were started with the mark: number → command line."""
    found = {}
    needed = f"{MARK}={mark}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            ours = needed in (place / "environ").read_bytes().split(b"\0")
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended, or is another user's
            continue
        if ours and command:  # that of a zombie is empty
            found[int(place.name)] = command
    return found


def none_left(mark: str, within_s: float = 40.0) -> None:
    """Fails where some are still there after a while."""
    until = time.monotonic() + within_s
    while left := marked(mark):
        assert time.monotonic() < until, left
        time.sleep(0.1)
