"""Percentile intervals of statistics that a bootstrap has drawn again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coeval.analysis.intervals import LEVEL, Floats

__all__ = ["defined", "percentile_interval"]


def percentile_interval(drawn: Floats | Sequence[float]) -> tuple[float, float] | None:
    """Between the 2.5 and the 97.5 % quantile of those that are defined (no NaN); None where none is."""
    values = np.asarray(drawn, np.float64)
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def defined(value: float) -> float | None:
    """None in place of NaN, which JSON does not have."""
    return value if np.isfinite(value) else None
