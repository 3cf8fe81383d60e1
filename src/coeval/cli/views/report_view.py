"""A report on a terminal: its sentences and tables, and its passages where they are asked for."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.text import Text

from coeval.cli.streams import folded, say, warn
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.plain import plain, plain_lines
from coeval.reports.content import (
    Passage,
    Report,
    ReportSection,
    ReportTable,
    cell_text,
)

_STAND_IN = ("‹", "›")
_INDENT = "    "


def print_report(
    report: Report, console: Console, *, without: Collection[str] = (), passages: bool = False
) -> None:
    """Print it; ``without`` names the tables that are left out."""
    console.print(Text(plain(report.title), style="bold"))
    if report.facts:
        say(console, " · ".join(report.facts), "dim")
    for alert in report.alerts:
        warn(console, alert.text)
    console.print()
    for sentence in report.lead:
        say(console, sentence.text)
    for section in report.sections:
        _print_section(section, console, without, passages)


def _print_section(
    section: ReportSection, console: Console, without: Collection[str], passages: bool
) -> None:
    console.print()
    console.print(Text(plain(section.question), style="bold"))
    for sentence in section.sentences:
        say(console, sentence.text)
    for table in section.tables:
        if table.name not in without and table.rows:
            console.print()
            _print_table(table, console)
    if passages:
        for passage in section.passages:
            console.print()
            _print_passage(passage, console)


def _print_table(table: ReportTable, console: Console) -> None:
    """Columns of which no row has anything are left out."""
    first, *others = table.columns
    shown = [
        (place, column)
        for place, column in enumerate(others, 1)
        if any(row[place] is not None for row in table.rows)
    ]
    longest = max((place for place, column in shown if column.kind == "text"), default=0)
    columns = [
        Column(column.title, column.kind == "text", place == longest == shown[-1][0])
        for place, column in shown
    ]
    rows = [
        NameRow(
            cell_text(row[0], first.kind), [cell_text(row[place], column.kind) for place, column in shown]
        )
        for row in table.rows
    ]
    print_table(console, table.title, first.title, columns, rows)
    if table.note:
        say(console, table.note, "dim")


def _print_passage(passage: Passage, console: Console) -> None:
    """As it is written, indented; what stands in for a text to come is set off by signs and by colour."""
    console.print(Text(plain(passage.title), style="italic"))
    text = Text()
    for part in passage.parts:
        words = plain_lines(part.text)
        text.append(words.join(_STAND_IN) if part.stand_in else words, "yellow" if part.stand_in else "")
    for line in text.split("\n", allow_blank=True):
        start = 0
        for piece in folded(line.plain, max(20, console.width - len(_INDENT))):
            end = line.plain.find(piece, start) + len(piece)
            shown = Text(_INDENT) + line[end - len(piece) : end]
            shown.rstrip()
            console.print(shown, soft_wrap=True)
            start = end
