"""One item as it was made, answered and judged, whole: for whoever doubts a number."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["ItemDetail", "ItemFailure", "ShownAnswer", "ShownJudgment"]


class ItemFailure(msgspec.Struct, frozen=True):
    """Why there is no value."""

    kind: str
    message: str


class ShownJudgment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a judge said to an answer. ``scores``: by factor, None where it was asked for and did not come.

    Of ``eval-framework``, ``what`` is judged (a criterion, or the order in which a pair was shown), and
    ``verdict`` holds what was read of the reply, by name.
    """

    judge: str
    scores: dict[str, str | None] = {}
    words: str | None = None
    failed: bool = False
    error: ItemFailure | None = None
    what: str = ""
    verdict: dict[str, Any] = {}


class ShownLabel(msgspec.Struct, frozen=True):
    """A label held against the answer; ``predicted`` None: none of the labels."""

    expected: str
    predicted: str | None
    match: bool


class FollowedInstruction(msgspec.Struct, frozen=True):
    """Whether an answer followed an instruction, read strictly and loosely."""

    instruction: str
    strict: bool | None
    loose: bool | None


class ShownAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A student's answer. ``score`` is the mean of its judges' scores (0 to 1), or the benchmark's headline
    metric of it; ``metrics`` are all of them. Tokens are the provider's, money is in dollars."""

    answer: str
    student: str
    sample: int
    text: str | None = None
    reasoning: str | None = None
    truncated: bool = False
    failed: bool = False
    error: ItemFailure | None = None
    score: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    judgments: list[ShownJudgment] = []
    labels: dict[str, ShownLabel] = {}
    metrics: dict[str, float | None] = {}
    instructions: list[FollowedInstruction] = []


class ItemDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """``nuance`` is what else was sampled, ``origin`` where one's own item was taken from."""

    item: str
    task: str
    answers: list[ShownAnswer]
    teacher: str | None = None
    attributes: dict[str, str] = {}
    nuance: dict[str, str] = {}
    prompt: str | None = None
    reference: str | None = None
    failed: bool = False
    error: ItemFailure | None = None
