"""Progress counts of a run, off the hot path."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from coeval.core.figures import dollars
from coeval.core.records import Purpose, Usage

# Seconds over which a pace is measured: hosts speed up, slow down and come back within minutes.
PACE_S = 60
# Records needed for a pace.
_LEAST_MADE = 3


@dataclass(frozen=True, slots=True)
class Calls:
    """A number of calls or records, or its range."""

    low: int
    high: int

    def __add__(self, other: Calls) -> Calls:
        return Calls(self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}–{self.high:,}"


def seconds_left(left: int, made: int, seconds: float) -> float | None:
    """Estimate how long the rest takes; None without a pace or remaining work."""
    return left * seconds / made if left > 0 and made >= _LEAST_MADE and seconds >= 1.0 else None


class PhaseCount:
    """Counts of one phase.

    ``recorded`` records were there at its start and ``owed`` were to be made; together they are the plan.
    Of the owed, ``done`` were made (``lacking`` of them incomplete) or ``failed``; ``gaps`` were not
    requested; ``cut_off`` cannot be made, since their input is missing; ``pending`` wait for batch jobs.
    ``expected`` calls are those that the owed records need, without repeats; ``calls`` those made so far.
    ``cost_usd`` sums the records of known price; ``unpriced`` counts the others.
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
        """Count the owed records that are done, failed, skipped or cut off."""
        return self.done + self.failed.total() + self.not_requested

    @property
    def not_requested(self) -> int:
        return self.gaps.total() + self.cut_off

    @property
    def calls_per_s(self) -> float | None:
        """Return calls per second since the phase began; None within the first second."""
        if self.began is None or self.latest - self.began < 1.0:
            return None
        return self.calls / (self.latest - self.began)

    def sample_progress(self, now: float) -> None:
        """Record the phase's progress; called once a second from ``next_mark`` on."""
        self._marks.append((now, self.done + self.failed.total()))
        self.next_mark = now + 1.0

    def remaining_s(self, now: float) -> float | None:
        """Estimate the seconds left at the pace of the last minute; None without a pace or remaining work."""
        if not self._marks:
            return None
        since, before = self._marks[0]
        made = self.done + self.failed.total() - before
        return seconds_left(self.owed - self.ended, made, now - since)


