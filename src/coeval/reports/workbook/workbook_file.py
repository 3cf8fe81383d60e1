"""Sheets of a workbook: foreign text stays text, and every cell is one that Excel can open."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from coeval import __version__
from coeval.analysis.measures.measured import Measured
from coeval.core.figures import IN_POINTS, FigureKind
from coeval.core.text import dollar_decimals
from coeval.reports.content import Cell, ReportColumn, ReportTable
from coeval.reports.drawn_pictures import LIGHT
from coeval.store.jsonl import replaced_whole

# --- Foreign text in cells

# UTF-16 units of a cell, beyond which Excel calls a file damaged.
LONGEST = 32_767
_TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\ufffe\uffff"
)


def sheet_text(text: str) -> str:
    """Without control characters and what turns lines around, and cut, with a mark that says so; line breaks
    and tabs stay."""
    shown = text if text.isprintable() else "".join(filter(_kept, text.replace("\r\n", "\n")))
    if len(shown) * 2 <= LONGEST:  # whatever the characters are
        return shown
    units = shown.encode("utf-16-le", "replace")
    if len(units) // 2 <= LONGEST:
        return shown
    mark = f" … [cut: {len(text):,} characters in all]"
    kept = units[: 2 * (LONGEST - len(mark))].decode("utf-16-le", "ignore")
    return kept + mark


def looks_like_formula(text: str) -> bool:
    """Whether a program might take it for one when a person edits it."""
    return text.lstrip()[:1] in ("=", "+", "-", "@") and bool(text.strip())


def _kept(character: str) -> bool:
    if character in "\n\t":
        return True
    return character not in _TURNING and unicodedata.category(character) not in ("Cc", "Cs")


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
    """``place`` is that of the table's column, ``kind`` how its numbers are written."""

    place: int
    part: Part
    name: str
    title: str
    kind: FigureKind
    meaning: str


