"""How far judges agree, pair by pair, with intervals.

All is computed from arrays of tables of counts, (…, K, K): ``T[a, b]`` units, that is (answer, factor),
that one judge scored at level a and the other at level b, K levels in all: 0 Low, 1 Medium, 2 High, unless
scales differ. There is one number for each table, NaN where it is undefined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import LEVEL, Bounds, Floats, Scatter, relative_variance_of_undrawn_items
from coeval.analysis.measures.score_grid import THREE_LEVELS, Codes
from coeval.analysis.special import ndtr, ndtri, stdtrit

# Low, Medium and High.
LEVELS = 3


class LevelScale(NamedTuple):
    """The ``values`` (K,), 0 to 1, of levels in rising order. ``weighted``: use weighted κ, as for scales
    other than High, Medium and Low."""

    values: Floats = THREE_LEVELS
    weighted: bool = False

    @property
    def linear(self) -> Floats:
        """Return 1 minus the distance of two levels, (K, K) (linear weights; Cicchetti and Allison 1971)."""
        return np.asarray(1 - np.abs(np.subtract.outer(self.values, self.values)), np.float64)

    def plain_or_linear_kappa(self, tables: Floats) -> Floats:
        """Compute Cohen's κ (1960), ``(a − e) / (1 − e)``: a is the share of units that both judges scored
        alike, e the one expected by chance from both judges' shares of levels, ``Σ p_a q_a``; or his weighted
        κ (1968), with mean weights instead of shares. Undefined where e = 1."""
        weights, total = self.linear if self.weighted else np.eye(len(self.values)), tables.sum(axis=(-2, -1))
        with np.errstate(invalid="ignore", divide="ignore"):
            agreed = (tables * weights).sum(axis=(-2, -1)) / total
            first, second = tables.sum(axis=-1) / total[..., None], tables.sum(axis=-2) / total[..., None]
            by_chance = (first[..., :, None] * weights * second[..., None, :]).sum(axis=(-2, -1))
            kappas = (agreed - by_chance) / (1 - by_chance)
        return np.where(by_chance < 1 - 1e-12, kappas, np.nan)


DEFAULT_LEVELS = LevelScale()


def tabulate_pair_levels(
    first: NDArray[np.int8], second: NDArray[np.int8], block: Codes, blocks: int, levels: int = LEVELS
) -> Floats:
    """Count the units that both judges scored, by block of items and both levels: (blocks, K, K). Levels
    (below 0: none) and blocks of the units are (C,)."""
    both = (first >= 0) & (second >= 0)
    key = (block[both].astype(np.int64) * levels + first[both]) * levels + second[both]
    counts = np.bincount(key, minlength=blocks * levels * levels)
    return counts.reshape(blocks, levels, levels).astype(np.float64)


# --- Reliability of a panel: Krippendorff's α and intraclass correlations
#
# All are computed from the units, that is (response, factor), that every one of k judges scored, by way of
# sums over units, so that weights can be drawn for datapoints.


class PanelSums(NamedTuple):
    """Sums over the units that all judges scored: ``coincidences`` (…, K, K); ``units``, ``squares`` Σx² and
    ``rows`` Σ(Σ_j x)² (…,), ``columns`` Σ_i x by judge (…, k); x are values of levels."""

    coincidences: Floats
    units: Floats
    squares: Floats
    rows: Floats
    columns: Floats


class AlphaAndIcc(NamedTuple):
    """Krippendorff's α, and intraclass correlations of one judge (``single``) and of the mean of all k."""

    alpha: Floats
    single: Floats
    average: Floats


def panel_sums_by_unit(levels: NDArray[np.int8], values: Floats = THREE_LEVELS) -> PanelSums:
    """Return each unit's own sums. ``levels`` (N, k): of all k judges; ``values`` (K,): of the levels."""
    judges = levels.shape[1]
    counts = (levels[:, :, None] == np.arange(len(values))).sum(axis=1)  # (N, K)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(values), dtype=np.int64)
    x = values[levels]
    total = x.sum(axis=1)
    return PanelSums(pairs / max(judges - 1, 1), np.ones(len(x)), (x**2).sum(axis=1), total**2, x)


def krippendorff_alpha(coincidences: Floats) -> Floats:
    """Compute Krippendorff's α (2011) for ordinal levels, ``1 − Do / De``, from tables of coincidences (…, K,
    K).

    The distance of two levels is ``δ² = (Σ_{g=c…k} n_g − (n_c + n_k)/2)²``, n being the values at each
    level. NaN where all values are the same.
    """
    values = coincidences.sum(axis=-1)
    total = values.sum(axis=-1)
    upto = np.cumsum(values, axis=-1)
    between = np.abs(
        upto[..., :, None] - upto[..., None, :] - (values[..., :, None] - values[..., None, :]) / 2
    )
    squares = between**2
    observed = (coincidences * squares).sum(axis=(-2, -1))
    expected = (values[..., :, None] * values[..., None, :] * squares).sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha = 1 - (total - 1) * observed / expected
    return np.where(expected > 0, alpha, np.nan)


