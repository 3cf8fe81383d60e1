"""Ranks of students with ranges, from all pairwise differences.

Two students are compared on what both have: the same datapoints, scored by the same judges in the same
factors. Their order follows from these differences too: where one lacks a strict judge or hard datapoints,
its mean is adjusted for that before it is held against others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.comparison.paired_difference import (
    Difference,
    OverJudges,
    PairedScores,
    at_any_look,
    holm_by_name,
    judges_at_any_look,
    over_judges,
    paired_difference,
    spread_over_judges,
)
from coeval.analysis.intervals import ALPHA, Looks
from coeval.analysis.measures.measured import FILES, Entity, Measured, Record, ShownAs
from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.measures.student_measures import (
    StudentScores,
    item_scores,
    mean_scores,
    score_scatters,
    student_score,
)
from coeval.analysis.panel.mean_squares import ByJudge
from coeval.core.records import model_of

# Differences by less are rounding: the same sums in another order.
SAME = 1e-9

LeftOut: TypeAlias = Callable[[str, str], Collection[str]]
"""The judges whose scores of two students are left out."""


_OVER_JUDGES = "The same with judges as a sample too; without an interval: not known"
_DETECTABLE = "The true difference that would be detected four times in five, among so many pairs"


class StudentGap(Entity, frozen=True):
    """How the second of two students differs from the first, paired by datapoint; ``p_adjusted`` is Holm's
    over all pairs, None where a single datapoint is all there is."""

    difference: Annotated[Measured, ShownAs("Paired by item, tasks counting alike", "Difference", kind="gap")]
    p: Annotated[float | None, ShownAs("Of this pair alone", kind="probability", elsewhere=FILES)]
    p_adjusted: Annotated[
        float | None, ShownAs("Adjusted for the number of pairs", "p (Holm)", kind="probability")
    ]
    minimum_detectable: Annotated[float | None, ShownAs(_DETECTABLE, "Could be seen")]
    over_judges: Annotated[Measured | None, ShownAs(_OVER_JUDGES, "Over items and judges", kind="gap")] = None
    p_over_judges: Annotated[
        float | None, ShownAs("Of this pair alone", kind="probability", elsewhere=FILES)
    ] = None
    p_over_judges_adjusted: Annotated[
        float | None, ShownAs("Over items and judges, adjusted", "p (Holm), judges too", kind="probability")
    ] = None
    judges: Annotated[int | None, ShownAs("Judges who scored both", elsewhere="leads")] = None
    agreeing: Annotated[
        int | None,
        ShownAs("Judges who by themselves put the same one ahead", "Judges see it so", kind="count"),
    ] = None

    @property
    def sure(self) -> bool:
        """Over items, by these judges."""
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def sure_over_judges(self) -> bool:
        """Over items and judges."""
        return self.p_over_judges_adjusted is not None and self.p_over_judges_adjusted < ALPHA

    @property
    def turned(self) -> StudentGap:
        """How the first differs from the second."""
        over = None if self.over_judges is None else _negative(self.over_judges)
        return msgspec.structs.replace(self, difference=_negative(self.difference), over_judges=over)

    @property
    def by(self) -> float:
        """How far the second is ahead of the first."""
        return self.difference.value or 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        return self.difference.low or 0.0, self.difference.high or 0.0

    @property
    def n(self) -> int:
        """Datapoints that both have."""
        return self.difference.n or 0


def _negative(one: Measured) -> Measured:
    if one.value is None or one.low is None or one.high is None:
        return one
    return one._replace(value=-one.value, low=-one.high, high=-one.low)


class Level(NamedTuple):
    """A student's mean, and of how many scores it is."""

    mean: float
    units: int


class Ranking(Record, frozen=True):
    """Ranks of students."""

    order: Annotated[tuple[str, ...], ShownAs("Students with a score, best first", elsewhere="students")]
    ranges: Annotated[
        Mapping[str, tuple[int, int]],
        ShownAs(
            "After all who are significantly better, before all who are significantly worse; of who does all "
            "tasks",
            "Ranks",
            "rank",
            "text",
        ),
    ]
    adjusted: Annotated[bool, ShownAs("Whether some lack scores that others have", elsewhere=FILES)]
    differences: Annotated[
        Mapping[tuple[str, str], StudentGap], ShownAs("Of two who share scores", elsewhere="differences")
    ]
    one_judge: Annotated[bool, ShownAs("Whether one judge gave all scores", elsewhere=FILES)] = False
    partial: Annotated[
        tuple[str, ...], ShownAs("Who is to do some of the tasks only, and has no rank", elsewhere=FILES)
    ] = ()

    def between(self, better: str, worse: str) -> StudentGap | None:
        """How they differ, whichever is named first; `sure` is the same either way."""
        return self.differences.get((min(better, worse), max(better, worse)))

    def range_of(self, student: str) -> tuple[int, int]:
        return self.ranges[student]

    @property
    def untested(self) -> Ranking:
        """Its order alone."""
        return msgspec.structs.replace(self, ranges={}, differences={})


