"""Counts of a running flow, kept off the hot path and shown by whoever looks."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from coeval.core.errors import Gap
from coeval.core.records import Usage

PACE_S = 60
"""The time left is told by the pace of about the last minute: hosts quicken, slow down, and come back."""
LEAST_MADE = 3
"""A pace is told by no fewer records than this."""


@dataclass(frozen=True, slots=True)
class Calls:
    """A number of calls, or of the records that they make, or the range it falls in."""

    low: int
    high: int

    def __add__(self, other: Calls) -> Calls:
        return Calls(self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}–{self.high:,}"


class PhaseCount:
    """One phase: what it holds of its plan, what became of the rest, what was asked for it so far.

    Records: ``recorded`` stood at its start and ``owed`` were to be made, which together are the plan;
    ``done`` were made (``lacking`` of them not whole), ``failed``, were not asked for (``gaps``), or
    cannot be made, since what they would be made from did not come (``cut_off``); ``pending`` ones wait for
    batch jobs. ``expected`` is the
    number of calls that the owed records take, repeats aside; ``calls`` that of calls so far.
    ``cost_usd`` is that of the records whose price is known; ``unpriced`` counts the others.
    """

    __slots__ = (
        "_marks", "began", "calls", "cost_usd", "cut_off", "done", "expected", "failed", "gaps",
        "input_tokens", "lacking", "latest", "name", "next_mark", "output_tokens", "owed",
        "pending", "recorded", "unpriced",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorded = self.owed = self.done = self.lacking = self.cut_off = self.pending = 0
        self.expected = Calls(0, 0)
        self.calls = self.input_tokens = self.output_tokens = self.unpriced = 0
        self.cost_usd = 0.0
        self.failed: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self.began: float | None = None
        self.next_mark = float("-inf")
        self.latest = 0.0
        self._marks: deque[tuple[float, int]] = deque(maxlen=PACE_S)

    @property
    def planned(self) -> int:
        return self.recorded + self.owed

    @property
    def ended(self) -> int:
        """Records owed at the start of which it is known what became of them."""
        return self.done + self.failed.total() + self.not_asked

    @property
    def not_asked(self) -> int:
        return self.gaps.total() + self.cut_off

    @property
    def calls_per_s(self) -> float | None:
        """Calls answered per second since the phase began to ask; None under a second."""
        if self.began is None or self.latest - self.began < 1.0:
            return None
        return self.calls / (self.latest - self.began)

    def mark(self, now: float) -> None:
        """Remember how far the phase had come: told once a second, from ``next_mark`` on."""
        self._marks.append((now, self._made))
        self.next_mark = now + 1.0

    @property
    def _made(self) -> int:
        return self.done + self.failed.total()

    def remaining_s(self, now: float) -> float | None:
        """Seconds left at the pace of about the last minute; None without a pace, or with nothing left."""
        left = self.owed - self.ended
        if left <= 0 or not self._marks:
            return None
        since, before = self._marks[0]
        made = self._made - before
        if made < LEAST_MADE or now - since < 1.0:
            return None
        return left * (now - since) / made


class Board:
    """What a display needs to know, and all it needs to know.

    ``fed_by`` names, for a phase whose records are made from those of another one, this other one.
    """

    def __init__(
        self,
        phases: Iterable[str],
        fed_by: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.phases = {name: PhaseCount(name) for name in phases}
        self._fed_by = fed_by
        self.clock = clock
        self.started = clock()

    def expect(self, phase: str, *, recorded: int, owed: int, calls: Calls) -> None:
        """Set what a phase holds already, owes still, and will ask for that."""
        count = self.phases[phase]
        count.recorded, count.owed, count.expected = recorded, owed, calls

    def correct(self, phase: str, records: int) -> None:
        """So many more (or fewer) records are owed than was foreseen."""
        count = self.phases[phase]
        count.owed += records
        count.expected += Calls(records, records)

    def stands(self, phase: str, records: int, calls: int) -> None:
        """So many records that were to be made are there already; their calls are not made."""
        count = self.phases[phase]
        count.recorded += records
        count.owed -= records
        count.expected += Calls(-calls, -calls)

    def begun(self, phase: str) -> None:
        """A work of the phase is about to be asked for."""
        count = self.phases[phase]
        if count.began is None:
            count.began = self.clock()
            count.mark(count.began)

    def ended(
        self, phase: str, calls: int, usage: Usage | None, failed: str | None, *, lacking: bool = False
    ) -> None:
        """A record of the phase was kept after ``calls`` askings.

        ``failed`` is the kind of its failure, if it is one; ``lacking``: it is good but not whole,
        and stays owed.
        """
        count = self.phases[phase]
        count.latest = now = self.clock()
        if now >= count.next_mark:
            count.mark(now)
        count.calls += calls
        count.lacking += lacking
        if failed is None:
            count.done += 1
        else:
            count.failed[failed] += 1
        if usage is not None:
            count.input_tokens += usage.input_tokens
            count.output_tokens += usage.output_tokens
            if usage.cost_usd is None:
                count.unpriced += 1
            else:
                count.cost_usd += usage.cost_usd

    def left(self, phase: str, gap: Gap) -> None:
        """A work was not asked for, and stays owed."""
        self.phases[phase].gaps[gap.kind] += 1

    def waits(self, phase: str) -> None:
        """A work waits for a batch job."""
        self.phases[phase].pending += 1

    def begin_round(self) -> None:
        """All that waits is tried again."""
        for count in self.phases.values():
            count.pending = 0

    def cut_off(self, phase: str, records: int) -> None:
        """So many records of the phase cannot be made: what they would be made from did not come."""
        self.phases[phase].cut_off += records

    def remaining_s(self, phase: str) -> float | None:
        """Seconds left of a phase, no fewer than of the one that feeds it; None where it cannot be told."""
        own = self.phases[phase].remaining_s(self.clock())
        feeder = self._fed_by.get(phase)
        if own is None or feeder is None:
            return own
        return max(own, self.remaining_s(feeder) or 0.0)


STOPPING = "stopping: waiting a few seconds for requests on the wire (again: stop at once)"
"""What whoever looks on is told at the first interruption."""


class Watcher(Protocol):
    """Somebody who looks on: told what happens, and shown the board once there is something to count."""

    def note(self, message: str) -> None: ...

    def warn(self, message: str) -> None:
        """What may not be as it was meant."""

    def begin(self, board: Board) -> None: ...


class Unwatched:
    """Nobody."""

    def note(self, message: str) -> None:
        """Nobody listens; the log has it."""

    def warn(self, message: str) -> None:
        """Likewise."""

    def begin(self, board: Board) -> None:
        """Nobody looks."""
