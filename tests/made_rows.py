"""Rows of results as a test needs them: what it does not name is as of a student without anything unusual."""

from __future__ import annotations

from typing import Any

from coeval.core.html_table import MeasureRow

_NO_ANSWERS = ("answers", "failed", "truncated", "truncated_by_window", "empty", "empty_truncated")


def student_row(
    student: str,
    task: str | None,
    score: float | None,
    low: float | None,
    high: float | None,
    n: int,
    valid_evals: int,
    failed: int = 0,
    **more: Any,
) -> MeasureRow:
    ends = {"low": low, "high": high, "least": None, "most": None, "mean_recorded": score}
    row = MeasureRow(student=student, task=task, removed=(), score=score, n=n, missing=0, **ends)
    row |= {**dict.fromkeys(_NO_ANSWERS, 0), "samples": 1, "partial": False}
    return MeasureRow(row, valid_evals=valid_evals, **{"failed": failed, **more})


def label_row(
    task: str,
    student: str,
    attribute: str,
    accuracy: float | None,
    low: float | None,
    high: float | None,
    n: int,
    correct: int,
    **more: Any,
) -> MeasureRow:
    row = MeasureRow(task=task, attribute=attribute, student=student, removed=(), accuracy=accuracy)
    row |= {"low": low, "high": high, "n": n, "missing": 0, "least": None, "most": None}
    return MeasureRow(row, **{"correct": correct, "none_of_the_labels": 0, "failed": 0, **more})
