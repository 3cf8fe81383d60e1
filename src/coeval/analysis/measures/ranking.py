"""Who stands before whom, and how sure that is: ranges of ranks from all differences between students."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from coeval.analysis.comparison.multiplicity import holm
from coeval.analysis.comparison.paired_difference import Difference, PairedScores, paired_difference
from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import Branch, Measured
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import item_scores

__all__ = [
    "ALPHA",
    "NOBODY",
    "Ranking",
    "StudentGap",
    "difference_between",
    "paired_scores",
    "rank_range",
    "ranked",
    "ranking",
    "ranking_measures",
]

ALPHA = 0.05


class StudentGap(NamedTuple):
    """How the second of two students differs from the first, paired by datapoint; ``p_adjusted`` is Holm's
    over all pairs, None where a single datapoint is all there is."""

    found: Difference
    p_adjusted: float | None

    @property
    def sure(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA


class Ranking(NamedTuple):
    """``order``: students by their headline, best first, ties by name; those without a score are in none.
    ``differences``: of two students who share datapoints, named in order."""

    order: tuple[str, ...]
    differences: Mapping[tuple[str, str], StudentGap]

    def between(self, better: str, worse: str) -> StudentGap | None:
        """How they differ, whichever is named first; `sure` is the same either way."""
        return self.differences.get((min(better, worse), max(better, worse)))

    def range_of(self, student: str) -> tuple[int, int]:
        return rank_range(student, self)


NOBODY = Ranking((), {})


def rank_range(student: str, of: Ranking) -> tuple[int, int]:
    """The ranks that a student may have: after those who are surely better, before those who are surely
    worse.

    All pairs are tested as one family, so in 95 of 100 runs no range is too narrow (Holm 1979; Goldstein and
    Spiegelhalter 1996 for ranges in place of ranks).
    """
    better = worse = 0
    for (first, second), told in of.differences.items():
        if told.sure and student in (first, second):
            ahead = second if told.found.difference > 0 else first
            better += ahead != student
            worse += ahead == student
    return 1 + better, len(of.order) - worse


def ranking(grid: ScoreGrid, students: Mapping[str, Branch]) -> Ranking:
    """``students`` are `student_measures` of the grid. Two are compared on the datapoints that both have,
    task by task, tasks counting alike."""
    scores = item_scores(grid).mean
    places = {name: place for place, name in enumerate(grid.students)}

    def paired(first: str, second: str) -> list[PairedScores]:
        return paired_scores(grid, scores[places[first]], scores[places[second]])

    return ranked({name: found["headline"].value for name, found in students.items()}, paired)


def difference_between(grid: ScoreGrid, first: str, second: str) -> Difference | None:
    """How the second of two students differs from the first by the judges of the grid; None where they have
    no datapoint in common."""
    scores = item_scores(grid).mean
    strata = paired_scores(grid, *(scores[grid.students.index(name)] for name in (first, second)))
    return paired_difference(strata) if strata else None


def ranked(
    scores: Mapping[str, float | None], paired: Callable[[str, str], Sequence[PairedScores]]
) -> Ranking:
    """``scores``: by student, None where there is none; ``paired``: what two of them have in common, in
    strata that count alike."""
    known = {name: score for name, score in scores.items() if score is not None}
    order = sorted(known, key=lambda name: (-known[name], name))
    common = {pair: paired(*pair) for pair in combinations(sorted(order), 2)}
    family = sum(sum(len(stratum.a) for stratum in strata) > 1 for strata in common.values())
    found = {pair: paired_difference(strata, max(family, 1)) for pair, strata in common.items() if strata}
    tested = [pair for pair, difference in found.items() if difference.p is not None]
    adjusted = dict(zip(tested, holm([found[pair].p or 0.0 for pair in tested]), strict=True))
    return Ranking(tuple(order), {pair: StudentGap(one, adjusted.get(pair)) for pair, one in found.items()})


def paired_scores(grid: ScoreGrid, first: Floats, second: Floats) -> list[PairedScores]:
    """Of the datapoints, (I,), where both have a score, task by task."""
    both = np.isfinite(first) & np.isfinite(second)
    strata = []
    for task in range(len(grid.tasks)):
        mine = both & (grid.items.task == task)
        if mine.any():
            once = np.ones(int(mine.sum()))
            strata.append(PairedScores(first[mine], second[mine], once, grid.items.alike_of(mine)))
    return strata


def ranking_measures(found: Ranking) -> Branch:
    """``order``, ``ranges`` (``[from, to]`` by student) and, by ``"a|b"``, ``differences`` = b − a with their
    interval, p-values and the smallest difference that could have been found among all of them."""
    differences: Branch = {}
    for (first, second), told in found.differences.items():
        one = told.found
        differences[f"{first}|{second}"] = {
            "difference": Measured(one.difference, one.low, one.high, one.n, 0),
            "p": one.p,
            "p_adjusted": told.p_adjusted,
            "minimum_detectable": one.minimum_detectable,
        }
    ranges = {student: list(found.range_of(student)) for student in found.order}
    return {"order": list(found.order), "ranges": ranges, "differences": differences}
