"""Tables and plots for notebooks. Their contents come from models and files and are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

# --- Records as columns

Scalar: TypeAlias = str | int | float | bool | None
Columns: TypeAlias = dict[str, list[Scalar]]
"""Column name → values, one per record; None where a record has no value."""


def columns(kind: type, records: Iterable[object]) -> Columns:
    """Make columns of records: one per field of ``kind``, a struct or a dataclass, even where there are none.

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


def _fixed(kind: type, prefix: str = "") -> Iterator[str]:
    """The columns that every record of the kind has."""
    for name, of in get_type_hints(kind).items():
        parts = (of, *get_args(of))  # of ``Usage | None`` both
        inner = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
        if inner:
            yield from _fixed(inner[0], f"{prefix}{name}.")
        elif not any(get_origin(part) is dict for part in parts):
            yield prefix + name


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Scalar]]:
    fields = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", ())
    match value:
        case _ if fields:
            for field in fields:
                yield from _flat(getattr(value, field), f"{name}.{field}" if name else field)
        case dict():
            for key, part in value.items():
                yield from _flat(part, f"{name}.{key}")
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
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str]) -> str:
    """Render a paragraph per line, escaped."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


class ForestRow(NamedTuple):
    """A row of a forest plot: a value from 0 to 1 with its interval, each None where unknown."""

    name: str
    value: float | None
    low: float | None
    high: float | None


def forest_plot(title: str, rows: Sequence[ForestRow]) -> str:
    """Draw a forest plot as an SVG in the text's colour, on a scale from 0 to 1; empty where no row has a
    value."""
    drawn = [(row, row.value) for row in rows if row.value is not None]
    if not drawn:
        return ""
    height = _ROW * len(drawn)
    parts = [
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {_NAMES + _SCALE + 20} {height + 24}" '
        f'width="{_NAMES + _SCALE + 20}" style="max-width:100%;font:12px sans-serif" fill="currentColor">'
    ]
    parts += [
        f'<line x1="{_x(tick)}" x2="{_x(tick)}" y1="0" y2="{height}" stroke="currentColor" opacity=".2"/>'
        f'<text x="{_x(tick)}" y="{height + 16}" text-anchor="middle">{100 * tick:g}</text>'
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    for place, (row, value) in enumerate(drawn):
        middle = _ROW * place + _ROW // 2
        name = row.name if len(row.name) <= _LETTERS else f"{row.name[: _LETTERS - 1]}…"
        parts.append(
            f'<text x="{_NAMES - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>'
            f'<circle cx="{_x(value)}" cy="{middle}" r="4"/>'
        )
        if row.low is not None and row.high is not None:
            parts.append(
                f'<line x1="{_x(row.low)}" x2="{_x(row.high)}" y1="{middle}" y2="{middle}" '
                'stroke="currentColor" stroke-width="2"/>'
            )
    return "".join([*parts, "</svg>"])


# Pixels: row height, width of names, width of the scale; and the letters shown of a name.
_ROW, _NAMES, _SCALE, _LETTERS = 22, 180, 360, 24


def _x(share: float) -> float:
    return round(_NAMES + _SCALE * min(max(share, 0.0), 1.0), 1)


def _cell(value: object) -> str:
    if isinstance(value, Bar):
        return f'<progress value="{value.done}" max="{max(value.whole, 1)}"></progress>'
    return escape("–" if value is None else str(value))
