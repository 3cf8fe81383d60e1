"""Foreign YAML as nodes with line numbers, bounded in depth and number; values as YAML on a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError

# Characters; a larger text takes the parser in Python a second or more, and goes to that in C (libyaml).
_LARGE = 1 << 16
_BARE = re.compile(r"(\./|[A-Za-z_/])([\w ./-]*[\w./-])?")
_NO_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})

_TAG = "tag:yaml.org,2002:"
_MAP, _SEQ = f"{_TAG}map", f"{_TAG}seq"
_TEXTS = {f"{_TAG}str", f"{_TAG}timestamp"}
_PLAIN = {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "value")}


def yaml_reader() -> YAML:
    """Make a reader of plain data that stays silent on anchors set twice, which YAML allows: its warning
    would quote lines that may hold a key."""
    reader = YAML(typ="safe", pure=True)
    reader.composer.warn_double_anchors = False
    return reader


class YamlNode(msgspec.Struct, kw_only=True):
    """A node. ``line`` counts from 1; ``tag`` is empty for the usual ones."""

    line: int
    tag: str = ""


class Scalar(YamlNode):
    """A scalar. ``plain``: unquoted, so perhaps a number; ``merge``: the key ``<<``."""

    text: str
    plain: bool
    merge: bool = False


class Sequence(YamlNode):
    items: list[YamlNode]


class Mapping(YamlNode):
    """A mapping; ``parts`` alternates keys and values."""

    parts: list[YamlNode]

    @property
    def pairs(self) -> list[tuple[YamlNode, YamlNode]]:
        return list(zip(self.parts[::2], self.parts[1::2], strict=True))


class Unusable(Exception):
    """YAML that is valid but not accepted."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def compose_yaml(text: str, most_levels: int, most_nodes: int) -> YamlNode | None:
    """Compose the one document of a text; None where it is empty.

    Raises Unusable: there are several documents, an unknown alias, or more than ``most_nodes``, deeper than
    ``most_levels``; ruamel.yaml.error.YAMLError: it is no YAML.
    """
    root: YamlNode | None = None
    inside: list[list[YamlNode]] = []  # what the sequences and mappings hold that are open
    anchors: dict[str, YamlNode] = {}
    count = 0
    for event in _parse_events(text):
        line = event.start_mark.line + 1
        if isinstance(event, events.CollectionEndEvent):
            inside.pop()
            continue
        if not isinstance(event, events.NodeEvent):
            if isinstance(event, events.DocumentStartEvent) and root is not None:
                raise Unusable(line, "holds more than one YAML document; keep one file per experiment")
            continue
        count += 1
        if count > most_nodes:
            raise Unusable(line, f"holds over {most_nodes:,} values; is this an experiment file?")
        if isinstance(event, events.AliasEvent):
            if (node := anchors.get(event.anchor)) is None:
                raise Unusable(line, f"*{event.anchor} is undefined; set &{event.anchor} above it")
        else:
            node = _make_node(event, line)
            if event.anchor is not None:
                anchors[event.anchor] = node
        if inside:
            inside[-1].append(node)
        else:
            root = node
        if isinstance(event, events.CollectionStartEvent):
            if len(inside) == most_levels:
                raise Unusable(line, f"is nested deeper than {most_levels} levels; flatten it")
            match node:
                case Mapping(parts=contents) | Sequence(items=contents):
                    inside.append(contents)
    return root


def _make_node(event: Any, line: int) -> YamlNode:
    tag = "" if event.tag is None else str(event.tag)
    if isinstance(event, events.ScalarEvent):
        if tag in ("", "!"):
            plain = event.implicit[0]
            return Scalar(line=line, text=event.value, plain=plain, merge=plain and event.value == "<<")
        strange = tag if tag not in _TEXTS | _PLAIN else ""
        return Scalar(line=line, tag=strange, text=event.value, plain=tag in _PLAIN)
    if isinstance(event, events.MappingStartEvent):
        return Mapping(line=line, tag=tag if tag != _MAP else "", parts=[])
    return Sequence(line=line, tag=tag if tag != _SEQ else "", items=[])


def _parse_events(text: str) -> Iterator[Any]:
    """Parse YAML into events, one after the other, so that deep nesting needs no recursion: a large text with
    libyaml; the parser in Python goes on where libyaml refuses a character that YAML 1.2 allows, written in
    two halves as in JSON."""
    yielded = 0
    if len(text) > _LARGE:
        try:
            for event in YAML(typ="safe").parse(text):
                yield event
                yielded += 1
            return
        except MarkedYAMLError as error:
            if "character" not in (error.problem or ""):
                raise
    yield from islice(yaml_reader().parse(text), yielded, None)


def yaml_line(value: Any) -> str:
    """Write a value as YAML of any version reads it back: words bare, all else as JSON."""
    match value:
        case str() if _BARE.fullmatch(value) and value.lower() not in _NO_TEXT:
            return value
        case str():
            return json.dumps(value, ensure_ascii=not value.isprintable())
        case dict():
            parts = (f"{yaml_line(key)}: {yaml_line(part)}" for key, part in value.items())
            return "{" + ", ".join(parts) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(yaml_line, value)) + "]"
        case _:
            return json.dumps(value)
