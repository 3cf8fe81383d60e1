"""How many independent judges a panel is worth, and what it would be without one of them.

What counts is how surely two students are told apart on fresh items. Of the items' differences between two
students, C is the covariance matrix over judges, averaged over all pairs of students. The panel's mean then
has the variance ``mean(C)`` for an item, a single judge on average ``mean(diag C)``, and the panel is worth
``mean(diag C) / mean(C)`` votes (Kish 1965): as many as there are judges if these err by themselves, one if
they all say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats

__all__ = ["WithoutJudge", "covariances", "effective_votes", "without_each"]

_FEWEST_ITEMS = 3


class WithoutJudge(NamedTuple):
    """The panel without a judge: its votes, by what factor the standard error of a difference between
    students would change, and whether the students' order would stay."""

    effective_votes: float
    standard_error_factor: float
    same_order: bool

    def as_plain(self) -> dict[str, Any]:
        return self._asdict()


def covariances(blocks: Sequence[Floats]) -> Floats | None:
    """(J, J), over the tasks' full blocks (n, S, J); None where two students or judges are not to be had. A
    judge that is not in all tasks is NaN."""
    found = []
    for cells in blocks:
        students = np.flatnonzero(np.isfinite(cells).any(axis=(0, 2)))
        if len(students) < 2 or len(cells) < _FEWEST_ITEMS:
            continue
        of_pairs = [
            np.cov(cells[:, one] - cells[:, other], rowvar=False) for one, other in combinations(students, 2)
        ]
        found.append(np.mean([np.atleast_2d(matrix) for matrix in of_pairs], axis=0))
    if not found:
        return None
    matrix: Floats = np.mean(found, axis=0)
    return matrix if np.isfinite(np.diag(matrix)).sum() > 1 else None


def effective_votes(matrix: Floats) -> float:
    """Of the judges that are not NaN; where nothing scatters, one."""
    there = np.isfinite(np.diag(matrix))
    whole = matrix[np.ix_(there, there)]
    return float(np.diag(whole).mean() / whole.mean()) if whole.mean() > 0 else 1.0


def without_each(blocks: Sequence[Floats], matrix: Floats) -> dict[int, WithoutJudge]:
    """By place of a judge: what would be without it."""
    there = np.flatnonzero(np.isfinite(np.diag(matrix)))
    whole = matrix[np.ix_(there, there)].mean()
    order = _order(blocks, there)
    found = {}
    for place in there.tolist():
        rest = there[there != place]
        left = matrix[np.ix_(rest, rest)]
        factor = float(np.sqrt(left.mean() / whole)) if whole > 0 else 1.0
        found[place] = WithoutJudge(effective_votes(left), factor, _order(blocks, rest) == order)
    return found


def _order(blocks: Sequence[Floats], judges: np.ndarray[Any, np.dtype[np.intp]]) -> list[int]:
    """Students by their mean over tasks, best first."""
    means = [cells[:, :, judges].mean(axis=(0, 2)) for cells in blocks if len(cells)]
    order: list[int] = np.argsort(-np.nan_to_num(np.mean(means, axis=0), nan=-1.0), kind="stable").tolist()
    return order