class Ranked(NamedTuple):
    """A ranking, and the scores of all students of its grid."""

    ranking: Ranking
    scores: Mapping[str, StudentScores]


def _skips_tasks(student: StudentScores) -> bool:
    """Whether it has no score in some task and lacks none there."""
    return any(one.value is None and one.missing == 0 for one in student.score_by_task.values())


NOBODY = Ranking((), {}, False, {})


def rank_range(
    student: str, order: Collection[str], gaps: Mapping[tuple[str, str], StudentGap]
) -> tuple[int, int]:
    """Return the ranks that a student may have: after all significantly better, before all worse ones.

    All pairs are tested as one family, so in 95 of 100 runs no range is too narrow (Holm 1979; Goldstein and
    Spiegelhalter 1996 for ranges in place of ranks).
    """
    better = worse = 0
    for (first, second), reported in gaps.items():
        if reported.sure and student in (first, second):
            ahead = second if reported.by > 0 else first
            better += ahead != student
            worse += ahead == student
    return 1 + better, len(order) - worse


def _nobody(first: str, second: str) -> Collection[str]:  # noqa: ARG001
    return ()


def ranking(grid: ScoreGrid, left_out: LeftOut | None = None) -> Ranked:
    """Score and rank the students of a grid: their means, adjusted where judges or items are unequally
    covered. Two are compared on all scores that both have, but those of the judges ``left_out``."""
    shared, left_out = SharedScores(grid), left_out or _nobody
    found = item_scores(grid)
    recorded = mean_scores(grid, found.mean)
    place = {name: at for at, name in enumerate(grid.students)}
    means = {name: one.score.value for name, one in recorded.items() if one.score.value is not None}
    known = sorted(means)
    common = {pair: shared.paired(*pair, left_out(*pair)) for pair in combinations(known, 2)}
    judged = {
        pair: shared.by_judge(*pair, strata, left_out(*pair)) for pair, strata in common.items() if strata
    }
    levels = {name: Level(means[name], int(found.units[place[name]].sum())) for name in known}
    some = {name for name in known if not grid.does[place[name]].all()}
    partial = {name for name in some if _skips_tasks(recorded[name])}
    whole = ranked(levels, common, partial, judged, grid.looks)
    moves = {name: {"": shift} for name, shift in _moves(levels, whole.differences).items()}
    for at, task in enumerate(grid.tasks):
        mine = grid.items.task == at
        levels = {
            name: Level(one.value, int(found.units[place[name], mine].sum()))
            for name in known
            if (one := recorded[name].score_by_task.get(task)) is not None and one.value is not None
        }
        gaps = {pair: _gap_of(strata[task]) for pair, strata in common.items() if task in strata}
        for name, shift in shifts(levels, gaps).items():
            moves[name][task] = shift
    scores, scatters = dict(recorded), score_scatters(grid, found.mean) if left_out is _nobody else {}
    for name in known:
        means_of_items = found.mean[place[name]]
        scores[name] = student_score(grid, means_of_items, recorded[name], moves[name], scatters.get(name))
    one_judge = int(grid.valid.any(axis=0).sum()) == 1
    return Ranked(msgspec.structs.replace(whole, one_judge=one_judge), scores)


def difference_between(grid: ScoreGrid, first: str, second: str) -> Difference | None:
    """How the second of two students differs from the first by the judges of the grid; None where they have
    no score in common."""
    strata = SharedScores(grid).paired(first, second)
    return paired_difference(list(strata.values())) if strata else None


_NO_JUDGES: Mapping[tuple[str, str], Sequence[ByJudge]] = {}


