"""What students scored: their score, which is the mean over tasks of the item-first mean, and the mean over
their units overall and by task, factor, judge, teacher and attribute value.

A unit is a score of a judge, or of a check. In tasks with weights or checks each factor of an answer counts
by its weight, once: by the mean over the judges who scored it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import widen_mean_bounds
from coeval.analysis.intervals import (
    NOTHING,
    Bounds,
    Floats,
    Interval,
    Scatter,
    bounds_of_missing,
    mean_of_clusters,
    mean_over_strata,
)
from coeval.analysis.measures.measure_tree import (
    FILES,
    NOT_MEASURED,
    Entity,
    Measured,
    Record,
    ShownAs,
    measured_from_interval,
)
from coeval.analysis.measures.score_grid import (
    Codes,
    GridItems,
    LevelCounts,
    RowSums,
    ScoreGrid,
    levels_by_student,
)
from coeval.analysis.panel.mean_squares import (
    JudgeScatter,
    JudgeValues,
    average_scatters,
    estimate_judge_scatter,
    judged_share,
)

Named: TypeAlias = Mapping[str, Measured]
LeastAndMost: TypeAlias = tuple[float, float]

_OVER_JUDGES = "The score with judges as a sample too; without an interval: not known"
_SCORE = (
    "Mean over tasks, of the mean over items, of the mean over judges and factors; with its 95% interval. "
    "Adjusted where a student lacks judges or items that others have"
)


class StudentScores(Entity, frozen=True):
    """A student's score, and those of its tasks. Where judges or items are unequally covered, it is the mean
    of what is recorded, moved so that scores differ as students do on what they share."""

    score: Annotated[Measured, ShownAs(_SCORE, "Score", "score")]
    score_by_task: Annotated[Named, ShownAs("The same of one task", elsewhere="standings")]
    mean_recorded: Annotated[
        Measured, ShownAs("The score before it is adjusted", terminal="mean of recorded")
    ]
    mean_recorded_by_task: Annotated[Named, ShownAs("The same of one task", elsewhere=FILES)]
    over_judges: Annotated[
        Measured | None, ShownAs(_OVER_JUDGES, "Over items and judges", "over items, judges")
    ] = None


class StudentAnswers(Record, frozen=True):
    """A student's answers. ``failed`` are also failed judgments, and factors that a judge or check was asked
    for and did not score."""

    answers: Annotated[int, ShownAs("Answers that did not fail", kind="count", elsewhere=FILES)] = 0
    failed: Annotated[
        int, ShownAs("Answers and judgments without a result", kind="count", elsewhere="students")
    ] = 0
    truncated: Annotated[int, ShownAs("Answers that were cut off", kind="count", elsewhere=FILES)] = 0
    truncated_by_window: Annotated[
        int, ShownAs("Answers cut off by the server's window", kind="count", elsewhere=FILES)
    ] = 0
    empty: Annotated[int, ShownAs("Answers without any text", kind="count", elsewhere=FILES)] = 0
    empty_truncated: Annotated[
        int, ShownAs("Answers that were cut off before any text", kind="count", elsewhere=FILES)
    ] = 0


class StudentMeasures(StudentScores, frozen=True, kw_only=True):
    """What a student scored. Each mean has what it lacks of the scores that the datapoints, judges and
    factors of its tasks make possible."""

    overall: Annotated[Measured, ShownAs("Mean over all single scores", elsewhere=FILES)]
    by_task: Annotated[Named, ShownAs("Mean over units of a task", elsewhere=FILES)]
    by_aspect: Annotated[Named, ShownAs("Mean over units of a factor", elsewhere=FILES)]
    by_task_aspect: Annotated[
        Mapping[str, Named], ShownAs("Mean over units of a factor in a task", elsewhere="parts")
    ]
    by_judge: Annotated[Named, ShownAs("Mean over units by a judge", elsewhere="by-judge")]
    by_teacher: Annotated[Named, ShownAs("Mean over units on a teacher's items", elsewhere="by-teacher")]
    by_attr_value: Annotated[Named, ShownAs("Mean over units of an attribute's value", elsewhere="values")]
    valid_evals: Annotated[int, ShownAs("Units", "Scores", kind="count")]
    valid_evals_by_task: Annotated[Mapping[str, int], ShownAs("Units of a task", elsewhere=FILES)]
    levels: Annotated[LevelCounts, ShownAs("Units at each level", elsewhere="levels")]
    bounds: Annotated[
        LeastAndMost | None,
        ShownAs("The score with all that is missing at 0, and at 1", elsewhere="students"),
    ]
    bounds_by_task: Annotated[Mapping[str, LeastAndMost], ShownAs("The same of one task", elsewhere=FILES)]
    samples: Annotated[int, ShownAs("Answers to an item", kind="count", elsewhere=FILES)]
    partial: Annotated[bool, ShownAs("Whether it is to do some of the tasks only", elsewhere=FILES)]
    counts: Annotated[StudentAnswers | None, ShownAs("Answers and failures", elsewhere="students")] = None
    counts_by_task: Annotated[
        Mapping[str, StudentAnswers] | None, ShownAs("Answers and failures of a task", elsewhere=FILES)
    ] = None


class CheckMeasures(Entity, frozen=True):
    """What students reached in a factor that a check scores; of checks that pass or fail, how often they
    passed."""

    mean: Annotated[Named, ShownAs("Mean over items, by student", elsewhere="checks")]


# --- Group means with intervals clustered by item
#
# The mean of a group is over its units, that is its (response, factor, judge) scores. Units of one datapoint
# depend on each other, so the interval is that of `coeval.analysis.intervals.clustered_mean` with datapoints
# as clusters (Liang and Zeger 1986); those that nearly repeat each other are one. Where scores are whole
# numbers of halves, all sums are exact.


def group_means(group: Codes, item: Codes, groups: int, cluster: Codes, sums: RowSums) -> list[Interval]:
    """The mean of each group, 0 to 1, with its datapoints, or groups of such, as clusters.

    Parameters
    ----------
    group, item : (R,) of each row, below 0 where it is in no group
    cluster : (I,) of each datapoint
    """
    counts = (group >= 0) & (sums.units > 0)
    most = max(len(cluster), int(cluster.max(initial=0)) + 1)
    own = group[counts].astype(np.int64) * most
    pairs = np.sort(own + item[counts])  # np.unique by itself hashes, ten times as long
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
    items = np.bincount(pairs // most, minlength=groups)
    clusters, which = np.unique(own + cluster[item[counts]], return_inverse=True)
    total = np.bincount(which, sums.total[counts], len(clusters)).astype(np.float64)
    count = np.bincount(which, sums.share[counts], len(clusters)).astype(np.float64)
    of = clusters // most

    def summed(values: Floats) -> Floats:
        return np.bincount(of, values, groups).astype(np.float64)

    units, found = summed(count), np.bincount(of, minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = summed(total) / units
        squares = summed(total**2) - 2 * mean * summed(total * count) + mean**2 * summed(count**2)
        squares = np.maximum(squares, 0.0) * (found / units) ** 2
    return [
        mean_of_clusters(float(mean[at]), Scatter(int(found[at]), float(squares[at])), int(items[at]))
        if units[at]
        else NOTHING
        for at in range(groups)
    ]


Counts = NDArray[np.int64]


def item_scores(grid: ScoreGrid, judge: int | None = None, *, complete_only: bool = True) -> RowSums:
    """Of each student and datapoint, (S, I), over all judges and checks, or by one judge; several answers are
    pooled. ``complete_only`` as in `ScoreGrid.sum_scores`."""
    own = None if judge is None else grid.levels[:, judge : judge + 1]
    sums = grid.sum_scores(levels=own, complete_only=complete_only and judge is None)
    place = grid.student.astype(np.int64) * len(grid.items.ids) + grid.item
    shape = (len(grid.students), len(grid.items.ids))
    total, share, units = (np.bincount(place, column, shape[0] * shape[1]).reshape(shape) for column in sums)
    return RowSums(np.asarray(total, np.float64), np.asarray(share, np.float64), units.astype(np.int64))


def _recorded(grid: ScoreGrid, scores: RowSums) -> RowSums:
    """All scores that are there, those of answers that lack a factor among them."""
    return item_scores(grid, complete_only=False) if grid.is_weighted else scores


def student_measures(
    grid: ScoreGrid, own: Mapping[str, StudentScores], counts: StudentCounts | None = None
) -> dict[str, StudentMeasures]:
    """By student; ``own`` are their scores, as `ranking` has them, ``counts`` those of their answers."""
    scores = item_scores(grid)
    every = _recorded(grid, scores)
    everything = np.zeros(len(grid.items.ids), np.int32)

    def grouped(group: Codes, names: Sequence[str]) -> list[_Named]:
        needed = _needed(grid, group, len(names), grid.scores_due)
        return _by_item_group(grid, group, names, needed, scores, every.units)

    overall, by_task = grouped(everything, ("all",)), grouped(grid.items.task, grid.tasks)
    by_teacher = grouped(grid.items.teacher, grid.teachers)
    by_factor, by_part = _by_factor(grid)
    by_judge = _joined(grid, (_by_one_judge(grid, place) for place in range(len(grid.judges))))
    by_value = _joined(grid, (grouped(*values) for values in _attribute_values(grid.items)))
    bounds, levels = score_bounds(grid, every), levels_by_student(grid)
    units = every.units @ (grid.items.task[:, None] == np.arange(len(grid.tasks)))
    partial = np.logical_not(grid.is_assigned[:, np.unique(grid.task)].all(axis=1)).tolist()
    return {
        student: StudentMeasures(
            **{name: getattr(own[student], name) for name in StudentScores.__struct_fields__},
            overall=overall[place].get("all", NOT_MEASURED),
            by_task=by_task[place],
            by_aspect=by_factor[place],
            by_task_aspect=by_part[place],
            by_judge=by_judge[place],
            by_teacher=by_teacher[place],
            by_attr_value=by_value[place],
            valid_evals=int(units[place].sum()),
            valid_evals_by_task=dict(zip(grid.tasks, units[place].tolist(), strict=True)),
            levels=levels[place],
            bounds=_around(bounds[place].overall, own[student].score),
            bounds_by_task={
                task: ends
                for task, score in own[student].score_by_task.items()
                if (ends := _around(bounds[place].by_task.get(task), score)) is not None
            },
            samples=int(grid.answers_per_item[place]),
            partial=partial[place],
            counts=None if counts is None else _counted(counts.get(student, {}), grid.tasks),
            counts_by_task=None if counts is None else counts.get(student, {}),
        )
        for place, student in enumerate(grid.students)
    }


def _attribute_values(items: GridItems) -> Iterator[tuple[Codes, Sequence[str]]]:
    """Which of some values each datapoint sampled, below 0: none; as many at once as exclude each other."""
    group, names = np.full(len(items.ids), -1), list[str]()
    for value, sampled in items.attributes.items():
        if (group[sampled] >= 0).any():
            yield group, names
            group, names = np.full(len(items.ids), -1), []
        group[sampled] = len(names)
        names.append(value)
    yield group, names


# Bounds that are closer are one: sums in another order.
_ROUNDING = 1e-9

StudentCounts: TypeAlias = Mapping[str, Mapping[str, StudentAnswers]]
"""By student and task."""


def _counted(by_task: Mapping[str, StudentAnswers], tasks: Collection[str]) -> StudentAnswers:
    """Sum the counts of some tasks."""
    each = [msgspec.structs.astuple(one) for task, one in by_task.items() if task in tasks]
    return StudentAnswers(*map(sum, zip(*each, strict=True)))


def _around(ends: LeastAndMost | None, score: Measured) -> LeastAndMost | None:
    """The bounds of a score; the score itself where nothing is missing, None where there is none."""
    if ends is None or score.value is None:
        return None
    return ends if ends[1] - ends[0] > _ROUNDING else (score.value, score.value)


def check_measures(
    grid: ScoreGrid, students: Mapping[str, StudentMeasures]
) -> dict[tuple[str, str], CheckMeasures] | None:
    """By task and check; None where a run has none. ``students`` are those of the grid."""
    found = {
        (task, name): CheckMeasures(
            {student: one.by_task_aspect[task][name] for student, one in students.items()}
        )
        for task, design in zip(grid.tasks, grid.designs, strict=True)
        for name in sorted(design.checks)
        if all(name in one.by_task_aspect[task] for one in students.values())
    }
    return found or None


_Named = dict[str, Measured]
_Name = TypeVar("_Name", str, tuple[str, str])


def _needed(grid: ScoreGrid, group: Codes, groups: int, each: Counts) -> Counts:
    """(students, groups): how many scores there might be, the sums of ``each`` datapoint, (I,), over groups;
    below 0 it is in none."""
    inside, tasks = group >= 0, len(grid.tasks)
    cells = grid.items.task[inside].astype(np.int64) * groups + group[inside]
    needed = np.bincount(cells, each[inside], tasks * groups).astype(np.int64)
    return np.asarray(grid.is_assigned @ needed.reshape(tasks, groups), np.int64)


class _Bounds(NamedTuple):
    overall: LeastAndMost | None
    by_task: Mapping[str, LeastAndMost]


_NO_BOUNDS = _Bounds(None, {})


def score_bounds(grid: ScoreGrid, scores: RowSums) -> list[_Bounds]:
    """By student, of its tasks in which anybody has a score: every datapoint might have one by each judge and
    factor that anybody has one of; where factors are weighted, each factor that anybody has a score of."""
    valid, scored, tasks = grid.valid, grid.scored, range(len(grid.tasks))
    possible = np.zeros(len(tasks))
    for task, design in enumerate(grid.designs):
        rows = grid.task == task
        factors = np.unique(grid.factor[rows & scored]).tolist()
        units = float(valid[rows].any(axis=0).sum() * len(factors))
        if design.weights:
            units = sum(design.weights.get(grid.factors[factor], 0.0) for factor in factors)
        possible[task] = (grid.items.task == task).sum() * units
    there = np.flatnonzero(possible)
    if not len(there):
        return [_NO_BOUNDS] * len(grid.students)
    inside = (grid.items.task == there[:, None]).astype(np.float64)
    found = []
    of_students: list[NDArray[np.bool_]] = list(grid.is_assigned[:, there])
    for total, known, times, mine in zip(
        scores.total, scores.share, grid.answers_per_item, of_students, strict=True
    ):
        if not mine.any():
            found.append(_NO_BOUNDS)
            continue
        of_tasks, owed = inside[mine], possible[there[mine]] * times
        each = np.stack(bounds_of_missing(of_tasks @ total, of_tasks @ known, owed), axis=-1)
        by_task = {
            grid.tasks[task]: (least, most)
            for task, (least, most) in zip(there[mine], each.tolist(), strict=True)
        }
        least, most = each.mean(axis=0).tolist()
        found.append(_Bounds((least, most), by_task))
    return found


class _ScoredRows(NamedTuple):
    """Student, datapoint and group of each row, (R,), below 0 where it is in none; the sums of its scores,
    and how many are there, those of answers that lack a factor among them."""

    student: Codes
    item: Codes
    group: Codes
    sums: RowSums
    units: Counts


def _means_of(
    grid: ScoreGrid, rows: _ScoredRows, names: Sequence[_Name], needed: Counts
) -> list[dict[_Name, Measured]]:
    """By student, the mean of each group; ``needed`` (S, groups) are the scores of one answer to each
    datapoint. A name of which nobody needs a score is left out."""
    groups, inside = len(names), rows.group >= 0
    which = np.where(inside, rows.student.astype(np.int64) * groups + rows.group, -1)
    means = group_means(which, rows.item, needed.size, grid.items.cluster, rows.sums)
    units = np.bincount(which[inside], rows.units[inside], needed.size).astype(np.int64)
    missing = grid.answers_per_item[:, None] * needed - units.reshape(needed.shape)
    possible = np.asarray(needed.any(axis=0), bool)
    return [
        {
            name: measured_from_interval(means[student * groups + at], int(missing[student, at]))
            for at, name in enumerate(names)
            if possible[at]
        }
        for student in range(len(grid.students))
    ]


def _by_item_group(
    grid: ScoreGrid, group: Codes, names: Sequence[str], needed: Counts, scores: RowSums, units: Counts
) -> list[_Named]:
    """By student: the groups that datapoints fall in (below 0: none)."""
    students, items = units.shape
    student, item = np.repeat(np.arange(students), items), np.tile(np.arange(items), students)
    sums = RowSums(scores.total.ravel(), scores.share.ravel(), scores.units.ravel())
    rows = _ScoredRows(student, item, np.tile(group, students), sums, units.ravel())
    return _means_of(grid, rows, names, needed)


def _by_factor(grid: ScoreGrid) -> tuple[list[_Named], list[dict[str, _Named]]]:
    """By student: the factors, and those of each task."""
    students, tasks, factors = len(grid.students), len(grid.tasks), len(grid.factors)
    sums = grid.sum_scores(equal_weights=True)
    items = np.bincount(grid.items.task, minlength=tasks)
    each = [[design.count_scores(name) for name in grid.factors] for design in grid.designs]
    needed = grid.is_assigned[:, :, None] * (
        items[:, None] * np.array(each, np.int64).reshape(tasks, factors)
    )
    part = grid.task.astype(np.int64) * factors + grid.factor
    parts = [(task, factor) for task in grid.tasks for factor in grid.factors]
    rows = _ScoredRows(grid.student, grid.item, part, sums, sums.units)
    by_part: list[dict[str, _Named]] = []
    for mine in _means_of(grid, rows, parts, needed.reshape(students, len(parts))):
        by_part.append({task: {} for task in grid.tasks})
        for (task, factor), one in mine.items():
            by_part[-1][task][factor] = one
    return _means_of(grid, rows._replace(group=grid.factor), grid.factors, needed.sum(axis=1)), by_part


def _by_one_judge(grid: ScoreGrid, place: int) -> list[_Named]:
    scores, judge = item_scores(grid, place), grid.judges[place]
    due = np.array(
        [len(design.judged_factors) * (judge in design.judges) for design in grid.designs], np.int64
    )
    everything = np.zeros(len(grid.items.ids), np.int32)
    needed = _needed(grid, everything, 1, due[grid.items.task])
    return _by_item_group(grid, everything, (judge,), needed, scores, scores.units)


def _joined(grid: ScoreGrid, parts: Iterable[list[_Named]]) -> list[_Named]:
    """By student: all of several mappings of each."""
    found: list[_Named] = [{} for _ in grid.students]
    for part in parts:
        for student, measures in zip(found, part, strict=True):
            student.update(measures)
    return found


def mean_scores(grid: ScoreGrid, scores: RowSums) -> dict[str, StudentScores]:
    """By student, before they are adjusted."""
    tasks, means = len(grid.tasks), scores.mean
    needed = _needed(grid, grid.items.task, tasks, grid.scores_due)
    units = _recorded(grid, scores).units
    inside = grid.items.task[:, None] == np.arange(tasks)
    missing = grid.answers_per_item[:, None] * needed - units @ inside
    found = {}
    for place, name in enumerate(grid.students):
        by_task = {
            task: measured_from_interval(_mean_of_task(grid, means[place], at), int(missing[place, at]))
            for at, task in enumerate(grid.tasks)
            if needed[:, at].any()
        }
        score = measured_from_interval(mean_over_tasks(grid, means[place]), int(missing[place].sum()))
        found[name] = StudentScores(score, by_task, score, by_task)
    return found


def _mean_of_task(grid: ScoreGrid, means: Floats, task: int, shift: float = 0.0) -> Interval:
    return mean_over_tasks(grid, np.where(grid.items.task == task, means, np.nan), shift)


def student_score(
    grid: ScoreGrid,
    means: Floats,
    recorded: StudentScores,
    shifts: Mapping[str, float],
) -> StudentScores:
    """Adjust one student's scores.

    Parameters
    ----------
    means : (I,), of its items, NaN where there is none
    recorded : its scores before
    shifts : by task, and overall under "": by how much scores are moved, with their intervals
    """
    by_task = {
        task: measured_from_interval(_mean_of_task(grid, means, grid.tasks.index(task), shift), one.missing)
        if (shift := shifts.get(task, 0.0))
        else one
        for task, one in recorded.score_by_task.items()
    }
    score = recorded.score
    if shift := shifts.get("", 0.0):
        score = measured_from_interval(mean_over_tasks(grid, means, shift), score.missing)
    return msgspec.structs.replace(recorded, score=score, score_by_task=by_task)


def score_scatters(grid: ScoreGrid, means: Floats, cells: Sequence[Floats]) -> dict[str, JudgeScatter | None]:
    """By student whom any judge scored: what judges add, in severity and in leaning. That is one variance
    for all students; None if it cannot be estimated, as with one judge. ``means`` (S, I) are those of items,
    NaN where there is none; ``cells`` are by task, as `judge_score_array`."""
    shares = [judged_share(design) for design in grid.designs]
    own: dict[str, JudgeScatter | None] = {}
    for place, name in enumerate(grid.students):
        mine = [JudgeValues(values[:, place], share) for values, share in zip(cells, shares, strict=True)]
        scored = np.unique(grid.items.task[np.isfinite(means[place])])
        tasks = [mine[task] for task in scored]
        if any(task.share > 0 for task in tasks):
            own[name] = estimate_judge_scatter(tasks)
    pooled = average_scatters(list(own.values()), 1)
    return {
        name: None if one is None or pooled is None else pooled._replace(judges=one.judges)
        for name, one in own.items()
    }


def over_judges(score: Measured, scatter: JudgeScatter | None) -> Measured:
    """A student's score with what judges add to its error."""
    if scatter is None or score.value is None or score.low is None or score.high is None or score.n is None:
        return Measured(None, None, None, score.n, None)
    bounds = widen_mean_bounds(score.value, Bounds(score.low, score.high), score.n, scatter)
    return Measured(score.value, *bounds, score.n, None)


def mean_over_tasks(grid: ScoreGrid, means: Floats, shift: float = 0.0) -> Interval:
    """The mean over tasks of the mean over datapoints; ``means`` (I,) with NaN where there is none. ``shift``
    moves it, within the scale."""
    known = [np.isfinite(means) & (grid.items.task == task) for task in range(len(grid.tasks))]
    clusters = [grid.items.cluster[mine] for mine in known] if grid.items.alike is not None else None
    found = mean_over_strata([means[mine] for mine in known], clusters=clusters)
    if not shift or found.mean is None:
        return found
    shift = min(max(found.mean + shift, 0.0), 1.0) - found.mean
    return mean_over_strata([means[mine] + shift for mine in known], clusters=clusters)
