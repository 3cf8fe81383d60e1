"""How much better one is than another on the same items: difference, interval, p-value, smallest effect.

Items are the independent units: what judges, factors or samples gave to an item is one score of it, and an
item's two scores belong together. Of items that nearly repeat each other, the group is the unit. Where
several strata (tasks) count alike, differences are averaged over them. ``docs/compare.md`` explains the
choices; ``python -m evidence.paired`` measures coverage, false positives and power.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import (
    ALPHA,
    LEVEL,
    Bounds,
    Floats,
    Looks,
    Scatter,
    bounds_at_level,
    mean_bounds,
)
from coeval.analysis.panel.mean_squares import (
    JudgeScatter,
    JudgeValues,
    Spread,
    average_scatters,
    estimate_judge_scatter,
    means_by_judge,
    spread_over_judges,
)
from coeval.analysis.special import bdtr, ndtr, stdtr, stdtrit

# --- Adjusted p-values

_Name = TypeVar("_Name", bound=Hashable)


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that one below 0.05 is false in at most 5 of 100 families (Holm 1979). ``p'_(i) =
    max over j ≤ i of (m − j + 1) p_(j)``, at most 1; in the given order."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted.tolist()


def holm_adjust_by_name(p_values: Mapping[_Name, float | None]) -> dict[_Name, float]:
    """Adjust the p-values that are not None, as `holm_adjust` does; return them by name."""
    defined = {name: p for name, p in p_values.items() if p is not None}
    return dict(zip(defined, holm_adjust(list(defined.values())), strict=True))


Test: TypeAlias = Literal["paired t", "exact McNemar", "sign flips"]

# The convention since Cohen (1988): a true gap is to be found four times in five.
POWER = 0.8
# Items whose two scores differ: with fewer, their scatter says too little of that of all items.
_FEWEST_DIFFERING = 5
# Where items lost whole stand among small differences, so many of them at least show that a few carry nearly
# all scatter; of fewer items that is chance (evidence/paired.py, rare losses).
_ENOUGH = 20
# Of the scale: means farther apart lie at opposite ends, if either is near one.
_OPPOSITE = 0.5
# Of the scale: a mean is near its end where it is closer, …
_END = 0.1
# … and where so few whole items' worth of score separate it from there.
_FEW_AT_END = 6
# Differing items up to which every way to flip their signs is tried: 16,384 of them.
_ALL_FLIPS = 14
# Standard errors: below, two large terms of the formula cancel, and the normal tail is as good.
_NO_TAIL = 0.05
# Steps of the scale: means of up to ten scores are multiples of one of them.
_FINEST = 5_040
# Differences by less are rounding: above that of sums of thousands of scores (1e-13), far below the smallest
# step (1/5,040).
_EQUAL = 1e-9
# Share of an item: so much more scatter there may be than is seen of few items. Without it a run of 12 to 20
# items with means near 90 finds what it promised in 62 to 75 of 100, not 80 (evidence/paired.py).
_UNSEEN = 0.5
# Steps to a detectable difference: each halves what is left to go, or nearly.
_APPROACHES = 60


class PairedScores(NamedTuple):
    """Scores of n items in one stratum, 0 to 1, and the weight of each item. ``clusters``: one number per
    item, shared by items that are not independent evidence; None: all items are."""

    a: Floats
    b: Floats
    weights: Floats
    clusters: NDArray[np.integer[Any]] | None = None

    def sum_by_cluster(self, values: Floats) -> Floats:
        """Sum items' values over each cluster; without clusters return them unchanged."""
        if self.clusters is None:
            return values
        _, at = np.unique(self.clusters, return_inverse=True)
        return np.bincount(at, values).astype(np.float64)


