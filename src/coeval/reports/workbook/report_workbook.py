"""A report as a workbook: a summary, then a sheet for each table, with charts that Excel draws."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
from xlsxwriter.worksheet import Worksheet

from coeval.analysis.measures.measured import Measured
from coeval.core.figures import IN_POINTS, FigureKind
from coeval.core.shown_names import ShownNames
from coeval.reports.content import Cell, Report, ReportColumn, ReportTable, Sentence
from coeval.reports.drawn_pictures import LIGHT
from coeval.reports.workbook.workbook_file import (
    SheetTable,
    WorkbookFile,
    WrittenSheet,
    column_width,
    sheet_columns,
    workbook_file,
)

# --- Native Excel charts

SHOWN = "shown"
"""A column that holds a measure in the same unit for all rows, whatever theirs are."""
# More bars than that have labels nobody can read at a chart's height.
_MOST_BARS = 40
# Pixels: the width of a chart, the height of a bar, and of all else.
_WIDTH, _STEP, _REST = 620, 26, 90


# Pixels of a row.
_ROW = 20


def add_chart(
    book: WorkbookFile, written: WrittenSheet, table: ReportTable, at: tuple[int, int] | None = None
) -> int:
    """Draw a bar for each row, with the interval of its measure: of the first column that holds such, or
    money; ``at`` a cell, or beside the table. Return the row where it ends, 0 where there is none: names do
    not tell the rows apart, or are too many."""
    names = [row[0] for row in table.rows]
    if table.columns[0].kind != "text" or not 1 < len(names) <= _MOST_BARS or len(set(names)) < len(names):
        return 0
    place = _shown(table)
    if place is None:
        return 0
    column = table.columns[place]
    chart = book.book.add_chart({"type": "bar"})
    series: dict[str, Any] = {
        "name": column.title,
        "categories": written.reference(table.columns[0].name),
        "values": written.reference(column.name),
        "fill": {"color": LIGHT.most},
        "gap": 60,
    }
    if bars := _error_bars([row[place] for row in table.rows], column.kind):
        series["x_error_bars"] = bars
    chart.add_series(series)
    chart.set_title({"name": f"{table.title}: {column.title}", "name_font": {"size": 12}})
    chart.set_legend({"none": True})
    chart.set_y_axis({"reverse": True})
    chart.set_x_axis({"major_gridlines": {"visible": True, "line": {"color": LIGHT.lines}}})
    height = _REST + _STEP * written.rows
    chart.set_size({"width": _WIDTH, "height": height})
    row, beside = at or (written.top + 1, len(written.columns) + 1)
    written.sheet.insert_chart(row, beside, chart)
    return row + height // _ROW + 1


def _shown(table: ReportTable) -> int | None:
    """The place of the column that is worth a chart: the one in the same unit, where there is such."""
    places = sorted(range(1, len(table.columns)), key=lambda place: table.columns[place].name != SHOWN)
    for place in places:
        if _error_bars([row[place] for row in table.rows], table.columns[place].kind) is not None:
            return place
    money = (place for place, column in enumerate(table.columns) if column.kind == "usd")
    return next((place for place in money if any(row[place] for row in table.rows)), None)


def _error_bars(cells: Sequence[Cell], kind: FigureKind) -> dict[str, Any] | None:
    """From each value to the ends of its interval, as the sheet has them; nothing where there is none."""
    unit = 100 if kind in IN_POINTS else 1
    ends = [(unit * low, unit * high) for low, high in map(_ends, cells)]
    if not any(low or high for low, high in ends):
        return None
    return {
        "type": "custom",
        "minus_values": [low for low, _ in ends],
        "plus_values": [high for _, high in ends],
        "line": {"color": LIGHT.text},
    }


def _ends(cell: Cell) -> tuple[float, float]:
    if not isinstance(cell, Measured) or cell.value is None or cell.low is None or cell.high is None:
        return 0.0, 0.0
    return cell.value - cell.low, cell.high - cell.value


# --- Sheets

SUMMARY = "Summary"
# By the anchor of a section, the sheet that holds its tables, one below the other.
_SHEETS: Mapping[str, str] = {
    "pairs": "Pairs",
    "by-people": "People",
    "leads": "Students",
    "where": "Tasks",
    "judges": "Judges",
    "benchmark": "Benchmark",
    "value": "Cost",
    "cost": "Cost",
    "scores": "Metrics",
    "sides": "Sides",
}
# Records that stand below the tables of a sheet, where there is that sheet.
_BELOW: Mapping[str, str] = {"Failures": "Cost"}
# Sheets that print on two pages; all others on one. A run's eight print on twelve.
_TWO_PAGES = frozenset({"Students", "Tasks", "Judges", "Cost"})
# Rows and characters of a printed page in landscape, in letters that people can read.
_PAGE_ROWS, _PAGE_WIDTH = 50, 210
# Of the table in the summary; its sheet has all.
_SUMMARY_ROWS, _SUMMARY_COLUMNS = 12, 8
# Of the summary, in characters: its first column, and all others up to the last under its sentences.
_FIRST, _OTHER, _LAST = 44, 11, 8
# Characters of a line of a sentence there, and points of the line.
_LINE, _LINE_POINTS = 125, 15.0


def write_workbook(
    path: Path, report: Report, more: Iterable[SheetTable] = (), *, without: Collection[str] = ()
) -> None:
    """Write a report: a summary, a sheet for each section, and ``more``; ``without`` names tables that stand
    in no sheet.

    Raises StoreError: the file cannot be written.
    """
    with workbook_file(path, report.title) as book:
        summary = book.sheet(SUMMARY)
        report = _named(report)
        sheets = _Sheets(book, _BELOW if report.kind == "experiment" else {})
        in_order = sorted(report.sections, key=lambda section: section.anchor == "value")  # below the costs
        for place, section in enumerate(in_order):
            colour = LIGHT.categories[place % len(LIGHT.categories)]
            shown = [table for table in section.tables if table.name not in without]
            for table in shown:
                sheets.add(_SHEETS.get(section.anchor, shown[0].title.partition(":")[0]), table, colour)
        for records in more:
            sheets.record(records)
        sheets.print_setup()
        _summarise(book, summary, report, sheets)


def _named(report: Report) -> Report:
    """The report with short names in its sentences and tables, and a table of names in its first section."""
    shown = ShownNames(report.labels)  # items keep their ids, which the sheets of records have too
    if not shown.key:
        return report

    def sentences(said: Sequence[Sentence]) -> tuple[Sentence, ...]:
        return tuple(msgspec.structs.replace(one, text=shown.text(one.text)) for one in said)

    def table(one: ReportTable) -> ReportTable:
        rows = tuple(
            tuple(shown.text(cell) if isinstance(cell, str) else cell for cell in row) for row in one.rows
        )
        return msgspec.structs.replace(one, rows=rows, note=shown.text(one.note))

    sections = tuple(
        msgspec.structs.replace(
            section, sentences=sentences(section.sentences), tables=tuple(map(table, section.tables))
        )
        for section in report.sections
    )
    if sections:
        columns = (ReportColumn("short", "Short"), ReportColumn("name", "Name"))
        rows = tuple((short, name) for name, short in shown.key.items())
        key = ReportTable("names", "Names", columns, rows)
        first = msgspec.structs.replace(sections[0], tables=(*sections[0].tables, key))
        sections = (first, *sections[1:])
    return msgspec.structs.replace(
        report,
        title=shown.text(report.title),
        facts=tuple(map(shown.text, report.facts)),
        lead=sentences(report.lead),
        front=None if report.front is None else table(report.front),
        sections=sections,
    )


class _Sheets:
    """Tables below each other on sheets that are named by hand."""

    def __init__(self, book: WorkbookFile, below: Mapping[str, str]) -> None:
        self._book, self._below = book, below
        self._last: dict[str, WrittenSheet] = {}
        self._charts: dict[str, int] = {}
        self.links: dict[str, tuple[str, str]] = {}
        """By the name of a table or of records: its title, and the place where it begins."""

    def add(self, name: str, table: ReportTable, colour: str) -> None:
        first = name not in self._last
        shown = SheetTable(
            name if first else table.title, table.columns, table.rows, table.rows, colour, table.note
        )
        written = self._stand(name, shown)
        self.links[table.name] = (table.title, _place(written))
        if first:
            self._charts[name] = add_chart(self._book, written, table)

    def record(self, records: SheetTable) -> None:
        name = self._below.get(records.name, records.name)
        written = self._stand(name if name in self._last else records.name, records)
        title = f"{records.name}: {written.note}" if written.note else records.name
        self.links[f" {records.name}"] = (title, _place(written))

    def _stand(self, name: str, table: SheetTable) -> WrittenSheet:
        below = self._last.get(name)
        self._last[name] = self._book.table(table, below, beside=self._charts.get(name, 0))
        return self._last[name]

    def print_setup(self) -> None:
        """Fit each sheet to the width of a page and to one or two pages; the rows beyond stay on screen."""
        for name, last in self._last.items():
            pages = 2 if name in _TWO_PAGES else 1
            rows, most = max(last.end, self._charts.get(name, 0)), pages * _PAGE_ROWS
            footer = "&L&A&RPage &P of &N" if rows <= most else f"&L&A, the first {most} rows&RPage &P of &N"
            last.sheet.print_area(0, 0, min(rows, most), _columns_printed(last.widths))
            print_on(last.sheet, pages, footer)
            if last.top == 0:
                last.sheet.repeat_rows(0)


def _columns_printed(widths: Sequence[int]) -> int:
    """The last column that a page's width takes."""
    taken = accumulate(column_width(wide) for wide in widths)
    return max(sum(width <= _PAGE_WIDTH for width in taken) - 1, 1)


