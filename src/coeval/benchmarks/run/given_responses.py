"""Responses from elsewhere, to be scored without asking a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.assets import read_records
from coeval.benchmarks.benchmark import Answer, Item
from coeval.benchmarks.run.benchmark_works import asked_hash, prompt_of
from coeval.core.errors import UsageError
from coeval.engine.role_model import RoleModel


class GivenCounts(msgspec.Struct, frozen=True):
    """How a file of responses fits the prompts.

    ``doubled`` counts its ``records`` that a later one of the same prompt replaces, ``unknown`` those
    about no prompt of the task, ``missing`` the prompts to be scored that have no response.
    """

    records: int
    doubled: int
    unknown: int
    missing: int


class Given(NamedTuple):
    """Answers by item, and how the file that they are from fits the prompts."""

    answers: dict[str, Answer]
    counts: GivenCounts


def source_of(path: Path) -> str:
    """How a file of responses is named in records: its path as given, in one spelling."""
    return Path(os.path.normpath(path)).as_posix()


def read_given(path: Path, prompts: Sequence[Item], items: Sequence[Item], tested: RoleModel) -> Given:
    """The answers to ``items`` in a JSONL file of ``{key or prompt, response}``; the last of an item wins.

    A null response is an empty one. ``prompts`` are all of the task, ``items`` those to be scored.

    Raises
    ------
    UsageError
        the file cannot be read, a line lacks ``response``, or no line is about any of the items.
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
    for field in ("key", "id"):
        if record.get(field) is not None and (item := by_id.get(str(record[field]))) is not None:
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
        input_hash=asked_hash(item.messages),
    )
