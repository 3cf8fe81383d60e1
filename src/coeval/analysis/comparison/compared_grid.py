"""A grid whose students are compared, cut into what is compared: a task's score, a factor, a metric."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np

from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.score_grid import ScoreGrid


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
    def scored_tasks(self) -> dict[str, frozenset[str]]:
        """Return, by student, the tasks in which it has any score."""
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
