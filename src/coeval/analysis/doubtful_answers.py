"""Answers that are cut off or empty: how many, by what, and what follows for scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coeval.core.text import listed

# --- Answers cut off by max_tokens

# The share of cut answers above which a score is no longer that of the model.
TOO_MANY = 0.01
ANSWER_LIMIT = "max_tokens (of your own code: max_answer_bytes)"
_ABOVE = "more than 1%"


class CutOffAnswers(NamedTuple):
    """How many of the answers of a student, or to a task, are cut off, ``by_window`` of them by the server's
    window; ``answers`` counts the good ones."""

    name: str
    cut: int
    answers: int
    by_window: int = 0

    @property
    def too_many(self) -> bool:
        return self.cut > TOO_MANY * self.answers

    @property
    def reason(self) -> str:
        """Why scores cannot be compared with published ones, where they are too many."""
        return f"{cut_off_at([self])}: {self.cut:,} of {self.answers:,} answers ({_ABOVE})"


def cut_off_at(counts: Iterable[CutOffAnswers]) -> str:
    """Say what cut answers off."""
    return _where(counts, "cut off at max_tokens", "cut off by the server's window", " or ")


def _where(counts: Iterable[CutOffAnswers], at_limit: str, at_window: str, both: str) -> str:
    found = {(count.cut > count.by_window, count.by_window > 0) for count in counts if count.cut}
    parts = (at_limit, any(limit for limit, _ in found)), (at_window, any(window for _, window in found))
    return both.join(part for part, is_so in parts if is_so)


def cut_off_remedy(counts: Iterable[CutOffAnswers]) -> str:
    """Say what to raise."""
    return _where(counts, f"raise {ANSWER_LIMIT}", "raise the server's --max-model-len", " and ")


def cut_off_sentence(counts: Sequence[CutOffAnswers], preposition: str) -> str | None:
    """How many answers ``of`` each student, or ``to`` each task, are cut off; None where none is."""
    cut = sorted((count for count in counts if count.cut), key=lambda count: -count.cut)
    if not cut:
        return None
    parts = [f"{count.cut:,} of {count.answers:,} answers {preposition} {count.name}" for count in cut]
    return f"{cut_off_at(cut).capitalize()}: {listed(parts)}."


def warning_of_cut_off(counts: Sequence[CutOffAnswers]) -> str | None:
    """What follows for the scores where more than 1 % are cut off; None where it is less."""
    many = [count for count in counts if count.too_many]
    if not many:
        return None
    remedy = cut_off_remedy(many)
    return (
        f"{_ABOVE.capitalize()} of the answers cut off: {listed(count.name for count in many)}. "
        f"{remedy[0].upper()}{remedy[1:]} before trusting these scores."
    )


# --- Empty answers

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
    requested = [count for count in found if not count.given]
    cut = sum(count.truncated for count in requested)
    ended = sum(count.empty for count in requested) - cut
    causes = [cause for cause, number in ((_CUT_OFF, cut), (_ENDED, ended)) if number]
    if len(causes) == 2:
        causes = [f"of the {cut:,} that were cut off, {_CUT_OFF}", f"of the other {ended:,}, {_ENDED}"]
    if len(requested) < len(found):
        causes.append(_GIVEN)
    return f"Likely cause{'s' if len(causes) > 1 else ''}: {'; '.join(causes)}"
