"""Where the checkpoints of a sweep are to be found: below a folder, by name, or as they appear."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coeval.core.errors import StoreError
from coeval.sweeps.checkpoints import Checkpoint, Pattern, find_checkpoints, is_whole, what_lacks

__all__ = ["USUAL_PATTERNS", "CheckpointPlaces", "CheckpointWatch"]

log = logging.getLogger("coeval")

USUAL_PATTERNS = (
    "global_step_{step}/actor_hf",
    "global_step_{step}/actor/huggingface",
    "global_step_{step}",
    "step_{step}",
    "checkpoint-{step}",
)
"""Tried in turn where nobody names a pattern; the first that finds any holds."""
WATCH_S = 30.0
FIRST_WAIT_S = 2.0
"""Between the first two looks: what is there at the start need not wait long."""


@dataclass(frozen=True, slots=True)
class CheckpointPlaces:
    """``listed`` are named one by one; those below ``folder`` are found by ``pattern``, of ``steps`` only
    where any are named."""

    listed: tuple[Checkpoint, ...] = ()
    folder: Path | None = None
    pattern: str | None = None
    steps: Collection[int] = ()

    def found(self) -> list[Checkpoint]:
        """Those that are there and whole now, in the order of their steps.

        Raises
        ------
        UsageError
            one that is named by its step is not there, or a pattern is none.
        StoreError
            the folder cannot be looked into.
        """
        found = list(self.listed)
        if self.folder is not None:
            found += self._below(self.folder)
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def _below(self, folder: Path) -> list[Checkpoint]:
        return find_checkpoints(folder, self._pattern_in(folder), self.steps)

    def _pattern_in(self, folder: Path) -> Pattern:
        """The one that is named, or the first of the usual ones that finds any."""
        patterns = [
            Pattern(text) for text in ([self.pattern] if self.pattern is not None else USUAL_PATTERNS)
        ]
        return next((pattern for pattern in patterns if pattern.found_in(folder)), patterns[-1])

    def passed_over(self) -> dict[str, str]:
        """Those that `found` leaves out, since they are not whole: their paths, and what they lack.

        Raises
        ------
        StoreError
            the folder cannot be looked into.
        """
        if self.folder is None or self.steps:
            return {}
        there = self._pattern_in(self.folder).found_in(self.folder)
        lacking = {str(there[step]): what_lacks(there[step]) for step in sorted(there)}
        return {path: why for path, why in lacking.items() if why is not None}


@dataclass(slots=True)
class CheckpointWatch:
    """New checkpoints as they appear below a folder: whole, and unchanged since the last look.

    It ends with the first one of ``until_step`` or later; None: never by itself.
    """

    places: CheckpointPlaces
    until_step: int | None = None
    interval_s: float = WATCH_S
    _known: set[int] = field(default_factory=set)
    _last: dict[int, tuple[tuple[str, int, int], ...]] = field(default_factory=dict)
    _waited: bool = False
    _problem: str = ""
    _ended: bool = False

    def _is_last(self, checkpoints: Sequence[Checkpoint]) -> bool:
        until = self.until_step
        return until is not None and any(checkpoint.step >= until for checkpoint in checkpoints)

    def look(self) -> list[Checkpoint]:
        """Those that have become ready since the last look.

        Raises
        ------
        StoreError
            the folder cannot be looked into.
        """
        ready = []
        for checkpoint in self.places.found():
            if checkpoint.step in self._known:
                continue
            written = _written(Path(checkpoint.path))
            if checkpoint in self.places.listed and not Path(checkpoint.path).is_dir():
                ready.append(checkpoint)  # a name at a hub: nobody is writing it
            elif written and self._last.get(checkpoint.step) == written:
                ready.append(checkpoint)
            self._last[checkpoint.step] = written
        for checkpoint in ready:
            self._known.add(checkpoint.step)
            self._last.pop(checkpoint.step, None)
        self._ended = self._ended or self._is_last(ready)
        return ready

    async def next(self) -> Sequence[Checkpoint] | None:
        """Wait for further ones; None after the last. A folder that is not there is waited for."""
        while not self._ended:
            try:
                if found := await asyncio.to_thread(self.look):
                    return found
                self._problem = ""
            except StoreError as error:
                if str(error) != self._problem:
                    log.warning("%s; it is looked into again", error)
                self._problem = str(error)
            await asyncio.sleep(self.interval_s if self._waited else min(FIRST_WAIT_S, self.interval_s))
            self._waited = True
        return None


def _written(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Its files with their sizes and times; nothing while it is not whole."""
    if not is_whole(folder):
        return ()
    try:
        stats = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    except OSError:
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
