"""Where a value stands in a row: ``question``, ``choices[0]``, ``options.A``; and texts with such places in
them, ``{question}\\nA) {choices[0]}``."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ROOTED = re.compile(r"([^.\[\]]+)((?:\.[^.\[\]]+|\[\d+\])+)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_PIECE = re.compile(r"\{\{|\}\}|\\n|\\t|\{([^{}]+)\}")
_PLAIN = {"{{": "{", "}}": "}", "\\n": "\n", "\\t": "\t"}

Row = Mapping[str, Any]


class NamedLabel(int):
    """A class label as data sets of Hugging Face keep it: its place among the names, and its own ``name``,
    which is its text."""

    name: str

    def __new__(cls, place: int, name: str) -> NamedLabel:
        found = super().__new__(cls, place)
        found.name = name
        return found


class Misfit(ValueError):
    """A value is not what is wanted there; it says so in words for people."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """``text`` as somebody wrote it; ``root`` is the column, ``steps`` what follows within its value."""

    text: str
    root: str
    steps: tuple[str | int, ...] = ()

    @classmethod
    def among(cls, text: str, columns: Collection[str]) -> FieldPath:
        """A column of that very name goes before a place within one. The root need not be among them."""
        match = _ROOTED.fullmatch(text) if text not in columns else None
        if match is None:
            return cls(text, text)
        steps = tuple(name or int(place) for name, place in _STEP.findall(match[2]))
        return cls(text, match[1].strip(), steps)

    def value(self, row: Row) -> Any:
        """None where there is nothing; raises Misfit where the value has no such place."""
        value = row.get(self.root)
        for step in self.steps:
            match value, step:
                case (None, _):
                    return None
                case dict(), str():
                    value = value.get(step)
                case list() | tuple(), int():
                    value = value[step] if step < len(value) else None
                case _:
                    raise Misfit(f"there is no `{self.text}`: what is before it is {kind_of_value(value)}")
        return value

    def words(self, row: Row) -> str | None:
        """The value as text; None where there is none, or only blanks. Raises Misfit for a list."""
        value = row.get(self.root) if not self.steps else self.value(row)
        if not isinstance(value, str):
            if value is None or value != value:  # a number that is none stands where there is no value
                return None
            value = as_text(value, self.text)
        return value if value and not value.isspace() else None


@dataclass(frozen=True, slots=True)
class RowTemplate:
    """Text and places in turn, beginning and ending with text."""

    texts: tuple[str, ...]
    places: tuple[FieldPath, ...]

    @classmethod
    def among(cls, text: str, columns: Collection[str]) -> RowTemplate:
        """``{{`` and ``}}`` stand for braces, ``\\n`` and ``\\t`` for what they are in most languages."""
        texts, places, end = [""], [], 0
        for piece in _PIECE.finditer(text):
            texts[-1] += text[end : piece.start()]
            end = piece.end()
            if piece[1] is None:
                texts[-1] += _PLAIN[piece[0]]
            else:
                places.append(FieldPath.among(piece[1].strip(), columns))
                texts.append("")
        texts[-1] += text[end:]
        return cls(tuple(texts), tuple(places))

    def words(self, row: Row) -> str | None:
        """The text, filled. Raises Misfit where a place holds nothing, or no text."""
        filled = [self.texts[0]]
        for place, text in zip(self.places, self.texts[1:], strict=True):
            if (words := place.words(row)) is None:
                raise Misfit(f"its `{place.text}` is empty")
            filled += (words, text)
        return "".join(filled)


def is_template(text: str) -> bool:
    return "{" in text


def as_text(value: Any, named: str) -> str:
    """A value that is no text yet; raises Misfit where it is several."""
    match value:
        case str():
            return value
        case NamedLabel():
            return value.name
        case bool():
            return "true" if value else "false"
        case int() | float() | decimal.Decimal() | uuid.UUID():
            return str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case dict():
            part = next(iter(value), "part")
            raise Misfit(f"its `{named}` is a mapping; name a part of it, such as {named}.{part}")
        case list() | tuple():
            raise Misfit(f"its `{named}` is a list; name an entry of it, such as {named}[0]")
        case _:
            raise Misfit(f"its `{named}` is {kind_of_value(value)}, and no text")


def kind_of_value(value: Any) -> str:
    match value:
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str():
            return "text"
        case bytes() | bytearray():
            return "bytes"
        case Sequence():
            return "a list"
        case _:
            return f"a value of the kind {type(value).__name__}" if value is not None else "nothing"
