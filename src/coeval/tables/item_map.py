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
from math import isnan
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

    def __new__(cls, index: int, name: str) -> NamedLabel:
        label = super().__new__(cls, index)
        label.name = name
        return label


class Misfit(ValueError):
    """A value that does not fit its field; the message is for users."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A path to a value: ``text`` as written, the ``root`` column, and the ``steps`` within its value."""

    text: str
    root: str
    steps: tuple[str | int, ...] = ()

    @classmethod
    def parse(cls, text: str, columns: Collection[str]) -> FieldPath:
        """Parse a path; a column of exactly that name takes precedence. The root may be no column."""
        match = _ROOTED.fullmatch(text) if text not in columns else None
        if match is None:
            return cls(text, text)
        steps = tuple(name or int(index) for name, index in _STEP.findall(match[2]))
        return cls(text, match[1].strip(), steps)

    def find_value(self, row: Row) -> Any:
        """Return the value in a row, None if absent; raises Misfit where the path does not fit the value."""
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
                    raise Misfit(f"there is no `{self.text}`: what is before it is {describe_kind(value)}")
        return value

    def read_text(self, row: Row) -> str | None:
        """Return the value as text, None if absent or blank; raises Misfit for a list."""
        value = row.get(self.root) if not self.steps else self.find_value(row)
        if not isinstance(value, str):
            if value is None or value != value:  # NaN is a missing value
                return None
            value = convert_to_text(value, self.text)
        return value if value and not value.isspace() else None


@dataclass(frozen=True, slots=True)
class RowTemplate:
    """Texts and paths in turn, beginning and ending with a text."""

    texts: tuple[str, ...]
    paths: tuple[FieldPath, ...]

    @classmethod
    def parse(cls, text: str, columns: Collection[str]) -> RowTemplate:
        """Parse a template; ``{{`` and ``}}`` are braces, ``\n`` and ``\t`` line feed and tab."""
        texts, paths, end = [""], [], 0
        for piece in _PIECE.finditer(text):
            texts[-1] += text[end : piece.start()]
            end = piece.end()
            if piece[1] is None:
                texts[-1] += _PLAIN[piece[0]]
            else:
                paths.append(FieldPath.parse(piece[1].strip(), columns))
                texts.append("")
        texts[-1] += text[end:]
        return cls(tuple(texts), tuple(paths))

    def read_text(self, row: Row) -> str:
        """Fill the template from a row; raises Misfit where a path has no value or no text."""
        filled = [self.texts[0]]
        for path, text in zip(self.paths, self.texts[1:], strict=True):
            if (value := path.read_text(row)) is None:
                raise Misfit(f"its `{path.text}` is empty")
            filled += (value, text)
        return "".join(filled)


def is_template(text: str) -> bool:
    return "{" in text


def convert_to_text(value: Any, path: str) -> str:
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
            raise Misfit(f"its `{path}` is a mapping; name a part of it, such as {path}.{part}")
        case list() | tuple():
            raise Misfit(f"its `{path}` is a list; name an entry of it, such as {path}[0]")
        case _:
            raise Misfit(f"its `{path}` is {describe_kind(value)}, and no text")


def describe_kind(value: Any) -> str:
    match value:
        case dict():
            return "a mapping"
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
    """A comparison of ``path`` with ``value``: as numbers if both are, else as text. A missing value equals
    the empty text, and is neither less nor greater than anything."""

    path: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition; raises UsageError unless it is one comparison of a column with a value."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"'{text}' is not a condition; write COLUMN = VALUE, or with !=, <, <=, >, >=")
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

    def make_test(self, columns: Collection[str]) -> Callable[[Row], bool]:
        """Return a test of rows; it raises Misfit where the value is a list or a mapping."""
        path, value, number = FieldPath.parse(self.path, columns), self.value, _parse_number(self.value)
        order = _ORDERS.get(self.sign, _equal)

        def equal(row: Row) -> bool:
            cell = path.find_value(row)
            text = "" if cell is None else convert_to_text(cell, path.text)
            return text == value or (number is not None and _parse_number(text) == number)

        def in_order(row: Row) -> bool:
            cell = path.find_value(row)
            if cell is None:
                return False
            text = convert_to_text(cell, path.text)
            cell_number = _parse_number(text)
            if number is not None:
                return cell_number is not None and order(cell_number, number)
            if cell_number is not None and not any(map(str.isdecimal, value)):
                raise Misfit(f"its `{path.text}` is {text}, which cannot be compared with {value}: no number")
            return order(text, value)

        return equal if self.sign == "=" else in_order if self.sign != "!=" else lambda row: not equal(row)


