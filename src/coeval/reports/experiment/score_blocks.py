"""All scores of a run as bytes that a page computes filtered figures of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coeval.analysis.measures.robust_set import RobustSet
from coeval.analysis.measures.run_measures import MeasuredRun
from coeval.analysis.measures.score_grid import ScoreGrid

__all__ = ["ScoreBlocks", "score_blocks"]

_NONE = 3
"""In place of a level where there is none."""


class ScoreBlocks(NamedTuple):
    """``design``: names, and what lies where. ``levels``: task by task, (items, students, the task's factors,
    its judges) as one byte each, 0 to 2, or 3 where there is no score. ``teachers``: of each item,
    two bytes, the low one first. ``members``: for each attribute value, and then for the robust set where
    there is one, a bit for each item, the first in the highest bit of a byte. Items stand task by task."""

    design: dict[str, Any]
    levels: bytes
    teachers: bytes
    members: bytes


def score_blocks(measured: MeasuredRun) -> ScoreBlocks:
    grid, robust = measured.grid, measured.robust
    tasks = []
    levels = []
    order = np.argsort(grid.items.task, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first = 0
    for task, name in enumerate(grid.tasks):
        design = grid.designs[task]
        factors = [at for at, factor in enumerate(grid.factors) if factor in design.factors]
        judges = [at for at, judge in enumerate(grid.judges) if judge in design.judges]
        items = int((grid.items.task == task).sum())
        tensor = np.full((items, len(grid.students), len(factors), len(judges)), _NONE, np.uint8)
        rows = (grid.task == task) & np.isin(grid.factor, factors)
        factor = np.searchsorted(factors, grid.factor[rows])
        found = grid.levels[rows][:, judges]
        tensor[place[grid.item[rows]] - first, grid.student[rows], factor] = np.where(found < 0, _NONE, found)
        levels.append(tensor.tobytes())
        tasks.append({"name": name, "items": items, "factors": factors, "judges": judges})
        first += items
    members = [*grid.items.attributes.values(), *([np.flatnonzero(robust.stays)] if robust else [])]
    return ScoreBlocks(
        {
            "students": grid.students,
            "judges": grid.judges,
            "factors": grid.factors,
            "teachers": grid.teachers,
            "values": list(grid.items.attributes),
            "tasks": tasks,
            "alike": _alike(grid, place),
            "own": measured.tree["without_own"]["applicable"],
            "robust": None if robust is None else _robust(grid, robust),
        },
        b"".join(levels),
        grid.items.teacher[order].astype("<u2").tobytes(),
        b"".join(_bits(place[items], len(order)) for items in members),
    )


def _alike(grid: ScoreGrid, place: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """Where items stand that nearly repeat another one, each with the first of its group."""
    _, first, which = np.unique(grid.items.cluster, return_index=True, return_inverse=True)
    later = np.flatnonzero(first[which] != np.arange(len(which)))
    return list(zip(place[later].tolist(), place[first[which[later]]].tolist(), strict=True))


def _robust(grid: ScoreGrid, robust: RobustSet) -> dict[str, Any]:
    return {
        "judges": [grid.judges.index(name) for name in robust.judges],
        "teachers": robust.teachers,
    }


def _bits(places: np.ndarray[Any, Any], items: int) -> bytes:
    members = np.zeros(items, np.uint8)
    members[places] = 1
    return np.packbits(members).tobytes()
