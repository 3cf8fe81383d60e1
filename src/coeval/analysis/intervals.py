"""Intervals of means of bounded scores, and tests that are valid at any look at a growing run.

Scores have a bounded scale, and good models score near its end, where a t interval or a bootstrap is far
too narrow and exceeds the scale. So all means get one interval, which stays within the scale, has a width
while there are finitely many items, and is about as narrow as the t interval in the middle of the scale.
``docs/intervals.md`` explains it; ``python -m evidence.coverage`` measures it.

Scores of one item are not independent: a hard item is hard for every judge and every factor. So means are
clustered by item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coeval.analysis.special import betaincinv, ndtr, ndtri, ndtri_exp, stdtrit

Floats: TypeAlias = NDArray[np.float64]
_Sums = TypeVar("_Sums", float, NDArray[np.float64])

# The convention of the field; its tests use the same level, as `ALPHA`.
LEVEL = 0.95
# Differences are significant below it: tests and intervals of one page must agree.
ALPHA = 0.05

_Z = float(ndtri(0.975))
# Of an observation, before any is made: Jeffreys' prior.
_AT_EACH_END = 0.5
# The most growth of the degrees of freedom: t is then the normal distribution to 12 digits.
_AS_GOOD_AS_NORMAL = 1e6
# How many items' worth of scatter a stratum borrows from all strata together.
_LENT = 4
# The least that the observed squares count, in observations of the largest variance.
_UNSEEN = 1 / 3
# Sums of float means end about 1e-13 beyond a scale; a wrong scale is off by far more.
_ROUNDING = 1e-9


class Scale(NamedTuple):
    """The lowest and the highest score possible."""

    least: float
    most: float

    @property
    def width(self) -> float:
        return self.most - self.least

    def to_shares(self, scores: _Sums) -> _Sums:
        """Convert scores to shares of the scale, 0 at its least and 1 at its most."""
        return (scores - self.least) / self.width

    def to_scores(self, shares: _Sums) -> _Sums:
        return self.least + self.width * shares


SHARE = Scale(0.0, 1.0)
PERCENT = Scale(0.0, 100.0)
POINTS = Scale(1.0, 10.0)


def scale_of_unit(unit: str) -> Scale:
    """Return the scale of a benchmark's metric by its unit: ``share``, ``percent`` or ``points``."""
    return {"percent": PERCENT, "points": POINTS}.get(unit, SHARE)


class Bounds(NamedTuple):
    low: float
    high: float


def mean_with_missing_at_ends(total: _Sums, present: _Sums, possible: _Sums) -> tuple[_Sums, _Sums]:
    """Return what the mean of scores from 0 to 1 would be if all missing ones were 0, and 1; ``total`` is the
    sum of those ``present``, ``possible`` (1 or more) their number if none were missing."""
    missing = possible - present
    missing = missing * (abs(missing) > _ROUNDING * possible)  # sums of shares are rounded
    return total / possible, (total + missing) / possible


