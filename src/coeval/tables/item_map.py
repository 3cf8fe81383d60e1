"""Which columns of a table make an item, and the item that they make of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.core.errors import UsageError
from coeval.core.text import listed
from coeval.tables.choice_list import ChoiceList, choices_of, letter
from coeval.tables.condition import Condition
from coeval.tables.field_path import FieldPath, Misfit, Row, RowTemplate, is_template

_MOST_NAMED = 30
_LIKE_AN_ID = re.compile(r"(?:.*[_. -])?(?i:id|uid|uuid|guid)|qid|.*[a-z]I[Dd]")

USUAL = {
    "prompt": ("prompt", "question", "input", "instruction", "text", "query", "review", "sentence"),
    "reference": ("reference", "reference_response", "answer", "target", "output", "response", "completion"),
}
"""What the columns of items are usually called, the surest first."""


class ItemMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``prompt`` and ``reference`` are columns, or templates with columns in braces; ``attributes`` maps each
    attribute to a column. With ``choices`` the prompt goes on with them, ``reference`` names the right one,
    and an attribute of the same column is its letter. ``where``: conditions, which must all hold."""

    prompt: str
    reference: str | None = None
    attributes: dict[str, str] = {}
    id: str | None = None
    choices: str | None = None
    where: tuple[str, ...] = ()


class UnknownColumn(NamedTuple):
    """A column that a map names and a table does not have. ``key`` is where the map names it."""

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
    """Told in the words of a command line; ``missing`` for whoever has others."""

    kind = "columns_missing"

    def __init__(self, path: Path, missing: list[UnknownColumn]) -> None:
        known = listed(missing[0].known, _MOST_NAMED) or "none"
        super().__init__(
            "\n".join([*(unknown.sentence for unknown in missing), f"{path} has the columns {known}."])
        )
        self.path, self.missing = path, missing


class MappedItem(NamedTuple):
    """What a row gives an item; ``id`` is None where the map names no column of ids. ``lacking`` are the
    attributes that have no value."""

    id: str | None
    prompt: str
    reference: str | None
    attributes: dict[str, str]
    lacking: tuple[str, ...]


def usual_map(columns: Collection[str]) -> dict[str, str]:
    """Prompt and reference by the usual names of their columns, as far as there are any."""
    lower = {name.lower(): name for name in reversed(list(columns))}
    found = {part: next((lower[n] for n in names if n in lower), None) for part, names in USUAL.items()}
    return {part: column for part, column in found.items() if column is not None}


def usual_ids(columns: Collection[str]) -> list[str]:
    """The columns that are called like ids, the surest first."""
    return sorted(filter(_LIKE_AN_ID.fullmatch, columns), key=len)


def unknown_columns(wanted: ItemMap, columns: tuple[str, ...]) -> Iterator[UnknownColumn]:
    for key, text in _named(wanted):
        parts = (
            RowTemplate.among(text, columns).places if is_template(text) else [FieldPath.among(text, columns)]
        )
        for path in parts:
            if path.root not in columns:
                yield UnknownColumn(key, path.root, columns)


def _named(wanted: ItemMap) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each place of a map that names columns, with what stands there."""
    for key in ("prompt", "reference", "id", "choices"):
        if (text := getattr(wanted, key)) is not None:
            yield (key,), text
    yield from ((("attributes", name), column) for name, column in wanted.attributes.items())
    yield from ((("where",), Condition.of(text).path) for text in wanted.where)


class ItemMaker:
    """Makes items of the rows of a table with these columns, all of which the map may name."""

    def __init__(self, wanted: ItemMap, columns: Collection[str]) -> None:
        self._prompt = _words(wanted.prompt, columns)
        self._prompt_name = wanted.prompt
        self._reference = _words(wanted.reference, columns) if wanted.reference is not None else None
        self._id = FieldPath.among(wanted.id, columns) if wanted.id is not None else None
        self._choices = FieldPath.among(wanted.choices, columns) if wanted.choices is not None else None
        self._right = FieldPath.among(wanted.reference or "", columns)
        lettered = {name for name, column in wanted.attributes.items() if column == wanted.reference}
        self._lettered = lettered if self._choices is not None else set[str]()
        paths = {name: FieldPath.among(column, columns) for name, column in wanted.attributes.items()}
        self._attributes = [(name, path) for name, path in paths.items() if name not in self._lettered]
        self._conditions = [Condition.of(text).among(columns) for text in wanted.where]

    def wants(self, row: Row) -> bool:
        """Whether all conditions hold; raises Misfit where one cannot be asked of the row."""
        return not self._conditions or all(holds(row) for holds in self._conditions)

    def item(self, row: Row) -> MappedItem:
        """
        Raises
        ------
        Misfit
            the row makes no item; the message says why.
        """
        own = self._own_id(row)
        prompt = self._prompt(row)
        if prompt is None:
            raise Misfit(f"its `{self._prompt_name}` is empty")
        attributes: dict[str, str] = {}
        lacking: tuple[str, ...] = ()
        for name, path in self._attributes:
            value = path.words(row)
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
