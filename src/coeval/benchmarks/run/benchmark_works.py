"""Asking for one answer, or for one judgment of it: the two kinds of work of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.benchmark import Answer, Ask, Item, Judgment
from coeval.core.errors import Refused
from coeval.core.model import Model
from coeval.core.records import CallId, Completion, Message, Request, sample_seed
from coeval.core.text import canonical, digest
from coeval.engine.making import failure, made
from coeval.engine.work import Tally, ask

RETRIES = 2
"""How often an item is asked anew, beside the transport's own attempts (the pipeline's default)."""
JUDGMENTS_EACH = 12
"""About how many judgments an answer brings about, to bound what is begun ahead."""

ANSWERING, JUDGING = 1, 2
"""Ranks: where requests wait for one endpoint, judging goes first."""


class TaskModel(NamedTuple):
    """A model in one role of a task: how it is asked, and the recipe of what it says.

    ``label`` is how it is named among the open models, ``model`` its own id. ``seed`` is the run's where
    the model is sent seeds, else None; ``sample`` counts from 0. ``droppable`` names what of ``sampling``
    nobody asked for. The recipe is that of what is asked for: a host's refusal changes the record
    (`Kept.dropped`) and not what is owed.
    """

    label: str
    model: str
    sampling: dict[str, Any]
    seed: int | None
    recipe: str
    sample: int = 0
    droppable: tuple[str, ...] = ()

    def request(self, request: Request, key: str, attempt: int, rank: int) -> Request:
        """``request`` as this model is asked it: its sampling unless there is some, its seed."""
        call = CallId(key, self.sample, attempt)
        return msgspec.structs.replace(
            request,
            sampling=request.sampling or self.sampling,
            purpose="evaluation" if rank == JUDGING else "response_collection",
            call=call,
            seed=None if self.seed is None else call.seed(self.seed),
            rank=rank,
            droppable=self.droppable,
        )


def task_model(
    label: str, model: str, sampling: dict[str, Any], seed: int | None, sample: int = 0, template: str = ""
) -> TaskModel:
    """A model in a role; its recipe is a hash of everything about it that shapes what it says."""
    own = None if seed is None else sample_seed(seed, sample)
    parts = {"model": model, "sampling": sampling, "seed": own, "template": digest(template)}
    return TaskModel(label, model, sampling, seed, digest(canonical(parts))[:12], sample)


def asked_hash(messages: Sequence[Message]) -> str:
    """``input_hash`` of an answer or a judgment: all that the model was shown."""
    return digest(*(part for message in messages for part in (message.role, message.content)))


@dataclass(slots=True)
class AnswerWork:
    """Ask the tested model for one item. An empty answer is an answer, a declined one too."""

    phase: str
    task_model: TaskModel
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
        return self.task_model.label

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Answer:
        request = Request(self.item.messages, labels=self.item.labels)
        said = await ask(
            self.asked,
            lambda i: self.task_model.request(request, self.key, self.tried + i, ANSWERING),
            lambda completion: completion,
            retries=RETRIES,
            tally=self.tally,
        )
        sent = {name: value for name, value in self.task_model.sampling.items() if name not in said.dropped}
        response = said.text or said.refusal or ""
        return Answer(**self._identity(), response=response, sampling=sent, **made(self.tally, self.tried))

    def failed(self, error: Exception) -> Answer:
        return Answer(**self._identity(), **failure(error, self.tally, self.tried))

    def _identity(self) -> dict[str, Any]:
        return {
            "id": self.item.id,
            "prompt": prompt_of(self.item),
            "model": self.task_model.model,
            "recipe": self.task_model.recipe,
            "input_hash": asked_hash(self.item.messages),
        }


@dataclass(slots=True)
class JudgmentWork:
    """Ask the judge for one judgment, until it can be read."""

    phase: str
    task_model: TaskModel
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
        return self.task_model.label

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Judgment:
        value = await ask(
            self.asked,
            lambda i: self.task_model.request(
                self.wanted.request(self.tried + i), self.key, self.tried + i, JUDGING
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
            "judge": self.task_model.model,
            "raw": None if last is None else last.refusal or last.text,
            "recipe": self.task_model.recipe,
            "input_hash": asked_hash(self.wanted.request(0).messages),
        }


def prompt_of(item: Item) -> str:
    """The item's last message, which is the prompt of a benchmark of one turn."""
    return item.messages[-1].content
