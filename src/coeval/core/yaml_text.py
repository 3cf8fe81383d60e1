"""How YAML of others is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

__all__ = ["yaml_events", "yaml_reader"]

_LARGE = 1 << 16
"""Characters; a larger text takes the parser in Python a second or more, and goes to that in C (libyaml)."""


def yaml_reader() -> YAML:
    """A reader that makes plain data only, and keeps to itself that an anchor is set twice, as YAML allows:
    its warning would quote lines of the file, and one of them may hold a key."""
    reader = YAML(typ="safe", pure=True)
    reader.composer.warn_double_anchors = False
    return reader


def yaml_events(text: str) -> Iterator[Any]:
    """What a parser finds, one event after the other: no recursion, however deep the text is nested.

    Raises
    ------
    ruamel.yaml.error.YAMLError
        it is not YAML.
    """
    if len(text) <= _LARGE:
        return yaml_reader().parse(text)  # type: ignore[no-any-return]
    return _events_in_c(text)


def _events_in_c(text: str) -> Iterator[Any]:
    """Those of libyaml; where it refuses a character that YAML 1.2 allows, written in two halves as in JSON,
    what it has not come to yet is left to the parser in Python."""
    given = 0
    try:
        for event in YAML(typ="safe").parse(text):
            yield event
            given += 1
    except MarkedYAMLError as error:
        if "character" not in (error.problem or ""):
            raise
        for number, event in enumerate(yaml_reader().parse(text)):
            if number >= given:
                yield event
