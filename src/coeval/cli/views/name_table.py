"""Tables of names with figures beside them, or below them where a terminal is too narrow: neither is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from coeval.cli.views.folding import folded, folded_name
from coeval.core.plain import plain

_GAP = "  "
_BELOW = "    "
_NARROWEST_WORDS = 20


class Column(NamedTuple):
    """Figures stand to the right, words to the left. ``free`` words, in the last column alone, are folded."""

    heading: str
    words: bool = False
    free: bool = False


class NameRow(NamedTuple):
    """A name and its cells; there are fewer of them than columns where the last ones are empty."""

    name: str
    cells: Sequence[str] = ()
    style: str = ""


def print_table(
    console: Console, title: str, heading: str, columns: Sequence[Column], rows: Sequence[NameRow]
) -> None:
    """Print a title if there is one, headings and rows. What stands in them is foreign, and obeys nothing."""
    table = [NameRow(plain(heading), [plain(column.heading) for column in columns], "bold")]
    table += [NameRow(plain(row.name), [*map(plain, row.cells)], row.style) for row in rows]
    for line in folded(plain(title), console.width) if title else ():
        console.print(Text(line, style="italic"), soft_wrap=True)
    layout = _layout(columns, table, console.width)
    for row in table:
        for line in _lines(row, columns, layout):
            console.print(Text(line.rstrip(), style=row.style), soft_wrap=True)


class _Layout(NamedTuple):
    """Cells of each column; of the names too, or None where the figures stand below them; and of all."""

    widths: Sequence[int]
    names: int | None
    whole: int


def _layout(columns: Sequence[Column], table: Sequence[NameRow], width: int) -> _Layout:
    widths = [
        max(cell_len(row.cells[at]) for row in table if at < len(row.cells)) for at in range(len(columns))
    ]
    names = max(cell_len(row.name) for row in table)
    free = columns[-1].free
    for start in (names, len(_BELOW) - len(_GAP)):
        taken = start + sum(len(_GAP) + wide for wide in (widths[:-1] if free else widths))
        room = width - taken - len(_GAP)
        if free and room >= min(_NARROWEST_WORDS, widths[-1]):
            return _Layout([*widths[:-1], min(room, widths[-1])], names if start == names else None, width)
        if not free and taken <= width:
            return _Layout(widths, names if start == names else None, width)
    return _Layout([*widths[:-1], _NARROWEST_WORDS] if free else widths, None, width)


def _lines(row: NameRow, columns: Sequence[Column], layout: _Layout) -> Iterator[str]:
    """A row's lines; what is folded goes on where its column begins."""
    if layout.names is None:
        yield from folded_name(row.name, layout.whole).split("\n")
        begin = _BELOW
    else:
        begin = _padded(row.name, layout.names, words=True) + _GAP
    if not row.cells:
        if layout.names is not None:
            yield row.name
        return
    cells = [
        _padded(cell, wide, words=column.words)
        for cell, column, wide in zip(row.cells, columns, layout.widths, strict=False)
    ]
    if not columns[len(cells) - 1].free:
        yield begin + _GAP.join(cells)
        return
    first, *others = folded(row.cells[-1], layout.widths[-1])
    start = begin + "".join(cell + _GAP for cell in cells[:-1])
    yield start + first
    for line in others:
        yield " " * cell_len(start) + line


def _padded(text: str, width: int, *, words: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return text + blanks if words else blanks + text
