"""A lower bound of a paired difference that holds at every number of items, for scores on a scale that ends.

A t interval of ten items of which no pair differs has no width, and calls any loss excluded; this bound lets
one more item be drawn, which loses the whole scale. ``docs/gate.md`` explains it, ``python -m evidence.gate``
measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from coeval.analysis.comparison.paired_difference import POWER, PairedScores, paired_difference
from coeval.analysis.comparison.pairing import ScoredPairs
from coeval.analysis.intervals import Floats
from coeval.analysis.special import ndtri, stdtr

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


def lower_bound_of_b_minus_a(
    strata: Sequence[PairedScores], alpha: float = ONE_SIDED, shares: Sequence[float] | None = None
) -> float:
    """Return the lower confidence bound of the mean over strata of b − a, at the level 1 − alpha, one-sided.

    The α-quantile of ``Σ w_i d_i`` over the items and one more of difference −1, with weights uniform on the
    simplex: Gaffke's bound (2005; Learned-Miller and Thomas 2020). Of differences that take two values it is
    Clopper and Pearson's; where no pair differs it is ``α^(1/n) − 1``. As the weights are exponential times
    over their sum, its probability is that of ``Σ (d_i − L) E_i ≤ 0``, found by inverting the characteristic
    function (Gil-Pelaez 1951). The added item counts as much as the one that counts most; over strata, each
    item counts by its share of its stratum, and each stratum by its share of ``shares`` (None: all alike).
    Scores run from 0 to 1; items of a cluster are one.
    """
    return _gaffke_lower_bound(*_independent_differences(strata, shares), alpha, 1.0)


def lower_bound_with_missing_at_worst(strata: Sequence[ScoredPairs], alpha: float = ONE_SIDED) -> float:
    """Return the lower bound of the mean over strata of b − a over all their items, missing ones as bad as
    can be: ``mean of n_h/N_h · D_h`` is bounded, and the most that the missing ones lose is added."""
    paired = [scored.pairs for scored in strata]
    means = [float(np.average(pairs.b - pairs.a, weights=pairs.weights)) for pairs in paired]
    shares = [
        len(pairs.a) / (len(pairs.a) + scored.missing) for pairs, scored in zip(paired, strata, strict=True)
    ]
    lost = [scored.low - share * mean for scored, share, mean in zip(strata, shares, means, strict=True)]
    bound = lower_bound_of_b_minus_a(paired, alpha, shares=shares if len(set(shares)) > 1 else None)
    return float(np.mean(shares)) * bound + float(np.mean(lost))


def p_value_of_loss_within_allowed(strata: Sequence[PairedScores], allowed_loss: float) -> float:
    """Return the two-sided p-value of "b loses ``allowed_loss`` or less", by the interval of
    `paired_difference`; 1 if the observed loss is no greater."""
    paired = paired_difference(strata)
    excess = -paired.difference - allowed_loss
    if excess <= 0 or paired.p is None:
        return 1.0
    return 2 * float(stdtr(paired.degrees, -excess / paired.error)) if paired.error else 0.0


def _gaffke_lower_bound(values: Floats, weights: Floats, alpha: float, copies_per_item: float) -> float:
    """Find the α-quantile for repeated items and one more of difference −1."""
    if len(values) > _MOST_KINDS:
        values = np.floor(values * _STEP) / _STEP
    kinds, counts = np.unique(np.stack([values, weights]), axis=1, return_counts=True)
    values, weights = np.append(kinds[0], -1.0), np.append(kinds[1], kinds[1].max())
    shapes, most = np.append(counts * copies_per_item, 1.0), float(values.max())
    if most <= -1:
        return -1.0
    from scipy.optimize import brentq

    def excess(bound: float) -> float:
        return probability_at_most_zero(weights * (values - bound), shapes) - alpha

    return float(brentq(excess, -1.0, most, xtol=_EXACT))


def count_items_to_decide(
    strata: Sequence[PairedScores], allowed_loss: float, alpha: float = ONE_SIDED
) -> int | None:
    """Return how many items would decide, four times in five, whether b loses more than ``allowed_loss``, if
    the difference is as observed: the bound lies above, or the loss is significantly more.

    None if the observed loss equals the allowed one, which no number of items decides, or if it takes too
    many.
    """
    values, weights = _independent_differences(strata)
    weights = weights / weights.sum()
    n, difference = sum(len(pairs.a) for pairs in strata), float(weights @ values)
    error = float(np.sqrt(weights**2 @ (values - difference) ** 2))
    power = float(ndtri(POWER))
    if difference < -allowed_loss:
        times = max((float(ndtri(1 - alpha)) + power) * error / (-difference - allowed_loss), 1.0) ** 2
        return int(np.ceil(n * times)) if times < _MOST_TIMES else None
    few, many = 1.0, _MOST_TIMES
    rounded = np.round(values * _ROUGH) / _ROUGH

    def is_noninferior(times: float) -> bool:
        bound = _gaffke_lower_bound(rounded, weights * len(weights), alpha, times)
        return bound - power * error / float(np.sqrt(times)) >= -allowed_loss

    if not is_noninferior(many):
        return None
    while many / few > 1.02:
        middle = float(np.sqrt(few * many))
        few, many = (few, middle) if is_noninferior(middle) else (middle, many)
    return int(np.ceil(n * many))


def _independent_differences(
    strata: Sequence[PairedScores], shares: Sequence[float] | None = None
) -> tuple[Floats, Floats]:
    """Return the differences of items, or of their clusters, and their weights, 1 on average in a stratum."""
    values, weights = [], []
    stratum_weights = np.ones(len(strata)) if shares is None else np.asarray(shares) / np.mean(shares)
    for pairs, share in zip(strata, stratum_weights, strict=True):
        counted = pairs.sum_by_cluster(pairs.weights)
        values.append(pairs.sum_by_cluster(pairs.weights * (pairs.b - pairs.a)) / counted)
        weights.append(share * (counted / counted.sum()))
    all_weights = np.concatenate(weights)
    return np.concatenate(values), all_weights * len(all_weights) / len(strata)


@cache
def _quadrature_nodes() -> tuple[Floats, Floats]:
    x, weights = np.polynomial.legendre.leggauss(_NODES)
    return np.exp(_FROM + (_TO - _FROM) * (x + 1) / 2), weights * (_TO - _FROM) / 2


def probability_at_most_zero(coefficients: Floats, shapes: Floats) -> float:
    """Return the probability that ``Σ c_i G_i ≤ 0`` for independent gamma variables of these shapes: ``½ −
    1/π ∫ sin(Σ k arctan(c u)) ∏ (1 + c²u²)^(−k/2) du/u``."""
    u, widths = _quadrature_nodes()
    spread = float(np.sqrt(shapes @ coefficients**2))
    mean = float(shapes @ coefficients)
    if abs(mean) > _BEYOND * spread or coefficients.min() >= 0 or coefficients.max() <= 0:
        return float(mean < 0)
    scaled = np.outer(u, coefficients / spread)
    turned = np.arctan(scaled) @ shapes
    left = np.exp(-np.log1p(scaled**2) @ shapes / 2)
    flat = mean / spread * float(np.exp(_FROM))
    return float(0.5 - (widths @ (np.sin(turned) * left) + flat) / np.pi)