def compute_alpha_and_icc(sums: PanelSums) -> AlphaAndIcc:
    """Compute α, ICC(2,1) and ICC(2,k): two-way random effects, absolute agreement (Shrout and Fleiss 1979).

    With the mean squares of units (R), judges (C) and the rest (E): ``(R − E) / (R + (k − 1)E + k(C −
    E)/n)``, and for the mean of k judges ``(R − E) / (R + (C − E)/n)``.
    """
    units, judges = sums.units, sums.columns.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = sums.columns.sum(axis=-1) ** 2 / (units * judges)
        of_units = sums.rows / judges - centre
        of_judges = (sums.columns**2).sum(axis=-1) / units - centre
        residual = sums.squares - centre - of_units - of_judges
        r, c = of_units / (units - 1), of_judges / (judges - 1)
        e = residual / ((units - 1) * (judges - 1))
        single = (r - e) / (r + (judges - 1) * e + judges * (c - e) / units)
        average = (r - e) / (r + (c - e) / units)
    return AlphaAndIcc(krippendorff_alpha(sums.coincidences), single, average)


# --- Intervals of agreement and reliability by Bayesian bootstrap
#
# Each is a function of sums over items (counts of levels, sums of squares), so random weights for the items
# give its distribution: the Bayesian bootstrap (Rubin 1981), thousands of draws as one matrix product. As in
# `coeval.analysis.intervals`, part of an observation is added at either end, so that an interval has a width
# where all items are alike.
#
# The bounds are quantiles of the draws, shifted by twice the bias that the draws without ends have (the bias-
# corrected percentiles of Efron 1981): chance makes judges look less reliable than they are, in the sample as
# much as in the draws once more. With few items quantiles lie too close together, so we take those half way
# from the normal quantile to t's of ``n − 1`` (after Hesterberg 2015): 1.2 % instead of 2.5 % at six items.

# A 2.5 % quantile of 2,000 draws rests on 50 of them, so it moves by about 0.06 of a standard error.
DRAWS = 2000
# Weights take 16 MB (2,000 × 1,000 floats) however many items there are.
MOST_BLOCKS = 1000
# Half an observation at either end: the largest weight that `weight_of_end_items` gives.
_AT_EACH_END = 0.5
# Half an observation, the largest weight, is 16 parts, drawn once and shared by all measures.
_PARTS = 32
# The most parts that an end gets.
_MOST_PARTS = 20
# The largest bias corrected, in standard errors: where a handful of items decide, draws say no more.
_MOST_BIAS = 0.8


class Ends(NamedTuple):
    """The sums that one item at either end would add, (K,): judges who agree in all, and judges who agree
    only by chance. Half of their levels are as they use them and half evenly spread, since levels hardly
    seen are what is least known where nearly all scores are the same."""

    best: Floats
    worst: Floats


class BootstrapDraws(NamedTuple):
    """Draws (B,) of a measure: ``plain``, and with items at the ends for the ``low`` and ``high`` bound."""

    plain: Floats
    low: Floats
    high: Floats


def smooth_level_shares(shares: Floats) -> Floats:
    """Return the shares of levels, (…, levels), for an item at either end: halfway to an even spread."""
    return np.asarray((shares + 1 / shares.shape[-1]) / 2, np.float64)


def unseen_agreement_share(tables: Floats, items: int, linear: Floats) -> float:
    """Return `relative_variance_of_undrawn_items` of the weighted agreement by item: near 1 where it is
    all or nothing or hardly tested, near 0 where each item shows a good deal of it. ``tables`` (blocks,
    K, K): units by the levels of two judges, or coincidences of several; ``linear`` as in `LevelScale`."""
    sizes, sums = tables.sum(axis=(1, 2)), (tables * linear).sum(axis=(1, 2))
    share = float(sums.sum() / sizes.sum())
    distances = (sums - share * sizes) * items / sizes.sum()
    return relative_variance_of_undrawn_items(share, [Scatter(items, float(distances @ distances))])


def weight_of_end_items(relative_variance_of_undrawn_items: float) -> float:
    """Return how much of an item to add at either end, at most half: ``φ₀^⅓ / 2`` (the root was found by
    ``python -m evidence.measure_coverage``)."""
    return float(_AT_EACH_END * relative_variance_of_undrawn_items ** (1 / 3))


