"""What each student scored: the result of a run.

The mean of a (task, student) is item-first: over datapoints, of the mean over judges and factors; in tasks
with weights or checks each factor counts by its weight, by the mean over its judges.
So an item counts once, however many judges scored it. The headline is the mean over tasks of that.
Every mean carries its interval, its number of datapoints and units, and how many records failed:
a failure is never a score. Datapoints that nearly repeat each other are one cluster. Where some students
lack judges or items that others have, their order follows from what they share.

Where it is known what the run's configuration plans, only that is in the means of planned tasks.
Students and tasks that it no longer names keep their figures, marked; a task of these is in no
overall score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import singledispatch
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import (
    Bounds,
    Floats,
    Interval,
    bounds_of_missing,
    clustered_mean,
    mean_over_strata,
    wilson,
)
from coeval.analysis.measures.leaders import leader_sentences
from coeval.analysis.measures.pair_measures import measured_pairs, pair_strengths, read_comparisons
from coeval.analysis.measures.ranking import Ranking, ranking
from coeval.analysis.measures.score_grid import score_grid
from coeval.analysis.measures.student_measures import student_headlines
from coeval.analysis.people.people_measures import human_scores
from coeval.analysis.planned_names import Planned, Removed, removed_names
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import (
    LabelAccuracy,
    Results,
    StudentScore,
    label_tasks_sentence,
    model_costs,
)
from coeval.analysis.sampled_answers import sampled_scores
from coeval.core.errors import StoreError
from coeval.core.records import CHECK
from coeval.core.text import listed


def results(reader: Reader, notes: Sequence[str] = ()) -> Results:
    """The scores of what is read; ``notes``: what else is to be known of them."""
    try:
        costs = model_costs(reader.folder / "usage.json")
    except StoreError as error:
        costs, notes = (), (*notes, f"its cost is unknown: {error}")
    found = _scored(reader)
    return msgspec.structs.replace(found, notes=(*found.notes, *notes), costs=costs)


@singledispatch
def _scored(reader: Reader) -> Results:
    """A benchmark's own figures."""
    return Results((), (), simulated=reader.simulated, notes=reader.notes(), metrics=reader.metrics)


@_scored.register
def _(reader: RunReader) -> Results:
    scores = student_scores(reader)
    grid = score_grid(reader)
    students = student_headlines(grid)
    ranks = ranking(grid, students)
    return Results(
        students=_by_shared_scores(scores, ranks),
        leads=tuple(leader_sentences(students, ranks, grid.looks)) if len(ranks.order) > 1 else (),
        labels=label_accuracies(reader),
        sampled=sampled_scores(reader),
        simulated=reader.simulated,
        notes=(*label_task_notes(reader), *unscored_notes(reader), *reader.notes()),
        left_out=reader.left_out,
        beyond_total=reader.beyond_total,
        pairs=pair_strengths(measured_pairs(read_comparisons(reader))),
        people=human_scores(reader),
        checks_alone=reader.rows(_ALL_CHECKED) == [(True,)],
    )


class _Sums(NamedTuple):
    """Of valid scores: their sum, that of their shares in it, and their number."""

    total: float
    share: float
    units: int


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
    items: dict[tuple[str, str], ItemMeans] = {}
    sums: dict[tuple[str, str], _Sums] = {}
    for task, student, means, names, *found in reader.rows(_ITEM_MEANS.format(names=reader.names_sql)):
        items[task, student] = ItemMeans(np.array(means, np.float64), reader.clusters_of(names))
        sums[task, student] = _Sums(*found)
    possible: dict[str, float] = dict(reader.rows(_POSSIBLE))
    samples = reader.samples
    counting = [task for task in possible if "task" not in removed_names(reader.planned, "", task)]
    by_task: list[StudentScore] = []
    tasks_of: defaultdict[str, list[StudentScore]] = defaultdict(list)
    for task, student, *counted in reader.rows(_COUNTS):
        interval = mean_of_items([items.get((task, student), NO_ITEMS)])
        counts = _Counts(sums.get((task, student), _NO_SUMS).units, *counted)
        bounds = _bounds(student, [task], sums, _times(possible, samples[student])) if interval.n else None
        score = _score(student, task, interval, bounds, counts, removed_names(reader.planned, student, task))
        by_task.append(score)
        tasks_of[student].append(score)
    overall = []
    for student, scores in tasks_of.items():
        planned = [score for score in scores if "task" not in score.removed]
        interval = mean_of_items([items.get((score.task or "", student), NO_ITEMS) for score in planned])
        own = [task for task in counting if _does(reader.planned, student, task) or (task, student) in sums]
        bounds = _bounds(student, own, sums, _times(possible, samples[student])) if interval.n else None
        removed = removed_names(reader.planned, student)
        score = _score(student, None, interval, bounds, _sum(planned), removed)
        overall.append(msgspec.structs.replace(score, partial=len(own) < len(counting)))
    absent = _planned_students(reader.planned) - tasks_of.keys() if tasks_of else ()
    overall += [_score(student, None, mean_over_strata([]), None, _sum([]), ()) for student in absent]
    ordered = sorted(overall, key=_rank) + sorted(by_task, key=_rank)
    return tuple(msgspec.structs.replace(each, samples=samples.get(each.student, 1)) for each in ordered)


