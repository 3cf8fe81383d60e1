"""What students gain on the items of teachers of their own family.

A teacher may write what models of its family know, or has been trained on. In logits, a student's mean score
on a teacher's items of a task is taken to be

    α(student, task) + δ(teacher, task) + λ(student) · [teacher and student are of one family],

fitted to the means of items by quasi-likelihood (Papke and Wooldridge 1996), for scores end at 0 and 1: on
easy items all differ less, which is no gain. λ can be told where the student has answered items of strangers
too, and students of other families its items; with two teachers and a student of each, whose gain
it is cannot be told. Told is what λ is worth in score on the items of its own family: with it less without.

Errors are clustered by item, or by group of items that are nearly the same (Liang and Zeger 1986). To the
items of each teacher in each task one observation of the largest variance possible is lent, so that few items
that happen to score alike do not look sure, and the degrees of freedom are Welch's over teachers and tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import Entity, Record, ShownAs
from coeval.analysis.measures.score_grid import Codes, ScoreGrid
from coeval.analysis.panel.bias_ledger import FEWEST_ITEMS, UNKNOWN, Bias, Leaning, adjusted, bias_of

# Keeps coefficients finite where all scores are alike.
_RIDGE = 1e-4


class Gain(Leaning, Entity, frozen=True):
    """What a student or a family gains on its own family's ``items``."""

    items: Annotated[
        int, ShownAs("Those that their own family's teachers wrote", "Items", "items", kind="count")
    ]


class TeacherLeak(Record, frozen=True):
    """By name; who has no teacher of its family is in neither."""

    students: Annotated[Mapping[str, Gain], ShownAs("Of each student", elsewhere="leak")]
    families: Annotated[Mapping[str, Gain], ShownAs("Of all students of a family", elsewhere="leak")]


class _Cells(NamedTuple):
    """C cells of (student, part), a part being a teacher's items in a task: their mean scores and numbers of
    answers; ``own``: teacher and student are of one family. ``design`` is (C, P) without λ; ``cluster`` (I,)
    is that of each item."""

    student: NDArray[np.int64]
    part: NDArray[np.int64]
    mean: Floats
    answers: Floats
    own: NDArray[np.bool_]
    design: Floats
    cluster: Codes


def teacher_leak(grid: ScoreGrid, scores: Floats, families: Mapping[str, str]) -> TeacherLeak:
    """What students and families gain.

    Parameters
    ----------
    scores : (S, I) of each student and datapoint, 0 to 1, NaN where there is none
    families : of students and teachers
    """
    of_students = [families.get(name, name) for name in grid.students]
    related = np.zeros((len(grid.students), len(grid.teachers)), bool)
    for student, own in enumerate(of_students):
        related[student] = [own == families.get(name, name) for name in grid.teachers]
    part = grid.items.task.astype(np.int64) * len(grid.teachers) + grid.items.teacher
    cells = _cells(grid, scores, part, related)
    shared = [name for name in dict.fromkeys(of_students) if related[of_students.index(name)].any()]
    alone = [name for name, of in zip(grid.students, related, strict=True) if of.any()]
    of_family = np.array([shared.index(name) if name in shared else -1 for name in of_students], np.int64)
    of_student = np.array([alone.index(name) if name in alone else -1 for name in grid.students], np.int64)
    return TeacherLeak(
        students=_gains(cells, scores, part, of_student, alone),
        families=_gains(cells, scores, part, of_family, shared),
    )


def _cells(grid: ScoreGrid, scores: Floats, part: NDArray[np.int64], related: NDArray[np.bool_]) -> _Cells:
    students, parts = len(grid.students), len(grid.tasks) * len(grid.teachers)
    known = np.isfinite(scores)
    key = np.arange(students)[:, None] * parts + part
    count = np.bincount(key[known], minlength=students * parts).astype(np.float64)
    total = np.bincount(key[known], scores[known], students * parts)
    there = np.flatnonzero(count)
    student, of_part = np.divmod(there, max(parts, 1))
    task, teacher = np.divmod(of_part, max(len(grid.teachers), 1))
    alpha = np.unique(student * len(grid.tasks) + task, return_inverse=True)[1]
    delta = np.unique(of_part, return_inverse=True)[1]
    design = np.hstack([np.eye(alpha.max(initial=-1) + 1)[alpha], np.eye(delta.max(initial=-1) + 1)[delta]])
    mean, own = total[there] / count[there], related[student, teacher]
    return _Cells(student, of_part, mean, count[there], own, design, grid.items.cluster)


