"""The counts of a phase in figures and words, for whatever shows them."""

from __future__ import annotations

from typing import NamedTuple

from coeval.core.text import dollars
from coeval.engine.progress import Board, PhaseCount


class Figures(NamedTuple):
    """What there is to say of a phase, each as text; empty where there is nothing to say.

    ``records``: good ones of those planned; ``calls``: so far, of those expected; ``cost``: with a + where
    more was paid whose price is unknown, empty where nothing was; ``in_batches`` wait for batch jobs.
    """

    records: str
    calls: str
    failed: str
    not_asked: str
    in_batches: str
    tokens: str
    cost: str
    calls_per_s: str
    eta: str


HEADINGS = Figures(
    "records", "calls", "failed", "not asked", "in batches", "tokens", "cost", "calls/s", "ETA"
)


def figures(board: Board, count: PhaseCount) -> Figures:
    rate, remaining = count.calls_per_s, board.remaining_s(count.name)
    return Figures(
        records=f"{count.recorded + count.done:,}/{count.planned:,}",
        calls=f"{count.calls:,}/{count.expected}",
        failed=f"{count.failed.total():,}",
        not_asked=f"{count.not_asked:,}" if count.not_asked else "",
        in_batches=f"{count.pending:,}" if count.pending else "",
        tokens=short(count.input_tokens + count.output_tokens),
        cost=dollars(count.cost_usd) + "+" * bool(count.unpriced) if count.cost_usd else "",
        calls_per_s="" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}",
        eta=clock(remaining) if remaining is not None else "",
    )


def sentence(board: Board, count: PhaseCount) -> str:
    """All figures of a phase with their names, in one line."""
    shown = figures(board, count)
    named = [f"{figure} {name}" for figure, name in zip(shown[:-1], HEADINGS, strict=False) if figure]
    return f"{count.name}: {', '.join(named)}" + (f", ETA {shown.eta}" if shown.eta else "")


def short(number: int) -> str:
    """1,234 → 1.2k: enough to watch."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)


def clock(seconds: float) -> str:
    """83 → 1:23."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
