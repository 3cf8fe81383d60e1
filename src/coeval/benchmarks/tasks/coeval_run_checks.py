"""The checks of a run of our own: what answers score by them, computed where the answers are scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from coeval.benchmarks.benchmark import Answer, why_missing
from coeval.core.errors import CheckFailed
from coeval.core.records import Datapoint
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.rubric_check import RubricCheck, checked_answer
from coeval.pipeline.config.schema import TaskConfig


class TaskChecks(NamedTuple):
    """A task's checks by factor. ``elsewhere`` names those that need a process of their own: no answer has a
    score of them here. ``weights`` are those of all factors, empty where factors count alike."""

    computed: Mapping[str, RubricCheck]
    elsewhere: tuple[str, ...]
    weights: Mapping[str, float]

    def mean(self, scores: Mapping[str, float]) -> float:
        """Return the score of an answer that has these scores, by factor; at least one."""
        weights = [self.weights.get(factor, 1.0) for factor in scores]
        weighed = zip(scores.values(), weights, strict=True)
        return sum(score * weight for score, weight in weighed) / sum(weights)


def task_checks(task: TaskConfig) -> TaskChecks:
    """Read the checks of a task; factors named like a label are compared, not checked."""
    checks = {
        factor: read_check(options)
        for factor, options in task.checks.items()
        if factor not in task.label_attributes
    }
    computed = {factor: check for factor, check in checks.items() if check.runs == "here"}
    return TaskChecks(computed, tuple(checks.keys() - computed.keys()), task.weights)


class CheckedItem(NamedTuple):
    """An answer's scores by factor, and why the others are missing."""

    scores: dict[str, float]
    failed: Counter[str]


def check_item(checks: TaskChecks, item: Datapoint, answer: Answer | None) -> CheckedItem:
    """Compute all checks of one answer; without an answer all are missing."""
    reason = why_missing(answer)
    if answer is None or reason is not None:
        return CheckedItem({}, Counter({reason or "missing": len(checks.computed)}))
    found, checked = CheckedItem({}, Counter()), checked_answer(item, answer)
    for factor, check in checks.computed.items():
        try:
            found.scores[factor] = check.score(checked).value
        except CheckFailed as failure:
            found.failed[failure.kind] += 1
    return found


def unchecked(checks: Mapping[str, TaskChecks]) -> Iterator[str]:
    """Say which factors of the run, by task, are no part of the scores here."""
    for task, of_task in checks.items():
        if of_task.elsewhere:
            names = ", ".join(sorted(of_task.elsewhere))
            yield f"{task}: {names} not scored; only `coeval run` starts the processes of such checks"
