"""Intervals of means, of shares, and of whatever else can be computed again on resampled items.

Scores that share a datapoint are not independent: a hard item is hard for every judge and every
factor. Means are therefore clustered by datapoint. All intervals are two-sided 95 % ones (a
`Bootstrap` also holds the 90 % one), in the unit of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

Method: TypeAlias = Literal["t", "bootstrap", "wilson", "none"]
Floats: TypeAlias = NDArray[np.float64]

FEW_CLUSTERS = 10
"""Below this many datapoints the t interval's normal approximation is not relied on."""

_RESAMPLES = 4000
_UPPER = 0.975
_Z = float(ndtri(_UPPER))
_NO_VARIANCE = 1e-12


class Interval(msgspec.Struct, frozen=True):
    """A mean and its 95 % interval.

    ``mean`` is None without units; ``low`` and ``high`` are None where nothing can be said about
    the spread (``method`` "none": fewer than two clusters).
    """

    mean: float | None
    low: float | None
    high: float | None
    n_units: int
    n_clusters: int
    method: Method

    def within(self, least: float, most: float) -> Interval:
        """This interval, cut at the ends of the scale: no mean lies beyond them, though t's bounds may."""
        low = None if self.low is None else max(least, self.low)
        high = None if self.high is None else min(most, self.high)
        return msgspec.structs.replace(self, low=low, high=high)


class Bootstrap(msgspec.Struct, frozen=True):
    """An estimate with the spread that a bootstrap over items gives it, in the estimate's own unit.

    ``standard_error`` is the replicates' standard deviation, the bounds are their percentiles
    (Efron 1979). All are None where there are too few items to resample; they have no width where
    all items agree.
    """

    value: float
    standard_error: float | None = None
    low_90: float | None = None
    high_90: float | None = None
    low_95: float | None = None
    high_95: float | None = None


def clustered_mean(values: ArrayLike, clusters: ArrayLike, *, seed: int = 0) -> Interval:
    """Mean of all units, with an interval that lets units of one cluster depend on each other.

    The variance of the mean is ``G/(G−1) · Σ_g (Σ_{i∈g} (x_i − mean))² / N²``, the
    cluster-robust one of a regression on a constant (Liang and Zeger 1986; small-sample factor
    and ``t(G−1)`` as in Cameron and Miller 2015). It holds for clusters of unequal size. With fewer
    than `FEW_CLUSTERS` clusters, or without variance, the interval is the 2.5 and 97.5 percentile
    of a seeded bootstrap over whole clusters (Efron 1979): flagged by ``method``, since it is then
    rather too narrow, and has no width where all clusters agree.

    Parameters
    ----------
    values : (N,) numbers
    clusters : (N,) labels, sortable; units of equal label form a cluster
    seed : of the bootstrap; the result does not depend on the order of the units
    """
    x = np.asarray(values, dtype=np.float64)
    labels, index = np.unique(np.asarray(clusters), return_inverse=True)
    if x.ndim != 1 or x.shape != index.shape:
        raise ValueError(
            f"values and clusters must be one-dimensional and equally long: {x.shape}, {index.shape}"
        )
    if not np.isfinite(x).all():
        raise ValueError("values must be finite; leave out what has no score")
    n_units, n_clusters = len(x), len(labels)
    if n_units == 0:
        return Interval(None, None, None, 0, 0, "none")
    mean = float(x.mean())
    if n_clusters < 2:
        return Interval(mean, None, None, n_units, n_clusters, "none")
    sizes = np.bincount(index).astype(np.float64)
    sums = np.bincount(index, weights=x)
    residuals = sums - mean * sizes
    error = float(np.sqrt(n_clusters / (n_clusters - 1) * np.sum(residuals**2))) / n_units
    if error <= _NO_VARIANCE * max(1.0, abs(mean)):
        return Interval(mean, mean, mean, n_units, n_clusters, "bootstrap")
    if n_clusters < FEW_CLUSTERS:
        drawn = draws(n_clusters, np.random.default_rng(seed))
        low, high = _percentiles((drawn @ sums) / (drawn @ sizes))
        return Interval(mean, low, high, n_units, n_clusters, "bootstrap")
    half = error * float(stdtrit(n_clusters - 1, _UPPER))
    return Interval(mean, mean - half, mean + half, n_units, n_clusters, "t")