class Interval(msgspec.Struct, frozen=True):
    """A mean over n items and its 95% interval, in the unit of the values; None at n = 0."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


NO_INTERVAL = Interval(None, None, None, 0)


class Scatter(NamedTuple):
    """How the items of one stratum scatter: their number, and the sum of squared distances to their mean."""

    items: int
    squares: float


def mean_bounds(mean: float, strata: Sequence[Scatter], level: float = LEVEL) -> Bounds:
    """Return the interval of a mean of scores from 0 to 1 over strata that count equally; often there is only
    one.

    The variance of the mean is ``v = Σ s_t²/n_t / T²``, and it rests on ``n = T² / Σ 1/n_t`` items. Strata
    with few items say little of their scatter, so each borrows four items' worth from all of them, ``s_t²
    = (SS_t + 4 s₀²) / (n_t − 1 + 4)`` with ``s₀² = Σ SS_t / N`` over ``N = Σ (n_t − 1)``, or m(1 − m)
    where no stratum has two items. The sum of squares is at least a third of ``m(1 − m)``, the largest
    variance possible: where all items are alike, others that were not drawn may differ.

    The share of the largest variance, ``φ = s² / m(1 − m)``, is one item's worth in independent yes-or-no
    items (the effective sample size is n/φ), so half an observation of that size is added at the ends (see
    `beta_bounds`): ``h = φ₀/2`` with φ₀ of `relative_variance_of_undrawn_items`.

    Where s² is an estimate, t replaces the normal quantile, with ``N / (1 − φ)`` degrees of freedom, times
    the square of how much has been added to the observed squares (Satterthwaite 1946): for yes-or-no
    items, φ = 1, the mean determines the variance.

    ``mean`` is that of the means of T ≥ 1 strata, each with an item or more.
    """
    mean, count = min(max(mean, 0.0), 1.0), len(strata)  # sums of shares are rounded
    largest = mean * (1 - mean)
    freedom = sum(stratum.items - 1 for stratum in strata)
    seen = sum(stratum.squares for stratum in strata)
    squares = max(seen, largest * _UNSEEN)
    common = squares / freedom if freedom else largest
    variance = sum(
        (stratum.squares + (squares - seen) / count + _LENT * common)
        / (stratum.items - 1 + _LENT)
        / stratum.items
        for stratum in strata
    )
    items = count**2 / sum(1 / stratum.items for stratum in strata)
    raw = sum(stratum.squares / stratum.items**2 for stratum in strata)
    most = max(largest, items * raw / count**2)  # clusters of unequal size may scatter more than scores can
    variance = min(items * variance / count**2, most)
    ends = _AT_EACH_END * relative_variance_of_undrawn_items(mean, strata)
    share = min(variance / largest, 1.0) if largest > 0 else 1.0
    stretch = 1.0
    if seen > 0 and share < 1:
        growth = (squares + ends * (mean**2 + (1 - mean) ** 2)) / seen
        degrees = max(freedom, 1) / (1 - share) * min(growth, _AS_GOOD_AS_NORMAL) ** 2
        probability = (1 + level) / 2
        stretch = float(stdtrit(degrees, probability) / ndtri(probability))
    return beta_bounds(mean, variance, items, ends, stretch, level)


def relative_variance_of_undrawn_items(mean: float, strata: Sequence[Scatter]) -> float:
    """Return the share of the largest variance that items not drawn may have: ``φ₀ = (Σ SS_t + r⁴) / (N m(1 −
    m) + r⁴)``, r being the distance to the farther end of the scale.

    In the middle r⁴ is little compared with the observed squares; at the end it is a whole item, since a
    failure that was not drawn costs the whole scale.
    """
    far = max(mean, 1 - mean) ** 4
    seen = sum(stratum.squares for stratum in strata)
    freedom = sum(stratum.items - 1 for stratum in strata)
    return min((seen + far) / (freedom * mean * (1 - mean) + far), 1.0)


def beta_bounds(
    mean: float,
    variance: float,
    items: float,
    at_each_end: float = _AT_EACH_END,
    stretch: float = 1.0,
    level: float = LEVEL,
) -> Bounds:
    """Return Jeffreys' interval, extended to scores anywhere between 0 and 1, with the ``variance`` s² of one
    of the n ``items`` (not always whole).

    ``at_each_end`` of the scale, h of an observation is added. The mean's distribution is that of the
    Bayesian bootstrap (Rubin 1981) on all of them, with mean ``M = (nm + h)/(n + 2h)`` and variance
    ``V = ((n(s² + m²) + h)/(n + 2h) − M²)/(n + 2h + 1)``, its root times ``stretch``, as the beta
    distribution with these two moments; its quantiles are the bounds. Where all scores are 0 or 1 and h is a
    half this is Jeffreys' interval of a binomial share (Brown, Cai and DasGupta 2001). As there, an end of
    the scale that the mean has reached is a bound, and the mean itself always lies within.
    """
    total = items + 2 * at_each_end
    centre = (items * mean + at_each_end) / total
    square = (items * (variance + mean**2) + at_each_end) / total
    size = centre * (1 - centre) / ((square - centre**2) / (total + 1) * stretch**2) - 1
    if size <= 0:  # more scatter than scores between 0 and 1 can have: nothing is known
        return Bounds(0.0, 1.0)
    tails = np.array([1 - level, 1 + level]) / 2
    low, high = betaincinv(centre * size, (1 - centre) * size, tails).tolist()
    return Bounds(min(low, mean) if mean > 0 else 0.0, max(high, mean) if mean < 1 else 1.0)


def clustered_mean(
    values: ArrayLike, clusters: ArrayLike, scale: Scale = SHARE, weights: ArrayLike = 1.0
) -> Interval:
    """Average all units, with an interval that lets units of one cluster depend on each other.

    A cluster's distance is that in the cluster-robust variance of a regression on a constant (Liang and
    Zeger 1986), ``G/N · Σ_{i∈g} (x_i − mean)`` for G clusters and N units; where each cluster is one unit
    it is that of the unit. A single cluster has an interval too, nearly as wide as the scale. ``values``,
    sortable labels of ``clusters`` and ``weights`` (how many units a value stands for, above 0) are (N,).
    """
    sums, sizes = _cluster_sums_and_sizes(values, clusters, weights)
    return _interval_of_strata([(sums, sizes)], scale) if len(sums) else NO_INTERVAL


def clustered_standard_error(
    values: ArrayLike, clusters: ArrayLike, weights: ArrayLike = 1.0
) -> float | None:
    """Return the standard error of that mean: the root of ``G/(G − 1) · Σ_g (Σ_{i∈g} (x_i − mean))² / N²``.

    Of G items with N samples of each it is the hierarchical one, ``√(MSB / (G·N))`` with the mean square
    between items of a one-way analysis of variance. None with fewer than two clusters.
    """
    sums, sizes = _cluster_sums_and_sizes(values, clusters, weights)
    if len(sums) < 2:
        return None
    distances = sums - sizes * sums.sum() / sizes.sum()
    square = float(distances @ distances) * len(sums) / (len(sums) - 1)
    return float(np.sqrt(square)) / float(sizes.sum())


def _cluster_sums_and_sizes(
    values: ArrayLike, clusters: ArrayLike, weights: ArrayLike
) -> tuple[Floats, Floats]:
    x = _require_finite(values)
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    if x.ndim != 1 or x.shape != index.shape:
        raise ValueError(
            f"values and clusters must be one-dimensional and equally long: {x.shape}, {index.shape}"
        )
    w = np.broadcast_to(_require_finite(weights), x.shape)
    return np.bincount(index, x * w).astype(np.float64), np.bincount(index, w).astype(np.float64)


def mean_over_strata(strata: Sequence[ArrayLike], clusters: Sequence[ArrayLike] | None = None) -> Interval:
    """Average the strata's means, each counting equally, with an interval. ``strata``: T arrays (n_t,) of
    numbers from 0 to 1, of which empty ones are left out; ``clusters``: likewise of labels, None where values
    are independent. ``n`` counts values."""
    arrays = [_require_finite(values) for values in strata]
    if clusters is None:
        sums = [(values, np.ones(len(values))) for values in arrays if len(values)]
    else:
        both = zip(arrays, clusters, strict=True)
        sums = [_cluster_sums_and_sizes(values, own, 1.0) for values, own in both if len(values)]
    if not sums:
        return NO_INTERVAL
    return msgspec.structs.replace(_interval_of_strata(sums, SHARE), n=sum(map(len, arrays)))


def wilson_interval(k: int, n: int) -> Interval:
    """Return the share k/n of independent yes-or-no units, with its score interval (Wilson 1927).

    Exact at both ends: ``low`` is 0 at k = 0 and ``high`` is 1 at k = n, where the normal interval would
    have no width. Without units there is neither share nor interval.
    """
    if not 0 <= k <= n:
        raise ValueError(f"k must lie in 0 … n; got k={k}, n={n}")
    if n == 0:
        return NO_INTERVAL
    share = k / n
    scale = 1 + _Z**2 / n
    centre = (share + _Z**2 / (2 * n)) / scale
    half = _Z * float(np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))) / scale
    low = 0.0 if k == 0 else centre - half
    high = 1.0 if k == n else centre + half
    return Interval(share, low, high, n)


def share_with_interval(is_right: Sequence[bool], clusters: NDArray[np.int64] | None) -> Interval:
    """Return the share of items that are right; with Wilson's interval where no two are in one cluster."""
    if clusters is None or len(np.unique(clusters)) == len(is_right):
        return wilson_interval(sum(is_right), len(is_right))
    interval = clustered_mean(np.array(is_right, np.float64), clusters)
    return msgspec.structs.replace(interval, n=len(is_right))


