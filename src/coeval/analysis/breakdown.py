"""What students' scores are made of: their means by factor, sampled attribute, judge or teacher; and label
accuracies by sampled attribute or teacher.

The mean of a part is item-first, as the score itself is: over datapoints, of the mean over those of the
datapoint's scores that belong to the part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.intervals import NOTHING, Interval, share_of_items
from coeval.analysis.measures.score_grid import ScoreGrid, has_task, with_removed
from coeval.analysis.measures.student_measures import ItemScores, item_scores, mean_over_tasks
from coeval.analysis.planned_names import Planned, Removed, removed_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import CHECK

By: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]


class PartScore(msgspec.Struct, frozen=True):
    """A student's mean score, 0 to 1, in one part of a task, with its 95% interval over n datapoints.

    ``task`` None: over the tasks, each counting alike; only judges and teachers are the same ones in
    several tasks. ``units`` counts valid (response, factor, judge) scores. ``failed`` counts the
    responses, evaluations and factors without a score, where it is known that they belong to the part:
    a failed response belongs to no judge and no factor.
    """

    by: By
    task: str | None
    part: str
    student: str
    score: float | None
    low: float | None
    high: float | None
    n: int
    units: int
    failed: int
    removed: Removed = ()


class LabelPart(msgspec.Struct, frozen=True):
    """The share of a student's n answers to one part of a task that state the right label, with its Wilson
    interval; ``none_of_the_labels`` of them state none, or several."""

    by: By
    task: str
    part: str
    student: str
    label: str
    accuracy: float | None
    low: float | None
    high: float | None
    n: int
    correct: int
    none_of_the_labels: int
    removed: Removed = ()


class Parts(NamedTuple):
    """What scores are made of, and what label accuracies are made of."""

    scores: tuple[PartScore, ...]
    labels: tuple[LabelPart, ...]


class _Cell(NamedTuple):
    task: str | None
    part: str
    student: str


class _Found(NamedTuple):
    """What a place holds: the mean over its datapoints, and its valid scores."""

    mean: Interval
    units: int


_NOTHING = _Found(NOTHING, 0)


def breakdown(reader: RunReader, by: By) -> tuple[PartScore, ...]:
    """The scores of all parts: over all tasks first, where parts go through them, then by task; by the
    part's name, and best first. What is over all tasks leaves out tasks that the configuration has lost."""
    grid, planned = with_removed(reader), reader.planned
    failed = Counter({_Cell(task, part, student): n for task, part, student, n in reader.rows(_failures(by))})
    found: dict[_Cell, _Found] = {}
    for name, scores in _parts(grid, by):
        for task in np.unique(grid.items.task[scores.units.any(axis=0)]).tolist():
            found |= _of_part(grid, _Cell(grid.tasks[task], name, ""), scores, [task])
    scored = {place.task for place, one in found.items() if one.units}
    labelled = {task for (task,) in reader.rows("SELECT DISTINCT task FROM labels")}
    for task in labelled - scored:  # nobody judges there: an answer that failed lacks no score
        failed = Counter({place: n for place, n in failed.items() if place.task != task})
    counting = {place.task for place in (*found, *failed)} & {*filter(partial(has_task, planned), grid.tasks)}
    if by in ("judge", "teacher") and len(counting) > 1:
        due = [grid.tasks.index(task) for task in counting]
        for name, scores in _parts(grid, by):
            found |= _of_part(grid, _Cell(None, name, ""), scores, due)
        for place in [place for place in failed if place.task in counting]:
            failed[place._replace(task=None)] += failed[place]
    places = {**found, **failed}
    return tuple(
        sorted((_score(planned, by, one, found.get(one, _NOTHING), failed[one]) for one in places), key=_rank)
    )


def _parts(grid: ScoreGrid, by: By) -> Iterator[tuple[str, ItemScores]]:
    """The scores of each part. A judge's, and those of a factor, count whatever else the answer lacks."""
    match by:
        case "factor":
            for place, name in enumerate(grid.factors):
                yield name, item_scores(grid.of_rows(grid.factor == place), whole=False)
        case "judge":
            for place, name in enumerate(grid.judges):
                yield name, item_scores(grid, place)
            if grid.checked is not None:
                yield CHECK, item_scores(grid.judged_by([]), whole=False)
        case "teacher":
            scores = item_scores(grid)
            for place, name in enumerate(grid.teachers):
                yield name, scores.of_items(grid.items.teacher == place)
        case "attribute":
            scores = item_scores(grid)
            for name, items in grid.items.attributes.items():
                yield name, scores.of_items(np.isin(np.arange(len(grid.items.ids)), items))


