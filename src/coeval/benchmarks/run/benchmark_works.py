"""Asking for one answer, or for one judgment of it: the two kinds of work of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coeval.benchmarks.benchmark import Answer, Ask, Item, Judgment
from coeval.core.records import Completion, Message, Request
from coeval.core.text import digest
from coeval.engine.model_work import Asking, ModelWork, spoken
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally

RETRIES = 2
"""How often an item is asked anew, beside the transport's own attempts (the pipeline's default)."""
JUDGMENTS_EACH = 12
"""About how many judgments an answer brings about, to bound what is begun ahead."""


def asked_hash(messages: Sequence[Message]) -> str:
    """``input_hash`` of an answer or a judgment: all that the model was shown."""
    return digest(*(part for message in messages for part in (message.role, message.content)))


@dataclass(slots=True)
class AnswerWork(ModelWork[Answer]):
    """Ask the tested model for one item. An empty answer is an answer, a declined one too."""

    phase: str
    role_model: RoleModel
    asking: Asking
    key: str
    tried: int
    item: Item
    weight: int
    tally: Tally = field(default_factory=Tally)

    record = Answer

    def question(self, _: int) -> Request:
        return Request(self.item.messages, labels=self.item.labels)

    def read(self, completion: Completion) -> dict[str, Any]:
        sent = self.role_model.sampling.without(completion.dropped).named()
        return {"response": completion.text or completion.refusal or "", "sampling": sent}

    def identity(self) -> dict[str, Any]:
        return {
            "id": self.key,
            "prompt": prompt_of(self.item),
            "model": self.role_model.model,
            "recipe": self.role_model.recipe.hash,
            "input_hash": asked_hash(self.item.messages),
        }


@dataclass(slots=True)
class JudgmentWork(ModelWork[Judgment]):
    """Ask the judge for one judgment, until it can be read; ``alone`` where no other is owed of its item."""

    phase: str
    role_model: RoleModel
    asking: Asking
    key: str
    tried: int
    item: str
    wanted: Ask
    alone: bool = False
    tally: Tally = field(default_factory=Tally)

    weight = 1
    record = Judgment

    def question(self, _: int) -> Request:
        asked = self.wanted.request()
        return msgspec.structs.replace(asked, shared=0) if self.alone and asked.shared else asked

    def read(self, completion: Completion) -> dict[str, Any]:
        spoken(completion, "the judge")
        return {"value": self.wanted.parse(completion)}

    def identity(self) -> dict[str, Any]:
        last = self.tally.last
        return {
            "id": self.key,
            "item": self.item,
            "judge": self.role_model.model,
            "raw": None if last is None else last.refusal or last.text,
            "recipe": self.role_model.recipe.hash,
            "input_hash": asked_hash(self.wanted.request().messages),
        }


def prompt_of(item: Item) -> str:
    """The item's last message, which is the prompt of a benchmark of one turn."""
    return item.messages[-1].content