class Reweighting:
    """Bootstrap weights for (I,) items, the same in every process. Items of one ``cluster``, (I,), share a
    weight. Beyond `MOST_BLOCKS` clusters they are put into that many random blocks, and each block is
    drawn as one. ``block`` (I,) is each item's, of ``blocks``."""

    def __init__(self, items: int, seed: int = 0, cluster: Codes | None = None) -> None:
        random = np.random.default_rng(seed)
        self.items = items
        clusters = items if cluster is None else int(cluster.max(initial=-1)) + 1
        self.blocks = min(clusters, MOST_BLOCKS)
        self.block = np.arange(clusters) % max(self.blocks, 1)
        if clusters > MOST_BLOCKS:
            self.block = random.permutation(self.block)
        if cluster is not None:
            self.block = self.block[cluster]
        self._weights = random.standard_exponential((DRAWS, self.blocks))
        parts = random.standard_gamma(1 / _PARTS, (2, _MOST_PARTS, DRAWS))
        self._ends = np.concatenate([np.zeros((2, 1, DRAWS)), parts.cumsum(axis=1)], axis=1)

    def draw_smoothed_means(self, sums: Floats, counts: Floats) -> Floats:
        """Draw means of scores from 0 to 1, (draws, K), from their ``sums`` and ``counts`` (blocks, K); half
        an observation is added at either end of the scale."""
        random = np.random.default_rng(1)
        low, high = random.standard_gamma(_AT_EACH_END, (2, DRAWS, sums.shape[1]))
        has_scores = counts.sum(axis=0) > 0
        with np.errstate(invalid="ignore"):
            means = (self._weights @ sums + high) / (self._weights @ counts + low + high)
        return np.where(has_scores, means, np.nan)

    def draw_sums(self, sums: Floats) -> Floats:
        """Draw the totals of ``sums`` (blocks, K) with random weights for the blocks: (draws, K)."""
        return self._weights @ sums

    def add_ends(self, drawn: Floats, ends: Ends, best_weight: float, worst_weight: float) -> Floats:
        """Add ``best`` and ``worst`` parts of an item at either end to draws of sums, as gamma variables like
        the weights; the same for all measures, so that means over pairs of judges keep what these share."""
        for sums, weight, chance in zip(ends, (best_weight, worst_weight), self._ends, strict=True):
            parts = min(round(weight * _PARTS), _MOST_PARTS)
            if parts:
                drawn = drawn + chance[parts][:, None] * sums
        return drawn


def bootstrap_interval(
    drawn: BootstrapDraws, value: float, items: int, level: float = LEVEL
) -> Bounds | None:
    """Return the bias-corrected interval of a measure over items; None where too few draws are finite."""
    plain, low, high = (draws[np.isfinite(draws)] for draws in drawn)
    if items < 2 or min(len(low), len(high)) < len(drawn.low) / 2 or not np.isfinite(value):
        return None
    near = np.abs(plain - value) < 1e-9
    below = ((plain < value) & ~near).sum() + near.sum() / 2
    bias = float(np.clip(ndtri((below + 0.5) / (len(plain) + 1)), -_MOST_BIAS, _MOST_BIAS))
    half_width = _half_width_in_errors(items, level)
    quantiles = ndtr(2 * bias - half_width), ndtr(2 * bias + half_width)
    return Bounds(
        min(float(np.quantile(low, quantiles[0])), value), max(float(np.quantile(high, quantiles[1])), value)
    )


def percentile_interval(draws: Floats, value: float, items: int) -> Bounds | None:
    """Return the percentile interval of draws, (B,), that have no notable bias."""
    values = draws[np.isfinite(draws)]
    if items < 2 or len(values) < len(draws) / 2 or not np.isfinite(value):
        return None
    tail = float(ndtr(-_half_width_in_errors(items, LEVEL)))
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    return Bounds(min(low, value), max(high, value))


def spread_measure_interval(draws: Floats, value: float, items: int) -> Bounds | None:
    """Return the interval of a measure of spread, from 0 up, that chance inflates: in the sample by as much
    as in the draws once more, so the draws' excess over ``value`` is subtracted twice from the lower
    bound."""
    bounds = percentile_interval(draws, value, items)
    if bounds is None:
        return None
    excess = 2 * (float(draws[np.isfinite(draws)].mean()) - value)
    return Bounds(max(min(bounds.low - excess, value), 0.0), bounds.high)


def _half_width_in_errors(items: int, level: float) -> float:
    """Return the half width of the interval in standard errors, where the draws are normal."""
    probability = (1 + level) / 2
    return float(stdtrit(items - 1, probability) + ndtri(probability)) / 2