def ranked(
    levels: Mapping[str, Level],
    common: Mapping[tuple[str, str], Mapping[str, PairedScores]],
    partial: Collection[str] = (),
    judged: Mapping[tuple[str, str], Sequence[ByJudge]] = _NO_JUDGES,
    looks: Looks | None = None,
) -> Ranking:
    """``levels``: of the students who have a score; ``common``: what two of them share, by task; ``partial``:
    who is to do some of the tasks only: listed after all others, and without a rank; ``judged``: what each
    judge gave the second of two more than the first, task by task; ``looks``: of a run that grows, so that
    p-values hold at any look."""
    strata = {pair: list(shared.values()) for pair, shared in common.items() if shared}
    family = sum(sum(len(stratum.a) for stratum in of_pair) > 1 for of_pair in strata.values())
    found = {pair: paired_difference(of_pair, max(family, 1)) for pair, of_pair in strata.items()}
    scatters = spread_over_judges(judged, len({name for pair in judged for name in pair}) - 1)
    others = {pair: over_judges(found[pair], tasks, scatters[pair]) for pair, tasks in judged.items()}
    found = {pair: at_any_look(one, looks, max(family, 1)) for pair, one in found.items()}
    others = {pair: judges_at_any_look(one, found[pair].difference, looks) for pair, one in others.items()}
    gaps = _gaps(found, others)
    moves = _moves(levels, gaps)
    order = sorted(
        levels, key=lambda name: (name in partial, -round(levels[name].mean + moves[name], 9), name)
    )
    whole = [name for name in order if name not in partial]
    among = {pair: gap for pair, gap in gaps.items() if not set(pair) & set(partial)}
    ranges = {name: rank_range(name, whole, among) for name in whole}
    left = tuple(name for name in order if name in partial)
    return Ranking(tuple(order), ranges, any(moves.values()), gaps, partial=left)


def _gaps(
    found: Mapping[tuple[str, str], Difference], others: Mapping[tuple[str, str], OverJudges | None]
) -> dict[tuple[str, str], StudentGap]:
    """Add Holm's p-values, over all pairs that have a p-value."""
    adjusted = holm_by_name({pair: one.p for pair, one in found.items()})
    of_judges = holm_by_name({pair: one.p for pair, one in others.items() if one is not None})
    gaps = {}
    for pair, one in found.items():
        measured = Measured(one.difference, one.low, one.high, one.n, 0)
        gap = StudentGap(measured, one.p, adjusted.get(pair), one.minimum_detectable)
        if (other := others.get(pair)) is not None:
            value = None if other.low is None else one.difference
            gap = msgspec.structs.replace(
                gap,
                over_judges=Measured(value, other.low, other.high, one.n, 0),
                p_over_judges=other.p,
                p_over_judges_adjusted=of_judges.get(pair),
                judges=other.judges,
                agreeing=other.agreeing,
            )
        gaps[pair] = gap
    return gaps


def _moves(levels: Mapping[str, Level], gaps: Mapping[tuple[str, str], StudentGap]) -> dict[str, float]:
    return shifts(levels, {pair: PairGap(gap.by, gap.n) for pair, gap in gaps.items()})


class PairGap(NamedTuple):
    """How far the second of two is ahead of the first, over so many items."""

    difference: float
    items: int


def _gap_of(pairs: PairedScores) -> PairGap:
    difference = float(
        np.average(pairs.b, weights=pairs.weights) - np.average(pairs.a, weights=pairs.weights)
    )
    return PairGap(difference, len(pairs.a))


def shifts(levels: Mapping[str, Level], gaps: Mapping[tuple[str, str], PairGap]) -> dict[str, float]:
    """By student, what to add to its mean so that means differ as students do on the scores that they share.

    Least squares over all pairs, weighted by items; where all students have the same scores nothing moves.
    Whoever has the most scores keeps its mean (several of them: on average), so that the others' are what
    they would be over these.
    """
    lacking = [gap.difference - (levels[b].mean - levels[a].mean) for (a, b), gap in gaps.items()]
    if not lacking or max(map(abs, lacking)) < SAME:
        return dict.fromkeys(levels, 0.0)
    place = {name: at for at, name in enumerate(levels)}
    weights = np.sqrt([gap.items for gap in gaps.values()])
    design = np.zeros((len(gaps), len(levels)))
    for row, (a, b) in enumerate(gaps):
        design[row, place[a]], design[row, place[b]] = -weights[row], weights[row]
    moved = np.asarray(np.linalg.lstsq(design, weights * lacking)[0], np.float64)
    most = max(level.units for level in levels.values())
    kept = float(np.mean([moved[place[name]] for name, level in levels.items() if level.units == most]))
    return {name: float(moved[at]) - kept for name, at in place.items()}


# --- Students without the scores that they gave themselves
#
# Whoever is a judge as well may be kind to itself. Each student lacks another judge then, and judges differ
# in strictness: means over all judges but oneself would rank the strictest judge first. Differences are
# therefore those by the judges who are neither of the two, and students' order and scores follow from them.


class OthersAlone(Record, frozen=True):
    """It is not ``applicable`` where nobody scored itself, or no two students have a judge who is neither."""

    applicable: Annotated[bool, ShownAs("Whether there is such a ranking", elsewhere="standings")]
    judges: Annotated[tuple[str, ...], ShownAs("Those who scored themselves", elsewhere="standings")]
    students: Annotated[Mapping[str, StudentScores], ShownAs("Adjusted", elsewhere="standings")]
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
    ranks, scores = ranking(others, lambda first, second: (model_of(first), model_of(second)))
    return OthersAlone(True, themselves, scores, ranks) if ranks.differences else nothing
