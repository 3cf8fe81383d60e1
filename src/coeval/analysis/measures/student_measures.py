"""Scores of students: the mean over tasks of item means, and means over units by task, factor, judge, teacher
and attribute value.

A unit is a score of a judge, or of a check. In tasks with weights or checks each factor of an answer
counts by its weight, once: by the mean over the judges who scored it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import widen_mean_bounds
from coeval.analysis.intervals import (
    NO_INTERVAL,
    Bounds,
    Floats,
    Interval,
    Scatter,
    mean_bounds,
    mean_over_strata,
    mean_with_missing_at_ends,
)
from coeval.analysis.measures.measure_tree import FILES, NOT_MEASURED, Entity, Measured, Record, ShownAs
from coeval.analysis.measures.score_grid import (
    Codes,
    GridItems,
    LevelCounts,
    RowSums,
    ScoreGrid,
    count_levels_by_student,
    unique_codes,
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

_OVER_JUDGES_MEANING = "The score with judges as a sample too; no interval: unknown"
_SCORE_MEANING = (
    "Mean over tasks, of the mean over items, of the mean over judges and factors; with its 95% interval. "
    "Adjusted where a student lacks judges or items that others have"
)


class StudentScores(Entity, frozen=True):
    """A student's score, and those of its tasks. Where judges or items are unequally covered, it is the
    recorded mean, adjusted so that scores differ as students do on the scores they share."""

    score: Annotated[Measured, ShownAs(_SCORE_MEANING, "Score", "score")]
    score_by_task: Annotated[Named, ShownAs("The same for one task", elsewhere="standings")]
    mean_recorded: Annotated[Measured, ShownAs("The score before adjustment", terminal="mean of recorded")]
    mean_recorded_by_task: Annotated[Named, ShownAs("The same for one task", elsewhere=FILES)]
    over_judges: Annotated[
        Measured | None, ShownAs(_OVER_JUDGES_MEANING, "Over items and judges", "over items, judges")
    ] = None


class StudentAnswers(Record, frozen=True):
    """Counts of a student's answers. ``failed`` includes failed judgments, and factors left unscored."""

    answers: Annotated[int, ShownAs("Answers that did not fail", kind="count", elsewhere=FILES)] = 0
    failed: Annotated[
        int, ShownAs("Answers and judgments without a result", kind="count", elsewhere="students")
    ] = 0
    truncated: Annotated[int, ShownAs("Answers cut off", kind="count", elsewhere=FILES)] = 0
    truncated_by_window: Annotated[
        int, ShownAs("Answers cut off by the server's window", kind="count", elsewhere=FILES)
    ] = 0
    empty: Annotated[int, ShownAs("Answers without any text", kind="count", elsewhere=FILES)] = 0
    empty_truncated: Annotated[
        int, ShownAs("Answers cut off before any text", kind="count", elsewhere=FILES)
    ] = 0