def print_on(sheet: Worksheet, pages: int, footer: str) -> None:
    sheet.set_landscape()
    sheet.set_paper(9)  # A4
    sheet.set_margins(left=0.4, right=0.4, top=0.5, bottom=0.6)
    sheet.fit_to_pages(1, pages)
    sheet.set_footer(footer)


def _place(written: WrittenSheet) -> str:
    quoted = "'" + written.name.replace("'", "''") + "'"
    return f"internal:{quoted}!A{written.top + 1}"


def _summarise(book: WorkbookFile, sheet: Worksheet, report: Report, sheets: _Sheets) -> None:
    """The answer in a few sentences, its table and chart, and the way to the sheets."""
    lines = _SummaryLines(book, sheet)
    lines.write(report.title, bold=True, font_size=16)
    lines.write(" · ".join(report.facts), font_color=LIGHT.faint)
    for alert in report.alerts:
        lines.write(alert.text, bold=True, bg_color=LIGHT.against)
    lines.skip()
    for sentence in report.lead:
        lines.write(sentence.text)
    if (table := _first_table(report)) is not None:
        lines.skip()
        lines.table(table)
    sheet.print_area(0, 0, lines.row, _LAST)
    for section in report.sections:
        lines.skip()
        lines.write(section.question, bold=True, font_size=13)
        for sentence in section.sentences:
            lines.write(sentence.text)
        for one in section.tables:
            if one.name in sheets.links:
                lines.link(*sheets.links[one.name])
    if records := [link for name, link in sheets.links.items() if name.startswith(" ")]:
        lines.skip()
        lines.write("Records", bold=True, font_size=13)
        for link in records:
            lines.link(*link)
    sheet.set_column(0, 0, _FIRST)
    sheet.set_column(1, _LAST, _OTHER)
    sheet.hide_gridlines(2)
    print_on(sheet, 1, "&L&F&RPage &P of &N")
    sheet.activate()


