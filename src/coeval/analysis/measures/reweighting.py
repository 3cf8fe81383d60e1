"""Intervals of measures that are no means: chance-corrected agreement, reliability.

Each is a function of sums over datapoints (counts of levels, sums of squares), so other weights for the
datapoints give its distribution: the Bayesian bootstrap (Rubin 1981), thousands of draws as one product of
matrices. As in `coeval.analysis.intervals`, half an observation stands at either end, so that an interval has
a width where all datapoints are alike.

With few datapoints quantiles of such draws lie too close together, so those are taken that lie half way from
the normal quantile to t's of ``n − 1`` (after Hesterberg 2015): 1.2 % instead of 2.5 % at six datapoints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from coeval.analysis.intervals import LEVEL, Bounds, Floats

__all__ = ["Ends", "Reweighting", "at_ends", "shifted_spread", "spread"]

DRAWS = 2000
MOST_BLOCKS = 1000
_AT_EACH_END = 0.5


class Ends(NamedTuple):
    """The sums that one datapoint at either end would have, (K,): judges who agree in all, and judges who
    agree by chance alone. Each judge uses the levels half as it does and half alike, since levels that have
    hardly been seen are what little is known of where nearly all scores are the same."""

    best: Floats
    worst: Floats


def at_ends(shares: Floats) -> Floats:
    """The shares of levels, (…, levels), that judges have in a datapoint at either end."""
    return np.asarray((shares + 1 / shares.shape[-1]) / 2, np.float64)


class Reweighting:
    """Draws of weights for (I,) datapoints. More than `MOST_BLOCKS` of them are put into so many blocks by
    chance, and a block is drawn as one; the draws are the same in every process.

    ``block`` is that of each datapoint, (I,), of ``blocks``.
    """

    def __init__(self, items: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.items = items
        self.blocks = min(items, MOST_BLOCKS)
        self.block = np.arange(items) % max(self.blocks, 1)
        if items > MOST_BLOCKS:
            self.block = random.permutation(self.block)
        self._weights = random.standard_exponential((DRAWS, self.blocks))
        self._ends = random.standard_gamma(_AT_EACH_END, (DRAWS, 2))

    def shares(self, sums: Floats, counts: Floats) -> Floats:
        """(draws, K): means of scores from 0 to 1, of their ``sums`` and ``counts`` (blocks, K) with other
        weights for the blocks; for each of the K half an observation stands at either end of the scale."""
        random = np.random.default_rng(1)
        low, high = random.standard_gamma(_AT_EACH_END, (2, DRAWS, sums.shape[1]))
        there = counts.sum(axis=0) > 0
        with np.errstate(invalid="ignore"):
            means = (self._weights @ sums + high) / (self._weights @ counts + low + high)
        return np.where(there, means, np.nan)

    def draws(self, sums: Floats, ends: Ends | None = None) -> Floats:
        """(draws, K): ``sums`` (blocks, K) with other weights for the blocks."""
        found = self._weights @ sums
        return found if ends is None else found + self._ends @ np.stack(ends)


def spread(draws: Floats, found: float, items: int, level: float = LEVEL) -> Bounds | None:
    """The interval of a measure that has been ``found`` over some datapoints, from its draws, (B,); None
    where too few of them have a value."""
    values = draws[np.isfinite(draws)]
    if items < 2 or len(values) < len(draws) / 2 or not np.isfinite(found):
        return None
    probability = (1 + level) / 2
    tail = float(ndtr(-(stdtrit(items - 1, probability) + ndtri(probability)) / 2))
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    return Bounds(min(low, found), max(high, found))


def shifted_spread(draws: Floats, found: float, items: int) -> Bounds | None:
    """The same of a measure of how far things differ, from 0 on, which chance alone makes larger: in the
    sample by as much as in the draws once more. So what the draws have more than was found is taken off
    twice."""
    values = draws[np.isfinite(draws)]
    bounds = spread(draws, found, items)
    if bounds is None:
        return None
    excess = 2 * (float(values.mean()) - found)
    return Bounds(max(min(bounds.low - excess, found), 0.0), bounds.high)
