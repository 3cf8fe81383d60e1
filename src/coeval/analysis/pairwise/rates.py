"""Win rates and clipped means, their spread by a bootstrap over items, and strengths from comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coeval.analysis.intervals import SHARE, Bounds, Floats, Scale, Scatter, clustered_mean, mean_bounds
from coeval.analysis.special import expit

# Ends of a 95% interval rest on 25 draws each; a thousand refits stay a few matrix products.
RESAMPLES = 1000


class Rate(msgspec.Struct, frozen=True):
    """A rate in percent, with its 90 and 95% intervals.

    ``standard_error`` is the standard deviation of a bootstrap over items (Efron 1979), None for one item.
    The intervals are those of `mean_bounds` with the bootstrap's variance: unlike its percentiles they have
    a width where all items agree, and hold what they promise near 0 and 100.
    """

    value: float
    standard_error: float | None
    low_90: float
    high_90: float
    low_95: float
    high_95: float


def rate_with_spread(value: float, replicates: ArrayLike, items: int) -> Rate:
    """Return the rate ``value`` over ``items``, with the spread of its (resamples,) replicates, in percent.
    One item cannot be resampled and has no replicates."""
    replicated = np.asarray(replicates, dtype=np.float64)
    error = float(replicated.std(ddof=1)) if len(replicated) else None
    # The bootstrap's variance of a mean is SS/n².
    scatter = [Scatter(items, (items * (error or 0.0) / 100) ** 2)]
    bounds_90, bounds_95 = (mean_bounds(value / 100, scatter, level) for level in (0.90, 0.95))
    return Rate(
        value=value,
        standard_error=error,
        low_90=100 * bounds_90.low,
        high_90=100 * bounds_90.high,
        low_95=100 * bounds_95.low,
        high_95=100 * bounds_95.high,
    )


def draw_counts(count: int, generator: np.random.Generator, *, resamples: int = RESAMPLES) -> NDArray[Any]:
    """Draw how often each of ``count`` items is in each bootstrap resample: (resamples, count)."""
    return generator.multinomial(count, np.full(count, 1 / count), size=resamples)


# --- Weighted logistic regression of many resamples at once
#
# Bradley–Terry strengths, style control and length control are all this one fit with other columns. Targets
# may lie anywhere in 0 … 1 (a tie is ½, a judge's preference is a probability). Weights come as one row per
# fit, so a bootstrap of a thousand refits is a few matrix products.

# Keeps coefficients finite where the data separate perfectly, and unique where columns are redundant.
# Elsewhere it moves them by less than 1e-7.
_RIDGE = 1e-6

# Newton converges in a few steps; a fit that the data separate must end too.
_MOST_STEPS = 200
# 2⁻⁴⁰ is the objective's rounding (`_ROUNDING`): whether a shorter step is better cannot be seen.
_MOST_HALVINGS = 40
# Coefficients are of order one and shown to three digits; a smaller step changes none.
_SMALL_STEP = 1e-9
# Per unit of weight, what the objective may rise by rounding alone: no reason to shorten a step.
_ROUNDING = 1e-12


def fit_logistic(features: Floats, targets: Floats, weights: Floats, *, l1: float = 0.0) -> Floats:
    """Fit logistic regressions: coefficients β, one row per row w of ``weights``, that minimise

    ``Σ_i w_i · (log(1 + exp(x_i·β)) − y_i · x_i·β) + l1 · Σ_j |β_j|``

    by proximal Newton steps with a line search (Lee, Sun and Saunders 2014). There is no intercept but a
    column of ones among the ``features`` (n, k). ``targets`` (n,) lie in 0 … 1, ``weights`` are (fits, n) and
    none negative; returns (fits, k). scikit-learn's ``C`` is ``1 / l1``.
    """
    count, width = features.shape
    products = (features[:, :, None] * features[:, None, :]).reshape(count, width * width)
    slack = _ROUNDING * (1 + weights.sum(axis=1))
    beta = np.zeros((len(weights), width))
    objective = _elastic_net_losses(beta, features, targets, weights, l1)
    for _ in range(_MOST_STEPS):
        chance = expit(beta @ features.T)
        gradient = (weights * (chance - targets)) @ features + _RIDGE * beta
        curvature = ((weights * chance * (1 - chance)) @ products).reshape(-1, width, width)
        curvature += _RIDGE * np.eye(width)
        step = _newton_step(beta, gradient, curvature, l1)
        for _ in range(_MOST_HALVINGS):
            moved = _elastic_net_losses(beta + step, features, targets, weights, l1)
            worse = moved > objective + slack
            if not worse.any():
                break
            step[worse] /= 2
        else:
            step[worse] = 0.0
        beta = beta + step
        if np.abs(step).max(initial=0.0) < _SMALL_STEP:
            break
        objective = np.where(worse, objective, moved)
    return beta


def _elastic_net_losses(
    betas: Floats, features: Floats, targets: Floats, weights: Floats, l1: float
) -> Floats:
    margins = betas @ features.T
    losses: Floats = (weights * (np.logaddexp(0.0, margins) - targets * margins)).sum(axis=1)
    penalties: Floats = l1 * np.abs(betas).sum(axis=1) + _RIDGE / 2 * np.einsum("ij,ij->i", betas, betas)
    return losses + penalties


def _newton_step(beta: Floats, gradient: Floats, curvature: Floats, l1: float) -> Floats:
    """Return the step to the minimum of the quadratic model.

    With ``l1``, that of the best way to give each coefficient a sign or leave it at 0: features are
    few, so all 3^k ways are solved. (Descent by coordinates takes thousands of sweeps where features
    are nearly collinear, as in a handful of answers that are all shorter than the baseline's.)
    """
    if l1 == 0:
        return np.asarray(-np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0], dtype=np.float64)
    aim, least = beta, np.full(len(beta), np.inf)
    slope = (curvature @ beta[:, :, None])[:, :, 0] - gradient
    for pattern in product((-1.0, 0.0, 1.0), repeat=beta.shape[1]):
        signs = np.array(pattern)
        active = np.flatnonzero(signs)
        candidate = np.zeros_like(beta)
        system = curvature[:, active[:, None], active]
        pull = slope[:, active] - l1 * signs[active]
        candidate[:, active] = np.linalg.solve(system, pull[:, :, None])[:, :, 0]
        gain = (slope * candidate).sum(axis=1)
        height = np.einsum("ij,ijk,ik->i", candidate, curvature, candidate) / 2 - gain
        height += l1 * np.abs(candidate).sum(axis=1)
        better = (np.sign(candidate) == signs).all(axis=1) & (height < least)
        aim, least = np.where(better[:, None], candidate, aim), np.where(better, height, least)
    return aim - beta


# --- HealthBench score: points for met rubric items
#
# Arora et al. 2025. Negative points are for what an answer should not do, so an answer can score below 0;
# only the mean is clipped.


class ClippedMean(NamedTuple):
    """A mean clipped to 0 … 1, its bootstrap's standard deviation, its 95% interval, the number of values.
    Without values there is none of the first three."""

    mean: float | None
    bootstrap_std: float | None
    bounds: Bounds | None
    n: int


def healthbench_score(points: Sequence[float], met: Sequence[bool]) -> float | None:
    """Compute ``Σ points of the met items / Σ positive points``; None if no points can be gained.

    >>> healthbench_score([7, 5, 10, -6], [True, False, True, True]) 0.5
    """
    if len(points) != len(met):
        raise ValueError(f"each rubric item needs a verdict: {len(points)} items, {len(met)} verdicts")
    reachable = sum(value for value in points if value > 0)
    if reachable == 0:
        return None
    return sum(value for value, is_met in zip(points, met, strict=True) if is_met) / reachable


def clipped_mean(values: Sequence[float], least_possible: Sequence[float], *, seed: int = 0) -> ClippedMean:
    """Compute the mean of item scores, at most 1 each, as the benchmark reports it; resampled means are
    clipped likewise. ``least_possible``: what each score could be at the least, 0 or less.

    The interval is that of the mean on its own scale, which begins at the mean of the least scores, clipped.
    Where all of it lies below 0, it is that of as many scores of 0: no interval is without a width.
    """
    scores = np.array(values, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("values must be finite; leave out what has no score")
    n = len(scores)
    if not n:
        return ClippedMean(None, None, None, 0)
    drawn = draw_counts(n, np.random.default_rng(seed))
    spread = float(np.clip(drawn @ scores / n, 0.0, 1.0).std())
    scale = Scale(float(np.mean(least_possible)), SHARE.most)
    interval = clustered_mean(scores, np.arange(n), scale)
    low, high = interval.low or 0.0, interval.high or 0.0
    if high <= 0:
        low, high = mean_bounds(0.0, [Scatter(n, 0.0)])
    return ClippedMean(float(np.clip(scores.mean(), 0.0, 1.0)), spread, Bounds(max(low, 0.0), high), n)


# --- Strengths of students from comparisons (Bradley and Terry 1952); a tie is half a win for each

# Draws × clusters held at a time: 160 MB.
_AT_ONCE = 20_000_000
# A p-value is shown to three digits; halving so often leaves 2⁻²⁰.
_HALVINGS = 20


def fit_strengths(wins: Floats) -> Floats:
    """Fit log-strengths, (fits, k), to wins (fits, k, k), where ``wins[:, i, j]`` are those of i over j.

    They sum to zero. A student that wins or loses everything has a large one, not an infinite one: see the
    ridge of `fit_logistic`.
    """
    count = wins.shape[-1]
    winner, loser = np.nonzero(~np.eye(count, dtype=bool))
    features = np.zeros((len(winner), count))
    features[np.arange(len(winner)), winner] = 1.0
    features[np.arange(len(winner)), loser] = -1.0
    # Coordinates without the direction in which all strengths rise alike, of which comparisons say nothing.
    # Helmert's contrasts by their formula: loading scipy.linalg for them would take every run 70 ms.
    row, column = np.arange(1, count)[:, None], np.arange(count)
    basis = np.where(column < row, 1.0, np.where(column == row, -row, 0.0)) / np.sqrt(row * (row + 1.0))
    coefficients = fit_logistic(features @ basis.T, np.ones(len(winner)), wins[:, winner, loser])
    return np.asarray(coefficients @ basis, dtype=np.float64)


def sum_wins_by_cluster(
    cluster_count: int, student_count: int, cluster: NDArray[np.int64], who: NDArray[np.int64], won: Floats
) -> Floats:
    """Sum the wins of every student over every other, (clusters, k, k), by ``cluster`` (n,) of items.
    ``who``: (n, 2), first and second of each comparison; ``won``: 1 if the first won, ½ for a tie."""
    wins = np.zeros((cluster_count, student_count, student_count))
    np.add.at(wins, (cluster, who[:, 0], who[:, 1]), won)
    np.add.at(wins, (cluster, who[:, 1], who[:, 0]), 1 - won)
    return wins


class Strengths(NamedTuple):
    """Strengths of k students, and of as many resamples of clusters: (resamples, k). ``chance`` is how likely
    each wins against each, (k, k), ``again`` the same of the resamples."""

    clusters: int
    chance: Floats
    again: Floats

    def expected_win_rates(self) -> tuple[Floats, Floats]:
        """Return each student's chance to win against one of the others, and the same of the resamples."""
        others = len(self.chance) - 1
        return (self.chance.sum(axis=-1) - 0.5) / others, (self.again.sum(axis=-1) - 0.5) / others

    def p_value(self, winner: int, loser: int) -> float:
        """Return the p-value of two students' difference: 1 minus the largest level at which the interval of
        the chance that ``winner`` wins excludes ½."""
        share, sd = float(self.chance[winner, loser]), float(self.again[:, winner, loser].std(ddof=1))
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            bounds = share_bounds(share, sd, self.clusters, level)
            low, high = (level, high) if not bounds.low <= 0.5 <= bounds.high else (low, level)
        return 1 - low


def share_bounds(share: float, sd: float, clusters: int, level: float = 0.95) -> Bounds:
    """Return the interval of a share whose standard deviation over resamples of clusters is ``sd``; it has a
    width even if nothing scatters."""
    return mean_bounds(share, [Scatter(clusters, (clusters * sd) ** 2)], level)


def fit_bradley_terry(wins: Floats, *, seed: int = 0) -> Strengths:
    """Fit the strengths to `sum_wins_by_cluster`, and those of resamples of clusters (Efron 1979)."""
    clusters, count, _ = wins.shape
    flat = wins.reshape(clusters, -1)
    drawn = np.concatenate([flat.sum(axis=0)[None], *_resampled_sums(flat, seed)])
    log = fit_strengths(drawn.reshape(-1, count, count))
    chance = expit(log[:, :, None] - log[:, None, :])
    return Strengths(clusters, chance[0], chance[1:])


def _resampled_sums(flat: Floats, seed: int) -> Iterator[Floats]:
    """Yield sums over clusters that are drawn with replacement, some resamples at a time."""
    generator, clusters = np.random.default_rng(seed), len(flat)
    step = max(1, _AT_ONCE // clusters)
    for first in range(0, RESAMPLES, step):
        size = min(step, RESAMPLES - first)
        yield draw_counts(clusters, generator, resamples=size).astype(np.float64) @ flat
