"""What is planted is found: the true order of students, by whatever judges.

`evidence.measure_coverage` runs it and shows the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import compare_judge_pairs, mean_agreement_by_judge
from coeval.analysis.measures.ranking import Ranking, rank_excluding_self_judgments, rank_students
from coeval.analysis.measures.robust_set import RobustOptions, choose_robust_set
from coeval.analysis.measures.score_grid import UNSCORED, GridItems, ScoreGrid, TaskDesign
from evidence.leaning import Planted, simulate


class Ranked(NamedTuple):
    """Of so many runs: the share in which every range of ranks holds the true ones, in which the order shown
    is a true one, and in which the ranges are the true ranks; ranks in a range on average."""

    held: float
    order: float
    decided: float
    ranks: float


def true_ranks(abilities: tuple[float, ...]) -> list[tuple[int, int]]:
    """Those that each student may have: students who are alike share theirs."""
    return [
        (
            1 + sum(other > own for other in abilities),
            len(abilities) - sum(other < own for other in abilities),
        )
        for own in abilities
    ]


def ranked(abilities: tuple[float, ...], grids: Iterator[ScoreGrid]) -> Ranked:
    """Over runs of students of these abilities."""
    true = true_ranks(abilities)
    found = [_of_run(true, grid.students, rank_students(grid).ranking) for grid in grids]
    return Ranked(*np.mean(found, axis=0).tolist())


def _of_run(true: list[tuple[int, int]], students: tuple[str, ...], found: Ranking) -> Ranked:
    ranges = [found.ranges[name] for name in students]
    held = all(low <= first and last <= high for (first, last), (low, high) in zip(true, ranges, strict=True))
    places = [1 + found.order.index(name) for name in students]
    order = all(first <= place <= last for (first, last), place in zip(true, places, strict=True))
    width = float(np.mean([high - low + 1 for low, high in ranges]))
    return Ranked(held, order, ranges == true, width)


class Equals(NamedTuple):
    """Of so many runs of equal students: the share in which any two are surely apart, and in which each is
    first."""

    false: float
    first: list[float]


SEVERITY = 0.2
MISSING = 0.4


def judge_missing(items: int, repeats: int, students: int = 3) -> Equals:
    """Of the first student's answers, a strict judge lacks two in five."""
    judges = {"strict": Planted(SEVERITY), "fair": Planted(), "kind": Planted()}
    found = []
    for seed in range(repeats):
        grid = simulate(judges, items, seed, {f"s{n}": 0.6 for n in range(students)}).grid
        lost = np.random.default_rng([seed, items]).permutation(items) < MISSING * items
        levels = grid.levels.copy()
        levels[(grid.student == 0) & lost[grid.item], grid.judges.index("strict")] = UNSCORED
        grid = grid._replace(levels=levels)
        ranks = rank_students(grid).ranking
        found.append((any(reported.significant for reported in ranks.differences.values()), ranks.order[0]))
    return _equals(found, students)


def judging_themselves(items: int, repeats: int) -> Equals:
    """Three students who are the judges, one strict and one kind; by the judges who are neither of two."""
    judges = {"s0": Planted(SEVERITY), "s1": Planted(), "s2": Planted(-SEVERITY)}
    found = []
    for seed in range(repeats):
        grid = simulate(judges, items, seed, dict.fromkeys(judges, 0.6)).grid
        ranks = rank_excluding_self_judgments(grid).ranking
        sure = any(one.significant for one in ranks.differences.values())
        found.append((sure, ranks.order[0]))
    return _equals(found, len(judges))


def _equals(found: list[tuple[bool, str]], students: int) -> Equals:
    firsts = [first for _, first in found]
    shares = [firsts.count(f"s{n}") / len(found) for n in range(students)]
    return Equals(sum(sure for sure, _ in found) / len(found), shares)


class RobustFalse(NamedTuple):
    """Of so many runs of equal students: the share in which a test calls some pair different, on all items
    and on those of the robust set."""

    everything: float
    robust: float


def robust_false(repeats: int, seed: int = 1) -> RobustFalse:
    """Three students, three judges, six teachers of ten items each: why the robust set has no tests."""
    generator = np.random.default_rng(seed)
    found = np.empty((repeats, 2))
    reweighting = Reweighting(60)
    for run in range(repeats):
        levels = 0.3 * generator.normal(size=(60, 3, 1)) + 0.3 * generator.normal(size=(60, 3, 3))
        grid = level_grid(np.clip(np.rint(2 * (0.5 + levels)), 0, 2).astype(np.int8), teachers=6)
        robust = choose_robust_set(
            grid, mean_agreement_by_judge(grid, compare_judge_pairs(grid, reweighting)), RobustOptions()
        )
        assert robust is not None
        for place, some in enumerate((grid, robust.select(grid))):
            of_pairs = rank_students(some).ranking.differences.values()
            found[run, place] = any(pair.significant for pair in of_pairs)
    return RobustFalse(*found.mean(axis=0).tolist())


def level_grid(levels: NDArray[np.int8], teachers: int = 1) -> ScoreGrid:
    """Of one task and factor: levels (items, students, judges); items in turn are of each teacher."""
    items, students, judges = levels.shape
    item, student = (axis.ravel() for axis in np.indices((items, students)))
    names = tuple(f"judge-{n}" for n in range(judges))
    return ScoreGrid(
        item,
        student,
        np.zeros(len(item), int),
        levels.reshape(-1, judges),
        GridItems([str(n) for n in range(items)], np.zeros(items, int), np.arange(items) % teachers, {}),
        tuple(f"student-{n}" for n in range(students)),
        names,
        ("factor",),
        ("task",),
        tuple(f"teacher-{n}" for n in range(teachers)),
        (TaskDesign(frozenset(names), frozenset({"factor"})),),
    )
