"""Works of a task (an answer, a judgment), and its files: records by recipe, and where new ones go.

``responses.jsonl`` holds the answers of the current recipe (`RoleModel`, with the seed); those of another are
set aside as ``responses.<model>-<recipe>.jsonl`` and restored with their settings. Judgments are in one
``judgments.<judge>-<recipe>.jsonl`` per recipe.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from coeval.benchmarks.assets.library import read_records
from coeval.benchmarks.benchmark import Answer, Ask, Item, Judgment, file_name
from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.records import Completion, Kept, Message, Request, choose_counted, is_good
from coeval.core.regular_files import read_file_bytes
from coeval.core.text import digest, join_names, pluralize
from coeval.engine.model_work import ModelWork, RecordFields, RoleModel, differing_parts, text_unless_refused
from coeval.store.jsonl import append_lines, decode_records, read_decodable_lines, store_error
from coeval.store.output_folder import RESPONSES, SCORES, SHARDS, SUMMARY
from coeval.store.rundir import RunDir

# Retries per item beyond the transport's (the pipeline's default).
RETRIES = 2
# Typical judgments per answer, to bound what is begun ahead.
JUDGMENTS_EACH = 12


def hash_messages(messages: Sequence[Message]) -> str:
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

    def parse_fields(self, completion: Completion) -> RecordFields:
        sent = self.role_model.sampling.without(completion.dropped).to_dict()
        return {"response": completion.text or completion.refusal or "", "sampling": sent}

    def identity_fields(self) -> RecordFields:
        return {
            "prompt": last_message(self.item),
            "model": self.role_model.model,
            "input_hash": hash_messages(self.item.messages),
        }


@dataclass(slots=True)
class JudgmentWork(ModelWork[Judgment]):
    """Ask the judge for one judgment; ``alone`` where no other of its item is missing."""

    phase: str
    item: str
    needed: Ask
    alone: bool = False

    weight = 1
    record = Judgment

    def question(self, _: int) -> Request:
        requested = self.needed.request()
        return msgspec.structs.replace(requested, shared=0) if self.alone and requested.shared else requested

    def parse_fields(self, completion: Completion) -> RecordFields:
        text_unless_refused(completion, "the judge")
        return {"value": self.needed.parse(completion)}

    def identity_fields(self) -> RecordFields:
        last = self.tally.last
        return {
            "item": self.item,
            "judge": self.role_model.model,
            "raw": None if last is None else last.refusal or last.text,
            "input_hash": hash_messages(self.needed.request().messages),
        }


def last_message(item: Item) -> str:
    """Return the item's last message: the prompt of a single-turn benchmark."""
    return item.messages[-1].content


# --- Supplied responses


class SuppliedCounts(msgspec.Struct, frozen=True):
    """Coverage of a file of responses. ``doubled`` counts ``records`` that a later one of the same prompt
    replaces, ``unknown`` those of no prompt of the task, ``missing`` the prompts without a response."""

    records: int
    doubled: int
    unknown: int
    missing: int


class SuppliedAnswers(NamedTuple):
    """Answers by item, and the coverage of their file."""

    answers: dict[str, Answer]
    counts: SuppliedCounts


def normalise_source(path: Path) -> str:
    """Normalise the path of a response file, as records name it."""
    return Path(os.path.normpath(path)).as_posix()


