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
from coeval.core.figures import IN_POINTS, FigureKind
from coeval.core.plain import looks_like_formula, plain_lines
from coeval.core.text import dollar_decimals
from coeval.reports.content import Cell, ReportColumn, ReportTable
from coeval.reports.drawn_pictures import LIGHT
from coeval.store.jsonl import replaced_whole

# --- Foreign text in cells

# UTF-16 units of a cell, beyond which Excel calls a file damaged.
LONGEST = 32_767


def sheet_text(text: str) -> str:
    """A text as a cell takes it: what cannot be shown is written out, and what is cut has a mark that says
    so."""
    shown = plain_lines(text)
    if len(shown) * 2 <= LONGEST:  # whatever the characters are
        return shown
    units = shown.encode("utf-16-le")
    if len(units) // 2 <= LONGEST:
        return shown
    mark = f" … [cut: {len(text):,} characters in all]"
    kept = units[: 2 * (LONGEST - len(mark))].decode("utf-16-le", "ignore")
    return kept + mark


# --- Columns of a report table in a sheet

Part: TypeAlias = Literal["value", "low", "high", "n"]
Simple: TypeAlias = str | int | float | bool | None

_FORMATS: dict[FigureKind, str] = {
    "text": "General",
    "count": "#,##0",
    "points": "0.0",
    "gap": "0.0",
    "share": "0.0%",
    "coefficient": "0.00",
    "number": "0.000",
    "probability": '[<0.001]"<0.001";0.000',
    "usd": '"$"#,##0.00',
    "seconds": '0.0" s"',
}
_WORDS: dict[Part, str] = {"value": "", "low": ", from", "high": ", to", "n": ", n"}


class SheetColumn(NamedTuple):
    """A ``part`` of what the table's column at ``place`` holds; ``kind``: how its numbers are written."""

    place: int
    part: Part
    title: str
    kind: FigureKind
    of: ReportColumn

    def cell(self, row: Sequence[Cell]) -> Simple:
        """What of a row stands in it: scores in points, so that no format need be known to read them."""
        cell, found = row[self.place], None
        if isinstance(cell, Measured):
            found = getattr(cell, self.part)
        elif self.part == "value":
            found = cell
        is_score = self.kind in IN_POINTS and isinstance(found, float | int) and not isinstance(found, bool)
        return 100 * found if is_score else found  # type: ignore[operator]


def sheet_columns(table: ReportTable) -> list[SheetColumn]:
    """A measure fills several: its value, and of what any row has, the ends of its interval and its n."""
    return [
        SheetColumn(place, part, column.title + _WORDS[part], "count" if part == "n" else column.kind, column)
        for place, column in enumerate(table.columns)
        for part in _parts([row[place] for row in table.rows])
    ]


def _parts(cells: Sequence[Cell]) -> Iterator[Part]:
    measured = [cell for cell in cells if isinstance(cell, Measured)]
    yield "value"
    if any(cell.low is not None for cell in measured):
        yield "low"
        yield "high"
    if any(cell.n is not None for cell in measured):
        yield "n"


def number_format(kind: FigureKind, number: float) -> str:
    """Of a small amount with as many decimals as pages give it (`dollars`)."""
    if kind != "usd":
        return _FORMATS[kind]
    if 0 < number < 0.0001:
        return '"<$0.0001"'
    return f"{_FORMATS[kind]}{'0' * (dollar_decimals(number) - 2)}"


# Characters: headings of a word, and texts of which the beginning shows.
_NARROWEST, _WIDEST = 8, 60
# Excel's limit for a sheet's name.
_NAME = 31


class WrittenTable(NamedTuple):
    """Where a table is: headings in the row ``top``, below it rows up to ``last``, or a line that says that
    there are none. ``widths``: of the columns, in characters."""

    sheet: Worksheet
    columns: list[SheetColumn]
    top: int
    last: int
    widths: list[int]