class Difference(msgspec.Struct, frozen=True):
    """b − a over n paired items with its 95% interval and p-value, in the unit of the scores.

    ``minimum_detectable`` is the true difference that is found four times in five by a test at 5 %,
    two-sided, shared out evenly among all comparisons of its family, as Holm's adjustment does for the first
    of them; a smaller one may be found too, less often.
    Where ``p`` is 0.05 or more, the interval is widened to reach 0.
    ``p`` and ``minimum_detectable`` are None where a single item is all there is. ``error`` is the standard
    error over items, with its ``degrees`` of freedom. ``identical``: both score the same on every item.
    """

    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    error: float
    degrees: float
    p: float | None
    n: int
    minimum_detectable: float | None
    test: Test
    identical: bool = False


class _Stratum(NamedTuple):
    """Both means, and each item's (or cluster's) weighted deviation from them, as in the cluster-robust
    variance (Liang and Zeger 1986)."""

    mean_a: float
    mean_b: float
    deviations_a: Floats
    deviations_b: Floats

    @property
    def items(self) -> int:
        return len(self.deviations_a)


def paired_difference(strata: Sequence[PairedScores], family_size_for_detectable: int = 1) -> Difference:
    """Compute the difference of paired means, averaged over strata, with its interval and p-value.

    *Interval.* In the middle of the scale ``D ± t·SE`` with the variance of the items' differences, over
    strata with Satterthwaite's degrees of freedom. Near an end of the scale (a mean closer than 0.1, by less
    than six items' worth of score) that variance is underrated; there it is lent one more observation, of
    the variance ``m_a(1 − m_a) + m_b(1 − m_b)``. Where fewer than five items differ at all, or carry the
    scatter of means at opposite ends or of small differences in the middle, MOVER takes over (Zou and Donner
    2008): the intervals of both means and the correlation of the items' scores.

    *p-value.* For scores that are right or wrong, McNemar's exact test (1947); elsewhere the paired t test
    if the interval is t's, and the sign-flip permutation test (Fisher 1935) if it is not.

    ``family_size_for_detectable``: how many comparisons are made at once, this one included.
    """
    parts = [_means_and_cluster_deviations(pairs) for pairs in strata]
    mean_a = float(np.mean([part.mean_a for part in parts]))
    mean_b = float(np.mean([part.mean_b for part in parts]))
    difference, n = mean_b - mean_a, sum(part.items for part in parts)
    item_differences = [pairs.sum_by_cluster(pairs.b - pairs.a) for pairs in strata]
    differing_items = float(sum((np.abs(values) > _EQUAL).sum() for values in item_differences))
    binary = len(strata) == 1 and _is_unweighted_binary(strata[0])
    near_end = any(map(_is_near_scale_end, parts))
    # near an end, one more item is lent, with the variance of two independent scores that are right or wrong
    spread = _estimate_spread(parts, mean_a * (1 - mean_a) + mean_b * (1 - mean_b) if near_end else 0.0)
    effective = sum(map(_effective_item_count, item_differences))
    if abs(difference) > _OPPOSITE + _EQUAL if near_end else n >= _ENOUGH:
        differing_items = min(differing_items, effective)
    few_differ = differing_items < _FEWEST_DIFFERING - _EQUAL or spread.error == 0
    if few_differ:
        low, high = _mover_bounds(parts, mean_a, mean_b)
        spread = Spread((high - low) / 2 / float(stdtrit(max(n - 1, 1), (1 + LEVEL) / 2)), max(n - 1, 1))
    else:
        half = float(stdtrit(spread.degrees, (1 + LEVEL) / 2)) * spread.error
        low, high = max(difference - half, -1.0), min(difference + half, 1.0)
    test: Test = "exact McNemar" if binary else "sign flips" if near_end or few_differ else "paired t"
    p = _compute_p_value(test, strata, difference, spread) if n > 1 else None
    if p is not None and p >= ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    raised = _enlarge_spread_if_items_differ(parts, effective) or spread
    detectable = _find_detectable_difference(parts, mean_a, mean_b, raised, family_size_for_detectable)
    if binary:  # the exact test asks for one discordant pair more
        detectable += 1 / n
    return Difference(
        mean_a=mean_a,
        mean_b=mean_b,
        difference=difference,
        low=low,
        high=high,
        error=spread.error,
        degrees=spread.degrees,
        p=p,
        n=sum(len(pairs.a) for pairs in strata),
        minimum_detectable=min(detectable, 1.0) if n > 1 else None,
        test=test,
        identical=all(bool((pairs.a == pairs.b).all()) for pairs in strata),
    )