def read_response_file(
    path: Path, prompts: Sequence[Item], items: Sequence[Item], tested: RoleModel
) -> SuppliedAnswers:
    """Read the answers to ``items`` from a JSONL file of ``{key or prompt, response}``; an item's last line
    wins. A null response is an empty one. ``prompts`` are all of the task, ``items`` those to score. Raises
    UsageError: the file cannot be read, a line lacks ``response``, or no line is about any of the items."""
    by_id = {item.id: item for item in prompts}
    by_prompt = {last_message(item).strip(): item for item in prompts}
    answers_by_id: dict[str, Answer] = {}
    records = unknown = 0
    for records, record in enumerate(read_records(path), 1):
        if "response" not in record or not isinstance(record["response"], str | None):
            raise UsageError(
                f"{path}: record {records} has no text under `response`; it has {sorted(record)}"
            )
        item = _find_item(record, by_id, by_prompt)
        if item is None:
            unknown += 1
        else:
            answers_by_id[item.id] = Answer(
                id=item.id,
                prompt=last_message(item),
                response=record["response"] or "",
                model=tested.model,
                source=normalise_source(path),
                recipe=tested.recipe.hash,
                input_hash=hash_messages(item.messages),
            )
    answers = {item.id: answers_by_id[item.id] for item in items if item.id in answers_by_id}
    if not answers:
        raise UsageError(
            f"{path}: none of its {records} records answers a prompt of the task; each needs `key` (or "
            "`id`) or `prompt` as in the task's data, and `response`"
        )
    doubled, missing = records - unknown - len(answers_by_id), len(items) - len(answers)
    return SuppliedAnswers(answers, SuppliedCounts(records, doubled, unknown, missing))


def _find_item(record: dict[str, Any], by_id: dict[str, Item], by_prompt: dict[str, Item]) -> Item | None:
    for name in ("key", "id"):
        if record.get(name) is not None and (item := by_id.get(str(record[name]))) is not None:
            return item
    prompt = record.get("prompt")
    return by_prompt.get(prompt.strip()) if isinstance(prompt, str) else None


RecordT = TypeVar("RecordT", Answer, Judgment)


class _MadeBy(msgspec.Struct):
    recipe: str = ""
    parts: dict[str, str] = {}


class SummaryExcerpt(msgspec.Struct):
    """The part of a ``summary.json`` that is read again."""

    model: str = ""
    given: SuppliedCounts | None = None
    inference: _MadeBy | None = None


