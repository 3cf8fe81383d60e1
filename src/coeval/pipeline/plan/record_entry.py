"""What is read of the lines of phases 3–5, and what is remembered of each."""

from __future__ import annotations

from typing import Literal

import msgspec

from coeval.store.journal import RecordPart

Change = Literal["", "recipe", "input"]
"""How a good record differs from what would be made now: not at all, by recipe, by what it was made from."""

Emptiness = Literal["", "ended", "truncated"]
"""How an answer without text came about: the model ended it, or the limit on tokens did; "" for others."""


class ItemPart(RecordPart, frozen=True, kw_only=True):
    """What is read of a datapoint's line to know where it stands."""

    task_id: str
    teacher_model_id: str
    prompt: str | None = None
    reference_response: str | None = None
    sampled_target_attributes: dict[str, str] = msgspec.field(default_factory=dict)
    recipe: str = ""


class ResponsePart(RecordPart, frozen=True, kw_only=True):
    datapoint_id: str
    student_model_id: str
    response: str | None = None
    truncated: bool = False
    recipe: str = ""
    input_hash: str = ""


class EvaluationPart(RecordPart, frozen=True, kw_only=True):
    response_id: str
    judge_model_id: str
    task_id: str = ""
    scores: msgspec.Raw = msgspec.Raw(b"{}")
    criteria: msgspec.Raw = msgspec.Raw(b"{}")
    recipe: str = ""
    input_hash: str = ""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """A recorded item or response; one object for all that are alike, so it is known by its identity.

    ``fresh``: made from the content that is there now. ``empty``: how an answer came to have no text.
    """

    good: bool
    recipe: str
    attempts: int
    fresh: bool = True
    empty: Emptiness = ""

    def change(self, recipe: str) -> Change:
        if self.recipe and self.recipe != recipe:
            return "recipe"
        return "" if self.fresh else "input"


class EvaluationEntry(Entry, frozen=True, eq=False):
    """A recorded evaluation; ``scored`` pairs each factor with the hash of its criterion, if known."""

    scored: tuple[tuple[str, str], ...] = ()
