"""The tasks that have only labels, as columns beside those that have scores."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the scores load numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.scores import LabelAccuracy, Results

LABELS = "labels"
"""What marks such a column."""


class LabelColumn(NamedTuple):
    """A label's accuracies by student; ``name``: the task's, with the label's where it has several."""

    name: str
    removed: bool
    accuracies: dict[str, LabelAccuracy]


def label_columns(results: Results) -> list[LabelColumn]:
    """One for each label that the configuration still names, in the order of ``results.labels``."""
    found: dict[tuple[str, str], LabelColumn] = {}
    for label in results.labels:
        if label.task in results.only_labelled and "label" not in label.removed:
            column = LabelColumn(label.task, "task" in label.removed, {})
            found.setdefault((label.task, label.attribute), column).accuracies[label.student] = label
    labels_of = Counter(task for task, _ in found)
    return [
        column._replace(name=f"{task} {attribute}") if labels_of[task] > 1 else column
        for (task, attribute), column in found.items()
    ]
