"""A sweep's YAML file: the flags of the command as keys, every mistake told with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from coeval.core.errors import Misshapen
from coeval.core.foreign import convert
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut, refused
from coeval.sweeps.sweep_settings import CheckpointFolder, ListedCheckpoint, SweepSettings

__all__ = ["read_sweep_file"]

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


def read_sweep_file(path: Path) -> SweepSettings:
    """
    Raises
    ------
    ConfigError
        it cannot be read, or has mistakes: unknown keys, values of another kind.
    """
    document = read_document(path, "checkpoints:, out: and tasks:")
    problems = list(document.problems)
    values: dict[str, Any] = {}
    hints = get_type_hints(SweepSettings, include_extras=True)
    for key, value in document.data.items():
        findings = list(_unknown(key, value))
        if not findings and value is not None:
            try:
                values[key] = convert(value, hints[key])
            except Misshapen as error:
                findings = [Finding((key,), _WRONG, _in_words(str(error)))]
        problems += map(document.lines.locate, findings)
    if problems:
        raise refused(problems, str(path))
    return SweepSettings(**values)


def _unknown(key: str, value: Any) -> Iterator[Finding]:
    """Keys that are none, at the top and within ``checkpoints``."""
    yield from _not_among((key,), SweepSettings.__struct_fields__)
    if key != "checkpoints":
        return
    listed: list[tuple[KeyPath, Any]] = []
    if isinstance(value, dict):
        for name in value:
            yield from _not_among((key, name), CheckpointFolder.__struct_fields__)
        listed = [((key, "more", number), each) for number, each in _numbered(value.get("more"))]
    listed += [((key, number), each) for number, each in _numbered(value)]
    for path, each in listed:
        for name in each if isinstance(each, dict) else ():
            yield from _not_among((*path, name), ListedCheckpoint.__struct_fields__)


def _numbered(value: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else iter(())


def _not_among(path: KeyPath, known: tuple[str, ...]) -> Iterator[Finding]:
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
    wanted = " or ".join(dict.fromkeys(_KINDS.get(kind.strip(), kind) for kind in found[1].split("|")))
    return f"is {_KINDS.get(found[2], found[2])}, and is to be {wanted.replace(' or nothing', '')}"
