"""The labels of a teacher-made benchmark: its answers held against them, without a judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coeval.analysis.intervals import wilson
from coeval.benchmarks.base import Metric
from coeval.benchmarks.outcomes import metric_of
from coeval.core.records import Datapoint, LabelScore
from coeval.judging.labels import score_labels
from coeval.pipeline.blueprint import Blueprint
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.store.rundir import RunDir


def label_tables(
    config: Config, run: RunDir, answered: Iterable[tuple[TaskConfig, Datapoint, str]]
) -> dict[str, Any]:
    """Per task and label attribute of a run: the share of answers that state the datapoint's value, with
    its Wilson interval, and how many are none of the labels."""
    declared = {task.name: declared_labels(config, run, task) for task in config.tasks}
    compared: dict[str, dict[str, list[LabelScore]]] = {}
    for task, datapoint, answer in answered:
        labels, attributes = declared[task.name], datapoint.sampled_target_attributes
        expected = {name: attributes[name] for name in labels if name in attributes}
        for name, score in score_labels(answer, expected, labels).items():
            compared.setdefault(task.name, {}).setdefault(name, []).append(score)
    return {
        "label_accuracy": {
            task: {name: _accuracy(scores) for name, scores in found.items()}
            for task, found in compared.items()
        },
        "none_of_the_labels": {
            task: {name: sum(score.predicted is None for score in scores) for name, scores in found.items()}
            for task, found in compared.items()
        },
    }


def declared_labels(config: Config, run: RunDir, task: TaskConfig) -> dict[str, list[str]]:
    """Each label attribute with its values, those that teachers proposed among them."""
    if not task.label_attributes:
        return {}
    target = Blueprint(config, run, follow_file=False).known_part(task, "target") or {}
    return {name: target.get(name, []) for name in task.label_attributes}


def _accuracy(scores: Sequence[LabelScore]) -> Metric:
    share = wilson(sum(score.match for score in scores), len(scores))
    return metric_of(share, "share")
