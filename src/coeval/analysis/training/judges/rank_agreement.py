"""Whether two judges put the checkpoints in the same order."""

from __future__ import annotations

import msgspec
import numpy as np
from scipy.stats import rankdata

from coeval.analysis.intervals import Floats
from coeval.analysis.training.judges.bootstrap_interval import defined, percentile_interval

__all__ = ["RankAgreement", "kendall_tau_b", "rank_agreement", "spearman"]

FEWEST = 3
"""Checkpoints: of two, an order is right or wrong by a coin."""
_RESAMPLES = 1000
_CELLS = 20_000_000
"""Pairs of checkpoints over all resamples: what is computed at most."""


class RankAgreement(msgspec.Struct, frozen=True):
    """Of the means of K checkpoints by two judges: Kendall's τ-b and Spearman's ρ, from −1 to 1, each with a
    95 % interval of a bootstrap over items; None where a judge gives all the same mean."""

    checkpoints: int
    kendall: float | None
    kendall_ci95: tuple[float, float] | None
    spearman: float | None
    spearman_ci95: tuple[float, float] | None


def rank_agreement(a: Floats, b: Floats) -> RankAgreement | None:
    """None of fewer than three checkpoints, or no two items.

    Parameters
    ----------
    a, b : (n, K) scores of the same items at the same checkpoints
    """
    items, count = a.shape
    if count < FEWEST or items < 2:
        return None
    generator = np.random.default_rng(0)
    resamples = int(min(_RESAMPLES, max(_CELLS / count**2, 100)))
    found: dict[str, list[float]] = {"kendall": [], "spearman": []}
    for _ in range(resamples):
        drawn = generator.multinomial(items, np.full(items, 1 / items)) / items
        means = (_rounded(drawn @ a), _rounded(drawn @ b))
        found["kendall"].append(kendall_tau_b(*means))
        found["spearman"].append(spearman(*means))
    means = (_rounded(a.mean(axis=0)), _rounded(b.mean(axis=0)))
    return RankAgreement(
        count,
        defined(kendall_tau_b(*means)),
        percentile_interval(found["kendall"]),
        defined(spearman(*means)),
        percentile_interval(found["spearman"]),
    )


def kendall_tau_b(a: Floats, b: Floats) -> float:
    """``Σ sign(a_i − a_j) sign(b_i − b_j)`` over pairs, over the root of the numbers of pairs that are no tie
    in a and in b (Kendall 1945); NaN where one has ties only."""
    of_a, of_b = (np.sign(np.subtract.outer(x, x)) for x in (a, b))
    untied = np.sqrt((of_a**2).sum() * (of_b**2).sum())
    return float((of_a * of_b).sum() / untied) if untied else float("nan")


def spearman(a: Floats, b: Floats) -> float:
    """The correlation of the ranks, ties sharing theirs; NaN where one has ties only."""
    x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
    length = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / length) if length else float("nan")


def _rounded(means: Floats) -> Floats:
    """So that equal means are ties, whatever order their scores were summed in."""
    return np.round(means, 12)
