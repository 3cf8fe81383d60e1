"""Counts of answers, and measures of the students and tasks that the configuration has lost."""

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
    sum_student_item_scores,
    unadjusted_scores,
)
from coeval.analysis.readers.run_reader import RunReader


def count_answers_by_student(reader: RunReader) -> StudentCounts:
    """Count the answers of all students on record, removed ones included."""
    counts_by_student: defaultdict[str, dict[str, StudentAnswers]] = defaultdict(dict)
    for task, student, *counts in reader.rows(_COUNTS):
        counts_by_student[student][task] = StudentAnswers(*counts)
    return counts_by_student


def measure_removed(reader: RunReader, grid: ScoreGrid, counts: StudentCounts) -> RemovedMeasures | None:
    """Measure what ``grid`` leaves out of a run, by plain means; None where nothing is removed."""
    whole_grid = read_grid_with_removed(reader)
    students = {} if whole_grid is grid else _measure_removed_students(reader, whole_grid, counts)
    labels = measure_removed_labels(reader, whole_grid, grid.students)
    return RemovedMeasures(students, labels) if students or labels else None


def _measure_removed_students(
    reader: RunReader, whole_grid: ScoreGrid, counts: StudentCounts
) -> dict[str, StudentMeasures]:
    """Measure all students, removed tasks included by task but not in overall scores."""
    planned = [at for at, task in enumerate(whole_grid.tasks) if is_planned_task(reader.planned, task)]
    whole = _unadjusted_measures(whole_grid.select_items(np.isin(whole_grid.items.task, planned)), counts)
    return {
        name: msgspec.structs.replace(
            whole[name],
            **{
                field: getattr(student, field)
                for field in student.__struct_fields__
                if field.endswith(BY_TASK)
            },
        )
        for name, student in _unadjusted_measures(whole_grid, counts).items()
    }


def _unadjusted_measures(grid: ScoreGrid, counts: StudentCounts) -> dict[str, StudentMeasures]:
    return measure_students(grid, unadjusted_scores(grid, sum_student_item_scores(grid)), counts)


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
