"""A report as a workbook: a summary, then a sheet for each table, with charts that Excel draws."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from xlsxwriter.worksheet import Worksheet

from coeval.analysis.measures.measured import Measured
from coeval.reports.content import Cell, Report, ReportColumn, ReportSection, ReportTable, Sentence
from coeval.reports.drawn_pictures import LIGHT
from coeval.reports.workbook.workbook_file import SheetTable, WorkbookFile, WrittenSheet, workbook_file

# --- Native Excel charts

SHOWN = "shown"
"""A column that holds a measure in the same unit for all rows, whatever theirs are."""
# More bars than that have labels nobody can read at a chart's height.
_MOST_BARS = 40
# Pixels: the width of a chart, the height of a bar, and of all else.
_WIDTH, _STEP, _REST = 620, 26, 90


def add_chart(book: WorkbookFile, written: WrittenSheet, table: ReportTable) -> None:
    """A bar for each row, with the interval of its measure: of the first column that holds such, or money.
    Where names do not tell the rows apart, or there are too many, there is none."""
    names = [row[0] for row in table.rows]
    if table.columns[0].kind != "text" or not 1 < len(names) <= _MOST_BARS or len(set(names)) < len(names):
        return
    place = _shown(table)
    if place is None:
        return
    column = table.columns[place]
    chart = book.book.add_chart({"type": "bar"})
    series: dict[str, Any] = {
        "name": column.title,
        "categories": written.reference(table.columns[0].name),
        "values": written.reference(column.name),
        "fill": {"color": LIGHT.most},
        "gap": 60,
    }
    if bars := _error_bars([row[place] for row in table.rows]):
        series["x_error_bars"] = bars
    chart.add_series(series)
    chart.set_title({"name": f"{table.title}: {column.title}", "name_font": {"size": 12}})
    chart.set_legend({"none": True})
    chart.set_y_axis({"reverse": True})
    chart.set_x_axis({"major_gridlines": {"visible": True, "line": {"color": LIGHT.lines}}})
    chart.set_size({"width": _WIDTH, "height": _REST + _STEP * written.rows})
    written.sheet.insert_chart(1, len(written.columns) + 1, chart)


def _shown(table: ReportTable) -> int | None:
    """The place of the column that is worth a chart: the one in the same unit, where there is such."""
    places = sorted(range(1, len(table.columns)), key=lambda place: table.columns[place].name != SHOWN)
    for place in places:
        if _error_bars([row[place] for row in table.rows]) is not None:
            return place
    money = (place for place, column in enumerate(table.columns) if column.kind == "usd")
    return next((place for place in money if any(row[place] for row in table.rows)), None)


def _error_bars(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """From each value to the ends of its interval; nothing where there is none."""
    ends = [_ends(cell) for cell in cells]
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


SUMMARY = "Summary"
# Tables that stand before all others, each by the name of its sheet.
_FIRST: Mapping[str, str] = {
    "metrics": "Metrics",
    "samples": "Over all samples",
    "students": "Students",
    "teachers": "Teachers",
    "panel": "Judges",
    "tasks": "Coverage",
}
# Characters' width of the summary.
_TEXT = 110


def write_workbook(
    path: Path, report: Report, more: Iterable[SheetTable] = (), *, without: Collection[str] = ()
) -> None:
    """Write a report; ``more`` sheets stand after the first tables, and ``without`` names tables that have no
    sheet.

    Raises StoreError: the file cannot be written.
    """
    with workbook_file(path, report.title) as book:
        summary = book.sheet(SUMMARY)
        report = _named(report)
        sheets = dict(_tables(book, report, more, without))
        _summarise(book, summary, report, sheets)


def _named(report: Report) -> Report:
    """The report with short names in its sentences and tables, and a table of names at its end."""
    shown = report.shown
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
    columns = (ReportColumn("short", "Short"), ReportColumn("name", "Name"))
    names = ReportTable("names", "Names", columns, tuple((short, name) for name, short in shown.key.items()))
    return msgspec.structs.replace(
        report,
        title=shown.text(report.title),
        facts=tuple(map(shown.text, report.facts)),
        lead=sentences(report.lead),
        sections=(*sections, ReportSection("names", "Names", (), (), (names,))),
    )


def _tables(
    book: WorkbookFile, report: Report, more: Iterable[SheetTable], without: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Make a sheet for each table; its name by that of the table, or by what is to be told of it."""
    tables = {
        table.name: (table, LIGHT.categories[place % len(LIGHT.categories)])
        for place, section in enumerate(report.sections)
        for table in section.tables
        if table.name not in without
    }
    described = report.kind == "description"
    first = [] if described else [name for name in _FIRST if name in tables]
    for name in first:
        yield name, _sheet(book, _FIRST[name], *tables[name])
    for table in more:
        written = book.table(table)
        reported = f"{table.name}: {written.note}" if written.note else table.name
        yield reported, written.name
    for name, (found, colour) in tables.items():
        if name not in first:
            yield name, _sheet(book, found.title.partition(":")[0], found, colour)


def _sheet(book: WorkbookFile, name: str, table: ReportTable, colour: str) -> str:
    written = book.table(SheetTable(name, table.columns, table.rows, table.rows, colour, table.note))
    add_chart(book, written, table)
    return written.name


def _summarise(book: WorkbookFile, sheet: Worksheet, report: Report, sheets: Mapping[str, str]) -> None:
    """The sentences of the report, and the way to the sheets."""
    lines = _SummaryLines(book, sheet)
    lines.write(report.title, bold=True, font_size=16)
    for fact in report.facts:
        lines.write(fact, font_color=LIGHT.faint)
    if report.banner:
        lines.write(report.banner, bold=True, bg_color=LIGHT.against)
    lines.skip()
    for sentence in report.lead:
        lines.write(sentence.text)
    for section in report.sections:
        lines.skip()
        lines.write(section.question, bold=True, font_size=13)
        for sentence in section.sentences:
            lines.write(sentence.text)
        for title, name in _linked(section, sheets):
            lines.link(title, name)
    others = [name for name in sheets if name not in {t.name for s in report.sections for t in s.tables}]
    if others:
        lines.skip()
        lines.write("More sheets", bold=True, font_size=13)
        for name in others:
            lines.link(name, sheets[name])
    sheet.set_column(0, 0, _TEXT)
    sheet.hide_gridlines(2)
    sheet.activate()


def _linked(section: ReportSection, sheets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for table in section.tables:
        if table.name in sheets:
            yield table.title, sheets[table.name]


class _SummaryLines:
    """Lines of text below each other."""

    def __init__(self, book: WorkbookFile, sheet: Worksheet) -> None:
        self._book, self._sheet, self._row = book, sheet, 0

    def write(self, text: str, **properties: object) -> None:
        self._book.text(self._sheet, self._row, 0, text, text_wrap=True, **properties)
        self._row += 1

    def link(self, title: str, name: str) -> None:
        place = "'" + name.replace("'", "''") + "'"
        style = self._book.format(font_color=LIGHT.categories[0], underline=1, indent=1)
        self._sheet.write_url(self._row, 0, f"internal:{place}!A1", style, f"→ {title}")
        self._row += 1

    def skip(self) -> None:
        self._row += 1
