"""Win rates, whose spread a bootstrap over items measures."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coeval.analysis.intervals import Scatter, mean_bounds

RESAMPLES = 1000


class Rate(msgspec.Struct, frozen=True):
    """A rate in percent, with its 90 and 95 % intervals.

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


def rate(value: float, replicates: ArrayLike, items: int) -> Rate:
    """The rate ``value`` over so many items, with the spread of its (resamples,) replicates, all in percent.

    One item cannot be resampled and has no replicates.
    """
    again = np.asarray(replicates, dtype=np.float64)
    error = float(again.std(ddof=1)) if len(again) else None
    # The bootstrap's variance of a mean is SS/n².
    scatter = [Scatter(items, (items * (error or 0.0) / 100) ** 2)]
    of_90, of_95 = (mean_bounds(value / 100, scatter, level) for level in (0.90, 0.95))
    return Rate(
        value=value,
        standard_error=error,
        low_90=100 * of_90.low,
        high_90=100 * of_90.high,
        low_95=100 * of_95.low,
        high_95=100 * of_95.high,
    )


def draws(count: int, generator: np.random.Generator, *, resamples: int = RESAMPLES) -> NDArray[Any]:
    """How often each of ``count`` items is drawn, per resample: (resamples, count)."""
    return generator.multinomial(count, np.full(count, 1 / count), size=resamples)