class TaskFolder:
    """The files of one task (of one sample, if there are several). With ``whole`` it is a shard's folder;
    prompts may be answered in the whole folder already."""

    def __init__(self, path: Path, whole: TaskFolder | None = None) -> None:
        self.path = path
        self.whole = whole
        self.responses, self.scores, self.summary = path / RESPONSES, path / SCORES, path / SUMMARY
        self._damaged: dict[Path, int] = {}

    def judgments_path(self, judge: RoleModel) -> Path:
        return self.path / f"judgments.{file_name(judge.model)}-{judge.recipe.hash[:8]}.jsonl"

    def hold_lock(self) -> AbstractContextManager[None]:
        """Hold the folder's lock; the UsageError names the process that has it."""
        return RunDir(self.path).hold_lock()

    def switch_recipe(self, tested: RoleModel) -> str | None:
        """Make ``responses.jsonl`` the file of this recipe; return a message if another's was set aside."""
        aside = self._aside_path(tested.model, tested.recipe.hash)
        first = read_first_answer(self.responses)
        message = None
        try:
            if first is not None and first.recipe != tested.recipe.hash:
                other = self._aside_path(first.model, first.recipe)
                self.responses.replace(other)
                difference = self._describe_difference(first, tested)
                message = f"{self.path}: answers made with {difference} are kept in {other.name}"
            if aside.exists() and not self.responses.exists():
                aside.replace(self.responses)
        except OSError as error:
            raise store_error("move", self.responses, error) from error
        return message

    def _describe_difference(self, answer: Answer, tested: RoleModel) -> str:
        parts = self.read_recipe_parts_from_summary(answer.recipe)
        names = differing_parts(parts, tested.recipe.parts) if parts else []
        keys = [name.removeprefix("parameters.").removesuffix(" (student)") for name in names]
        return f"other settings ({join_names(keys)})" if keys else "other settings"

    def read_recipe_parts_from_summary(self, recipe: str) -> dict[str, str]:
        """Return the recipe's parts from the last summary, if known."""
        made = self.read_summary().inference
        return made.parts if made is not None and made.recipe == recipe else {}

    def read_summary(self) -> SummaryExcerpt:
        """Read the last summary; empty where it is missing, damaged or another program's."""
        try:
            return decode(read_file_bytes(self.summary), SummaryExcerpt)
        except (FileNotFoundError, Undecodable):
            return SummaryExcerpt()
        except OSError as error:
            raise store_error("read", self.summary, error) from error

    def has_answers(self) -> bool:
        return self.responses.exists() or any(self.path.glob(f"{SHARDS}/*/{RESPONSES}"))

    def merge_shards(self) -> None:
        """Merge the answers made in shards, with the folder's lock held, and remove the shards' folders. A
        shard in use is left; the next merge completes an interrupted one. Raises StoreError: a file cannot be
        read or written; no answer is lost."""
        for part in sorted(self.path.glob(f"{SHARDS}/*/")):
            lock = RunDir(part)
            try:
                with lock.hold_lock():
                    for file in sorted(part.glob("responses*.jsonl")):
                        self._merge_file(file)
                        file.unlink()
            except UsageError:  # another process holds it
                continue
            except OSError as error:
                raise store_error("take in", part, error) from error
            with suppress(OSError):  # somebody has begun to work there again
                part.rmdir()
        with suppress(OSError):  # there are none, or some are left
            (self.path / SHARDS).rmdir()

    def _merge_file(self, file: Path) -> None:
        first = read_first_answer(file)
        if first is None:
            return
        own = read_first_answer(self.responses)
        same = own is None or own.recipe == first.recipe
        target = self.responses if same else self._aside_path(first.model, first.recipe)
        present = self._read_counted(target, Answer)
        added = [
            record
            for record in self._read_counted(file, Answer).values()
            if (earlier := present.get(record.id)) is None or (is_good(record) and not is_good(earlier))
        ]
        append_lines(target, added)  # they are on disk before the file that they came from goes

    def read_answering_model(self) -> str:
        """Return the model whose answers are stored; empty if there are none."""
        first = read_first_answer(self.responses)
        return first.model if first is not None else ""

    def read_counted_answers(self, tested: RoleModel | None) -> dict[str, Answer]:
        """Read the answers by item, failed ones if no good one exists. Those of ``tested``, even if set
        aside; None: those of ``responses.jsonl``."""
        mine = self._read_counted(self.responses if tested is None else self._answers_path(tested), Answer)
        if self.whole is None:
            return mine
        return choose_counted((*self.whole.read_counted_answers(tested).values(), *mine.values()))

    def _answers_path(self, tested: RoleModel) -> Path:
        """Return the file with this recipe's answers, if any, which `switch_recipe` moves into place."""
        first = read_first_answer(self.responses)
        others = first.recipe != tested.recipe.hash if first is not None else not self.responses.exists()
        return self._aside_path(tested.model, tested.recipe.hash) if others else self.responses

    def read_judgments(self, judge: RoleModel) -> dict[str, Judgment]:
        """Read the judgments of this judge's recipe by ask, failed ones as in `read_counted_answers`."""
        return self._read_counted(self.judgments_path(judge), Judgment)

    def _read_counted(self, path: Path, kind: type[RecordT]) -> dict[str, RecordT]:
        decoded = list(decode_records(path, kind))
        records = [record for record in decoded if not isinstance(record, Undecodable)]
        self._damaged[path] = len(decoded) - len(records)
        return choose_counted(records)

    def damage_remarks(self) -> Iterator[str]:
        """Yield a sentence on each file with damaged lines."""
        for path, lines in self._damaged.items():
            if lines:
                damage = pluralize(lines, "damaged line")
                yield f"{path} has {damage}; its contents are requested again"

    def _aside_path(self, model: str, recipe: str) -> Path:
        return self.path / f"responses.{file_name(model)}-{recipe[:8]}.jsonl"


def read_first_answer(path: Path) -> Answer | None:
    """Return the first whole record of an answer file, which has one recipe."""
    return next(read_decodable_lines(path, Answer), None)


def is_good_and_current(record: Kept | None, recipe: str, input_hash: str) -> bool:
    """Check whether a record exists, is good, and up to date."""
    return (
        record is not None and is_good(record) and record.recipe == recipe and record.input_hash == input_hash
    )
