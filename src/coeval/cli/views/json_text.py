"""JSON for a terminal and for programs: what models wrote in it moves no cursor."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from coeval.core.plain import is_shown

_OTHER = re.compile(r"[^\x20-\x7e\n]")


def json_text(value: Any, *, indent: int = 0) -> str:
    """``value`` as JSON in one line, or indented; what cannot be shown is escaped as JSON escapes it."""
    encoded = msgspec.json.encode(value)
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    return _OTHER.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if is_shown(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
