"""What is wrong with an experiment file, where, and under which rule."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from coeval.core.redaction import Redactor

KeyPath: TypeAlias = tuple[str | int, ...]
"""From the top of the file to a value: ``("models", 2, "roles")``."""


_SHORTEST_STEM = 4

_redactor = Redactor()


class Place(NamedTuple):
    """A line of a file, counted from 1; ``file`` as the user named it. What is in no file has line 0."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Finding(NamedTuple):
    """A broken rule, before its line is known."""

    path: KeyPath
    rule: str
    message: str


class Problem(NamedTuple):
    """A broken rule with its place. ``message`` says what is wrong; what would be right.

    What looks like a key is shown in neither: one may stand where something else should.
    """

    place: Place
    path: str
    rule: str
    message: str

    def render(self) -> str:
        shown = _redactor.message(f"{self.path}  {self.rule}  {self.message}")
        return f"{self.place}  {shown}"


class Lines:
    """Where each value of an experiment stands. Inherited sections stand in the source's file."""

    def __init__(self, file: str, places: Mapping[KeyPath, Place]) -> None:
        self.file = file
        self.places = dict(places)

    def find(self, path: KeyPath) -> Place:
        """The place of a value, or of the nearest mapping or list around it where it is absent."""
        for end in range(len(path), -1, -1):
            if place := self.places.get(path[:end]):
                return place
        return Place(self.file, 1)

    def locate(self, finding: Finding) -> Problem:
        return Problem(
            self.find(finding.path), render_path(finding.path), finding.rule, one_line(finding.message)
        )

    def with_section(self, section: str, other: Lines) -> Lines:
        """Take one top-level section's places from another file."""
        taken = {path: place for path, place in other.places.items() if path[:1] == (section,)}
        return Lines(self.file, self.places | taken)


def render_path(path: KeyPath) -> str:
    """``models[2].roles``; the file as a whole is ``(file)``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{one_line(part)}" if text else one_line(part)
    return text or "(file)"


def one_line(text: str) -> str:
    """A problem is one line, whatever the file's keys and values hold."""
    return " ".join(text.split())


def in_order(problems: Iterable[Problem], main_file: str) -> list[Problem]:
    """By line, the file itself before those it inherits from; a problem found twice stands once."""
    return sorted(dict.fromkeys(problems), key=lambda p: (p.place.file != main_file, p.place))


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, whatever its case; None where nothing is near.

    Near is a word spelt much alike, or the only one of which a part begins alike: ``labels`` is
    ``label_attributes``.
    """
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if not near and len(stem := word.lower().removesuffix("s")) >= _SHORTEST_STEM:
        parts = {name: re.split(r"[\W_]+", name) for name in by_lower}
        begun = [name for name, words in parts.items() if any(part.startswith(stem) for part in words)]
        near = begun if len(begun) == 1 else []
    return by_lower[near[0]] if near else None


def way_out(word: str, known: Iterable[str], otherwise: str) -> str:
    """``did you mean 'x'?`` where a known word is near, else what else can be done."""
    meant = closest(word, known)
    return f"did you mean '{meant}'?" if meant else otherwise


def written(value: Any) -> str:
    """A value as a file of one line writes it: ``[1, x, true]``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(map(written, value))}]"
        case dict():
            return "{" + ", ".join(f"{key}: {written(part)}" for key, part in value.items()) + "}"
        case _:
            return str(value)


def shown(value: Any) -> str:
    """A value of another type than is wanted, as a message may show it: short, in the words of a file."""
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return f"'{value[:60]}{'…' if len(value) > 60 else ''}'"
        case _:
            return written(value)


def listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "(none)"
