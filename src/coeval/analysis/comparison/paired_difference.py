"""How much better one is than another on the same items: difference, interval, p-value, smallest effect.

Items are the independent units: what judges, factors or samples gave to an item is one score of it, and an
item's two scores belong together. Of items that nearly repeat each other, the group is the unit. Where
several strata (tasks) count alike, differences are averaged over them. ``docs/compare.md`` explains the
choices; ``python -m evidence.paired`` measures coverage, false positives and power.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, stdtr, stdtrit
from scipy.special import stdtr as t_probability

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
    ByJudge,
    JudgeScatter,
    JudgeSpread,
    judge_scatter,
    judge_spread,
    own_means,
    pooled_scatter,
)

# --- Adjusted p-values

_Name = TypeVar("_Name", bound=Hashable)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that one below 0.05 is a false one in at most 5 of 100 families (Holm 1979).

    ``p'_(i) = max over j ≤ i of (m − j + 1) p_(j)``, at most 1; in the order given.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(raised, 1.0)
    return found.tolist()


def holm_by_name(p_values: Mapping[_Name, float | None]) -> dict[_Name, float]:
    """As `holm`, by name, of those that have a p-value."""
    known = {name: p for name, p in p_values.items() if p is not None}
    return dict(zip(known, holm(list(known.values())), strict=True))


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
# Above the rounding of sums of thousands of scores (1e-13), far below the smallest step (1/5,040).
_EQUAL = 1e-9
# Share of an item: so much more scatter there may be than is seen of few items. Without it a run of 12 to 20
# items with means near 90 finds what it promised in 62 to 75 of 100, not 80 (evidence/paired.py).
_UNSEEN = 0.5
# Steps to a detectable difference: each halves what is left to go, or nearly.
_APPROACHES = 60


class PairedScores(NamedTuple):
    """The scores of n items in one stratum, from 0 to 1, and how often each item counts. ``clusters``: a
    number for each item, which those share that are no independent evidence; None: all are."""

    a: Floats
    b: Floats
    weights: Floats
    clusters: NDArray[np.integer[Any]] | None = None

    def summed(self, values: Floats) -> Floats:
        """The sums of items' values over each cluster; as they are where items are independent."""
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
    """Means, and the distances to them of each item, or cluster of such, with its weight: as in the
    cluster-robust variance (Liang and Zeger 1986)."""

    mean_a: float
    mean_b: float
    from_a: Floats
    from_b: Floats

    @property
    def items(self) -> int:
        return len(self.from_a)


class _Spread(NamedTuple):
    """The standard error of a difference, and the degrees of freedom it rests on."""

    error: float
    degrees: float


