"""In which tasks somebody else than the leader has the highest score, and whether that is sure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coeval.analysis.comparison.paired_difference import paired_difference
from coeval.analysis.measures.ranking import ALPHA, Ranking, SharedScores
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.core.text import listed

__all__ = ["task_leaders"]


class _TaskLeader(NamedTuple):
    """Who has the highest score in a task, and that of the leader over all."""

    task: str
    name: str
    score: float
    leaders: float


def task_leaders(grid: ScoreGrid, ranks: Ranking) -> Iterator[str]:
    """A sentence. Scores are those of each task alone, as the ranking adjusts them; p-values are multiplied
    by the number of tasks and of others, of whom the highest was picked (Bonferroni)."""
    if len(ranks.order) < 2:
        return
    leader, *others = ranks.order
    found = list(_leaders(ranks))
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


def _leaders(ranks: Ranking) -> Iterator[_TaskLeader]:
    """Of each task that the leader has a score in; of equals, the leader first."""
    leader = ranks.order[0]
    for task, own in ranks.scores[leader]["headline_by_task"].items():
        if own.value is None:
            continue
        scored = [
            (ranks.scores[name]["headline_by_task"][task].value, name == leader, name)
            for name in ranks.order
            if task in ranks.scores[name]["headline_by_task"]
        ]
        score, _, name = max(one for one in scored if one[0] is not None)
        yield _TaskLeader(task, name, score, own.value)


def _sureness(grid: ScoreGrid, leader: str, one: _TaskLeader, picked: int) -> str:
    shared = SharedScores(grid).paired(leader, one.name).get(one.task)
    p = paired_difference([shared]).p if shared is not None else None
    if p is None:
        return "whether surely cannot be told"
    return "surely" if p * picked < ALPHA else "not surely"
