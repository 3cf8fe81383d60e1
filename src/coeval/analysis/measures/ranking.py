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

from coeval.analysis.comparison.compared_grid import ComparedGrid
from coeval.analysis.comparison.family import (
    FactorPart,
    FamilyMember,
    LeadVerdict,
    PairDifference,
    adjust_family,
    find_lead_factor,
    prepare_family_member,
    rank_range,
)
from coeval.analysis.comparison.paired_difference import (
    Difference,
    PairedScores,
    paired_difference,
    pool_judge_scatter,
)
from coeval.analysis.intervals import Looks
from coeval.analysis.measures.measure_tree import FILES, Record, ShownAs
from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.measures.student_measures import (
    StudentScores,
    adjust_student_score,
    estimate_judge_scatters,
    score_over_judges,
    sum_item_scores,
    unadjusted_scores,
)
from coeval.analysis.panel.mean_squares import ByJudge
from coeval.core.records import model_of

# Differences by less are rounding: the same sums in another order.
SAME = 1e-9

Pair: TypeAlias = tuple[str, str]
ExcludedJudges: TypeAlias = Callable[[str, str], Collection[str]]
"""The judges whose scores of two students are left out."""


class StudentMean(NamedTuple):
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
        Mapping[Pair, PairDifference], ShownAs("Of two who share scores", elsewhere="differences")
    ]
    one_judge: Annotated[bool, ShownAs("Whether one judge gave all scores", elsewhere=FILES)] = False
    partial: Annotated[
        tuple[str, ...], ShownAs("Who is to do some of the tasks only, and has no rank", elsewhere=FILES)
    ] = ()

    def between(self, better: str, worse: str) -> PairDifference | None:
        """How they differ, whichever is named first: the verdict is the same."""
        return self.differences.get((better, worse)) or self.differences.get((worse, better))

    @property
    def leader_gaps(self) -> dict[str, PairDifference]:
        """Return by how much the first leads each of the others, in their order: first − other."""
        first, *others = self.order or ("",)
        gaps = {}
        for name in others:
            if (first, name) in self.differences:
                gaps[name] = self.differences[first, name].swapped
            elif (name, first) in self.differences:
                gaps[name] = self.differences[name, first]
        return gaps

    def verdict(self, better: str, worse: str) -> LeadVerdict:
        gap = self.between(better, worse)
        return "tied" if gap is None else gap.verdict


def leading_pair(ranks: Ranking) -> tuple[str, str]:
    """Name the best of two or more students, and its rival: the best that it is tied with, so that both may
    have rank 1; else the best that it leads by these judges alone; else the second."""
    first, second, *_ = ranks.order
    whole = [name for name in ranks.order[1:] if name not in ranks.partial]
    tied = (name for name in whole if ranks.verdict(first, name) == "tied")
    by_judges = (name for name in whole if ranks.verdict(first, name) != "leads")
    return first, next(tied, next(by_judges, second))


class RankedStudents(NamedTuple):
    """A ranking, and the scores of all students of its grid."""

    ranking: Ranking
    scores: Mapping[str, StudentScores]


def _lacks_unassigned_task(student: StudentScores) -> bool:
    """Whether it has no score in some task and lacks none there."""
    return any(one.value is None and one.missing == 0 for one in student.score_by_task.values())


EMPTY_RANKING = Ranking((), {}, False, {})


def _exclude_nobody(first: str, second: str) -> Collection[str]:  # noqa: ARG001
    return ()


def rank_students(grid: ScoreGrid, left_out: ExcludedJudges | None = None) -> RankedStudents:
    """Score and rank the students of a grid: their means, adjusted where judges or items are unequally
    covered. Two are compared on all scores that both have, but those of the judges ``left_out``."""
    shared, left_out = SharedScores(grid), left_out or _exclude_nobody
    found = sum_item_scores(grid)
    recorded = unadjusted_scores(grid, found)
    place = {name: at for at, name in enumerate(grid.students)}
    means = {name: one.score.value for name, one in recorded.items() if one.score.value is not None}
    known = sorted(means)
    common, judged = dict[Pair, Mapping[str, PairedScores]](), dict[Pair, Sequence[ByJudge]]()
    for pair in combinations(known, 2):
        without = left_out(*pair)
        common[pair] = shared.pair_means(*pair, without)
        if common[pair]:
            judged[pair] = shared.differences_by_judge(*pair, common[pair], without)
    levels = {name: StudentMean(means[name], int(found.units[place[name]].sum())) for name in known}
    some = {name for name in known if not grid.is_assigned[place[name]].all()}
    partial = {name for name in some if _lacks_unassigned_task(recorded[name])}
    whole = rank_by_shared_scores(levels, common, partial, judged, grid.looks)
    moves = {name: {"": shift} for name, shift in _mean_shifts(levels, whole.differences).items()}
    for at, task in enumerate(grid.tasks):
        mine = grid.items.task == at
        levels = {
            name: StudentMean(one.value, int(found.units[place[name], mine].sum()))
            for name in known
            if (one := recorded[name].score_by_task.get(task)) is not None and one.value is not None
        }
        gaps = {
            pair: (float(np.average(of.b - of.a, weights=of.weights)), len(of.a))
            for pair, strata in common.items()
            if (of := strata.get(task)) is not None
        }
        for name, shift in solve_mean_shifts(levels, gaps).items():
            moves[name][task] = shift
    scores, scatters = (
        dict(recorded),
        estimate_judge_scatters(grid, found.mean, shared.cells) if left_out is _exclude_nobody else {},
    )
    for name in known:
        adjusted = adjust_student_score(grid, found.mean[place[name]], recorded[name], moves[name])
        over = score_over_judges(adjusted.score, scatters[name]) if name in scatters else None
        scores[name] = msgspec.structs.replace(adjusted, over_judges=over)
    one_judge = int(grid.valid.any(axis=0).sum()) == 1
    return RankedStudents(_add_lead_factor(grid, msgspec.structs.replace(whole, one_judge=one_judge)), scores)


