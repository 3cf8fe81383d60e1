"""What two students of a grid have in common, item by item.

A score counts only where the other has its counterpart: the same item, by the same judge in the same factor.
So neither a hard item nor a strict judge weighs on one of the two alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import UNSCORED, Codes, ScoreGrid
from coeval.analysis.panel.mean_squares import ByJudge, judge_cells, judged_share


class _SharedRows(NamedTuple):
    """A student's rows with the scores that the other has too, and how much each row counts in its item."""

    rows: Codes
    levels: NDArray[np.int8]
    total: Floats
    share: Floats


class SharedScores:
    """What any two students of a grid have in common."""

    def __init__(self, grid: ScoreGrid) -> None:
        self.grid = grid
        self._place = {name: at for at, name in enumerate(grid.students)}
        self._cell = grid.item.astype(np.int64) * max(len(grid.factors), 1) + grid.factor
        order = np.lexsort((self._cell, grid.student))
        ends = np.searchsorted(grid.student[order], np.arange(len(grid.students) + 1))
        self._rows = [order[first:last] for first, last in pairwise(ends)]

    def paired(self, first: str, second: str, without: Collection[str] = ()) -> dict[str, PairedScores]:
        """By task, the two's means over the scores that they share of each datapoint, those of some judges
        left out."""
        of_a, of_b = self._shared(first, second, without)
        a, b = self._means(of_a), self._means(of_b)
        counts = self._counts(of_a)
        found = {}
        for place, task in enumerate(self.grid.tasks):
            mine = np.isfinite(a) & (self.grid.items.task == place)
            if mine.any():
                found[task] = PairedScores(a[mine], b[mine], counts[mine], self.grid.items.alike_of(mine))
        return found

    def by_item(self, first: str, second: str) -> dict[str, tuple[float, float]]:
        """By item, the two's means over the scores that they share of it."""
        a, b = self.means(first, second)
        ids = self.grid.items.ids
        return {ids[at]: (float(a[at]), float(b[at])) for at in np.flatnonzero(np.isfinite(a)).tolist()}

    def means(self, first: str, second: str) -> tuple[Floats, Floats]:
        """(I,) of each, NaN where they share no score."""
        of_a, of_b = self._shared(first, second, ())
        return self._means(of_a), self._means(of_b)

    def by_judge(
        self, first: str, second: str, tasks: Collection[str], without: Collection[str] = ()
    ) -> list[ByJudge]:
        """Of each of the ``tasks``, what each judge gave the second more than the first, by item, over the
        factors in which it scored both."""
        a, b = self._place[first], self._place[second]
        judges = [place for place, name in enumerate(self.grid.judges) if name not in without]
        cells = self._cells if self._alike(a, b) else self._shared_cells(first, second)
        if cells is not self._cells:
            a, b = 0, 1
        return [
            ByJudge(cells[place][:, b][:, judges] - cells[place][:, a][:, judges], share)
            for place, (task, share) in enumerate(zip(self.grid.tasks, self._shares, strict=True))
            if task in tasks
        ]

    def known(self, student: str) -> tuple[Floats, Floats]:
        """(I,): its means over all scores on record, NaN where there is none, and how much of a whole score
        these count; below 1 where factors are weighed and some are missing."""
        grid, rows = self.grid, self._rows[self._place[student]]
        sums, items = grid.sums(rows, whole=False), len(grid.items.ids)
        total, share = (np.bincount(grid.item[rows], column, items) for column in sums[:2])
        every = np.array([sum(design.weights.values()) for design in grid.designs])[grid.items.task]
        with np.errstate(invalid="ignore", divide="ignore"):
            there = np.where(every > 0, np.minimum(share / every, 1.0), 1.0)
            return np.asarray(total / share, np.float64), np.asarray(there, np.float64)

    def evenly_cover(self, names: Collection[str]) -> bool:
        """Whether all of these students who have any score have the very same ones, in each answer."""
        known = [there for name in names if len(there := self._given[self._place[name]])]
        return all(map(np.array_equal, known, known[1:]))

    @cached_property
    def _given(self) -> list[NDArray[np.int64]]:
        grid, found = self.grid, []
        for rows in self._rows:
            scored = rows[grid.scored[rows]]
            there = np.c_[self._cell[scored], grid.valid[scored]]
            found.append(there if grid.sample is None else np.unique(there, axis=0))
        return found

    @cached_property
    def _cells(self) -> list[Floats]:
        return [judge_cells(self.grid, task) for task in range(len(self.grid.tasks))]

    @cached_property
    def _shares(self) -> list[float]:
        return [judged_share(design) for design in self.grid.designs]

    def _alike(self, a: int, b: int) -> bool:
        """Whether the two have the very same scores on record, and all of them count."""
        if any(design.weights for design in self.grid.designs):
            return False
        grid, (of_a, of_b) = self.grid, (self._rows[a], self._rows[b])
        return np.array_equal(self._cell[of_a], self._cell[of_b]) and np.array_equal(
            grid.levels[of_a] >= 0, grid.levels[of_b] >= 0
        )

    def _shared_cells(self, first: str, second: str) -> list[Floats]:
        """As `judge_cells`, of the two's shared scores."""
        both = self._shared(first, second, ())
        mine = self.grid.of_rows(np.concatenate([one.rows for one in both]))._replace(
            levels=np.concatenate([one.levels for one in both]),
            student=np.repeat(np.arange(2), [len(one.rows) for one in both]),
            students=(first, second),
        )
        return [judge_cells(mine, task) for task in range(len(mine.tasks))]

    def _means(self, shared: _SharedRows) -> Floats:
        item, items = self.grid.item[shared.rows], len(self.grid.items.ids)
        with np.errstate(invalid="ignore"):
            means = np.bincount(item, shared.total, items) / np.bincount(item, shared.share, items)
        return np.asarray(means, np.float64)

    def _counts(self, shared: _SharedRows) -> Floats:
        """(I,): how often each item counts in the mean over items."""
        items = len(self.grid.items.ids)
        if self.grid.weight is None:
            return np.ones(items)
        item, weight = self.grid.item[shared.rows], self.grid.weight[shared.rows] * shared.share
        with np.errstate(invalid="ignore"):
            counts = np.bincount(item, weight, items) / np.bincount(item, shared.share, items)
        return np.asarray(counts, np.float64)

    def _shared(self, first: str, second: str, without: Collection[str]) -> tuple[_SharedRows, _SharedRows]:
        grid = self.grid
        of_a, of_b = self._rows[self._place[first]], self._rows[self._place[second]]
        cells = self._cell[of_a], self._cell[of_b]
        if grid.sample is None and not np.array_equal(*cells):
            _, in_a, in_b = np.intersect1d(*cells, assume_unique=True, return_indices=True)
            of_a, of_b = of_a[in_a], of_b[in_b]
        left_out = [name in without for name in grid.judges]
        levels = [np.where(left_out, UNSCORED, grid.levels[rows]) for rows in (of_a, of_b)]
        checked = [None if grid.checked is None else grid.checked[rows] for rows in (of_a, of_b)]
        given = [
            own >= 0 if check is None else np.c_[own >= 0, np.isfinite(check)]
            for own, check in zip(levels, checked, strict=True)
        ]
        others = given[::-1] if grid.sample is None else _given_by_the_other(cells, given)
        found = []
        for rows, own, check, other in zip((of_a, of_b), levels, checked, others, strict=True):
            both = None if check is None else np.where(other[:, -1], check, np.nan)
            mine = np.where(other[:, : len(grid.judges)], own, UNSCORED)
            sums = grid.sums(rows, mine, both)
            mine[sums.units == 0] = UNSCORED  # of an answer that lacks a factor
            found.append(_SharedRows(rows, mine, sums.total, sums.share))
        return found[0], found[1]


def _given_by_the_other(
    cells: tuple[NDArray[np.int64], NDArray[np.int64]], given: Sequence[NDArray[np.bool_]]
) -> list[NDArray[np.bool_]]:
    """For the rows of two students, which of the scores any row of the other has in the same cell; of several
    answers to a datapoint a cell has several rows."""
    known, place = np.unique(np.concatenate(cells), return_inverse=True)
    of_a, of_b = place[: len(cells[0])], place[len(cells[0]) :]
    there = [np.zeros((len(known), own.shape[1]), bool) for own in given]
    for found, rows, own in zip(there, (of_a, of_b), given, strict=True):
        np.logical_or.at(found, rows, own)
    return [there[1][of_a], there[0][of_b]]
