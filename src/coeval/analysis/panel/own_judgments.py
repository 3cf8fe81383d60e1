"""Students without the scores that they gave themselves: whoever is a judge as well may be kind to itself.

Each student lacks another judge then, and judges differ in strictness: means over all judges but oneself
would rank the strictest judge first. Differences are therefore those by the judges who are neither of the
two, and students' order and scores follow from these differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np

from coeval.analysis.measures.measured import Record, ShownAs
from coeval.analysis.measures.ranking import NOBODY, Ranking, ranking
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.measures.student_measures import Headline, student_headlines
from coeval.core.records import model_of


class OthersAlone(Record, frozen=True):
    """It is not ``applicable`` where nobody scored itself, or no two students have a judge who is neither."""

    applicable: Annotated[bool, ShownAs("Whether there is such a ranking", elsewhere="standings")]
    judges: Annotated[tuple[str, ...], ShownAs("Those who scored themselves", elsewhere="standings")]
    students: Annotated[Mapping[str, Headline], ShownAs("Adjusted", elsewhere="standings")]
    ranking: Annotated[Ranking, ShownAs("By the judges who are neither of two", elsewhere="standings")]


def without_own(grid: ScoreGrid) -> ScoreGrid:
    """The scores of others alone."""
    own = np.array([[model_of(student) == judge for judge in grid.judges] for student in grid.students], bool)
    own = own.reshape(len(grid.students), len(grid.judges))
    return grid._replace(levels=np.where(own[grid.student], UNSCORED, grid.levels).astype(grid.levels.dtype))


def scored_themselves(grid: ScoreGrid) -> list[str]:
    """Students whose model is a judge as well, and scored them."""
    found = []
    for name in grid.students:
        if model_of(name) in grid.judges:
            rows = grid.student == grid.students.index(name)
            if (grid.levels[rows, grid.judges.index(model_of(name))] >= 0).any():
                found.append(name)
    return found


def without_own_measures(grid: ScoreGrid) -> OthersAlone:
    """Students by the scores of others."""
    themselves = tuple(scored_themselves(grid))
    nothing = OthersAlone(False, themselves, {}, NOBODY)
    if not themselves:
        return nothing
    others = without_own(grid)
    students = student_headlines(others)
    ranks = ranking(others, students, lambda first, second: (model_of(first), model_of(second)))
    if not ranks.differences:
        return nothing
    return OthersAlone(True, themselves, {**students, **ranks.scores}, ranks)
