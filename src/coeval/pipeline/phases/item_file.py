"""A file of items of one's own: read line by line, and each line told that cannot be used or looks odd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import ConfigError, Misshapen, Undecodable
from coeval.core.foreign import decode, decode_utf8, make_decoder
from coeval.core.records import Datapoint, is_good, item_prefix
from coeval.core.regular_files import open_file
from coeval.judging.labels import normalise
from coeval.pipeline.config.draft import ItemSource
from coeval.pipeline.config.findings import describe_value
from coeval.pipeline.config.items_section import Items
from coeval.pipeline.config.schema import TaskConfig
from coeval.store.jsonl import store_error
from coeval.tables.harvest import ItemOrigin
from coeval.tables.item_map import ItemMap, MappedItem
from coeval.tables.source_bytes import LineMessages
from coeval.tables.table_source import SourceChoice, TableSource, find_local_source

# --- What the section ``items`` of a task says of its table


def item_map(items: Items) -> ItemMap:
    """What the section says of the columns. Of choices without a reference the label is the right one."""
    return ItemMap(
        prompt=items.prompt,
        reference=items.reference or (items.label if items.choices is not None else None),
        attributes=items.attributes | ({items.label: items.label} if items.label is not None else {}),
        id=items.id,
        choices=items.choices,
        where=items.where,
    )


def source_of(items: Items) -> TableSource:
    """The files of the section; raises UsageError where there are none."""
    source = find_local_source(
        SourceChoice(name=items.path, split=items.split, encoding=items.encoding, delimiter=items.delimiter)
    )
    return replace(source, license=items.license) if items.license is not None else source


# --- Records of hand-made items

BOM = b"\xef\xbb\xbf"
"""What some editors begin a file with; it is no part of the first item."""

_ATTRIBUTES = ("sampled_target_attributes", "sampled_nuanced_attributes")
_FIELDS = frozenset(Datapoint.__struct_encode_fields__)
_ENCODER = msgspec.json.Encoder()


class OwnItem(NamedTuple):
    """``line`` holds the record; ``changed``: it is not what was written. ``unused`` are fields that no
    record has."""

    line: bytes
    item: Datapoint
    changed: bool
    unused: tuple[str, ...]


def made_item(found: MappedItem, prefix: str, names: tuple[str, str], number: int) -> OwnItem:
    """The item that a row gave, of a (task, teacher) whose ids begin with ``prefix``; ``number`` stands
    for an id where the row has none."""
    own = found.id if found.id is not None else f"{number:05d}"
    task, teacher = names
    item = Datapoint(
        id=own if own.startswith(prefix) and own != prefix else prefix + own,
        task_id=task,
        teacher_model_id=teacher,
        sampled_target_attributes=found.attributes,
        prompt=found.prompt,
        reference_response=found.reference,
    )
    return OwnItem(_ENCODER.encode(item) + b"\n", item, False, ())


class _Record(Datapoint, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An item as its record stands, field by field."""


_read_record = make_decoder(_Record)


def read_item(text: bytes, task: str, teacher: str) -> OwnItem | str:
    """The item that a line of a teacher's file for a task holds; a string says why it cannot be used."""
    start = item_prefix(task, teacher)
    try:
        item = _read_record(text)
    except Undecodable:
        return _read_written(text, task, teacher)
    named = (item.task_id, item.teacher_model_id) == (task, teacher) and item.id.startswith(start)
    if named and item.id != start and is_good(item) and (item.prompt or "").strip():
        return OwnItem(text.strip() + b"\n", item, False, ())
    return _read_written(text, task, teacher)


def _read_written(text: bytes, task: str, teacher: str) -> OwnItem | str:
    """The same of a line that a person or a program wrote."""
    text = text.removeprefix(BOM)
    try:
        decode_utf8(text)
    except Undecodable as error:
        return f"{error}; save the file as UTF-8"
    try:
        fields = decode(text, dict[str, msgspec.Raw])
    except Misshapen:
        return "it is no JSON object"
    except Undecodable as error:
        return f"it is no JSON: {error}"
    own = _text(fields.get("id"))
    if not own:
        return "it has no `id`, text or a number"
    if own in ("true", "false") and not isinstance(_value(fields, "id"), str):
        return f"its `id` is {own}; give text or a number"
    values = {"task_id": task, "teacher_model_id": teacher}
    for name, mine in values.items():
        if (there := _value(fields, name)) not in (None, mine):
            return f"its `{name}` is {_shown(there)}; items of this file are of {mine}"
    filled = {name: mine for name, mine in values.items() if _value(fields, name) is None}
    start = item_prefix(task, teacher)
    full = own if own.startswith(start) and own != start else start + own
    if _value(fields, "id") != full:
        filled["id"] = full
    return _made(text, fields, filled | _texts(fields))


def _made(text: bytes, fields: Mapping[str, msgspec.Raw], filled: Mapping[str, Any]) -> OwnItem | str:
    if (misfit := _misfit(fields)) is not None:
        return misfit
    line = _ENCODER.encode({**fields, **filled}) if filled else text.strip()
    try:
        item = decode(line, Datapoint)
    except Undecodable as error:
        return f"it is no item: {error}"
    if not is_good(item):
        return "it is the record of an item that failed"
    unused = tuple(name for name in fields if name not in _FIELDS)
    return OwnItem(line + b"\n", item, bool(filled), unused)


