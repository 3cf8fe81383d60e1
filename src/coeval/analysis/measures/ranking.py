"""Ranks of students with ranges, from all pairwise differences.

Two students are compared on what both have: the same items, scored by the same judges in the same factors.
Their order follows from these differences too: where one lacks a strict judge or hard items, its mean is
adjusted for that before it is compared with others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.comparison.family import (
    FactorPart,
    FamilyMember,
    LeadVerdict,
    PairDifference,
    adjust_family,
    find_factor_behind_lead,
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
from coeval.analysis.measures.pair_scores import ComparedGrid, SharedScores
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.measures.student_measures import (
    StudentScores,
    estimate_judge_scatters,
    shift_student_scores,
    sum_student_item_scores,
    unadjusted_scores,
    widen_score_over_judges,
)
from coeval.analysis.panel.mean_squares import JudgeValues
from coeval.core.records import model_of

# Smaller differences are rounding: the same sums in another order.
SAME = 1e-9

Pair: TypeAlias = tuple[str, str]
ExcludedJudges: TypeAlias = Callable[[str, str], Collection[str]]
"""The judges whose scores of two students are left out."""


class StudentMean(NamedTuple):
    """A student's mean score, and the number of scores it is over."""

    mean: float
    units: int


class RankedPair(NamedTuple):
    """Two students in the order of their ranks, and by how much the first is ahead."""

    ahead: str
    behind: str
    difference: PairDifference


class Ranking(Record, frozen=True):
    """Ranks of students, with the pairwise differences that they follow from."""

    order: Annotated[tuple[str, ...], ShownAs("Students with a score, best first", elsewhere="students")]
    ranges: Annotated[
        Mapping[str, tuple[int, int]],
        ShownAs(
            "Between the significantly better and the significantly worse students; for students with all "
            "tasks",
            "Ranks",
            "rank",
            "text",
        ),
    ]
    adjusted: Annotated[bool, ShownAs("Whether some students lack scores that others have", elsewhere=FILES)]
    differences: Annotated[
        Mapping[Pair, PairDifference], ShownAs("Pairs of students who share scores", elsewhere="differences")
    ]
    one_judge: Annotated[bool, ShownAs("Whether one judge gave all scores", elsewhere=FILES)] = False
    partial: Annotated[
        tuple[str, ...], ShownAs("Students with only some of the tasks, unranked", elsewhere=FILES)
    ] = ()

    def difference(self, better: str, worse: str) -> PairDifference | None:
        """Return how two students differ, in either order; None where they share no scores."""
        return self.differences.get((better, worse)) or self.differences.get((worse, better))

    @property
    def leader_differences(self) -> dict[str, PairDifference]:
        """Return by how much the first leads each of the others, in their order: first − other."""
        return {pair.behind: pair.difference for pair in self.order_pairs() if pair.ahead == self.order[0]}

    def order_pairs(self) -> list[RankedPair]:
        """Return each pair with the better-ranked student first, in the order of the ranking."""
        rank = {name: at for at, name in enumerate(self.order)}
        pairs = [
            RankedPair(first, second, difference.swapped)
            if rank[first] < rank[second]
            else RankedPair(second, first, difference)
            for (first, second), difference in self.differences.items()
        ]
        return sorted(pairs, key=lambda pair: (rank[pair.ahead], rank[pair.behind]))

    def verdict(self, better: str, worse: str) -> LeadVerdict:
        gap = self.difference(better, worse)
        return "tied" if gap is None else gap.verdict


def leader_and_rival(ranks: Ranking) -> tuple[str, str]:
    """Name the best of two or more students, and its rival: the best it is tied with, so that both may have
    rank 1; else the best it leads by these judges alone; else the second."""
    first, second, *_ = ranks.order
    whole = [name for name in ranks.order[1:] if name not in ranks.partial]
    tied = (name for name in whole if ranks.verdict(first, name) == "tied")
    by_judges = (name for name in whole if ranks.verdict(first, name) != "leads")
    return first, next(tied, next(by_judges, second))


class RankedStudents(NamedTuple):
    """A ranking, and the scores of all students of its grid."""

    ranking: Ranking
    scores: Mapping[str, StudentScores]


EMPTY_RANKING = Ranking((), {}, False, {})


