"""Item map: columns of a table to fields of an item."""

from __future__ import annotations

import datetime
import decimal
import operator
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import UsageError
from coeval.core.text import join_names

# --- Value paths: ``question``, ``choices[0]``, ``options.A``

_ROOTED = re.compile(r"([^.\[\]]+)((?:\.[^.\[\]]+|\[\d+\])+)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_PIECE = re.compile(r"\{\{|\}\}|\\n|\\t|\{([^{}]+)\}")
_PLAIN = {"{{": "{", "}}": "}", "\\n": "\n", "\\t": "\t"}

Row = Mapping[str, Any]


class NamedLabel(int):
    """A class label of a Hugging Face data set: its index, and its ``name``, which is its text."""

    name: str

    def __new__(cls, place: int, name: str) -> NamedLabel:
        found = super().__new__(cls, place)
        found.name = name
        return found


class Misfit(ValueError):
    """A value that does not fit its field; the message is for users."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Path of a value: ``text`` as written, the ``root`` column, and the ``steps`` within its value."""

    text: str
    root: str
    steps: tuple[str | int, ...] = ()

    @classmethod
    def among(cls, text: str, columns: Collection[str]) -> FieldPath:
        """Parse a path; a column of exactly that name takes precedence. The root may be missing."""
        match = _ROOTED.fullmatch(text) if text not in columns else None
        if match is None:
            return cls(text, text)
        steps = tuple(name or int(place) for name, place in _STEP.findall(match[2]))
        return cls(text, match[1].strip(), steps)

    def value(self, row: Row) -> Any:
        """Look up the value in a row, None if absent; raises Misfit where the path does not fit the value."""
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
        """Look up the value as text, None if absent or blank; raises Misfit for a list."""
        value = row.get(self.root) if not self.steps else self.value(row)
        if not isinstance(value, str):
            if value is None or value != value:  # a number that is none stands where there is no value
                return None
            value = as_text(value, self.text)
        return value if value and not value.isspace() else None


@dataclass(frozen=True, slots=True)
class RowTemplate:
    """Alternating texts and paths, beginning and ending with a text."""

    texts: tuple[str, ...]
    places: tuple[FieldPath, ...]

    @classmethod
    def among(cls, text: str, columns: Collection[str]) -> RowTemplate:
        """Parse a template; ``{{`` and ``}}`` are braces, ``\n`` and ``\t`` line feed and tab."""
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
        """Fill the template; raises Misfit where a path has no value, or no text."""
        filled = [self.texts[0]]
        for place, text in zip(self.places, self.texts[1:], strict=True):
            if (words := place.words(row)) is None:
                raise Misfit(f"its `{place.text}` is empty")
            filled += (words, text)
        return "".join(filled)


def is_template(text: str) -> bool:
    return "{" in text


def as_text(value: Any, named: str) -> str:
    """Convert a value to text; raises Misfit for a collection."""
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


# --- Row conditions: ``level = hard``, ``score >= 3``

_FORM = re.compile(r"\s*(.+?)\s*(!=|<=|>=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_QUOTES = "'\""
_equal: Callable[[Any, Any], bool] = operator.eq
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """Comparison of ``path`` with ``value`` by ``sign``: as numbers where both are, else as text. A missing
    value equals the empty text, and is neither less nor greater than anything."""

    path: str
    sign: str
    value: str

    @classmethod
    def of(cls, text: str) -> Condition:
        """Parse a condition.

        Raises UsageError: it is no comparison of a column with a value, or more than one.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"'{text}' is no condition; write COLUMN = VALUE, or with !=, <, <=, >, >=")
        path, sign, value = match.groups()
        if value[:1] in ("<", ">", "=", "!"):
            meant = f"; is {value[0]}= meant?" if sign == "=" and value[0] != "=" else "."
            raise UsageError(
                f"'{text}' has two signs{meant} There are =, !=, <, <=, > and >=; quote a value that begins "
                "with one"
            )
        if value[:1] in _QUOTES and value:
            if len(value) < 2 or value[-1] != value[0] or value[0] in value[1:-1]:
                raise UsageError(
                    f"'{text}' is not one condition; give each one of its own, and quote its value whole"
                )
            value = value[1:-1]
        elif re.search(r"\s(and|or)\s.*[=<>]", value, re.IGNORECASE):
            raise UsageError(f"'{text}' is more than one condition; give each one of its own (all must hold)")
        if path[:1] in _QUOTES and path[-1] == path[0] and len(path) > 2:
            path = path[1:-1]
        return cls(path, "=" if sign == "==" else sign, value)

    def among(self, columns: Collection[str]) -> Callable[[Row], bool]:
        """Test a row; raises Misfit where its value is a list or a mapping."""
        path, value, number = FieldPath.among(self.path, columns), self.value, _number(self.value)
        order = _ORDERS.get(self.sign, _equal)

        def equal(row: Row) -> bool:
            found = path.value(row)
            said = "" if found is None else as_text(found, path.text)
            return said == value or (number is not None and _number(said) == number)

        def different(row: Row) -> bool:
            return not equal(row)

        def ordered(row: Row) -> bool:
            found = path.value(row)
            if found is None:
                return False
            said = as_text(found, path.text)
            if number is None:
                if _number(said) is not None and not any(map(str.isdecimal, value)):
                    raise Misfit(
                        f"its `{path.text}` is {said}, and what it is held against ({value}) is no number"
                    )
                return order(said, value)
            theirs = _number(said)
            return theirs is not None and order(theirs, number)

        return equal if self.sign == "=" else different if self.sign == "!=" else ordered


def is_condition(text: str) -> bool:
    """Check whether `Condition.of` accepts the text."""
    try:
        Condition.of(text)
    except UsageError:
        return False
    return True


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if found == found else None


# --- Multiple choice
#
# Data sets keep the choices in one of three shapes: a list of texts (MMLU, HellaSwag), a mapping from label
# to text (MedQA), or a mapping of two lists, ``{"text": [...], "label": [...]}`` (ARC). Which one is right
# they say by its label, by its place from 0 on, by its letter or by its text.

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ChoiceList(NamedTuple):
    """Texts of the choices; ``labels`` are the data set's own, if any."""

    texts: list[str]
    labels: list[str]

    @property
    def lines(self) -> str:
        return "\n".join(f"{letter}. {text}" for letter, text in zip(_LETTERS, self.texts, strict=False))

    def right(self, value: Any, named: str) -> int:
        """Find the index of the choice that the value of column ``named`` means.

        Raises Misfit: it means none of them, or may mean two.
        """
        if isinstance(value, int) and not isinstance(value, bool) and not self.labels:
            if 0 <= value < len(self.texts):
                return value
            raise Misfit(f"its `{named}` is {value}, and the choices are 0 to {len(self.texts) - 1}")
        said = as_text(value, named).strip()
        found = {place for place in self._places(said) if place < len(self.texts)}
        if len(found) == 1:
            return found.pop()
        wrong = "may mean more than one" if found else "names none"
        raise Misfit(f"its `{named}` ({said[:40]}) {wrong} of the choices")

    def _places(self, said: str) -> list[int]:
        if said in self.labels:
            return [self.labels.index(said)]
        places = [place for place, text in enumerate(self.texts) if text.strip() == said]
        if not self.labels and said.isdecimal():
            places.append(int(said))
        if not places and len(said) == 1 and said in _LETTERS:
            places.append(_LETTERS.index(said))
        return places


def letter(place: int) -> str:
    return _LETTERS[place]


def choices_of(path: FieldPath, row: Row) -> ChoiceList:
    """Read the choices from a value.

    Raises Misfit: the value is in none of the shapes, or holds fewer than two choices or more than letters.
    """
    value = path.value(row)
    match value:
        case {"text": list(texts), "label": list(labels)}:
            found = ChoiceList(_texts(texts, path), _texts(labels, path))
        case dict():
            found = ChoiceList(_texts(list(value.values()), path), [str(key) for key in value])
        case list() | tuple():
            found = ChoiceList(_texts(list(value), path), [])
        case _:
            raise Misfit(f"its `{path.text}` is {kind_of_value(value)}, and no list of choices")
    if not 2 <= len(found.texts) <= len(_LETTERS) or len(found.labels) not in (0, len(found.texts)):
        raise Misfit(
            f"its `{path.text}` holds {len(found.texts)} choices; 2 to {len(_LETTERS)} can be lettered"
        )
    return found


def _texts(values: list[Any], path: FieldPath) -> list[str]:
    return [as_text(value, path.text) for value in values]


# Columns of any table that people keep by hand; a sparse export has thousands.
_MOST_NAMED = 30
_LIKE_AN_ID = re.compile(r"(?:.*[_. -])?(?i:id|uid|uuid|guid)|qid|.*[a-z]I[Dd]")

USUAL = {
    "prompt": ("prompt", "question", "input", "instruction", "text", "query", "review", "sentence"),
    "reference": ("reference", "reference_response", "answer", "target", "output", "response", "completion"),
}
"""Usual names of the columns of items, the most certain first."""


class ItemMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``prompt`` and ``reference`` are columns, or templates with columns in braces; ``attributes`` maps each
    attribute to one. With ``choices`` the prompt goes on with them, ``reference`` names the right one,
    and an attribute of the same column is its letter. ``where``: conditions, which must all hold."""

    prompt: str
    reference: str | None = None
    attributes: dict[str, str] = {}
    id: str | None = None
    choices: str | None = None
    where: tuple[str, ...] = ()


class UnknownColumn(NamedTuple):
    """A column that the map names and the table lacks. ``key`` is its place in the map."""

    key: tuple[str, ...]
    column: str
    known: tuple[str, ...]

    @property
    def sentence(self) -> str:
        near = get_close_matches(self.column, self.known, n=1) or [
            name for name in self.known if name.lower() == self.column.lower()
        ]
        flag = f"--{self.key[0].removesuffix('s')}" if self.key[0] == "attributes" else f"--{self.key[0]}"
        return f"{flag}: there is no column {self.column}" + (f"; did you mean {near[0]}?" if near else "")


class ColumnsMissing(UsageError):
    """Columns are missing; worded for a command line, with ``missing`` for other callers."""

    kind = "columns_missing"

    def __init__(self, path: Path, missing: list[UnknownColumn]) -> None:
        known = join_names(missing[0].known, _MOST_NAMED) or "none"
        super().__init__(
            "\n".join([*(unknown.sentence for unknown in missing), f"{path} has the columns {known}."])
        )
        self.path, self.missing = path, missing


class MappedItem(NamedTuple):
    """Fields of an item; ``id`` is None without an id column. ``lacking``: attributes without a value."""

    id: str | None
    prompt: str
    reference: str | None
    attributes: dict[str, str]
    lacking: tuple[str, ...]


def usual_map(columns: Collection[str]) -> dict[str, str]:
    """Guess prompt and reference columns by their usual names."""
    lower = {name.lower(): name for name in reversed(list(columns))}
    found = {part: next((lower[n] for n in names if n in lower), None) for part, names in USUAL.items()}
    return {part: column for part, column in found.items() if column is not None}


def usual_ids(columns: Collection[str]) -> list[str]:
    """List the columns with the usual names of ids, the most certain first."""
    return sorted(filter(_LIKE_AN_ID.fullmatch, columns), key=len)


def unknown_columns(needed: ItemMap, columns: tuple[str, ...]) -> Iterator[UnknownColumn]:
    for key, text in _named(needed):
        parts = (
            RowTemplate.among(text, columns).places if is_template(text) else [FieldPath.among(text, columns)]
        )
        for path in parts:
            if path.root not in columns:
                yield UnknownColumn(key, path.root, columns)


def _named(needed: ItemMap) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each place of a map that names columns, with what stands there."""
    for key in ("prompt", "reference", "id", "choices"):
        if (text := getattr(needed, key)) is not None:
            yield (key,), text
    yield from ((("attributes", name), column) for name, column in needed.attributes.items())
    yield from ((("where",), Condition.of(text).path) for text in needed.where)


class ItemMaker:
    """Make items of a table's rows; all columns of the map must exist."""

    def __init__(self, needed: ItemMap, columns: Collection[str]) -> None:
        self._prompt = _words(needed.prompt, columns)
        self._prompt_name = needed.prompt
        self._reference = _words(needed.reference, columns) if needed.reference is not None else None
        self._id = FieldPath.among(needed.id, columns) if needed.id is not None else None
        self._choices = FieldPath.among(needed.choices, columns) if needed.choices is not None else None
        self._right = FieldPath.among(needed.reference or "", columns)
        lettered = {name for name, column in needed.attributes.items() if column == needed.reference}
        self._lettered = lettered if self._choices is not None else set[str]()
        self._attributes = [
            (name, _words(column, columns))
            for name, column in needed.attributes.items()
            if name not in self._lettered
        ]
        self._conditions = [Condition.of(text).among(columns) for text in needed.where]

    def wants(self, row: Row) -> bool:
        """Test all conditions; raises Misfit where one cannot be applied to the row."""
        return not self._conditions or all(holds(row) for holds in self._conditions)

    def item(self, row: Row) -> MappedItem:
        """Make the item of a row.

        Raises Misfit: the row makes no item; the message says why.
        """
        own = self._own_id(row)
        prompt = self._prompt(row)
        if prompt is None:
            raise Misfit(f"its `{self._prompt_name}` is empty")
        attributes: dict[str, str] = {}
        lacking: tuple[str, ...] = ()
        for name, words in self._attributes:
            value = words(row)
            if value is None:
                lacking += (name,)
            else:
                attributes[name] = value
        if self._choices is None:
            reference = self._reference(row) if self._reference is not None else None
            return MappedItem(own, prompt, reference, attributes, lacking)
        choices = choices_of(self._choices, row)
        reference = self._chosen(choices, row, attributes)
        return MappedItem(own, f"{prompt}\n\n{choices.lines}", reference, attributes, lacking)

    def _own_id(self, row: Row) -> str | None:
        if self._id is None:
            return None
        own = self._id.words(row)
        if own is None:
            raise Misfit(f"its `{self._id.text}`, of which the id is made, is empty")
        return own

    def _chosen(self, choices: ChoiceList, row: Row, attributes: dict[str, str]) -> str | None:
        if self._reference is None:
            return None
        value = self._right.value(row)
        if value is None:
            raise Misfit(f"its `{self._right.text}`, the right choice, is empty")
        place = choices.right(value, self._right.text)
        attributes.update(dict.fromkeys(self._lettered, letter(place)))
        return f"{letter(place)}. {choices.texts[place]}"


def _words(text: str, columns: Collection[str]) -> Callable[[Row], str | None]:
    return (RowTemplate if is_template(text) else FieldPath).among(text, columns).words
