"""A sweep as it goes on, for whoever looks on: its slots, its judging, and what is done of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coeval.sweeps.engines.engine import LegSlot
from coeval.sweeps.judging.concluder import Concluder
from coeval.sweeps.judging.judging_messages import ConcludeProgress, SampleConcluded
from coeval.sweeps.leg import Leg, LegProgress
from coeval.sweeps.leg_files import read_progress

__all__ = ["LegShown", "SweepBoard", "SweepProblem"]


class SweepProblem(NamedTuple):
    """What ended short, and why. What was ``given_up`` is left for the next start."""

    what: str
    why: str
    given_up: bool


class LegShown(NamedTuple):
    """A slot, and the leg in it; None where it is free. ``progress`` is what the leg tells of itself."""

    slot: LegSlot
    leg: str | None
    progress: LegProgress | None


class SweepBoard:
    """Counts, and what runs now. ``legs``, ``jobs`` are those owed at the start (and found since)."""

    def __init__(self, slots: Sequence[LegSlot]) -> None:
        self.began = time.monotonic()
        self.checkpoints = 0
        self.legs = self.legs_ended = self.left = 0
        self.jobs = self.concluded = self.judged = self.failed = 0
        self.unanswered = self.unscored = self.unjudged = self.incomplete = 0
        self.interrupted = self.unavailable = False
        self.problems: list[SweepProblem] = []
        self._slots = tuple(slots)
        self._running: dict[int, tuple[str, Path]] = {}
        self._judging: dict[str, Concluder] = {}
        self._costs: dict[str, float] = {}

    def expect(self, jobs: int, legs: int) -> None:
        """So much of a checkpoint is to be done."""
        self.checkpoints += 1
        self.legs += legs
        self.jobs += jobs

    def begin_leg(self, slot: LegSlot, leg: Leg) -> None:
        self._running[slot.number] = (leg.name, leg.folder)

    def end_leg(self, slot: LegSlot) -> None:
        self._running.pop(slot.number, None)

    @property
    def waiting(self) -> int:
        """Legs that wait for a slot."""
        return max(0, self.legs - self.legs_ended - self.left - len(self._running))

    def shown_legs(self) -> Iterator[LegShown]:
        """Every slot."""
        running = dict(self._running)
        for slot in self._slots:
            name, folder = running.get(slot.number, (None, None))
            yield LegShown(slot, name, None if folder is None else read_progress(folder))

    @contextmanager
    def concluding(self, name: str, concluder: Concluder) -> Iterator[None]:
        self._judging[name] = concluder
        try:
            yield
        finally:
            del self._judging[name]

    def shown_judging(self) -> Iterator[tuple[str, ConcludeProgress | None]]:
        """The tasks that are judged or scored now."""
        for name, concluder in list(self._judging.items()):
            yield name, concluder.progress().get(name)

    def count_concluded(self, sample: SampleConcluded, *, judged: bool) -> None:
        self.concluded += 1
        self.judged += judged
        self.unanswered += sample.unanswered
        self.unscored += sample.unscored
        self.incomplete += bool(sample.unanswered or sample.unscored)

    def count_cost(self, name: str, cost_usd: float | None) -> None:
        if cost_usd is not None:
            self._costs[name] = cost_usd

    @property
    def cost_usd(self) -> float | None:
        """What the judging of these tasks has cost; None where no price is known."""
        return sum(self._costs.values()) if self._costs else None

    def tell_problem(self, what: str, why: str, *, given_up: bool) -> None:
        self.problems.append(SweepProblem(what, why, given_up))
