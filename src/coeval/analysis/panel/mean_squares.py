"""Mean squares of scores by students, items and judges, and what judges add to the error of a difference.

A score of student s, item i and judge j is taken to be ``μ_s + I_i + J_j + SI_si + SJ_sj + IJ_ij + e_sij``
with students fixed, items and judges sampled. A pair's difference over n items and k judges has the variance
``2(σ_SI² + σ_e²/k)/n`` over items, by these judges, and ``2σ_SJ²/k`` more over judges, estimated by
``max(MS_SJ − MS_SIJ, 0) · 2/(n k)`` (Cornfield and Tukey 1956; Brennan 2001, *Generalizability Theory*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import ScoreGrid, TaskDesign

# Share of what the best covered judge (or student) has, below which one would cost the others too much.
_COVERED = 0.5
# Judges of whom a variance can be estimated at all; with two it is a guess, on one degree of freedom.
_FEWEST_JUDGES = 2
# One item has no variance.
_FEWEST_ITEMS = 2


# --- Scores by item, student and judge


def average_judge_scores_over_factors(grid: ScoreGrid, task: int) -> Floats:
    """Return judges' scores of a task, (n, S, J), 0 to 1: of items with any score, by student and judge in
    the grid's order; each cell a mean over factors by their weights, and over several answers. NaN: no
    score."""
    students, judges = len(grid.students), len(grid.judges)
    rows = grid.task == task
    items, item = np.unique(grid.item[rows], return_inverse=True)
    cell = item * students + grid.student[rows]
    weights = grid.designs[task].weights
    weight = np.array([weights.get(name, 1.0) for name in grid.factors])[grid.factor[rows]]
    cells = np.full((len(items), students, judges), np.nan)
    for judge in range(judges):
        levels = grid.levels[rows, judge]
        valid = levels >= 0
        counts = np.bincount(cell[valid], weight[valid], len(items) * students)
        sums = np.bincount(cell[valid], (grid.values[levels] * weight)[valid], len(items) * students)
        with np.errstate(invalid="ignore", divide="ignore"):
            cells[:, :, judge] = (sums / counts).reshape(len(items), students)
    return cells


def judged_share(design: TaskDesign) -> float:
    """Return the share of an item's score that judges give; checks give the rest."""
    if not design.judged_factors or not design.judges:
        return 0.0
    total = sum(design.weights.get(name, 0.0) for name in design.factors)
    return sum(design.weights.get(name, 0.0) for name in design.judged_factors) / total if total else 1.0


class MeanSquares(NamedTuple):
    """Mean squares of a complete block of n items, S students and k judges (three-way ANOVA), (R,): over all
    items, and then without each of R − 1 groups of them; NaN with a single item. ``means`` (R, S, k): by
    student and judge; ``n`` (R,): items."""

    items: Floats
    students: Floats
    judges: Floats
    students_items: Floats
    students_judges: Floats
    items_judges: Floats
    residual: Floats
    """Students × items × judges."""
    means: Floats
    n: Floats

    @property
    def components(self) -> dict[str, Floats]:
        """Return unbiased variances, (R,), by source, which may lie below 0; ``students``: that of their true
        means, which are no sample."""
        _, s, k = self.means.shape
        rest, si, sj, ij = self.residual, self.students_items, self.students_judges, self.items_judges
        return {
            "students": (self.students - si - sj + rest) / (self.n * k),
            "items": (self.items - si - ij + rest) / (s * k),
            "judges": (self.judges - sj - ij + rest) / (self.n * s),
            "students_items": (si - rest) / k,
            "students_judges": (sj - rest) / self.n,
            "items_judges": (ij - rest) / s,
            "residual": rest,
        }


_ALL_AT_ONCE: NDArray[np.intp] = np.empty(0, np.intp)