def rank_students(grid: ScoreGrid, excluded_judges: ExcludedJudges | None = None) -> RankedStudents:
    """Score and rank the students of a grid: their means, adjusted where judges or items are unequally
    covered. A pair is compared on all scores that both have, except those of its ``excluded_judges``."""
    shared, item_sums = SharedScores(grid), sum_student_item_scores(grid)
    recorded = unadjusted_scores(grid, item_sums)
    codes = {name: at for at, name in enumerate(grid.students)}
    means = {name: score.score.value for name, score in recorded.items() if score.score.value is not None}
    scored = sorted(means)
    common, judged = dict[Pair, Mapping[str, PairedScores]](), dict[Pair, Sequence[JudgeValues]]()
    for pair in combinations(scored, 2):
        without = excluded_judges(*pair) if excluded_judges is not None else ()
        common[pair] = shared.item_means_by_task(*pair, without)
        if common[pair]:
            judged[pair] = shared.judge_differences_by_task(*pair, common[pair], without)
    levels = {name: StudentMean(means[name], int(item_sums.units[codes[name]].sum())) for name in scored}
    incomplete = {name for name in scored if not grid.student_task_assignments[codes[name]].all()}
    partial = {
        name
        for name in incomplete
        if any(score.value is None and score.missing == 0 for score in recorded[name].score_by_task.values())
    }
    ranks = rank_by_shared_scores(levels, common, partial, judged, grid.looks)
    moves = {name: {"": shift} for name, shift in _mean_shifts(levels, ranks.differences).items()}
    for at, task in enumerate(grid.tasks):
        in_task = grid.items.task == at
        levels = {
            name: StudentMean(score.value, int(item_sums.units[codes[name], in_task].sum()))
            for name in scored
            if (score := recorded[name].score_by_task.get(task)) is not None and score.value is not None
        }
        gaps = {
            pair: (float(np.average(items.b - items.a, weights=items.weights)), len(items.a))
            for pair, strata in common.items()
            if (items := strata.get(task)) is not None
        }
        for name, shift in solve_mean_shifts(levels, gaps).items():
            moves[name][task] = shift
    scores, item_means = dict(recorded), item_sums.mean
    scatters = (
        estimate_judge_scatters(grid, item_means, shared.judge_scores_by_task)
        if excluded_judges is None
        else {}
    )
    for name in scored:
        adjusted = shift_student_scores(grid, item_means[codes[name]], recorded[name], moves[name])
        over = widen_score_over_judges(adjusted.score, scatters[name]) if name in scatters else None
        scores[name] = msgspec.structs.replace(adjusted, over_judges=over)
    ranks = msgspec.structs.replace(ranks, one_judge=int(grid.valid.any(axis=0).sum()) == 1)
    return RankedStudents(_name_factor_of_lead(grid, ranks), scores)


def _name_factor_of_lead(grid: ScoreGrid, ranks: Ranking) -> Ranking:
    """Name the factor that the lead of the `leader_and_rival` comes from."""
    if len(ranks.order) < 2:
        return ranks
    first, second = leader_and_rival(ranks)
    pair = (min(first, second), max(first, second))
    if (gap := ranks.differences.get(pair)) is None or not gap.significant:
        return ranks
    cuts = ComparedGrid(grid)
    scored = {
        (task, factor): strata[task]
        for task, factor in cuts.task_factors
        if task in (strata := cuts.shared_scores(task, factor).item_means_by_task(*pair))
    }
    parts = weigh_factor_parts(grid, {part: paired_difference([pairs]) for part, pairs in scored.items()})
    with_factor = msgspec.structs.replace(gap, comes_from=find_factor_behind_lead(gap, parts))
    return msgspec.structs.replace(ranks, differences={**ranks.differences, pair: with_factor})


def weigh_factor_parts(
    grid: ScoreGrid, differences: Mapping[tuple[str, str], Difference]
) -> list[FactorPart]:
    """Return each factor's share of the overall difference of two students, from those by task and factor."""
    tasks = {task: [factor for at, factor in differences if at == task] for task, _ in differences}
    parts = []
    for (task, factor), difference in differences.items():
        design = grid.designs[grid.tasks.index(task)]
        weights = design.weights or dict.fromkeys(tasks[task], 1.0)
        share = weights.get(factor, 0.0) / sum(weights.values()) / len(tasks)
        parts.append(FactorPart(factor, factor in design.checks, share, difference))
    return parts


