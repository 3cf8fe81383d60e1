"""Measures as rows of tables: a column for each figure that a record declares, and nothing to add by hand."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from coeval.analysis.measures.measure_tree import NOT_MEASURED, Measured, Record
from coeval.core.html_table import MeasureRow

_Kind = TypeVar("_Kind", bound=Record)

BY_TASK = "_by_task"
"""What ends the name of a field that has, by task, what the field before it has overall."""


class _Field(NamedTuple):
    """A field of a record, and the columns that it fills: a measure several, a record those of its own."""

    name: str
    columns: tuple[str, ...]
    within: type[Record] | None = None


def measure_row(names: Mapping[str, Any], record: Record, task: str | None = None) -> MeasureRow:
    """Build the row of a record: ``names`` come first. ``task``: use the values of one task."""
    return MeasureRow(**names, **dict(_row_cells(record, type(record), task)))


def record_from_row(row: MeasureRow, record_type: type[_Kind]) -> _Kind:
    """Rebuild a record from the figures of a row; absent figures take their defaults."""
    figures: dict[str, Any] = {}
    for field in _fields(record_type):
        values = [row[column] for column in field.columns]
        without = [None] * (_MEASURED - len(values))
        figures[field.name] = Measured(*values, *without) if len(values) > 1 else values[0]
    return record_type(**figures)


def _row_cells(record: Record | None, kind: type[Record], task: str | None) -> Iterator[tuple[str, Any]]:
    """Yield each column of a record with its value; None where the record, or its value, is None."""
    for field in _fields(kind):
        value = None if record is None else _cell_value(record, field.name, task)
        if field.within is not None:
            yield from _row_cells(value, field.within, None)
            continue
        match value:
            case Measured():
                yield from zip(field.columns, value, strict=False)
            case tuple() if len(field.columns) > 1:
                yield from zip(field.columns, value, strict=True)
            case None if "n" in field.columns:
                yield from zip(field.columns, NOT_MEASURED, strict=True)
            case _ if len(field.columns) == 1:
                yield field.columns[0], value
            case _:
                yield from ((column, None) for column in field.columns)


def _cell_value(record: Record, name: str, task: str | None) -> Any:
    if task is None:
        return getattr(record, name)
    by_task = getattr(record, f"{name}{BY_TASK}", None)
    return None if by_task is None else by_task.get(task)


@cache
def _fields(record: type[Record]) -> tuple[_Field, ...]:
    """List a record's figures with their columns; the first measure gives interval and counts plain names."""
    fields: list[_Field] = []
    for name, hint in get_type_hints(record).items():
        kinds = _types_of_hint(hint)
        if Measured in kinds:
            first = not any(len(field.columns) == _MEASURED for field in fields)
            ends = ("low", "high", "n", "missing") if first else (f"{name}_low", f"{name}_high")
            fields.append(_Field(name, (name, *ends)))
        elif name == "bounds":
            fields.append(_Field(name, ("least", "most")))
        elif inner := [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Record)]:
            fields.append(_Field(name, (), inner[0]))
        elif kinds <= _SCALARS:
            fields.append(_Field(name, (name,)))
    return tuple(fields)


_MEASURED = 5
_SCALARS = {str, int, float, bool, tuple}


def _types_of_hint(hint: Any) -> set[Any]:
    """Return the types that a field may have, other than None."""
    if get_origin(hint) is Annotated:
        return _types_of_hint(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return {kind for part in get_args(hint) for kind in _types_of_hint(part)} - {types.NoneType}
    return {get_origin(hint) or hint}
