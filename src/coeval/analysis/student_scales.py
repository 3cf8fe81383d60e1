"""A student on other scales than judged scores, as results are handed on: of people, and of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from coeval.core.figures import MISSING, points_text


class HumanScore(msgspec.Struct, frozen=True):
    """A student's mean on the ``scale`` of all factors, or of the one that people labelled, 0 to 1.

    ``judged`` is that of the judges over all answers; ``mean`` that on the human scale, by so many
    ``labels`` of its answers and the judged scores of the others (PPI++), each with its 95% interval. None
    where there are too few labels.
    """

    student: str
    scale: str
    judged: float | None
    judged_low: float | None
    judged_high: float | None
    mean: float | None
    low: float | None
    high: float | None
    labels: int


class BothScales(NamedTuple):
    """Both figures in points, as a table shows them; empty where there is none."""

    judged: str
    people: str


def both_scales(scores: Sequence[HumanScore]) -> list[BothScales]:
    """Write the figures of students in points."""
    return [
        BothScales(
            points_text(one.judged, one.judged_low, one.judged_high) or "",
            points_text(one.mean, one.low, one.high) or "",
        )
        for one in scores
    ]


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
        return points_text(self.strength, self.low, self.high) or MISSING