def _add_lead_factor(grid: ScoreGrid, ranks: Ranking) -> Ranking:
    """The same, with the factor that the lead of the `leading_pair` comes from."""
    if len(ranks.order) < 2:
        return ranks
    first, second = leading_pair(ranks)
    pair = (min(first, second), max(first, second))
    if (gap := ranks.differences.get(pair)) is None or not gap.significant:
        return ranks
    cuts = ComparedGrid(grid)
    scored = {
        (task, factor): strata[task]
        for task, factor in cuts.scored_factors
        if task in (strata := cuts.shared_scores(task, factor).pair_means(*pair))
    }
    parts = factor_parts(grid, {place: paired_difference([pairs]) for place, pairs in scored.items()})
    found = msgspec.structs.replace(gap, comes_from=find_lead_factor(gap, parts))
    return msgspec.structs.replace(ranks, differences={**ranks.differences, pair: found})


def factor_parts(grid: ScoreGrid, found: Mapping[tuple[str, str], Difference]) -> list[FactorPart]:
    """``found``: two students' differences by task and factor."""
    tasks = {task: [factor for at, factor in found if at == task] for task, _ in found}
    parts = []
    for (task, factor), difference in found.items():
        design = grid.designs[grid.tasks.index(task)]
        weights = design.weights or dict.fromkeys(tasks[task], 1.0)
        share = weights.get(factor, 0.0) / sum(weights.values()) / len(tasks)
        parts.append(FactorPart(factor, factor in design.checks, share, difference))
    return parts


def task_verdict(grid: ScoreGrid, ranks: Ranking, first: str, second: str, task: str) -> LeadVerdict | None:
    """The verdict on two students in one task, as `coeval compare` has it; None where it is not tested, as
    their overall difference is not significant."""
    pair, shared = (min(first, second), max(first, second)), SharedScores(grid)
    gap, common = ranks.differences.get(pair), {both: shared.pair_means(*both) for both in ranks.differences}
    if gap is None or not gap.significant or task not in common[pair]:
        return None

    def members(tasks: Collection[str]) -> dict[Pair, FamilyMember]:
        strata = {both: {name: of[name] for name in of if name in tasks} for both, of in common.items()}
        judged = {both: shared.differences_by_judge(*both, of) for both, of in strata.items() if of}
        return family_members(strata, judged, grid.looks)

    roots, tasks = members(grid.tasks), list(common[pair]) if len(common[pair]) > 1 else []
    root = list(roots).index(pair)
    below = [members([name])[pair]._replace(parent=root) for name in tasks]
    parts = below[:1] if any(len(design.factors) > 1 for design in grid.designs) else []
    family = [*roots.values(), *below, *(part._replace(parent=len(roots)) for part in parts)]
    return adjust_family(family)[len(roots) + tasks.index(task) if tasks else root].verdict


def compare_two_students(grid: ScoreGrid, first: str, second: str) -> PairDifference | None:
    """How the second of two students differs from the first by the judges of the grid, of this pair alone;
    None where they have no score in common."""
    shared, pair = SharedScores(grid), (first, second)
    strata = shared.pair_means(*pair)
    members = family_members({pair: strata}, {pair: shared.differences_by_judge(*pair, strata)}, grid.looks)
    return adjust_family([*members.values()])[0] if members else None


_NO_JUDGES: Mapping[Pair, Sequence[ByJudge]] = {}


