"""How much each datapoint tells of students: difficulty, discrimination, and whether all pass or fail it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats

__all__ = ["FEWEST_STUDENTS", "ItemQuality", "item_quality"]

FEWEST_STUDENTS = 3
"""A correlation over fewer is no more than the sign of one difference."""


class ItemQuality(NamedTuple):
    """Of each datapoint of a task, (I,): ``difficulty`` = 1 − the mean over students; ``discrimination``, the
    item–rest correlation; ``students`` who have a score; whether all of them have full marks, or none. NaN
    where a measure is not defined."""

    difficulty: Floats
    discrimination: Floats
    students: NDArray[np.int64]
    all_pass: NDArray[np.bool_]
    all_fail: NDArray[np.bool_]


def item_quality(scores: Floats) -> ItemQuality:
    """``scores``: (S, I) of one task, 0 to 1, NaN where a student has none.

    The discrimination of an item is Pearson's correlation, over students, of their score on it with their
    mean over the task's other items (the corrected item–total correlation; Henrysson 1963). It is not
    defined with fewer than `FEWEST_STUDENTS`, or where all scores are the same.
    """
    known = np.isfinite(scores)
    filled = np.where(known, scores, 0.0)
    students = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / students
        others = known.sum(axis=1, keepdims=True) - known
        rest = (filled.sum(axis=1, keepdims=True) - filled) / others
        found = _correlation(filled, np.where(others > 0, rest, 0.0), known & (others > 0))
    return ItemQuality(
        difficulty=1 - mean,
        discrimination=found,
        students=students,
        all_pass=(students > 0) & (np.where(known, scores, 1.0) >= 1).all(axis=0),
        all_fail=(students > 0) & (np.where(known, scores, 0.0) <= 0).all(axis=0),
    )


def _correlation(x: Floats, y: Floats, known: NDArray[np.bool_]) -> Floats:
    """Pearson's, down each column."""
    n = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dx = np.where(known, x - np.where(known, x, 0.0).sum(axis=0) / n, 0.0)
        dy = np.where(known, y - np.where(known, y, 0.0).sum(axis=0) / n, 0.0)
        spread = np.sqrt((dx**2).sum(axis=0) * (dy**2).sum(axis=0))
        found = (dx * dy).sum(axis=0) / spread
    return np.where((n >= FEWEST_STUDENTS) & (spread > 1e-12), found, np.nan)