def mean_squares(
    cells: Floats, left_out_group: NDArray[np.intp] = _ALL_AT_ONCE, group_count: int = 0
) -> MeanSquares:
    """Compute the three-way ANOVA of a complete block, (n, S, k) with at least two of each.

    ``left_out_group`` (n,): with which of ``group_count`` groups each item is left out. A block with holes
    has no such table: drop incomplete items first, or use `estimate_judge_scatter`, which drops items by
    pair.
    """
    size, s, k = cells.shape
    y = cells - cells.mean()
    of_items = np.stack(
        [
            (y**2).sum(axis=(1, 2)),
            k * (y.mean(axis=2) ** 2).sum(axis=1),
            s * (y.mean(axis=1) ** 2).sum(axis=1),
            s * k * y.mean(axis=(1, 2)) ** 2,
        ],
        axis=1,
    )
    per_item = np.concatenate([of_items, y.reshape(size, s * k), np.ones((size, 1))], axis=1)
    by_group = np.zeros((group_count, per_item.shape[1]))
    if group_count:
        np.add.at(by_group, left_out_group, per_item)
    total_of_all = per_item.sum(axis=0)[None]
    total = np.concatenate([total_of_all, total_of_all - by_group])
    cell, si, ij, i = total[:, :4].T
    n = np.where(total[:, -1] < _FEWEST_ITEMS, np.nan, total[:, -1])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = total[:, 4:-1].reshape(-1, s, k) / n[:, None, None]
        sj, grand = n * (means**2).sum(axis=(1, 2)), n * s * k * means.mean(axis=(1, 2)) ** 2
        m = n * k * (means.mean(axis=2) ** 2).sum(axis=1)
        j = n * s * (means.mean(axis=1) ** 2).sum(axis=1)
        return MeanSquares(
            items=(i - grand) / (n - 1),
            students=(m - grand) / (s - 1),
            judges=(j - grand) / (k - 1),
            students_items=(si - i - m + grand) / ((n - 1) * (s - 1)),
            students_judges=(sj - m - j + grand) / ((s - 1) * (k - 1)),
            items_judges=(ij - i - j + grand) / ((n - 1) * (k - 1)),
            residual=(cell - si - ij - sj + i + m + j - grand) / ((n - 1) * (s - 1) * (k - 1)),
            means=means + cells.mean(),
            n=n,
        )


def _sum_squares(values: Floats) -> float:
    return float((values**2).sum())


# --- What judges add to the error of a mean


class JudgeValues(NamedTuple):
    """Values (n, J) in one task, by item and judge, NaN if missing: a student's scores, or the differences of
    two students. ``share``: the share of an item's score that judges give; 0 if checks score the task
    alone."""

    values: Floats
    share: float = 1.0


class JudgeScatter(NamedTuple):
    """How a mean over items varies with its judges, times their number.

    ``between``: the variance of the judges' own means, of which ``within`` is chance, the scatter of a
    judge's items; for two students in one task ``2 MS_SJ/n`` and ``2 MS_SIJ/n``. ``judges``: the fewest of
    any task.
    """

    between: float
    within: float
    judges: int
    degrees_between: float
    degrees_within: float

    @property
    def variance(self) -> float:
        """Return what sampling judges adds to the variance of the mean over them, never below 0."""
        return max(self.between - self.within, 0.0) / self.judges


class Spread(NamedTuple):
    """A standard error and its degrees of freedom."""

    error: float
    degrees: float


def estimate_judge_scatter(tasks: Sequence[JudgeValues]) -> JudgeScatter | None:
    """Estimate the judge scatter of a mean over tasks, which count alike; None if a task has one judge only,
    or no item that two judges scored.

    In each task, judges who scored less than half as many items as the best covered one are left out, then
    items that any of the others has not scored. A judge keeps its leaning from task to task, so what it
    adds in several tasks is summed before it is squared; judges of different tasks are independent.
    """
    judged = [task for task in tasks if task.share > 0]
    blocks = [_select_complete_block(task.values) for task in judged]
    if not blocks or any(
        len(values) == 0 or len(judge_codes) < _FEWEST_JUDGES for values, judge_codes in blocks
    ):
        return None
    fewest = min(len(judge_codes) for _, judge_codes in blocks)
    judge_shifts = np.zeros(max(task.values.shape[1] for task in judged))
    chance = degrees = 0.0
    for task, (values, judge_codes) in zip(judged, blocks, strict=True):
        (n, k), share = values.shape, task.share / len(tasks)
        judge_means = values.mean(axis=0)
        judge_shifts[judge_codes] += share * (judge_means - judge_means.mean()) / np.sqrt(k * (k - 1))
        if n > 1:
            residuals = values - values.mean(axis=1, keepdims=True) - judge_means + judge_means.mean()
            chance += share**2 * _sum_squares(residuals) / ((n - 1) * (k - 1)) / (n * k)
            degrees += (n - 1) * (k - 1)
    return JudgeScatter(_sum_squares(judge_shifts) * fewest, chance * fewest, fewest, fewest - 1, degrees)