def rank_by_shared_scores(
    levels: Mapping[str, StudentMean],
    common: Mapping[Pair, Mapping[str, PairedScores]],
    partial: Collection[str] = (),
    judged: Mapping[Pair, Sequence[ByJudge]] = _NO_JUDGES,
    looks: Looks | None = None,
) -> Ranking:
    """``levels``: of the students who have a score; ``common``: what two of them share, by task; ``partial``:
    who is to do some of the tasks only: listed after all others, and without a rank; ``judged``: what each
    judge gave the second of two more than the first, task by task; ``looks``: of a run that grows, so that
    p-values hold at any look."""
    members = family_members(common, judged, looks)
    gaps = dict(zip(members, adjust_family([*members.values()]), strict=True))
    return rank_by_differences(levels, gaps, partial)


def count_tested_pairs(common: Mapping[Pair, Mapping[str, PairedScores]]) -> int:
    """Count the pairs that share two items or more."""
    return sum(sum(len(stratum.a) for stratum in shared.values()) > 1 for shared in common.values())


def family_members(
    common: Mapping[Pair, Mapping[str, PairedScores]],
    judged: Mapping[Pair, Sequence[ByJudge]] = _NO_JUDGES,
    looks: Looks | None = None,
    tests: int | None = None,
) -> dict[Pair, FamilyMember]:
    """By pair that shares items, what is tested; as in `ranked`. ``tests``: how many there are in the family;
    None: these pairs."""
    family = max(count_tested_pairs(common) if tests is None else tests, 1)
    scatters = pool_judge_scatter(judged, len({name for pair in judged for name in pair}) - 1)
    return {
        pair: prepare_family_member(
            [*strata.values()], judged.get(pair, ()), scatters.get(pair), looks, family
        )
        for pair, strata in common.items()
        if strata
    }


def rank_by_differences(
    levels: Mapping[str, StudentMean],
    gaps: Mapping[Pair, PairDifference],
    partial: Collection[str] = (),
) -> Ranking:
    """Rank students by their differences, tested as one family."""
    moves = _mean_shifts(levels, gaps)
    order = sorted(
        levels, key=lambda name: (name in partial, -round(levels[name].mean + moves[name], 9), name)
    )
    whole = [name for name in order if name not in partial]
    ahead = [
        (b, a) if gap.difference > 0 else (a, b)
        for (a, b), gap in gaps.items()
        if gap.significant and not {a, b} & set(partial)
    ]
    ranges = {name: rank_range(name, whole, ahead) for name in whole}
    left = tuple(name for name in order if name in partial)
    return Ranking(tuple(order), ranges, any(moves.values()), gaps, partial=left)


def _mean_shifts(levels: Mapping[str, StudentMean], gaps: Mapping[Pair, PairDifference]) -> dict[str, float]:
    return solve_mean_shifts(levels, {pair: (gap.difference, gap.n) for pair, gap in gaps.items()})


def solve_mean_shifts(
    levels: Mapping[str, StudentMean], gaps: Mapping[Pair, tuple[float, int]]
) -> dict[str, float]:
    """By student, what to add to its mean so that means differ as students do on the scores that they share;
    ``gaps``: how far the second of two is ahead of the first, over how many items.

    Least squares over all pairs, weighted by items; where all students have the same scores nothing moves.
    Whoever has the most scores keeps its mean (several of them: on average), so that the others' are what
    they would be over these.
    """
    lacking = [gap - (levels[b].mean - levels[a].mean) for (a, b), (gap, _) in gaps.items()]
    if not lacking or max(map(abs, lacking)) < SAME:
        return dict.fromkeys(levels, 0.0)
    place = {name: at for at, name in enumerate(levels)}
    weights = np.sqrt([items for _, items in gaps.values()])
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


class ExcludingSelfJudgments(Record, frozen=True):
    """It is not ``applicable`` where nobody scored itself, or no two students have a judge who is neither."""

    applicable: Annotated[bool, ShownAs("Whether there is such a ranking", elsewhere="standings")]
    judges: Annotated[tuple[str, ...], ShownAs("Those who scored themselves", elsewhere="standings")]
    students: Annotated[Mapping[str, StudentScores], ShownAs("Adjusted", elsewhere="standings")]
    ranking: Annotated[Ranking, ShownAs("By the judges who are neither of two", elsewhere="standings")]


def rank_excluding_self_judgments(grid: ScoreGrid) -> ExcludingSelfJudgments:
    """Students by the scores of others."""
    own = np.array([[model_of(student) == judge for judge in grid.judges] for student in grid.students], bool)
    mine = own.reshape(len(grid.students), len(grid.judges))[grid.student]
    scored = np.unique(grid.student[(grid.valid & mine).any(axis=1)])
    themselves = tuple(grid.students[student] for student in scored)
    nothing = ExcludingSelfJudgments(False, themselves, {}, EMPTY_RANKING)
    if not themselves:
        return nothing
    others = grid._replace(levels=np.where(mine, UNSCORED, grid.levels).astype(grid.levels.dtype))
    ranks, scores = rank_students(others, lambda first, second: (model_of(first), model_of(second)))
    return ExcludingSelfJudgments(True, themselves, scores, ranks) if ranks.differences else nothing
