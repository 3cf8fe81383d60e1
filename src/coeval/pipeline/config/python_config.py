"""An experiment given as data, from Python, in place of a YAML file: the same keys, the same rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from coeval.core.errors import ConfigError
from coeval.pipeline.config.document import MAX_DEPTH, SURROGATE, Document, is_attribute_value
from coeval.pipeline.config.findings import Finding, FindingLines, KeyPath, Place, Problem

GIVEN = "config"
"""What problems name in place of a file; there are no lines."""


def given_document(data: Mapping[str, Any]) -> Document:
    """Plain data of its own, whatever becomes of what was given.

    Tuples are lists, paths are text, numbers of numpy are numbers, and attribute values are text, as in a
    file: ``3`` is ``"3"``, ``True`` is ``"true"``.

    Raises
    ------
    ConfigError
        it is nested too deeply to be an experiment.
    """
    lines = FindingLines(GIVEN, {(): Place(GIVEN, 0)})
    problems: list[Problem] = []

    def report(path: KeyPath, message: str) -> None:
        problems.append(lines.locate(Finding(path, "V-20", message)))

    def mapping(value: Mapping[Any, Any], path: KeyPath) -> dict[str, Any]:
        found = {}
        for key, part in value.items():
            if isinstance(key, int) or (isinstance(key, str) and not SURROGATE.search(key)):
                found[str(key)] = plain(part, (*path, str(key)))
            elif isinstance(key, str):
                report(path, "a key holds half of a character (a lone surrogate); take it out")
            else:
                report(path, f"a key is of type {type(key).__name__}; a key is one word")
        return found

    def plain(value: Any, path: KeyPath) -> Any:
        if len(path) > MAX_DEPTH:
            problem = lines.locate(
                Finding(path[:1], "V-27", f"is nested deeper than {MAX_DEPTH} levels; flatten it")
            )
            raise ConfigError([problem.render()])
        match value:
            case Mapping():
                return mapping(value, path)
            case list() | tuple():
                return [plain(part, (*path, index)) for index, part in enumerate(value)]
            case os.PathLike():
                return os.fspath(value)
            case None | str():
                return value
        number = _number(value)
        if number is None:
            report(
                path,
                f"is of type {type(value).__name__}; use text, numbers, true or false, lists and mappings",
            )
        elif is_attribute_value(path):
            return str(number).lower() if isinstance(number, bool) else str(number)
        return number

    return Document(mapping(data, ()), lines, problems)


def _number(value: Any) -> bool | int | float | None:
    match value:
        case bool() | int() | float():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value)
    return None
