"""A workbook, sheet by sheet, written as it is filled: rows go to disk in their order, so a large run takes
no more memory than a small one. Neither its sheets nor its texts grow beyond what a program can open.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from coeval import __version__
from coeval.analysis.measures.measured import Measured
from coeval.core.figures import IN_POINTS, FigureKind
from coeval.core.text import dollar_decimals
from coeval.reports.content import Cell, ReportColumn
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
    mark = cut_mark(len(text))
    kept = units[: 2 * (LONGEST - len(mark))].decode("utf-16-le", "ignore")
    return kept + mark


def cut_mark(length: int) -> str:
    """Behind the beginning of a text of so many characters."""
    return f" … [cut: {length:,} characters in all]"


CUT = re.compile(r" … \[cut: [\d,]+ characters in all\]\Z")
# Characters that the mark takes at most.
_MARK = 60


def cut_sql(column: str) -> str:
    """A text as an expression of DuckDB: of one that fits into no cell the beginning, with the mark; so that
    no page of rows is larger than it need be. Characters beyond U+FFFF count twice in a cell."""
    kept = f"left({column}, {LONGEST - _MARK})"
    wide = f"regexp_matches({kept}, '[\\x{{10000}}-\\x{{10FFFF}}]')"
    cut = f"left({column}, CASE WHEN {wide} THEN {LONGEST // 2 - _MARK} ELSE {LONGEST - _MARK} END)"
    mark = f"' … [cut: ' || format('{{:,}}', length({column})) || ' characters in all]'"
    return f"CASE WHEN length({column}) > {LONGEST} THEN {cut} || {mark} ELSE {column} END"


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


# Of a sheet, below its headings; two more hold its note.
MOST_ROWS = 1_048_573
# Characters of long texts in all sheets together; later ones are cut to ``SHORT``.
MOST_TEXT = 100_000_000
# Characters of a text that never count as long.
SHORT = 300
# Characters: headings of a word, and texts of which the beginning shows.
_NARROWEST, _WIDEST = 8, 60
# Rows that a column's width is made for.
_SEEN = 500
# Excel's limit for a sheet's name.
_NAME = 31


@dataclass(slots=True)
class SheetTable:
    """A table for a sheet of its own, whose tab has a ``colour``. ``rows`` are asked for once; those in
    ``sample`` tell which columns hold measures. The ``note`` stands below them, and after it what of the
    ``total`` (where that is known, and may be more than is given) is not there; ``whole`` says who has it."""

    name: str
    columns: Sequence[ReportColumn]
    rows: Iterable[Sequence[Cell]]
    sample: Sequence[Sequence[Cell]] = ()
    colour: str | None = None
    note: str = ""
    total: int = 0
    whole: str = ""


class WrittenSheet(NamedTuple):
    """Where a table came to stand: ``rows`` below the row ``top``, which has the headings. The ``note`` says
    what is to be known of it, and what was left out; ``largest`` of each column's numbers, whatever their
    sign; ``widths`` of the sheet's columns."""

    name: str
    sheet: Worksheet
    columns: list[SheetColumn]
    rows: int
    note: str
    largest: list[float]
    top: int
    widths: list[int]

    @property
    def end(self) -> int:
        """The first row below it."""
        return self.top + max(self.rows, 1) + (3 if self.note else 1)

    def place(self, name: str) -> int:
        """The number of a column."""
        return next(place for place, column in enumerate(self.columns) if column.name == name)

    def reference(self, name: str) -> list[Any]:
        """The cells of a column, as charts take them."""
        place = self.place(name)
        return [self.name, self.top + 1, place, self.top + max(self.rows, 1), place]


def column_width(text: int) -> int:
    """Of a column whose widest text has so many characters."""
    return max(_NARROWEST, min(_WIDEST, text + 2))


def _widest(some: Sequence[int], others: Sequence[int]) -> list[int]:
    return [max(pair) for pair in zip_longest(some, others, fillvalue=0)]


