"""Tables and plots for notebooks. What stands in them came from models and files: text, never markup."""

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


class ForestRow(NamedTuple):
    """A row of a forest plot: a value from 0 to 1 with its interval; None where there is none."""

    name: str
    value: float | None
    low: float | None
    high: float | None


def forest_plot(title: str, rows: Sequence[ForestRow]) -> str:
    """Each value as a point with its interval, on a scale from 0 to 1, as an SVG in the text's colour. Rows
    without a value have none; where nobody has one there is no plot."""
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
        f'<text x="{_x(tick)}" y="{height + 16}" text-anchor="middle">{tick:g}</text>'
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


_ROW, _NAMES, _SCALE, _LETTERS = 22, 180, 360, 24
"""Pixels: the height of a row, the width of the names and of the scale; letters of a name that are shown."""


def _x(share: float) -> float:
    return round(_NAMES + _SCALE * min(max(share, 0.0), 1.0), 1)


def _cell(value: object) -> str:
    if isinstance(value, Bar):
        return f'<progress value="{value.done}" max="{max(value.whole, 1)}"></progress>'
    return escape("–" if value is None else str(value))
