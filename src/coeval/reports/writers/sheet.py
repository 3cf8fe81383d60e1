"""Tables as sheets of a workbook: foreign text stays text, and every cell is one that Excel can open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from coeval import __version__
from coeval.analysis.measures.measure_tree import Measured
from coeval.core.figures import FORMATS, IN_POINTS, FigureKind, format_figure
from coeval.core.plain import escape_lines, looks_like_formula
from coeval.reports.charts.themes import LIGHT
from coeval.reports.content import Cell, ReportColumn, ReportTable
from coeval.store.jsonl import replace_file

# --- Foreign text in cells

# UTF-16 units of a cell, beyond which Excel calls a file damaged.
LONGEST = 32_767


def clean_sheet_text(text: str) -> str:
    """Return a text that Excel can hold: characters that cannot be shown are written out, and a cut one ends
    in a mark."""
    clean = escape_lines(text)
    if len(clean) * 2 <= LONGEST:  # whatever the characters are
        return clean
    units = clean.encode("utf-16-le")
    if len(units) // 2 <= LONGEST:
        return clean
    mark = f" … [cut: {len(text):,} characters in all]"
    kept = units[: 2 * (LONGEST - len(mark))].decode("utf-16-le", "ignore")
    return kept + mark


# --- Columns of a report table in a sheet

MeasuredPart: TypeAlias = Literal["value", "low", "high", "n"]
Simple: TypeAlias = str | int | float | bool | None

_PART_TITLES: dict[MeasuredPart, str] = {"value": "", "low": ", from", "high": ", to", "n": ", n"}


class SheetColumn(NamedTuple):
    """A ``part`` of what the table's column ``column_index`` holds; ``kind``: how its numbers are written."""

    column_index: int
    part: MeasuredPart
    title: str
    kind: FigureKind
    source: ReportColumn

    def read_part_in_points(self, row: Sequence[Cell]) -> Simple:
        """Return this part of a row's cell; scores are in points, so that no number format is needed to read
        them."""
        cell, value = row[self.column_index], None
        if isinstance(cell, Measured):
            value = getattr(cell, self.part)
        elif self.part == "value":
            value = cell
        is_score = self.kind in IN_POINTS and isinstance(value, float | int) and not isinstance(value, bool)
        return 100 * value if is_score else value  # type: ignore[operator]


def sheet_columns(table: ReportTable) -> list[SheetColumn]:
    """Split columns: a measure fills one for its value, and others for ends and n if any row has them."""
    return [
        SheetColumn(
            index, part, column.title + _PART_TITLES[part], "count" if part == "n" else column.kind, column
        )
        for index, column in enumerate(table.columns)
        for part in _list_present_parts([row[index] for row in table.rows])
    ]


def _list_present_parts(cells: Sequence[Cell]) -> Iterator[MeasuredPart]:
    measured = [cell for cell in cells if isinstance(cell, Measured)]
    yield "value"
    if any(cell.low is not None for cell in measured):
        yield "low"
        yield "high"
    if any(cell.n is not None for cell in measured):
        yield "n"


def number_format(kind: FigureKind, number: float) -> str:
    """Return Excel's format of a number of a kind, with as many decimals as pages show."""
    if kind == "text":
        return "General"
    style, text = FORMATS[kind], format_figure(number, kind)
    if text.startswith("<"):
        return f'"{text}"'
    decimals = len(text.removesuffix(style.after).partition(".")[2])
    before, after = (f'"{sign}"' if sign and sign != "%" else sign for sign in (style.before, style.after))
    return f"{before}#,##0{'.' * bool(decimals)}{'0' * decimals}{after}"


# Characters: headings of a word, and texts of which the beginning shows.
_NARROWEST, _WIDEST = 8, 60
# Excel's limit for a sheet's name.
_LONGEST_NAME = 31


class WrittenTable(NamedTuple):
    """A table in a sheet: its rows, or a line that there are none, end in ``last``; ``widths``: of the
    columns, in characters."""

    sheet: Worksheet
    columns: list[SheetColumn]
    last: int
    widths: list[int]


