"""How reliable a panel of judges is as a whole: Krippendorff's α and the intraclass correlations.

All are computed from the units, that is (response, factor), that every one of k judges scored, by way of sums
over units, so that weights can be drawn for datapoints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import LEVELS

__all__ = ["Correlations", "PanelSums", "correlations", "krippendorff_alpha", "panel_sums"]


class PanelSums(NamedTuple):
    """Of units by all judges: ``coincidences`` (…, 3, 3); ``units``, ``squares`` Σx² and ``rows`` Σ(Σ_j x)²
    (…,), ``columns`` Σ_i x by judge (…, k); x are levels."""

    coincidences: Floats
    units: Floats
    squares: Floats
    rows: Floats
    columns: Floats


class Correlations(NamedTuple):
    """Of one judge, and of the mean of all k."""

    single: Floats
    average: Floats


def panel_sums(levels: NDArray[np.int8]) -> PanelSums:
    """Of each unit by itself: ``levels`` is (N, k), complete."""
    judges = levels.shape[1]
    given = (levels[:, :, None] == np.arange(LEVELS)).sum(axis=1)  # (N, 3)
    pairs = given[:, :, None] * given[:, None, :] - given[:, :, None] * np.eye(LEVELS, dtype=np.int64)
    x = levels.astype(np.float64)
    total = x.sum(axis=1)
    return PanelSums(pairs / max(judges - 1, 1), np.ones(len(x)), (x**2).sum(axis=1), total**2, x)


def krippendorff_alpha(coincidences: Floats) -> Floats:
    """Krippendorff's α (2011) for ordinal levels, ``1 − Do / De``, from tables of coincidences (…, 3, 3).

    The distance of two levels is ``δ² = (Σ_{g=c…k} n_g − (n_c + n_k)/2)²``, n being the values at each level.
    Not defined (NaN) where all values are the same.
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
        found = 1 - (total - 1) * observed / expected
    return np.where(expected > 0, found, np.nan)


def correlations(sums: PanelSums) -> Correlations:
    """ICC(2,1) and ICC(2,k), two-way random effects, absolute agreement (Shrout and Fleiss 1979).

    With the mean squares of units (R), judges (C) and the rest (E): ``(R − E) / (R + (k − 1)E + k(C −
    E)/n)``, and for the mean of k judges ``(R − E) / (R + (C − E)/n)``.
    """
    units, judges = sums.units, sums.columns.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = sums.columns.sum(axis=-1) ** 2 / (units * judges)
        of_units = sums.rows / judges - centre
        of_judges = (sums.columns**2).sum(axis=-1) / units - centre
        rest = sums.squares - centre - of_units - of_judges
        r, c = of_units / (units - 1), of_judges / (judges - 1)
        e = rest / ((units - 1) * (judges - 1))
        single = (r - e) / (r + (judges - 1) * e + judges * (c - e) / units)
        average = (r - e) / (r + (c - e) / units)
    return Correlations(single, average)
