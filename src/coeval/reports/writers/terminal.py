"""Tables on a terminal: figures beside names, or below them where it is too narrow; neither is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from coeval.core.folding import wrap_lines, wrap_name
from coeval.core.plain import escape_line
from coeval.reports.content import ReportTable, cell_text

_GAP = "  "
# What figures below names, and names below their group's, are set in by.
_BELOW = "    "
_IN_GROUP = "  "
# Below, prose breaks at nearly every word, and stands better below the names.
_NARROWEST_WORDS = 20
# Cells that a heading is folded to: at most two lines for nearly all, without a break inside a word.
_LONGEST_HEADING = 17


def as_terminal(table: ReportTable, width: int) -> list[Text]:
    """A title if there is one, headings and rows. A column in which no row has anything is left out.

    A row is one line if ``width`` allows it, by folding words of the last column and long headings, then by
    leaving out what is ``spare``; else groups of rows whose first names are the same have a line for these,
    or figures stand below the names. More figures than a line holds continue in further tables.
    """
    columns = _columns(table)
    names, figures = columns[: table.names], columns[table.names :]
    lines = [Text(line, style="italic") for line in wrap_lines(escape_line(table.title), width) if line]
    needed = [column for column in figures if not column.spare]
    layouts: list[Callable[[list[_TextColumn]], list[Text] | None]] = [
        lambda shown: _in_line([*names, *shown], width),
        lambda shown: _grouped(names, shown, width),
        lambda shown: _stacked(names, shown, width),
    ]
    for layout in layouts[:1] if len(names) < 2 else layouts[:2]:
        for shown in (figures, needed):
            if (found := layout(shown)) is not None:
                return lines + found
    return lines + (layouts[2](needed) or _split(names, needed, width))


class _TextColumn(NamedTuple):
    """Texts of a column, its heading first; ``bold`` are the places of those that stand out. Words stand to
    the left, figures to the right; ``free`` words are folded."""

    cells: Sequence[str]
    words: bool
    bold: frozenset[int]
    spare: bool = False
    free: bool = False

    @property
    def width(self) -> int:
        return max(map(cell_len, self.cells))

    @property
    def heading_folded(self) -> _TextColumn:
        """The same with its heading in as many lines as it takes."""
        widest = max(_LONGEST_HEADING, *map(cell_len, self.cells[1:] or [""]))
        return self._replace(cells=[wrap_name(self.cells[0], widest), *self.cells[1:]])


def _columns(table: ReportTable) -> list[_TextColumn]:
    shown = table.places_in_use
    return [
        _TextColumn(
            [escape_line(column.on_terminal), *(cell_text(row[at], column.kind) for row in table.rows)],
            words=column.kind == "text",
            bold=frozenset(row + 1 for row, place in table.bold if place == at),
            spare=column.spare,
            free=column.kind == "text" and at == shown[-1] and at >= table.names,
        )
        for at, column in ((at, table.columns[at]) for at in shown)
    ]


def _in_line(columns: Sequence[_TextColumn], width: int, begin: str = "") -> list[Text] | None:
    """Rows of one line each, behind ``begin``; None where the width does not allow it."""
    for tried in (columns, [column.heading_folded for column in columns]):
        widths = [_widest(column) for column in tried]
        if columns and columns[-1].free:
            room = width - cell_len(begin) - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
            if room >= min(_NARROWEST_WORDS, widths[-1]):
                widths[-1] = min(room, widths[-1])
        if cell_len(begin) + sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
            return [line for row in range(len(columns[0].cells)) for line in _row(tried, widths, row, begin)]
    return None


def _widest(column: _TextColumn) -> int:
    return max(cell_len(line) for cell in column.cells for line in cell.split("\n"))


def _row(columns: Sequence[_TextColumn], widths: Sequence[int], row: int, begin: str = "") -> Iterator[Text]:
    """A row's lines: what is folded goes on where its column begins."""
    cells = [
        wrap_lines(column.cells[row], wide) if column.free and row else column.cells[row].split("\n")
        for column, wide in zip(columns, widths, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=""):
        line = Text(begin)
        for at, (part, column, wide) in enumerate(zip(parts, columns, widths, strict=True)):
            blanks = " " * (wide - cell_len(part))
            line.append(_GAP if at else "")
            line.append(part + blanks if column.words else blanks + part, _style(column, row))
        line.rstrip()
        yield line


def _style(column: _TextColumn, row: int) -> str:
    return "bold" if row == 0 or row in column.bold else ""


def _grouped(names: Sequence[_TextColumn], figures: Sequence[_TextColumn], width: int) -> list[Text] | None:
    """A line for each run of rows that differ in the last of their names alone, and these below it."""
    last = names[-1]
    heading = ", ".join(column.cells[0] for column in names)
    rows = _in_line(
        [last._replace(cells=[heading, *(_IN_GROUP + cell for cell in last.cells[1:])]), *figures], width
    )
    if rows is None or any(column.free for column in figures):
        return None
    head, lines = rows[: len(rows) - len(last.cells) + 1], rows[len(rows) - len(last.cells) + 1 :]
    groups = groupby(range(1, len(last.cells)), key=lambda row: [column.cells[row] for column in names[:-1]])
    for group, members in groups:
        head += [Text(line) for line in wrap_name(", ".join(group), width).split("\n")]
        head += [lines[row - 1] for row in members]
    return head


def _stacked(names: Sequence[_TextColumn], figures: Sequence[_TextColumn], width: int) -> list[Text] | None:
    """Names in a line, their figures below; None where these do not fit."""
    if not figures:
        figures = [_TextColumn([""] * len(names[0].cells), words=True, bold=frozenset())]
    widths = [_widest(column) for column in figures]
    if figures[-1].free:
        room = width - len(_BELOW) - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
        widths[-1] = min(max(room, _NARROWEST_WORDS), widths[-1])
    if len(figures) > 1 and len(_BELOW) + sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return None
    found = []
    for row in range(len(names[0].cells)):
        name = ", ".join(column.cells[row] for column in names)
        found += [Text(line, style=_style(names[-1], row)) for line in wrap_name(name, width).split("\n")]
        found += [line for line in _row(figures, widths, row, _BELOW) if line.plain.strip()]
    return found


def _split(names: Sequence[_TextColumn], figures: Sequence[_TextColumn], width: int) -> list[Text]:
    """Several tables of as many figures as fit; `_stacked` where a single one does not."""
    found: list[Text] = []
    left = list(figures)
    while left:
        for many in range(len(left), 0, -1):
            lines = _in_line([*names, *left[:many]], width)
            if lines is None and len(names) > 1:
                lines = _grouped(names, left[:many], width)
            if lines is None and many == 1:
                lines = next(
                    part
                    for fewer in range(len(left), 0, -1)
                    if (part := _stacked(names, left[: (many := fewer)], width)) is not None
                )
            if lines is not None:
                break
        found += ([Text()] if found else []) + (lines or [])
        left = left[many:]
    return found
