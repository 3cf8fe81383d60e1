"""The scores that two students of a grid share, item by item.

A score counts only where the other has its counterpart: the same item, by the same judge in the same
factor. So neither a hard item nor a strict judge weighs on one of the two alone.
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
from coeval.analysis.panel.mean_squares import JudgeValues, average_judge_scores_over_factors, judged_share


class _SharedRows(NamedTuple):
    """A student's rows with the scores that the other also has; and, (I,), each item's mean of these (NaN:
    none) and weight in the mean over items."""

    rows: Codes
    levels: NDArray[np.int8]
    means: Floats
    counts: Floats


class SharedScores:
    """The scores that any two students of a grid share."""

    def __init__(self, grid: ScoreGrid) -> None:
        self.grid = grid
        self._student_code = {name: at for at, name in enumerate(grid.students)}
        self._cell = grid.item.astype(np.int64) * max(len(grid.factors), 1) + grid.factor
        order = np.lexsort((self._cell, grid.student))
        ends = np.searchsorted(grid.student[order], np.arange(len(grid.students) + 1))
        self._rows = [order[first:last] for first, last in pairwise(ends)]
        # those who share all that they have need it once; of others, what was asked last is asked again
        self._whole_rows: dict[tuple[int, frozenset[str]], _SharedRows] = {}
        self._last: tuple[tuple[str, str, frozenset[str]], tuple[_SharedRows, _SharedRows]] | None = None

    def item_means_by_task(
        self, first: str, second: str, excluded_judges: Collection[str] = ()
    ) -> dict[str, PairedScores]:
        """Return both students' means of each item over the scores they share, by task."""
        of_a, of_b = self._cached_shared_rows(
            first, second, frozenset(excluded_judges).intersection(self.grid.judges)
        )
        a, b, strata, alike = of_a.means, of_b.means, {}, self.grid.items.alike
        for code, task in enumerate(self.grid.tasks):
            is_shared = np.isfinite(a) & (self.grid.items.task == code)
            if is_shared.any():
                strata[task] = PairedScores(
                    a[is_shared],
                    b[is_shared],
                    of_a.counts[is_shared],
                    None if alike is None else alike[is_shared],
                )
        return strata

    def shared_means_by_item(self, first: str, second: str) -> dict[str, tuple[float, float]]:
        a, b = self.shared_item_means_or_nan(first, second)
        ids = self.grid.items.ids
        return {ids[at]: (float(a[at]), float(b[at])) for at in np.flatnonzero(np.isfinite(a)).tolist()}

    def shared_item_means_or_nan(self, first: str, second: str) -> tuple[Floats, Floats]:
        """Return both students' means per item, (I,) each; NaN where they share no score."""
        of_a, of_b = self._cached_shared_rows(first, second, frozenset())
        return of_a.means, of_b.means

    def judge_differences_by_task(
        self, first: str, second: str, tasks: Collection[str], excluded_judges: Collection[str] = ()
    ) -> list[JudgeValues]:
        """Return, for each of ``tasks``, second minus first student by item and judge who scored both."""
        a, b = self._student_code[first], self._student_code[second]
        judges = [code for code, name in enumerate(self.grid.judges) if name not in excluded_judges]
        cells = self.judge_scores_by_task
        if self._coverage_codes[a] != self._coverage_codes[b] or self.grid.is_weighted:
            cells, a, b = self._judge_scores_of_pair_by_task(first, second), 0, 1
        return [
            JudgeValues(cells[code][:, b][:, judges] - cells[code][:, a][:, judges], share)
            for code, (task, share) in enumerate(zip(self.grid.tasks, self._judged_shares, strict=True))
            if task in tasks
        ]

    def means_and_coverage(self, student: str) -> tuple[Floats, Floats]:
        """Return, (I,) each, a student's means over all recorded scores, NaN where there is none, and the
        share of a whole score that they cover: below 1 where factors are weighted and some are missing."""
        grid, rows = self.grid, self._rows[self._student_code[student]]
        sums, items = grid.select_rows(rows).sum_scores(complete_only=False), len(grid.items.ids)
        total, share = (np.bincount(grid.item[rows], column, items) for column in sums[:2])
        total_weights = np.array([sum(design.weights.values()) for design in grid.designs])[grid.items.task]
        with np.errstate(invalid="ignore", divide="ignore"):
            weight_share = np.where(total_weights > 0, np.minimum(share / total_weights, 1.0), 1.0)
            return np.asarray(total / share, np.float64), np.asarray(weight_share, np.float64)

    def have_scores_in_same_cells(self, names: Collection[str]) -> bool:
        """Check whether all of these students who have any score have the very same ones, in each answer."""
        patterns = [
            pattern for name in names if len(pattern := self._score_patterns[self._student_code[name]])
        ]
        return all(map(np.array_equal, patterns, patterns[1:]))

    @cached_property
    def _score_patterns(self) -> list[NDArray[np.int64]]:
        grid, patterns = self.grid, []
        for rows in self._rows:
            scored = rows[grid.scored[rows]]
            pattern = np.c_[self._cell[scored], grid.valid[scored]]
            patterns.append(pattern if grid.sample is None else np.unique(pattern, axis=0))
        return patterns

    @cached_property
    def judge_scores_by_task(self) -> list[Floats]:
        """Return `average_judge_scores_over_factors` of all recorded scores, by task."""
        return [average_judge_scores_over_factors(self.grid, task) for task in range(len(self.grid.tasks))]

    @cached_property
    def _judged_shares(self) -> list[float]:
        return [judged_share(design) for design in self.grid.designs]

    @cached_property
    def _coverage_codes(self) -> list[int]:
        """Return a number for each student, the same for those who have the very same scores on record."""
        kinds: dict[tuple[bytes, bytes], int] = {}
        keys = (
            (self._cell[rows].tobytes(), np.packbits(self._valid_scores(rows)).tobytes())
            for rows in self._rows
        )
        return [kinds.setdefault(key, len(kinds)) for key in keys]

    def _judge_scores_of_pair_by_task(self, first: str, second: str) -> list[Floats]:
        """Return `average_judge_scores_over_factors` of the scores that both students share, by task."""
        both = self._cached_shared_rows(first, second, frozenset())
        pair_grid = self.grid.select_rows(np.concatenate([side.rows for side in both]))._replace(
            levels=np.concatenate([side.levels for side in both]),
            student=np.repeat(np.arange(2), [len(side.rows) for side in both]),
            students=(first, second),
        )
        return [average_judge_scores_over_factors(pair_grid, task) for task in range(len(pair_grid.tasks))]

    def _cached_shared_rows(
        self, first: str, second: str, excluded: frozenset[str]
    ) -> tuple[_SharedRows, _SharedRows]:
        key = first, second, excluded
        if self._last is None or self._last[0] != key:
            self._last = key, self._find_shared_rows(*key)
        return self._last[1]

    def _find_shared_rows(
        self, first: str, second: str, excluded: frozenset[str]
    ) -> tuple[_SharedRows, _SharedRows]:
        a, b = self._student_code[first], self._student_code[second]
        if self._coverage_codes[a] == self._coverage_codes[b]:
            return self._average_all_of_student(a, excluded), self._average_all_of_student(b, excluded)
        of_a, of_b = self._rows[a], self._rows[b]
        cells = self._cell[of_a], self._cell[of_b]
        if self.grid.sample is None and not np.array_equal(*cells):
            _, in_a, in_b = np.intersect1d(*cells, assume_unique=True, return_indices=True)
            of_a, of_b = of_a[in_a], of_b[in_b]
        valid = [self._valid_scores(of_a), self._valid_scores(of_b)]
        to_a, to_b = valid[::-1] if self.grid.sample is None else _valid_in_other(cells, valid)
        return self._average_shared(of_a, excluded, to_a), self._average_shared(of_b, excluded, to_b)

    def _valid_scores(self, rows: Codes) -> NDArray[np.bool_]:
        """Return which scores rows have, (R, J), with a further column if there are checks."""
        valid, checked = self.grid.levels[rows] >= 0, self.grid.checked
        return valid if checked is None else np.c_[valid, np.isfinite(checked[rows])]

    def _average_all_of_student(self, student: int, excluded: frozenset[str]) -> _SharedRows:
        if (student, excluded) not in self._whole_rows:
            rows = self._rows[student]
            self._whole_rows[student, excluded] = self._average_shared(
                rows, excluded, self._valid_scores(rows)
            )
        return self._whole_rows[student, excluded]

    def _average_shared(
        self, rows: Codes, excluded: frozenset[str], in_other: NDArray[np.bool_]
    ) -> _SharedRows:
        """Average a student's rows by item over the scores that are ``in_other`` too, as `_valid_scores`."""
        grid, items = self.grid, len(self.grid.items.ids)
        counts = in_other[:, : len(grid.judges)] & np.array(
            [name not in excluded for name in grid.judges], bool
        )
        levels = np.where(counts, grid.levels[rows], UNSCORED)
        checked = None if grid.checked is None else np.where(in_other[:, -1], grid.checked[rows], np.nan)
        sums = grid.select_rows(rows)._replace(levels=levels, checked=checked).sum_scores()
        levels[sums.units == 0] = UNSCORED  # of an answer that lacks a factor
        item, item_weights = grid.item[rows], np.ones(items)
        share = np.bincount(item, sums.share, items)
        with np.errstate(invalid="ignore"):
            means = np.asarray(np.bincount(item, sums.total, items) / share, np.float64)
            if grid.weight is not None:
                weighted = np.bincount(item, grid.weight[rows] * sums.share, items)
                item_weights = np.asarray(weighted / share, np.float64)
        return _SharedRows(rows, levels, means, item_weights)


