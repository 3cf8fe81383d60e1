"""A lower bound of a paired difference that holds at every number of items, for scores on a scale that ends.

A t interval of ten items of which no pair differs has no width, and calls any loss excluded; this bound lets
one more item be drawn, which loses the whole scale. ``docs/gate.md`` explains it, ``python -m evidence.gate``
measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import ndtri, stdtr

from coeval.analysis.comparison.paired_difference import POWER, PairedScores, paired_difference
from coeval.analysis.comparison.pairing import ScoredPairs
from coeval.analysis.intervals import Floats

# Of the two-sided level of 95 %: the share of losses beyond the margin that may pass.
ONE_SIDED = 0.025
# Nodes of the quadrature, and the logarithms of its ends in standard deviations: the integrand is flat below
# and has vanished above; with these, bounds of yes-or-no scores are Clopper and Pearson's to 1e-5.
_NODES, _FROM, _TO = 640, -14.0, 9.0
# Standard deviations beyond which the tail is nothing (below e^−10), while the integrand would turn too fast.
_BEYOND = 10.0
# Of the scale: far finer than what is shown, a tenth of a point.
_EXACT = 1e-8
# Different items beyond which differences are rounded down, to a 4,096th of the scale: ten thousand graded
# items are bounded in a second.
_MOST_KINDS, _STEP = 2_000, 4_096
# Of the scale, to which differences are rounded where only a number of items is sought.
_ROUGH = 256
# Times as many items as there are, beyond which nobody is told to collect them.
_MOST_TIMES = 10_000.0


def lower_bound(
    strata: Sequence[PairedScores],
    alpha: float = ONE_SIDED,
    shares: Sequence[float] | None = None,
) -> float:
    """Return the lower confidence bound of the mean over strata of b − a, at the level 1 − alpha, one-sided.

    The α-quantile of ``Σ w_i d_i`` over the items and one more of difference −1, with weights uniform on the
    simplex: Gaffke's bound (2005; Learned-Miller and Thomas 2020). Of differences that take two values it is
    Clopper and Pearson's; where no pair differs it is ``α^(1/n) − 1``. As the weights are exponential times
    over their sum, its probability is that of ``Σ (d_i − L) E_i ≤ 0``, found by inverting the characteristic
    function (Gil-Pelaez 1951). The added item counts as much as the one that counts most; over strata, each
    item counts by its share of its stratum.

    Parameters
    ----------
    strata : T ≥ 1 of them, scores from 0 to 1; items of a cluster are one
    alpha : how often a bound may lie above the true difference
    shares : how much each stratum counts, above 0; None: all alike
    """
    return _bound(*_independent(strata, shares), alpha, 1.0)


def bound_over_all(strata: Sequence[ScoredPairs], alpha: float = ONE_SIDED) -> float:
    """Return the lower bound of the mean over strata of b − a over all their items, the missing ones as bad
    as they can be: ``mean of n_h/N_h · D_h`` is bounded, and what the missing ones lose at most is added."""
    paired = [one.pairs for one in strata]
    means = [float(np.average(pairs.b - pairs.a, weights=pairs.weights)) for pairs in paired]
    shares = [len(pairs.a) / (len(pairs.a) + one.missing) for pairs, one in zip(paired, strata, strict=True)]
    lost = [one.low - share * mean for one, share, mean in zip(strata, shares, means, strict=True)]
    bound = lower_bound(paired, alpha, shares=shares if len(set(shares)) > 1 else None)
    return float(np.mean(shares)) * bound + float(np.mean(lost))


def beyond_p_value(strata: Sequence[PairedScores], drop: float) -> float:
    """Return the two-sided p-value of "b loses ``drop`` or less", by the interval of `paired_difference`; 1
    where no more than that is seen."""
    found = paired_difference(strata)
    beyond = -found.difference - drop
    if beyond <= 0 or found.p is None:
        return 1.0
    return 2 * float(stdtr(found.degrees, -beyond / found.error)) if found.error else 0.0


def _bound(values: Floats, weights: Floats, alpha: float, times: float) -> float:
    """Of different items, each as often as it stands there, and the one that was not drawn."""
    if len(values) > _MOST_KINDS:
        values = np.floor(values * _STEP) / _STEP
    kinds, counts = np.unique(np.stack([values, weights]), axis=1, return_counts=True)
    values, weights = np.append(kinds[0], -1.0), np.append(kinds[1], kinds[1].max())
    shapes, most = np.append(counts * times, 1.0), float(values.max())
    if most <= -1:
        return -1.0
    from scipy.optimize import brentq

    return float(
        brentq(
            lambda bound: at_most_zero(weights * (values - bound), shapes) - alpha, -1.0, most, xtol=_EXACT
        )
    )


def items_needed(strata: Sequence[PairedScores], drop: float, alpha: float = ONE_SIDED) -> int | None:
    """Return how many items would decide whether b loses more than ``drop``, four times in five, if the
    difference is as seen: that the bound lies above, or that the loss is significantly more.

    None: a loss that is seen to equal the drop is decided by no number of items, or by too many.
    """
    values, weights = _independent(strata)
    weights = weights / weights.sum()
    n, difference = sum(len(pairs.a) for pairs in strata), float(weights @ values)
    error = float(np.sqrt(weights**2 @ (values - difference) ** 2))
    power = float(ndtri(POWER))
    if difference < -drop:
        times = max((float(ndtri(1 - alpha)) + power) * error / (-difference - drop), 1.0) ** 2
        return int(np.ceil(n * times)) if times < _MOST_TIMES else None
    few, many = 1.0, _MOST_TIMES
    rounded = np.round(values * _ROUGH) / _ROUGH

    def decided(times: float) -> bool:
        bound = _bound(rounded, weights * len(weights), alpha, times)
        return bound - power * error / float(np.sqrt(times)) >= -drop

    if not decided(many):
        return None
    while many / few > 1.02:
        middle = float(np.sqrt(few * many))
        few, many = (few, middle) if decided(middle) else (middle, many)
    return int(np.ceil(n * many))


def _independent(
    strata: Sequence[PairedScores], shares: Sequence[float] | None = None
) -> tuple[Floats, Floats]:
    """The differences of items, or of clusters of them, and how much each counts; of one stratum, 1 on
    average."""
    values, weights = [], []
    of_strata = np.ones(len(strata)) if shares is None else np.asarray(shares) / np.mean(shares)
    for pairs, share in zip(strata, of_strata, strict=True):
        counted = pairs.summed(pairs.weights)
        values.append(pairs.summed(pairs.weights * (pairs.b - pairs.a)) / counted)
        weights.append(share * (counted / counted.sum()))
    every = np.concatenate(weights)
    return np.concatenate(values), every * len(every) / len(strata)


@cache
def _nodes() -> tuple[Floats, Floats]:
    x, weights = np.polynomial.legendre.leggauss(_NODES)
    return np.exp(_FROM + (_TO - _FROM) * (x + 1) / 2), weights * (_TO - _FROM) / 2


def at_most_zero(coefficients: Floats, shapes: Floats) -> float:
    """How likely ``Σ c_i G_i ≤ 0`` is for independent gamma variables of these shapes:
    ``½ − 1/π ∫ sin(Σ k arctan(c u)) ∏ (1 + c²u²)^(−k/2) du/u``."""
    u, widths = _nodes()
    spread = float(np.sqrt(shapes @ coefficients**2))
    mean = float(shapes @ coefficients)
    if abs(mean) > _BEYOND * spread or coefficients.min() >= 0 or coefficients.max() <= 0:
        return float(mean < 0)
    scaled = np.outer(u, coefficients / spread)
    turned = np.arctan(scaled) @ shapes
    left = np.exp(-np.log1p(scaled**2) @ shapes / 2)
    flat = mean / spread * float(np.exp(_FROM))
    return float(0.5 - (widths @ (np.sin(turned) * left) + flat) / np.pi)