def _enlarge_spread_if_items_differ(parts: Sequence[_Stratum], effective_items: float) -> Spread | None:
    """Return the observed spread, raised for what few items do not show; None if no item differs."""
    spread = _estimate_spread(parts, 0.0)
    raised = spread._replace(error=spread.error * (1 + _UNSEEN / max(effective_items, 1.0)))
    return raised if spread.error else None


def _is_near_scale_end(stratum: _Stratum) -> bool:
    """Check whether a mean is only a few items' worth of score away from an end of the scale."""
    room = min(stratum.mean_a, 1 - stratum.mean_a, stratum.mean_b, 1 - stratum.mean_b)
    return room < _END and stratum.items * room < _FEW_AT_END


def _effective_item_count(differences: Floats) -> float:
    """Estimate how many items carry the scatter of differences around their median: k if k are alike and the
    others all the same; a third of a normal sample (``(Σx²)² / Σx⁴``, the inverse participation ratio)."""
    squares = (differences - np.median(differences)) ** 2
    total = float(squares.sum())
    return total**2 / float(squares @ squares) if total > 0 else 0.0


class AdjustedP(NamedTuple):
    """An adjusted p-value, and the most that the adjustment can multiply a p-value by."""

    p: float
    tests: int


def widen_bounds_to_adjusted_p(
    difference: float, tested: Difference | OverJudges, adjusted: AdjustedP | None, looks: Looks | None = None
) -> Bounds | None:
    """Widen the interval of ``difference`` to confidence 1 − 0.05/k, where the adjustment multiplied p by k,
    so that it excludes 0 if the adjusted p-value is below 0.05.

    If the p-value is capped at 1, k is the number of tests; if a parent test is not significant, k is what
    keeps 0 in. ``looks``: the looks at a growing run that the p-value allows for. None if there is no
    interval.
    """
    if tested.low is None or tested.high is None:
        return None
    bounds = Bounds(tested.low, tested.high)
    if tested.p is None or adjusted is None:
        return bounds
    multiplier = adjusted.p / tested.p if tested.p > 0 else float(adjusted.tests)
    if adjusted.p < ALPHA:
        multiplier = min(multiplier, adjusted.tests)
    elif adjusted.p >= 1:
        multiplier = max(multiplier, adjusted.tests)
    return bounds_at_level(difference, bounds, tested.degrees, ALPHA / multiplier, looks)


def _find_detectable_difference(
    parts: Sequence[_Stratum], mean_a: float, mean_b: float, spread: Spread, family_size: int
) -> float:
    """Return the true difference X that is detected with 80% power: ``X = (t_c + t_0.8) · SE(X)``.

    If one mean were X nearer to the middle of the scale, its scores would scatter more: by m(1 − m) of its
    mean. So ``SE(X)² = SE² · V(m, m ∓ X) / V(m_a, m_b)`` with ``V(p, q) = p(1 − p) + q(1 − q) − 2r √(p(1 −
    p) q(1 − q))``, the mean m of both and the correlation r of their scores; never less than SE.
    """
    correlation, middle = _correlate_means(parts), (mean_a + mean_b) / 2
    certainty = 1 - (1 - LEVEL) / 2 / family_size
    smallest = float(stdtrit(spread.degrees, [certainty, POWER]).sum()) * spread.error
    variance, detectable = _difference_variance(mean_a, mean_b, correlation), smallest
    for _ in range(_APPROACHES if variance > 0 else 0):
        shifted_mean = middle - detectable if middle > 0.5 else middle + detectable
        growth = _difference_variance(middle, min(max(shifted_mean, 0.0), 1.0), correlation) / variance
        detectable = min(smallest * float(np.sqrt(max(growth, 1.0))), 1.0)
    return detectable


