"""Mean squares of scores by students, items and judges, and what judges add to the error of a difference.

A score of student s, item i and judge j is taken to be ``μ_s + I_i + J_j + SI_si + SJ_sj + IJ_ij + e_sij``
with students fixed, items and judges sampled. A pair's difference over n items and k judges has the variance
``2(σ_SI² + σ_e²/k)/n`` over items, by these judges, and ``2σ_SJ²/k`` more over judges, estimated by
``max(MS_SJ − MS_SIJ, 0) · 2/(n k)`` (Cornfield and Tukey 1956; Brennan 2001, *Generalizability Theory*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import ScoreGrid, TaskDesign

# Share of what the best covered judge (or student) has, below which one would cost the others too much.
COVERED = 0.5
# Judges of whom a variance can be told at all; of two it is a guess, on one degree of freedom.
_FEWEST_JUDGES = 2
# One item has no variance.
_FEWEST_ITEMS = 2


# --- Scores by item, student and judge


def judge_cells(grid: ScoreGrid, task: int) -> Floats:
    """(n, S, J), 0 to 1: the items of a task that have any score, its students and judges in the grid's
    order; each cell a mean over factors by their weights, and over several answers. NaN: no score."""
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
    """How much of an item's score judges give; checks give the rest."""
    if not design.judged_factors or not design.judges:
        return 0.0
    total = sum(design.weights.get(name, 0.0) for name in design.factors)
    return sum(design.weights.get(name, 0.0) for name in design.judged_factors) / total if total else 1.0


class MeanSquares(NamedTuple):
    """Of a full block of n items, S students and k judges: each sum of squares over its degrees of freedom,
    (R,), of all items and then without each of R − 1 groups of them; NaN of a single item. ``means``
    (R, S, k) are those of students and judges, ``n`` (R,) the items."""

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
        """Variances, (R,), by what scatters, unbiased, so that one may lie below 0; ``students``: that of
        their true means, which are no sample."""
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


