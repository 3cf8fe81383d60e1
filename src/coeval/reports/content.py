"""What a report says, whoever shows it, and how its cells are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.core.figures import MISSING, FigureKind, figure, figure_text
from coeval.core.plain import plain
from coeval.core.shown_names import ShownNames

# --- Report contents, independent of their format
#
# A report is a title, a few sentences that a reader may stop after, and sections. Each section answers one
# question: sentences, then pictures, then tables. A picture is drawn from the rows of one table, so that its
# numbers can be read there, and be computed anew where a reader filters. Nothing here is markup: texts came
# from models and files, and whoever shows them escapes them.

Cell: TypeAlias = str | int | float | bool | Measured | None
"""None is shown as missing, never as zero."""


class ReportColumn(msgspec.Struct, frozen=True):
    """``name`` is what pictures and filters call it, ``title`` what people read, ``meaning`` what a pointer
    that rests on it is told. ``terminal``: its heading there, the title where it is None; one that is empty
    has no place there. ``spare``: left out where a terminal is too narrow for all."""

    name: str
    title: str
    kind: FigureKind = "text"
    meaning: str = ""
    terminal: str | None = None
    spare: bool = False

    @property
    def on_terminal(self) -> str:
        if self.terminal is not None:
            return self.terminal
        return self.title if self.title[1:2].isupper() else self.title[:1].lower() + self.title[1:]


def columns_of(*titles: str, kind: FigureKind = "text") -> tuple[ReportColumn, ...]:
    """A column for each title."""
    return tuple(ReportColumn(title.lower(), title, kind) for title in titles)


class ReportTable(msgspec.Struct, frozen=True):
    """``name`` is unique in a report. ``links`` gives rows, by place, the choice of items behind them: the
    query of an address such as ``student=gpt&task=triage``. ``chosen``: by column, the value of the rows that
    are shown at first; toggles of its pictures, called as the columns are, choose others. ``names``: how many
    columns say, one within the other, what a row is of. ``bold``: row and column of cells that stand out."""

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
    def first_rows(self) -> tuple[tuple[Cell, ...], ...]:
        """Those that are shown at first."""
        places = {
            at: self.chosen[column.name]
            for at, column in enumerate(self.columns)
            if column.name in self.chosen
        }
        return tuple(row for row in self.rows if all(row[at] == value for at, value in places.items()))

    @property
    def places_in_use(self) -> list[int]:
        """Those of names, and of columns with a place on a terminal in which a row has anything."""
        return [
            at
            for at, column in enumerate(self.columns)
            if at < self.names
            or (
                column.on_terminal
                and any(cell_text(row[at], column.kind) not in _NOTHING for row in self.rows)
            )
        ]

    def with_columns(self, *names: str, last: str = "") -> ReportTable:
        """The same with these columns first, which say what a row is of, and with that column ``last``."""
        at_name = {column.name: at for at, column in enumerate(self.columns)}
        first, end = [at_name[name] for name in names], [at_name[last]] if last else []
        between = (at for at in range(len(self.columns)) if at not in {*first, *end})
        places = [*first, *between, *end]
        return msgspec.structs.replace(
            self,
            columns=tuple(self.columns[at] for at in places),
            rows=tuple(tuple(row[at] for at in places) for row in self.rows),
            bold=frozenset((row, places.index(at)) for row, at in self.bold),
            names=len(names),
        )

    def records(self) -> list[dict[str, Any]]:
        """Its rows as objects by column name, as pictures and the browser take them."""
        found: list[dict[str, Any]] = [{} for _ in self.rows]
        for record, row in zip(found, self.rows, strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                name = column.name
                if isinstance(cell, Measured):
                    ends = (name, f"{name}_low", f"{name}_high", f"{name}_n")
                    record |= zip(ends, cell, strict=False)
                else:
                    record[name] = plain(cell) if isinstance(cell, str) else cell
        return found

    def largest(self, name: str, least: float = 0.0, *, ends: bool = False) -> float:
        """The largest amount in a column, whatever its sign, and no less than ``least``; ``ends``: of the
        intervals too."""
        place = next(at for at, column in enumerate(self.columns) if column.name == name)
        values: list[Cell] = []
        for row in self.rows:
            cell = row[place]
            if isinstance(cell, Measured):
                values += (cell.value, cell.low, cell.high) if ends else (cell.value,)
            else:
                values.append(cell)
        return max([least, *(abs(value) for value in values if isinstance(value, int | float))])


class PictureToggle(msgspec.Struct, frozen=True):
    """A parameter of a picture's specification, and the values that it may have, the usual one first."""

    parameter: str
    choices: tuple[str, ...]


class Picture(msgspec.Struct, frozen=True):
    """A Vega-Lite specification whose only data set has the name of the ``table`` that it shows: a row of the
    table is an object by column name, a `Measured` in column ``c`` becoming ``c``, ``c_low``, ``c_high`` and
    ``c_n``. ``title`` says in words what it shows; ``toggles`` are what can be chosen of it."""

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
    """Text as it stands; ``stand_in`` says that it stands for one that nobody has written yet."""

    text: str
    stand_in: bool = False


class Passage(msgspec.Struct, frozen=True):
    """A text of many lines, shown as it is written: a prompt. ``name`` is unique in a report."""

    name: str
    title: str
    parts: tuple[PassagePart, ...]


class Alert(msgspec.Struct, frozen=True):
    """What nobody may overlook, in a sentence; ``command`` mends it, empty where none does."""

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


def section_of(
    anchor: str,
    question: str,
    sentences: Sequence[Sentence],
    pictures: Sequence[Picture],
    tables: Sequence[ReportTable],
) -> ReportSection:
    """A section without the tables that have no row, and without the pictures of these."""
    shown = tuple(table for table in tables if table.rows)
    names = {table.name for table in shown}
    drawn = tuple(picture for picture in pictures if picture.table in names)
    return ReportSection(anchor, question, tuple(sentences), drawn, shown)


class Report(msgspec.Struct, frozen=True):
    """``kind``: what it is about. ``facts`` stand below the title: sizes, cost, dates; so do ``alerts``, as
    that models were simulated. ``lead`` is the whole in three sentences at most. ``front`` is drawn after the
    first of them: names, a measure, then figures beside it; ``examples`` follow. ``labels``: by model,
    what people read in place of its name (`ShownNames`); cells and sentences hold the whole one.
    ``item_labels``: the same of items, by id, in tables."""

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
    def shown(self) -> ShownNames:
        """How names stand in its texts."""
        return ShownNames(self.labels, self.item_labels)

    def table(self, name: str) -> ReportTable:
        """One of its tables, by name."""
        return next(table for section in self.sections for table in section.tables if table.name == name)


def as_sentence(reported: str) -> str:
    """Turn what a terminal shows behind "warning:" into a sentence of a page."""
    return f"{reported[:1].upper()}{reported[1:]}" + ("" if reported.endswith(".") else ".")


def row_texts(columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """All cells of a table as people read them."""
    return [[cell_text(cell, column.kind) for cell, column in zip(row, columns, strict=True)] for row in rows]


_NOTHING = ("", MISSING)


def cell_text(cell: Cell, kind: FigureKind) -> str:
    """``81.0 [80.2, 82.1]``, ``1,985``, ``$5.12``, ``<0.001``."""
    match cell:
        case None:
            return MISSING
        case Measured():
            return MISSING if cell.value is None else figure_text(kind, cell.value, cell.low, cell.high)
        case bool():
            return "yes" if cell else "no"
        case str():
            return plain(cell)
        case _:
            return figure(cell, kind)
