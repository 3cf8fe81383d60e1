"""Answers that the limit on tokens cut off: when they are too many, and how every table says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coeval.core.text import listed

__all__ = ["CutOffAnswers", "cut_off_sentence", "warning_of_cut_off"]

TOO_MANY = 0.01
"""The share of cut answers above which a score is no longer that of the model."""
_ABOVE = "more than 1 %"


class CutOffAnswers(NamedTuple):
    """How many of the answers of a student, or to a task, are cut off; ``answers`` counts the good ones."""

    name: str
    cut: int
    answers: int

    @property
    def too_many(self) -> bool:
        return self.cut > TOO_MANY * self.answers

    @property
    def reason(self) -> str:
        """Why scores cannot be compared with published ones, where they are too many."""
        return f"cut off at max_tokens: {self.cut:,} of {self.answers:,} answers ({_ABOVE})"


def cut_off_sentence(counts: Sequence[CutOffAnswers], preposition: str) -> str | None:
    """How many answers ``of`` each student, or ``to`` each task, are cut off; None where none is."""
    cut = sorted((count for count in counts if count.cut), key=lambda count: -count.cut)
    if not cut:
        return None
    parts = [f"{count.cut:,} of {count.answers:,} answers {preposition} {count.name}" for count in cut]
    return f"Cut off at max_tokens: {listed(parts)}."


def warning_of_cut_off(counts: Sequence[CutOffAnswers]) -> str | None:
    """What follows for the scores where more than 1 % are cut off; None where it is less."""
    names = [count.name for count in counts if count.too_many]
    if not names:
        return None
    return (
        f"{_ABOVE.capitalize()} of the answers cut off: {listed(names)}. "
        "Raise max_tokens before trusting these scores."
    )