def task_verdict(grid: ScoreGrid, ranks: Ranking, first: str, second: str, task: str) -> LeadVerdict | None:
    """Return the verdict on two students in one task, as `coeval compare` has it; None where it is not
    tested, because their overall difference is not significant."""
    pair, shared = (min(first, second), max(first, second)), SharedScores(grid)
    gap = ranks.differences.get(pair)
    common = {other_pair: shared.item_means_by_task(*other_pair) for other_pair in ranks.differences}
    if gap is None or not gap.significant or task not in common[pair]:
        return None

    def members(tasks: Collection[str]) -> dict[Pair, FamilyMember]:
        strata = {
            other_pair: {name: strata[name] for name in strata if name in tasks}
            for other_pair, strata in common.items()
        }
        judged = {
            other_pair: shared.judge_differences_by_task(*other_pair, strata)
            for other_pair, strata in strata.items()
            if strata
        }
        return family_members(strata, judged, grid.looks)

    overall, tasks = members(grid.tasks), list(common[pair]) if len(common[pair]) > 1 else []
    root = list(overall).index(pair)
    below = [members([name])[pair]._replace(parent=root) for name in tasks]
    parts = below[:1] if any(len(design.factors) > 1 for design in grid.designs) else []
    family = [*overall.values(), *below, *(part._replace(parent=len(overall)) for part in parts)]
    return adjust_family(family)[len(overall) + tasks.index(task) if tasks else root].verdict


def compare_two_students(grid: ScoreGrid, first: str, second: str) -> PairDifference | None:
    """Test how the second student differs from the first, as this pair alone; None if they share no score."""
    shared, pair = SharedScores(grid), (first, second)
    strata = shared.item_means_by_task(*pair)
    judged = {pair: shared.judge_differences_by_task(*pair, strata)}
    members = family_members({pair: strata}, judged, grid.looks)
    return adjust_family([*members.values()])[0] if members else None


_NO_JUDGES: Mapping[Pair, Sequence[JudgeValues]] = {}


def rank_by_shared_scores(
    means: Mapping[str, StudentMean],
    shared_by_pair: Mapping[Pair, Mapping[str, PairedScores]],
    some_tasks_only: Collection[str] = (),
    judge_values: Mapping[Pair, Sequence[JudgeValues]] = _NO_JUDGES,
    looks: Looks | None = None,
) -> Ranking:
    """Rank students by the scores that pairs share. ``means``: of the students who have a score;
    ``shared_by_pair``: what two of them share, by task; ``some_tasks_only``: assigned some of the tasks
    only, listed last and without a rank; ``judge_values``: second minus first student by judge, task by
    task; ``looks``: of a run that grows, so that p-values hold at any look."""
    members = family_members(shared_by_pair, judge_values, looks)
    gaps = dict(zip(members, adjust_family([*members.values()]), strict=True))
    return rank_by_differences(means, gaps, some_tasks_only)


def count_tested_pairs(shared_by_pair: Mapping[Pair, Mapping[str, PairedScores]]) -> int:
    """Count the pairs that share two items or more."""
    return sum(sum(len(stratum.a) for stratum in shared.values()) > 1 for shared in shared_by_pair.values())


def family_members(
    shared_by_pair: Mapping[Pair, Mapping[str, PairedScores]],
    judge_values: Mapping[Pair, Sequence[JudgeValues]] = _NO_JUDGES,
    looks: Looks | None = None,
    tests: int | None = None,
) -> dict[Pair, FamilyMember]:
    """Return the test of each pair that shares items; arguments as in `rank_by_shared_scores`. ``tests``: the
    size of the family; None: these pairs."""
    family = max(count_tested_pairs(shared_by_pair) if tests is None else tests, 1)
    scatters = pool_judge_scatter(judge_values, len({name for pair in judge_values for name in pair}) - 1)
    return {
        pair: prepare_family_member(
            [*strata.values()], judge_values.get(pair, ()), scatters.get(pair), looks, family
        )
        for pair, strata in shared_by_pair.items()
        if strata
    }