@dataclass(slots=True)
class WorkbookFile:
    """Sheets are made in the order in which they are to stand."""

    book: xlsxwriter.Workbook
    _text_left: int
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

    def table(self, table: SheetTable, below: WrittenSheet | None = None, *, beside: int = 0) -> WrittenSheet:
        """A table on a sheet of its own, with a frozen head and filters; or ``below`` another one, under its
        title, with room for ``beside`` rows of a chart. Of more rows than a sheet takes, the first."""
        sheet = self.sheet(table.name) if below is None else below.sheet
        top = 0 if below is None else max(below.end, beside) + 3
        if below is not None:
            self.text(sheet, top - 1, 0, table.name, bold=True, font_size=13)
        found = self.rows(sheet, table, top)
        widest = found.widths if below is None else _widest(found.widths, below.widths)
        for place, wide in enumerate(widest):
            sheet.set_column(place, place, column_width(wide))
        sheet.freeze_panes(1 if below is None else 0, 1)
        if below is None:
            sheet.autofilter(0, 0, max(found.rows, 1), len(found.columns) - 1)
            if table.colour is not None:
                sheet.set_tab_color(table.colour)
        return found._replace(widths=widest)

    def rows(self, sheet: Worksheet, table: SheetTable, top: int) -> WrittenSheet:
        """The head of a table in the row ``top`` of a sheet, its rows, its note, and colours."""
        columns = sheet_columns(table.columns, table.sample)
        widths = [min(_width(column.title) + 3, 24) for column in columns]
        for place, column in enumerate(columns):
            self.text(
                sheet, top, place, column.title, bold=True, bottom=1, text_wrap=True, bg_color=LIGHT.least
            )
            if column.meaning:
                sheet.write_comment(top, place, column.meaning, {"x_scale": 2})
        written = short_from = 0
        largest = [0.0] * len(columns)
        for row in islice(table.rows, MOST_ROWS - top):
            written += 1
            cells = [simple_cell(row[column.place], column) for column in columns]
            if not self._takes(cells):
                cells = [_shortened(cell) for cell in cells]
                short_from = short_from or written
            if written <= _SEEN:
                widths = _widest(widths, [_width(cell) for cell in cells])
            for place, (column, cell) in enumerate(zip(columns, cells, strict=True)):
                self._cell(sheet, (top + written, place), cell, column)
                if isinstance(cell, int | float) and math.isfinite(cell):
                    largest[place] = max(largest[place], abs(cell))
        if not written:
            self.text(sheet, top + 1, 0, "(no rows)", italic=True)
        note = "; ".join(filter(None, (table.note, *_left_out(table, written, short_from))))
        if note:
            self.text(sheet, top + written + 2, 0, note, italic=True)
        found = WrittenSheet(sheet.get_name(), sheet, columns, written, note, largest, top, widths)
        self._shade(found)
        return found

    def _takes(self, cells: Sequence[Simple]) -> bool:
        """Whether the long texts of a row still fit; once they do not, none does any more."""
        long = sum(min(len(cell), LONGEST) for cell in cells if isinstance(cell, str) and len(cell) > SHORT)
        self._text_left -= long
        return not long or self._text_left >= 0

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

    def _shade(self, found: WrittenSheet) -> None:
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
        book = _book(file)
        book.set_properties({"title": sheet_text(title)[:255], "comments": f"coeval {__version__}"})
        yield WorkbookFile(book, MOST_TEXT)
        book.close()


def _book(file: BinaryIO) -> xlsxwriter.Workbook:
    """No text becomes a formula, a number or a link by itself."""
    return xlsxwriter.Workbook(
        file,
        {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_numbers": False,
            "strings_to_urls": False,
        },
    )


def _shortened(cell: Simple) -> Simple:
    """A text that is no longer than ``SHORT``, and any other cell as it is."""
    if not isinstance(cell, str) or len(cell) <= SHORT:
        return cell
    reported = CUT.search(cell)
    return cell[:SHORT] + (reported.group() if reported is not None else cut_mark(len(cell)))


def _left_out(table: SheetTable, written: int, short_from: int) -> Iterator[str]:
    """What is not there, or not whole, and who has it."""
    reported = []
    if written < table.total:
        reported.append(f"the first {written:,} of {table.total:,}")
    if short_from:
        reported.append(f"texts longer than {SHORT} characters are cut from row {short_from + 1:,} on")
    if reported:
        yield "; ".join((*reported, table.whole)) if table.whole else "; ".join(reported)


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
