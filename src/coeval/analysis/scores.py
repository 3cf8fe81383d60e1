"""What each student scored: the result of a run.

The mean of a (task, student) is item-first: over datapoints, of the mean over judges and factors.
So an item counts once, however many judges scored it. The headline is the mean over tasks of that.
Every mean carries its interval, its number of datapoints and units, and how many records failed:
a failure is never a score.

Where it is known what the run's configuration plans, only that is in the means of planned tasks.
Students and tasks that it no longer names keep their figures, marked; a task of these is in no
overall score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats, Interval, clustered_mean, mean_over_strata, wilson
from coeval.analysis.planned_names import BeyondTotal, LeftOut, Planned, Removed, removed_names
from coeval.analysis.readers.output_reader import MetricScore, OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.results_html import results_html, with_interval
from coeval.core.columns import Columns, columns


class StudentScore(msgspec.Struct, frozen=True):
    """A student's mean score, 0 to 1, in one task, or (``task`` None) over the tasks it has scores in.

    ``n`` counts datapoints, ``units`` valid (response, factor, judge) scores. ``failed`` counts
    failed responses, failed evaluations, and factors a judge was asked for and did not score.
    ``answers`` counts the responses that did not fail, ``truncated`` those of them that were cut off,
    ``empty`` those without any text, of which ``empty_truncated`` were cut off.

    ``low`` and ``high`` are its 95 % interval (`intervals.mean_bounds`), None where there is no score.
    """

    student: str
    task: str | None
    mean: float | None
    low: float | None
    high: float | None
    n: int
    units: int
    failed: int
    answers: int = 0
    truncated: int = 0
    empty: int = 0
    empty_truncated: int = 0
    removed: Removed = ()


class LabelAccuracy(msgspec.Struct, frozen=True):
    """Share of a student's n answers whose label is the datapoint's, with its Wilson interval.

    ``none_of_the_labels`` counts those that stated no label, or several, and are wrong; ``failed`` the
    student's failed responses, which are not among the n.
    """

    task: str
    student: str
    attribute: str
    accuracy: float | None
    low: float | None
    high: float | None
    n: int
    correct: int
    removed: Removed = ()
    none_of_the_labels: int = 0
    failed: int = 0


class Results(msgspec.Struct, frozen=True):
    """What is in a folder, as `coeval.Run.results()` returns it: a run's scores, or the ``metrics`` of an
    output folder of ``eval-framework``, by task and sample.

    ``students``: first the overall scores, then those of each task by name; each best first, ties
    by name. ``labels``: by task and attribute, best first. What is removed stands after what is
    planned. ``left_out``: teachers, judges and factors of planned tasks that the configuration no
    longer holds, and that therefore count nowhere; nor do the items ``beyond_total``. ``notes``: what of
    the records could not be counted. ``missing``: what of the plan is not there, one sentence each.
    ``metrics`` are those of an output folder of ``eval-framework``, which has no students or labels.
    """

    students: tuple[StudentScore, ...]
    labels: tuple[LabelAccuracy, ...]
    simulated: bool
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    beyond_total: tuple[BeyondTotal, ...] = ()
    metrics: tuple[MetricScore, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def only_labelled(self) -> frozenset[str]:
        """The tasks in which labels were compared and nothing was scored."""
        scored = {score.task for score in self.students if score.mean is not None}
        return frozenset(label.task for label in self.labels) - scored

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: a key for each field, a list of mappings for each tuple of records.

        The keys of a score are the fields of `StudentScore`, those of an accuracy the fields of
        `LabelAccuracy`; what there is no value for is None.
        """
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def table(self) -> Columns:
        """The scores as columns, for ``pandas.DataFrame`` or ``polars.DataFrame``: a row for each of
        ``students``, a column for each field of `StudentScore`; ``task`` is None for overall scores."""
        return columns(StudentScore, self.students)

    def label_table(self) -> Columns:
        """The label accuracies likewise: a column for each field of `LabelAccuracy`."""
        return columns(LabelAccuracy, self.labels)

    def metric_table(self) -> Columns:
        """The metrics likewise: a column for each field of `MetricScore`."""
        return columns(MetricScore, self.metrics)

    def __repr__(self) -> str:
        overall = [score for score in self.students if score.task is None]
        named = [f"{score.student!r} {self._headline(score)}" for score in overall]
        named += [f"{metric.task} {metric.metric} {metric.value}" for metric in self.metrics]
        shown = named[:3]
        rest = len(named) - len(shown)
        return f"Results({', '.join(shown + [f'{rest} more'] * bool(rest))})"

    def _headline(self, overall: StudentScore) -> str:
        """A student's score, or where there is none, its first label's accuracy."""
        if (score := with_interval(overall.mean, overall.low, overall.high)) is not None:
            return score
        for label in self.labels:
            if label.student == overall.student:
                accuracy = with_interval(label.accuracy, label.low, label.high)
                return f"{label.task} {label.attribute} {accuracy}"
        return "unscored"

    def _repr_html_(self) -> str:
        return results_html(self)


def results(reader: Reader, notes: Sequence[str] = ()) -> Results:
    """The scores of what is read; ``notes``: what else is to be known of them."""
    if isinstance(reader, OutputReader):
        return Results((), (), simulated=False, notes=(*reader.notes(), *notes), metrics=reader.metrics)
    if not isinstance(reader, RunReader):
        raise TypeError(f"nobody scores what a {type(reader).__name__} reads")
    return Results(
        students=student_scores(reader),
        labels=label_accuracies(reader),
        simulated=reader.simulated,
        notes=(*reader.notes(), *notes),
        left_out=reader.left_out,
        beyond_total=reader.beyond_total,
    )


