"""How often each level is given: to a student, by a judge."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from coeval.analysis.measures.score_grid import ScoreGrid

__all__ = ["LEVEL_NAMES", "LevelCounts", "levels_by_judge", "levels_by_student"]

LEVEL_NAMES = ("Low", "Medium", "High")
LevelCounts: TypeAlias = dict[str, int]


def levels_by_student(grid: ScoreGrid) -> dict[str, LevelCounts]:
    """Units at each level, by student."""
    counts = np.zeros((len(grid.students), len(LEVEL_NAMES)), np.int64)
    for column in grid.levels.T:
        valid = column >= 0
        key = grid.student[valid].astype(np.int64) * len(LEVEL_NAMES) + column[valid]
        counts += np.bincount(key, minlength=counts.size).reshape(counts.shape)
    return {name: _named(row.tolist()) for name, row in zip(grid.students, counts, strict=True)}


def levels_by_judge(grid: ScoreGrid) -> dict[str, LevelCounts]:
    """Units at each level, by the judge who gave them."""
    return {
        judge: _named(np.bincount(column[column >= 0], minlength=len(LEVEL_NAMES)).tolist())
        for judge, column in zip(grid.judges, grid.levels.T, strict=True)
    }


def _named(counts: list[int]) -> LevelCounts:
    return dict(zip(LEVEL_NAMES, counts, strict=True))