def _require_finite(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if not np.isfinite(x).all():
        raise ValueError("values must be finite; leave out what has no score")
    return x


def _interval_of_strata(strata: Sequence[tuple[Floats, Floats]], scale: Scale) -> Interval:
    """Return the interval over strata, given as the sums and sizes of their clusters."""
    means = [float(sums.sum() / sizes.sum()) for sums, sizes in strata]
    mean = sum(means) / len(means)
    share = scale.to_shares(mean)
    if not -_ROUNDING <= share <= 1 + _ROUNDING:
        raise ValueError(f"a mean of {mean:g} lies outside the scale, {scale.least:g} to {scale.most:g}")
    scatter = []
    for (sums, sizes), stratum_mean in zip(strata, means, strict=True):
        distances = (sums - stratum_mean * sizes) * len(sums) / sizes.sum() / scale.width
        scatter.append(Scatter(len(sums), float(distances @ distances)))
    low, high = mean_bounds(share, scatter)
    items = sum(stratum.items for stratum in scatter)
    return Interval(mean=mean, low=scale.to_scores(low), high=scale.to_scores(high), n=items)


# --- Tests that are valid at any look at a growing run, whenever one stops
#
# A p-value is valid once. With ten looks while items arrive, one of two equal students is ahead at 5% in a
# fifth of all runs. A normal mixture (Robbins 1970; as a sequence of intervals: Howard and others 2021) pays
# for all looks at once: it may be looked at after every item, and is narrowest at the number of items that is
# planned. ``python -m evidence.looks`` measures it.

# The mixture's variance, times the planned items, that makes the interval narrowest there: Howard and others
# (2021), equation 3.7, ``−2 log α + log(1 − 2 log α)``.
_TUNED = -2 * float(np.log(ALPHA)) + float(np.log(1 - 2 * np.log(ALPHA)))
# The smallest level of intervals: below it, quantiles of t with few degrees of freedom overflow.
_SMALLEST_TAIL = 1e-100
# The most standard errors at which t has a quantile of the same tail in floating point.
_FARTHEST = 8.0
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class Looks(NamedTuple):
    """A look at a growing run: its ``number``, and the ``share`` of the planned items that have scores.
    ``growing``: the run is at work or was interrupted, so more looks will follow."""

    number: int
    share: float
    growing: bool = False

    @property
    def is_repeated(self) -> bool:
        """Check whether it is one of several looks, or will be."""
        return self.growing or self.number > 1

    @property
    def in_words(self) -> str:
        """Return ``third look``."""
        number = self.number
        return f"{_ORDINALS[number - 1]} look" if number <= len(_ORDINALS) else f"look {number}"


def combine_looks(looks: Iterable[Looks | None]) -> Looks | None:
    """Combine the looks at compared runs: the most, the least share. None: each was looked at once."""
    repeated = [look for look in looks if look is not None and look.is_repeated]
    if not repeated:
        return None
    return Looks(
        max(look.number for look in repeated),
        min(look.share for look in repeated),
        any(look.growing for look in repeated),
    )


def p_value_at_any_look(p: float, looks: Looks | None) -> float:
    """Convert a p-value that holds once to one that holds at any look: 1/E with the mixture's ``E = exp(z² r
    / (2 (1 + r))) / √(1 + r)``, z the normal quantile of p and r the share of the planned items, times
    what makes the sequence narrowest at all of them. With one look, p itself."""
    if looks is None or not looks.is_repeated:
        return p
    r = _TUNED * looks.share
    z = -float(ndtri_exp(np.log(max(p, 1e-300) / 2)))
    return max(p, min(1.0, float(np.exp(0.5 * np.log1p(r) - z**2 * r / (2 * (1 + r))))))


def alpha_at_any_look(one_sided_alpha: float, looks: Looks | None) -> float:
    """Return the one-sided level that makes a single test hold at any look, at ``alpha`` in all."""
    if looks is None or not looks.is_repeated:
        return one_sided_alpha
    return float(ndtr(-_mixture_quantile(2 * one_sided_alpha, looks.share)))


def detectable_gap_at_any_look(detectable: float, looks: Looks, *, power: float, family: int) -> float:
    """Return the true difference that is detected with this power at any look, from the one ``detectable`` by
    a single test: the mixture's quantile replaces the normal one, both at 5 % shared among the ``family``."""
    alpha, power_quantile = ALPHA / family, float(ndtri(power))
    stretch = (_mixture_quantile(alpha, looks.share) + power_quantile) / (
        float(-ndtri(alpha / 2)) + power_quantile
    )
    return min(detectable * stretch, 1.0)


def _mixture_quantile(alpha: float, share: float) -> float:
    r = _TUNED * share
    return float(np.sqrt((1 + r) / r * (np.log1p(r) - 2 * np.log(alpha))))


def bounds_at_level(
    difference: float, bounds: Bounds, degrees: float, alpha: float, looks: Looks | None = None
) -> Bounds:
    """Return the interval of a difference at confidence 1 − ``alpha`` (or at all ``looks``), from its 95%
    interval with these ``degrees`` of freedom: both arms scaled by the ratio of quantiles, within −1 … 1."""
    ratio = _two_sided_quantile(degrees, alpha, looks) / _two_sided_quantile(degrees, ALPHA)
    low, high = (
        difference + (bound - difference) * ratio if bound != difference else bound for bound in bounds
    )
    return Bounds(max(low, -1.0), min(high, 1.0))


def _two_sided_quantile(degrees: float, alpha: float, looks: Looks | None = None) -> float:
    """Return the quantile of Student's t, or with repeated looks the mixture's with the tail of t."""
    if looks is None or not looks.is_repeated:
        return -float(stdtrit(degrees, max(alpha, _SMALLEST_TAIL) / 2))
    most = _mixture_quantile(max(alpha, _SMALLEST_TAIL), looks.share)
    near = min(most, _FARTHEST)
    return -float(stdtrit(degrees, ndtr(-near))) * most / near
