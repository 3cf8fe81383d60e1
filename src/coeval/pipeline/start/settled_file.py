"""An experiment file in which what was left to teachers stands as they proposed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from coeval.core.errors import ConfigError, UsageError
from coeval.core.yaml_text import yaml_line, yaml_reader
from coeval.pipeline.config.document import parse_document, read_text
from coeval.pipeline.config.load_file import Loaded, read_config
from coeval.pipeline.config.schema import Config
from coeval.pipeline.phases.blueprint import Kind
from coeval.pipeline.start.only import ProposedPart
from coeval.store.rundir import without_credentials, yaml_text

# --- Edits of single values in a YAML text

KeyWay: TypeAlias = tuple[str | int, ...]
"""Keys and places of a list that lead to a value."""

# The indent that all our examples and written files have.
_STEP = 2


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

    Raises Unplaced: by every method: what stands there cannot be found, or goes over lines in a way that is
    not followed.
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
            self._edits.append(_Edit(start, end, yaml_line(value)))
            return
        indent = " " * (entry.key.start_mark.column + _STEP)
        lines = [f"# {remark}"] if remark else []
        lines += [f"{yaml_line(name)}: {yaml_line(part)}" for name, part in value.items()]
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


_KEY: Mapping[Kind, str] = {
    "target": "target_attributes",
    "nuanced": "nuanced_attributes",
    "rubric": "rubric",
}


class SettledFile(NamedTuple):
    """``config`` is what ``text`` says. ``rewritten``: the comments of the file could not be kept;
    ``hidden`` are models of which a key was left out."""

    text: str
    config: Config
    rewritten: bool
    hidden: tuple[str, ...]


def settled_file(file: Path, loaded: Loaded, parts: Sequence[ProposedPart]) -> SettledFile:
    """The file with every part in its place, and without keys of models; all else as it stands, comments
    too, where the file is written so that this can be done. What comes of it is read and compared before it
    is given back."""
    data, hidden = _settled(loaded, parts)
    expected = read_config(deepcopy(data)).config
    text = _edited(file, loaded, parts)
    kept = text is not None and _says(text, file, expected)
    return SettledFile(
        text if text is not None and kept else yaml_text(data), expected, rewritten=not kept, hidden=hidden
    )


def refuse_credentials(loaded: Loaded) -> None:
    """
    Raises UsageError: a model has a credential elsewhere than in ``access_key``, as in an address: a copy of
    the file would hold it too, or not work.
    """
    for model in loaded.data["models"]:
        bare = {name: value for name, value in model.items() if name != "access_key"}
        shown = without_credentials([model])[0]
        if differing := [name for name, value in bare.items() if shown[name] != value]:
            raise UsageError(
                f"models.{model['name']}.{differing[0]} holds a credential, which would come into the "
                "new file as well; put it into a key file first"
            )


def _says(text: str, file: Path, expected: Config) -> bool:
    try:
        return read_config(parse_document(text, file)).config == expected
    except ConfigError:
        return False


def _settled(loaded: Loaded, parts: Sequence[ProposedPart]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The file as plain data, and the models of which a credential is hidden in it."""
    data = deepcopy(loaded.data)
    hidden = tuple(model["name"] for model in data["models"] if model.pop("access_key", None) is not None)
    tasks = {task["name"]: task for task in data["tasks"]}
    for part in parts:
        task, key = tasks[part.task], _KEY[part.kind]
        for name, requested in _sampling(loaded.config, part).items():
            task["sampling"][name] = requested
        task[key] = part.value
        task.pop(f"{key}_seed", None)
    return data, hidden


def _sampling(config: Config, part: ProposedPart) -> dict[str, Any]:
    """What of a task's ``sampling`` changes with a part: ``complete`` walks the full cross product, and
    items cannot have more attributes than were proposed."""
    task = next(task for task in config.tasks if task.name == part.task)
    if part.kind == "rubric":
        return {}
    if part.kind == "target" and task.target_attributes == "complete":
        return {"target": "all"}
    name = "target" if part.kind == "target" else "nuance"
    requested = task.sampling.target if part.kind == "target" else task.sampling.nuance
    labels = task.label_attributes if part.kind == "target" else ()
    there = sum(attribute not in labels for attribute in part.value)
    return {name: [there, there]} if not isinstance(requested, str) and requested[0] > there else {}


def _edited(file: Path, loaded: Loaded, parts: Sequence[ProposedPart]) -> str | None:
    """The text of the file with these parts, where its words can be found."""
    text = read_text(file)
    places = {task["name"]: place for place, task in enumerate(loaded.data["tasks"])}
    tasks = loaded.data["tasks"]
    try:
        edits = YamlEdits(text)
        for place, model in enumerate(loaded.data["models"]):
            if "access_key" in model:
                edits.remove(("models", place, "access_key"))
        for part in parts:
            key, way = _KEY[part.kind], ("tasks", places[part.task])
            said: KeyWay = (*way, key)
            edits.expand(said, part.value, _remark(part))
            for name, requested in _sampling(loaded.config, part).items():
                edits.put((*way, "sampling", name), yaml_line(requested))
            if f"{key}_seed" in tasks[places[part.task]]:
                edits.remove((*way, f"{key}_seed"))
        return edits.text()
    except (Unplaced, YAMLError):
        return None


def _remark(part: ProposedPart) -> str:
    return f"proposed by {', '.join(part.authors)}" if part.authors else "as the run has it"