def mean_squares(cells: Floats, group: NDArray[np.intp] = _ALL_AT_ONCE, groups: int = 0) -> MeanSquares:
    """Analyse the variance of a full block, (n, S, k) with two of each, three ways; ``group`` (n,) says which
    of so many ``groups`` each item is left out with.

    A block with holes has no such table: leave out what has any first, or take `judge_scatter`, which
    leaves out items by pair.
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
    each = np.concatenate([of_items, y.reshape(size, s * k), np.ones((size, 1))], axis=1)
    by_group = np.zeros((groups, each.shape[1]))
    if groups:
        np.add.at(by_group, group, each)
    whole = each.sum(axis=0)[None]
    total = np.concatenate([whole, whole - by_group])
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


def _squares(values: Floats) -> float:
    return float((values**2).sum())


# --- What judges add to the error of a mean


class ByJudge(NamedTuple):
    """``values`` (n, J): of one task, what each judge gave each item, NaN where it gave nothing: a student's
    scores, or the differences of two. ``share``: how much of the item's score judges give; checks give the
    rest, and 0 is a task that checks score alone."""

    values: Floats
    share: float = 1.0


class JudgeScatter(NamedTuple):
    """What a mean over items varies by with the judges it is of, times the number of these.

    ``between``: the variance of the judges' own means, in which ``within`` is chance, what items of a judge
    scatter; of two students in one task ``2 MS_SJ/n`` and ``2 MS_SIJ/n``. ``judges``: the fewest of any task;
    each part with its degrees of freedom.
    """

    between: float
    within: float
    judges: int
    degrees_between: float
    degrees_within: float

    @property
    def variance(self) -> float:
        """That of the mean over these judges, if judges are sampled: never below 0."""
        return max(self.between - self.within, 0.0) / self.judges


class JudgeSpread(NamedTuple):
    """The standard error over items and judges, and its degrees of freedom."""

    error: float
    degrees: float


def judge_scatter(tasks: Sequence[ByJudge]) -> JudgeScatter | None:
    """Of a mean over tasks, which count alike; None where a task has one judge only, or no item that two
    judges scored.

    Holes: in each task judges who scored less than half as many items as the best covered one are left out,
    then items that any of the others has not scored. A judge keeps its leaning from task to task, so what
    it adds in several tasks is summed before it is squared; judges of different tasks are independent.
    """
    judged = [task for task in tasks if task.share > 0]
    blocks = [_block(task.values) for task in judged]
    if not blocks or any(len(values) == 0 or len(who) < _FEWEST_JUDGES for values, who in blocks):
        return None
    fewest = min(len(who) for _, who in blocks)
    moved = np.zeros(max(task.values.shape[1] for task in judged))
    chance = freedom = 0.0
    for task, (values, who) in zip(judged, blocks, strict=True):
        (n, k), share = values.shape, task.share / len(tasks)
        by_judge = values.mean(axis=0)
        moved[who] += share * (by_judge - by_judge.mean()) / np.sqrt(k * (k - 1))
        if n > 1:
            rest = values - values.mean(axis=1, keepdims=True) - by_judge + by_judge.mean()
            chance += share**2 * _squares(rest) / ((n - 1) * (k - 1)) / (n * k)
            freedom += (n - 1) * (k - 1)
    return JudgeScatter(_squares(moved) * fewest, chance * fewest, fewest, fewest - 1, freedom)


def _block(values: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """The items that all judges kept have scored, (n, k), and the places of these judges, (k,)."""
    there = np.isfinite(values)
    counts = there.sum(axis=0)
    kept = (counts > 0) & (counts >= COVERED * counts.max(initial=0))
    return values[there[:, kept].all(axis=1)][:, kept], np.flatnonzero(kept)


def own_means(tasks: Sequence[ByJudge]) -> Floats:
    """(J,): what each judge by itself gave, the mean over the tasks in which it scored anything; NaN:
    nothing."""
    judged = [task.values for task in tasks if task.share > 0]
    if not judged:
        return np.empty(0)
    sums = np.array([np.nansum(values, axis=0) for values in judged])
    counts = np.array([np.isfinite(values).sum(axis=0) for values in judged])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
        found: Floats = np.nansum(means, axis=0) / (counts > 0).sum(axis=0)
    return found


def pooled_scatter(scatters: Sequence[JudgeScatter | None], things: int) -> JudgeScatter | None:
    """The mean of several, each of ``things`` sharing their judges: of all pairs of S students ``S − 1``, so
    that ``between`` follows from MS_SJ over all of them; of S students' own means, which share each judge's
    severity, 1. None where no one is known."""
    known = [one for one in scatters if one is not None]
    if not known:
        return None
    fewest = min(one.judges for one in known)
    within = float(np.mean([one.degrees_within for one in known]))
    return JudgeScatter(
        float(np.mean([one.between for one in known])),
        float(np.mean([one.within for one in known])),
        fewest,
        things * (fewest - 1),
        things * within,
    )


def judge_spread(v_items: float, degrees: float, scatter: JudgeScatter) -> JudgeSpread:
    """Add what judges add to the variance of a mean over items, ``v_items`` with its degrees of freedom.

    ``v = v_items + max(between − within, 0)/k``, for a pair ``v_items + max(MS_SJ − MS_SIJ, 0) · 2/(n k)``;
    Satterthwaite's degrees of freedom (1946) of its three mean squares, at least k − 1. Where ``between`` has
    few, f, its square says too little and the formula too many: it is then taken (f + 2)/f times, which
    lowers them to f at most.
    """
    k, f = scatter.judges, scatter.degrees_between
    v = v_items + scatter.variance
    of_judges = (scatter.between / k) ** 2 / f
    spent = v_items**2 / max(degrees, 1.0) + of_judges
    if scatter.degrees_within:
        spent += (scatter.within / k) ** 2 / scatter.degrees_within
    found = v**2 / spent if spent > 0 else degrees
    # E[MS²] = σ⁴(f + 2)/f; without it 7.8% of leads by 3 judges are false, with it 5%
    # (evidence/judge_sample.py)
    careful = v**2 / (spent + of_judges * 2 / f) if spent > 0 else degrees
    found = min(found, max(careful, f))
    return JudgeSpread(float(np.sqrt(v)), max(found, k - 1.0))
