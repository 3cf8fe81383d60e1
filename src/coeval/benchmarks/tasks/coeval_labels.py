"""The labels of a teacher-made benchmark: its answers held against them, without a judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coeval.analysis.intervals import wilson
from coeval.benchmarks.benchmark import Answer, Item, Metric, why_missing
from coeval.benchmarks.run.judgment_outcomes import metric_of
from coeval.core.records import Datapoint, LabelScore
from coeval.judging.labels import score_labels
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.phases.blueprint import Blueprint
from coeval.store.rundir import RunDir

ONLY_LABELS = "its answers are compared with labels; no judge was asked"


class LabelledItem(NamedTuple):
    """A datapoint with its task, the factors that a judge scores, and the template variables it fills."""

    task: TaskConfig
    item: Datapoint
    rubric: Mapping[str, str]
    values: Mapping[str, str]


def posed_as(item: Item) -> LabelledItem:
    """What an item of a teacher-made benchmark is made of."""
    found: LabelledItem = item.fields["posed"]
    return found


class Compared(NamedTuple):
    """Comparisons by task and label attribute, then item; ``failed`` counts those without an answer, by
    reason."""

    scores: dict[tuple[str, str], dict[str, LabelScore]]
    failed: Counter[str]

    @property
    def compared(self) -> int:
        return sum(map(len, self.scores.values()))

    @property
    def expected(self) -> int:
        return self.compared + self.failed.total()

    def metrics(self) -> dict[str, Metric]:
        """The share of right answers of each label, with its Wilson interval."""
        return {_metric_name(*place): _accuracy(scores) for place, scores in self.scores.items()}

    def of_item(self, item: str) -> dict[str, float | None]:
        """1 for each label that is right, 0 for each that is not, by metric."""
        return {
            _metric_name(*place): float(scores[item].match)
            for place, scores in self.scores.items()
            if item in scores
        }

    def tables(self) -> dict[str, Any]:
        """Accuracies, and how many answers are none of the labels, by task and label."""
        accuracies: dict[str, dict[str, Metric]] = {}
        none: dict[str, dict[str, int]] = {}
        for (task, label), scores in self.scores.items():
            accuracies.setdefault(task, {})[label] = _accuracy(scores)
            none.setdefault(task, {})[label] = sum(score.predicted is None for score in scores.values())
        return {"label_accuracy": accuracies, "none_of_the_labels": none}


def compare_labels(items: Sequence[Item], answers: Mapping[str, Answer]) -> Compared:
    """Hold every answer against the values of its datapoint."""
    compared = Compared({}, Counter())
    for item in items:
        task, datapoint, *_ = posed_as(item)
        attributes = datapoint.sampled_target_attributes
        expected = {name: attributes[name] for name in item.labels if name in attributes}
        answer = answers.get(item.id)
        if (reason := why_missing(answer)) is not None:
            compared.failed[reason] += len(expected)
        elif answer is not None:
            for name, score in score_labels(answer.response or "", expected, item.labels).items():
                compared.scores.setdefault((task.name, name), {})[item.id] = score
    return compared


def declared_labels(config: Config, run: RunDir, task: TaskConfig) -> dict[str, list[str]]:
    """Each label attribute with its values, those that teachers proposed among them."""
    if not task.label_attributes:
        return {}
    target = Blueprint(config, run, follow_file=False).known_part(task, "target") or {}
    return {name: target.get(name, []) for name in task.label_attributes}


def _metric_name(task: str, label: str) -> str:
    return f"label_accuracy {task}/{label}"


def _accuracy(scores: Mapping[str, LabelScore]) -> Metric:
    share = wilson(sum(score.match for score in scores.values()), len(scores))
    return metric_of(share, "share")
