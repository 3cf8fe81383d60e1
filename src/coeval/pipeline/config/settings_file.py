"""Read a record of settings from a YAML file, reporting every mistake with its line, or from Python."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert
from coeval.core.settings import read_settings, strip_range, union_members
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.findings import Finding, KeyPath, Suggestion, build_config_error, render_path

R = TypeVar("R", bound=msgspec.Struct)
SettingValues: TypeAlias = Mapping[str, Any]
"""Values of settings by name, checked or not."""

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


def read_settings_file(path: Path, record: type[msgspec.Struct], first_keys: str) -> SettingValues:
    """Return the settings of ``record`` that a file sets, by name. ``first`` names the keys such a file
    begins with, for the message on an empty one. Raises ConfigError: the file cannot be read, or has
    unknown keys or values of the wrong type."""
    document = read_document(path, first_keys)
    values, findings = _parse_values(document.data, record)
    if problems := [*document.problems, *map(document.lines.locate, findings)]:
        raise build_config_error(problems, str(path))
    return values


def parse_settings(data: SettingValues, record: type[msgspec.Struct]) -> SettingValues:
    """Return the settings of ``record`` in a mapping; raises UsageError on unknown keys and wrong types."""
    values, findings = _parse_values(data, record)
    if findings:
        raise UsageError("; ".join(f"{render_path(finding.path)}: {finding.message}" for finding in findings))
    return values


def _parse_values(data: SettingValues, record: type[msgspec.Struct]) -> tuple[SettingValues, list[Finding]]:
    """Return the settings by name, and every mistake."""
    values: dict[str, Any] = {}
    fields, mistakes = read_settings(record), list[Finding]()
    for key, value in data.items():
        field = fields.get(key)
        findings = list(_check_key((key,), fields))
        if field is not None and value is None and "none" in field.words_for_integer:
            value = "none"  # as YAML says it
        if field is not None:
            findings += _find_unknown_keys_and_words((key,), value, field.kinds)
        if field is not None and not findings and value is not None:
            try:
                values[key] = convert(value, field.plain_kind)
            except Misshapen as error:
                findings = [Finding((key,), _WRONG, _translate_msgspec_message(str(error)))]
        mistakes += findings
    return values, mistakes


def check_settings(settings: R) -> R:
    """Return the settings; raise UsageError unless each value has the type and range of its field."""
    for name, field in read_settings(type(settings)).items():
        value = getattr(settings, name)
        try:
            convert(str(value) if isinstance(value, Path) else value, field.plain_kind)
        except Misshapen as error:
            raise UsageError(f"{name} {_translate_msgspec_message(str(error))}") from None
    return settings


def _find_unknown_keys_and_words(path: KeyPath, value: Any, kinds: Iterable[Any]) -> Iterator[Finding]:
    """Find unknown keys, and words that are none of a Literal, below a value of these types."""
    types = [*map(strip_range, kinds)]
    words = [word for kind in types if get_origin(kind) is Literal for word in get_args(kind)]
    if words and str not in types and isinstance(value, str) and value not in words:
        yield Finding(
            path, _WRONG, f"'{value}' is not one of its values", Suggestion(value, words, "known here:")
        )
    for kind in types:
        if is_typeddict(kind) and isinstance(value, dict):
            hints = get_type_hints(kind)
            for name, part in value.items():
                yield from _check_key((*path, name), hints)
                yield from _find_unknown_keys_and_words((*path, name), part, union_members(hints.get(name)))
        elif get_origin(kind) is Sequence and isinstance(value, list):
            for number, part in enumerate(value):
                yield from _find_unknown_keys_and_words((*path, number), part, get_args(kind))
        elif get_origin(kind) is dict and isinstance(value, dict):
            for name, part in value.items():
                yield from _find_unknown_keys_and_words((*path, name), part, union_members(get_args(kind)[1]))


def _check_key(path: KeyPath, known_keys: Collection[str]) -> Iterator[Finding]:
    name = str(path[-1])
    if name not in known_keys:
        yield Finding(
            path, _UNKNOWN, f"the key '{name}' is unknown", Suggestion(name, known_keys, "known here:")
        )


def _translate_msgspec_message(message: str) -> str:
    """Translate msgspec's message on a value to our wording."""
    if bound := _BOUND.search(message):
        return f"must be {_KINDS.get(bound[1], bound[1])} {_BOUNDS[bound[2]]} {float(bound[3]):g}"
    match = _EXPECTED.search(message)
    if match is None:
        return f"cannot be used: {message}"
    needed = " or ".join(dict.fromkeys(_KINDS.get(kind.strip(), kind) for kind in match[1].split("|")))
    return f"is {_KINDS.get(match[2], match[2])}, and must be {needed.replace(' or nothing', '')}"
