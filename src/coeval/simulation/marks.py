"""The hidden truth, written where the next role reads it.

A teacher states an item's difficulty and attributes in the prompt, a student states its answer's
quality in the answer:

    (simulated item, difficulty 0.37; attributes: sentiment=positive; length=short)
    [simulated answer of sim-large, quality 0.731]

So it travels through any pipeline, over HTTP too, with nothing kept in the process.
"""

from __future__ import annotations

import re

import msgspec

from coeval.simulation.traits import family_of

REFUSAL = "I'm sorry, but I can't help with this request."
"""What a simulated model says when it declines; a simulated judge gives it the quality 0."""

ITEM_MARK = "(simulated item, difficulty "
ANSWER_MARK = "[simulated answer of "

_ITEM = re.compile(
    # A value may hold brackets of its own, one level deep; possessive, so linear on hostile text.
    re.escape(ITEM_MARK) + r"([01]\.\d+)(?:; attributes: ((?:[^()\n]++|\([^()\n]*+\))*+))?"
)
_ANSWER = re.compile(
    # An answer may have to be all capitals, or without commas.
    re.escape(ANSWER_MARK) + r"([^\n\],]{1,200}?)(?: \(family ([^\n\],]{1,200}?)\))?,? quality ([01]\.\d+)\]",
    re.IGNORECASE,
)


class ItemMark(msgspec.Struct, frozen=True):
    """``difficulty`` is 0 (easy) to 1 (hard)."""

    difficulty: float
    attributes: dict[str, str] = {}


class AnswerMark(msgspec.Struct, frozen=True):
    """``quality`` is 0 (worthless) to 1 (perfect)."""

    model: str
    family: str
    quality: float


def write_item(item: ItemMark) -> str:
    pairs = "; ".join(f"{name}={value}" for name, value in item.attributes.items())
    return f"{ITEM_MARK}{item.difficulty:.2f}{'; attributes: ' + pairs if pairs else ''})"


def read_item(text: str) -> ItemMark | None:
    """The last item stated in ``text``, or None."""
    found = _ITEM.findall(text)
    if not found:
        return None
    difficulty, listed = found[-1]
    pairs = (pair.partition("=") for pair in listed.split("; "))
    return ItemMark(float(difficulty), {name: value for name, equals, value in pairs if equals})


def write_answer(answer: AnswerMark) -> str:
    """The family is written where the model's name does not tell it."""
    family = "" if answer.family == family_of(answer.model) else f" (family {answer.family})"
    return f"{ANSWER_MARK}{answer.model}{family}, quality {answer.quality:.3f}]"


def read_answer(text: str) -> AnswerMark | None:
    """The last answer stated in ``text``, or None."""
    found = _ANSWER.findall(text)
    if not found:
        return None
    model, family, quality = found[-1]
    return AnswerMark(model, family or family_of(model), float(quality))