def _select_complete_block(values: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the well covered judges' scores of the items that all of them scored, (n, k), and the indices of
    these judges, (k,)."""
    scored = np.isfinite(values)
    kept = is_well_covered(scored.sum(axis=0))
    return values[scored[:, kept].all(axis=1)][:, kept], np.flatnonzero(kept)


def is_well_covered(counts: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Mark the judges (or students) with at least half as many scores as the best covered one."""
    return np.asarray((counts > 0) & (counts >= _COVERED * counts.max(initial=0)), np.bool_)


def jackknife_error(estimates: Floats) -> float:
    """Return the standard error by estimates that each leave out one group of items."""
    groups = len(estimates)
    return float(np.sqrt(((estimates - estimates.mean()) ** 2).sum() * (groups - 1) / groups))


def means_by_judge(tasks: Sequence[JudgeValues]) -> Floats:
    """Return each judge's own mean (J,) over the tasks in which it scored anything; NaN if in none."""
    judged = [task.values for task in tasks if task.share > 0]
    if not judged:
        return np.empty(0)
    sums = np.array([np.nansum(values, axis=0) for values in judged])
    counts = np.array([np.isfinite(values).sum(axis=0) for values in judged])
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Floats = np.nansum(sums / counts, axis=0) / (counts > 0).sum(axis=0)
    return means


def average_scatters(scatters: Sequence[JudgeScatter | None], sharing_count: int) -> JudgeScatter | None:
    """Average the known scatters, each of ``sharing_count`` that share their judges: for all pairs of S
    students ``S − 1``, so that ``between`` follows from MS_SJ over all of them; for S students' own means,
    which share each judge's severity, 1. None if none is known."""
    scatters_known = [scatter for scatter in scatters if scatter is not None]
    if not scatters_known:
        return None
    fewest = min(scatter.judges for scatter in scatters_known)
    within = float(np.mean([scatter.degrees_within for scatter in scatters_known]))
    return JudgeScatter(
        float(np.mean([scatter.between for scatter in scatters_known])),
        float(np.mean([scatter.within for scatter in scatters_known])),
        fewest,
        sharing_count * (fewest - 1),
        sharing_count * within,
    )


def spread_over_judges(item_variance: float, degrees: float, scatter: JudgeScatter) -> Spread:
    """Return the standard error over items and judges of a mean with ``item_variance`` over items.

    ``v = item_variance + max(between − within, 0)/k``, for a pair ``… + max(MS_SJ − MS_SIJ, 0) · 2/(n
    k)``; Satterthwaite's degrees of freedom (1946) of its three mean squares, at least k − 1. If
    ``between`` has few, f, its square says too little and the formula too many: it is then taken (f + 2)/f
    times, which lowers them to f at most.
    """
    k, f = scatter.judges, scatter.degrees_between
    v = item_variance + scatter.variance
    of_judges = (scatter.between / k) ** 2 / f
    spent = item_variance**2 / max(degrees, 1.0) + of_judges
    if scatter.degrees_within:
        spent += (scatter.within / k) ** 2 / scatter.degrees_within
    degrees_of_both = v**2 / spent if spent > 0 else degrees
    # E[MS²] = σ⁴(f + 2)/f; without it 7.8% of leads by 3 judges are false, with it 5%
    # (evidence/judge_sample.py)
    careful = v**2 / (spent + of_judges * 2 / f) if spent > 0 else degrees
    degrees_of_both = min(degrees_of_both, max(careful, f))
    return Spread(float(np.sqrt(v)), max(degrees_of_both, k - 1.0))