class StudentMeasures(StudentScores, frozen=True, kw_only=True):
    """All measures of a student. Each mean's ``missing`` counts against the scores that the items, judges and
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
        ShownAs("The score if all missing ones were 0, and if 1", elsewhere="students"),
    ]
    bounds_by_task: Annotated[Mapping[str, LeastAndMost], ShownAs("The same for one task", elsewhere=FILES)]
    samples: Annotated[int, ShownAs("Answers to an item", kind="count", elsewhere=FILES)]
    partial: Annotated[bool, ShownAs("Whether it does only some of the tasks", elsewhere=FILES)]
    counts: Annotated[StudentAnswers | None, ShownAs("Answers and failures", elsewhere="students")] = None
    counts_by_task: Annotated[
        Mapping[str, StudentAnswers] | None, ShownAs("Answers and failures of a task", elsewhere=FILES)
    ] = None


class CheckMeasures(Entity, frozen=True):
    """What students reached in a factor that a check scores: if it passes or fails, how often they passed."""

    mean: Annotated[Named, ShownAs("Mean over items, by student", elsewhere="checks")]


# --- Group means with intervals clustered by item
#
# The mean of a group is over its units, that is its (response, factor, judge) scores. Units of one datapoint
# depend on each other, so the interval is that of `coeval.analysis.intervals.clustered_mean` with datapoints
# as clusters (Liang and Zeger 1986); those that nearly repeat each other are one. Where scores are whole
# numbers of halves, all sums are exact.


def compute_group_means(
    group: Codes, item: Codes, groups: int, cluster: Codes, sums: RowSums
) -> list[Interval]:
    """Compute the mean of each group, 0 to 1, with an interval clustered by item. ``group`` (below 0: none)
    and ``item`` are (R,), ``cluster`` (I,)."""
    counts = (group >= 0) & (sums.units > 0)
    most = max(len(cluster), int(cluster.max(initial=0)) + 1)
    own = group[counts].astype(np.int64) * most
    items = np.bincount(unique_codes(own + item[counts])[0] // most, minlength=groups)
    clusters, which = unique_codes(own + cluster[item[counts]])
    total = np.bincount(which, sums.total[counts], len(clusters)).astype(np.float64)
    count = np.bincount(which, sums.share[counts], len(clusters)).astype(np.float64)
    group_of_cluster = clusters // most

    def sum_by_group(values: Floats) -> Floats:
        return np.bincount(group_of_cluster, values, groups).astype(np.float64)

    units, cluster_counts = sum_by_group(count), np.bincount(group_of_cluster, minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sum_by_group(total) / units
        squares = (
            sum_by_group(total**2) - 2 * mean * sum_by_group(total * count) + mean**2 * sum_by_group(count**2)
        )
        squares = np.maximum(squares, 0.0) * (cluster_counts / units) ** 2
    scatters = map(Scatter, cluster_counts.tolist(), squares.tolist())
    return [
        Interval(value, *mean_bounds(value, [scatter]), count) if np.isfinite(value) else NO_INTERVAL
        for value, scatter, count in zip(mean.tolist(), scatters, items.tolist(), strict=True)
    ]


Counts = NDArray[np.int64]


def sum_student_item_scores(
    grid: ScoreGrid, judge: int | None = None, *, complete_only: bool = True
) -> RowSums:
    """Sum the scores of each student and item, (S, I), of all judges and checks, or of one judge; several
    answers are pooled. ``complete_only`` as in `ScoreGrid.sum_scores`."""
    own = grid if judge is None else grid._replace(levels=grid.levels[:, judge : judge + 1], checked=None)
    sums = own.sum_scores(complete_only=complete_only and judge is None)
    cell = grid.student.astype(np.int64) * len(grid.items.ids) + grid.item
    shape = (len(grid.students), len(grid.items.ids))
    total, share, units = (np.bincount(cell, column, shape[0] * shape[1]).reshape(shape) for column in sums)
    return RowSums(np.asarray(total, np.float64), np.asarray(share, np.float64), units.astype(np.int64))


def _sum_recorded_scores(grid: ScoreGrid, scores: RowSums) -> RowSums:
    """Sum all recorded scores, those of answers that lack a factor included."""
    return sum_student_item_scores(grid, complete_only=False) if grid.is_weighted else scores


def measure_students(
    grid: ScoreGrid, ranked_scores: Mapping[str, StudentScores], counts: StudentCounts | None = None
) -> dict[str, StudentMeasures]:
    """Compute all measures of each student. ``ranked_scores``: of `rank_students`; ``counts``: of answers."""
    scores = sum_student_item_scores(grid)
    recorded = _sum_recorded_scores(grid, scores)
    everything = np.zeros(len(grid.items.ids), np.int32)

    def means_by_group(group: Codes, names: Sequence[str]) -> list[_Named]:
        needed = _count_due_scores(grid, group, len(names), grid.scores_due)
        return _means_by_item_group(grid, group, names, needed, scores, recorded.units)

    overall, by_task = means_by_group(everything, ("all",)), means_by_group(grid.items.task, grid.tasks)
    by_teacher = means_by_group(grid.items.teacher, grid.teachers)
    by_factor, by_part = _means_by_factor(grid)
    by_judge = _merge_by_student(grid, (_means_of_judge(grid, at) for at in range(len(grid.judges))))
    by_value = _merge_by_student(grid, (means_by_group(*part) for part in _disjoint_value_sets(grid.items)))
    bounds, levels = bound_student_scores(grid, recorded), count_levels_by_student(grid)
    units = recorded.units @ (grid.items.task[:, None] == np.arange(len(grid.tasks)))
    partial = np.logical_not(grid.student_task_assignments[:, np.unique(grid.task)].all(axis=1)).tolist()
    return {
        student: StudentMeasures(
            **{name: getattr(ranked_scores[student], name) for name in StudentScores.__struct_fields__},
            overall=overall[at].get("all", NOT_MEASURED),
            by_task=by_task[at],
            by_aspect=by_factor[at],
            by_task_aspect=by_part[at],
            by_judge=by_judge[at],
            by_teacher=by_teacher[at],
            by_attr_value=by_value[at],
            valid_evals=int(units[at].sum()),
            valid_evals_by_task=dict(zip(grid.tasks, units[at].tolist(), strict=True)),
            levels=levels[at],
            bounds=_bounds_or_score_if_equal(bounds[at].overall, ranked_scores[student].score),
            bounds_by_task={
                task: ends
                for task, score in ranked_scores[student].score_by_task.items()
                if (ends := _bounds_or_score_if_equal(bounds[at].by_task.get(task), score)) is not None
            },
            samples=int(grid.answers_per_item[at]),
            partial=partial[at],
            counts=None if counts is None else _sum_answer_counts(counts.get(student, {}), grid.tasks),
            counts_by_task=None if counts is None else counts.get(student, {}),
        )
        for at, student in enumerate(grid.students)
    }


def _disjoint_value_sets(items: GridItems) -> Iterator[tuple[Codes, Sequence[str]]]:
    """Yield groups of exclusive attribute values: which each item sampled (below 0: none), and names."""
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


def _sum_answer_counts(by_task: Mapping[str, StudentAnswers], tasks: Collection[str]) -> StudentAnswers:
    rows = [msgspec.structs.astuple(counts) for task, counts in by_task.items() if task in tasks]
    return StudentAnswers(*map(sum, zip(*rows, strict=True)))


def _bounds_or_score_if_equal(ends: LeastAndMost | None, score: Measured) -> LeastAndMost | None:
    """Return the bounds of a score: the score itself where nothing is missing, None where there is none."""
    if ends is None or score.value is None:
        return None
    return ends if ends[1] - ends[0] > _ROUNDING else (score.value, score.value)


def measure_checks(
    grid: ScoreGrid, students: Mapping[str, StudentMeasures]
) -> dict[tuple[str, str], CheckMeasures] | None:
    """Compute each student's mean by task and check; None where a run has no checks."""
    means = {
        (task, name): CheckMeasures(
            {student: measures.by_task_aspect[task][name] for student, measures in students.items()}
        )
        for task, design in zip(grid.tasks, grid.designs, strict=True)
        for name in sorted(design.checks)
        if all(name in measures.by_task_aspect[task] for measures in students.values())
    }
    return means or None


