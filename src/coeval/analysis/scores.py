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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.measures.label_measures import label_measures
from coeval.analysis.measures.leaders import leader_sentences
from coeval.analysis.measures.measured import NOT_MEASURED
from coeval.analysis.measures.pair_measures import (
    group_sentences,
    measured_pairs,
    pair_strengths,
    read_comparisons,
)
from coeval.analysis.measures.ranking import ranking
from coeval.analysis.measures.score_grid import ScoreGrid, has_task, score_grid, with_removed
from coeval.analysis.measures.student_measures import (
    ScoreBounds,
    StudentScores,
    item_scores,
    mean_scores,
    score_bounds,
)
from coeval.analysis.people.people_measures import human_scores
from coeval.analysis.planned_names import removed_names
from coeval.analysis.readers.output_reader import OutputReader
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
from coeval.analysis.training.sample_figures import metric_scores, task_figures
from coeval.core.errors import StoreError
from coeval.core.records import CHECK
from coeval.core.text import listed, numbered
from coeval.store.rundir import PAIRS


def results(reader: Reader, notes: Sequence[str] = ()) -> Results:
    """The scores of what is read; ``notes``: what else is to be known of them."""
    try:
        costs = model_costs(reader.folder / "usage.json")
    except StoreError as error:
        costs, notes = (), (*notes, f"its cost is unknown: {error}")
    found = _scored(reader)
    return msgspec.structs.replace(found, notes=(*found.notes, *notes), costs=costs, served=reader.served())


@singledispatch
def _scored(reader: Reader) -> Results:
    raise NotImplementedError(type(reader).__name__)


@_scored.register
def _(reader: OutputReader) -> Results:
    """A benchmark's own figures."""
    figures = task_figures(reader)
    scored = {(one.task, one.sample) for one in reader.metrics if one.value is not None}
    left_out = [
        f"run_{left.run} {task} is left out: {left.why}"
        for task, found in figures.items()
        for left in found.runs.left_out
        if (task, left.run) in scored
    ]
    notes, metrics = (*reader.notes(), *left_out), metric_scores(reader, figures)
    return Results((), (), simulated=reader.simulated, notes=notes, metrics=metrics)


@_scored.register
def _(reader: RunReader) -> Results:
    grid = score_grid(reader)
    ranks, scores = ranking(grid)
    pairs = measured_pairs(read_comparisons(reader))
    leads = leader_sentences(scores, ranks, grid.looks) if ranks.order else ()
    return Results(
        students=student_scores(reader, grid, scores),
        leads=(*(group_sentences(pairs) if pairs is not None else ()), *leads),
        labels=label_accuracies(reader, with_removed(reader, grid).students),
        sampled=sampled_scores(reader, grid),
        simulated=reader.simulated,
        notes=(*label_task_notes(reader), *unscored_notes(reader, grid), *reader.notes()),
        left_out=reader.left_out,
        beyond_total=reader.beyond_total,
        pairs=pair_strengths(pairs),
        people=human_scores(reader),
        checks_alone=reader.rows(_ALL_CHECKED) == [(True,)],
    )


class _Counts(NamedTuple):
    failed: int = 0
    answers: int = 0
    truncated: int = 0
    truncated_by_window: int = 0
    empty: int = 0
    empty_truncated: int = 0


def student_scores(
    reader: RunReader, grid: ScoreGrid, scores: Mapping[str, StudentScores]
) -> tuple[StudentScore, ...]:
    """Overall and per-task scores of every student with a recorded response; those of the plan who have
    none stand there too, without a score. ``grid``: the scores that count; ``scores``: those of its
    students."""
    planned = reader.planned
    counted: defaultdict[str, dict[str, _Counts]] = defaultdict(dict)
    for task, student, *counts in reader.rows(_COUNTS):
        counted[student][task] = _Counts(*counts)
    if not counted:
        return ()
    everything = with_removed(reader, grid)
    due = [place for place, task in enumerate(everything.tasks) if has_task(planned, task)]
    whole = everything.kept(np.isin(everything.items.task, due))
    does = np.asarray(whole.does[:, np.unique(whole.task)].all(axis=1))
    of_tasks, overall = _figures(everything, scores), _figures(whole, scores)
    expected = (planned and planned.students) or frozenset()
    found = []
    for place, student in enumerate(everything.students):
        if student not in counted and student not in expected:
            continue  # its answers are to no item that is there
        by_task = counted[student]
        in_all = [count for task, count in by_task.items() if has_task(planned, task)]
        one = _score(student, None, overall[student], _Counts(*map(sum, zip(*in_all, strict=True))))
        names = removed_names(planned, student)
        found.append(replace(one, removed=names, partial=not does[place]))
        for task, count in by_task.items():
            one = _score(student, task, of_tasks[student], count)
            found.append(replace(one, removed=removed_names(planned, student, task)))
    times = [replace(one, samples=reader.samples.get(one.student, 1)) for one in found]
    return tuple(sorted(times, key=lambda score: (score.task is not None, _rank(score))))


class _Figures(NamedTuple):
    """A student's means, what they might be with all that is missing, and its valid scores by task."""

    means: StudentScores
    bounds: ScoreBounds
    units: Mapping[str, int]


def _figures(grid: ScoreGrid, scores: Mapping[str, StudentScores]) -> dict[str, _Figures]:
    every, recorded = item_scores(grid, whole=False), mean_scores(grid, item_scores(grid).mean)
    means = {name: _joined(one, scores.get(name)) for name, one in recorded.items()}
    found = {}
    for student, bounds, units in zip(grid.students, score_bounds(grid, every), every.units, strict=True):
        by_task = np.bincount(grid.items.task, units, len(grid.tasks)).astype(np.int64).tolist()
        found[student] = _Figures(means[student], bounds, dict(zip(grid.tasks, by_task, strict=True)))
    return found


