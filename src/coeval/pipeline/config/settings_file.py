"""A record of settings read from a YAML file, every mistake with its line, or from Python's keywords."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert
from coeval.core.settings import bare, declared, members
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut, refused

R = TypeVar("R", bound=msgspec.Struct)

_UNKNOWN, _WRONG = "V-18", "V-20"
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_BOUND = re.compile(r"Expected `(\w+)` (>=|<=|>) ([-\d.]+)")
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above"}


def read_settings_file(path: Path, record: type[msgspec.Struct], first: str) -> dict[str, Any]:
    """Return what a file sets of ``record``, by name. ``first`` names the keys that one begins with, for a
    file without any.

    Raises ConfigError: the file cannot be read, or has mistakes: unknown keys, values of another kind.
    """
    document = read_document(path, first)
    problems = list(document.problems)
    values: dict[str, Any] = {}
    fields = declared(record)
    for key, value in document.data.items():
        field = fields.get(key)
        findings = list(_not_among((key,), fields))
        if field is not None:
            findings += _unknown_below((key,), value, field.kinds)
        if field is not None and not findings and value is not None:
            try:
                values[key] = convert(value, field.plain_kind)
            except Misshapen as error:
                findings = [Finding((key,), _WRONG, _in_words(str(error)))]
        problems += map(document.lines.locate, findings)
    if problems:
        raise refused(problems, str(path))
    return values


def checked(settings: R) -> R:
    """Return settings that came as keywords of Python, whose types nobody has checked.

    Raises UsageError: a value is of another kind, or out of its range.
    """
    for name, field in declared(type(settings)).items():
        value = getattr(settings, name)
        try:
            convert(str(value) if isinstance(value, Path) else value, field.plain_kind)
        except Misshapen as error:
            raise UsageError(f"{name} {_in_words(str(error))}") from None
    return settings


def _unknown_below(path: KeyPath, value: Any, kinds: Iterable[Any]) -> Iterator[Finding]:
    """Keys that are none within a value whose type names its keys."""
    for kind in map(bare, kinds):
        if is_typeddict(kind) and isinstance(value, dict):
            hints = get_type_hints(kind)
            for name, part in value.items():
                yield from _not_among((*path, name), hints)
                yield from _unknown_below((*path, name), part, members(hints.get(name)))
        elif get_origin(kind) is Sequence and isinstance(value, list):
            for number, part in enumerate(value):
                yield from _unknown_below((*path, number), part, get_args(kind))


def _not_among(path: KeyPath, known: Collection[str]) -> Iterator[Finding]:
    name = str(path[-1])
    if name not in known:
        yield Finding(path, _UNKNOWN, f"the key '{name}' is unknown", WayOut(name, known, "known here:"))


def _in_words(said: str) -> str:
    """What the decoder says of a value, in this project's words."""
    if bound := _BOUND.search(said):
        return f"is to be {_KINDS.get(bound[1], bound[1])} {_BOUNDS[bound[2]]} {float(bound[3]):g}"
    found = _EXPECTED.search(said)
    if found is None:
        return f"cannot be used: {said}"
    needed = " or ".join(dict.fromkeys(_KINDS.get(kind.strip(), kind) for kind in found[1].split("|")))
    return f"is {_KINDS.get(found[2], found[2])}, and is to be {needed.replace(' or nothing', '')}"
