"""Contents of a report, whatever shows them, and how its cells are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.core.figures import MISSING, FigureKind, figure_with_interval, format_figure
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames

# --- Report contents, independent of their format
#
# A report is a title, a few sentences that a reader may stop after, and sections. Each section answers one
# question: sentences, then pictures, then tables. A picture is drawn from the rows of one table, so that
# readers find its numbers there, and a page can recompute it when they filter. Nothing here is markup: texts
# come from models and files, and whoever shows them escapes them.

Cell: TypeAlias = str | int | float | bool | Measured | None
"""None is shown as missing, never as zero."""


class ReportColumn(msgspec.Struct, frozen=True):
    """``name`` is what pictures and filters call it, ``title`` its heading, ``meaning`` its tooltip.
    ``terminal``: its heading on a terminal, by default the title; a column whose heading is empty is not
    shown there. ``spare``: left out where a terminal is too narrow for all."""

    name: str
    title: str
    kind: FigureKind = "text"
    meaning: str = ""
    terminal: str | None = None
    spare: bool = False

    @property
    def terminal_heading(self) -> str:
        if self.terminal is not None:
            return self.terminal
        return self.title if self.title[1:2].isupper() else self.title[:1].lower() + self.title[1:]


def link_rows(rows: Sequence[tuple[Cell, ...]], **index_by_key: int) -> dict[int, str]:
    """Return the links of all rows; each key of a link chooses what the column with this index names."""
    return {
        at: urlencode({key: row[index] for key, index in index_by_key.items()}) for at, row in enumerate(rows)
    }


def make_columns(*titles: str, kind: FigureKind = "text") -> tuple[ReportColumn, ...]:
    """Make a column for each title, named by the title in lower case."""
    return tuple(ReportColumn(title.lower(), title, kind) for title in titles)


class ReportTable(msgspec.Struct, frozen=True):
    """``name`` is unique in a report. ``links`` maps the indices of rows to the query of an address that
    chooses the items behind them, such as ``student=gpt&task=triage``. ``chosen``: by column, the value of
    the rows shown at first; toggles of its pictures, named as the columns are, choose others. ``names``:
    how many of the first columns name what a row is of, from outer to inner. ``bold``: row and column of
    bold cells."""

    name: str
    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    links: Mapping[int, str] = {}
    chosen: Mapping[str, str] = {}
    names: int = 1
    bold: frozenset[tuple[int, int]] = frozenset()

    @property
    def chosen_rows(self) -> tuple[tuple[Cell, ...], ...]:
        """Return the rows whose cells have the ``chosen`` values."""
        names = [column.name for column in self.columns]
        wanted = [(names.index(name), value) for name, value in self.chosen.items() if name in names]
        return tuple(row for row in self.rows if all(row[at] == value for at, value in wanted))

    @property
    def terminal_columns(self) -> list[int]:
        """Return the indices of the name columns, and of columns that a terminal shows and that are not
        empty."""
        return [
            at
            for at, column in enumerate(self.columns)
            if at < self.names
            or (
                column.terminal_heading
                and any(format_cell(row[at], column.kind) not in _EMPTY_TEXTS for row in self.rows)
            )
        ]

    def reorder_columns(self, *row_names: str, last: str = "") -> ReportTable:
        """Move the ``row_names``, as the columns that name rows, to the front, and ``last`` to the end."""
        index_by_name = {column.name: index for index, column in enumerate(self.columns)}
        first, end = [index_by_name[name] for name in row_names], [index_by_name[last]] if last else []
        order = [*first, *(index for index in range(len(self.columns)) if index not in {*first, *end}), *end]
        return msgspec.structs.replace(
            self,
            columns=tuple(self.columns[index] for index in order),
            rows=tuple(tuple(row[index] for index in order) for row in self.rows),
            bold=frozenset((row, order.index(index)) for row, index in self.bold),
            names=len(row_names),
        )

    def to_flat_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as objects by column name, for pictures and the browser. A `Measured` in column
        ``c`` becomes ``c``, ``c_low``, ``c_high`` and ``c_n``."""
        records: list[dict[str, Any]] = [{} for _ in self.rows]
        for record, row in zip(records, self.rows, strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                name = column.name
                if isinstance(cell, Measured):
                    ends = (name, f"{name}_low", f"{name}_high", f"{name}_n")
                    record |= zip(ends, cell, strict=False)
                else:
                    record[name] = escape_line(cell) if isinstance(cell, str) else cell
        return records

    def largest_amount(self, column: str, at_least: float = 0.0, *, with_intervals: bool = False) -> float:
        """Return the largest absolute value in a column, with ends of intervals if asked for, or
        ``at_least``."""
        index = [each_column.name for each_column in self.columns].index(column)
        values: list[Cell] = []
        for row in self.rows:
            cell = row[index]
            if isinstance(cell, Measured):
                values += (cell.value, cell.low, cell.high) if with_intervals else (cell.value,)
            else:
                values.append(cell)
        return max([at_least, *(abs(value) for value in values if isinstance(value, int | float))])


class PictureToggle(msgspec.Struct, frozen=True):
    """A parameter of a picture's specification, and the values that it may have, the usual one first."""

    parameter: str
    choices: tuple[str, ...]


class Picture(msgspec.Struct, frozen=True):
    """A Vega-Lite specification whose only data set has the name of the ``table`` that it shows, in the form
    of `ReportTable.to_flat_dicts`. ``title`` says in words what it shows; ``toggles`` are what readers can
    choose of it."""

    name: str
    title: str
    table: str
    spec: Mapping[str, Any]
    toggles: tuple[PictureToggle, ...] = ()


class Sentence(msgspec.Struct, frozen=True):
    """``anchor``: the section or table that shows what it says."""

    text: str
    anchor: str = ""


class PassagePart(msgspec.Struct, frozen=True):
    """``text`` as it is; ``stand_in``: it takes the place of a text that does not exist yet."""

    text: str
    stand_in: bool = False


class Passage(msgspec.Struct, frozen=True):
    """A text of many lines, shown as it is written: a prompt. ``name`` is unique in a report."""

    name: str
    title: str
    parts: tuple[PassagePart, ...]


class Alert(msgspec.Struct, frozen=True):
    """A warning that nobody may overlook, in a sentence; ``command`` mends it, empty if none does."""

    text: str
    command: str = ""


class Example(msgspec.Struct, frozen=True):
    """An item that speaks for or against the leader, in quotes; ``link`` chooses it, as in `ReportTable`."""

    title: str
    quotes: tuple[str, ...]
    link: str


class ReportSection(msgspec.Struct, frozen=True):
    """The answer to one ``question``; ``anchor`` is its place in the address."""

    anchor: str
    question: str
    sentences: tuple[Sentence, ...]
    pictures: tuple[Picture, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    passages: tuple[Passage, ...] = ()

    @classmethod
    def with_rows(
        cls,
        anchor: str,
        question: str,
        texts: Iterable[str],
        pictures: Iterable[Picture],
        tables: Iterable[ReportTable],
        shown_in: str = "",
    ) -> ReportSection:
        """Make a section without the tables that have no rows, and without the pictures of these;
        ``shown_in``: the table that shows what the texts say."""
        with_rows = tuple(table for table in tables if table.rows)
        names = {table.name for table in with_rows}
        drawn = tuple(picture for picture in pictures if picture.table in names)
        return cls(anchor, question, tuple(Sentence(text, shown_in) for text in texts), drawn, with_rows)


class Report(msgspec.Struct, frozen=True):
    """``facts`` are shown below the title: sizes, cost, dates; so are ``alerts``, such as that models were
    simulated. ``lead`` sums the report up in three sentences at most. ``front`` is drawn after the first
    of them: names, a measure, then counts; ``examples`` follow. ``labels``: by model, the shorter name
    that people read (`ShownNames`); cells and sentences hold the whole one. ``item_labels``: the same for
    items, by id, in tables."""

    kind: Literal["experiment", "evaluation", "comparison", "description", "training"]
    title: str
    facts: tuple[str, ...]
    lead: tuple[Sentence, ...]
    sections: tuple[ReportSection, ...]
    alerts: tuple[Alert, ...] = ()
    front: ReportTable | None = None
    examples: tuple[Example, ...] = ()
    labels: Mapping[str, str] = {}
    item_labels: Mapping[str, str] = {}

    @property
    def shown_names(self) -> ShownNames:
        """Return how names are shortened in the report's texts."""
        return ShownNames(self.labels, self.item_labels)

    def table(self, name: str) -> ReportTable:
        return next(table for section in self.sections for table in section.tables if table.name == name)


def format_rows(columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """Format all cells of a table as people read them."""
    return [
        [format_cell(cell, column.kind) for cell, column in zip(row, columns, strict=True)] for row in rows
    ]


_EMPTY_TEXTS = ("", MISSING)


def format_cell(cell: Cell, kind: FigureKind) -> str:
    """Format a cell as people read it: ``81.0 [80.2, 82.1]``, ``1,985``, ``$5.12``, ``<0.001``."""
    match cell:
        case None:
            return MISSING
        case Measured():
            return (
                MISSING if cell.value is None else figure_with_interval(kind, cell.value, cell.low, cell.high)
            )
        case bool():
            return "yes" if cell else "no"
        case str():
            return escape_line(cell)
        case _:
            return format_figure(cell, kind)
