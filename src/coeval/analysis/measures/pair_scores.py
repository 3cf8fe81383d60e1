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
from coeval.analysis.panel.mean_squares import JudgeValues, judge_score_array, judged_share


class _SharedRows(NamedTuple):
    """A student's rows with the scores that the other has too; and of each datapoint, (I,), the mean of these
    (NaN: there is none) and how often it counts in the mean over datapoints."""

    rows: Codes
    levels: NDArray[np.int8]
    means: Floats
    counts: Floats


class SharedScores:
    """What any two students of a grid have in common."""

    def __init__(self, grid: ScoreGrid) -> None:
        self.grid = grid
        self._place = {name: at for at, name in enumerate(grid.students)}
        self._cell = grid.item.astype(np.int64) * max(len(grid.factors), 1) + grid.factor
        order = np.lexsort((self._cell, grid.student))
        ends = np.searchsorted(grid.student[order], np.arange(len(grid.students) + 1))
        self._rows = [order[first:last] for first, last in pairwise(ends)]
        # those who share all that they have need it once; of others, what was asked last is asked again
        self._whole: dict[tuple[int, frozenset[str]], _SharedRows] = {}
        self._last: tuple[tuple[str, str, frozenset[str]], tuple[_SharedRows, _SharedRows]] | None = None

    def pair_means(self, first: str, second: str, without: Collection[str] = ()) -> dict[str, PairedScores]:
        """By task, the two's means over the scores that they share of each datapoint, those of some judges
        left out."""
        of_a, of_b = self._shared(first, second, frozenset(without).intersection(self.grid.judges))
        a, b, found, alike = of_a.means, of_b.means, {}, self.grid.items.alike
        for place, task in enumerate(self.grid.tasks):
            mine = np.isfinite(a) & (self.grid.items.task == place)
            if mine.any():
                found[task] = PairedScores(
                    a[mine], b[mine], of_a.counts[mine], None if alike is None else alike[mine]
                )
        return found

    def means_by_item(self, first: str, second: str) -> dict[str, tuple[float, float]]:
        """By item, the two's means over the scores that they share of it."""
        a, b = self.item_means(first, second)
        ids = self.grid.items.ids
        return {ids[at]: (float(a[at]), float(b[at])) for at in np.flatnonzero(np.isfinite(a)).tolist()}

    def item_means(self, first: str, second: str) -> tuple[Floats, Floats]:
        """(I,) of each, NaN where they share no score."""
        of_a, of_b = self._shared(first, second, frozenset())
        return of_a.means, of_b.means

    def differences_by_judge(
        self, first: str, second: str, tasks: Collection[str], without: Collection[str] = ()
    ) -> list[JudgeValues]:
        """Of each of the ``tasks``, what each judge gave the second more than the first, by item, over the
        factors in which it scored both."""
        a, b = self._place[first], self._place[second]
        judges = [place for place, name in enumerate(self.grid.judges) if name not in without]
        cells = self.cells
        if self._kinds[a] != self._kinds[b] or self.grid.is_weighted:
            cells, a, b = self._shared_cells(first, second), 0, 1
        return [
            JudgeValues(cells[place][:, b][:, judges] - cells[place][:, a][:, judges], share)
            for place, (task, share) in enumerate(zip(self.grid.tasks, self._shares, strict=True))
            if task in tasks
        ]

    def recorded_means(self, student: str) -> tuple[Floats, Floats]:
        """(I,): its means over all scores on record, NaN where there is none, and how much of a whole score
        these count; below 1 where factors are weighed and some are missing."""
        grid, rows = self.grid, self._rows[self._place[student]]
        sums, items = grid.sum_scores(rows, complete_only=False), len(grid.items.ids)
        total, share = (np.bincount(grid.item[rows], column, items) for column in sums[:2])
        every = np.array([sum(design.weights.values()) for design in grid.designs])[grid.items.task]
        with np.errstate(invalid="ignore", divide="ignore"):
            there = np.where(every > 0, np.minimum(share / every, 1.0), 1.0)
            return np.asarray(total / share, np.float64), np.asarray(there, np.float64)

    def have_same_scores(self, names: Collection[str]) -> bool:
        """Whether all of these students who have any score have the very same ones, in each answer."""
        known = [there for name in names if len(there := self._patterns[self._place[name]])]
        return all(map(np.array_equal, known, known[1:]))

    @cached_property
    def _patterns(self) -> list[NDArray[np.int64]]:
        grid, found = self.grid, []
        for rows in self._rows:
            scored = rows[grid.scored[rows]]
            there = np.c_[self._cell[scored], grid.valid[scored]]
            found.append(there if grid.sample is None else np.unique(there, axis=0))
        return found

    @cached_property
    def cells(self) -> list[Floats]:
        """By task, `judge_score_array` of all that is on record."""
        return [judge_score_array(self.grid, task) for task in range(len(self.grid.tasks))]

    @cached_property
    def _shares(self) -> list[float]:
        return [judged_share(design) for design in self.grid.designs]

    @cached_property
    def _kinds(self) -> list[int]:
        """By student, a number that those share who have the very same scores on record."""
        kinds: dict[tuple[bytes, bytes], int] = {}
        keys = ((self._cell[rows].tobytes(), np.packbits(self._given(rows)).tobytes()) for rows in self._rows)
        return [kinds.setdefault(key, len(kinds)) for key in keys]

    def _shared_cells(self, first: str, second: str) -> list[Floats]:
        """As `judge_score_array`, of the two's shared scores."""
        both = self._shared(first, second, frozenset())
        mine = self.grid.select_rows(np.concatenate([one.rows for one in both]))._replace(
            levels=np.concatenate([one.levels for one in both]),
            student=np.repeat(np.arange(2), [len(one.rows) for one in both]),
            students=(first, second),
        )
        return [judge_score_array(mine, task) for task in range(len(mine.tasks))]

    def _shared(self, first: str, second: str, without: frozenset[str]) -> tuple[_SharedRows, _SharedRows]:
        asked = first, second, without
        if self._last is None or self._last[0] != asked:
            self._last = asked, self._shared_of(*asked)
        return self._last[1]

    def _shared_of(self, first: str, second: str, without: frozenset[str]) -> tuple[_SharedRows, _SharedRows]:
        a, b = self._place[first], self._place[second]
        if self._kinds[a] == self._kinds[b]:
            return self._all_of(a, without), self._all_of(b, without)
        of_a, of_b = self._rows[a], self._rows[b]
        cells = self._cell[of_a], self._cell[of_b]
        if self.grid.sample is None and not np.array_equal(*cells):
            _, in_a, in_b = np.intersect1d(*cells, assume_unique=True, return_indices=True)
            of_a, of_b = of_a[in_a], of_b[in_b]
        given = [self._given(of_a), self._given(of_b)]
        to_a, to_b = given[::-1] if self.grid.sample is None else _given_by_the_other(cells, given)
        return self._counted(of_a, without, to_a), self._counted(of_b, without, to_b)

    def _given(self, rows: Codes) -> NDArray[np.bool_]:
        """(R, J), and a column more where there are checks: which scores rows have."""
        valid, checked = self.grid.levels[rows] >= 0, self.grid.checked
        return valid if checked is None else np.c_[valid, np.isfinite(checked[rows])]

    def _all_of(self, place: int, without: frozenset[str]) -> _SharedRows:
        if (place, without) not in self._whole:
            rows = self._rows[place]
            self._whole[place, without] = self._counted(rows, without, self._given(rows))
        return self._whole[place, without]

    def _counted(self, rows: Codes, without: frozenset[str], other: NDArray[np.bool_]) -> _SharedRows:
        """``other``: which scores the other has, as `_given`."""
        grid, items = self.grid, len(self.grid.items.ids)
        counts = other[:, : len(grid.judges)] & np.array([name not in without for name in grid.judges], bool)
        levels = np.where(counts, grid.levels[rows], UNSCORED)
        checked = None if grid.checked is None else np.where(other[:, -1], grid.checked[rows], np.nan)
        sums = grid.sum_scores(rows, levels, checked)
        levels[sums.units == 0] = UNSCORED  # of an answer that lacks a factor
        item, times = grid.item[rows], np.ones(items)
        share = np.bincount(item, sums.share, items)
        with np.errstate(invalid="ignore"):
            means = np.asarray(np.bincount(item, sums.total, items) / share, np.float64)
            if grid.weight is not None:
                weighted = np.bincount(item, grid.weight[rows] * sums.share, items)
                times = np.asarray(weighted / share, np.float64)
        return _SharedRows(rows, levels, means, times)


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
