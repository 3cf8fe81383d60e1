"""A YAML text as nodes, each with its line, bounded in depth and in number."""

from __future__ import annotations

from typing import Any

import msgspec
from ruamel.yaml import events

from coeval.core.yaml_text import yaml_events

__all__ = ["Mapping", "Node", "Scalar", "Sequence", "Unusable", "compose"]

_TAG = "tag:yaml.org,2002:"
_MAP, _SEQ = f"{_TAG}map", f"{_TAG}seq"
_TEXTS = {f"{_TAG}str", f"{_TAG}timestamp"}
_PLAIN = {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "value")}


class Node(msgspec.Struct, kw_only=True):
    """``line`` counts from 1; ``tag`` is one that is not usual here, else empty."""

    line: int
    tag: str = ""


class Scalar(Node):
    """``plain``: without quotes, so it may be a number or the like. ``merge``: the key ``<<``."""

    text: str
    plain: bool
    merge: bool = False


class Sequence(Node):
    items: list[Node]


class Mapping(Node):
    """``parts``: keys and values in turn."""

    parts: list[Node]

    @property
    def pairs(self) -> list[tuple[Node, Node]]:
        return list(zip(self.parts[::2], self.parts[1::2], strict=True))


class Unusable(Exception):
    """YAML, but none that is taken."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def compose(text: str, most_deep: int, most: int) -> Node | None:
    """The one document of a text; None where it is empty.

    Raises
    ------
    Unusable
        there are several documents, an unknown alias, or more than ``most`` nodes, nested deeper than
        ``most_deep``.
    ruamel.yaml.error.YAMLError
        it is no YAML.
    """
    root: Node | None = None
    inside: list[list[Node]] = []  # what the sequences and mappings hold that are open
    anchors: dict[str, Node] = {}
    count = 0
    for event in yaml_events(text):
        line = event.start_mark.line + 1
        if isinstance(event, events.CollectionEndEvent):
            inside.pop()
            continue
        if not isinstance(event, events.NodeEvent):
            if isinstance(event, events.DocumentStartEvent) and root is not None:
                raise Unusable(line, "holds more than one YAML document; keep one file per experiment")
            continue
        count += 1
        if count > most:
            raise Unusable(line, f"holds over {most:,} values; is this an experiment file?")
        if isinstance(event, events.AliasEvent):
            if (node := anchors.get(event.anchor)) is None:
                raise Unusable(line, f"*{event.anchor} stands for nothing; set &{event.anchor} above it")
        else:
            node = _node(event, line)
            if event.anchor is not None:
                anchors[event.anchor] = node
        if inside:
            inside[-1].append(node)
        else:
            root = node
        if isinstance(event, events.CollectionStartEvent):
            if len(inside) == most_deep:
                raise Unusable(line, f"is nested deeper than {most_deep} levels; flatten it")
            match node:
                case Mapping(parts=contents) | Sequence(items=contents):
                    inside.append(contents)
    return root


def _node(event: Any, line: int) -> Node:
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
