"""Tables for notebooks. What stands in them came from models and files, and is text, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple


class Bar(NamedTuple):
    """A cell that shows how much is done of a whole."""

    done: int
    whole: int


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a cell that is None is a dash. Everything is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str]) -> str:
    """A paragraph for each line, escaped."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, Bar):
        return f'<progress value="{value.done}" max="{max(value.whole, 1)}"></progress>'
    return escape("–" if value is None else str(value))
