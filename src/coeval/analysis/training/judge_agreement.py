"""How far two judges agree: on single answers, and on the order of checkpoints, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from scipy.stats import rankdata

from coeval.analysis.intervals import LEVEL, Floats
from coeval.analysis.measures.agreement import kappa, pair_tables, weighted_kappa

# --- Percentile intervals of bootstrapped statistics


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


# --- Agreement of two judges on single answers

# Ends of a 95% interval rest on 12 draws each: enough for two digits of κ.
_RESAMPLES = 500

GradeKey: TypeAlias = tuple[int, str]
"""A hash of the very words that were shown to the judge, and which factor of them was judged."""


class Grade(NamedTuple):
    """A level, 0 to 2, and the item that it is of."""

    item: str
    level: int


class ItemAgreement(msgspec.Struct, frozen=True):
    """Two judges on the same answers. ``kappa`` and ``weighted_kappa`` (linear weights) are over ``units``
    levels that both gave to the very same words (a verdict, a criterion, a factor of a rubric), None where
    there are none; ``icc`` (two-way, single, absolute: McGraw and Wong 1996) and ``correlation`` are over
    ``answers`` that both scored. Intervals come of a bootstrap over items."""

    units: int
    kappa: float | None
    kappa_ci95: tuple[float, float] | None
    weighted_kappa: float | None
    weighted_kappa_ci95: tuple[float, float] | None
    answers: int
    icc: float | None
    icc_ci95: tuple[float, float] | None
    correlation: float | None


class _LevelAgreement(NamedTuple):
    units: int
    kappa: float | None
    kappa_ci95: tuple[float, float] | None
    weighted_kappa: float | None
    weighted_kappa_ci95: tuple[float, float] | None


class _ScoreAgreement(NamedTuple):
    answers: int
    icc: float | None
    icc_ci95: tuple[float, float] | None
    correlation: float | None


def item_agreement(
    a: Mapping[GradeKey, Grade], b: Mapping[GradeKey, Grade], pairs: Sequence[tuple[str, float, float]]
) -> ItemAgreement:
    """
    Parameters
    ----------
    a, b : what each judge gave
    pairs : (item, a's score, b's score) of each answer that both scored
    """
    return ItemAgreement(*_of_levels(a, b), *_of_scores(pairs))


def _of_levels(a: Mapping[GradeKey, Grade], b: Mapping[GradeKey, Grade]) -> _LevelAgreement:
    """Over what both were shown."""
    both = sorted(a.keys() & b.keys())
    if not both:
        return _LevelAgreement(0, None, None, None, None)
    items, block = np.unique([a[key].item for key in both], return_inverse=True)
    of_a, of_b = (np.array([grades[key].level for key in both], np.int8) for grades in (a, b))
    tables = pair_tables(of_a, of_b, block, len(items))
    drawn = _draws(len(items)) @ tables.reshape(len(items), -1)
    again = drawn.reshape(-1, *tables.shape[1:])
    whole = tables.sum(axis=0)
    found = [(defined(float(of(whole))), percentile_interval(of(again))) for of in (kappa, weighted_kappa)]
    return _LevelAgreement(len(both), *found[0], *found[1])


def _of_scores(pairs: Sequence[tuple[str, float, float]]) -> _ScoreAgreement:
    """Over answers; those of one item are resampled together."""
    if len(pairs) < 3:
        return _ScoreAgreement(len(pairs), None, None, None)
    items, block = np.unique([item for item, _, _ in pairs], return_inverse=True)
    scores = np.array([[one, other] for _, one, other in pairs])
    weights = _draws(len(items))[:, block]
    again = np.array([icc(scores, counts) for counts in weights])
    spread = scores - scores.mean(axis=0)
    length = float(np.sqrt((spread[:, 0] ** 2).sum() * (spread[:, 1] ** 2).sum()))
    correlation = float(spread[:, 0] @ spread[:, 1]) / length if length > 0 else float("nan")
    return _ScoreAgreement(len(pairs), defined(icc(scores)), percentile_interval(again), defined(correlation))


def icc(scores: Floats, counts: Floats | None = None) -> float:
    """ICC(A,1) of two raters: ``(MSR − MSE) / (MSR + MSE + 2/n (MSC − MSE))``; NaN where nothing varies.

    Parameters
    ----------
    scores : (n, 2)
    counts : (n,) how often each row counts
    """
    w = np.ones(len(scores)) if counts is None else counts
    n = float(w.sum())
    rows, grand = scores.mean(axis=1), float(w @ scores.mean(axis=1)) / n
    columns = w @ scores / n
    between = 2 * float(w @ (rows - grand) ** 2) / (n - 1)
    raters = n * float(((columns - grand) ** 2).sum())
    rest = scores - rows[:, None] - columns + grand
    error = float(w @ (rest**2).sum(axis=1)) / (n - 1)
    total = between + error + 2 / n * (raters - error)
    return (between - error) / total if total > 0 else float("nan")


def _draws(items: int) -> Floats:
    """(resamples, items): how often each is drawn."""
    generator = np.random.default_rng(0)
    return generator.multinomial(items, np.full(items, 1 / items), size=_RESAMPLES).astype(np.float64)


# Checkpoints: of two, an order is right or wrong by a coin.
FEWEST = 3
# Twice those of κ: ranks move in steps, so their quantiles need more draws.
_RANK_RESAMPLES = 1000
# Pairs of checkpoints over all resamples: what is computed at most.
_CELLS = 20_000_000


class RankAgreement(msgspec.Struct, frozen=True):
    """Of the means of K checkpoints by two judges: Kendall's τ-b and Spearman's ρ, from −1 to 1, each with a
    95% interval of a bootstrap over items; None where a judge gives all the same mean."""

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
    resamples = int(min(_RANK_RESAMPLES, max(_CELLS / count**2, 100)))
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