def is_condition(text: str) -> bool:
    """Check whether `Condition.parse` accepts the text."""
    try:
        Condition.parse(text)
    except UsageError:
        return False
    return True


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if isnan(number) else number


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
    def lettered_lines(self) -> str:
        return "\n".join(f"{letter}. {text}" for letter, text in zip(_LETTERS, self.texts, strict=False))

    def find_right_index(self, value: Any, column: str) -> int:
        """Find the choice that the value of a column names; raises Misfit: none of them, or perhaps two."""
        if isinstance(value, int) and not isinstance(value, bool) and not self.labels:
            if 0 <= value < len(self.texts):
                return value
            raise Misfit(f"its `{column}` is {value}, and the choices are 0 to {len(self.texts) - 1}")
        answer = convert_to_text(value, column).strip()
        matches = {index for index in self._matching_indices(answer) if index < len(self.texts)}
        if len(matches) == 1:
            return matches.pop()
        wrong = "may mean more than one" if matches else "names none"
        raise Misfit(f"its `{column}` ({answer[:40]}) {wrong} of the choices")

    def _matching_indices(self, answer: str) -> list[int]:
        if answer in self.labels:
            return [self.labels.index(answer)]
        indices = [index for index, text in enumerate(self.texts) if text.strip() == answer]
        if not self.labels and answer.isdecimal():
            indices.append(int(answer))
        if not indices and len(answer) == 1 and answer in _LETTERS:
            indices.append(_LETTERS.index(answer))
        return indices


def read_choices(path: FieldPath, row: Row) -> ChoiceList:
    """Read the choices in a row. Raises Misfit: the value has none of the three shapes, or holds fewer than
    two choices or more than letters."""
    value = path.find_value(row)
    match value:
        case {"text": list(texts), "label": list(labels)}:
            choices = ChoiceList(_convert_all(texts, path), _convert_all(labels, path))
        case dict():
            choices = ChoiceList(_convert_all(list(value.values()), path), [str(key) for key in value])
        case list() | tuple():
            choices = ChoiceList(_convert_all(list(value), path), [])
        case _:
            raise Misfit(f"its `{path.text}` is {describe_kind(value)}, and no list of choices")
    number = len(choices.texts)
    if not 2 <= number <= len(_LETTERS) or len(choices.labels) not in (0, number):
        raise Misfit(f"its `{path.text}` holds {number} choices; 2 to {len(_LETTERS)} can be lettered")
    return choices


def _convert_all(values: list[Any], path: FieldPath) -> list[str]:
    return [convert_to_text(value, path.text) for value in values]


# Columns of any table that people keep by hand; a sparse export has thousands.
_MOST_NAMED = 30
_LIKE_AN_ID = re.compile(r"(?:.*[_. -])?(?i:id|uid|uuid|guid)|qid|.*[a-z]I[Dd]")

USUAL = {
    "prompt": ("prompt", "question", "input", "instruction", "text", "query", "review", "sentence"),
    "reference": ("reference", "reference_response", "answer", "target", "output", "response", "completion"),
}
"""Usual names of the columns of items, the most certain first."""


class ItemMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How columns become items. ``prompt`` and ``reference`` are columns, or templates with columns in
    braces; ``attributes`` maps names to columns. ``choices`` are appended to the prompt: ``reference``
    then names the right one, an attribute of its column is its letter. ``where``: all must hold."""

    prompt: str
    reference: str | None = None
    attributes: dict[str, str] = {}
    id: str | None = None
    choices: str | None = None
    where: tuple[str, ...] = ()


class UnknownColumn(NamedTuple):
    """A column of the map that the table lacks. ``key``: where in the map; ``columns``: the table's."""

    key: tuple[str, ...]
    column: str
    columns: tuple[str, ...]

    @property
    def sentence(self) -> str:
        near = get_close_matches(self.column, self.columns, n=1) or [
            name for name in self.columns if name.lower() == self.column.lower()
        ]
        flag = f"--{self.key[0].removesuffix('s')}" if self.key[0] == "attributes" else f"--{self.key[0]}"
        return f"{flag}: there is no column {self.column}" + (f"; did you mean {near[0]}?" if near else "")


class ColumnsMissing(UsageError, kind="columns_missing"):
    """Columns are missing; worded for a command line, with ``missing`` for other callers."""

    def __init__(self, path: Path, missing: list[UnknownColumn]) -> None:
        columns = join_names(missing[0].columns, _MOST_NAMED) or "none"
        super().__init__(
            "\n".join([*(unknown.sentence for unknown in missing), f"{path} has the columns {columns}."])
        )
        self.path, self.missing = path, missing