def paired_difference(strata: Sequence[PairedScores], family: int = 1) -> Difference:
    """The mean over strata of the difference of paired means.

    *Interval.* In the middle of the scale ``D ± t·SE`` with the variance of the items' differences, over
    strata with Satterthwaite's degrees of freedom. Near an end of the scale (a mean closer than 0.1, by less
    than six items' worth of score) that variance is underrated; there it is lent one more observation, of
    the variance ``m_a(1 − m_a) + m_b(1 − m_b)``. Where fewer than five items differ at all, or carry the
    scatter of means at opposite ends or of small differences in the middle, MOVER takes over (Zou and Donner
    2008): the intervals of both means and the correlation of the items' scores.

    *p-value.* Of scores that are right or wrong, McNemar's exact test (1947); elsewhere the paired t test
    where the interval is t's, and the sign-flip permutation test (Fisher 1935) where it is not.

    Parameters
    ----------
    strata : T ≥ 1 of them, each with at least one item
    family : how many comparisons are made at once, this one among them
    """
    parts = [_stratum(pairs) for pairs in strata]
    mean_a = float(np.mean([part.mean_a for part in parts]))
    mean_b = float(np.mean([part.mean_b for part in parts]))
    difference, n = mean_b - mean_a, sum(part.items for part in parts)
    apart = [pairs.summed(pairs.b - pairs.a) for pairs in strata]
    differing = float(sum((np.abs(values) > _EQUAL).sum() for values in apart))
    binary = len(strata) == 1 and _is_binary(strata[0])
    near = any(map(_near_an_end, parts))
    # Of an item's difference, if its two scores were right or wrong by themselves.
    spread = _spread(parts, mean_a * (1 - mean_a) + mean_b * (1 - mean_b) if near else 0.0)
    carried = sum(map(_carrying, apart))
    if abs(difference) > _OPPOSITE + _EQUAL if near else n >= _ENOUGH:
        differing = min(differing, carried)
    scarce = differing < _FEWEST_DIFFERING - _EQUAL or spread.error == 0
    if scarce:
        low, high = _mover(parts, mean_a, mean_b)
        spread = _Spread((high - low) / 2 / float(stdtrit(max(n - 1, 1), (1 + LEVEL) / 2)), max(n - 1, 1))
    else:
        half = float(stdtrit(spread.degrees, (1 + LEVEL) / 2)) * spread.error
        low, high = max(difference - half, -1.0), min(difference + half, 1.0)
    test: Test = "exact McNemar" if binary else "sign flips" if near or scarce else "paired t"
    p = _p_value(test, strata, difference, spread) if n > 1 else None
    if p is not None and p >= ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    detectable = _detectable(parts, mean_a, mean_b, _unlent_spread(parts, carried) or spread, family)
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


def _unlent_spread(parts: Sequence[_Stratum], carried: float) -> _Spread | None:
    """Return the spread seen, raised for what few items do not show; None where nothing differs."""
    spread = _spread(parts, 0.0)
    raised = spread._replace(error=spread.error * (1 + _UNSEEN / max(carried, 1.0)))
    return raised if spread.error else None


def _near_an_end(stratum: _Stratum) -> bool:
    """Whether one of the two means is so close to an end of the scale that few items tell it apart."""
    room = min(stratum.mean_a, 1 - stratum.mean_a, stratum.mean_b, 1 - stratum.mean_b)
    return room < _END and stratum.items * room < _FEW_AT_END


def _carrying(differences: Floats) -> float:
    """How many items carry the scatter of differences around their median: of k alike, among others that are
    all the same, k; of a normal sample a third (``(Σx²)² / Σx⁴``, the inverse participation ratio)."""
    squares = (differences - np.median(differences)) ** 2
    total = float(squares.sum())
    return total**2 / float(squares @ squares) if total > 0 else 0.0


class AdjustedP(NamedTuple):
    """A p-value adjusted for others, and how many times at most the adjustment multiplies it."""

    p: float
    tests: int


def adjusted_bounds(
    by: float, found: Difference | OverJudges, adjusted: AdjustedP | None, looks: Looks | None = None
) -> Bounds | None:
    """The interval of the difference ``by`` that leaves 0 out where the adjusted p-value is below 0.05: at
    confidence 1 − 0.05/k, where the adjustment multiplied p by k.

    Of a p-value that is capped at 1, k is the number of tests; of a test below one that is not significant,
    what keeps 0 in. ``looks``: those that the p-value holds at. None where there is no interval.
    """
    if found.low is None or found.high is None:
        return None
    bounds = Bounds(found.low, found.high)
    if found.p is None or adjusted is None:
        return bounds
    times = adjusted.p / found.p if found.p > 0 else float(adjusted.tests)
    if adjusted.p < ALPHA:
        times = min(times, adjusted.tests)
    elif adjusted.p >= 1:
        times = max(times, adjusted.tests)
    return bounds_at_level(by, bounds, found.degrees, ALPHA / times, looks)


