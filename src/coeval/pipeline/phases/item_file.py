"""A file of supplied items, read line by line; unusable and odd lines are reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Misshapen, Undecodable
from coeval.core.foreign import decode, decode_utf8, make_decoder
from coeval.core.records import Datapoint, is_good, item_prefix
from coeval.core.regular_files import open_file
from coeval.judging.labels import normalise_label
from coeval.pipeline.config.draft import ItemSource
from coeval.pipeline.config.findings import describe_value
from coeval.pipeline.config.items_section import Items
from coeval.pipeline.config.schema import TaskConfig
from coeval.store.jsonl import store_error
from coeval.tables.harvest import HarvestedItem, ItemOrigin
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import LineMessages
from coeval.tables.table_source import SourceChoice, TableSource, find_local_source

# --- What the section ``items`` of a task says of its table


def build_item_map(items: Items) -> ItemMap:
    """Return the section's columns; with choices and no reference, the label is the right choice."""
    return ItemMap(
        prompt=items.prompt,
        reference=items.reference or (items.label if items.choices is not None else None),
        attributes=items.attributes | ({items.label: items.label} if items.label is not None else {}),
        id=items.id,
        choices=items.choices,
        where=items.where,
    )


def find_item_source(items: Items) -> TableSource:
    """Find the files of the section; raises UsageError if there are none."""
    source = find_local_source(
        SourceChoice(name=items.path, split=items.split, encoding=items.encoding, delimiter=items.delimiter)
    )
    return msgspec.structs.replace(source, license=items.license) if items.license is not None else source


# --- Records of hand-made items

BOM = b"\xef\xbb\xbf"
"""What some editors begin a file with; it is no part of the first item."""

_ATTRIBUTES = ("sampled_target_attributes", "sampled_nuanced_attributes")
_FIELDS = frozenset(Datapoint.__struct_encode_fields__)
_ENCODER = msgspec.json.Encoder()


class SuppliedItem(NamedTuple):
    """An item and its record's ``line``, not the file's if ``changed``; ``unused`` are unknown fields."""

    line: bytes
    item: Datapoint
    changed: bool
    unused: tuple[str, ...]


def build_item(row: HarvestedItem, prefix: str, task: str, teacher: str) -> SuppliedItem:
    """Build the item of a row. ``prefix`` begins the ids of this task and teacher."""
    own, mapped = row.own_id, row.item
    item = Datapoint(
        id=own if own.startswith(prefix) and own != prefix else prefix + own,
        task_id=task,
        teacher_model_id=teacher,
        sampled_target_attributes=mapped.attributes,
        prompt=mapped.prompt,
        reference_response=mapped.reference,
    )
    return SuppliedItem(_ENCODER.encode(item) + b"\n", item, False, ())


