"""What students' scores are made of: their means by factor, sampled attribute, judge or teacher; and label
accuracies by sampled attribute or teacher.

The mean of a part is item-first, as the score itself is: over datapoints, of the mean over those of the
datapoint's scores that belong to the part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec
import numpy as np

from coeval.analysis.planned_names import Planned, Removed, removed_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.scores import NO_ITEMS, ItemMeans, mean_of_items, share_of_items
from coeval.core.records import CHECK

By: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]
BYS: tuple[By, ...] = get_args(By)


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
    mean: float | None
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


class _Found(msgspec.Struct):
    """What a place holds: a mean for each datapoint, and counts."""

    items: ItemMeans
    units: int = 0
    failed: int = 0


def breakdown(reader: RunReader, by: By) -> tuple[PartScore, ...]:
    """The scores of all parts: over all tasks first, where parts go through them, then by task; by the
    part's name, and best first. What is over all tasks leaves out tasks that the configuration has lost."""
    found: dict[_Cell, _Found] = {}
    for task, part, student, means, names, units in reader.rows(_means(by).format(names=reader.names_sql)):
        items = ItemMeans(np.array(means), reader.clusters_of(names))
        found[_Cell(task, part, student)] = _Found(items, units)
    for task, part, student, count in reader.rows(_failures(by)):
        found.setdefault(_Cell(task, part, student), _Found(NO_ITEMS)).failed = count
    unscored = _only_labelled(reader, found)
    for place in [place for place in found if place.task in unscored]:
        del found[place]  # nobody judges there, and an answer that failed lacks no score
    planned = reader.planned
    scores = [_score(planned, by, place, [one]) for place, one in found.items()]
    counting = [place for place in found if planned is None or place.task in planned.tasks]
    if by in ("judge", "teacher") and len({place.task for place in counting}) > 1:
        over_tasks: defaultdict[_Cell, list[_Found]] = defaultdict(list)
        for place in counting:
            over_tasks[_Cell(None, place.part, place.student)].append(found[place])
        scores += [_score(planned, by, place, several) for place, several in over_tasks.items()]
    return tuple(sorted(scores, key=_rank))


def _only_labelled(reader: RunReader, found: Mapping[_Cell, _Found]) -> Set[str]:
    """Tasks with labels only: no judge or check scores them."""
    scored = {place.task for place, one in found.items() if one.units}
    return {task for (task,) in reader.rows("SELECT DISTINCT task FROM labels")} - scored


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


def _score(planned: Planned | None, by: By, place: _Cell, found: Sequence[_Found]) -> PartScore:
    interval = mean_of_items([one.items for one in found])
    return PartScore(
        by=by,
        task=place.task,
        part=place.part,
        student=place.student,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        n=interval.n,
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
        SELECT DISTINCT s.task, metric, checked FROM scores s
            LEFT JOIN weighed w ON w.task::VARCHAR = s.task AND w.factor::VARCHAR = metric
    ) f
        ON l.metric IS NULL AND l.judge IS NOT NULL AND f.task = l.task
            AND (l.judge = '{CHECK}') = coalesce(f.checked, false)
)"""  # noqa: S608

_PART: dict[By, str] = {
    "factor": "metric",
    "judge": "judge",
    "teacher": "teacher",
    "attribute": "attribute",
}


def _of(table: str, by: By) -> str:
    return f"{table} JOIN {_ATTRIBUTES} USING (item)" if by == "attribute" else table


def _means(by: By) -> str:
    # A judge's scores are of one judge: each factor counts by its weight. These, and those of a factor, count
    # whatever else the answer lacks.
    share = {"judge": "coalesce(factor_weight, 1.0)", "factor": "part"}.get(by, "share")
    mean = f"sum(value * {share}) / sum({share})"
    return f"""
        SELECT task, part, model, list(mean ORDER BY item), {{names}}, sum(count)::BIGINT
        FROM (
            SELECT task, {_PART[by]} AS part, model, item,
                   {mean} AS mean, count(*) AS count
            FROM {_of("weighed_scores", by)} WHERE value IS NOT NULL AND {share} IS NOT NULL GROUP BY ALL
        )
        GROUP BY ALL
    """  # noqa: S608


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
        SELECT task, {_PART[by]} AS part, model, count(*)
        FROM {_of(lost, by)} WHERE part IS NOT NULL GROUP BY ALL
    """  # noqa: S608
