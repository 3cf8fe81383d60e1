"""Problems of an experiment file: what is wrong, on which line, by which rule."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from coeval.core.errors import ConfigError
from coeval.core.plain import cut_middle
from coeval.core.redaction import Redactor
from coeval.core.text import join_names

KeyPath: TypeAlias = tuple[str | int, ...]
"""From the top of the file to a value: ``("models", 2, "roles")``."""

FileData: TypeAlias = dict[str, Any]
"""A mapping of a file as plain data, which may be wrong anywhere."""


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


class Location(NamedTuple):
    """A line of a file, counted from 1; 0 if the data came from no file. ``file`` is as the user named it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Suggestion(NamedTuple):
    """What may be meant by ``word``, compared only when shown, since that is slow. ``otherwise`` is used if
    no known word is close, and lists them all if it ends in a colon; ``always`` is added in any case."""

    word: str
    known_words: Collection[str]
    otherwise: str = ""
    always: str = ""

    def sentence(self) -> str:
        meant = closest_word(self.word, self.known_words)
        first = f"did you mean '{meant}'?" if meant else self.otherwise
        if first.endswith(":"):
            first += f" {join_names(self.known_words, _MOST_LISTED) or '(none)'}"
        return f"{first} {self.always}".strip()


class Finding(NamedTuple):
    """A broken rule at a key path: ``what`` is wrong, and how to correct it unless ``what`` says so."""

    path: KeyPath
    rule: str
    what: str
    way: Suggestion | None = None

    @property
    def message(self) -> str:
        return join_lines(self.what if self.way is None else f"{self.what}; {self.way.sentence()}")


class Problem(NamedTuple):
    """A finding with its line. What looks like a key is redacted: one may stand in the wrong place."""

    location: Location
    finding: Finding

    def render(self) -> str:
        path, rule, message = render_path(self.finding.path), self.finding.rule, self.finding.message
        between = f"  {rule}  "
        path, _, message = _redactor.redact_message(f"{path}{between}{message}").partition(between)
        path, message = cut_middle(path, _LONGEST_PATH), cut_middle(message, _LONGEST_MESSAGE)
        return f"{self.location}  {path}{between}{message}"


class LineIndex:
    """The line of each value of an experiment; inherited sections have lines of the source's file."""

    def __init__(self, file: str, locations: Mapping[KeyPath, Location]) -> None:
        self.file = file
        self.locations = dict(locations)

    def find(self, path: KeyPath) -> Location:
        """Return the location of a value, or of the nearest mapping or list around it."""
        for end in range(len(path), -1, -1):
            if location := self.locations.get(path[:end]):
                return location
        return Location(self.file, 1)

    def locate(self, finding: Finding) -> Problem:
        return Problem(self.find(finding.path), finding)

    def with_section(self, section: str, other: LineIndex) -> LineIndex:
        """Take the locations of one top-level section from another file."""
        theirs = {path: line for path, line in other.locations.items() if path[:1] == (section,)}
        return LineIndex(self.file, self.locations | theirs)


def render_path(path: KeyPath) -> str:
    """Render a key path, such as ``models[2].roles``; the file as a whole is ``(file)``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{join_lines(part)}" if text else join_lines(part)
    return text or "(file)"


def join_lines(text: str) -> str:
    """Put a text on one line, with single blanks."""
    return " ".join(text.split())


def build_config_error(problems: Iterable[Problem], main_file: str) -> ConfigError:
    """Make one error of all distinct problems by line, those of ``main_file`` first; beyond `MOST_SHOWN` they
    are only counted."""
    distinct: dict[Any, Problem] = {}
    for problem in problems:
        location, finding = problem
        word = finding.way.word if finding.way is not None else None
        distinct.setdefault((location, finding.path, finding.rule, finding.what, word), problem)
    ordered = sorted(distinct.values(), key=lambda p: (p.location.file != main_file, p.location))
    lines = [problem.render() for problem in ordered[:MOST_SHOWN]]
    return ConfigError(lines, more=len(ordered) - len(lines))


def closest_word(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate of a similar spelling, or the only one with a part that begins alike (``labels``:
    ``label_attributes``), ignoring case; None if there is none."""
    if len(word) > _LONGEST_WORD:
        return None
    by_lower = {name.lower(): name for name in itertools.islice(candidates, _MOST_COMPARED)}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if not near and len(stem := word.lower().removesuffix("s")) >= _SHORTEST_STEM:
        parts = {name: re.split(r"[\W_]+", name) for name in by_lower}
        starting_alike = [
            name for name, words in parts.items() if any(word.startswith(stem) for word in words)
        ]
        near = starting_alike if len(starting_alike) == 1 else []
    return by_lower[near[0]] if near else None


def to_yaml_line(value: Any) -> str:
    """Format a value as YAML in one line: ``[1, x, true]``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(map(to_yaml_line, value))}]"
        case dict():
            return "{" + ", ".join(f"{key}: {to_yaml_line(part)}" for key, part in value.items()) + "}"
        case _:
            return str(value)


def describe_value(value: Any) -> str:
    """Describe a value of the wrong type for a message, in at most 60 characters."""
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
            return to_yaml_line(value)