class Board:
    """Progress of all phases, for displays. ``fed_by``: phase → the phase whose records it needs."""

    def __init__(
        self, phases: Iterable[str], fed_by: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.phases = {name: PhaseCount(name) for name in phases}
        self._fed_by = fed_by
        self.clock = clock
        self.started = clock()

    def expect(self, phase: str, *, recorded: int, owed: int, calls: Calls) -> None:
        """Set a phase's recorded and missing records, and the calls they need."""
        count = self.phases[phase]
        count.recorded, count.owed, count.expected = recorded, owed, calls

    def adjust_owed(self, phase: str, records: int) -> None:
        """Add so many (or, if negative, fewer) missing records than planned."""
        count = self.phases[phase]
        count.owed += records
        count.expected += Calls(records, records)

    def count_owed_as_recorded(self, phase: str, records: int, calls: int) -> None:
        """Move ``records`` from owed to recorded, and take off the ``calls`` that they would have needed."""
        count = self.phases[phase]
        count.recorded += records
        count.owed -= records
        count.expected += Calls(-calls, -calls)

    def note_phase_begun(self, phase: str) -> None:
        count = self.phases[phase]
        if count.began is None:
            count.began = self.clock()
            count.sample_progress(count.began)

    def count_outcome(
        self, phase: str, calls: int, usage: Usage | None, failed: str | None, *, incomplete: bool = False
    ) -> None:
        """Count a record as made after ``calls`` requests. ``failed`` is its failure's kind, if any;
        ``incomplete``: it is good but incomplete, and stays missing."""
        count = self.phases[phase]
        count.latest = now = self.clock()
        if now >= count.next_mark:
            count.sample_progress(now)
        count.calls += calls
        count.lacking += incomplete
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

    def clear_pending(self) -> None:
        """Begin a round that tries all waiting works again."""
        for count in self.phases.values():
            count.pending = 0

    def count_cut_off(self, phase: str, records: int) -> None:
        """Count records that cannot be made since their input is missing."""
        self.phases[phase].cut_off += records

    def remaining_s(self, phase: str) -> float | None:
        """Estimate the seconds left of a phase, at least that of the phase feeding it; None if unknown."""
        own = self.phases[phase].remaining_s(self.clock())
        feeder = self._fed_by.get(phase)
        if own is None or feeder is None:
            return own
        return max(own, self.remaining_s(feeder) or 0.0)


STOPPING = "stopping: waiting a few seconds for requests in flight (again: stop at once)"
"""Message at the first interruption."""


class Watcher(Protocol):
    """Observer of a run: receives messages and the board."""

    def note(self, message: str) -> None: ...

    def warn(self, message: str) -> None:
        """Report something that may not be as intended."""

    def begin(self, board: Board) -> None: ...


class Unwatched:
    """Observer that shows nothing; the log has every message."""

    def note(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...

    def begin(self, board: Board) -> None: ...


# --- Phase counts in words


class Figures(NamedTuple):
    """Figures of a phase as text, empty where there is nothing to report. ``records``: good of planned;
    ``calls``: made of expected; ``cost``: with a + where more is unknown; ``in_batches``: waiting."""

    records: str
    calls: str
    failed: str
    not_requested: str
    in_batches: str
    tokens: str
    cost: str
    calls_per_s: str
    eta: str


HEADINGS = Figures("records", "calls", "failed", "not sent", "in batches", "tokens", "cost", "calls/s", "ETA")


def phase_figures(board: Board, count: PhaseCount) -> Figures:
    rate, remaining = count.calls_per_s, board.remaining_s(count.name)
    return Figures(
        records=f"{count.recorded + count.done:,}/{count.planned:,}",
        calls=f"{count.calls:,}/{count.expected}",
        failed=f"{count.failed.total():,}",
        not_requested=f"{count.not_requested:,}" if count.not_requested else "",
        in_batches=f"{count.pending:,}" if count.pending else "",
        tokens=abbreviate(count.input_tokens + count.output_tokens),
        cost=dollars(count.cost_usd) + "+" * bool(count.unpriced) if count.cost_usd else "",
        calls_per_s="" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}",
        eta=format_as_clock(remaining) if remaining is not None else "",
    )


def phase_sentence(board: Board, count: PhaseCount) -> str:
    """Format all figures of a phase in one line."""
    texts = phase_figures(board, count)
    named = [f"{figure} {name}" for figure, name in zip(texts[:-1], HEADINGS, strict=False) if figure]
    return f"{count.name}: {', '.join(named)}" + (f", ETA {texts.eta}" if texts.eta else "")


def abbreviate(number: int) -> str:
    """Abbreviate a count: 1,234 → 1.2k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)


def format_as_clock(seconds: float) -> str:
    """Format seconds: 83 → 1:23."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- Planned counts by phase, task and model


@dataclass(slots=True)
class ModelCount:
    """Records planned, records missing, and the calls those need. ``reusable`` of the missing records and
    ``reusable_calls`` of the calls are not made where a lost item is regenerated unchanged and keeps its
    answers, or a lost answer its judgments."""

    planned: int = 0
    owed: int = 0
    calls: int = 0
    reusable: int = 0
    reusable_calls: int = 0

    def add(self, other: ModelCount) -> None:
        self.planned += other.planned
        self.owed += other.owed
        self.calls += other.calls
        self.reusable += other.reusable
        self.reusable_calls += other.reusable_calls


@dataclass(slots=True)
class WorkCounts:
    """Counts ``by_model``: by phase, task and maker of the records (``exact_match`` compares labels)."""

    by_model: dict[tuple[Purpose, str, str], ModelCount] = field(default_factory=dict)

    def count_for(self, phase: Purpose, task: str, model: str) -> ModelCount:
        """Return the count of a phase, task and model, for adding to it."""
        return self.by_model.setdefault((phase, task, model), ModelCount())

    def total(
        self, phase: Purpose | None = None, *, task: str | None = None, model: str | None = None
    ) -> ModelCount:
        """Sum the counts of a phase, a task, a model, or several of these."""
        total_count = ModelCount()
        for key, count in self.by_model.items():
            if all(needed in (None, part) for needed, part in zip((phase, task, model), key, strict=True)):
                total_count.add(count)
        return total_count

    def owing_models(self) -> set[str]:
        return {name for (_, _, name), count in self.by_model.items() if count.owed}