def _gains(
    cells: _Cells, scores: Floats, part: NDArray[np.int64], group: NDArray[np.int64], names: list[str]
) -> dict[str, Gain]:
    """``group``: to which of the names each student belongs, below 0 to none."""
    of_cell = np.where(cells.own, group[cells.student], -1)
    leaks = (of_cell[:, None] == np.arange(len(names))).astype(np.float64)
    reported = _identified(np.hstack([cells.design, leaks]), len(names))
    found = dict.fromkeys(names, UNKNOWN)
    if reported.any():
        fit = _Fit(cells, np.hstack([cells.design, leaks[:, reported]]))
        for column, place in enumerate(np.flatnonzero(reported).tolist()):
            found[names[place]] = fit.gain(scores, part, cells.design.shape[1] + column)
    return {
        name: Gain(
            value=gain.value,
            ci95=gain.ci95,
            p_adjusted=gain.p_adjusted,
            items=int(np.isin(part, cells.part[of_cell == place]).sum()),
        )
        for place, (name, gain) in enumerate(adjusted(found).items())
    }


def _identified(design: Floats, last: int) -> NDArray[np.bool_]:
    """Whether each of the last columns is no combination of the others."""
    whole = int(np.linalg.matrix_rank(design)) if design.size else 0
    first = design.shape[1] - last
    return np.array(
        [np.linalg.matrix_rank(np.delete(design, first + place, axis=1)) < whole for place in range(last)],
        bool,
    )


class _Fit:
    def __init__(self, cells: _Cells, design: Floats) -> None:
        self._cells, self._design = cells, design

        def falling(beta: Floats) -> tuple[float, Floats]:
            margin = design @ beta
            loss = (
                cells.answers @ (np.logaddexp(0.0, margin) - cells.mean * margin) + _RIDGE / 2 * beta @ beta
            )
            return float(loss), design.T @ (cells.answers * (expit(margin) - cells.mean)) + _RIDGE * beta

        start = np.zeros(design.shape[1])
        beta = minimize(falling, start, jac=True, hess=self._bent, method="trust-exact").x
        self._beta, self._chance = beta, expit(design @ beta)
        self._bread = np.linalg.inv(self._bent(beta))

    def _bent(self, beta: Floats) -> Floats:
        chance = expit(self._design @ beta)
        weight = self._cells.answers * chance * (1 - chance)
        return np.asarray((self._design.T * weight) @ self._design + _RIDGE * np.eye(len(beta)), np.float64)

    def gain(self, scores: Floats, part: NDArray[np.int64], column: int) -> Bias:
        """What the coefficient of a column is worth in score, on average over the items where that is 1."""
        cells, own = self._cells, self._design[:, column] > 0
        share = cells.answers[own] / cells.answers[own].sum()
        without = expit(self._design[own] @ self._beta - self._beta[column])
        value = float(share @ (self._chance[own] - without))
        less = self._design[own].copy()
        less[:, column] = 0
        slope = (share * self._chance[own] * (1 - self._chance[own])) @ self._design[own]
        slope -= (share * without * (1 - without)) @ less
        pull = self._design @ (self._bread @ slope)
        return self._bias(value, pull, scores, part)

    def _bias(self, value: float, pull: Floats, scores: Floats, part: NDArray[np.int64]) -> Bias:
        """``pull``: what an item's distance from its cell's mean does to the value, by cell."""
        cells = self._cells
        parts, at = np.unique(cells.part, return_inverse=True)
        table = np.zeros((2, len(scores), len(parts)))
        table[:, cells.student, at] = pull, self._chance
        of_item = np.searchsorted(parts, part).clip(max=len(parts) - 1)
        distance = np.where(np.isfinite(scores), scores - table[1][:, of_item], 0.0)
        influence = (table[0][:, of_item] * distance).sum(axis=0)
        most = int(cells.cluster.max(initial=0)) + 1
        groups, at_group = np.unique(of_item * most + cells.cluster, return_inverse=True)
        squares = np.bincount(groups // most, np.bincount(at_group, influence) ** 2, len(parts))
        items = np.bincount(groups // most, minlength=len(parts))
        mean = (cells.mean * cells.answers + 0.5) / (cells.answers + 1)
        lent = np.bincount(at, pull**2 * mean * (1 - mean), len(parts))
        variance = squares + lent
        if items.sum() < FEWEST_ITEMS or not variance.any():
            return UNKNOWN
        degrees = variance.sum() ** 2 / float((variance**2 / np.maximum(items - 1, 1)).sum())
        return bias_of(value, float(np.sqrt(variance.sum())), degrees)
