"""YAML 1.2 text into plain data with the line of every value.

Own construction on top of ruamel's events, because it must do what no loader does at once:
remember lines, report every duplicate key, keep attribute values as they are spelled (``3.10``),
read plain scalars by the YAML 1.2 core schema only (``yes`` and ``2024-01-01`` are text), and
stay small however aliases multiply.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from coeval.core.errors import ConfigError
from coeval.core.regular_files import open_file
from coeval.core.yaml_text import Mapping, Scalar, Sequence, Unusable, YamlNode, compose_yaml
from coeval.pipeline.config.findings import Finding, FindingLines, KeyPath, Place, Problem

# Experiment files nest about eight deep; the readers above recurse once a level.
MAX_DEPTH = 40
# A hundred tasks of a hundred models are a tenth of it; "billion laughs" is a million times more.
MAX_VALUES = 200_000
# Read in a second or two; larger files are data, named by mistake.
MAX_BYTES = 2_000_000

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_BASED_INT = re.compile(r"0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,99}|[0-9]{1,99}(\.[0-9]{0,99})?)([eE][-+]?[0-9]{1,3})?")
SURROGATE = re.compile(r"[\ud800-\udfff]")
_ATTRIBUTES = re.compile(r"(target|nuanced)_attributes(_seed)?")


class Document(NamedTuple):
    """A file as read: ``data`` is plain, ``problems`` are its duplicate keys and strange tags."""

    data: dict[str, Any]
    lines: FindingLines
    problems: list[Problem]


SECTIONS = "models:, tasks: and experiment:"
"""What an experiment file begins with."""


def read_document(path: Path, sections: str = SECTIONS) -> Document:
    """Read one YAML mapping, which is to have these sections.

    Raises ConfigError: the file is not there, or is not one UTF-8 YAML mapping of bearable size; the one
    problem says where.
    """
    return parse_document(read_text(path, sections), path, sections)


def parse_document(text: str, path: Path, sections: str = SECTIONS) -> Document:
    """As `read_document`, of a text that stands, or is to stand, in the file ``path``."""
    root = _compose(text, str(path))
    if root is None:
        raise _unreadable(path, 1, f"the file is empty; write {sections}")
    if not isinstance(root, Mapping):
        raise _unreadable(
            path,
            root.line,
            f"the file is not a mapping; write {sections} at its left margin",
        )
    builder = _Builder(path)
    data = builder.mapping(root, ())
    return Document(data, FindingLines(str(path), builder.places), builder.problems)


def _unreadable(path: Path | str, line: int, message: str) -> ConfigError:
    return ConfigError([Problem(Place(str(path), line), Finding((), "V-27", message)).render()])


def read_text(path: Path, sections: str = SECTIONS) -> str:
    """The text of an experiment file, or of another that is to have these sections.

    Raises ConfigError: it is not there, or is no UTF-8 text of bearable size.
    """
    what = "an experiment file" if sections == SECTIONS else f"a file with {sections}"
    try:
        with open_file(path) as file:
            raw = file.read(MAX_BYTES + 1)  # of /dev/zero, say, there is no end
    except OSError as error:
        reason = error.strerror or str(error)
        raise _unreadable(path, 1, f"cannot be read ({reason}); give the path of {what}") from error
    if len(raw) > MAX_BYTES:
        raise _unreadable(path, 1, f"is larger than {MAX_BYTES:,} bytes; is this {what}?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, line, "is not UTF-8 text; save the file as UTF-8") from error


def _compose(text: str, file: str) -> YamlNode | None:
    try:
        return compose_yaml(text, MAX_DEPTH, MAX_VALUES)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        if "'\\t'" in what:
            what = "a tab is where YAML requires spaces; indent with spaces"
        else:
            what = f"is not YAML: {what}; correct the syntax here or just above"
        # The parser quotes the lines around an error, and one of them may hold a credential.
        raise _unreadable(file, mark.line + 1 if mark else 1, what) from None
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0) or 0) + 1
        raise _unreadable(file, line, f"is not YAML: {str(error).splitlines()[0]}; remove it") from error
    except Unusable as error:
        raise _unreadable(file, error.line, str(error)) from error
    except ValueError as error:
        raise _unreadable(file, 1, f"is not YAML: {error}; correct it") from error


def is_attribute_value(path: KeyPath) -> bool:
    """``tasks[i].target_attributes.name[j]`` and its likes."""
    return len(path) == 5 and path[0] == "tasks" and bool(_ATTRIBUTES.fullmatch(str(path[2])))


class _Builder:
    """Turns one file's nodes into data, noting places and problems on the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []
        self.built = 0

    def value(self, node: YamlNode, path: KeyPath) -> Any:
        self._count(node, path)
        match node:
            case Mapping():
                return self.mapping(node, path)
            case Sequence():
                return self._sequence(node, path)
            case Scalar():
                return self._scalar(node, path)
            case _:
                raise TypeError(f"no node of YAML: {node}")

    def _count(self, node: YamlNode, path: KeyPath) -> None:
        """Bounds what aliases can make of a small file (and of one that contains itself)."""
        self.built += 1
        if len(path) > MAX_DEPTH:
            raise _unreadable(self.path, node.line, f"is nested deeper than {MAX_DEPTH} levels; flatten it")
        if self.built > MAX_VALUES:
            raise _unreadable(
                self.path, node.line, f"its aliases expand to over {MAX_VALUES:,} values; write them out"
            )

    def mapping(self, node: Mapping, path: KeyPath) -> dict[str, Any]:
        self._check_tag(node, path)
        merged: list[tuple[YamlNode, YamlNode]] = []
        own: dict[str, tuple[YamlNode, YamlNode]] = {}
        for key, value in node.pairs:
            if isinstance(key, Scalar) and key.merge:
                merged += self._merged(value, path)
                continue
            name = self._key(key, path)
            if name is None:
                continue
            if first := own.get(name):
                twice = f"the key is on line {first[0].line} already; keep one of the two"
                self._report(key, (*path, name), "V-19", twice)
            else:
                own[name] = (key, value)
        for key, value in merged:
            name = self._key(key, path)
            if name is not None:
                own.setdefault(name, (key, value))
        return {name: self._entry(key, value, (*path, name)) for name, (key, value) in own.items()}

    def _entry(self, key: YamlNode, value: YamlNode, path: KeyPath) -> Any:
        self.places[path] = Place(str(self.path), key.line)
        return self.value(value, path)

    def _merged(self, value: YamlNode, path: KeyPath) -> list[tuple[YamlNode, YamlNode]]:
        """The pairs that ``<<`` brings in; earlier mappings win over later ones."""
        parts = value.items if isinstance(value, Sequence) else [value]
        pairs: list[tuple[YamlNode, YamlNode]] = []
        for part in parts:
            self._count(part, path)
            if not isinstance(part, Mapping):
                self._report(
                    value, path, "V-20", "<< takes a mapping or a list of mappings; name an anchor (*name)"
                )
                continue
            for key, item in part.pairs:
                self._count(key, path)
                if isinstance(key, Scalar) and key.merge:
                    pairs += self._merged(item, (*path, "<<"))
                else:
                    pairs.append((key, item))
        return pairs

    def _key(self, key: YamlNode, path: KeyPath) -> str | None:
        if isinstance(key, Scalar):
            name = _joined(key.text)
            if not SURROGATE.search(name):
                return name
            self._report(key, path, "V-20", "a key holds half of a character (a lone surrogate); take it out")
            return None
        self._report(key, path, "V-20", "a key is a list or a mapping; a key is one word")
        return None

    def _report(self, node: YamlNode, path: KeyPath, rule: str, message: str) -> None:
        self.problems.append(Problem(Place(str(self.path), node.line), Finding(path, rule, message)))

    def _sequence(self, node: Sequence, path: KeyPath) -> list[Any]:
        self._check_tag(node, path)
        items = []
        for index, item in enumerate(node.items):
            self.places[(*path, index)] = Place(str(self.path), item.line)
            items.append(self.value(item, (*path, index)))
        return items

    def _scalar(self, node: Scalar, path: KeyPath) -> Any:
        self._check_tag(node, path)
        text = _joined(node.text)
        if not node.plain:
            return text
        value = _plain(text)
        return text if is_attribute_value(path) and value is not None else value

    def _check_tag(self, node: YamlNode, path: KeyPath) -> None:
        if node.tag:
            self._report(node, path, "V-20", f"the tag {node.tag} is unknown; remove it")


def _joined(text: str) -> str:
    """With each pair of surrogates, as JSON writes what lies beyond U+FFFF, as the character that it is."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _plain(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema; numbers beyond any use stay text."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
