"""Notes on what has no score: items that have labels alone, what failed, what was never scored."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.text import join_names, pluralize
from coeval.store.rundir import PAIRS


def label_task_notes(grid: ScoreGrid, labelled: Collection[str]) -> Iterator[str]:
    """Say how many items have no score, as their tasks have labels alone; ``labelled``: tasks with labels."""
    counts = np.bincount(grid.items.task, minlength=len(grid.tasks)).tolist()
    items = dict(zip(grid.tasks, counts, strict=True))
    scored = {grid.tasks[task] for task in np.unique(grid.task[grid.scored])}
    alone = {
        task: count for task, count in items.items() if count and task in labelled and task not in scored
    }
    if scored and alone:
        own, other = sum(items[task] for task in scored), sum(alone.values())
        yield (
            f"Scores are over {own:,} of {own + other:,} items; the other {other:,} ({join_names(alone)}) "
            "have labels, reported as accuracy."
        )


def unscored_notes(reader: RunReader, grid: ScoreGrid) -> Iterator[str]:
    """Say that everything failed, or which factors no answer of a student has a score of in a task."""
    if not grid.scored.any() and not reader.run.files(PAIRS):
        [(scored_count, *failed)] = reader.rows(_FAILURES)
        lost = [pluralize(n, noun) for n, noun in zip(failed, ("answer", "judgment"), strict=True) if n]
        if lost and not scored_count:
            yield f"No scores: {' and '.join(lost)} failed."
    counts, scored = grid.sum_scores().units > 0, grid.scored
    for task_code, (task, design) in enumerate(zip(grid.tasks, grid.designs, strict=True)):
        students_by_missing: dict[tuple[str, ...], list[str]] = {}
        for student_code, student in enumerate(grid.students if design.weights else ()):
            rows = (grid.task == task_code) & (grid.student == student_code) & scored
            if rows.any() and not counts[rows].any():
                scored_factors = {grid.factors[factor] for factor in np.unique(grid.factor[rows])}
                students_by_missing.setdefault(tuple(sorted(design.factors - scored_factors)), []).append(
                    student
                )
        for lacking, students in students_by_missing.items():
            yield (
                f"{join_names(students)}: no score in {task}, because no answer is scored in "
                f"{join_names(lacking) or 'every factor'}."
            )


_FAILURES = """
SELECT (SELECT count(*) FROM scores WHERE value IS NOT NULL) + (SELECT count(*) FROM labels),
       (SELECT count(*) FROM answers WHERE failed), (SELECT count(*) FROM judgments WHERE failed)
"""
