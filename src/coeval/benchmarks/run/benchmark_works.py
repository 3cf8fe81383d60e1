"""Works of a benchmark: one answer, or one judgment of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.assets.library import read_records
from coeval.benchmarks.benchmark import Answer, Ask, Item, Judgment
from coeval.core.errors import UsageError
from coeval.core.records import Completion, Message, Request
from coeval.core.text import digest
from coeval.engine.model_work import ModelWork, RoleModel, spoken

# Retries per item beyond the transport's (the pipeline's default).
RETRIES = 2
# Typical judgments per answer, to bound what is begun ahead.
JUDGMENTS_EACH = 12


def requested_hash(messages: Sequence[Message]) -> str:
    """Hash all that the model is shown: the ``input_hash`` of an answer or a judgment."""
    return digest(*(part for message in messages for part in (message.role, message.content)))


@dataclass(slots=True)
class AnswerWork(ModelWork[Answer]):
    """Ask the tested model for one item. Empty and declined answers count as answers."""

    phase: str
    item: Item
    weight: int

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
            "input_hash": requested_hash(self.item.messages),
        }


@dataclass(slots=True)
class JudgmentWork(ModelWork[Judgment]):
    """Ask the judge for one judgment until it can be parsed; ``alone`` where no other of its item is
    missing."""

    phase: str
    item: str
    needed: Ask
    alone: bool = False

    weight = 1
    record = Judgment

    def question(self, _: int) -> Request:
        requested = self.needed.request()
        return msgspec.structs.replace(requested, shared=0) if self.alone and requested.shared else requested

    def read(self, completion: Completion) -> dict[str, Any]:
        spoken(completion, "the judge")
        return {"value": self.needed.parse(completion)}

    def identity(self) -> dict[str, Any]:
        last = self.tally.last
        return {
            "id": self.key,
            "item": self.item,
            "judge": self.role_model.model,
            "raw": None if last is None else last.refusal or last.text,
            "recipe": self.role_model.recipe.hash,
            "input_hash": requested_hash(self.needed.request().messages),
        }


def prompt_of(item: Item) -> str:
    """Return the item's last message: the prompt of a single-turn benchmark."""
    return item.messages[-1].content


# --- Supplied responses


class GivenCounts(msgspec.Struct, frozen=True):
    """Coverage of a file of responses.

    ``doubled`` counts ``records`` that a later one of the same prompt replaces, ``unknown`` those of no
    prompt of the task, ``missing`` the prompts without a response.
    """

    records: int
    doubled: int
    unknown: int
    missing: int


class Given(NamedTuple):
    """Answers by item, and the coverage of their file."""

    answers: dict[str, Answer]
    counts: GivenCounts


def source_of(path: Path) -> str:
    """Name a file of responses as in records: its path as given, normalised."""
    return Path(os.path.normpath(path)).as_posix()


def read_given(path: Path, prompts: Sequence[Item], items: Sequence[Item], tested: RoleModel) -> Given:
    """Read the answers to ``items`` from a JSONL file of ``{key or prompt, response}``; an item's last line
    wins.

    A null response is an empty one. ``prompts`` are all of the task, ``items`` those to score.

    Raises UsageError: the file cannot be read, a line lacks ``response``, or no line is about any of the
    items.
    """
    by_id = {item.id: item for item in prompts}
    by_prompt = {prompt_of(item).strip(): item for item in prompts}
    found: dict[str, Answer] = {}
    records = unknown = 0
    for records, record in enumerate(read_records(path), 1):
        if "response" not in record or not isinstance(record["response"], str | None):
            raise UsageError(
                f"{path}: record {records} has no text under `response`; it has {sorted(record)}"
            )
        item = _item_of(record, by_id, by_prompt)
        if item is None:
            unknown += 1
        else:
            found[item.id] = _answer(item, record["response"] or "", tested, source_of(path))
    answers = {item.id: found[item.id] for item in items if item.id in found}
    if not answers:
        raise UsageError(
            f"{path}: none of its {records} records is about a prompt to be scored; each needs `key` (or "
            "`id`) or `prompt` as in the task's data, and `response`"
        )
    doubled, missing = records - unknown - len(found), len(items) - len(answers)
    return Given(answers, GivenCounts(records, doubled, unknown, missing))


def _item_of(record: dict[str, Any], by_id: dict[str, Item], by_prompt: dict[str, Item]) -> Item | None:
    for name in ("key", "id"):
        if record.get(name) is not None and (item := by_id.get(str(record[name]))) is not None:
            return item
    prompt = record.get("prompt")
    return by_prompt.get(prompt.strip()) if isinstance(prompt, str) else None


def _answer(item: Item, response: str, tested: RoleModel, source: str) -> Answer:
    return Answer(
        id=item.id,
        prompt=prompt_of(item),
        response=response,
        model=tested.model,
        source=source,
        recipe=tested.recipe.hash,
        input_hash=requested_hash(item.messages),
    )