_Named = dict[str, Measured]
_Name = TypeVar("_Name", str, tuple[str, str])


def _count_due_scores(grid: ScoreGrid, group: Codes, groups: int, due_by_item: Counts) -> Counts:
    """Count the scores each student might have, (students, groups): ``due_by_item`` summed over groups."""
    in_group, tasks = group >= 0, len(grid.tasks)
    cells = grid.items.task[in_group].astype(np.int64) * groups + group[in_group]
    due = np.bincount(cells, due_by_item[in_group], tasks * groups).astype(np.int64)
    return np.asarray(grid.student_task_assignments @ due.reshape(tasks, groups), np.int64)


class _Bounds(NamedTuple):
    """The lowest and highest score, overall and by task, that missing scores could make."""

    overall: LeastAndMost | None
    by_task: Mapping[str, LeastAndMost]


_NO_BOUNDS = _Bounds(None, {})


def bound_student_scores(grid: ScoreGrid, scores: RowSums) -> list[_Bounds]:
    """Bound each student's score over the tasks in which anybody has a score, with missing scores at 0, and
    at 1. Every item might have a score by each judge and factor that anybody has one of; where factors are
    weighted, by each factor that anybody has a score of."""
    valid, scored, tasks = grid.valid, grid.scored, range(len(grid.tasks))
    possible = np.zeros(len(tasks))
    for task, design in enumerate(grid.designs):
        rows = grid.task == task
        factors = np.unique(grid.factor[rows & scored]).tolist()
        units = float(valid[rows].any(axis=0).sum() * len(factors))
        if design.weights:
            units = sum(design.weights.get(grid.factors[factor], 0.0) for factor in factors)
        possible[task] = (grid.items.task == task).sum() * units
    scored_tasks = np.flatnonzero(possible)
    if not len(scored_tasks):
        return [_NO_BOUNDS] * len(grid.students)
    inside = (grid.items.task == scored_tasks[:, None]).astype(np.float64)
    bounds = []
    assigned_by_student: list[NDArray[np.bool_]] = list(grid.student_task_assignments[:, scored_tasks])
    for total, share, answers, assigned in zip(
        scores.total, scores.share, grid.answers_per_item, assigned_by_student, strict=True
    ):
        if not assigned.any():
            bounds.append(_NO_BOUNDS)
            continue
        task_items, possible_units = inside[assigned], possible[scored_tasks[assigned]] * answers
        ends = np.stack(
            mean_with_missing_at_ends(task_items @ total, task_items @ share, possible_units), axis=-1
        )
        by_task = {
            grid.tasks[task]: (least, most)
            for task, (least, most) in zip(scored_tasks[assigned], ends.tolist(), strict=True)
        }
        least, most = ends.mean(axis=0).tolist()
        bounds.append(_Bounds((least, most), by_task))
    return bounds


