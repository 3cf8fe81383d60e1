"""What students' scores are made of: their means by factor, sampled attribute, judge or teacher.

The mean of a part is item-first, as the score itself is: over datapoints, of the mean over those of the
datapoint's scores that belong to the part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats, mean_over_strata
from coeval.analysis.load import RunReader
from coeval.analysis.planned import Planned, Removed, removed_names

By: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]
BYS: tuple[By, ...] = get_args(By)


class PartScore(msgspec.Struct, frozen=True):
    """A student's mean score, 0 to 1, in one part of a task, with its 95 % interval over n datapoints.

    ``task`` None: over the tasks, each counting alike; only judges and teachers are the same ones in
    several tasks. ``units`` counts valid (response, factor, judge) scores. ``failed`` counts the
    responses, evaluations and factors without a score, where it is known that they belong to the part:
    a failed response belongs to no judge and no factor.
    """

    by: By
    task: str | None
    part: str
    student: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    units: int
    failed: int
    removed: Removed = ()


class _Place(NamedTuple):
    task: str | None
    part: str
    student: str


class _Found(msgspec.Struct):
    """What a place holds: a mean for each datapoint, and counts."""

    means: Floats
    units: int = 0
    failed: int = 0


def breakdown(reader: RunReader, by: By) -> tuple[PartScore, ...]:
    """The scores of all parts: over all tasks first, where parts go through them, then by task; by the
    part's name, and best first. What is over all tasks leaves out tasks that the configuration has lost."""
    found: dict[_Place, _Found] = {}
    for task, part, student, means, units in reader.rows(_means(by)):
        found[_Place(task, part, student)] = _Found(np.array(means), units)
    for task, part, student, count in reader.rows(_failures(by)):
        found.setdefault(_Place(task, part, student), _Found(np.empty(0))).failed = count
    planned = reader.planned
    scores = [_score(planned, by, place, [one]) for place, one in found.items()]
    counting = [place for place in found if planned is None or place.task in planned.tasks]
    if by in ("judge", "teacher") and len({place.task for place in counting}) > 1:
        over_tasks: defaultdict[_Place, list[_Found]] = defaultdict(list)
        for place in counting:
            over_tasks[_Place(None, place.part, place.student)].append(found[place])
        scores += [_score(planned, by, place, several) for place, several in over_tasks.items()]
    return tuple(sorted(scores, key=_rank))


def _score(planned: Planned | None, by: By, place: _Place, found: Sequence[_Found]) -> PartScore:
    interval = mean_over_strata([one.means for one in found])
    return PartScore(
        by=by,
        task=place.task,
        part=place.part,
        student=place.student,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        n=sum(len(one.means) for one in found),
        units=sum(one.units for one in found),
        failed=sum(one.failed for one in found),
        removed=removed_names(planned, place.student, place.task),
    )


def _rank(score: PartScore) -> tuple[bool, str, str, bool, bool, float, str]:
    return (
        "task" in score.removed,
        score.task or "",
        score.part,
        "student" in score.removed,
        score.mean is None,
        -(score.mean or 0.0),
        score.student,
    )


_ATTRIBUTES = """(
    SELECT id AS datapoint_id, entry.key || '=' || entry.value AS attribute
    FROM (SELECT id, unnest(map_entries(attributes)) AS entry FROM datapoints WHERE attributes IS NOT NULL)
)"""

_LOST = """(
    SELECT task_id, student_model_id, datapoint_id, teacher_model_id, judge_model_id, factor
    FROM asked WHERE value IS NULL
    UNION ALL
    SELECT task_id, student_model_id, datapoint_id, teacher_model_id, judge_model_id, NULL
    FROM evaluations WHERE failed
    UNION ALL
    SELECT task_id, student_model_id, datapoint_id, teacher_model_id, NULL, NULL
    FROM responses WHERE failed
)"""
"""What has no score: a factor, a whole evaluation (its factors are those of the task), a whole response."""

_LOST_FACTORS = f"""(
    SELECT l.* REPLACE (coalesce(l.factor, f.factor) AS factor)
    FROM {_LOST} l LEFT JOIN (SELECT DISTINCT task_id, factor FROM asked) f
        ON l.factor IS NULL AND l.judge_model_id IS NOT NULL AND f.task_id = l.task_id
)"""  # noqa: S608

_PART: dict[By, str] = {
    "factor": "factor",
    "judge": "judge_model_id",
    "teacher": "teacher_model_id",
    "attribute": "attribute",
}


def _of(table: str, by: By) -> str:
    return f"{table} JOIN {_ATTRIBUTES} USING (datapoint_id)" if by == "attribute" else table


def _means(by: By) -> str:
    return f"""
        SELECT task_id, part, student_model_id, list(mean ORDER BY datapoint_id), sum(count)::BIGINT
        FROM (
            SELECT task_id, {_PART[by]} AS part, student_model_id, datapoint_id,
                   avg(value) AS mean, count(*) AS count
            FROM {_of("units", by)} GROUP BY ALL
        )
        GROUP BY ALL
    """  # noqa: S608


def _failures(by: By) -> str:
    lost = _LOST_FACTORS if by == "factor" else _LOST
    return f"""
        SELECT task_id, {_PART[by]} AS part, student_model_id, count(*)
        FROM {_of(lost, by)} WHERE part IS NOT NULL GROUP BY ALL
    """  # noqa: S608