def rank_by_differences(
    means: Mapping[str, StudentMean], gaps: Mapping[Pair, PairDifference], partial: Collection[str] = ()
) -> Ranking:
    """Rank students by their differences, tested as one family."""
    moves = _mean_shifts(means, gaps)
    order = sorted(means, key=lambda name: (name in partial, -round(means[name].mean + moves[name], 9), name))
    whole = [name for name in order if name not in partial]
    ahead = [
        (b, a) if gap.difference > 0 else (a, b)
        for (a, b), gap in gaps.items()
        if gap.significant and not {a, b} & set(partial)
    ]
    ranges = {name: rank_range(name, whole, ahead) for name in whole}
    incomplete = tuple(name for name in order if name in partial)
    return Ranking(tuple(order), ranges, any(moves.values()), gaps, partial=incomplete)


def _mean_shifts(means: Mapping[str, StudentMean], gaps: Mapping[Pair, PairDifference]) -> dict[str, float]:
    return solve_mean_shifts(means, {pair: (gap.difference, gap.n) for pair, gap in gaps.items()})


def solve_mean_shifts(
    means: Mapping[str, StudentMean], gaps_and_items: Mapping[Pair, tuple[float, int]]
) -> dict[str, float]:
    """Return what to add to each student's mean so that means differ as students do on shared scores.
    ``gaps_and_items``: how far the second of two is ahead of the first, and over how many items.

    Least squares over all pairs, weighted by items; where all students have the same scores nothing moves.
    Whoever has the most scores keeps its mean (several of them: on average), so that the others' are what
    they would be over these.
    """
    unexplained = [gap - (means[b].mean - means[a].mean) for (a, b), (gap, _) in gaps_and_items.items()]
    if not unexplained or max(map(abs, unexplained)) < SAME:
        return dict.fromkeys(means, 0.0)
    index = {name: at for at, name in enumerate(means)}
    weights = np.sqrt([items for _, items in gaps_and_items.values()])
    design = np.zeros((len(gaps_and_items), len(means)))
    for row, (a, b) in enumerate(gaps_and_items):
        design[row, index[a]], design[row, index[b]] = -weights[row], weights[row]
    shifts = np.asarray(np.linalg.lstsq(design, weights * unexplained)[0], np.float64)
    most = max(level.units for level in means.values())
    offset = float(np.mean([shifts[index[name]] for name, level in means.items() if level.units == most]))
    return {name: float(shifts[at]) - offset for name, at in index.items()}


# --- Students without the scores that they gave themselves
#
# Whoever is a judge as well may be kind to itself. Each student lacks another judge then, and judges differ
# in strictness: means over all judges but oneself would rank the strictest judge first. Differences are
# therefore those by the judges who are neither of the two, and students' order and scores follow from them.


class ExcludingSelfJudgments(Record, frozen=True):
    """Students ranked without the scores they gave themselves. Not ``applicable`` where nobody scored itself,
    or no two students have a judge who is neither."""

    applicable: Annotated[bool, ShownAs("Whether this ranking exists", elsewhere="standings")]
    judges: Annotated[tuple[str, ...], ShownAs("Students who scored themselves", elsewhere="standings")]
    students: Annotated[Mapping[str, StudentScores], ShownAs("Adjusted", elsewhere="standings")]
    ranking: Annotated[Ranking, ShownAs("By judges other than the two students", elsewhere="standings")]


def rank_excluding_self_judgments(grid: ScoreGrid) -> ExcludingSelfJudgments:
    judges_itself = np.array(
        [[model_of(student) == judge for judge in grid.judges] for student in grid.students], bool
    )
    is_self_judgment = judges_itself.reshape(len(grid.students), len(grid.judges))[grid.student]
    scored = np.unique(grid.student[(grid.valid & is_self_judgment).any(axis=1)])
    self_judges = tuple(grid.students[student] for student in scored)
    not_applicable = ExcludingSelfJudgments(False, self_judges, {}, EMPTY_RANKING)
    if not self_judges:
        return not_applicable
    others = grid._replace(levels=np.where(is_self_judgment, UNSCORED, grid.levels).astype(grid.levels.dtype))
    ranks, scores = rank_students(others, lambda first, second: (model_of(first), model_of(second)))
    return ExcludingSelfJudgments(True, self_judges, scores, ranks) if ranks.differences else not_applicable