def mean_over_strata(strata: Sequence[ArrayLike], *, seed: int = 0) -> Interval:
    """Mean of the strata's means, each stratum counting alike; values within one are independent.

    ``SE² = Σ s_t²/n_t / T²`` over T strata, ``t`` with Satterthwaite's (1946) degrees of freedom.
    With fewer than `FEW_CLUSTERS` values in all, or without variance, a seeded bootstrap that
    resamples within each stratum; no interval where a stratum has a single value, whose spread is
    unknown.

    Parameters
    ----------
    strata : T arrays of shape (n_t,); empty ones are left out
    """
    arrays: list[Floats] = [np.asarray(values, dtype=np.float64) for values in strata]
    arrays = [values for values in arrays if len(values)]
    total = sum(len(values) for values in arrays)
    if not arrays:
        return Interval(None, None, None, 0, 0, "none")
    mean = float(np.mean([values.mean() for values in arrays]))
    if min(len(values) for values in arrays) < 2:
        return Interval(mean, None, None, total, total, "none")
    counts = np.array([len(values) for values in arrays], dtype=np.float64)
    variances = np.array([values.var(ddof=1) for values in arrays]) / counts / len(arrays) ** 2
    error = float(np.sqrt(variances.sum()))
    if error <= _NO_VARIANCE * max(1.0, abs(mean)):
        return Interval(mean, mean, mean, total, total, "bootstrap")
    if total < FEW_CLUSTERS:
        generator = np.random.default_rng(seed)
        resampled = [draws(len(values), generator) @ values / len(values) for values in arrays]
        low, high = _percentiles(np.mean(resampled, axis=0))
        return Interval(mean, low, high, total, total, "bootstrap")
    freedom = variances.sum() ** 2 / np.sum(variances**2 / (counts - 1))
    half = error * float(stdtrit(freedom, _UPPER))
    return Interval(mean, mean - half, mean + half, total, total, "t")


def wilson(k: int, n: int) -> Interval:
    """Share k/n of independent yes-or-no units, with its score interval (Wilson 1927).

    Exact at both ends: ``low`` is 0 at k = 0 and ``high`` is 1 at k = n, where the normal
    interval would have no width. Without units there is neither share nor interval.
    """
    if not 0 <= k <= n:
        raise ValueError(f"k must lie in 0 … n; got k={k}, n={n}")
    if n == 0:
        return Interval(None, None, None, 0, 0, "none")
    share = k / n
    scale = 1 + _Z**2 / n
    centre = (share + _Z**2 / (2 * n)) / scale
    half = _Z * float(np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))) / scale
    low = 0.0 if k == 0 else centre - half
    high = 1.0 if k == n else centre + half
    return Interval(share, low, high, n, n, "wilson")


def draws(count: int, generator: np.random.Generator, *, resamples: int = _RESAMPLES) -> NDArray[Any]:
    """How often each of ``count`` items (or clusters) is drawn, per resample: (resamples, count)."""
    return generator.multinomial(count, np.full(count, 1 / count), size=resamples)


def bootstrap(value: float, replicates: ArrayLike) -> Bootstrap:
    """``value`` with the standard deviation and percentiles of its (resamples,) replicates."""
    again = np.asarray(replicates, dtype=np.float64)
    low_95, low_90, high_90, high_95 = np.quantile(again, [1 - _UPPER, 0.05, 0.95, _UPPER]).tolist()
    return Bootstrap(value, float(again.std(ddof=1)), low_90, high_90, low_95, high_95)


def _percentiles(means: Floats) -> tuple[float, float]:
    low, high = np.quantile(means, [1 - _UPPER, _UPPER])
    return float(low), float(high)