def _valid_in_other(
    cells: tuple[NDArray[np.int64], NDArray[np.int64]], valid: Sequence[NDArray[np.bool_]]
) -> list[NDArray[np.bool_]]:
    """Return, for the rows of two students, which scores any row of the other has in the same cell; with
    several answers to an item, a cell has several rows."""
    unique_cells, position = np.unique(np.concatenate(cells), return_inverse=True)
    of_a, of_b = position[: len(cells[0])], position[len(cells[0]) :]
    any_valid = [np.zeros((len(unique_cells), own_valid.shape[1]), bool) for own_valid in valid]
    for target, rows, own_valid in zip(any_valid, (of_a, of_b), valid, strict=True):
        np.logical_or.at(target, rows, own_valid)
    return [any_valid[1][of_a], any_valid[0][of_b]]


# --- A grid cut into what is compared: the score of a task, a factor, a metric


class ComparedGrid:
    """A grid of scores, cut by task and factor; each cut is made once, for all pairs of students."""

    def __init__(self, grid: ScoreGrid) -> None:
        self.grid = grid
        self._tasks: dict[str, ScoreGrid] = {}
        self._shared_scores: dict[tuple[str, str | None], SharedScores] = {}

    def excluding_judges(self, judges: Collection[str]) -> ComparedGrid:
        return ComparedGrid(
            self.grid.select_judges([name for name in self.grid.judges if name not in judges])
        )

    @cached_property
    def task_factors(self) -> tuple[tuple[str, str], ...]:
        """List the (task, factor) pairs with any record."""
        grid = self.grid
        pairs = np.unique(grid.task.astype(np.int64) * max(len(grid.factors), 1) + grid.factor)
        return tuple(
            (grid.tasks[pair // len(grid.factors)], grid.factors[pair % len(grid.factors)])
            for pair in pairs.tolist()
        )

    @cached_property
    def scored_tasks_by_student(self) -> dict[str, frozenset[str]]:
        grid, scored = self.grid, self.grid.scored
        return {
            name: frozenset(
                grid.tasks[task] for task in np.unique(grid.task[scored & (grid.student == index)])
            )
            for index, name in enumerate(grid.students)
        }

    def task_grid(self, task: str) -> ScoreGrid:
        """Return the grid of a task's items, without their attributes."""
        if task not in self._tasks:
            bare = self.grid._replace(items=self.grid.items._replace(attributes={}))
            self._tasks[task] = bare.select_items(bare.items.task == bare.tasks.index(task))
        return self._tasks[task]

    def shared_scores(self, task: str, factor: str | None = None) -> SharedScores:
        """Return a task's scores by one factor, or by all factors that count in its score."""
        if (task, factor) not in self._shared_scores:
            grid = self.task_grid(task)
            task_index = grid.tasks.index(task)
            design = grid.designs[task_index]
            if factor is not None:
                design = design._replace(
                    factors=design.factors & {factor}, checks=design.checks & {factor}, weights={}
                )
                grid = grid.select_rows(grid.factor == grid.factors.index(factor))
            elif design.weights:
                grid = grid.select_rows(np.isin(grid.factor, [*map(grid.factors.index, design.weights)]))
            designs = (*grid.designs[:task_index], design, *grid.designs[task_index + 1 :])
            self._shared_scores[task, factor] = SharedScores(grid._replace(designs=designs))
        return self._shared_scores[task, factor]
