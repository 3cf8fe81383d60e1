"""A student's strength by comparisons of its answers with those of others, and how it is written."""

from __future__ import annotations

import msgspec


def points_text(share: float | None, low: float | None, high: float | None) -> str | None:
    """``63.2 [58.1, 68.0]``: a share and its interval in points of 100; None where there is none."""
    if share is None:
        return None
    bounds = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * share:.1f}{bounds}"


class PairStrength(msgspec.Struct, frozen=True):
    """How likely a student wins against one of the others, 0 to 1, by Bradley–Terry with its 95% interval.

    ``ranks`` are the best and the worst that it may have; ``win_rate`` its wins in so many ``comparisons``,
    of which ``ties`` count half.
    """

    student: str
    strength: float | None
    low: float | None
    high: float | None
    ranks: tuple[int, int]
    win_rate: float | None
    ties: int
    comparisons: int

    @property
    def rank(self) -> str:
        """``2``, or ``2–4`` where it is not certain."""
        return "–".join(str(rank) for rank in dict.fromkeys(self.ranks))

    @property
    def points(self) -> str:
        """The strength with its interval."""
        return points_text(self.strength, self.low, self.high) or "–"
