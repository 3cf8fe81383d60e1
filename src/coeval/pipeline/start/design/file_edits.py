"""Changes of single values in a YAML text that leave every other character of it as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from coeval.core.yaml_text import yaml_reader

__all__ = ["KeyWay", "Unplaced", "YamlEdits", "written"]

KeyWay: TypeAlias = tuple[str | int, ...]
"""Keys and places of a list that lead to a value."""

_STEP = 2
_SAFE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?: [A-Za-z0-9_.-]+)*")
_SPECIAL = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


class Unplaced(Exception):
    """The text is not written so that this can be changed by itself."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _Entry(NamedTuple):
    """A key with its value, and the mapping that it stands in."""

    mapping: MappingNode
    place: int
    key: Node
    value: Node


class YamlEdits:
    """Collects changes, and makes them all at once.

    Raises
    ------
    Unplaced
        by every method: what stands there cannot be found, or goes over lines in a way that is not followed.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._root = yaml_reader().compose(text)
        self._edits: list[_Edit] = []
        self._break = "\r\n" if "\r\n" in text else "\n"

    def expand(self, way: KeyWay, value: Mapping[str, Any], remark: str) -> None:
        """Put a mapping in the place of a word, an entry a line, under a comment where there is room."""
        entry = self._entry(way)
        self._need_word(entry.value)
        start, end = _index(entry.value.start_mark), _index(entry.value.end_mark)
        if entry.mapping.flow_style:
            self._edits.append(_Edit(start, end, written(value)))
            return
        indent = " " * (entry.key.start_mark.column + _STEP)
        lines = [f"# {remark}"] if remark else []
        lines += [f"{_name(name)}: {written(part)}" for name, part in value.items()]
        line_end = self._line_end(end)
        while start and self._text[start - 1] == " ":
            start -= 1
        self._edits.append(_Edit(start, end, ""))
        block = "".join(f"{self._break}{indent}{line}" for line in lines)
        self._edits.append(_Edit(line_end, line_end, block))

    def put(self, way: KeyWay, word: str) -> None:
        """Give a key a plain word; one that is not there becomes the first of its mapping."""
        try:
            entry = self._entry(way)
        except Unplaced:
            self._insert(way, word)
            return
        if entry.value.start_mark.line != entry.value.end_mark.line:
            raise Unplaced(way)
        self._edits.append(_Edit(_index(entry.value.start_mark), _index(entry.value.end_mark), word))

    def remove(self, way: KeyWay) -> None:
        """Take a key out, with all its lines."""
        mapping, place, key, value = self._entry(way)
        if mapping.flow_style:
            self._remove_from_flow(mapping, place)
            return
        start = self._line_start(_index(key.start_mark))
        if self._text[start : _index(key.start_mark)].strip():
            raise Unplaced(way)
        end = self._line_end(self._start_of_line(_last_line(value), start))
        self._edits.append(_Edit(start, min(end + len(self._break), len(self._text)), ""))

    def text(self) -> str:
        """The text with all changes."""
        text = self._text
        for edit in sorted(self._edits, key=lambda edit: (edit.start, edit.end), reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    def _remove_from_flow(self, mapping: MappingNode, place: int) -> None:
        key, value = mapping.value[place]
        if place + 1 < len(mapping.value):
            span = (_index(key.start_mark), _index(mapping.value[place + 1][0].start_mark))
        elif place:
            span = (_index(mapping.value[place - 1][1].end_mark), _index(value.end_mark))
        else:
            span = (_index(key.start_mark), _index(value.end_mark))
        self._edits.append(_Edit(*span, ""))

    def _insert(self, way: KeyWay, word: str) -> None:
        mapping = self._node(way[:-1])
        if not isinstance(mapping, MappingNode) or not mapping.value:
            raise Unplaced(way)
        first = _index(mapping.value[0][0].start_mark)
        if mapping.flow_style:
            self._edits.append(_Edit(first, first, f"{way[-1]}: {word}, "))
            return
        start = self._line_start(first)
        indent = self._text[start:first]
        if indent.strip():
            raise Unplaced(way)
        self._edits.append(_Edit(start, start, f"{indent}{way[-1]}: {word}{self._break}"))

    def _entry(self, way: KeyWay) -> _Entry:
        mapping = self._node(way[:-1])
        if isinstance(mapping, MappingNode):
            for place, (key, value) in enumerate(mapping.value):
                if isinstance(key, ScalarNode) and key.value == way[-1]:
                    return _Entry(mapping, place, key, value)
        raise Unplaced(way)

    def _node(self, way: KeyWay) -> Node:
        node: Node = self._root
        for step in way:
            match node, step:
                case MappingNode(), str():
                    found = [value for key, value in node.value if getattr(key, "value", None) == step]
                case SequenceNode(), int():
                    found = node.value[step : step + 1]
                case _:
                    found = []
            if not found:
                raise Unplaced(way)
            node = found[0]
        return node

    def _need_word(self, node: Node) -> None:
        if not isinstance(node, ScalarNode) or node.style in ("|", ">"):
            raise Unplaced(node)
        if node.start_mark.line != node.end_mark.line:
            raise Unplaced(node)

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        end = self._text.find(self._break, at)
        return end if end >= 0 else len(self._text)

    def _start_of_line(self, line: int, at: int) -> int:
        """Where a line begins that is not before the one of ``at``."""
        for _ in range(line - self._text.count("\n", 0, at)):
            at = self._text.index("\n", at) + 1
        return at


def written(value: Any) -> str:
    """A value on one line, as YAML of any version reads it back: words bare, all else as JSON."""
    match value:
        case str():
            return _name(value)
        case Mapping():
            return "{" + ", ".join(f"{_name(name)}: {written(part)}" for name, part in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(written, value)) + "]"
        case _:
            return json.dumps(value)


def _name(text: str) -> str:
    if _SAFE.fullmatch(text) and text.lower() not in _SPECIAL:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _index(mark: Any) -> int:
    index: int = mark.index
    return index


def _last_line(node: Node) -> int:
    """The last line of a value, counted from 0; that of a block ends where its last entry does."""
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        raise Unplaced(node)
    if isinstance(node, MappingNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1][1])
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1])
    line: int = node.end_mark.line
    return line
