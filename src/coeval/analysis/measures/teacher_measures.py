"""How far the items of each teacher tell students apart."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import Reweighting, dispersion_interval
from coeval.analysis.measures.measure_tree import Entity, Measured, ShownAs, measured_with_bounds
from coeval.analysis.measures.score_grid import ScoreGrid

Formula: TypeAlias = Literal["v1", "s2", "r3"]
FORMULAS: tuple[Formula, ...] = ("v1", "s2", "r3")


class TeacherMeasures(Entity, frozen=True):
    """How far a teacher's items tell students apart, of μ, the mean over its datapoints of the mean over
    judges, or of what a check gives."""

    v1: Annotated[
        Measured,
        ShownAs("Mean over tasks and factors of the variance over students", "Variance", "v1", "number"),
    ]
    s2: Annotated[Measured, ShownAs("The root of it", "Deviation", "s2")]
    r3: Annotated[Measured, ShownAs("Mean of the highest student's mean less the lowest's", "Range", "r3")]


class Differentiation(NamedTuple):
    """``v1``: the mean over (task, factor) of the sample variance of the students' means; ``s2``: its root;
    ``r3``: the mean over (task, factor) of the largest less the least. NaN with one student."""

    v1: Floats
    s2: Floats
    r3: Floats


def measure_differentiation(means: Floats) -> Differentiation:
    """Of students' means μ(task, factor, student), 0 to 1: (…, parts, students), NaN where there is none.

    A (task, factor) with fewer than two students' means enters no mean.
    """
    known = np.isfinite(means)
    there = known.sum(axis=-1)
    reported = there >= 2
    filled = np.where(known, means, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = filled.sum(axis=-1, keepdims=True) / there[..., None]
        squares = np.where(known, (means - centre) ** 2, 0.0).sum(axis=-1)
        variance = np.where(reported, squares / (there - 1), 0.0)
        ranges = np.where(known, means, -np.inf).max(axis=-1, initial=-np.inf) - np.where(
            known, means, np.inf
        ).min(axis=-1, initial=np.inf)
        parts = reported.sum(axis=-1)
        v1 = variance.sum(axis=-1) / parts
        r3 = np.where(reported, ranges, 0.0).sum(axis=-1) / parts
    v1 = np.where(parts > 0, v1, np.nan)
    return Differentiation(v1, np.sqrt(v1), np.where(parts > 0, r3, np.nan))


def measure_teachers(grid: ScoreGrid, reweighting: Reweighting) -> dict[str, TeacherMeasures]:
    """By teacher."""
    found = {}
    for place, (name, rows) in enumerate(_rows_by_teacher(grid).items()):
        needed = int(grid.scores_due[grid.items.teacher == place].sum()) * int(grid.answers_per_item.sum())
        found[name] = _measure_teacher(rows, reweighting, needed - rows.units)
    return found


def differentiation_by_teacher(grid: ScoreGrid) -> dict[str, Differentiation]:
    """By teacher: the same without intervals."""
    one_block = np.zeros(len(grid.items.ids), np.int64)
    found = {}
    for name, rows in _rows_by_teacher(grid).items():
        sums, counts = rows.summed(one_block[rows.item], 1)
        found[name] = measure_differentiation(_mean_or_nan(sums[0], counts[0]).reshape(rows.shape))
    return found


def _rows_by_teacher(grid: ScoreGrid) -> dict[str, _Rows]:
    sums = grid.sum_scores(equal_weights=True)
    count, mean = sums.units, _mean_or_nan(sums.total, sums.units)
    teacher = grid.items.teacher[grid.item]
    return {
        name: _Rows(grid, (count > 0) & (teacher == place), mean, count)
        for place, name in enumerate(grid.teachers)
    }


def _mean_or_nan(sums: Floats, counts: NDArray[Any]) -> Floats:
    """NaN where there is nothing."""
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts, np.float64)


class _Rows:
    """A teacher's rows: their means as parts (task, factor) × students, summed by block."""

    def __init__(
        self, grid: ScoreGrid, rows: NDArray[np.bool_], means: Floats, units: NDArray[np.int64]
    ) -> None:
        part = grid.task[rows].astype(np.int64) * max(len(grid.factors), 1) + grid.factor[rows]
        known, part = np.unique(part, return_inverse=True)
        self.shape = (len(known), len(grid.students))
        self.cell = part * len(grid.students) + grid.student[rows]
        self.means = means[rows]
        self.units = int(units[rows].sum())
        self.item = grid.item[rows]
        self.items = len(np.unique(self.item))

    def summed(self, block: NDArray[np.int64], blocks: int) -> tuple[Floats, Floats]:
        """(blocks, parts × students) sums of means, and how many there are."""
        cells = self.shape[0] * self.shape[1]
        key = block * cells + self.cell
        sums = np.bincount(key, self.means, blocks * cells).astype(np.float64)
        counts = np.bincount(key, minlength=blocks * cells).astype(np.float64)
        return sums.reshape(blocks, cells), counts.reshape(blocks, cells)


def _measure_teacher(rows: _Rows, reweighting: Reweighting, missing: int) -> TeacherMeasures:
    sums, counts = rows.summed(reweighting.block[rows.item], reweighting.blocks)
    means = _mean_or_nan(sums.sum(axis=0), counts.sum(axis=0)).reshape(rows.shape)
    drawn = reweighting.shares(sums, counts)
    drawn = drawn.reshape(len(drawn), *rows.shape)
    found, draws = measure_differentiation(means), measure_differentiation(drawn)
    v1, s2, r3 = (
        measured_with_bounds(
            float(value), dispersion_interval(of_draws, float(value), rows.items), rows.items, missing
        )
        for value, of_draws in zip(found, draws, strict=True)
    )
    return TeacherMeasures(v1, s2, r3)