def _difference_variance(mean_p: float, mean_q: float, correlation: float) -> float:
    """Return the variance of the difference of two right-or-wrong scores with these means and correlation."""
    variance_p, variance_q = mean_p * (1 - mean_p), mean_q * (1 - mean_q)
    return variance_p + variance_q - 2 * correlation * float(np.sqrt(max(variance_p * variance_q, 0.0)))


def mcnemar_p_value(only_a: int, only_b: int) -> float:
    """Return the p-value of McNemar's exact test, by the items right only in a, and only in b."""
    discordant = only_a + only_b
    return min(1.0, 2 * float(bdtr(min(only_a, only_b), discordant, 0.5))) if discordant else 1.0


def sign_flip_p_value(differences: Floats) -> float:
    """Return the two-sided p-value of the sum of differences under all flips of their signs.

    Up to 14 nonzero differences, every flip is counted. With more, the tail is that of the saddlepoint
    approximation (Lugannani and Rice 1980; Robinson 1982) with the cumulants ``K(s) = Σ log cosh(s d_i)``,
    taken one step nearer if all are multiples of a step: their sums lie two steps apart.

    ``differences``: (n,) of items, each multiplied by the weight of its stratum.
    """
    sizes = np.abs(differences[np.abs(differences) > _EQUAL])
    total = abs(float(differences.sum()))
    if len(sizes) <= _ALL_FLIPS:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums - size, sums + size])
        return float((np.abs(sums) >= total * (1 - _EQUAL)).mean())
    if total >= float(sizes.sum()) * (1 - _EQUAL):
        return 2.0 ** (1 - len(sizes))
    reached, most = max(total - _largest_common_step(sizes), 0.0), float(sizes.max())
    return min(1.0, 2 * _flipped_sum_upper_tail(sizes / most, reached / most))


def _largest_common_step(sizes: Floats) -> float:
    """Return the largest number that all sizes are multiples of; 0 if it is too small to matter."""
    counts = np.rint(sizes * _FINEST)
    if np.abs(sizes * _FINEST - counts).max() > _EQUAL * _FINEST:
        return 0.0
    return float(np.gcd.reduce(counts.astype(np.int64))) / _FINEST


def _flipped_sum_upper_tail(sizes: Floats, total: float) -> float:
    """Approximate the probability that the sum of ``±size_i`` reaches ``total`` ≥ 0, by its saddlepoint."""
    z = total / float(np.sqrt(sizes @ sizes))
    if z < _NO_TAIL:  # the two terms below cancel there
        return float(ndtr(-z))
    low, high = 0.0, 1.0
    while float(sizes @ np.tanh(high * sizes)) < total:
        high *= 2
    for _ in range(60):
        s = (low + high) / 2
        low, high = (s, high) if float(sizes @ np.tanh(s * sizes)) < total else (low, s)
    x = s * sizes
    cumulant = float((x + np.log1p(np.exp(-2 * x)) - np.log(2)).sum())
    w = float(np.sqrt(2 * (s * total - cumulant)))
    u = s * float(np.sqrt(np.sum((sizes / np.cosh(np.minimum(x, 300.0))) ** 2)))
    return float(ndtr(-w) + np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi) * (1 / u - 1 / w))


def _means_and_cluster_deviations(pairs: PairedScores) -> _Stratum:
    share = pairs.weights / pairs.weights.mean()
    mean_a, mean_b = float((share * pairs.a).mean()), float((share * pairs.b).mean())
    deviations_a = pairs.sum_by_cluster(share * (pairs.a - mean_a))
    deviations_b = pairs.sum_by_cluster(share * (pairs.b - mean_b))
    items_per_cluster = len(deviations_a) / len(pairs.a)
    return _Stratum(mean_a, mean_b, deviations_a * items_per_cluster, deviations_b * items_per_cluster)


