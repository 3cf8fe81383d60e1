"""What no score is of, in sentences: items that have labels alone, what failed, what was never scored."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.analysis.planned_names import removed_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import label_tasks_sentence


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


_FAILURES = """
SELECT (SELECT count(*) FROM scores WHERE value IS NOT NULL) + (SELECT count(*) FROM labels),
       (SELECT count(*) FROM answers WHERE failed), (SELECT count(*) FROM judgments WHERE failed)
"""

_OF_TASKS = """
SELECT task, count(*), task IN (SELECT task FROM scores WHERE value IS NOT NULL),
       task IN (SELECT task FROM labels)
FROM items WHERE NOT failed GROUP BY task ORDER BY task
"""
