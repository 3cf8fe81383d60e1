"""Tables for notebooks. Their contents come from models and files and are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

# --- Records as columns

Scalar: TypeAlias = str | int | float | bool | None
Columns: TypeAlias = dict[str, list[Scalar]]
"""Column name → values, one per record; None where a record has no value."""


def record_columns(kind: type, records: Iterable[object]) -> Columns:
    """Make columns of records: one per field of ``kind``, a struct or a dataclass, even where there are none.

    The fields of a record within a record, and the keys of a mapping, are columns of their own, named
    with a dot (``usage.input_tokens``, ``scores.plot``); those of mappings are the ones that occur, and
    stand last. What a tuple holds is joined with ``", "``.
    """
    table: Columns = {name: [] for name in _list_fixed_columns(kind)}
    for before, record in enumerate(records):
        row = dict(_flatten_record(record))
        for name, value in row.items():
            if name not in table and value is not None:
                table[name] = [None] * before
        for name, column in table.items():
            column.append(row.get(name))
    return table


class MeasureRow(dict[str, Any]):
    """The figures of one thing by column, in the order of its record; they are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no column {name}; there are {', '.join(self)}") from None


def row_columns(rows: Iterable[MeasureRow]) -> Columns:
    """Make columns of rows that have the same; what a tuple holds is joined with ``", "``."""
    table: Columns = {}
    for row in rows:
        for name, value in row.items():
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            table.setdefault(name, []).append(text)
    return table


def _list_fixed_columns(kind: type, prefix: str = "") -> Iterator[str]:
    """Yield the columns that every record of a kind has."""
    for name, field_type in get_type_hints(kind).items():
        parts = (field_type, *get_args(field_type))  # of ``Usage | None`` both
        inner = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
        if inner:
            yield from _list_fixed_columns(inner[0], f"{prefix}{name}.")
        elif not any(get_origin(part) is dict for part in parts):
            yield prefix + name


def _flatten_record(value: Any, name: str = "") -> Iterator[tuple[str, Scalar]]:
    fields = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", ())
    match value:
        case _ if fields:
            for field in fields:
                yield from _flatten_record(getattr(value, field), f"{name}.{field}" if name else field)
        case dict():
            for key, part in value.items():
                yield from _flatten_record(part, f"{name}.{key}")
        case tuple() | list():
            yield name, ", ".join(map(str, value))
        case _:
            yield name, value


class Bar(NamedTuple):
    """A table cell that shows progress as a bar."""

    done: int
    whole: int


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Render a table; None becomes a dash. Everything is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_render_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str]) -> str:
    """Render a paragraph per line, escaped."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _render_cell(value: object) -> str:
    if isinstance(value, Bar):
        return f'<progress value="{value.done}" max="{max(value.whole, 1)}"></progress>'
    return escape("–" if value is None else str(value))