def _of_part(grid: ScoreGrid, place: _Cell, scores: ItemScores, tasks: Sequence[int]) -> dict[_Cell, _Found]:
    """The mean of each student with a score, over the items of these tasks."""
    inside, found = np.isin(grid.items.task, tasks), {}
    for student, means, units in zip(grid.students, scores.mean, scores.units, strict=True):
        if count := int(units[inside].sum()):
            mean = mean_over_tasks(grid, np.where(inside, means, np.nan))
            found[place._replace(student=student)] = _Found(mean, count)
    return found


def label_breakdown(reader: RunReader, by: By) -> tuple[LabelPart, ...]:
    """Label accuracies by what items sampled, the label's own values among it, or by teacher; nobody judges
    labels, and so they have no other parts. By task and part, best first; labels that the configuration has
    lost are left out."""
    if by not in ("attribute", "teacher"):
        return ()
    parts = []
    found = reader.rows(_labels(by).format(names=reader.names_sql))
    for task, part, student, label, names, right, none, n in found:
        removed = removed_names(reader.planned, student, task, label)
        if "label" not in removed:
            share, correct = share_of_items(right, reader.clusters_of(names)), sum(right)
            figures = (share.mean, share.low, share.high, n, correct, none)
            parts.append(LabelPart(by, task, part, student, label, *figures, removed))
    return tuple(sorted(parts, key=_label_rank))


def _label_rank(part: LabelPart) -> tuple[bool, str, str, str, bool, float, str]:
    gone, absent = "task" in part.removed, "student" in part.removed
    return gone, part.task, part.label, part.part, absent, -(part.accuracy or 0.0), part.student


def _score(planned: Planned | None, by: By, place: _Cell, found: _Found, failed: int) -> PartScore:
    mean = found.mean
    removed = removed_names(planned, place.student, place.task)
    return PartScore(by, *place, mean.mean, mean.low, mean.high, mean.n, found.units, failed, removed)


def _rank(score: PartScore) -> tuple[bool, str, str, bool, bool, float, str]:
    return (
        "task" in score.removed,
        score.task or "",
        score.part,
        "student" in score.removed,
        score.score is None,
        -(score.score or 0.0),
        score.student,
    )


_ATTRIBUTES = """(
    SELECT item, entry.key || '=' || entry.value AS attribute
    FROM (SELECT item, unnest(map_entries(attributes)) AS entry FROM items WHERE attributes IS NOT NULL)
)"""

# What has no score: a factor, a whole evaluation (its factors are those of the task), a whole response.
_LOST = """(
    SELECT task, model, item, teacher, judge, metric
    FROM scores WHERE value IS NULL
    UNION ALL
    SELECT task, model, item, teacher, judge, NULL
    FROM judgments WHERE failed
    UNION ALL
    SELECT task, model, item, teacher, NULL, NULL
    FROM answers WHERE failed
)"""

_LOST_FACTORS = f"""(
    SELECT l.* REPLACE (coalesce(l.metric, f.metric) AS metric)
    FROM {_LOST} l LEFT JOIN (
        SELECT DISTINCT s.task, metric, c.factor IS NOT NULL AS checked FROM scores s
            LEFT JOIN checks c ON c.task::VARCHAR = s.task AND c.factor::VARCHAR = metric
    ) f
        ON l.metric IS NULL AND l.judge IS NOT NULL AND f.task = l.task
            AND (l.judge = '{CHECK}') = f.checked
)"""  # noqa: S608


def _of(table: str, by: By) -> str:
    return f"{table} JOIN {_ATTRIBUTES} USING (item)" if by == "attribute" else table


def _labels(by: By) -> str:
    if by == "attribute":
        parts = _ATTRIBUTES.replace("AS attribute", "AS part")
        found = f"(SELECT * FROM labels JOIN {parts} USING (item))"  # noqa: S608
    else:
        found = "(SELECT *, teacher AS part FROM labels)"
    return f"""
        SELECT task, part, model, attribute, {{names}}, list(match ORDER BY item),
               count(*) FILTER (predicted IS NULL), count(*)
        FROM {found} GROUP BY ALL
    """  # noqa: S608


def _failures(by: By) -> str:
    lost = _LOST_FACTORS if by == "factor" else _LOST
    return f"""
        SELECT task, {"metric" if by == "factor" else by} AS part, model, count(*)
        FROM {_of(lost, by)} WHERE part IS NOT NULL GROUP BY ALL
    """  # noqa: S608
