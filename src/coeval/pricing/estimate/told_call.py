"""A call that has been made, as evidence of those to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from coeval.core.records import Role
from coeval.pricing.estimate.call_shape import MESSAGE_TOKENS, REPLY_RATE, Speed
from coeval.pricing.estimate.evidence import Evidence, Quantity
from coeval.pricing.estimate.unknowns import Cell

__all__ = ["Source", "ToldCall", "add_told"]

Source: TypeAlias = Literal["record", "sample"]
_LEAST_S = 0.05
"""What a model is expected to take at the least, for its time to be held against that."""


class ToldCall(NamedTuple):
    """One call: the tokens that its host counted (0: it told none), how many characters its prompt of
    ``messages`` messages and its reply had (None: that is not known), and the seconds that it took. ``texts``
    are the lengths of what was written."""

    role: Role
    task: str
    model: str
    texts: Mapping[Quantity, float]
    prompt: float | None
    messages: int
    reply: float
    input_tokens: float
    output_tokens: float
    seconds: float | None = None


def add_told(evidence: Evidence, told: ToldCall, speed: Speed, source: Source) -> None:
    """``speed`` is what is expected of the model."""
    cell = Cell(told.task, told.model)
    for quantity, characters in told.texts.items():
        evidence.add(quantity, cell, characters)
    if told.prompt and told.input_tokens:
        taken = max(told.input_tokens - MESSAGE_TOKENS * told.messages, 1.0)
        evidence.add("tokens per character", cell, taken / told.prompt)
    if told.reply and told.output_tokens:
        evidence.add(REPLY_RATE[told.role], cell, told.output_tokens / told.reply)
    if told.seconds is not None:
        pace = told.output_tokens / speed.tokens_per_s if speed.tokens_per_s else 0.0
        if (expected := speed.first_s + pace) >= _LEAST_S:
            evidence.add("slowness", Cell("", told.model), told.seconds / expected)
    evidence.count(told.model, source)
