"""A benchmark scored by a rule: does the answer use the word that it was asked to use, so many times?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from coeval.analysis.intervals import wilson_interval
from coeval.benchmarks.benchmark import (
    Answer,
    Benchmark,
    Item,
    Scored,
    TaskRecords,
    TaskSettings,
    count_failures,
)
from coeval.benchmarks.run.judgment_outcomes import metric_from_interval
from coeval.core.errors import UsageError
from coeval.core.records import Message
from coeval_parley.task_rows import TIMES

__all__ = ["SayTheWord"]

WORDS = ("river", "lantern", "copper", "orchard", "whistle")


class SayTheWord(Benchmark):
    """``word_accuracy``: the share of prompts whose answer uses the word at least so many times."""

    name: ClassVar[str] = "say-the-word"

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        self._times: int = settings.options[TIMES.name]
        if self._times < 1:
            raise UsageError(f"{TIMES.flag} is {self._times}; give 1 or more")

    def items(self) -> Sequence[Item]:
        ask = f"Write a sentence that uses the word '{{}}' {self._times} times."
        return [Item(word, (Message("user", ask.format(word)),)) for word in WORDS]

    def score(self, records: TaskRecords) -> Scored:
        """A prompt without an answer stays in the denominator."""
        items, answers, _ = records  # a rule scores, no judge
        said = {item.id: self._is_said(item.id, answers.get(item.id)) for item in items}
        failed = count_failures(answers.get(item.id) for item in items)
        return Scored(
            metrics={
                "word_accuracy": metric_from_interval(
                    wilson_interval(sum(said.values()), len(items)), "share"
                )
            },
            n_expected=len(items),
            n_scored=len(items) - sum(failed.values()),
            n_failed=failed,
            items={word: {"word_accuracy": float(right)} for word, right in said.items()},
        )

    def _is_said(self, word: str, answer: Answer | None) -> bool:
        response = (answer.response if answer is not None else None) or ""
        return len(re.findall(rf"\b{word}\b", response, re.IGNORECASE)) >= self._times
