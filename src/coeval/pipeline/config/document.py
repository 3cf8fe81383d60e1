"""Parse YAML 1.2 into plain data, with the line of every value.

Built on ruamel's events, because no loader does all of this: remember lines, report every duplicate key,
keep attribute values as they are spelled (``3.10``), read plain scalars by the YAML 1.2 core schema only
(``yes`` and ``2024-01-01`` are text), and bound what aliases can expand to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from coeval.core.errors import ConfigError
from coeval.core.regular_files import open_file
from coeval.core.yaml_text import Mapping, Scalar, Sequence, Unusable, YamlNode, compose_yaml
from coeval.pipeline.config.findings import FileData, Finding, KeyPath, LineIndex, Location, Problem

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
    """A parsed file: plain ``data``, the line of each value, and problems such as duplicate keys."""

    data: FileData
    lines: LineIndex
    problems: list[Problem]


SECTIONS = "models:, tasks: and experiment:"
"""What an experiment file begins with."""


def read_document(path: Path, sections: str = SECTIONS) -> Document:
    """Read a file of one YAML mapping; ``sections``: keys it should begin with, for messages. Raises
    ConfigError: it is missing, too large, or not that in UTF-8."""
    return parse_document(read_config_text(path, sections), path, sections)


def parse_document(text: str, path: Path, sections: str = SECTIONS) -> Document:
    """Parse the text of a file; ``path`` is used in messages. Raises as `read_document`."""
    root = _parse_yaml(text, str(path))
    if root is None:
        raise _unreadable_error(path, 1, f"the file is empty; write {sections}")
    if not isinstance(root, Mapping):
        raise _unreadable_error(
            path, root.line, f"the file is not a mapping; write {sections} at its left margin"
        )
    builder = _DataBuilder(path)
    data = builder.build_value(root, ())
    return Document(data, LineIndex(str(path), builder.locations), builder.problems)


def _unreadable_error(path: Path | str, line: int, message: str) -> ConfigError:
    return ConfigError([Problem(Location(str(path), line), Finding((), "V-27", message)).render()])


def read_config_text(path: Path, sections: str = SECTIONS) -> str:
    """Read the text of a file that begins with ``sections``. Raises ConfigError: it is missing, not UTF-8, or
    larger than `MAX_BYTES`."""
    what = "an experiment file" if sections == SECTIONS else f"a file with {sections}"
    try:
        with open_file(path) as file:
            raw = file.read(MAX_BYTES + 1)  # of /dev/zero, say, there is no end
    except OSError as error:
        reason = error.strerror or str(error)
        raise _unreadable_error(path, 1, f"cannot be read ({reason}); give the path of {what}") from error
    if len(raw) > MAX_BYTES:
        raise _unreadable_error(path, 1, f"is larger than {MAX_BYTES:,} bytes; is this {what}?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _unreadable_error(path, line, "is not UTF-8 text; save the file as UTF-8") from error


def _parse_yaml(text: str, file: str) -> YamlNode | None:
    """Parse YAML into nodes; raise ConfigError with the line of the first error."""
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
        raise _unreadable_error(file, mark.line + 1 if mark else 1, what) from None
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0) or 0) + 1
        raise _unreadable_error(
            file, line, f"is not YAML: {str(error).splitlines()[0]}; remove it"
        ) from error
    except Unusable as error:
        raise _unreadable_error(file, error.line, str(error)) from error
    except ValueError as error:
        raise _unreadable_error(file, 1, f"is not YAML: {error}; correct it") from error


def is_attribute_value(path: KeyPath) -> bool:
    """Check whether a path is ``tasks[i].target_attributes.name[j]``, or the same of nuances or seeds."""
    return len(path) == 5 and path[0] == "tasks" and bool(_ATTRIBUTES.fullmatch(str(path[2])))


class _DataBuilder:
    """Builds plain data from the nodes of one file, and collects locations and problems."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.locations: dict[KeyPath, Location] = {}
        self.problems: list[Problem] = []
        self.built = 0

    def build_value(self, node: YamlNode, path: KeyPath) -> Any:
        """Build what a node stands for; attribute values stay as they are spelled."""
        self._refuse_excess(node, path)
        if node.tag:
            self._add_problem(node, path, "V-20", f"the tag {node.tag} is unknown; remove it")
        match node:
            case Mapping():
                return self._build_mapping(node, path)
            case Sequence():
                for index, item in enumerate(node.items):
                    self.locations[(*path, index)] = Location(str(self.path), item.line)
                return [self.build_value(item, (*path, index)) for index, item in enumerate(node.items)]
            case Scalar(plain=True):
                text = _join_surrogates(node.text)
                value = _parse_plain_scalar(text)
                return text if is_attribute_value(path) and value is not None else value
            case Scalar():
                return _join_surrogates(node.text)

    def _refuse_excess(self, node: YamlNode, path: KeyPath) -> None:
        """Refuse values beyond `MAX_DEPTH` and `MAX_VALUES`: aliases can blow up a small file."""
        self.built += 1
        if len(path) > MAX_DEPTH:
            raise _unreadable_error(
                self.path, node.line, f"is nested deeper than {MAX_DEPTH} levels; flatten it"
            )
        if self.built > MAX_VALUES:
            raise _unreadable_error(
                self.path, node.line, f"its aliases expand to over {MAX_VALUES:,} values; write them out"
            )

    def _build_mapping(self, node: Mapping, path: KeyPath) -> dict[str, Any]:
        """Build a dict; report duplicate keys. Keys merged by ``<<`` yield to the mapping's own."""
        merged: list[tuple[YamlNode, YamlNode]] = []
        own: dict[str, tuple[YamlNode, YamlNode]] = {}
        for key, value in node.pairs:
            if isinstance(key, Scalar) and key.merge:
                merged += self._collect_merged_pairs(value, path)
                continue
            name = self._read_key(key, path)
            if name is None:
                continue
            if first := own.get(name):
                twice = f"the key is on line {first[0].line} already; keep one of the two"
                self._add_problem(key, (*path, name), "V-19", twice)
            else:
                own[name] = (key, value)
        for key, value in merged:
            name = self._read_key(key, path)
            if name is not None:
                own.setdefault(name, (key, value))
        data = {}
        for name, (key, value) in own.items():
            self.locations[*path, name] = Location(str(self.path), key.line)
            data[name] = self.build_value(value, (*path, name))
        return data

    def _collect_merged_pairs(self, value: YamlNode, path: KeyPath) -> list[tuple[YamlNode, YamlNode]]:
        """Collect the pairs that ``<<`` merges in, those of earlier mappings first."""
        parts = value.items if isinstance(value, Sequence) else [value]
        pairs: list[tuple[YamlNode, YamlNode]] = []
        for part in parts:
            self._refuse_excess(part, path)
            if not isinstance(part, Mapping):
                self._add_problem(
                    value, path, "V-20", "<< takes a mapping or a list of mappings; name an anchor (*name)"
                )
                continue
            for key, item in part.pairs:
                self._refuse_excess(key, path)
                if isinstance(key, Scalar) and key.merge:
                    pairs += self._collect_merged_pairs(item, (*path, "<<"))
                else:
                    pairs.append((key, item))
        return pairs

    def _read_key(self, key: YamlNode, path: KeyPath) -> str | None:
        if isinstance(key, Scalar):
            name = _join_surrogates(key.text)
            if not SURROGATE.search(name):
                return name
            self._add_problem(
                key, path, "V-20", "a key holds half of a character (a lone surrogate); take it out"
            )
            return None
        self._add_problem(key, path, "V-20", "a key is a list or a mapping; a key is one word")
        return None

    def _add_problem(self, node: YamlNode, path: KeyPath, rule: str, message: str) -> None:
        self.problems.append(Problem(Location(str(self.path), node.line), Finding(path, rule, message)))


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs, as JSON writes characters beyond U+FFFF, into characters."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _parse_plain_scalar(text: str) -> Any:
    """Parse an unquoted scalar by the YAML 1.2 core schema; very long numbers stay text."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
