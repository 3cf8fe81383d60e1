"""p-values of many comparisons at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that one below 0.05 is a false one in at most 5 of 100 families (Holm 1979).

    ``p'_(i) = max over j ≤ i of (m − j + 1) p_(j)``, at most 1; in the order given.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _in_place(np.minimum(raised, 1.0), order)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that of those below 0.05, at most 5 % are false on average (Benjamini and Hochberg 1995).

    ``q_(i) = min over j ≥ i of (m / j) p_(j)``, at most 1; in the order given.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = p[order] * len(p) / np.arange(1, len(p) + 1)
    lowest = np.minimum.accumulate(raised[::-1])[::-1]
    return _in_place(np.minimum(lowest, 1.0), order)


def _in_place(ordered: Floats, order: NDArray[np.intp]) -> list[float]:
    found = np.empty(len(ordered))
    found[order] = ordered
    return [float(p) for p in found]
