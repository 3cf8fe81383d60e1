"""A student's score by judges and by people, as results are handed on: for Python, for tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from coeval.analysis.pair_strength import points_text


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
