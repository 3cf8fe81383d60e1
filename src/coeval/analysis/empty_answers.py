"""Answers that hold nothing: they count like all others, and every table says how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coeval.core.text import listed

__all__ = ["EmptyAnswers", "empty_answers_sentence"]

_CUT_OFF = "reasoning that used all of max_tokens (raise it)"
_ENDED = "a filter of the host, or a chat template that does not fit the model"
_GIVEN = "they are empty in the file of responses"


class EmptyAnswers(NamedTuple):
    """How many of the answers of a student, or to a task, are empty; ``answers`` counts the good ones.

    ``truncated`` of the empty ones were cut off; ``given``: they come from a file, not from a model.
    """

    name: str
    empty: int
    truncated: int
    answers: int
    given: bool = False


def empty_answers_sentence(counts: Sequence[EmptyAnswers], preposition: str) -> str | None:
    """How many answers ``of`` each student, or ``to`` each task, are empty, and the likely causes; None
    where none is."""
    found = sorted((count for count in counts if count.empty), key=lambda count: -count.empty)
    if not found:
        return None
    parts = [f"{count.empty:,} of {count.answers:,} answers {preposition} {count.name}" for count in found]
    return f"Empty, and counted like all others: {listed(parts)}. {_causes(found)}."


def _causes(found: Sequence[EmptyAnswers]) -> str:
    asked = [count for count in found if not count.given]
    cut = sum(count.truncated for count in asked)
    ended = sum(count.empty for count in asked) - cut
    causes = [cause for cause, number in ((_CUT_OFF, cut), (_ENDED, ended)) if number]
    if len(causes) == 2:
        causes = [f"of the {cut:,} that were cut off, {_CUT_OFF}", f"of the other {ended:,}, {_ENDED}"]
    if len(asked) < len(found):
        causes.append(_GIVEN)
    return f"Likely cause{'s' if len(causes) > 1 else ''}: {'; '.join(causes)}"
