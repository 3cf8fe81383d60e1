"""How much of a win an answer gets by being shown first.

The value is how much larger an answer's share of a win (a win 1, a tie ½, a loss 0) is where it is shown
first than where it is shown second: 0 where a judge minds the answers alone, 1 where it always takes the
first.

Where a judge saw each pair in both orders, its two verdicts on an answer are paired (`paired_difference`).
Where it saw each pair once, in an order that was drawn, the prompts of both orders are two random halves; the
means of these are compared, with their intervals combined as those of independent means are (MOVER; Zou and
Donner 2008) and Welch's test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import Floats, clustered_mean
from coeval.analysis.panel.bias_ledger import UNKNOWN, Bias

__all__ = ["shown_both_ways", "shown_one_way"]

_FEWEST = 2


def shown_both_ways(first: Sequence[Floats], second: Sequence[Floats]) -> Bias:
    """Of T tasks the items' shares, (n_t,) each, where the model's answer was shown first, and second."""
    strata = [
        PairedScores(then, now, np.ones(len(now)))
        for now, then in zip(first, second, strict=True)
        if len(now)
    ]
    if sum(len(stratum.a) for stratum in strata) < _FEWEST:
        return UNKNOWN
    found = paired_difference(strata)
    return Bias(found.difference, found.low, found.high, found.p)


def shown_one_way(first: Floats, second: Floats) -> Bias:
    """Of the items whose answer was shown first, and of the others: (n,) and (m,)."""
    if min(len(first), len(second)) < _FEWEST:
        return UNKNOWN
    now, then = (clustered_mean(shares, np.arange(len(shares))) for shares in (first, second))
    value = float(first.mean() - second.mean())
    down = _apart(now.mean, now.low, then.mean, then.high)
    up = _apart(now.mean, now.high, then.mean, then.low)
    return Bias(value, max(value - down, -1.0), min(value + up, 1.0), _welch(first, second, value))


def _apart(one: float | None, bound: float | None, other: float | None, far: float | None) -> float:
    return float(np.hypot((one or 0.0) - (bound or 0.0), (other or 0.0) - (far or 0.0)))


def _welch(first: Floats, second: Floats, value: float) -> float:
    """Welch's p-value (1947)."""
    variances = [float(shares.var(ddof=1)) / len(shares) for shares in (first, second)]
    total = sum(variances)
    if total == 0:
        return float(value == 0)
    spent = sum(v**2 / (len(s) - 1) for v, s in zip(variances, (first, second), strict=True))
    return 2 * float(stdtr(total**2 / spent, -abs(value) / total**0.5))
