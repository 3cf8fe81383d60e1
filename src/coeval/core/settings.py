"""Settings declared once, as a record: flags, YAML keys, Python keywords and the reference are derived from
it.

A field is ``name: Annotated[type, Setting(...)] = default``. Ranges are `msgspec.Meta`, where the bounds of a
value belong. Its key and its keyword are its name, and its flag the same with hyphens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from inspect import Signature, getdoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec


class Setting(NamedTuple):
    """Description of a field, beside its type and default.

    ``group`` is the section of ``--help``. ``shown`` tells in words what holds without it, where the default
    does not; ``usual`` is that value where the field's None means "nobody has said". ``metavar`` stands for
    the value in ``--help``, ``flags`` are its flags where they are not its name alone. A ``repeated`` flag
    makes a list. What is ``only_key`` has no flag.
    """

    help: str
    group: str
    shown: str | None = None
    usual: Any = None
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    repeated: bool = False
    only_key: bool = False


class Declared(NamedTuple):
    """A declared field of a settings record. ``kinds`` are its types except None."""

    name: str
    default: Any
    setting: Setting
    kinds: tuple[Any, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        return self.setting.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def bounds(self) -> msgspec.Meta:
        """Return the range of the setting's numbers."""
        extras = (extra for kind in self.kinds for extra in _annotation_extras(kind))
        return next((extra for extra in extras if isinstance(extra, msgspec.Meta)), msgspec.Meta())

    @property
    def words_for_integer(self) -> tuple[str, ...]:
        """Return the words that the setting takes in place of its number."""
        literal = (get_args(kind) for kind in self.kinds if get_origin(kind) is Literal)
        return next(literal, ()) if int in map(strip_range, self.kinds) else ()

    @property
    def plain_kind(self) -> Any:
        """Return the setting's type in JSON or YAML: text in place of a path."""
        return Union[(*(str if kind is Path else kind for kind in self.kinds), None)]


@cache
def read_settings(record: type[msgspec.Struct]) -> Mapping[str, Declared]:
    """Return the settings of ``record`` by name, those of its bases first."""
    return {field.name: field for field in _iterate_settings(record)}


def list_settings_by_group(record: type[msgspec.Struct]) -> list[Declared]:
    """Return the settings by group; within each, the record's own before those of its bases."""
    annotations = [getattr(base, "__annotations__", {}) for base in record.__mro__]

    def group_and_base(field: Declared) -> tuple[int, int]:
        groups = list(cast("Any", type(field.setting.group)))  # members of an enumeration
        own = next(number for number, names in enumerate(annotations) if field.name in names)
        return groups.index(field.setting.group), own

    return sorted(read_settings(record).values(), key=group_and_base)


def values_for_none(record: type[msgspec.Struct]) -> Mapping[str, object]:
    """Return the value that each field's None stands for, by name."""
    return {
        name: field.setting.usual
        for name, field in read_settings(record).items()
        if field.setting.usual is not None
    }


def _iterate_settings(record: type[msgspec.Struct]) -> Iterator[Declared]:
    hints = get_type_hints(record, include_extras=True)
    for field in msgspec.structs.fields(record):
        hint = hints[field.name]
        setting = next((extra for extra in _annotation_extras(hint) if isinstance(extra, Setting)), None)
        if setting is not None:
            yield Declared(field.name, field.default, setting, _types_without_none(hint))


def strip_range(kind: Any) -> Any:
    return get_args(kind)[0] if _annotation_extras(kind) else kind


def _types_without_none(hint: Any) -> tuple[Any, ...]:
    kind = get_args(hint)[0]
    for extra in _annotation_extras(hint):
        if isinstance(extra, msgspec.Meta):  # nested annotations are one
            kind = Annotated[kind, extra]
    return tuple(member for member in union_members(kind) if member is not NoneType)


def _annotation_extras(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.__metadata__) if get_origin(hint) is Annotated else ()


def union_members(hint: Any) -> tuple[Any, ...]:
    """List the types of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


# --- A function of Python whose keywords are the fields of a record

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")
_FLAG = re.compile(r"--([a-z][a-z-]*)")


def with_keywords_of(record: Callable[P, S]) -> Callable[[Callable[[S], R]], Callable[P, R]]:
    """Make a decorator that turns a function of one record into a function of the record's fields. Type
    checkers and editors see the fields as keywords; the docstring lists each with its help."""

    def decorate(function: Callable[[S], R]) -> Callable[P, R]:
        """Wrap ``function``, with the record's fields as its signature and in its docstring."""

        @wraps(function)
        def with_keywords(*arguments: P.args, **keywords: P.kwargs) -> R:
            return function(record(*arguments, **keywords))

        kind: Any = record
        fields = list_settings_by_group(kind)
        own = signature(record).parameters
        order = dict.fromkeys([*(field.name for field in fields), *own])
        hints = get_type_hints(kind)
        documented: Any = with_keywords
        documented.__signature__ = Signature(
            [own[name].replace(annotation=hints[name]) for name in order],
            return_annotation=get_type_hints(function)["return"],
        )
        if fields:
            texts = (f"{field.name}:\n    {_describe_for_python(field.setting)}" for field in fields)
            documented.__doc__ = "\n".join([getdoc(function) or "", "", "Settings", "--------", *texts])
        return with_keywords

    return decorate


def _describe_for_python(setting: Setting) -> str:
    """Return a setting's help with keywords in place of flags."""
    assumed = setting.shown or ("" if setting.usual is None else f"{setting.usual}")
    text = setting.help.partition(" Example:")[0].replace("{tasks}", "names of tasks")
    text += f" By default {assumed}." if assumed else ""
    return _FLAG.sub(lambda flag: flag[1].replace("-", "_"), text)