_NO_SUMS = _Sums(0.0, 0.0, 0)


def _times(possible: Mapping[str, float], samples: int) -> dict[str, float]:
    return {task: count * samples for task, count in possible.items()}


def _bounds(
    student: str,
    tasks: Sequence[str],
    sums: Mapping[tuple[str, str], _Sums],
    possible: Mapping[str, float],
) -> Bounds | None:
    """What the mean over tasks would be with all that is missing at 0, and at 1; None without a task in
    which anybody has a score."""
    found = [
        bounds_of_missing(*sums.get((task, student), _NO_SUMS)[:2], possible[task])
        for task in tasks
        if task in possible
    ]
    return Bounds(*map(fmean, zip(*found, strict=True))) if found else None


def _does(planned: Planned | None, student: str, task: str) -> bool:
    return planned is None or planned.does(student, task)


class ItemMeans(NamedTuple):
    """Of some items, (n,): the means of their scores, and their clusters, None where all are independent."""

    means: Floats
    clusters: NDArray[np.int64] | None = None


def mean_of_items(strata: Sequence[ItemMeans]) -> Interval:
    """Over strata that count alike."""
    known = [one for one in strata if len(one.means)]
    of = [np.arange(len(one.means)) if one.clusters is None else one.clusters for one in known]
    alone = all(one.clusters is None for one in known)
    return mean_over_strata([one.means for one in known], clusters=None if alone else of)


def share_of_items(right: Sequence[bool], clusters: NDArray[np.int64] | None) -> Interval:
    """How many of the items are right; Wilson's interval where no two are in one cluster."""
    if clusters is None or len(np.unique(clusters)) == len(right):
        return wilson(sum(right), len(right))
    found = clustered_mean(np.array(right, np.float64), clusters)
    return msgspec.structs.replace(found, n=len(right))


def _by_shared_scores(scores: tuple[StudentScore, ...], ranks: Ranking) -> tuple[StudentScore, ...]:
    """The same where all students have the same scores; else adjusted, and ordered by that."""
    if not ranks.adjusted:
        return scores

    def adjusted(score: StudentScore) -> StudentScore:
        found = ranks.scores.get(score.student)
        if found is None:
            return score
        one = found.headline if score.task is None else found.headline_by_task.get(score.task)
        return msgspec.structs.replace(score, adjusted=one.value) if one is not None else score

    found = [adjusted(score) for score in scores]
    return tuple(sorted(found, key=lambda score: (score.task is not None, _rank(score))))


def _planned_students(planned: Planned | None) -> Set[str]:
    return planned.students or frozenset() if planned is not None else frozenset()


def label_accuracies(reader: RunReader) -> tuple[LabelAccuracy, ...]:
    """Per task, student and label attribute; labels never enter the rubric's means."""
    accuracies = []
    items = {(task, attribute): count for task, attribute, count in reader.rows(_LABELLED)}
    found = reader.rows(_LABELS.format(names=reader.names_sql))
    for task, student, attribute, names, right, none, n, failed in found:
        share, correct = share_of_items(right, reader.clusters_of(names)), sum(right)
        removed = removed_names(reader.planned, student, task, attribute)
        figures = (share.mean, share.low, share.high, n, correct)
        possible = max(items.get((task, attribute), 0) * reader.samples[student], n)
        least, most = bounds_of_missing(float(correct), float(n), float(possible)) if n else (None, None)
        accuracies.append(
            LabelAccuracy(task, student, attribute, *figures, removed, none, failed, least, most)
        )
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