def sheet_columns(columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> list[SheetColumn]:
    """``rows`` tell which columns hold measures."""
    return [
        SheetColumn(
            place,
            part,
            column.name if part == "value" else f"{column.name}_{part}",
            column.title + _WORDS[part],
            "count" if part == "n" else column.kind,
            column.meaning if part == "value" else "",
        )
        for place, column in enumerate(columns)
        for part in _parts([row[place] for row in rows])
    ]


def _parts(cells: Sequence[Cell]) -> Iterator[Part]:
    measured = [cell for cell in cells if isinstance(cell, Measured)]
    yield "value"
    if any(cell.low is not None for cell in measured):
        yield "low"
        yield "high"
    if any(cell.n is not None for cell in measured):
        yield "n"


def simple_cell(cell: Cell, column: SheetColumn) -> Simple:
    """What of a cell stands in a column: scores in points, so that no format need be known to read them."""
    found: Simple = None
    if isinstance(cell, Measured):
        found = getattr(cell, column.part)
    elif column.part == "value":
        found = cell
    is_score = column.kind in IN_POINTS and isinstance(found, float | int) and not isinstance(found, bool)
    return 100 * found if is_score else found  # type: ignore[operator]


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
    """Where a table is: ``rows`` below the row ``top``, which has the headings. ``largest``: of each column's
    numbers, whatever their sign; ``widths``: of the columns, in characters."""

    sheet: Worksheet
    columns: list[SheetColumn]
    rows: int
    largest: list[float]
    top: int
    widths: list[int]

    @property
    def end(self) -> int:
        """The first row below it."""
        return self.top + max(self.rows, 1) + 1

    def reference(self, name: str) -> list[Any]:
        """The cells of a column, as charts take them."""
        place = next(place for place, column in enumerate(self.columns) if column.name == name)
        return [self.sheet.get_name(), self.top + 1, place, self.top + max(self.rows, 1), place]


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
        made: Worksheet = self.book.add_worksheet(self._free(name))
        return made

    def text(self, sheet: Worksheet, row: int, column: int, text: str, **properties: object) -> None:
        """Write text as text; what looks like a formula stays none when somebody edits it."""
        shown = sheet_text(text)
        quoted = {"quote_prefix": True} if looks_like_formula(shown) else {}
        if shown:
            sheet.write_string(row, column, shown, self.format(**properties, **quoted))

    def table(self, table: ReportTable, colour: str) -> WrittenTable:
        """A table on a sheet of its own, with a frozen head and filters, and its note below."""
        sheet = self.sheet(table.title.partition(":")[0])
        written = self.rows(sheet, table, 0)
        if table.note:
            self.text(sheet, written.end + 1, 0, table.note, italic=True)
        for place, wide in enumerate(written.widths):
            sheet.set_column(place, place, max(_NARROWEST, min(_WIDEST, wide + 2)))
        sheet.freeze_panes(1, 1)
        sheet.autofilter(0, 0, max(written.rows, 1), len(written.columns) - 1)
        sheet.set_tab_color(colour)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        return written

    def rows(self, sheet: Worksheet, table: ReportTable, top: int) -> WrittenTable:
        """The head of a table in the row ``top`` of a sheet, its rows, and colours."""
        columns = sheet_columns(table.columns, table.rows)
        widths = [min(_width(column.title) + 3, 24) for column in columns]
        for place, column in enumerate(columns):
            self.text(
                sheet, top, place, column.title, bold=True, bottom=1, text_wrap=True, bg_color=LIGHT.least
            )
            if column.meaning:
                sheet.write_comment(top, place, column.meaning, {"x_scale": 2})
        largest = [0.0] * len(columns)
        for number, row in enumerate(table.rows, top + 1):
            for place, column in enumerate(columns):
                cell = simple_cell(row[column.place], column)
                widths[place] = max(widths[place], _width(cell))
                self._cell(sheet, (number, place), cell, column)
                if isinstance(cell, int | float) and math.isfinite(cell):
                    largest[place] = max(largest[place], abs(cell))
        if not table.rows:
            self.text(sheet, top + 1, 0, "(no rows)", italic=True)
        written = WrittenTable(sheet, columns, len(table.rows), largest, top, widths)
        self._shade(written)
        return written

    def _cell(self, sheet: Worksheet, at: tuple[int, int], cell: Simple, column: SheetColumn) -> None:
        row, place = at
        match cell:
            case bool():
                self.text(sheet, row, place, "yes" if cell else "no")
            case str():
                self.text(sheet, row, place, cell)
            case int() | float() if math.isfinite(cell):
                sheet.write_number(row, place, cell, self.format(num_format=number_format(column.kind, cell)))
            case _:
                if column.part == "value":  # missing: neither zero nor empty by chance
                    sheet.write_blank(row, place, None, self.format(bg_color="#f0f0f0"))

    def _shade(self, found: WrittenTable) -> None:
        """Colours by value: scores and shares by how far they are from zero; failed and missing if any."""
        for place, column in enumerate(found.columns):
            area = (found.top + 1, place, found.top + max(found.rows, 1), place)
            if column.part != "value":
                continue
            if column.kind in IN_POINTS | {"share"}:
                most = found.largest[place] or 1.0
                scale: dict[str, object] = {"type": "3_color_scale"}
                for end, value, colour in (
                    ("min", -most, LIGHT.against),
                    ("mid", 0, LIGHT.least),
                    ("max", most, LIGHT.most),
                ):
                    scale |= {f"{end}_type": "num", f"{end}_value": value, f"{end}_color": colour}
                found.sheet.conditional_format(*area, scale)
            elif column.name in ("failed", "missing"):
                alarm = self.format(bg_color=LIGHT.against)
                rule = {"type": "cell", "criteria": ">", "value": 0, "format": alarm}
                found.sheet.conditional_format(*area, rule)
            elif column.kind in ("usd", "seconds"):
                found.sheet.conditional_format(*area, {"type": "data_bar", "bar_color": LIGHT.most})

    def _free(self, name: str) -> str:
        clean = "".join(" " if sign in "[]:*?/\\" else sign for sign in sheet_text(name)).strip(" '")
        base = shown = (clean or "sheet")[:_NAME].strip(" '")
        number = 2
        while shown.casefold() in self._names or shown.casefold() == "history":  # Excel keeps that name
            end = f" {number}"
            shown, number = base[: _NAME - len(end)] + end, number + 1
        self._names.add(shown.casefold())
        return shown


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
