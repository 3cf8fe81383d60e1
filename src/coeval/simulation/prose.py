"""Plain sentences without content, so that texts have a length and differ."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from coeval.core.records import Request, Schema
from coeval.simulation.traits import Traits, name_family

# --- Draws that depend on the request alone

T = TypeVar("T")


class Draws:
    """Named random draws: request and name give the same number in any process; a new name shifts none."""

    def __init__(self, model: str, request: Request) -> None:
        digest = blake2b(digest_size=32)
        # Lengths stand before texts, so that no two requests can run into the same bytes.
        for text in (model, str(request.seed), *(t for m in request.messages for t in (m.role, m.content))):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
        self._key = digest.digest()

    def bits(self, name: str) -> int:
        """Draw an integer below 2**64."""
        return int.from_bytes(self._bytes(name, 8), "big")

    def uniform(self, name: str) -> float:
        """Draw a number in [0, 1)."""
        return (self.bits(name) >> 11) * 2.0**-53

    def normal(self, name: str) -> float:
        """Draw a number of mean 0 and standard deviation 1, within ±3.5. The scaled sum of four uniform
        numbers (Irwin-Hall): nearly normal, and bounded."""
        four = self._bytes(name, 16)
        total = sum(int.from_bytes(four[i : i + 4], "big") for i in (0, 4, 8, 12))
        return (total * 2.0**-32 - 2.0) * math.sqrt(3.0)

    def pick(self, name: str, choices: Sequence[T]) -> T:
        return choices[self.bits(name) % len(choices)]

    def some(self, name: str, choices: Sequence[T], count: int) -> list[T]:
        """Draw ``count`` distinct choices (all, if fewer), in random order."""
        left, number = list(choices), self.bits(name)
        drawn: list[T] = []
        while left and len(drawn) < count:
            number, at = divmod(number, len(left))
            drawn.append(left.pop(at))
        return drawn

    def _bytes(self, name: str, size: int) -> bytes:
        return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=size, key=self._key).digest()


TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def write_sentences(draws: Draws, name: str, count: int) -> str:
    """Write ``count`` sentences (at least one) on one line."""
    return " ".join(draw_sentences(draws, name, count))


def draw_sentences(draws: Draws, name: str, count: int) -> list[str]:
    """Write ``count`` sentences (at least one)."""
    return [_compose_sentence(draws.bits(f"{name} {number}")) for number in range(max(1, count))]


def _compose_sentence(number: int) -> str:
    parts = []
    for choices in TEXTS["sentences"].values():
        number, chosen = divmod(number, len(choices))
        parts.append(choices[chosen])
    return "{} {} {}{}.".format(*parts)


# --- Hidden marks in texts
#
# A teacher states an item's difficulty and attributes in the prompt, a student states its answer's quality in
# the answer:
#
#     (simulated item, difficulty 0.37; attributes: sentiment=positive; length=short)
#     [simulated answer of sim-large, quality 0.731]
#
# So it travels through any pipeline, over HTTP too, with nothing kept in the process.

REFUSAL = "I'm sorry, but I can't help with this request."
"""Refusal of a simulated model; a simulated judge gives it the quality 0."""

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
    """Mark of an item. ``difficulty`` is from 0 (easy) to 1 (hard)."""

    difficulty: float
    attributes: dict[str, str] = {}


class AnswerMark(msgspec.Struct, frozen=True):
    """Mark of an answer. ``quality`` is from 0 (worthless) to 1 (perfect)."""

    model: str
    family: str
    quality: float


def write_item_mark(item: ItemMark) -> str:
    pairs = "; ".join(f"{name}={value}" for name, value in item.attributes.items())
    return f"{ITEM_MARK}{item.difficulty:.2f}{'; attributes: ' + pairs if pairs else ''})"


def read_item_mark(text: str) -> ItemMark | None:
    """Parse the last item mark in ``text``, or None."""
    marks = _ITEM.findall(text)
    if not marks:
        return None
    difficulty, listed = marks[-1]
    pairs = (pair.partition("=") for pair in listed.split("; "))
    return ItemMark(float(difficulty), {name: value for name, equals, value in pairs if equals})


def write_answer_mark(answer: AnswerMark) -> str:
    """Write an answer's mark; the family is included where the model's name does not tell it."""
    family = "" if answer.family == name_family(answer.model) else f" (family {answer.family})"
    return f"{ANSWER_MARK}{answer.model}{family}, quality {answer.quality:.3f}]"


def read_answer_mark(text: str) -> AnswerMark | None:
    """Parse the last answer mark in ``text``, or None."""
    marks = _ANSWER.findall(text)
    if not marks:
        return None
    model, family, quality = marks[-1]
    return AnswerMark(model, family or name_family(model), float(quality))


# --- Requests and replies of role players


class Fenced(NamedTuple):
    """An object to write as JSON in a Markdown fence."""

    value: dict[str, Any]


class OfferedChoice(NamedTuple):
    """A one-token text, and the probabilities of all tokens in its place, the likeliest first or second."""

    text: str
    chances: dict[str, float]


Reply: TypeAlias = str | dict[str, Any] | Fenced | OfferedChoice
"""A text, or an object to write as JSON."""


class SimulatedAsk(NamedTuple):
    """One request to ``model``: ``text`` is the last user message, ``labels`` those of the request."""

    model: str
    traits: Traits
    text: str
    schema: Schema | None
    draws: Draws
    labels: dict[str, list[str]]

    def properties(self) -> dict[str, Any]:
        """Return the schema's properties; empty without a schema."""
        schema_part = self.schema.body.get("properties") if self.schema else None
        return schema_part if isinstance(schema_part, dict) else {}