def label_task_notes(reader: RunReader) -> Iterator[str]:
    """Say how many items no score is of, as their tasks have labels alone; nothing where all have."""
    found = [
        (task, items, scored, labelled)
        for task, items, scored, labelled in reader.rows(_OF_TASKS)
        if "task" not in removed_names(reader.planned, "", task)
    ]
    of_scores = sum(items for _, items, scored, _ in found if scored)
    alone = {task: items for task, items, scored, labelled in found if labelled and not scored}
    if of_scores and alone:
        yield label_tasks_sentence(of_scores, alone)


def unscored_notes(reader: RunReader) -> Iterator[str]:
    """Name the factors that all answers of a student lack, so that it has no score in a task."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for task, student, scored in reader.rows(_UNSCORED) if reader.weighed else ():
        lacking = tuple(sorted(reader.weighed.get(task, {}).keys() - {*scored}))
        if not removed_names(reader.planned, student, task):
            alike.setdefault((task, lacking), []).append(student)
    for (task, lacking), students in alike.items():
        yield (
            f"{listed(students)}: no score in {task}, because no answer is scored in "
            f"{listed(lacking) or 'every factor'}."
        )


NO_ITEMS = ItemMeans(np.empty(0))

_ALL_CHECKED = f"SELECT bool_and(judge = '{CHECK}') FROM scores WHERE value IS NOT NULL"  # noqa: S608 - ours

_OF_TASKS = """
SELECT task, count(*), task IN (SELECT task FROM scores WHERE value IS NOT NULL),
       task IN (SELECT task FROM labels)
FROM items WHERE NOT failed GROUP BY task ORDER BY task
"""

_ITEM_MEANS = """
SELECT task, model, coalesce(list(mean ORDER BY item) FILTER (mean IS NOT NULL), []),
       {names} FILTER (mean IS NOT NULL), sum(total), sum(part), sum(count)::BIGINT
FROM (
    SELECT task, model, item, sum(value * share) / sum(share) AS mean,
           sum(value * part) AS total, sum(part) AS part, count(*) AS count
    FROM weighed_scores WHERE value IS NOT NULL GROUP BY ALL
)
GROUP BY ALL
"""

_UNSCORED = """
SELECT task, model, list(DISTINCT metric) FROM weighed_scores WHERE value IS NOT NULL
GROUP BY task, model HAVING count(share) = 0 ORDER BY task, model
"""

# By task, how many scores a student would have that lacks none: of each item, by each judge and factor that
# anybody has a score of; where factors are weighted, the sum of the weights of these.
_POSSIBLE = """
SELECT task, (each * items)::DOUBLE FROM (
    SELECT task, coalesce(sum(weight), count(*) * len(list_distinct(flatten(list(judges))))) AS each
    FROM (
        SELECT task, metric, any_value(factor_weight) AS weight, list(DISTINCT judge) AS judges
        FROM weighed_scores WHERE value IS NOT NULL GROUP BY task, metric
    )
    GROUP BY task
) JOIN (SELECT task, count(*) AS items FROM items WHERE NOT failed GROUP BY task) USING (task)
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
    SELECT task, model, attribute, {names} AS items, list(match ORDER BY item) AS matches,
           count(*) FILTER (predicted IS NULL) AS none_of_them, count(*) AS n
    FROM labels GROUP BY ALL
), answered AS (
    SELECT task, model, count(*) FILTER (failed) AS failed FROM answers GROUP BY ALL
)
SELECT task, model, attribute, items, coalesce(matches, []), coalesce(none_of_them, 0), coalesce(n, 0),
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


# By task and attribute, the items that have a value of it.
_LABELLED = """
SELECT task, entry.key, count(*)
FROM (SELECT task, unnest(map_entries(attributes)) AS entry FROM items WHERE NOT failed)
WHERE entry.value IS NOT NULL GROUP BY ALL
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
    student: str,
    task: str | None,
    interval: Interval,
    bounds: Bounds | None,
    counts: _Counts,
    removed: Removed,
) -> StudentScore:
    least, most = bounds or (None, None)
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
        least=least,
        most=most,
    )


def _rank(score: StudentScore) -> tuple[bool, str, bool, bool, bool, float, str]:
    """By task, then best first, unscored students last, ties by name; who is to do some tasks only after
    those who do all, what is removed after the rest."""
    return (
        "task" in score.removed,
        score.task or "",
        "student" in score.removed,
        score.mean is None,
        score.partial,
        -(score.adjusted if score.adjusted is not None else score.mean or 0.0),
        score.student,
    )
