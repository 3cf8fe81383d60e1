"""Asking for one answer, or for one judgment of it: the two kinds of work of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coeval.benchmarks.benchmark import Answer, Ask, Item, Judgment
from coeval.core.errors import Refused
from coeval.core.model import Model
from coeval.core.records import Completion, Message, Request
from coeval.core.text import digest
from coeval.engine.making import failure, made
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally, ask

RETRIES = 2
"""How often an item is asked anew, beside the transport's own attempts (the pipeline's default)."""
JUDGMENTS_EACH = 12
"""About how many judgments an answer brings about, to bound what is begun ahead."""


def asked_hash(messages: Sequence[Message]) -> str:
    """``input_hash`` of an answer or a judgment: all that the model was shown."""
    return digest(*(part for message in messages for part in (message.role, message.content)))


@dataclass(slots=True)
class AnswerWork:
    """Ask the tested model for one item. An empty answer is an answer, a declined one too."""

    phase: str
    tested: RoleModel
    asked: Model
    item: Item
    tried: int
    weight: int
    tally: Tally = field(default_factory=Tally)

    @property
    def key(self) -> str:
        return self.item.id

    @property
    def model(self) -> str:
        return self.tested.name

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Answer:
        request = Request(self.item.messages, labels=self.item.labels)
        said = await ask(
            self.asked,
            lambda i: self.tested.request(request, "response_collection", self.key, self.tried + i),
            lambda completion: completion,
            retries=RETRIES,
            tally=self.tally,
        )
        sent = {name: value for name, value in self.tested.sampling.items() if name not in said.dropped}
        response = said.text or said.refusal or ""
        return Answer(**self._identity(), response=response, sampling=sent, **made(self.tally, self.tried))

    def failed(self, error: Exception) -> Answer:
        return Answer(**self._identity(), **failure(error, self.tally, self.tried))

    def _identity(self) -> dict[str, Any]:
        return {
            "id": self.item.id,
            "prompt": prompt_of(self.item),
            "model": self.tested.model,
            "recipe": self.tested.recipe.hash,
            "input_hash": asked_hash(self.item.messages),
        }


@dataclass(slots=True)
class JudgmentWork:
    """Ask the judge for one judgment, until it can be read."""

    phase: str
    judge: RoleModel
    asked: Model
    item: str
    wanted: Ask
    tried: int
    tally: Tally = field(default_factory=Tally)

    weight = 1

    @property
    def key(self) -> str:
        return self.wanted.id

    @property
    def model(self) -> str:
        return self.judge.name

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Judgment:
        value = await ask(
            self.asked,
            lambda i: self.judge.request(
                self.wanted.request(self.tried + i), "evaluation", self.key, self.tried + i
            ),
            self._read,
            retries=RETRIES,
            tally=self.tally,
        )
        return Judgment(**self._identity(), value=value, **made(self.tally, self.tried))

    def failed(self, error: Exception) -> Judgment:
        return Judgment(**self._identity(), **failure(error, self.tally, self.tried))

    def _read(self, completion: Completion) -> dict[str, Any]:
        if completion.refusal is not None:
            raise Refused(f"the judge declined: {completion.refusal[:200]}", raw=completion.refusal)
        return self.wanted.parse(completion)

    def _identity(self) -> dict[str, Any]:
        last = self.tally.last
        return {
            "id": self.wanted.id,
            "item": self.item,
            "judge": self.judge.model,
            "raw": None if last is None else last.refusal or last.text,
            "recipe": self.judge.recipe.hash,
            "input_hash": asked_hash(self.wanted.request(0).messages),
        }


def prompt_of(item: Item) -> str:
    """The item's last message, which is the prompt of a benchmark of one turn."""
    return item.messages[-1].content