class _StrictItem(Datapoint, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An item exactly as a record stores it: unknown fields are errors."""


_read_record = make_decoder(_StrictItem)


def parse_item_line_or_problem(text: bytes, task: str, teacher: str) -> SuppliedItem | str:
    """Parse a line of a teacher's file for a task; a string says why it cannot be used."""
    start = item_prefix(task, teacher)
    try:
        item = _read_record(text)
    except Undecodable:
        return _parse_handwritten_or_problem(text, task, teacher)
    names_match = (item.task_id, item.teacher_model_id) == (task, teacher) and item.id.startswith(start)
    if names_match and item.id != start and is_good(item) and (item.prompt or "").strip():
        return SuppliedItem(text.strip() + b"\n", item, False, ())
    return _parse_handwritten_or_problem(text, task, teacher)


def _parse_handwritten_or_problem(text: bytes, task: str, teacher: str) -> SuppliedItem | str:
    """Parse a line that a person or another program wrote; a string says why it cannot be used."""
    text = text.removeprefix(BOM)
    try:
        decode_utf8(text)
    except Undecodable as error:
        return f"{error}; save the file as UTF-8"
    try:
        fields = decode(text, dict[str, msgspec.Raw])
    except Misshapen:
        return "it is not a JSON object"
    except Undecodable as error:
        return f"it is not JSON: {error}"
    own = _scalar_to_text(fields.get("id"))
    if not own:
        return "it has no `id`, text or a number"
    if own in ("true", "false") and not isinstance(_decode_field(fields, "id"), str):
        return f"its `id` is {own}; give text or a number"
    values = {"task_id": task, "teacher_model_id": teacher}
    for name, mine in values.items():
        if (value := _decode_field(fields, name)) not in (None, mine):
            return f"its `{name}` is {_ENCODER.encode(value).decode()}; items of this file are of {mine}"
    filled = {name: mine for name, mine in values.items() if _decode_field(fields, name) is None}
    start = item_prefix(task, teacher)
    full = own if own.startswith(start) and own != start else start + own
    if _decode_field(fields, "id") != full:
        filled["id"] = full
    return _build_supplied_item_or_problem(text, fields, filled | _correct_nontext_fields(fields))


def _build_supplied_item_or_problem(
    text: bytes, fields: Mapping[str, msgspec.Raw], filled: Mapping[str, Any]
) -> SuppliedItem | str:
    if (misfit := _find_field_problem(fields)) is not None:
        return misfit
    line = _ENCODER.encode({**fields, **filled}) if filled else text.strip()
    try:
        item = decode(line, Datapoint)
    except Undecodable as error:
        return f"it is not an item: {error}"
    if not is_good(item):
        return "it is the record of a failed item"
    unused = tuple(name for name in fields if name not in _FIELDS)
    return SuppliedItem(line + b"\n", item, bool(filled), unused)


def _find_field_problem(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """Return what is wrong with fields that people write; None if nothing is."""
    if "prompt" not in fields:
        return f"it has no `prompt`, only {', '.join(f'`{name}`' for name in fields)}"
    prompt = _decode_field(fields, "prompt")
    if prompt is None or (isinstance(prompt, str) and not prompt.strip()):
        return "its `prompt` is empty"
    if not isinstance(prompt, str):
        return f"its `prompt` is {describe_value(prompt)}; give text"
    for name in _ATTRIBUTES:
        attributes = _decode_field(fields, name)
        if attributes is not None and not isinstance(attributes, dict):
            wrong = f"its `{name}` is {describe_value(attributes)}"
            return f'{wrong}; give a mapping, such as {{"topic": "privacy"}}'
        for attribute, value in (attributes or {}).items():
            if value is None or isinstance(value, list | dict):
                wrong = f"in its `{name}`, {attribute} is {describe_value(value)}"
                return f"{wrong}; give one value, as text or a number"
    return None


def _correct_nontext_fields(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return fields with numbers or booleans as text, and empty attributes if there are none."""
    filled: dict[str, Any] = {}
    reference = _decode_field(fields, "reference_response")
    if reference is not None and not isinstance(reference, str | dict | list):
        filled["reference_response"] = _scalar_to_text(fields["reference_response"])
    for name in _ATTRIBUTES:
        attributes = _decode_field(fields, name)
        if attributes is None and name == "sampled_target_attributes":
            filled[name] = {}
        elif isinstance(attributes, dict) and not all(isinstance(v, str) for v in attributes.values()):
            raw = decode(fields[name], dict[str, msgspec.Raw])
            filled[name] = {key: _scalar_to_text(value) for key, value in raw.items()}
    return filled


def _decode_field(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    return decode(fields[name]) if name in fields else None


def _scalar_to_text(raw: msgspec.Raw | None) -> str | None:
    """Return a JSON scalar as text, numbers as written; None for null, lists and mappings."""
    value = None if raw is None else decode(raw)
    if value is None or isinstance(value, list | dict):
        return None
    return value if isinstance(value, str) else bytes(raw or b"").decode().strip()


ITEM_FORM = (
    "one JSON object a line: `id`, `prompt` and, if there is one, `reference_response` (docs/items.md)"
)


@dataclass(slots=True)
class ItemFile:
    """Items that one benchmark teacher supplies for one task.

    ``lines`` are its records, ``rewritten``: the file does not hold them so yet. ``ids``: id → line where
    it occurs first; ``label_values``: label attribute → its values. For items of a table, ``origin``
    describes it, ``changed_since`` is the time of the last copy if the table has changed, ``flaws`` are
    rows that make no item; ``notes`` are for the user.
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
    notes: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Return how many items are missing from the task's total."""
        return max(0, (self.source.task.sampling.max_items or 0) - len(self.ids))

    def add_record_and_find_first_line(self, line: bytes, item: Datapoint, line_number: int) -> int:
        self.lines.append(line)
        for label in self.source.task.label_attributes:
            if (value := item.sampled_target_attributes.get(label)) is not None:
                self.label_values.setdefault(label, {})[value] = None
        return self.ids.setdefault(item.id, line_number)

    def read(self) -> ItemFile:
        try:
            with open_file(self.path) as file:
                for number, text in enumerate(file, 1):
                    self._add_line(text, number)
        except OSError as error:
            raise store_error("read", self.path, error) from error
        if not self.rewritten:
            self.lines.clear()  # the file holds them
        return self

    def _add_line(self, text: bytes, number: int) -> None:
        """Parse a line and add its item, or note its problem."""
        if text.startswith(BOM):
            self.rewritten = True
            self.remarks.note("a byte order mark is removed", number)
        if not text.removeprefix(BOM).strip():
            self.rewritten = True
            self.remarks.note("the line is blank", number)
            return
        supplied = parse_item_line_or_problem(text, self.source.task.name, self.source.teacher)
        if isinstance(supplied, str):
            self.problems.note(supplied, number)
            return
        self.rewritten |= supplied.changed
        first = self.add_record_and_find_first_line(supplied.line, supplied.item, number)
        if first != number:
            self.remarks.note(
                f"the id {supplied.item.id} is already on line {first}; the last one counts", number
            )
        for remark in _describe_oddities(supplied, self.source.task):
            self.remarks.note(remark, number)


def _describe_oddities(supplied: SuppliedItem, task: TaskConfig) -> Iterator[str]:
    attributes, declared = supplied.item.sampled_target_attributes, task.target_attributes
    labels = tuple(task.label_attributes)
    for name in supplied.unused:
        yield f"the field `{name}` is not used"
    for label in labels:
        values = declared.get(label) if isinstance(declared, dict) else None
        if label not in attributes:
            without = f"the label {label} has no value in `sampled_target_attributes`, and is not compared"
            near = get_close_matches(label, attributes.keys() - {*labels}, n=1)
            yield f"{without}; {near[0]} has one: is {label} meant?" if near else without
        elif values is not None and normalise_label(attributes[label]) not in map(normalise_label, values):
            yield f"the label {label} is {attributes[label]}, which target_attributes does not declare"