def _detectable(
    parts: Sequence[_Stratum], mean_a: float, mean_b: float, spread: _Spread, family: int
) -> float:
    """The true difference X that is found with 80 % power: ``X = (t_c + t_0.8) · SE(X)``.

    Where one of the two were X nearer to the middle of the scale, its scores would scatter more: by m(1 − m)
    of its mean. So ``SE(X)² = SE² · V(m, m ∓ X) / V(m_a, m_b)`` with ``V(p, q) = p(1 − p) + q(1 − q) −
    2r √(p(1 − p) q(1 − q))``, the mean m of both and the correlation r of their scores; never less than SE.
    """
    r, middle = _correlation(parts), (mean_a + mean_b) / 2
    certainty = 1 - (1 - LEVEL) / 2 / family
    least = float(stdtrit(spread.degrees, [certainty, POWER]).sum()) * spread.error
    here, found = _variance_at(mean_a, mean_b, r), least
    for _ in range(_APPROACHES if here > 0 else 0):
        other = middle - found if middle > 0.5 else middle + found
        more = _variance_at(middle, min(max(other, 0.0), 1.0), r) / here
        found = min(least * float(np.sqrt(max(more, 1.0))), 1.0)
    return found


def _variance_at(p: float, q: float, r: float) -> float:
    """Of the difference of two scores that are right or wrong, with these means and correlation."""
    of_p, of_q = p * (1 - p), q * (1 - q)
    return of_p + of_q - 2 * r * float(np.sqrt(max(of_p * of_q, 0.0)))


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided p-value of McNemar's exact test: how unlike a fair coin the discordant pairs fell.

    Parameters
    ----------
    only_a, only_b : items that are right only in a, and only in b
    """
    discordant = only_a + only_b
    return min(1.0, 2 * float(bdtr(min(only_a, only_b), discordant, 0.5))) if discordant else 1.0


def sign_flips(differences: Floats) -> float:
    """Two-sided p-value of the sum of differences under all flips of their signs.

    Of up to 14 that are not zero, every flip is counted. Of more, the tail is that of the saddlepoint
    approximation (Lugannani and Rice 1980; Robinson 1982) with the cumulants ``K(s) = Σ log cosh(s d_i)``;
    where all are multiples of a step, by one step nearer: the sums lie two steps apart.

    Parameters
    ----------
    differences : (n,) of items, each with the weight of its stratum
    """
    d = np.abs(differences[np.abs(differences) > _EQUAL])
    seen = abs(float(differences.sum()))
    if len(d) <= _ALL_FLIPS:
        sums = np.zeros(1)
        for each in d:
            sums = np.concatenate([sums - each, sums + each])
        return float((np.abs(sums) >= seen * (1 - _EQUAL)).mean())
    if seen >= float(d.sum()) * (1 - _EQUAL):
        return 2.0 ** (1 - len(d))
    return min(1.0, 2 * _tail(d / d.max(), max(seen - _step(d), 0.0) / float(d.max())))


def _step(d: Floats) -> float:
    """The largest number that all of them are multiples of; 0 where it is too small to matter."""
    counts = np.rint(d * _FINEST)
    if np.abs(d * _FINEST - counts).max() > _EQUAL * _FINEST:
        return 0.0
    return float(np.gcd.reduce(counts.astype(np.int64))) / _FINEST


def _tail(d: Floats, total: float) -> float:
    """How likely the sum of ``±d_i`` is to reach ``total`` ≥ 0."""
    z = total / float(np.sqrt(d @ d))
    if z < _NO_TAIL:  # the two terms below cancel there
        return float(ndtr(-z))
    low, high = 0.0, 1.0
    while float(d @ np.tanh(high * d)) < total:
        high *= 2
    for _ in range(60):
        s = (low + high) / 2
        low, high = (s, high) if float(d @ np.tanh(s * d)) < total else (low, s)
    x = s * d
    cumulant = float((x + np.log1p(np.exp(-2 * x)) - np.log(2)).sum())
    w = float(np.sqrt(2 * (s * total - cumulant)))
    u = s * float(np.sqrt(np.sum((d / np.cosh(np.minimum(x, 300.0))) ** 2)))
    return float(ndtr(-w) + np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi) * (1 / u - 1 / w))


def _stratum(pairs: PairedScores) -> _Stratum:
    share = pairs.weights / pairs.weights.mean()
    mean_a, mean_b = float((share * pairs.a).mean()), float((share * pairs.b).mean())
    from_a, from_b = pairs.summed(share * (pairs.a - mean_a)), pairs.summed(share * (pairs.b - mean_b))
    each = len(from_a) / len(pairs.a)
    return _Stratum(mean_a, mean_b, from_a * each, from_b * each)


def _is_binary(pairs: PairedScores) -> bool:
    scores = np.concatenate([pairs.a, pairs.b])
    alone = pairs.clusters is None or len(np.unique(pairs.clusters)) == len(pairs.clusters)
    return alone and bool(((scores == 0) | (scores == 1)).all() and (pairs.weights == pairs.weights[0]).all())


def _spread(parts: Sequence[_Stratum], lent: float) -> _Spread:
    """From the items' differences; a stratum of one item takes the scatter of all. ``lent``: the variance of
    one more observation, shared out among the strata."""
    squares = [float(((part.from_b - part.from_a) ** 2).sum()) for part in parts]
    freedom = [part.items - 1 for part in parts]
    more = 1 / len(parts) if lent else 0.0
    pooled = (sum(squares) + lent) / (sum(freedom) + bool(lent) or 1)
    variances = []
    for part, square, free in zip(parts, squares, freedom, strict=True):
        own = (square + lent * more) / (free + more) if free else pooled
        variances.append(own / part.items / len(parts) ** 2)
    total = sum(variances)
    if total <= 0:
        return _Spread(0.0, max(sum(freedom), 1))
    spent = sum(v**2 / max(free, 1) for v, free in zip(variances, freedom, strict=True))
    return _Spread(float(np.sqrt(total)), total**2 / spent)


def _mover(parts: Sequence[_Stratum], mean_a: float, mean_b: float) -> Bounds:
    """``L = D − √((m_b − l_b)² + (u_a − m_a)² − 2r(m_b − l_b)(u_a − m_a))``, and U likewise."""
    of_a = mean_bounds(mean_a, [Scatter(part.items, float(part.from_a @ part.from_a)) for part in parts])
    of_b = mean_bounds(mean_b, [Scatter(part.items, float(part.from_b @ part.from_b)) for part in parts])
    r = _correlation(parts)
    down = _combined(mean_b - of_b.low, of_a.high - mean_a, r)
    up = _combined(of_b.high - mean_b, mean_a - of_a.low, r)
    return Bounds(max(mean_b - mean_a - down, -1.0), min(mean_b - mean_a + up, 1.0))


def _correlation(parts: Sequence[_Stratum]) -> float:
    """Of the two means. It takes one more item, a quarter of it at each corner of the scale: few items cannot
    show that two models always score alike."""
    both = sum(float(part.from_a @ part.from_b) / part.items**2 for part in parts)
    square_a, square_b = (
        sum((float(of(part) @ of(part)) + 0.25) / part.items**2 for part in parts)
        for of in (attrgetter("from_a"), attrgetter("from_b"))
    )
    return both / float(np.sqrt(square_a * square_b))


def _combined(one: float, other: float, r: float) -> float:
    return float(np.sqrt(max(one**2 + other**2 - 2 * r * one * other, 0.0)))


def _p_value(test: Test, strata: Sequence[PairedScores], difference: float, spread: _Spread) -> float:
    match test:
        case "exact McNemar":
            [pairs] = strata
            return mcnemar(int((pairs.a > pairs.b).sum()), int((pairs.b > pairs.a).sum()))
        case "paired t":
            return 2 * float(t_probability(spread.degrees, -abs(difference) / spread.error))
        case "sign flips":
            weighted = [
                pairs.summed(pairs.weights / pairs.weights.sum() * (pairs.b - pairs.a)) for pairs in strata
            ]
            return sign_flips(np.concatenate(weighted) * sum(len(pairs.a) for pairs in strata))


# --- A difference, or a mean, with the judges taken as a sample as well: its second interval, and in words
#
# The first interval is over items, by these judges. Whether other judges like these would say the same is the
# question of the second one, `coeval.analysis.panel.mean_squares.judge_spread`.

# Differences by less are rounding: a judge sees neither ahead.
_SAME = 1e-9

_Pair = TypeVar("_Pair", bound=Hashable)


class OverJudges(msgspec.Struct, frozen=True):
    """A difference over items and judges.

    ``low``, ``high`` and ``p`` are None where nothing is known, as of one judge; ``degrees`` of freedom are
    those of its error. ``judges`` scored both; of these so many are ``agreeing``: by themselves they put
    the same one ahead.
    """

    low: float | None
    high: float | None
    p: float | None
    judges: int
    agreeing: int
    degrees: float = 1.0


def one_judge(found: Difference) -> OverJudges:
    """What one judge says of others: nothing."""
    return OverJudges(None, None, None, 1, int(abs(found.difference) > _SAME))


def spread_over_judges(
    pairs: Mapping[_Pair, Sequence[ByJudge]], others: int
) -> dict[_Pair, JudgeScatter | None]:
    """By pair, what judges add to its difference: a variance that all pairs have in common.

    Parameters
    ----------
    pairs : by task, what each judge gave the second more than the first
    others : how many students a student is compared with
    """
    own = {pair: judge_scatter(tasks) for pair, tasks in pairs.items()}
    pooled = pooled_scatter(list(own.values()), others)
    return {
        pair: None if one is None or pooled is None else pooled._replace(judges=one.judges)
        for pair, one in own.items()
    }


def over_judges(
    found: Difference, tasks: Sequence[ByJudge], scatter: JudgeScatter | None
) -> OverJudges | None:
    """The second interval of a difference, never narrower than the first, and its p-value, never smaller;
    None where no judge scored any of it."""
    if not any(task.share > 0 for task in tasks):
        return None
    means = own_means(tasks)
    means = means[np.isfinite(means)]
    ahead = means * (1 if found.difference > 0 else -1) > _SAME
    agreeing = int(ahead.sum()) if abs(found.difference) > _SAME else 0
    if scatter is None or found.p is None:
        return OverJudges(None, None, None, len(means), agreeing)
    spread = judge_spread(found.error**2, found.degrees, scatter)
    low, high = _widened(found.difference, Bounds(found.low, found.high), spread, Bounds(-1.0, 1.0))
    p = 2 * float(stdtr(spread.degrees, -abs(found.difference) / spread.error)) if spread.error else 1.0
    return OverJudges(low, high, max(p, found.p), len(means), agreeing, spread.degrees)


def mean_over_judges(mean: float, bounds: Bounds, items: int, scatter: JudgeScatter) -> Bounds:
    """The second interval of a mean from 0 to 1 over ``items``, whose first one is ``bounds``; what these say
    of its error is taken for the error over items."""
    degrees = max(items - 1, 1)
    error = (bounds.high - bounds.low) / 2 / float(stdtrit(degrees, (1 + LEVEL) / 2))
    return _widened(mean, bounds, judge_spread(error**2, degrees, scatter), Bounds(0.0, 1.0))


def _widened(middle: float, bounds: Bounds, spread: JudgeSpread, ends: Bounds) -> Bounds:
    half = float(stdtrit(spread.degrees, (1 + LEVEL) / 2)) * spread.error
    low, high = min(middle - half, bounds.low), max(middle + half, bounds.high)
    return Bounds(max(low, ends.low), min(high, ends.high))
