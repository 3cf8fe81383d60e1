"""The scores of a task as a full block: every datapoint, student and judge, the mean over factors of each."""

from __future__ import annotations

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import ScoreGrid

__all__ = ["complete_cells"]

_COVERED = 0.5
"""Share of what the best covered student or judge has, below which one would cost the others too much."""


def complete_cells(grid: ScoreGrid, task: int) -> Floats:
    """(n, S, J), 0 to 1: the datapoints of a task that all of its students and judges have scores of.

    Students and judges of the run who have none there, or less than half as many as others, are NaN
    throughout.
    """
    students, judges = len(grid.students), len(grid.judges)
    rows = grid.task == task
    items, item = np.unique(grid.item[rows], return_inverse=True)
    cell = item * students + grid.student[rows]
    shape = (len(items), students, judges)
    cells = np.full(shape, np.nan)
    for judge in range(judges):
        levels = grid.levels[rows, judge]
        valid = levels >= 0
        counts = np.bincount(cell[valid], minlength=len(items) * students)
        sums = np.bincount(cell[valid], levels[valid] / 2, minlength=len(items) * students)
        with np.errstate(invalid="ignore", divide="ignore"):
            cells[:, :, judge] = (sums / counts).reshape(len(items), students)
    there = np.isfinite(cells)
    by_student, by_judge = there.any(axis=2).sum(axis=0), there.any(axis=1).sum(axis=0)
    cells[:, by_student < _COVERED * by_student.max(initial=0), :] = np.nan
    cells[:, :, by_judge < _COVERED * by_judge.max(initial=0)] = np.nan
    there = np.isfinite(cells)
    block = there.any(axis=(0, 2))[:, None] & there.any(axis=(0, 1))
    whole: Floats = cells[(there | ~block).all(axis=(1, 2)) & block.any()]
    return whole