@dataclass(slots=True)
class WorkbookFile:
    """Sheets are made in the order in which they are to stand."""

    book: xlsxwriter.Workbook
    _formats: dict[tuple[tuple[str, object], ...], Format] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def format(self, **properties: object) -> Format:
        """One format for all cells that look alike."""
        key = tuple(sorted(properties.items()))
        if key not in self._formats:
            self._formats[key] = self.book.add_format({"valign": "top", **properties})
        return self._formats[key]

    def sheet(self, name: str) -> Worksheet:
        """A new sheet by a name that Excel takes; of a name that is there already, another one."""
        clean = "".join(" " if sign in "[]:*?/\\" else sign for sign in sheet_text(name)).strip(" '")
        base = shown = (clean or "sheet")[:_NAME].strip(" '")
        number = 2
        while shown.casefold() in self._names or shown.casefold() == "history":  # Excel keeps that name
            end = f" {number}"
            shown, number = base[: _NAME - len(end)] + end, number + 1
        self._names.add(shown.casefold())
        made: Worksheet = self.book.add_worksheet(shown)
        return made

    def text(self, sheet: Worksheet, row: int, column: int, text: str, **properties: object) -> None:
        """Write text as text; what looks like a formula stays none when somebody edits it."""
        quoted = {"quote_prefix": True} if looks_like_formula(text) else {}
        if shown := sheet_text(text):
            sheet.write_string(row, column, shown, self.format(**properties, **quoted))

    def cell(self, sheet: Worksheet, at: tuple[int, int], cell: Simple, column: SheetColumn) -> None:
        match cell:
            case bool():
                self.text(sheet, *at, "yes" if cell else "no")
            case str():
                self.text(sheet, *at, cell)
            case int() | float() if math.isfinite(cell):
                sheet.write_number(*at, cell, self.format(num_format=number_format(column.kind, cell)))
            case _ if column.part == "value":  # missing: neither zero nor empty by chance
                sheet.write_blank(*at, None, self.format(bg_color="#f0f0f0"))


def as_sheet(book: WorkbookFile, table: ReportTable, colour: str) -> WrittenTable:
    """A table on a sheet of its own, with a frozen head and filters, and its note below."""
    sheet = book.sheet(table.title.partition(":")[0])
    written = write_rows(book, sheet, table, 0)
    if table.note:
        book.text(sheet, written.last + 2, 0, table.note, italic=True)
    for place, wide in enumerate(written.widths):
        sheet.set_column(place, place, max(_NARROWEST, min(_WIDEST, wide + 2)))
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, written.last, len(written.columns) - 1)
    sheet.set_tab_color(colour)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    return written


def write_rows(book: WorkbookFile, sheet: Worksheet, table: ReportTable, top: int) -> WrittenTable:
    """The head of a table in the row ``top`` of a sheet, its rows, and colours."""
    columns, widths = sheet_columns(table), []
    last = top + max(len(table.rows), 1)
    if not table.rows:
        book.text(sheet, top + 1, 0, "(no rows)", italic=True)
    for place, column in enumerate(columns):
        heading = {"bold": True, "bottom": 1, "text_wrap": True, "bg_color": LIGHT.least}
        book.text(sheet, top, place, column.title, **heading)
        if column.of.meaning and column.part == "value":
            sheet.write_comment(top, place, column.of.meaning, {"x_scale": 2})
        cells = [column.cell(row) for row in table.rows]
        for number, cell in enumerate(cells, top + 1):
            book.cell(sheet, (number, place), cell, column)
        widths.append(max([min(_width(column.title) + 3, 24), *map(_width, cells)]))
        if column.part == "value":
            _shade(book, sheet, (top + 1, place, last, place), cells, column)
    return WrittenTable(sheet, columns, top, last, widths)


def _shade(
    book: WorkbookFile,
    sheet: Worksheet,
    area: tuple[int, int, int, int],
    cells: Sequence[Simple],
    column: SheetColumn,
) -> None:
    """Colours by value: scores and shares by how far they are from zero; failed and missing if any."""
    if column.kind in IN_POINTS | {"share"}:
        numbers = [abs(cell) for cell in cells if isinstance(cell, int | float) and math.isfinite(cell)]
        most = max(numbers, default=0.0) or 1.0
        scale: dict[str, object] = {"type": "3_color_scale"}
        for end, value, colour in (
            ("min", -most, LIGHT.against),
            ("mid", 0, LIGHT.least),
            ("max", most, LIGHT.most),
        ):
            scale |= {f"{end}_type": "num", f"{end}_value": value, f"{end}_color": colour}
        sheet.conditional_format(*area, scale)
    elif column.of.name in ("failed", "missing"):
        alarm = book.format(bg_color=LIGHT.against)
        sheet.conditional_format(*area, {"type": "cell", "criteria": ">", "value": 0, "format": alarm})
    elif column.kind in ("usd", "seconds"):
        sheet.conditional_format(*area, {"type": "data_bar", "bar_color": LIGHT.most})


@contextmanager
def workbook_file(path: Path, title: str) -> Iterator[WorkbookFile]:
    """A workbook that takes the place of ``path`` when it is left.

    Raises StoreError: it cannot be written.
    """
    with replaced_whole(path) as file:
        # No text becomes a formula, a number or a link by itself.
        never = dict.fromkeys(("strings_to_formulas", "strings_to_numbers", "strings_to_urls"), False)
        book = xlsxwriter.Workbook(file, never)
        book.set_properties({"title": sheet_text(title)[:255], "comments": f"coeval {__version__}"})
        yield WorkbookFile(book)
        book.close()


def _width(cell: Simple) -> int:
    match cell:
        case str():
            return max(map(len, cell[:400].split("\n")))
        case float():
            return 8
        case None:
            return 0
        case _:
            return len(f"{cell:,}")
