"""Intervals of measures that are no means: chance-corrected agreement, reliability.

Each is a function of sums over datapoints (counts of levels, sums of squares), so other weights for the
datapoints give its distribution: the Bayesian bootstrap (Rubin 1981), thousands of draws as one product of
matrices. As in `coeval.analysis.intervals`, part of an observation stands at either end, so that an interval
has a width where all datapoints are alike.

The bounds are quantiles of the draws, shifted by twice the bias that the draws without ends have (the
bias-corrected percentiles of Efron 1981): chance makes judges look less reliable than they are, in the sample
as much as in the draws once more. With few datapoints quantiles lie too close together, so those are taken
that lie half way from the normal quantile to t's of ``n − 1`` (after Hesterberg 2015): 1.2 % instead of 2.5 %
at six datapoints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from coeval.analysis.intervals import LEVEL, Bounds, Floats, Scatter, unseen_share
from coeval.analysis.measures.agreement import LINEAR
from coeval.analysis.measures.score_grid import Codes

__all__ = [
    "Drawn",
    "Ends",
    "Reweighting",
    "at_ends",
    "percentiles",
    "shifted_spread",
    "spread",
    "unseen_agreement",
    "weight_at_ends",
]

DRAWS = 2000
MOST_BLOCKS = 1000
_AT_EACH_END = 0.5
_PARTS = 32
_MOST_PARTS = 20
"""What stands at an end is made of so small parts of a datapoint, and of no more than so many."""
_MOST_BIAS = 0.8
"""In standard errors: where a handful of datapoints decide, the draws say no more of it."""


class Ends(NamedTuple):
    """The sums that one datapoint at either end would have, (K,): judges who agree in all, and judges who
    agree by chance alone. Each judge uses the levels half as it does and half alike, since levels that have
    hardly been seen are what little is known of where nearly all scores are the same."""

    best: Floats
    worst: Floats


class Drawn(NamedTuple):
    """Draws of one measure, (B,) each: of the datapoints ``alone``, and with what is added to them for the
    ``low`` bound and for the ``high`` one."""

    alone: Floats
    low: Floats
    high: Floats


def at_ends(shares: Floats) -> Floats:
    """The shares of levels, (…, levels), that judges have in a datapoint at either end."""
    return np.asarray((shares + 1 / shares.shape[-1]) / 2, np.float64)


def unseen_agreement(tables: Floats, items: int) -> float:
    """`unseen_share` of the weighted agreement by datapoint: near 1 where it is all or nothing or has hardly
    been put to the test, near 0 where each datapoint shows a good deal of it.

    Parameters
    ----------
    tables : (blocks, 3, 3) units by the levels of two judges, or coincidences of several
    items : datapoints in all blocks
    """
    sizes, sums = tables.sum(axis=(1, 2)), (tables * LINEAR).sum(axis=(1, 2))
    share = float(sums.sum() / sizes.sum())
    distances = (sums - share * sizes) * items / sizes.sum()
    return unseen_share(share, [Scatter(items, float(distances @ distances))])


def weight_at_ends(unseen: float) -> float:
    """How much of a datapoint is to stand at either end, at most half of one: ``φ₀^⅓ / 2``; the root was
    found by simulation (``python -m perf.measure_coverage``)."""
    return float(_AT_EACH_END * unseen ** (1 / 3))


class Reweighting:
    """Draws of weights for (I,) datapoints; those of one ``cluster``, (I,), have one weight. More than
    `MOST_BLOCKS` of them are put into so many blocks by chance, and a block is drawn as one; the draws are
    the same in every process.

    ``block`` is that of each datapoint, (I,), of ``blocks``.
    """

    def __init__(self, items: int, seed: int = 0, cluster: Codes | None = None) -> None:
        random = np.random.default_rng(seed)
        self.items = items
        alone = items if cluster is None else int(cluster.max(initial=-1)) + 1
        self.blocks = min(alone, MOST_BLOCKS)
        self.block = np.arange(alone) % max(self.blocks, 1)
        if alone > MOST_BLOCKS:
            self.block = random.permutation(self.block)
        if cluster is not None:
            self.block = self.block[cluster]
        self._weights = random.standard_exponential((DRAWS, self.blocks))
        parts = random.standard_gamma(1 / _PARTS, (2, _MOST_PARTS, DRAWS))
        self._ends = np.concatenate([np.zeros((2, 1, DRAWS)), parts.cumsum(axis=1)], axis=1)

    def shares(self, sums: Floats, counts: Floats) -> Floats:
        """(draws, K): means of scores from 0 to 1, of their ``sums`` and ``counts`` (blocks, K) with other
        weights for the blocks; for each of the K half an observation stands at either end of the scale."""
        random = np.random.default_rng(1)
        low, high = random.standard_gamma(_AT_EACH_END, (2, DRAWS, sums.shape[1]))
        there = counts.sum(axis=0) > 0
        with np.errstate(invalid="ignore"):
            means = (self._weights @ sums + high) / (self._weights @ counts + low + high)
        return np.where(there, means, np.nan)

    def draws(self, sums: Floats) -> Floats:
        """(draws, K): ``sums`` (blocks, K) with other weights for the blocks."""
        return self._weights @ sums

    def with_ends(self, drawn: Floats, ends: Ends, best: float, worst: float) -> Floats:
        """The same and so much of a datapoint at either end, in `_PARTS`: a gamma variable as the weights
        are. It is the same for all measures, so that means over pairs of judges keep what these share."""
        for end, weight, chance in zip(ends, (best, worst), self._ends, strict=True):
            parts = min(round(weight * _PARTS), _MOST_PARTS)
            if parts:
                drawn = drawn + chance[parts][:, None] * end
        return drawn


def spread(drawn: Drawn, found: float, items: int, level: float = LEVEL) -> Bounds | None:
    """The interval of a measure that has been ``found`` over some datapoints; None where too few of its draws
    have a value."""
    alone, low, high = (draws[np.isfinite(draws)] for draws in drawn)
    if items < 2 or min(len(low), len(high)) < len(drawn.low) / 2 or not np.isfinite(found):
        return None
    near = np.abs(alone - found) < 1e-9
    below = ((alone < found) & ~near).sum() + near.sum() / 2
    bias = float(np.clip(ndtri((below + 0.5) / (len(alone) + 1)), -_MOST_BIAS, _MOST_BIAS))
    reach = _reach(items, level)
    at = ndtr(2 * bias - reach), ndtr(2 * bias + reach)
    return Bounds(min(float(np.quantile(low, at[0])), found), max(float(np.quantile(high, at[1])), found))


def percentiles(draws: Floats, found: float, items: int, level: float = LEVEL) -> Bounds | None:
    """The same of draws, (B,), that have no bias to speak of."""
    values = draws[np.isfinite(draws)]
    if items < 2 or len(values) < len(draws) / 2 or not np.isfinite(found):
        return None
    tail = float(ndtr(-_reach(items, level)))
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    return Bounds(min(low, found), max(high, found))


def shifted_spread(draws: Floats, found: float, items: int) -> Bounds | None:
    """The same of a measure of how far things differ, from 0 on, which chance alone makes larger: in the
    sample by as much as in the draws once more. So what the draws have more than was found is taken off
    twice, from the lower bound."""
    bounds = percentiles(draws, found, items)
    if bounds is None:
        return None
    excess = 2 * (float(draws[np.isfinite(draws)].mean()) - found)
    return Bounds(max(min(bounds.low - excess, found), 0.0), bounds.high)


def _reach(items: int, level: float) -> float:
    """How many standard errors the bounds are off, where the draws are normal."""
    probability = (1 + level) / 2
    return float(stdtrit(items - 1, probability) + ndtri(probability)) / 2
