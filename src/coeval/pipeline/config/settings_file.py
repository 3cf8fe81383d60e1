"""A record of settings read from a YAML file, every mistake with its line, or from Python's keywords."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert
from coeval.core.settings import bare, declared, members
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut, refused, render_path

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
_BOUND = re.compile(r"Expected `(\w+)` (>=|<=|<|>) ([-\d.]+)")
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}


def read_settings_file(path: Path, record: type[msgspec.Struct], first: str) -> dict[str, Any]:
    """Return what a file sets of ``record``, by name. ``first`` names the keys that one begins with, for a
    file without any.

    Raises ConfigError: the file cannot be read, or has mistakes: unknown keys, values of another kind.
    """
    document = read_document(path, first)
    values, findings = _values(document.data, record)
    if problems := [*document.problems, *map(document.lines.locate, findings)]:
        raise refused(problems, str(path))
    return values


def parse_settings(data: Mapping[str, Any], record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return what a mapping of Python sets of ``record``; raises UsageError as `read_settings_file` does."""
    values, findings = _values(data, record)
    if findings:
        raise UsageError("; ".join(f"{render_path(finding.path)}: {finding.message}" for finding in findings))
    return values


def _values(data: Mapping[str, Any], record: type[msgspec.Struct]) -> tuple[dict[str, Any], list[Finding]]:
    """What is set, by name, and every mistake."""
    values: dict[str, Any] = {}
    fields, mistakes = declared(record), list[Finding]()
    for key, value in data.items():
        field = fields.get(key)
        findings = list(_not_among((key,), fields))
        if field is not None and value is None and "none" in field.words:
            value = "none"  # as YAML says it
        if field is not None:
            findings += _unknown_below((key,), value, field.kinds)
        if field is not None and not findings and value is not None:
            try:
                values[key] = convert(value, field.plain_kind)
            except Misshapen as error:
                findings = [Finding((key,), _WRONG, _in_words(str(error)))]
        mistakes += findings
    return values, mistakes


def check_settings(settings: R) -> R:
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
    """Keys that are none within a value whose type names its keys, and words that are none of its words."""
    each = [*map(bare, kinds)]
    words = [word for kind in each if get_origin(kind) is Literal for word in get_args(kind)]
    if words and str not in each and isinstance(value, str) and value not in words:
        yield Finding(path, _WRONG, f"'{value}' is none of its words", WayOut(value, words, "known here:"))
    for kind in each:
        if is_typeddict(kind) and isinstance(value, dict):
            hints = get_type_hints(kind)
            for name, part in value.items():
                yield from _not_among((*path, name), hints)
                yield from _unknown_below((*path, name), part, members(hints.get(name)))
        elif get_origin(kind) is Sequence and isinstance(value, list):
            for number, part in enumerate(value):
                yield from _unknown_below((*path, number), part, get_args(kind))
        elif get_origin(kind) is dict and isinstance(value, dict):
            for name, part in value.items():
                yield from _unknown_below((*path, name), part, members(get_args(kind)[1]))


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