def _misfit(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """What is wrong with the fields that people write, in their words."""
    if "prompt" not in fields:
        return f"it has no `prompt`, only {', '.join(f'`{name}`' for name in fields)}"
    prompt = _value(fields, "prompt")
    if prompt is None or (isinstance(prompt, str) and not prompt.strip()):
        return "its `prompt` is empty"
    if not isinstance(prompt, str):
        return f"its `prompt` is {describe_value(prompt)}; give text"
    for name in _ATTRIBUTES:
        attributes = _value(fields, name)
        if attributes is not None and not isinstance(attributes, dict):
            wrong = f"its `{name}` is {describe_value(attributes)}"
            return f'{wrong}; give a mapping, such as {{"topic": "privacy"}}'
        for attribute, value in (attributes or {}).items():
            if value is None or isinstance(value, list | dict):
                wrong = f"in its `{name}`, {attribute} is {describe_value(value)}"
                return f"{wrong}; give one value, as text or a number"
    return None


def _texts(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """What is read as text where numbers or truth values stand, and attributes where there are none."""
    filled: dict[str, Any] = {}
    reference = _value(fields, "reference_response")
    if reference is not None and not isinstance(reference, str | dict | list):
        filled["reference_response"] = _text(fields["reference_response"])
    for name in _ATTRIBUTES:
        attributes = _value(fields, name)
        if attributes is None and name == "sampled_target_attributes":
            filled[name] = {}
        elif isinstance(attributes, dict) and not all(isinstance(v, str) for v in attributes.values()):
            raw = decode(fields[name], dict[str, msgspec.Raw])
            filled[name] = {key: _text(value) for key, value in raw.items()}
    return filled


def _value(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    return decode(fields[name]) if name in fields else None


def _text(raw: msgspec.Raw | None) -> str | None:
    """A JSON scalar as text, numbers as they were written; None for null, lists and mappings."""
    value = None if raw is None else decode(raw)
    if value is None or isinstance(value, list | dict):
        return None
    return value if isinstance(value, str) else bytes(raw or b"").decode().strip()


def _shown(value: Any) -> str:
    return _ENCODER.encode(value).decode()


ITEM_FORM = (
    "one JSON object a line: `id`, `prompt` and, if there is one, `reference_response` (docs/items.md)"
)


@dataclass(slots=True)
class ItemFile:
    """What one benchmark teacher supplies for one task.

    ``lines`` are its records as they are to stand, ``rewritten`` says that the file holds something else.
    ``ids`` maps each record's id to the line where it stood first, ``label_values`` each label attribute to
    the values that items have. Where they were taken out of a table, ``origin`` tells of it,
    ``changed_since`` when they were before, if it (or what is taken) is another one since, ``flaws`` are
    its rows that make no item, and ``said`` is worth a look.
    """

    path: Path
    source: ItemSource
    lines: list[bytes] = field(default_factory=list)
    rewritten: bool = False
    ids: dict[str, int] = field(default_factory=dict)
    problems: LineMessages = field(default_factory=LineMessages)
    remarks: LineMessages = field(default_factory=LineMessages)
    label_values: dict[str, dict[str, None]] = field(default_factory=dict)
    origin: ItemOrigin | None = None
    changed_since: str = ""
    flaws: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many items lack to the total that the task asks for."""
        return max(0, (self.source.task.sampling.most or 0) - len(self.ids))

    def wrong(self) -> list[str]:
        """What cannot be used, a sentence a line."""
        return [*self.flaws, *self.problems.format_lines(self.path)]

    def add(self, line: bytes, item: Datapoint, number: int) -> int:
        """Take a record in; the line where its id stood first."""
        self.lines.append(line)
        for label in self.source.task.label_attributes:
            if (value := item.sampled_target_attributes.get(label)) is not None:
                self.label_values.setdefault(label, {})[value] = None
        return self.ids.setdefault(item.id, number)

    def read(self) -> ItemFile:
        try:
            with open_file(self.path) as file:
                for number, text in enumerate(file, 1):
                    self._take(text, number)
        except OSError as error:
            raise store_error("read", self.path, error) from error
        if not self.rewritten:
            self.lines.clear()  # the file holds them
        return self

    def _take(self, text: bytes, number: int) -> None:
        if text.startswith(BOM):
            self.rewritten = True
            self.remarks.note("a byte order mark is left out", number)
        if not text.removeprefix(BOM).strip():
            self.rewritten = True
            self.remarks.note("the line is blank", number)
            return
        found = read_item(text, self.source.task.name, self.source.teacher)
        if isinstance(found, str):
            self.problems.note(found, number)
            return
        self.rewritten |= found.changed
        first = self.add(found.line, found.item, number)
        if first != number:
            self.remarks.note(
                f"the id {found.item.id} stood on line {first} already; the last one counts", number
            )
        for remark in _remarks(found, self.source.task):
            self.remarks.note(remark, number)


def _remarks(found: OwnItem, task: TaskConfig) -> Iterator[str]:
    attributes, declared = found.item.sampled_target_attributes, task.target_attributes
    labels = tuple(task.label_attributes)
    for name in found.unused:
        yield f"the field `{name}` is not used"
    for label in labels:
        values = declared.get(label) if isinstance(declared, dict) else None
        if label not in attributes:
            without = f"the label {label} has no value in `sampled_target_attributes`, and is not compared"
            near = get_close_matches(label, attributes.keys() - {*labels}, n=1)
            yield f"{without}; {near[0]} has one: is {label} meant?" if near else without
        elif values is not None and normalise(attributes[label]) not in map(normalise, values):
            yield f"the label {label} is {attributes[label]}, which target_attributes does not declare"


def refuse_flawed(files: Iterable[ItemFile]) -> None:
    """
    Raises ConfigError: lines cannot be used as items; it names them.
    """
    flawed = [(file, wrong) for file in files if (wrong := file.wrong())]
    if flawed:
        written = any(not file.flaws for file, _ in flawed)
        how = [f"An item is {ITEM_FORM}."] if written else []
        raise ConfigError([*(sentence for _, wrong in flawed for sentence in wrong), *how])
