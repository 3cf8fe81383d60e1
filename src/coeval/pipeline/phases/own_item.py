"""An item as a person or a script wrote it, made a record: what is missing is filled in, all else is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Misshapen, Undecodable
from coeval.core.foreign import decode, utf8
from coeval.core.good import is_good
from coeval.core.ids import item_prefix
from coeval.core.records import Datapoint
from coeval.tables.item_map import MappedItem

BOM = b"\xef\xbb\xbf"
"""What some editors begin a file with; it is no part of the first item."""

_ATTRIBUTES = ("sampled_target_attributes", "sampled_nuanced_attributes")
_FIELDS = frozenset(Datapoint.__struct_fields__)
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


def read_item(text: bytes, task: str, teacher: str) -> OwnItem | str:
    """The item that a line of a teacher's file for a task holds; a string says why it cannot be used."""
    text = text.removeprefix(BOM)
    try:
        utf8(text)
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
        return f"its `prompt` is {_kind(prompt)}; give text"
    for name in _ATTRIBUTES:
        attributes = _value(fields, name)
        if attributes is not None and not isinstance(attributes, dict):
            return f'its `{name}` is {_kind(attributes)}; give a mapping, such as {{"topic": "privacy"}}'
        for attribute, value in (attributes or {}).items():
            if value is None or isinstance(value, list | dict):
                return f"in its `{name}`, {attribute} is {_kind(value)}; give one value, as text or a number"
    return None


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case str():
            return "text"
        case bool():
            return "true" if value else "false"
        case _:
            return "a number"


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
