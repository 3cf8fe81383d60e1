"""Where the scatter of scores comes from, and what would make the ranking surer.

A score of datapoint i, student s and judge j, the mean over factors, is taken to be

    y = μ_s + I_i + (SI)_si + J_j + e_sij

with the variances of items, of students × items, of judges and of the residual (noise, and judges' own views
of items and students) found by the method of moments from the mean squares of the full block (Henderson's
method I, which is that of Cornfield and Tukey 1956 for full data). Students are the same ones throughout, so
they have a mean each and no variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats

__all__ = ["Prices", "Purchase", "VarianceParts", "purchases", "variance_parts"]

_MORE_ITEMS = (1.5, 2.0, 4.0)
_MORE_JUDGES = (1, 2)


class VarianceParts(NamedTuple):
    """Variances of scores from 0 to 1; over ``items`` datapoints, ``students`` and ``judges``."""

    item: float
    student_item: float
    judge: float
    residual: float
    items: int
    students: int
    judges: int

    @property
    def shares(self) -> dict[str, float | None]:
        parts = dict(
            zip(("items", "students_items", "judges", "residual"), self[:4], strict=True),
        )
        total = sum(parts.values())
        return {name: part / total if total > 0 else None for name, part in parts.items()}


class Prices(NamedTuple):
    """US dollars on average: of writing a datapoint, of an answer, of a judgment; None: not known."""

    item: float | None
    answer: float | None
    judgment: float | None


class Purchase(NamedTuple):
    """What the standard errors would be with so many more ``items`` in each task, or more ``judges``, and
    what that costs. ``headline``: of a student's score; ``difference``: of that of two students."""

    items: int
    judges: int
    headline: float
    difference: float
    cost_usd: float | None

    def as_plain(self) -> dict[str, Any]:
        return self._asdict()


def variance_parts(cells: Floats) -> VarianceParts | None:
    """Of a full block (n, S, J); None with fewer than two of anything. Estimates below zero are zero."""
    students, judges = (np.isfinite(cells).any(axis=axes) for axes in ((0, 2), (0, 1)))
    y = cells[:, students][:, :, judges]
    n, m, k = y.shape
    if min(n, m, k) < 2:
        return None
    grand = y.mean()
    by_item, by_judge = y.mean(axis=(1, 2)), y.mean(axis=(0, 1))
    both = y.mean(axis=2)
    crossed = both - both.mean(axis=0) - by_item[:, None] + grand
    rest = y - both[:, :, None] - by_judge + grand
    of_rest = float((rest**2).sum()) / ((n * m - 1) * (k - 1))
    of_both = k * float((crossed**2).sum()) / ((n - 1) * (m - 1))
    of_item = m * k * float(((by_item - grand) ** 2).sum()) / (n - 1)
    of_judge = n * m * float(((by_judge - grand) ** 2).sum()) / (k - 1)
    return VarianceParts(
        item=max((of_item - of_both) / (m * k), 0.0),
        student_item=max((of_both - of_rest) / k, 0.0),
        judge=max((of_judge - of_rest) / (n * m), 0.0),
        residual=of_rest,
        items=n,
        students=m,
        judges=k,
    )


def pooled(parts: Sequence[VarianceParts]) -> VarianceParts | None:
    """Of all tasks: the mean of their variances, each counting by its datapoints."""
    if not parts:
        return None
    weights = [part.items for part in parts]
    item, student_item, judge, residual = (
        float(np.average([part[place] for part in parts], weights=weights)) for place in range(4)
    )
    students, judges = max(part.students for part in parts), max(part.judges for part in parts)
    return VarianceParts(item, student_item, judge, residual, sum(weights), students, judges)


def purchases(parts: Sequence[VarianceParts], prices: Prices) -> list[Purchase]:
    """As it stands; then half as many items more, twice and four times as many; then one judge more, and two.

    Items are fresh and judges the same: ``v = Σ_t (σ_I² + σ_SI² + σ_e²/k_t)/n_t / T²`` of a score, and
    ``2 Σ_t (σ_SI² + σ_e²/k_t)/n_t / T²`` of a difference, in which hard items cancel out.
    """
    if not parts:
        return []
    found = [_purchase(parts, prices, 1.0, 0)]
    found += [_purchase(parts, prices, times, 0) for times in _MORE_ITEMS]
    return found + [_purchase(parts, prices, 1.0, more) for more in _MORE_JUDGES]


def _purchase(parts: Sequence[VarianceParts], prices: Prices, times: float, judges: int) -> Purchase:
    headline = difference = 0.0
    cost: float | None = 0.0
    items = 0
    for part in parts:
        more = round(part.items * (times - 1))
        n, k = part.items + more, part.judges + judges
        seen = part.student_item + part.residual / k
        headline += (part.item + seen) / n / len(parts) ** 2
        difference += 2 * seen / n / len(parts) ** 2
        items = max(items, more)
        paid = _cost(part, prices, more, judges)
        cost = None if cost is None or paid is None else cost + paid
    return Purchase(items, judges, headline**0.5, difference**0.5, cost)


def _cost(part: VarianceParts, prices: Prices, items: int, judges: int) -> float | None:
    """Of what is added to a task; None where a price that it takes is not known."""
    if prices.judgment is None or (items and (prices.item is None or prices.answer is None)):
        return None
    of_items = 0.0
    if items:
        each = (prices.item or 0.0) + part.students * ((prices.answer or 0.0) + part.judges * prices.judgment)
        of_items = items * each
    return of_items + judges * part.items * part.students * prices.judgment