class _Counts(NamedTuple):
    units: int
    failed: int
    answers: int
    truncated: int
    empty: int
    empty_truncated: int


def student_scores(reader: RunReader) -> tuple[StudentScore, ...]:
    """Overall and per-task scores of every student with a recorded response; those of the plan who have
    none stand there too, without a score."""
    items: dict[tuple[str, str], Floats] = {}
    units: dict[tuple[str, str], int] = {}
    for task, student, means, count in reader.rows(_ITEM_MEANS):
        items[task, student] = np.array(means)
        units[task, student] = count
    by_task: list[StudentScore] = []
    tasks_of: defaultdict[str, list[StudentScore]] = defaultdict(list)
    for task, student, *counted in reader.rows(_COUNTS):
        means = items.get((task, student), _NOTHING)
        interval = clustered_mean(means, np.arange(len(means)))
        counts = _Counts(units.get((task, student), 0), *counted)
        score = _score(student, task, interval, counts, removed_names(reader.planned, student, task))
        by_task.append(score)
        tasks_of[student].append(score)
    overall = []
    for student, scores in tasks_of.items():
        planned = [score for score in scores if "task" not in score.removed]
        interval = mean_over_strata([items.get((score.task or "", student), _NOTHING) for score in planned])
        overall.append(_score(student, None, interval, _sum(planned), removed_names(reader.planned, student)))
    absent = _planned_students(reader.planned) - tasks_of.keys() if tasks_of else ()
    overall += [_score(student, None, mean_over_strata([]), _sum([]), ()) for student in absent]
    return tuple(sorted(overall, key=_rank) + sorted(by_task, key=_rank))


def _planned_students(planned: Planned | None) -> Set[str]:
    return planned.students or frozenset() if planned is not None else frozenset()


def label_accuracies(reader: RunReader) -> tuple[LabelAccuracy, ...]:
    """Per task, student and label attribute; labels never enter the rubric's means."""
    accuracies = []
    for task, student, attribute, correct, none, n, failed in reader.rows(_LABELS):
        share = wilson(correct, n)
        removed = removed_names(reader.planned, student, task, attribute)
        figures = (share.mean, share.low, share.high, n, correct)
        accuracies.append(LabelAccuracy(task, student, attribute, *figures, removed, none, failed))
    return tuple(
        sorted(
            accuracies,
            key=lambda a: (
                bool(a.removed),
                a.task,
                a.attribute,
                a.accuracy is None,
                -(a.accuracy or 0.0),
                a.student,
            ),
        )
    )


_NOTHING: Floats = np.empty(0)

_ITEM_MEANS = """
SELECT task, model, list(mean ORDER BY item), sum(count)::BIGINT
FROM (
    SELECT task, model, item, avg(value) AS mean, count(*) AS count
    FROM scores WHERE value IS NOT NULL GROUP BY ALL
)
GROUP BY ALL
"""

_COUNTS = """
SELECT task, model, sum(failed)::BIGINT, sum(answer)::BIGINT, sum(truncated)::BIGINT,
       sum(empty)::BIGINT, sum(empty_truncated)::BIGINT
FROM (
    SELECT task, model, failed::INTEGER AS failed, (NOT failed)::INTEGER AS answer,
           (truncated AND NOT failed)::INTEGER AS truncated, (empty AND NOT failed)::INTEGER AS empty,
           (empty AND truncated AND NOT failed)::INTEGER AS empty_truncated
    FROM answers
    UNION ALL
    SELECT task, model, 1, 0, 0, 0, 0 FROM judgments WHERE failed
    UNION ALL
    SELECT task, model, 1, 0, 0, 0, 0 FROM scores WHERE value IS NULL
)
GROUP BY ALL ORDER BY ALL
"""

_LABELS = """
WITH compared AS (
    SELECT task, model, attribute, count(*) FILTER (match) AS correct,
           count(*) FILTER (predicted IS NULL) AS none_of_them, count(*) AS n
    FROM labels GROUP BY ALL
), answered AS (
    SELECT task, model, count(*) FILTER (failed) AS failed FROM answers GROUP BY ALL
)
SELECT task, model, attribute, coalesce(correct, 0), coalesce(none_of_them, 0), coalesce(n, 0),
       coalesce(failed, 0)
FROM (
    SELECT * FROM compared
    UNION ALL BY NAME
    -- whose every answer failed stands there all the same
    SELECT task, model, attribute FROM answered
    JOIN (SELECT DISTINCT task, attribute FROM compared) USING (task)
    WHERE failed > 0 AND (task, model) NOT IN (SELECT (task, model) FROM compared)
)
LEFT JOIN answered USING (task, model)
"""


def _sum(scores: Sequence[StudentScore]) -> _Counts:
    return _Counts(
        sum(score.units for score in scores),
        sum(score.failed for score in scores),
        sum(score.answers for score in scores),
        sum(score.truncated for score in scores),
        sum(score.empty for score in scores),
        sum(score.empty_truncated for score in scores),
    )


def _score(
    student: str, task: str | None, interval: Interval, counts: _Counts, removed: Removed
) -> StudentScore:
    return StudentScore(
        student=student,
        task=task,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        n=interval.n,
        units=counts.units,
        failed=counts.failed,
        answers=counts.answers,
        truncated=counts.truncated,
        empty=counts.empty,
        empty_truncated=counts.empty_truncated,
        removed=removed,
    )


def _rank(score: StudentScore) -> tuple[bool, str, bool, bool, float, str]:
    """By task, then best first, unscored students last, ties by name; what is removed after the rest."""
    return (
        "task" in score.removed,
        score.task or "",
        "student" in score.removed,
        score.mean is None,
        -(score.mean or 0.0),
        score.student,
    )
