"""How far the items of each teacher separate students."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import Reweighting, spread_measure_interval
from coeval.analysis.measures.measure_tree import Entity, Measured, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid

Formula: TypeAlias = Literal["v1", "s2", "r3"]
FORMULAS: tuple[Formula, ...] = ("v1", "s2", "r3")


class TeacherMeasures(Entity, frozen=True):
    """How far a teacher's items separate students, by μ: the mean over items of judges' means or checks."""

    v1: Annotated[
        Measured,
        ShownAs("Mean over tasks and factors of the variance over students", "Variance", "v1", "number"),
    ]
    s2: Annotated[Measured, ShownAs("The root of it", "Deviation", "s2")]
    r3: Annotated[Measured, ShownAs("Mean of the highest − the lowest student mean", "Range", "r3")]


class Differentiation(NamedTuple):
    """``v1``: the mean over (task, factor) of the sample variance of the students' means; ``s2``: its root;
    ``r3``: the mean over (task, factor) of the largest less the least. NaN with one student."""

    v1: Floats
    s2: Floats
    r3: Floats


def measure_differentiation(means: Floats) -> Differentiation:
    """Measure how far students' means μ(task, factor, student) differ: (…, parts, students), 0 to 1, NaN
    where there is none. A (task, factor) with fewer than two students' means enters no mean."""
    has_mean = np.isfinite(means)
    students = has_mean.sum(axis=-1)
    is_defined = students >= 2
    filled = np.where(has_mean, means, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = filled.sum(axis=-1, keepdims=True) / students[..., None]
        squares = np.where(has_mean, (means - centre) ** 2, 0.0).sum(axis=-1)
        variance = np.where(is_defined, squares / (students - 1), 0.0)
        ranges = np.where(has_mean, means, -np.inf).max(axis=-1, initial=-np.inf) - np.where(
            has_mean, means, np.inf
        ).min(axis=-1, initial=np.inf)
        parts = is_defined.sum(axis=-1)
        v1 = variance.sum(axis=-1) / parts
        r3 = np.where(is_defined, ranges, 0.0).sum(axis=-1) / parts
    v1 = np.where(parts > 0, v1, np.nan)
    return Differentiation(v1, np.sqrt(v1), np.where(parts > 0, r3, np.nan))


def measure_teachers(grid: ScoreGrid, reweighting: Reweighting) -> dict[str, TeacherMeasures]:
    """Measure how far each teacher's items separate students, with intervals."""
    measures = {}
    for code, (name, rows) in enumerate(_rows_by_teacher(grid).items()):
        needed = int(grid.scores_due[grid.items.teacher == code].sum()) * int(grid.answers_per_item.sum())
        measures[name] = _measure_teacher(rows, reweighting, needed - rows.units)
    return measures


def differentiation_by_teacher(grid: ScoreGrid) -> dict[str, Differentiation]:
    """Measure how far each teacher's items separate students, without intervals."""
    one_block = np.zeros(len(grid.items.ids), np.int64)
    by_teacher = {}
    for name, rows in _rows_by_teacher(grid).items():
        sums, counts = rows.sum_by_block(one_block[rows.item], 1)
        by_teacher[name] = measure_differentiation(_mean_or_nan(sums[0], counts[0]).reshape(rows.shape))
    return by_teacher


def _rows_by_teacher(grid: ScoreGrid) -> dict[str, _TeacherRows]:
    sums = grid.sum_scores(equal_weights=True)
    count, mean = sums.units, _mean_or_nan(sums.total, sums.units)
    teacher = grid.items.teacher[grid.item]
    return {
        name: _TeacherRows(grid, (count > 0) & (teacher == code), mean, count)
        for code, name in enumerate(grid.teachers)
    }


def _mean_or_nan(sums: Floats, counts: NDArray[Any]) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts, np.float64)


class _TeacherRows:
    """A teacher's rows: their means as parts (task, factor) × students, summed by block."""

    def __init__(
        self, grid: ScoreGrid, rows: NDArray[np.bool_], means: Floats, units: NDArray[np.int64]
    ) -> None:
        part = grid.task[rows].astype(np.int64) * max(len(grid.factors), 1) + grid.factor[rows]
        parts, part = np.unique(part, return_inverse=True)
        self.shape = (len(parts), len(grid.students))
        self.cell = part * len(grid.students) + grid.student[rows]
        self.means = means[rows]
        self.units = int(units[rows].sum())
        self.item = grid.item[rows]
        self.items = len(np.unique(self.item))

    def sum_by_block(self, block: NDArray[np.int64], blocks: int) -> tuple[Floats, Floats]:
        """Return sums of means, (blocks, parts × students), and how many there are."""
        cells = self.shape[0] * self.shape[1]
        key = block * cells + self.cell
        sums = np.bincount(key, self.means, blocks * cells).astype(np.float64)
        counts = np.bincount(key, minlength=blocks * cells).astype(np.float64)
        return sums.reshape(blocks, cells), counts.reshape(blocks, cells)


def _measure_teacher(rows: _TeacherRows, reweighting: Reweighting, missing: int) -> TeacherMeasures:
    sums, counts = rows.sum_by_block(reweighting.block[rows.item], reweighting.blocks)
    means = _mean_or_nan(sums.sum(axis=0), counts.sum(axis=0)).reshape(rows.shape)
    drawn = reweighting.draw_smoothed_means(sums, counts)
    drawn = drawn.reshape(len(drawn), *rows.shape)
    values, draws = measure_differentiation(means), measure_differentiation(drawn)
    v1, s2, r3 = (
        Measured.with_bounds(
            float(value), spread_measure_interval(of_draws, float(value), rows.items), rows.items, missing
        )
        for value, of_draws in zip(values, draws, strict=True)
    )
    return TeacherMeasures(v1, s2, r3)