def _first_table(report: Report) -> ReportTable | None:
    """The table of the answer, with as many rows and columns as a page has room for."""
    table = report.front or next((one for section in report.sections for one in section.tables), None)
    if table is None:
        return None
    parts = [column.place for column in sheet_columns(table.columns, table.rows)]
    columns = (
        table.columns[: parts[: _SUMMARY_COLUMNS + 1][-1]] if len(parts) > _SUMMARY_COLUMNS else table.columns
    )
    rows = tuple(row[: len(columns)] for row in table.rows[:_SUMMARY_ROWS])
    return ReportTable(table.name, table.title, columns, rows)


class _SummaryLines:
    """Lines of text, and a table, below each other."""

    def __init__(self, book: WorkbookFile, sheet: Worksheet) -> None:
        self._book, self._sheet, self.row = book, sheet, 0

    def write(self, text: str, **properties: object) -> None:
        """A text over all columns; a merged cell has no height by itself."""
        size = properties.get("font_size", 11)
        points = _LINE_POINTS * (size if isinstance(size, int) else 11) / 11
        self._sheet.set_row(self.row, points * (1 + len(text) // _LINE))
        self._sheet.merge_range(
            self.row, 0, self.row, _LAST, "", self._book.format(text_wrap=True, **properties)
        )
        self._book.text(self._sheet, self.row, 0, text, text_wrap=True, **properties)
        self.row += 1

    def table(self, table: ReportTable) -> None:
        self.write(table.title, bold=True, font_size=13)
        shown = SheetTable(table.title, table.columns, table.rows, table.rows)
        written = self._book.rows(self._sheet, shown, self.row)
        ends = add_chart(self._book, written, table, (written.end, 0))
        self.row = max(written.end, ends)

    def link(self, title: str, place: str) -> None:
        style = self._book.format(font_color=LIGHT.categories[0], underline=1, indent=1)
        self._sheet.write_url(self.row, 0, place, style, f"→ {title}")
        self.row += 1

    def skip(self) -> None:
        self.row += 1
