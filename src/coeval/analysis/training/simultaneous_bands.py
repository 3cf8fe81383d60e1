"""Intervals that hold all checkpoints' means at once.

Of six pointwise 95 % intervals one leaves its truth out in more than 5 of 100 training runs, so nothing can
be read off the shape of a curve by them. These are as much wider as it takes, and no wider: checkpoints are
asked the same items, and what is hard for one is hard for the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from coeval.analysis.intervals import LEVEL, Bounds, Floats, Scatter, mean_bounds

__all__ = ["pointwise_level", "simultaneous_bounds"]

_RESAMPLES = 2000
_AT_ONCE = 250
"""Resamples: what is held in memory at a time."""


def simultaneous_bounds(scores: Floats, level: float = LEVEL) -> Sequence[Bounds]:
    """The band at each checkpoint, from 0 to 1: `mean_bounds` at the level that `pointwise_level` says.

    Parameters
    ----------
    scores : (n, K) of n ≥ 1 items at K checkpoints, 0 to 1
    """
    each = pointwise_level(scores, level)
    means = scores.mean(axis=0)
    squares = ((scores - means) ** 2).sum(axis=0)
    return [
        mean_bounds(float(min(max(mean, 0.0), 1.0)), [Scatter(len(scores), float(square))], each)
        for mean, square in zip(means, squares, strict=True)
    ]


def pointwise_level(scores: Floats, level: float = LEVEL) -> float:
    """At which level the K intervals hold all means at once with probability ``level``.

    That of the quantile of the largest ``|m*_j − m_j| / se_j`` over a bootstrap of the items, which keeps the
    correlation between checkpoints (as in Montiel Olea and Plagborg-Møller 2019). It is at least ``level``
    and at most Šidák's ``level^(1/K)``, which stands where some checkpoint's items all score alike.
    """
    items, count = scores.shape
    sidak = float(level ** (1 / count))
    errors = scores.std(axis=0) / np.sqrt(items)
    if count == 1 or items < 2 or (errors <= 0).any():
        return sidak
    generator = np.random.default_rng(0)
    standard = (scores - scores.mean(axis=0)) / errors / items
    largest = []
    for _ in range(_RESAMPLES // _AT_ONCE):
        drawn = generator.multinomial(items, np.full(items, 1 / items), size=_AT_ONCE)
        largest.append(np.abs(drawn @ standard).max(axis=1))
    quantile = np.quantile(np.concatenate(largest), level)
    quantile = np.clip(quantile, ndtri((1 + level) / 2), ndtri((1 + sidak) / 2))
    return float(2 * ndtr(quantile) - 1)