def _is_unweighted_binary(pairs: PairedScores) -> bool:
    scores = np.concatenate([pairs.a, pairs.b])
    alone = pairs.clusters is None or len(np.unique(pairs.clusters)) == len(pairs.clusters)
    return alone and bool(((scores == 0) | (scores == 1)).all() and (pairs.weights == pairs.weights[0]).all())


def _estimate_spread(parts: Sequence[_Stratum], extra_variance: float) -> Spread:
    """Estimate the standard error from items' differences; a stratum of one item takes the pooled scatter.
    ``extra_variance``: that of one more observation, shared among the strata."""
    squares = [float(((part.deviations_b - part.deviations_a) ** 2).sum()) for part in parts]
    freedom = [part.items - 1 for part in parts]
    extra_weight = 1 / len(parts) if extra_variance else 0.0
    pooled = (sum(squares) + extra_variance) / (sum(freedom) + bool(extra_variance) or 1)
    variances = []
    for part, square, free in zip(parts, squares, freedom, strict=True):
        variance = (square + extra_variance * extra_weight) / (free + extra_weight) if free else pooled
        variances.append(variance / part.items / len(parts) ** 2)
    total = sum(variances)
    if total <= 0:
        return Spread(0.0, max(sum(freedom), 1))
    spent = sum(v**2 / max(free, 1) for v, free in zip(variances, freedom, strict=True))
    return Spread(float(np.sqrt(total)), total**2 / spent)


def _mover_bounds(parts: Sequence[_Stratum], mean_a: float, mean_b: float) -> Bounds:
    """Combine the intervals of both means: ``L = D − √((m_b − l_b)² + (u_a − m_a)² − 2r(m_b − l_b)(u_a −
    m_a))``, and U likewise (MOVER, Zou and Donner 2008)."""
    bounds_a = mean_bounds(mean_a, [_sum_squares(part.deviations_a) for part in parts])
    bounds_b = mean_bounds(mean_b, [_sum_squares(part.deviations_b) for part in parts])
    correlation = _correlate_means(parts)
    down = _combine_margins(mean_b - bounds_b.low, bounds_a.high - mean_a, correlation)
    up = _combine_margins(bounds_b.high - mean_b, mean_a - bounds_a.low, correlation)
    return Bounds(max(mean_b - mean_a - down, -1.0), min(mean_b - mean_a + up, 1.0))


def _sum_squares(deviations: Floats) -> Scatter:
    return Scatter(len(deviations), float(deviations @ deviations))


def _correlate_means(parts: Sequence[_Stratum]) -> float:
    """Estimate the correlation of the two means. One more item is added, a quarter of it at each corner of
    the scale: few items cannot show that two models always score alike."""
    both = sum(float(part.deviations_a @ part.deviations_b) / part.items**2 for part in parts)
    square_a = sum((_sum_squares(part.deviations_a).squares + 0.25) / part.items**2 for part in parts)
    square_b = sum((_sum_squares(part.deviations_b).squares + 0.25) / part.items**2 for part in parts)
    return both / float(np.sqrt(square_a * square_b))


def _combine_margins(margin: float, other_margin: float, correlation: float) -> float:
    return float(np.sqrt(max(margin**2 + other_margin**2 - 2 * correlation * margin * other_margin, 0.0)))


def _compute_p_value(test: Test, strata: Sequence[PairedScores], difference: float, spread: Spread) -> float:
    match test:
        case "exact McNemar":
            [pairs] = strata
            return mcnemar_p_value(int((pairs.a > pairs.b).sum()), int((pairs.b > pairs.a).sum()))
        case "paired t":
            return 2 * float(stdtr(spread.degrees, -abs(difference) / spread.error))
        case "sign flips":
            shares = [pairs.weights / pairs.weights.sum() for pairs in strata]
            weighted = [
                pairs.sum_by_cluster(share * (pairs.b - pairs.a))
                for pairs, share in zip(strata, shares, strict=True)
            ]
            return sign_flip_p_value(np.concatenate(weighted) * sum(len(pairs.a) for pairs in strata))