@dataclass(slots=True)
class WorkbookFile:
    """A workbook that is being written; its sheets are added in their final order."""

    book: xlsxwriter.Workbook
    _formats: dict[tuple[tuple[str, object], ...], Format] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def cell_format(self, **properties: object) -> Format:
        """Return the one format that all cells of the same look share."""
        key = tuple(sorted(properties.items()))
        if key not in self._formats:
            self._formats[key] = self.book.add_format({"valign": "top", **properties})
        return self._formats[key]

    def add_sheet(self, name: str) -> Worksheet:
        """Add a sheet by a name that Excel accepts, numbered if another sheet has it."""
        clean = "".join(" " if sign in "[]:*?/\\" else sign for sign in clean_sheet_text(name)).strip(" '")
        base = unique = (clean or "sheet")[:_LONGEST_NAME].strip(" '")
        number = 2
        while unique.casefold() in self._names or unique.casefold() == "history":  # Excel keeps that name
            end = f" {number}"
            unique, number = base[: _LONGEST_NAME - len(end)] + end, number + 1
        self._names.add(unique.casefold())
        sheet: Worksheet = self.book.add_worksheet(unique)
        return sheet

    def write_text(self, sheet: Worksheet, row: int, column: int, text: str, **properties: object) -> None:
        """Write text as text; what looks like a formula stays none when somebody edits it."""
        quoted = {"quote_prefix": True} if looks_like_formula(text) else {}
        if clean := clean_sheet_text(text):
            sheet.write_string(row, column, clean, self.cell_format(**properties, **quoted))

    def write_cell(self, sheet: Worksheet, at: tuple[int, int], cell: Simple, column: SheetColumn) -> None:
        match cell:
            case bool():
                self.write_text(sheet, *at, "yes" if cell else "no")
            case str():
                self.write_text(sheet, *at, cell)
            case int() | float() if math.isfinite(cell):
                sheet.write_number(*at, cell, self.cell_format(num_format=number_format(column.kind, cell)))
            case _ if column.part == "value":  # missing: neither zero nor empty by chance
                sheet.write_blank(*at, None, self.cell_format(bg_color="#f0f0f0"))


def write_sheet(book: WorkbookFile, table: ReportTable, colour: str) -> WrittenTable:
    """Write a table to a sheet of its own, with a frozen head and filters, and its note below."""
    sheet = book.add_sheet(table.title.partition(":")[0])
    written = write_table(book, sheet, table, 0)
    if table.note:
        book.write_text(sheet, written.last + 2, 0, table.note, italic=True)
    for index, width in enumerate(written.widths):
        sheet.set_column(index, index, max(_NARROWEST, min(_WIDEST, width + 2)))
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, written.last, len(written.columns) - 1)
    sheet.set_tab_color(colour)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    return written


def write_table(book: WorkbookFile, sheet: Worksheet, table: ReportTable, top: int) -> WrittenTable:
    """Write a table's headings to the row ``top`` of a sheet, below them its rows, and colour the values."""
    columns, widths = sheet_columns(table), []
    last = top + max(len(table.rows), 1)
    if not table.rows:
        book.write_text(sheet, top + 1, 0, "(no rows)", italic=True)
    for index, column in enumerate(columns):
        heading = {"bold": True, "bottom": 1, "text_wrap": True, "bg_color": LIGHT.least}
        book.write_text(sheet, top, index, column.title, **heading)
        if column.source.meaning and column.part == "value":
            sheet.write_comment(top, index, column.source.meaning, {"x_scale": 2})
        cells = [column.read_part_in_points(row) for row in table.rows]
        for number, cell in enumerate(cells, top + 1):
            book.write_cell(sheet, (number, index), cell, column)
        widths.append(max([min(_text_width(column.title) + 3, 24), *map(_text_width, cells)]))
        if column.part == "value":
            _colour_cells(book, sheet, (top + 1, index, last, index), cells, column)
    return WrittenTable(sheet, columns, last, widths)


def _colour_cells(
    book: WorkbookFile,
    sheet: Worksheet,
    area: tuple[int, int, int, int],
    cells: Sequence[Simple],
    column: SheetColumn,
) -> None:
    """Highlight scores and shares by their distance from 0, and counts of failed and missing records."""
    if column.kind in IN_POINTS | {"share"}:
        numbers = [abs(cell) for cell in cells if isinstance(cell, int | float) and math.isfinite(cell)]
        most = max(numbers, default=0.0) or 1.0
        scale: dict[str, object] = {"type": "3_color_scale"}
        ends = (("min", -most, LIGHT.against), ("mid", 0, LIGHT.least), ("max", most, LIGHT.most))
        for end, value, colour in ends:
            scale |= {f"{end}_type": "num", f"{end}_value": value, f"{end}_color": colour}
        sheet.conditional_format(*area, scale)
    elif column.source.name in ("failed", "missing"):
        alarm = book.cell_format(bg_color=LIGHT.against)
        sheet.conditional_format(*area, {"type": "cell", "criteria": ">", "value": 0, "format": alarm})
    elif column.kind in ("usd", "seconds"):
        sheet.conditional_format(*area, {"type": "data_bar", "bar_color": LIGHT.most})


@contextmanager
def open_workbook(path: Path, title: str) -> Iterator[WorkbookFile]:
    """Yield a workbook that at its end replaces ``path``. Raises StoreError: the file cannot be written."""
    with replace_file(path) as file:
        # No text becomes a formula, a number or a link by itself.
        never = dict.fromkeys(("strings_to_formulas", "strings_to_numbers", "strings_to_urls"), False)
        book = xlsxwriter.Workbook(file, never)
        book.set_properties({"title": clean_sheet_text(title)[:255], "comments": f"coeval {__version__}"})
        yield WorkbookFile(book)
        book.close()


def _text_width(cell: Simple) -> int:
    match cell:
        case str():
            return max(map(len, cell[:400].split("\n")))
        case float():
            return 8
        case None:
            return 0
        case _:
            return len(f"{cell:,}")