class _ScoredRows(NamedTuple):
    """Student, item and group of each row, (R,), below 0 where it is in no group; the sums of its scores, and
    their number, with answers that lack a factor."""

    student: Codes
    item: Codes
    group: Codes
    sums: RowSums
    units: Counts


def _student_group_means(
    grid: ScoreGrid, rows: _ScoredRows, names: Sequence[_Name], needed: Counts
) -> list[dict[_Name, Measured]]:
    """Compute each student's mean of each named group. ``needed`` (S, groups): the scores of one answer to
    each item; a group in which nobody needs a score is left out."""
    groups, inside = len(names), rows.group >= 0
    which = np.where(inside, rows.student.astype(np.int64) * groups + rows.group, -1)
    means = compute_group_means(which, rows.item, needed.size, grid.items.cluster, rows.sums)
    units = np.bincount(which[inside], rows.units[inside], needed.size).astype(np.int64)
    missing = grid.answers_per_item[:, None] * needed - units.reshape(needed.shape)
    possible = np.asarray(needed.any(axis=0), bool)
    return [
        {
            name: Measured.from_interval(means[student * groups + at], int(missing[student, at]))
            for at, name in enumerate(names)
            if possible[at]
        }
        for student in range(len(grid.students))
    ]


def _means_by_item_group(
    grid: ScoreGrid, group: Codes, names: Sequence[str], needed: Counts, scores: RowSums, units: Counts
) -> list[_Named]:
    """Compute each student's means over groups of items; a ``group`` below 0 is none."""
    students, items = units.shape
    student, item = np.repeat(np.arange(students), items), np.tile(np.arange(items), students)
    sums = RowSums(scores.total.ravel(), scores.share.ravel(), scores.units.ravel())
    rows = _ScoredRows(student, item, np.tile(group, students), sums, units.ravel())
    return _student_group_means(grid, rows, names, needed)


def _means_by_factor(grid: ScoreGrid) -> tuple[list[_Named], list[dict[str, _Named]]]:
    """Compute each student's means by factor, and by task and factor."""
    students, tasks, factors = len(grid.students), len(grid.tasks), len(grid.factors)
    sums = grid.sum_scores(equal_weights=True)
    items = np.bincount(grid.items.task, minlength=tasks)
    scores_per_answer = [[design.count_scores(name) for name in grid.factors] for design in grid.designs]
    needed = grid.student_task_assignments[:, :, None] * (
        items[:, None] * np.array(scores_per_answer, np.int64).reshape(tasks, factors)
    )
    part = grid.task.astype(np.int64) * factors + grid.factor
    parts = [(task, factor) for task in grid.tasks for factor in grid.factors]
    rows = _ScoredRows(grid.student, grid.item, part, sums, sums.units)
    by_part: list[dict[str, _Named]] = []
    for by_part_name in _student_group_means(grid, rows, parts, needed.reshape(students, len(parts))):
        by_part.append({task: {} for task in grid.tasks})
        for (task, factor), measured in by_part_name.items():
            by_part[-1][task][factor] = measured
    return _student_group_means(
        grid, rows._replace(group=grid.factor), grid.factors, needed.sum(axis=1)
    ), by_part


def _means_of_judge(grid: ScoreGrid, judge_code: int) -> list[_Named]:
    scores, judge = sum_student_item_scores(grid, judge_code), grid.judges[judge_code]
    due = np.array(
        [len(design.judged_factors) * (judge in design.judges) for design in grid.designs], np.int64
    )
    everything = np.zeros(len(grid.items.ids), np.int32)
    needed = _count_due_scores(grid, everything, 1, due[grid.items.task])
    return _means_by_item_group(grid, everything, (judge,), needed, scores, scores.units)


