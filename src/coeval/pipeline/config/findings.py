"""What is wrong with an experiment file, where, and under which rule."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from coeval.core.errors import ConfigError
from coeval.core.plain import shortened
from coeval.core.redaction import Redactor
from coeval.core.text import listed

KeyPath: TypeAlias = tuple[str | int, ...]
"""From the top of the file to a value: ``("models", 2, "roles")``."""


# Findings of a file that are shown; who mends these sees the next ones.
MOST_SHOWN = 100

# Shorter stems ("id", "max") are part of too many keys to mean one.
_SHORTEST_STEM = 4
# difflib compares in quadratic time, and no key is half as long.
_LONGEST_WORD = 100
# A longer word, and what is known beyond so many, is not compared: that takes its time squared.
_MOST_COMPARED = 500
# A key or a value from a broken file may be megabytes; a finding is a line or a few.
_LONGEST_PATH, _LONGEST_MESSAGE = 200, 2_000
# All interfaces or all fields of a section, and no list of a thousand models.
_MOST_LISTED = 60

_redactor = Redactor()


class Place(NamedTuple):
    """A line of a file, counted from 1; ``file`` as the user named it. What is in no file has line 0."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class WayOut(NamedTuple):
    """What may be meant by ``word``; made a sentence where it is shown, since to compare takes a while.

    ``otherwise`` is said where no known word is near, and lists them all if it ends in a colon; ``always``
    is said in any case.
    """

    word: str
    known: Collection[str]
    otherwise: str = ""
    always: str = ""

    def sentence(self) -> str:
        meant = closest_word(self.word, self.known)
        first = f"did you mean '{meant}'?" if meant else self.otherwise
        if first.endswith(":"):
            first += f" {listed(self.known, _MOST_LISTED) or '(none)'}"
        return f"{first} {self.always}".strip()


class Finding(NamedTuple):
    """A broken rule, before its line is known: ``what`` is wrong, and the way out unless ``what`` says it."""

    path: KeyPath
    rule: str
    what: str
    way: WayOut | None = None

    @property
    def message(self) -> str:
        return one_line(self.what if self.way is None else f"{self.what}; {self.way.sentence()}")


class Problem(NamedTuple):
    """A broken rule with its place. What looks like a key is not shown: one may stand where something else
    should."""

    place: Place
    finding: Finding

    def render(self) -> str:
        path, rule, message = render_path(self.finding.path), self.finding.rule, self.finding.message
        between = f"  {rule}  "
        path, _, message = _redactor.message(f"{path}{between}{message}").partition(between)
        return (
            f"{self.place}  {shortened(path, _LONGEST_PATH)}{between}{shortened(message, _LONGEST_MESSAGE)}"
        )


class FindingLines:
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
        return Problem(self.find(finding.path), finding)

    def with_section(self, section: str, other: FindingLines) -> FindingLines:
        """Take one top-level section's places from another file."""
        taken = {path: place for path, place in other.places.items() if path[:1] == (section,)}
        return FindingLines(self.file, self.places | taken)


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


def refused(problems: Iterable[Problem], main_file: str) -> ConfigError:
    """The problems as an error, by line, the file itself before those it inherits from.

    A problem found twice stands once. Of more than `MOST_SHOWN` the rest is counted, and never rendered.
    """
    distinct: dict[Any, Problem] = {}
    for problem in problems:
        place, finding = problem
        word = finding.way.word if finding.way is not None else None
        distinct.setdefault((place, finding.path, finding.rule, finding.what, word), problem)
    ordered = sorted(distinct.values(), key=lambda p: (p.place.file != main_file, p.place))
    shown = [problem.render() for problem in ordered[:MOST_SHOWN]]
    return ConfigError(shown, more=len(ordered) - len(shown))


def closest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, whatever its case; None where nothing is near.

    Near is a word spelt much alike, or the only one of which a part begins alike: ``labels`` is
    ``label_attributes``.
    """
    if len(word) > _LONGEST_WORD:
        return None
    by_lower = {name.lower(): name for name in itertools.islice(known, _MOST_COMPARED)}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if not near and len(stem := word.lower().removesuffix("s")) >= _SHORTEST_STEM:
        parts = {name: re.split(r"[\W_]+", name) for name in by_lower}
        begun = [name for name, words in parts.items() if any(part.startswith(stem) for part in words)]
        near = begun if len(begun) == 1 else []
    return by_lower[near[0]] if near else None


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