# --- A difference, or a mean, with the judges taken as a sample as well: its second interval, and in words
#
# The first interval is over items, by these judges. Whether other judges like these would say the same is the
# question of the second one, `coeval.analysis.panel.mean_squares.spread_over_judges`.

_Pair = TypeVar("_Pair", bound=Hashable)


class OverJudges(msgspec.Struct, frozen=True):
    """A difference with judges as a sample too.

    ``low``, ``high`` and ``p`` are None if unknown, as with one judge; ``degrees`` of freedom belong to
    its error. ``judges`` scored both; ``agreeing`` of them put the same student ahead by themselves.
    """

    low: float | None
    high: float | None
    p: float | None
    judges: int
    agreeing: int
    degrees: float = 1.0


def single_judge_estimate(paired: Difference) -> OverJudges:
    """Return the result for one judge, which says nothing about other judges."""
    return OverJudges(None, None, None, 1, int(abs(paired.difference) > _EQUAL))


def pool_judge_scatter(
    judge_differences_by_pair: Mapping[_Pair, Sequence[JudgeValues]], opponent_count: int
) -> dict[_Pair, JudgeScatter | None]:
    """Estimate what judges add to the error of each pair's difference: a variance that all pairs share.
    ``judge_differences_by_pair``: by pair, for each task each judge's score of the second less that of the
    first; ``opponent_count``: how many students each student is compared with."""
    scatters = {pair: estimate_judge_scatter(tasks) for pair, tasks in judge_differences_by_pair.items()}
    pooled = average_scatters(list(scatters.values()), opponent_count)
    return {
        pair: None if own is None or pooled is None else pooled._replace(judges=own.judges)
        for pair, own in scatters.items()
    }


def difference_over_judges_if_judged(
    paired: Difference, tasks: Sequence[JudgeValues], scatter: JudgeScatter | None
) -> OverJudges | None:
    """Return a difference's interval with judges as a sample, never narrower than over items alone, and its
    p-value, never smaller; None if no judge scored any of it."""
    if not any(task.share > 0 for task in tasks):
        return None
    means = means_by_judge(tasks)
    means = means[np.isfinite(means)]
    agrees = means * (1 if paired.difference > 0 else -1) > _EQUAL
    agreeing = int(agrees.sum()) if abs(paired.difference) > _EQUAL else 0
    if scatter is None or paired.p is None:
        return OverJudges(None, None, None, len(means), agreeing)
    spread = spread_over_judges(paired.error**2, paired.degrees, scatter)
    low, high = _widen_bounds(paired.difference, Bounds(paired.low, paired.high), spread, Bounds(-1.0, 1.0))
    p = 2 * float(stdtr(spread.degrees, -abs(paired.difference) / spread.error)) if spread.error else 1.0
    return OverJudges(low, high, max(p, paired.p), len(means), agreeing, spread.degrees)


def widen_mean_bounds(mean: float, bounds: Bounds, items: int, scatter: JudgeScatter) -> Bounds:
    """Return the interval over items and judges of a mean (0 to 1) over ``items``, whose interval over items
    is ``bounds``; the error over items is derived from these."""
    degrees = max(items - 1, 1)
    error = (bounds.high - bounds.low) / 2 / float(stdtrit(degrees, (1 + LEVEL) / 2))
    return _widen_bounds(mean, bounds, spread_over_judges(error**2, degrees, scatter), Bounds(0.0, 1.0))


def _widen_bounds(middle: float, bounds: Bounds, spread: Spread, scale_ends: Bounds) -> Bounds:
    half = float(stdtrit(spread.degrees, (1 + LEVEL) / 2)) * spread.error
    low, high = min(middle - half, bounds.low), max(middle + half, bounds.high)
    return Bounds(max(low, scale_ends.low), min(high, scale_ends.high))