class MappedItem(NamedTuple):
    """Fields of an item; ``id`` is None without an id column. ``lacking``: attributes without a value."""

    id: str | None
    prompt: str
    reference: str | None
    attributes: dict[str, str]
    lacking: tuple[str, ...]


def guess_columns(columns: Collection[str]) -> dict[str, str]:
    """Guess prompt and reference columns by their usual names."""
    lower = {name.lower(): name for name in reversed(list(columns))}
    matches = {part: next((lower[n] for n in names if n in lower), None) for part, names in USUAL.items()}
    return {part: column for part, column in matches.items() if column is not None}


def guess_id_columns(columns: Collection[str]) -> list[str]:
    """List the columns with the usual names of ids, the most certain first."""
    return sorted(filter(_LIKE_AN_ID.fullmatch, columns), key=len)


def find_unknown_columns(item_map: ItemMap, columns: tuple[str, ...]) -> Iterator[UnknownColumn]:
    for key, text in _yield_keys_with_columns(item_map):
        if is_template(text):
            paths = RowTemplate.parse(text, columns).paths
        else:
            paths = (FieldPath.parse(text, columns),)
        for path in paths:
            if path.root not in columns:
                yield UnknownColumn(key, path.root, columns)


def _yield_keys_with_columns(item_map: ItemMap) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys of a map that name columns, each with its path or template."""
    for key in ("prompt", "reference", "id", "choices"):
        if (text := getattr(item_map, key)) is not None:
            yield (key,), text
    yield from ((("attributes", name), column) for name, column in item_map.attributes.items())
    yield from ((("where",), Condition.parse(text).path) for text in item_map.where)


class ItemMaker:
    """Makes items of a table's rows; all columns of the map must exist."""

    def __init__(self, item_map: ItemMap, columns: Collection[str]) -> None:
        """Resolve every path and template of the map against the columns."""
        reference, choices = item_map.reference, item_map.choices
        self._prompt = _make_text_reader(item_map.prompt, columns)
        self._prompt_name = item_map.prompt
        self._reference = _make_text_reader(reference, columns) if reference is not None else None
        self._id = FieldPath.parse(item_map.id, columns) if item_map.id is not None else None
        self._choices = FieldPath.parse(choices, columns) if choices is not None else None
        self._right = FieldPath.parse(reference or "", columns)
        lettered = {name for name, column in item_map.attributes.items() if column == reference}
        self._lettered = lettered if choices is not None else set[str]()
        self._attributes = [
            (name, _make_text_reader(column, columns))
            for name, column in item_map.attributes.items()
            if name not in self._lettered
        ]
        self._conditions = [Condition.parse(text).make_test(columns) for text in item_map.where]

    def make_item(self, row: Row) -> MappedItem | None:
        """Make the item of a row, None if it fails a condition. Raises Misfit: the row makes no item, or a
        condition cannot be applied to it; the message says why."""
        if not all(holds(row) for holds in self._conditions):
            return None
        item_id = self._read_id_if_mapped(row)
        prompt = self._prompt(row)
        if prompt is None:
            raise Misfit(f"its `{self._prompt_name}` is empty")
        attributes: dict[str, str] = {}
        lacking: tuple[str, ...] = ()
        for name, read_attribute in self._attributes:
            value = read_attribute(row)
            if value is None:
                lacking += (name,)
            else:
                attributes[name] = value
        if self._choices is None:
            reference = self._reference(row) if self._reference is not None else None
            return MappedItem(item_id, prompt, reference, attributes, lacking)
        choices = read_choices(self._choices, row)
        reference = self._find_reference(choices, row, attributes)
        return MappedItem(item_id, f"{prompt}\n\n{choices.lettered_lines}", reference, attributes, lacking)

    def _read_id_if_mapped(self, row: Row) -> str | None:
        if self._id is None:
            return None
        item_id = self._id.read_text(row)
        if item_id is None:
            raise Misfit(f"its `{self._id.text}`, the id, is empty")
        return item_id

    def _find_reference(self, choices: ChoiceList, row: Row, attributes: dict[str, str]) -> str | None:
        if self._reference is None:
            return None
        value = self._right.find_value(row)
        if value is None:
            raise Misfit(f"its `{self._right.text}`, the right choice, is empty")
        index = choices.find_right_index(value, self._right.text)
        attributes.update(dict.fromkeys(self._lettered, _LETTERS[index]))
        return f"{_LETTERS[index]}. {choices.texts[index]}"


def _make_text_reader(text: str, columns: Collection[str]) -> Callable[[Row], str | None]:
    return (RowTemplate if is_template(text) else FieldPath).parse(text, columns).read_text
