"""In which tasks somebody else than the leader has the highest score, and whether that is sure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from coeval.analysis.comparison.paired_difference import paired_difference
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.ranking import ALPHA, Ranking, paired_scores
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import item_scores
from coeval.core.text import listed

__all__ = ["task_leaders"]


class _TaskLeader(NamedTuple):
    """Who has the highest score in a task, and that of the leader over all."""

    task: str
    name: str
    score: float
    leaders: float


def task_leaders(grid: ScoreGrid, students: Mapping[str, Branch], ranks: Ranking) -> Iterator[str]:
    """A sentence. Scores are those of each task alone, ``headline_by_task``; p-values are multiplied by the
    number of tasks and of others, of whom the highest was picked (Bonferroni)."""
    if len(ranks.order) < 2:
        return
    leader, *others = ranks.order
    found = list(_leaders(students, ranks))
    elsewhere = [one for one in found if one.name != leader]
    if not elsewhere:
        if len(found) > 1:
            yield f"{leader} has the highest score in all {len(found)} tasks."
        return
    picked = len(found) * len(others)
    told = [
        f"{one.name} in {one.task} ({one.score:.2f}, {leader} {one.leaders:.2f}: "
        f"{_sureness(grid, leader, one, picked)})"
        for one in elsewhere
    ]
    yield f"Elsewhere others have the highest score: {listed(told)}."


def _leaders(students: Mapping[str, Branch], ranks: Ranking) -> Iterator[_TaskLeader]:
    """Of each task that the leader has a score in; of equals, the leader first."""
    leader = ranks.order[0]
    for task, own in students[leader]["headline_by_task"].items():
        if own.value is None:
            continue
        scored = [
            (students[name]["headline_by_task"][task].value, name == leader, name)
            for name in ranks.order
            if task in students[name]["headline_by_task"]
        ]
        score, _, name = max(one for one in scored if one[0] is not None)
        yield _TaskLeader(task, name, score, own.value)


def _sureness(grid: ScoreGrid, leader: str, one: _TaskLeader, picked: int) -> str:
    scores = item_scores(grid).mean
    of_task = grid.items.task == grid.tasks.index(one.task)
    first, second = (
        np.where(of_task, scores[grid.students.index(name)], np.nan) for name in (leader, one.name)
    )
    strata = paired_scores(grid, first, second)
    p = paired_difference(strata).p if strata else None
    if p is None:
        return "whether surely cannot be told"
    return "surely" if p * picked < ALPHA else "not surely"
