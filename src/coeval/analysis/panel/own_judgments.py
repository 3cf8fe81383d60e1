"""Students without the scores that they gave themselves: whoever is a judge as well may be kind to itself.

A student's score is that of all judges but itself. Judges differ in strictness, and so two students, each
without itself, would be compared by two panels; differences and ranks are therefore those by the judges who
are neither of the two.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.ranking import NOBODY, paired_scores, ranked, ranking_measures
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.measures.student_measures import headlines, item_scores

__all__ = ["scored_themselves", "without_own", "without_own_measures"]


def without_own(grid: ScoreGrid) -> ScoreGrid:
    """The scores of others alone."""
    own = np.array([[student == judge for judge in grid.judges] for student in grid.students], bool)
    own = own.reshape(len(grid.students), len(grid.judges))
    return grid._replace(levels=np.where(own[grid.student], UNSCORED, grid.levels).astype(np.int8))


def scored_themselves(grid: ScoreGrid) -> list[str]:
    """Students who are judges as well, and have a score of themselves."""
    found = []
    for name in grid.students:
        if name in grid.judges:
            rows = grid.student == grid.students.index(name)
            if (grid.levels[rows, grid.judges.index(name)] >= 0).any():
                found.append(name)
    return found


def without_own_measures(grid: ScoreGrid, measured: Mapping[str, Branch]) -> Branch:
    """``judges``: those who scored themselves; ``students``: ``headline`` and ``headline_by_task``;
    ``ranking``: as that of students. It is not ``applicable`` where nobody scored itself.

    ``measured`` are `student_measures` of the grid.
    """
    if not (themselves := scored_themselves(grid)):
        return {"applicable": False, "judges": [], "students": {}, "ranking": ranking_measures(NOBODY)}
    means = item_scores(without_own(grid)).mean
    students = {}
    for place, name in enumerate(grid.students):
        of: dict[str, int | None] = dict.fromkeys(("", *measured[name]["headline_by_task"]))
        students[name] = headlines(grid, means[place], of)

    def paired(first: str, second: str) -> list[PairedScores]:
        judges = [judge for judge in grid.judges if judge not in (first, second)]
        scores = item_scores(grid.judged_by(judges)).mean
        return paired_scores(grid, *(scores[grid.students.index(name)] for name in (first, second)))

    ranks = ranked({name: found["headline"].value for name, found in students.items()}, paired)
    return {
        "applicable": True,
        "judges": themselves,
        "students": students,
        "ranking": ranking_measures(ranks),
    }
