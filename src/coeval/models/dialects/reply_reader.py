"""Read a host's reply into a struct: what cannot be read of it is left out, and the text stays.

Nearly all replies are as documented and take the fast way. The others hold one odd field beside a good
answer: parts as bare strings, a text in an object, nulls in log-probabilities, half of a surrogate pair.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from coeval.core import foreign
from coeval.core.errors import Misshapen, Undecodable

T = TypeVar("T")

MENDED = "invalid characters were replaced"
# Where a text lies in an object (OpenAI's Assistants have ``{"value": …}``); what a bare string is of a part.
_TEXTS = ("text", "value", "content", "parts")
# Reports of a reply that has hundreds of odd parts stay short.
_MOST_NOTES = 8
# No reply that hosts document nests half as deep.
_DEEPEST = 16


class Read(NamedTuple, Generic[T]):
    """A reply, and a note on each thing that was left out or replaced in it."""

    value: T
    notes: tuple[str, ...] = ()


def reply_reader(kind: type[T]) -> Callable[[bytes], Read[T]]:
    """Make a reader of replies of one type.

    A list loses the items that do not fit, a tuple is whole or left out, an optional field falls back to its
    default. Raises Undecodable: it is no JSON, or lacks what ``kind`` requires.
    """
    read = foreign.decoder(kind)

    def read_reply(body: bytes) -> Read[T]:
        try:
            return Read(read(body))
        except Undecodable as error:
            fit = _ReplyFit()
            try:
                reply, is_mended = foreign.decode_damaged(body)
                value = fit.to(reply, kind, "")
            except (_Unfit, Undecodable):
                raise error from None
            return Read(value, (*[MENDED] * is_mended, *fit.notes)[:_MOST_NOTES])

    return read_reply


def arguments_text(given: Any) -> str:
    """Return what a tool was called with as JSON: some hosts hand over the object, others a text of it."""
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


class _Unfit(Exception):
    """A value is nothing like its type."""


class _ReplyFit:
    """Fit parsed JSON to types; ``notes`` collects what was left out, by the names of its fields."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}

    def to(self, value: Any, kind: Any, where: str) -> Any:
        """Return ``value`` as a ``kind``; raises _Unfit where nothing of it can be."""
        if where.count(".") > _DEEPEST:
            raise _Unfit
        members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        # Parts say more than their texts in a row.
        for member in sorted(members, key=lambda member: (member is str) != isinstance(value, str)):
            try:
                return self._member(value, member, where)
            except _Unfit:
                continue
        raise _Unfit

    def _member(self, value: Any, kind: Any, where: str) -> Any:
        if kind is str:
            return self._text(value)
        if get_origin(kind) is list:
            return self._items(value, get_args(kind)[0], where)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(value, kind, where)
        if kind is msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(value))
        try:
            return foreign.convert(value, kind)
        except Misshapen:
            raise _Unfit from None

    def _text(self, value: Any, depth: int = 0) -> str:
        match value:
            case str():
                return value
            case list() if depth < _DEEPEST:
                return "".join(self._text(item, depth + 1) for item in value)
            case dict() if depth < _DEEPEST:
                inner = next((value[name] for name in _TEXTS if value.get(name) is not None), None)
                return self._text(inner, depth + 1)
        raise _Unfit

    def _items(self, value: Any, kind: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            return [self.to(value, kind, where)]
        items: list[Any] = []
        for item in value:
            try:
                items.append(self.to(item, kind, where))
            except _Unfit:
                self._note(item, where)
        if not items and any(item is not None for item in value):
            raise _Unfit
        return items

    def _struct(self, value: Any, kind: type[msgspec.Struct], where: str) -> Any:
        fields = msgspec.structs.fields(kind)
        if isinstance(value, str):
            value = dict([(field.encode_name, value) for field in fields if field.name in _TEXTS][:1]) or None
        if not isinstance(value, dict):
            raise _Unfit
        given: dict[str, Any] = {}
        for field in fields:
            name = field.encode_name
            place = f"{where}.{name}".lstrip(".")
            if name in value:
                try:
                    given[field.name] = self.to(value[name], field.type, place)
                    continue
                except _Unfit:
                    self._note(value[name], place)
            if field.required:
                raise _Unfit
        return kind(**given)

    def _note(self, value: Any, where: str) -> None:
        if value is not None:
            self.notes[f"{where} could not be read, and was left out"] = None
