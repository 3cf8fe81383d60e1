"""Records as columns: what data frames and spreadsheets take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, get_args, get_origin

import msgspec

Scalar: TypeAlias = str | int | float | bool | None
Columns: TypeAlias = dict[str, list[Scalar]]
"""Column name → its values, as many in every column; None where a record has no value."""


def columns(kind: type[msgspec.Struct], records: Iterable[msgspec.Struct]) -> Columns:
    """One row per record, one column per field of ``kind``, even where there are no records.

    The fields of a record within a record, and the keys of a mapping, are columns of their own, named
    with a dot (``usage.input_tokens``, ``scores.plot``); those of mappings are the ones that occur, and
    stand last. What a tuple holds is joined with ``", "``.
    """
    table: Columns = {name: [] for name in _fixed(kind)}
    for before, record in enumerate(records):
        row = dict(_flat(record))
        for name, value in row.items():
            if name not in table and value is not None:
                table[name] = [None] * before
        for name, column in table.items():
            column.append(row.get(name))
    return table


def _fixed(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """The columns that every record of the kind has."""
    for field in msgspec.structs.fields(kind):
        parts = (field.type, *get_args(field.type))  # of ``Usage | None`` both
        inner = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
        if inner:
            yield from _fixed(inner[0], f"{prefix}{field.name}.")
        elif not any(get_origin(part) is dict for part in parts):
            yield prefix + field.name


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Scalar]]:
    match value:
        case msgspec.Struct():
            for field in value.__struct_fields__:
                yield from _flat(getattr(value, field), f"{name}.{field}" if name else field)
        case dict():
            for key, part in value.items():
                yield from _flat(part, f"{name}.{key}")
        case tuple() | list():
            yield name, ", ".join(map(str, value))
        case _:
            yield name, value
