"""A report as a workbook: a summary with a chart that Excel draws, then a sheet for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    WorkbookFile,
    WrittenTable,
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


def _add_chart(book: WorkbookFile, written: WrittenTable, table: ReportTable) -> int:
    """Draw a bar below a table for each row, with the interval of its measure: of the first column that holds
    such, or money. Return the row where it ends, 0 where there is none: names do not tell the rows apart, or
    are too many."""
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
    written.sheet.insert_chart(written.end, 0, chart)
    return written.end + height // _ROW + 1


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
# Of the table in the summary; its sheet has all.
_SUMMARY_ROWS, _SUMMARY_COLUMNS = 12, 8
# Of the summary, in characters: its first column, and all others up to the last under its sentences.
_FIRST, _OTHER, _LAST = 44, 11, 8
# Characters of a line of a sentence there, and points of the line.
_LINE, _LINE_POINTS = 125, 15.0


def write_workbook(path: Path, report: Report) -> None:
    """Write a report: a summary, then a sheet for each table.

    Raises StoreError: the file cannot be written.
    """
    with workbook_file(path, report.title) as book:
        summary = book.sheet(SUMMARY)
        report = _named(report)
        places = {}
        for number, section in enumerate(report.sections):
            colour = LIGHT.categories[number % len(LIGHT.categories)]
            for table in section.tables:
                quoted = book.table(table, colour).sheet.get_name().replace("'", "''")
                places[table.name] = f"internal:'{quoted}'!A1"
        _summarise(book, summary, report, places)


def _named(report: Report) -> Report:
    """The report with short names in its sentences and tables, and a table of names in its first section."""
    shown = ShownNames(report.labels)  # items keep their ids, which tables of records have too
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


def _summarise(book: WorkbookFile, sheet: Worksheet, report: Report, places: Mapping[str, str]) -> None:
    """The answer in a few sentences, its table and chart, and links to the sheets; ``places``: of tables."""
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
    for section in report.sections:
        lines.skip()
        lines.write(section.question, bold=True, font_size=13)
        for sentence in section.sentences:
            lines.write(sentence.text)
        for one in section.tables:
            lines.link(one.title, places[one.name])
    sheet.set_column(0, 0, _FIRST)
    sheet.set_column(1, _LAST, _OTHER)
    sheet.hide_gridlines(2)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
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
        written = self._book.rows(self._sheet, table, self.row)
        self.row = max(written.end, _add_chart(self._book, written, table))

    def link(self, title: str, place: str) -> None:
        style = self._book.format(font_color=LIGHT.categories[0], underline=1, indent=1)
        self._sheet.write_url(self.row, 0, place, style, f"→ {title}")
        self.row += 1

    def skip(self) -> None:
        self.row += 1
