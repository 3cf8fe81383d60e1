"""Tables on a terminal: figures beside names, or below them where it is too narrow; neither is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from coeval.core.folding import wrap_lines, wrap_name
from coeval.core.plain import escape_line
from coeval.reports.content import ReportTable, format_cell

_GAP = "  "
# What figures below names, and names below their group's, are set in by.
_FIGURE_INDENT = "    "
_GROUP_INDENT = "  "
# Below, prose breaks at nearly every word, and stands better below the names.
_NARROWEST_WORDS = 20
# Cells that a heading is folded to: at most two lines for nearly all, without a break inside a word.
_LONGEST_HEADING = 17


def terminal_lines(table: ReportTable, width: int) -> list[Text]:
    """Format a table as a title if it has one, headings and rows, without columns that are empty in all rows.

    A row is one line if ``width`` allows it, by folding words of the last column and long headings, then
    by leaving out ``spare`` columns; else groups of rows with the same first names get a line for these,
    or figures stand below the names. Figures that do not fit in one line continue in further tables.
    """
    columns = _text_columns(table)
    names, figures = columns[: table.names], columns[table.names :]
    lines = [Text(line, style="italic") for line in wrap_lines(escape_line(table.title), width) if line]
    needed = [column for column in figures if not column.spare]
    for candidates in (figures, needed):
        if (rows := _one_line_rows([*names, *candidates], width)) is not None:
            return lines + rows
    for candidates in (figures, needed) if len(names) > 1 else ():
        if (rows := _group_rows_by_leading_names(names, candidates, width)) is not None:
            return lines + rows
    return lines + (_stack_figures(names, needed, width) or _split_table(names, needed, width))


class _TextColumn(NamedTuple):
    """Texts of a column, its heading first; ``bold`` are the indices of bold ones. Words are aligned to the
    left, figures to the right; ``free`` words are folded."""

    cells: Sequence[str]
    words: bool
    bold: frozenset[int]
    spare: bool = False
    free: bool = False

    @property
    def with_folded_heading(self) -> _TextColumn:
        """Return the column with its heading folded to the width of its cells."""
        widest = max(_LONGEST_HEADING, *map(cell_len, self.cells[1:] or [""]))
        return self._replace(cells=[wrap_name(self.cells[0], widest), *self.cells[1:]])


def _text_columns(table: ReportTable) -> list[_TextColumn]:
    used = table.terminal_columns
    return [
        _TextColumn(
            [
                escape_line(column.terminal_heading),
                *(format_cell(row[at], column.kind) for row in table.rows),
            ],
            words=column.kind == "text",
            bold=frozenset(row + 1 for row, bold_column in table.bold if bold_column == at),
            spare=column.spare,
            free=column.kind == "text" and at == used[-1] and at >= table.names,
        )
        for at, column in ((at, table.columns[at]) for at in used)
    ]


def _one_line_rows(columns: Sequence[_TextColumn], width: int, begin: str = "") -> list[Text] | None:
    """Format rows in one line each, behind ``begin``; None if they are wider than ``width``."""
    for candidates in (columns, [column.with_folded_heading for column in columns]):
        widths = [_column_width(column) for column in candidates]
        if columns and columns[-1].free:
            room = width - cell_len(begin) - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
            if room >= min(_NARROWEST_WORDS, widths[-1]):
                widths[-1] = min(room, widths[-1])
        if cell_len(begin) + sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
            return [
                line
                for row in range(len(columns[0].cells))
                for line in _row_lines(candidates, widths, row, begin)
            ]
    return None


def _column_width(column: _TextColumn) -> int:
    return max(cell_len(line) for cell in column.cells for line in cell.split("\n"))


def _row_lines(
    columns: Sequence[_TextColumn], widths: Sequence[int], row: int, begin: str = ""
) -> Iterator[Text]:
    """Yield a row's lines; folded text continues in its own column."""
    cells = [
        wrap_lines(column.cells[row], cell_width) if column.free and row else column.cells[row].split("\n")
        for column, cell_width in zip(columns, widths, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=""):
        line = Text(begin)
        for at, (part, column, cell_width) in enumerate(zip(parts, columns, widths, strict=True)):
            blanks = " " * (cell_width - cell_len(part))
            line.append(_GAP if at else "")
            line.append(part + blanks if column.words else blanks + part, _style(column, row))
        line.rstrip()
        yield line


def _style(column: _TextColumn, row: int) -> str:
    return "bold" if row == 0 or row in column.bold else ""


def _group_rows_by_leading_names(
    names: Sequence[_TextColumn], figures: Sequence[_TextColumn], width: int
) -> list[Text] | None:
    """Put a line above each run of rows that differ in their last name alone; None if the rows do not fit."""
    last = names[-1]
    heading = ", ".join(column.cells[0] for column in names)
    rows = _one_line_rows(
        [last._replace(cells=[heading, *(_GROUP_INDENT + cell for cell in last.cells[1:])]), *figures], width
    )
    if rows is None or any(column.free for column in figures):
        return None
    head, lines = rows[: len(rows) - len(last.cells) + 1], rows[len(rows) - len(last.cells) + 1 :]
    groups = groupby(range(1, len(last.cells)), key=lambda row: [column.cells[row] for column in names[:-1]])
    for group, members in groups:
        head += [Text(line) for line in wrap_name(", ".join(group), width).split("\n")]
        head += [lines[row - 1] for row in members]
    return head


def _stack_figures(
    names: Sequence[_TextColumn], figures: Sequence[_TextColumn], width: int
) -> list[Text] | None:
    """Put names in a line and their figures below; None if the figures do not fit."""
    if not figures:
        figures = [_TextColumn([""] * len(names[0].cells), words=True, bold=frozenset())]
    widths = [_column_width(column) for column in figures]
    if figures[-1].free:
        room = width - len(_FIGURE_INDENT) - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
        widths[-1] = min(max(room, _NARROWEST_WORDS), widths[-1])
    if len(figures) > 1 and len(_FIGURE_INDENT) + sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return None
    lines = []
    for row in range(len(names[0].cells)):
        name = ", ".join(column.cells[row] for column in names)
        lines += [Text(line, style=_style(names[-1], row)) for line in wrap_name(name, width).split("\n")]
        lines += [line for line in _row_lines(figures, widths, row, _FIGURE_INDENT) if line.plain.strip()]
    return lines


def _split_table(names: Sequence[_TextColumn], figures: Sequence[_TextColumn], width: int) -> list[Text]:
    """Split the figures over several tables, each with as many as fit, by `_stack_figures` if a single one
    does not."""
    split: list[Text] = []
    remaining = list(figures)
    while remaining:
        for count in range(len(remaining), 0, -1):
            lines = _one_line_rows([*names, *remaining[:count]], width)
            if lines is None and len(names) > 1:
                lines = _group_rows_by_leading_names(names, remaining[:count], width)
            if lines is None and count == 1:
                lines = next(
                    stacked
                    for fewer in range(len(remaining), 0, -1)
                    if (stacked := _stack_figures(names, remaining[: (count := fewer)], width)) is not None
                )
            if lines is not None:
                break
        split += ([Text()] if split else []) + (lines or [])
        remaining = remaining[count:]
    return split