def _joined(recorded: StudentScores, own: StudentScores | None) -> StudentScores:
    """A student's scores, and what is recorded of tasks that the configuration no longer names."""
    if own is None:
        return recorded
    by_task = {**recorded.score_by_task, **own.score_by_task}
    return msgspec.structs.replace(recorded, score=own.score, score_by_task=by_task)


def _score(student: str, task: str | None, found: _Figures, counts: _Counts) -> StudentScore:
    if task is None:
        score, recorded = found.means.score, found.means.mean_recorded
        bounds, units = found.bounds.score, sum(found.units.values())
    else:
        score = found.means.score_by_task.get(task, NOT_MEASURED)
        recorded = found.means.mean_recorded_by_task.get(task, NOT_MEASURED)
        bounds, units = found.bounds.score_by_task.get(task), found.units.get(task, 0)
    least, most = bounds if bounds is not None and score.value is not None else (None, None)
    return StudentScore(
        student,
        task,
        score.value,
        score.low,
        score.high,
        score.n or 0,
        units,
        **counts._asdict(),
        least=least,
        most=most,
        mean_recorded=recorded.value,
    )


def label_accuracies(reader: RunReader, students: Sequence[str]) -> tuple[LabelAccuracy, ...]:
    """Per task, student and label attribute; labels never enter the rubric's means."""
    failed: dict[tuple[str, str], int] = {(task, name): n for task, name, n in reader.rows(_FAILED)}
    found = []
    for task, attributes in label_measures(reader, students, removed=True).items():
        for attribute, measures in attributes.items():
            for student, one in measures.students.items():
                lost, n = failed.get((task, student), 0), one.accuracy.n or 0
                if n or lost:
                    removed = removed_names(reader.planned, student, task, attribute)
                    figures = (*one.accuracy[:3], n, one.correct, removed, one.none_of_the_labels, lost)
                    bounds = one.bounds.accuracy or (None, None)
                    found.append(LabelAccuracy(task, student, attribute, *figures, *bounds))
    return tuple(
        sorted(
            found,
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


def unscored_notes(reader: RunReader, grid: ScoreGrid) -> Iterator[str]:
    """Report that all failed; name the factors that all answers of a student lack, so that it has no score
    in a task."""
    [(known, *failed)] = reader.rows(_FAILURES)
    lost = [numbered(n, noun) for n, noun in zip(failed, ("answer", "judgment"), strict=True) if n]
    if lost and not known and not reader.run.files(PAIRS):
        yield f"No scores: {' and '.join(lost)} failed."
    counts, scored = grid.sums().units > 0, grid.scored
    for place, (task, design) in enumerate(zip(grid.tasks, grid.designs, strict=True)):
        alike: dict[tuple[str, ...], list[str]] = {}
        for at, student in enumerate(grid.students if design.weights else ()):
            rows = (grid.task == place) & (grid.student == at) & scored
            if rows.any() and not counts[rows].any():
                found = {grid.factors[factor] for factor in np.unique(grid.factor[rows])}
                alike.setdefault(tuple(sorted(design.factors - found)), []).append(student)
        for lacking, students in alike.items():
            yield (
                f"{listed(students)}: no score in {task}, because no answer is scored in "
                f"{listed(lacking) or 'every factor'}."
            )


_ALL_CHECKED = f"SELECT bool_and(judge = '{CHECK}') FROM scores WHERE value IS NOT NULL"  # noqa: S608 - ours

_FAILURES = """
SELECT (SELECT count(*) FROM scores WHERE value IS NOT NULL) + (SELECT count(*) FROM labels),
       (SELECT count(*) FROM answers WHERE failed), (SELECT count(*) FROM judgments WHERE failed)
"""

_OF_TASKS = """
SELECT task, count(*), task IN (SELECT task FROM scores WHERE value IS NOT NULL),
       task IN (SELECT task FROM labels)
FROM items WHERE NOT failed GROUP BY task ORDER BY task
"""

_COUNTS = """
SELECT task, model, sum(failed)::BIGINT, sum(answer)::BIGINT, sum(truncated)::BIGINT,
       sum(windowed)::BIGINT, sum(empty)::BIGINT, sum(empty_truncated)::BIGINT
FROM (
    SELECT task, model, failed::INTEGER AS failed, (NOT failed)::INTEGER AS answer,
           (truncated AND NOT failed)::INTEGER AS truncated,
           (windowed AND NOT failed)::INTEGER AS windowed, (empty AND NOT failed)::INTEGER AS empty,
           (empty AND truncated AND NOT failed)::INTEGER AS empty_truncated
    FROM answers
    UNION ALL
    SELECT task, model, 1, 0, 0, 0, 0, 0 FROM judgments WHERE failed
    UNION ALL
    SELECT task, model, 1, 0, 0, 0, 0, 0 FROM scores WHERE value IS NULL
)
GROUP BY ALL ORDER BY ALL
"""

_FAILED = "SELECT task, model, count(*) FROM answers WHERE failed GROUP BY ALL"


def _rank(score: StudentScore) -> tuple[bool, str, bool, bool, bool, float, str]:
    """By task, then best first, unscored students last, ties by name; who is to do some tasks only after
    those who do all, what is removed after the rest."""
    return (
        "task" in score.removed,
        score.task or "",
        "student" in score.removed,
        score.score is None,
        score.partial,
        -(score.score or 0.0),
        score.student,
    )
