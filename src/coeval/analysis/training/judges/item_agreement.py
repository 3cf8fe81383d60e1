"""How far two judges agree on single answers: κ of levels, the intraclass correlation of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import kappa, pair_tables, weighted_kappa
from coeval.analysis.training.judges.bootstrap_interval import defined, percentile_interval

__all__ = ["Grade", "GradeKey", "ItemAgreement", "icc", "item_agreement"]

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
