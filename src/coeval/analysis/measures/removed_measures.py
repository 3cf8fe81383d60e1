"""What a run's records count besides scores, and the students and tasks that its configuration has lost."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from coeval.analysis.measures.label_measures import measure_removed_labels
from coeval.analysis.measures.measure_rows import BY_TASK
from coeval.analysis.measures.run_measures import RemovedMeasures
from coeval.analysis.measures.score_grid import ScoreGrid, is_planned_task, read_grid_with_removed
from coeval.analysis.measures.student_measures import (
    StudentAnswers,
    StudentCounts,
    StudentMeasures,
    measure_students,
    sum_item_scores,
    unadjusted_scores,
)
from coeval.analysis.readers.run_reader import RunReader


def count_answers(reader: RunReader) -> StudentCounts:
    """Count the answers of all students on record, those that are removed included."""
    found: defaultdict[str, dict[str, StudentAnswers]] = defaultdict(dict)
    for task, student, *counts in reader.rows(_COUNTS):
        found[student][task] = StudentAnswers(*counts)
    return found


def measure_removed(reader: RunReader, grid: ScoreGrid, counts: StudentCounts) -> RemovedMeasures | None:
    """Measure what ``grid`` leaves out of a run, by the plain means; None where nothing is removed."""
    everything = read_grid_with_removed(reader)
    students = {} if everything is grid else _measure_removed_students(reader, everything, counts)
    labels = measure_removed_labels(reader, everything, grid.students)
    return RemovedMeasures(students, labels) if students or labels else None


def _measure_removed_students(
    reader: RunReader, everything: ScoreGrid, counts: StudentCounts
) -> dict[str, StudentMeasures]:
    """A removed task is in no overall score."""
    due = [place for place, task in enumerate(everything.tasks) if is_planned_task(reader.planned, task)]
    whole = _unadjusted_measures(everything.select_items(np.isin(everything.items.task, due)), counts)
    return {
        name: msgspec.structs.replace(
            whole[name],
            **{field: getattr(one, field) for field in one.__struct_fields__ if field.endswith(BY_TASK)},
        )
        for name, one in _unadjusted_measures(everything, counts).items()
    }


def _unadjusted_measures(grid: ScoreGrid, counts: StudentCounts) -> dict[str, StudentMeasures]:
    return measure_students(grid, unadjusted_scores(grid, sum_item_scores(grid)), counts)


_COUNTS = """
SELECT task, model, sum(answer)::BIGINT, sum(failed)::BIGINT, sum(truncated)::BIGINT,
       sum(windowed)::BIGINT, sum(empty)::BIGINT, sum(empty_truncated)::BIGINT
FROM (
    SELECT task, model, failed::INTEGER AS failed, (NOT failed)::INTEGER AS answer,
           (truncated AND NOT failed)::INTEGER AS truncated,
           (windowed AND NOT failed)::INTEGER AS windowed, (empty AND NOT failed)::INTEGER AS empty,
           (empty AND truncated AND NOT failed)::INTEGER AS empty_truncated
    FROM answers
    UNION ALL
    SELECT task, model, 1, 0, 0, 0, 0, 0 FROM judgments WHERE failed
)
GROUP BY ALL ORDER BY ALL
"""
