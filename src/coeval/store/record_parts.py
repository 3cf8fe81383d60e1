"""What is read of a record's line to know where it stands: its value, and what it says of its making."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from coeval.core.foreign import decoder
from coeval.core.good import is_good, valid_levels
from coeval.store.record_index import Index, RecordPart

NONE = msgspec.Raw(b"null")
_EMPTY = msgspec.Raw(b"{}")
_mapping = decoder(dict[str, Any])


class ItemPart(RecordPart, frozen=True, kw_only=True):
    task_id: str
    teacher_model_id: str
    prompt: str | None = None
    reference_response: str | None = None
    sampled_target_attributes: dict[str, str] = msgspec.field(default_factory=dict)
    recipe: str = ""

    @property
    def value(self) -> str | None:
        return self.prompt


class ResponsePart(RecordPart, frozen=True, kw_only=True):
    datapoint_id: str
    student_model_id: str
    response: str | None = None
    truncated: bool = False
    recipe: str = ""
    input_hash: str = ""

    @property
    def value(self) -> str | None:
        return self.response


class EvaluationPart(RecordPart, frozen=True, kw_only=True):
    response_id: str
    judge_model_id: str
    task_id: str = ""
    scores: msgspec.Raw = _EMPTY
    criteria: msgspec.Raw = _EMPTY
    label_scores: msgspec.Raw = NONE
    recipe: str = ""
    input_hash: str = ""

    @property
    def value(self) -> object:
        return self.label_scores if self.label_scores != NONE else valid_levels(_mapping(self.scores)) or None


_PART_OF: dict[str, type[RecordPart]] = {
    "data_generation": ItemPart,
    "response_collection": ResponsePart,
    "evaluation": EvaluationPart,
}


class Known(msgspec.Struct, frozen=True):
    """That a record is there, and whether it is good."""

    good: bool


def known_records(files: Iterable[Path], phase: str) -> Index[Known]:
    """Where the records of a phase 3–5 lie that count."""
    index: Index[Known] = Index()
    good, failed = Known(True), Known(False)
    index.read(files, _PART_OF[phase], lambda part: good if is_good(part) else failed)
    return index