def _merge_by_student(grid: ScoreGrid, parts: Iterable[list[_Named]]) -> list[_Named]:
    merged: list[_Named] = [{} for _ in grid.students]
    for part in parts:
        for student, measures in zip(merged, part, strict=True):
            student.update(measures)
    return merged


def unadjusted_scores(grid: ScoreGrid, scores: RowSums) -> dict[str, StudentScores]:
    """Compute each student's recorded scores, before adjustment for unequal coverage."""
    tasks, means = len(grid.tasks), scores.mean
    needed = _count_due_scores(grid, grid.items.task, tasks, grid.scores_due)
    units = _sum_recorded_scores(grid, scores).units
    inside = grid.items.task[:, None] == np.arange(tasks)
    missing = grid.answers_per_item[:, None] * needed - units @ inside
    scores_by_student = {}
    for student, name in enumerate(grid.students):
        by_task = {
            task: Measured.from_interval(_mean_of_task(grid, means[student], at), int(missing[student, at]))
            for at, task in enumerate(grid.tasks)
            if needed[:, at].any()
        }
        score = Measured.from_interval(mean_over_tasks(grid, means[student]), int(missing[student].sum()))
        scores_by_student[name] = StudentScores(score, by_task, score, by_task)
    return scores_by_student


def _mean_of_task(grid: ScoreGrid, means: Floats, task: int, shift: float = 0.0) -> Interval:
    return mean_over_tasks(grid, np.where(grid.items.task == task, means, np.nan), shift)


def shift_student_scores(
    grid: ScoreGrid, item_means: Floats, recorded: StudentScores, shift_by_task: Mapping[str, float]
) -> StudentScores:
    """Shift one student's recorded scores and their intervals by task, and overall under "".
    ``item_means`` (I,): NaN where there is none."""
    by_task = {
        task: Measured.from_interval(
            _mean_of_task(grid, item_means, grid.tasks.index(task), shift), measured.missing
        )
        if (shift := shift_by_task.get(task, 0.0))
        else measured
        for task, measured in recorded.score_by_task.items()
    }
    score = recorded.score
    if shift := shift_by_task.get("", 0.0):
        score = Measured.from_interval(mean_over_tasks(grid, item_means, shift), score.missing)
    return msgspec.structs.replace(recorded, score=score, score_by_task=by_task)


def estimate_judge_scatters(
    grid: ScoreGrid, item_means: Floats, judge_scores: Sequence[Floats]
) -> dict[str, JudgeScatter | None]:
    """Estimate how much judges, in severity and leaning, add to each judged student's error.

    One variance is pooled over students; None if it cannot be estimated, as with one judge.
    ``item_means`` (S, I): NaN where there is none; judge scores as `average_judge_scores_over_factors`.
    """
    shares = [judged_share(design) for design in grid.designs]
    scatters: dict[str, JudgeScatter | None] = {}
    for student, name in enumerate(grid.students):
        own_cells = [
            JudgeValues(values[:, student], share) for values, share in zip(judge_scores, shares, strict=True)
        ]
        scored = np.unique(grid.items.task[np.isfinite(item_means[student])])
        tasks = [own_cells[task] for task in scored]
        if any(task.share > 0 for task in tasks):
            scatters[name] = estimate_judge_scatter(tasks)
    pooled = average_scatters(list(scatters.values()), 1)
    return {
        name: None if scatter is None or pooled is None else pooled._replace(judges=scatter.judges)
        for name, scatter in scatters.items()
    }


def widen_score_over_judges(score: Measured, scatter: JudgeScatter | None) -> Measured:
    if scatter is None or score.value is None or score.low is None or score.high is None or score.n is None:
        return Measured(None, None, None, score.n, None)
    bounds = widen_mean_bounds(score.value, Bounds(score.low, score.high), score.n, scatter)
    return Measured(score.value, *bounds, score.n, None)


def mean_over_tasks(grid: ScoreGrid, item_means: Floats, shift: float = 0.0) -> Interval:
    """Average over tasks the mean over items, moved by ``shift``. ``item_means`` (I,): NaN if none."""
    has_score = [np.isfinite(item_means) & (grid.items.task == task) for task in range(len(grid.tasks))]
    clusters = [grid.items.cluster[rows] for rows in has_score] if grid.items.alike is not None else None
    interval = mean_over_strata([item_means[rows] for rows in has_score], clusters=clusters)
    if not shift or interval.mean is None:
        return interval
    shift = min(max(interval.mean + shift, 0.0), 1.0) - interval.mean
    return mean_over_strata([item_means[rows] + shift for rows in has_score], clusters=clusters)
