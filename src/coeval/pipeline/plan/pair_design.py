"""Which answers to an item are compared, and what judges are asked for a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from coeval.core.records import Schema
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.prompts import object_schema


class OrderedPair(NamedTuple):
    """Two students of a task; the answer of ``first`` is shown first."""

    first: str
    second: str

    @property
    def either(self) -> OrderedPair:
        """The two by name, in whatever order they are shown."""
        return self if self.first < self.second else OrderedPair(self.second, self.first)


@dataclass(frozen=True, slots=True)
class PairDesign:
    """The comparisons of one item, each in both ``orders``. ``share``: of `active` pairs the most of all
    comparisons that are asked for, else None."""

    orders: tuple[OrderedPair, ...]
    rationale: bool
    share: float | None = None

    @property
    def answer_format(self) -> str:
        """What judges are told of the shape of their reply."""
        verdict = '"verdict", one of "A", "B" or "tie"'
        if not self.rationale:
            return f"Answer with one JSON object and nothing else; its one key is {verdict}."
        return (
            'Answer with one JSON object and nothing else; it has two keys, in this order: "reason", one '
            f"sentence of at most 25 words that names what decides, and {verdict}."
        )

    @property
    def schema(self) -> Schema:
        verdict = {"type": "string", "enum": ["A", "B", "tie"]}
        reason = {"reason": {"type": "string"}} if self.rationale else {}
        return Schema("pair_verdict", object_schema(**reason, verdict=verdict))


def pair_design(task: TaskConfig, students: Sequence[str]) -> PairDesign | None:
    """Return the comparisons of a pairwise task: with the baseline, or of every pair; None for others."""
    if task.judging != "pairwise":
        return None
    if task.baseline is not None:
        pairs = [(student, task.baseline) for student in students if student != task.baseline]
    else:
        pairs = list(combinations(students, 2))
    orders = tuple(OrderedPair(*order) for one, other in pairs for order in ((one, other), (other, one)))
    return PairDesign(orders, task.rationale, task.pairs_share if task.pairs == "active" else None)
