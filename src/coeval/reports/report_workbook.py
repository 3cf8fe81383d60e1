"""A report as a workbook: a summary, then a sheet for each table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from xlsxwriter.worksheet import Worksheet

from coeval.core.shown_names import ShownNames
from coeval.reports.charts.themes import LIGHT
from coeval.reports.content import Report, ReportTable, make_columns
from coeval.reports.writers.sheet import (
    WorkbookFile,
    open_workbook,
    sheet_columns,
    write_sheet,
    write_table,
)

SUMMARY = "Summary"
# Of the table in the summary; its sheet has all.
_SUMMARY_ROWS, _SUMMARY_COLUMNS = 12, 8
# Of the summary, in characters: its first column, and all others up to the last under its sentences.
_FIRST, _OTHER, _LAST = 44, 11, 8
# Characters of a line of a sentence there, and points of the line.
_LINE, _LINE_POINTS = 125, 15.0


def write_workbook(path: Path, report: Report) -> None:
    """Write a report: a summary, then a sheet for each table; raises as `open_workbook`."""
    with open_workbook(path, report.title) as book:
        summary = book.add_sheet(SUMMARY)
        report = _shorten_names_and_add_key(report)
        links = {}
        for number, section in enumerate(report.sections):
            colour = LIGHT.categories[number % len(LIGHT.categories)]
            for table in section.tables:
                quoted = write_sheet(book, table, colour).sheet.get_name().replace("'", "''")
                links[table.name] = f"internal:'{quoted}'!A1"
        _write_summary(book, summary, report, links)


def _shorten_names_and_add_key(report: Report) -> Report:
    """Shorten the names of models, and add a table of them to the first section. Items keep their ids, which
    tables of records have too."""
    shown_names = ShownNames(report.labels)
    if not shown_names.key or not report.sections:
        return report
    rows = tuple((short, name) for name, short in shown_names.key.items())
    key = ReportTable("names", "Names", make_columns("Short", "Name"), rows)
    report = shown_names.shorten_in(report)
    first = msgspec.structs.replace(report.sections[0], tables=(*report.sections[0].tables, key))
    return msgspec.structs.replace(report, sections=(first, *report.sections[1:]))


def _write_summary(book: WorkbookFile, sheet: Worksheet, report: Report, links: Mapping[str, str]) -> None:
    """Write the answer in a few sentences, its table, and links to the sheets; ``links``: by table."""
    lines = _SummaryLines(book, sheet)
    lines.write(report.title, bold=True, font_size=16)
    lines.write(" · ".join(report.facts), font_color=LIGHT.faint)
    for alert in report.alerts:
        lines.write(alert.text, bold=True, bg_color=LIGHT.against)
    lines.row += 1
    for sentence in report.lead:
        lines.write(sentence.text)
    if (table := _cut_front_or_first_table(report)) is not None:
        lines.row += 1
        lines.write_table(table)
    for section in report.sections:
        lines.row += 1
        lines.write(section.question, bold=True, font_size=13)
        for sentence in section.sentences:
            lines.write(sentence.text)
        for table in section.tables:
            lines.write_link(table.title, links[table.name])
    sheet.set_column(0, 0, _FIRST)
    sheet.set_column(1, _LAST, _OTHER)
    sheet.hide_gridlines(2)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    sheet.activate()


def _cut_front_or_first_table(report: Report) -> ReportTable | None:
    """Return the front table, or else the first one, cut to the rows and columns that a page has room for."""
    table = report.front or next((table for section in report.sections for table in section.tables), None)
    if table is None:
        return None
    links = [column.column_index for column in sheet_columns(table)]
    many = len(links) > _SUMMARY_COLUMNS
    columns = table.columns[: links[_SUMMARY_COLUMNS]] if many else table.columns
    rows = tuple(row[: len(columns)] for row in table.rows[:_SUMMARY_ROWS])
    return ReportTable(table.name, table.title, columns, rows)


class _SummaryLines:
    """Lines of text, and a table, below each other."""

    def __init__(self, book: WorkbookFile, sheet: Worksheet) -> None:
        self._book, self._sheet, self.row = book, sheet, 0

    def write(self, text: str, **properties: object) -> None:
        """Write a text over all columns; Excel does not fit the height of a merged cell."""
        size = properties.get("font_size", 11)
        points = _LINE_POINTS * (size if isinstance(size, int) else 11) / 11
        self._sheet.set_row(self.row, points * (1 + len(text) // _LINE))
        self._sheet.merge_range(
            self.row, 0, self.row, _LAST, "", self._book.cell_format(text_wrap=True, **properties)
        )
        self._book.write_text(self._sheet, self.row, 0, text, text_wrap=True, **properties)
        self.row += 1

    def write_table(self, table: ReportTable) -> None:
        self.write(table.title, bold=True, font_size=13)
        self.row = write_table(self._book, self._sheet, table, self.row).last + 1

    def write_link(self, title: str, target: str) -> None:
        style = self._book.cell_format(font_color=LIGHT.categories[0], underline=1, indent=1)
        self._sheet.write_url(self.row, 0, target, style, f"→ {title}")
        self.row += 1
