"""``run_errors.jsonl``: what failed, and what was cut off or set aside, a line each."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from coeval.store.jsonl import MOST_KEPT
from coeval.store.rundir import now

__all__ = ["ErrorLine", "torn_line"]

log = logging.getLogger("coeval")


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A work item that failed, or a line that was cut off; ``phase`` is a task's label in a benchmark."""

    at: str
    phase: str
    id: str
    model: str
    kind: str
    message: str
    attempts: int = 0
    torn: str | None = None


def torn_line(path: Path, torn: bytes, phase: str) -> ErrorLine:
    """Keeps what a crash left of a last line; its record is owed again."""
    log.warning("%s ended in a torn line of %d bytes; it was cut off", path, len(torn))
    return ErrorLine(
        at=now(),
        phase=phase,
        id="",
        model="",
        kind="torn_line",
        message=f"cut off the end of {path.name}",
        torn=torn[:MOST_KEPT].decode(errors="backslashreplace"),
    )
