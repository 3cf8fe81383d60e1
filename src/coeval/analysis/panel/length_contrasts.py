"""How much more one judge gives to an answer of twice the length than another one does.

Judges who score the same answers can differ in what length is worth to them; which of two is right, they
cannot say, and neither can a third one: two may share a mistake. So there is a contrast for each two judges,
and nobody is named alone. Of each answer the difference of the two is taken, less its mean over the answers
of a student to a task, and fitted by the binary logarithm of the length. The standard error is a jackknife
over items; where longer answers are better, judges of different sharpness differ by length as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated

import numpy as np

from coeval.analysis.intervals import ALPHA, Floats
from coeval.analysis.measures.measured import Entity, Measured, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import FEWEST_ITEMS, NEARLY, UNKNOWN, Bias, adjusted, bias_of
from coeval.core.figures import points, points_text


class LengthContrast(Entity, frozen=True):
    """Of two judges."""

    more: Annotated[
        Measured,
        ShownAs(
            "What the first gives more than the second", "Twice the length", "twice the length", "points"
        ),
    ]
    p_adjusted: Annotated[
        float | None, ShownAs("Holm's p-value, over all pairs of judges", "p", "p", "probability")
    ]

    @property
    def is_named(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def size_text(self) -> str:
        low, high = sorted(abs(bound or 0.0) for bound in (self.more.low, self.more.high))
        return f"{points_text(abs(self.more.value or 0.0), low, high)} points"


def length_contrasts(grid: ScoreGrid, lengths: Floats) -> dict[tuple[str, str], LengthContrast]:
    """By two judges, of whom it can be told; ``lengths`` (C,) are the characters of the answer of each row,
    NaN where they are not known."""
    found, items = {}, {}
    for first, second in combinations(range(len(grid.judges)), 2):
        bias, of = _contrast(grid, lengths, first, second)
        if bias.value is not None:
            pair = grid.judges[first], grid.judges[second]
            found[pair], items[pair] = bias, of
    return {
        pair: LengthContrast(Measured(*found[pair][:3], items[pair], None), one.p_adjusted)
        for pair, one in adjusted(found).items()
    }


def _contrast(grid: ScoreGrid, lengths: Floats, first: int, second: int) -> tuple[Bias, int]:
    """And over how many items."""
    both = grid.valid[:, first] & grid.valid[:, second] & np.isfinite(lengths)
    if not both.any():
        return UNKNOWN, 0
    _, start, answer = np.unique(grid.answer[both], return_index=True, return_inverse=True)
    scores = grid.values[grid.levels[both]]
    apart = np.bincount(answer, scores[:, first] - scores[:, second]) / np.bincount(answer)
    task, student = grid.task[both][start].astype(np.int64), grid.student[both][start]
    _, group = np.unique(task * len(grid.students) + student, return_inverse=True)
    _, cluster = np.unique(grid.cluster[both][start], return_inverse=True)
    longer = _within(np.log2(lengths[both][start] + 1), group)
    apart = _within(apart, group)
    both_ways, squares = np.bincount(cluster, longer * apart), np.bincount(cluster, longer**2)
    items = int((squares > NEARLY).sum())
    if items < FEWEST_ITEMS:
        return UNKNOWN, items
    left = squares.sum() - squares
    without = ((both_ways.sum() - both_ways) / np.maximum(left, NEARLY))[squares > NEARLY]
    error = float(np.sqrt(((without - without.mean()) ** 2).sum() * (items - 1) / items))
    return bias_of(float(both_ways.sum() / squares.sum()), error, items - 1), items


def _within(values: Floats, group: Floats) -> Floats:
    """Less the mean of each one's group."""
    means = np.bincount(group, values) / np.bincount(group)
    return np.asarray(values - means[group], np.float64)


def length_findings(contrasts: Mapping[tuple[str, str], LengthContrast]) -> Iterator[str]:
    """A sentence for all whom the same judges exceed; both sides of a contrast are named."""
    below: dict[str, dict[str, LengthContrast]] = {}
    for (first, second), found in contrasts.items():
        if found.is_named:
            more, less = (first, second) if (found.more.value or 0.0) > 0 else (second, first)
            below.setdefault(less, {})[more] = found
    sides: dict[tuple[str, ...], list[str]] = {}
    for less, exceeding in below.items():
        sides.setdefault(tuple(sorted(exceeding)), []).append(less)
    for above, less_than in sides.items():
        sizes = [below[less][more] for less in less_than for more in above]
        gaps = sorted(abs(one.more.value or 0.0) for one in sizes)
        who, others = " and ".join(above), " and ".join(less_than)
        by = sizes[0].size_text if len(sizes) == 1 else f"{points(gaps[0])} to {points(gaps[-1])} points"
        score = "scores" if len(above) == 1 else "score"
        does = "does" if len(less_than) == 1 else "do"
        yield (
            f"{who} {score} answers of twice the length {by} higher than {others} {does}: "
            "either side may be the biased one."
        )
