"""Rows of students' means by factor, sampled attribute, judge or teacher, as `StudentMeasures` has them; and
of label accuracies by sampled attribute or teacher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from coeval.analysis.intervals import share_with_interval
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.planned_names import find_removed_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.html_table import MeasureRow

By: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]


class ScoreParts(NamedTuple):
    """Rows of scores and of label accuracies, by task and part, best first."""

    scores: tuple[MeasureRow, ...]
    labels: tuple[MeasureRow, ...]


_OF_ALL_TASKS = {"judge": "by_judge", "teacher": "by_teacher", "attribute": "by_attr_value"}


def break_down_scores_and_labels(reader: RunReader, by: By) -> ScoreParts:
    """Break scores down into parts, factors within each task; and labels, except by factor or judge."""
    scores = sorted(
        _score_rows(reader, by),
        key=lambda row: (row.task or "", row.part, row.score is None, -(row.score or 0.0), row.student),
    )
    labels = () if by in ("factor", "judge") else _label_rows(reader, by)
    return ScoreParts(
        tuple(scores) if any(row.score is not None for row in scores) else (),
        tuple(sorted(labels, key=lambda row: (row.task, row.label, row.part, -row.accuracy, row.student))),
    )


def _score_rows(reader: RunReader, by: By) -> Iterator[MeasureRow]:
    for student, entry in compute_run_measures(reader, ("students",)).measures.students.items():
        of_tasks = entry.by_task_aspect if by == "factor" else {None: getattr(entry, _OF_ALL_TASKS[by])}
        for task, parts in of_tasks.items():
            for part, mean in parts.items():
                figures = zip(("score", "low", "high", "n", "missing"), mean, strict=True)
                yield MeasureRow(by=by, task=task, part=part, student=student, **dict(figures))


def _label_rows(reader: RunReader, by: By) -> Iterator[MeasureRow]:
    """Yield label accuracies with Wilson's interval, without labels that the configuration has lost."""
    counts = reader.rows(_LABELS.format(parts=_PARTS_OF[by], names=reader.cluster_items_sql))
    for task, part, student, label, names, right, none, n in counts:
        if not find_removed_names(reader.planned, student, task, label):
            share = share_with_interval(right, reader.item_clusters(names))
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
