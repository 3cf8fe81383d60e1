"""What makes a line of a run's files a valid record, and the names of what can be wrong with it.

A line is examined by itself and in the order of the phases: an answer to an item that is not there
is no record of this run. Whether a record still fits the configuration is not asked here: that is
what ``--continue`` tells (see `recorded`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.errors import Misshapen, Undecodable
from coeval.core.foreign import decode, decoder, utf8
from coeval.core.good import is_good
from coeval.core.ids import evaluation_id, item_prefix, proposal_id, response_id
from coeval.core.records import LEVELS, Datapoint, Evaluation, Kept, Response
from coeval.pipeline.config.item_sources import ItemSource
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.phases.blueprint import Proposal
from coeval.pipeline.phases.own_item import read_item

Reason: TypeAlias = Literal[
    "torn", "unreadable", "fields", "item", "id", "value", "level", "factor", "origin"
]
REASONS: dict[Reason, str] = {
    "torn": "the last line was cut off",
    "unreadable": "no JSON",
    "fields": "fields that are missing or of another type",
    "item": "an item of one's own that cannot be used",
    "id": "an id that does not name what the record is about",
    "value": "a good record without a value",
    "level": "a score that is none of High, Medium, Low",
    "factor": "a score for a factor that the rubric does not have",
    "origin": "made from a record that is not there",
}


class Flaw(NamedTuple):
    """Why a line is no valid record."""

    reason: Reason
    detail: str


class _LevelScores(msgspec.Struct):
    scores: dict[str, str]


_KIND: dict[Phase, type[Kept]] = {
    "attribute_mapping": Proposal,
    "rubric_mapping": Proposal,
    "data_generation": Datapoint,
    "response_collection": Response,
    "evaluation": Evaluation,
}


class Examiner:
    """Examines lines, those of an earlier phase first. ``rubrics`` holds each task's factors, if known."""

    def __init__(self, rubrics: Mapping[str, Collection[str]]) -> None:
        self._rubrics = rubrics
        self._items: set[str] = set()
        self._replaced: set[str] = set()
        self._responses: set[str] = set()
        self._read = {phase: decoder(kind) for phase, kind in _KIND.items()}

    def examine(self, phase: Phase, line: bytes, source: ItemSource | None = None) -> Kept | Flaw:
        """The record that a whole line holds, or what is wrong with it.

        A benchmark's items (those of ``source``) are read as they were written by hand.
        """
        if source is not None:
            found = read_item(line, source.task.name, source.teacher)
            return Flaw("item", found) if isinstance(found, str) else self._flaw(found.item) or found.item
        try:
            utf8(line)
            record = self._read[phase](line)
        except Misshapen as error:
            return _misfit(line, str(error))
        except Undecodable as error:
            return Flaw("unreadable", str(error))
        return self._flaw(record) or record

    def know_replaced(self, line: bytes, source: ItemSource) -> None:
        """Take note of an item of one's own that gave way to others: answers to it are records of this run
        that no longer count, and none of them is damaged."""
        found = read_item(line, source.task.name, source.teacher)
        if not isinstance(found, str):
            self._replaced.add(found.item.id)

    def _flaw(self, record: Kept) -> Flaw | None:
        match record:
            case Proposal():
                whose = proposal_id(record.task_id, record.teacher_model_id, record.kind)
                return _named(record, whose) or _valued(record)
            case Datapoint():
                return self._of_item(record)
            case Response():
                return self._of_response(record)
            case Evaluation():
                return self._of_evaluation(record)
            case _:
                raise TypeError(f"no file of a run keeps a {type(record).__name__}")

    def _of_item(self, item: Datapoint) -> Flaw | None:
        start = item_prefix(item.task_id, item.teacher_model_id)
        if not item.id.startswith(start) or item.id == start:
            return Flaw("id", f"{item.id!r} should begin with {start!r} and go on")
        if flaw := _valued(item):
            return flaw
        self._items.add(item.id)
        return None

    def _of_response(self, response: Response) -> Flaw | None:
        if flaw := _named(response, response_id(response.datapoint_id, response.student_model_id)):
            return flaw
        if flaw := _valued(response):
            return flaw
        if response.datapoint_id not in self._items and response.datapoint_id not in self._replaced:
            return Flaw("origin", f"there is no datapoint {response.datapoint_id}")
        self._responses.add(response.id)
        return None

    def _of_evaluation(self, evaluation: Evaluation) -> Flaw | None:
        response = response_id(evaluation.datapoint_id, evaluation.student_model_id)
        if evaluation.response_id != response:
            return Flaw("id", f"response_id is {evaluation.response_id!r}; it should be {response!r}")
        if flaw := _named(evaluation, evaluation_id(response, evaluation.judge_model_id)):
            return flaw
        if flaw := _valued(evaluation):
            return flaw
        factors = self._rubrics.get(evaluation.task_id)
        unknown = [] if factors is None else [f for f in evaluation.scores if f not in factors]
        if unknown:
            return Flaw("factor", f"the rubric has no factor {', '.join(unknown)}")
        if response not in self._responses:
            return Flaw("origin", f"there is no response {response}")
        return None


def _misfit(line: bytes, message: str) -> Flaw:
    """What is wrong with JSON that is no record: a level that is none, or its fields."""
    try:
        scores = decode(line, _LevelScores).scores
    except Undecodable:
        return Flaw("fields", message)
    wrong = [f"{factor}: {level!r}" for factor, level in scores.items() if level not in LEVELS]
    return Flaw("level", ", ".join(wrong)) if wrong else Flaw("fields", message)


def _named(record: Kept, expected: str) -> Flaw | None:
    return None if record.id == expected else Flaw("id", f"it is {record.id!r}; it should be {expected!r}")


def _valued(record: Kept) -> Flaw | None:
    if record.status == "ok" and not is_good(record):
        return Flaw("value", f"{record.id} has status ok and holds no value")
    return None
