"""What students' scores are made of, as rows: their means by factor, sampled attribute, judge or teacher, as
`StudentMeasures` has them; and label accuracies by sampled attribute or teacher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from coeval.analysis.intervals import share_of_items
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.planned_names import removed_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.html_table import MeasureRow

By: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]


class Parts(NamedTuple):
    """What scores are made of, and what label accuracies are made of; by task and part, best first."""

    scores: tuple[MeasureRow, ...]
    labels: tuple[MeasureRow, ...]


_OF_ALL_TASKS = {"judge": "by_judge", "teacher": "by_teacher", "attribute": "by_attr_value"}


def breakdown(reader: RunReader, by: By) -> Parts:
    """Take scores and label accuracies apart; factors are those of a task, all else goes through the tasks.
    Nobody judges labels, so they have no factors and no judges."""
    scores = sorted(
        _scores(reader, by),
        key=lambda row: (row.task or "", row.part, row.score is None, -(row.score or 0.0), row.student),
    )
    labels = () if by in ("factor", "judge") else _labels(reader, by)
    return Parts(
        tuple(scores) if any(row.score is not None for row in scores) else (),
        tuple(sorted(labels, key=lambda row: (row.task, row.label, row.part, -row.accuracy, row.student))),
    )


def _scores(reader: RunReader, by: By) -> Iterator[MeasureRow]:
    for student, one in compute_run_measures(reader, ("students",)).measures.students.items():
        of_tasks = one.by_task_aspect if by == "factor" else {None: getattr(one, _OF_ALL_TASKS[by])}
        for task, parts in of_tasks.items():
            for part, mean in parts.items():
                figures = zip(("score", "low", "high", "n", "missing"), mean, strict=True)
                yield MeasureRow(by=by, task=task, part=part, student=student, **dict(figures))


def _labels(reader: RunReader, by: By) -> Iterator[MeasureRow]:
    """With Wilson's interval; labels that the configuration has lost are left out."""
    found = reader.rows(_LABELS.format(parts=_PARTS_OF[by], names=reader.names_sql))
    for task, part, student, label, names, right, none, n in found:
        if not removed_names(reader.planned, student, task, label):
            share = share_of_items(right, reader.clusters_of(names))
            yield MeasureRow(
                by=by,
                task=task,
                part=part,
                student=student,
                label=label,
                accuracy=share.mean,
                low=share.low,
                high=share.high,
                n=n,
                correct=sum(right),
                none_of_the_labels=none,
            )


_PARTS_OF = {
    "teacher": "SELECT *, teacher AS part FROM labels",
    "attribute": """
        SELECT *, entry.key || '=' || entry.value AS part FROM labels JOIN (
            SELECT item, unnest(map_entries(attributes)) AS entry FROM items WHERE attributes IS NOT NULL
        ) USING (item)
    """,
}
_LABELS = """
SELECT task, part, model, attribute, {names}, list(match ORDER BY item),
       count(*) FILTER (predicted IS NULL), count(*)
FROM ({parts}) GROUP BY ALL
"""
