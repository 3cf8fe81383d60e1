"""Labels as a sheet: written for people to fill in, CSV or Excel, and read back."""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

import xlsxwriter

from coeval.analysis.people.label_questions import LabelQuestion
from coeval.core.errors import UsageError
from coeval.core.plain import file_bytes, plain
from coeval.core.scale import RubricScale
from coeval.core.text import listed, numbered
from coeval.reports.workbook.workbook_file import looks_like_formula, sheet_text
from coeval.store.human_labels import HumanLabel
from coeval.store.jsonl import replaced_whole, store_error

# --- Cells of a sheet
#
# The cells of a workbook's first sheet, as a person saved it: texts, numbers, and formulas as such.

_SHARED_TEXTS, _SHEET = "xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"
_PLACE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
# A sheet of labels has eight columns at most.
_MOST_COLUMNS = 50


SheetRow: TypeAlias = tuple[int, dict[int, str]]
"""A row's number from 1, and its cells by column from 0."""


def workbook_cells(data: bytes, most: int) -> list[SheetRow]:
    """Return the rows of the first sheet that hold anything; a formula has ``=`` before it.

    ``most``: bytes that a part may have once it is unpacked.

    Raises ValueError: it is no workbook, too large, or declares entities; BadZipFile.
    """
    with ZipFile(io.BytesIO(data)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if _SHEET not in sizes:
            raise ValueError("it holds no first sheet")
        if max(sizes.get(_SHARED_TEXTS, 0), sizes[_SHEET]) > most:
            raise ValueError(f"a part of it has more than {most >> 20} MiB")
        shared = _tree(archive.read(_SHARED_TEXTS)).findall("{*}si") if _SHARED_TEXTS in sizes else []
        return _rows(_tree(archive.read(_SHEET)), [_text(each) for each in shared])


class _WithoutEntities(ElementTree.TreeBuilder):
    def doctype(self, *_: object) -> None:
        raise ValueError("it declares entities, as no workbook does")


def _tree(data: bytes) -> ElementTree.Element:
    try:
        parser = ElementTree.XMLParser(target=_WithoutEntities())  # noqa: S314  entities are refused
        return ElementTree.fromstring(data, parser)  # noqa: S314
    except ElementTree.ParseError as error:
        raise ValueError(f"its XML is damaged: {error}") from error


def _text(node: ElementTree.Element) -> str:
    """The runs of a formatted text joined; phonetic ones are left out."""
    return "".join(part.text or "" for path in ("{*}t", "{*}r/{*}t") for part in node.findall(path))


def _rows(sheet: ElementTree.Element, texts: list[str]) -> list[SheetRow]:
    rows: dict[int, dict[int, str]] = {}
    for cell in sheet.iterfind("{*}sheetData/{*}row/{*}c"):
        place = _PLACE.fullmatch(cell.get("r", ""))
        if place is not None and (column := _column(place[1])) < _MOST_COLUMNS:
            rows.setdefault(int(place[2]), {})[column] = _shown(cell, texts)
    return sorted(rows.items())


def _shown(cell: ElementTree.Element, texts: list[str]) -> str:
    formula, inline = cell.find("{*}f"), cell.find("{*}is")
    if formula is not None:
        return f"={formula.text or ''}"
    if inline is not None:
        return _text(inline)
    kind, value = cell.get("t", "n"), cell.findtext("{*}v", "")
    if kind == "s":
        at = int(value) if value.isdecimal() else -1
        return texts[at] if 0 <= at < len(texts) else ""
    if kind == "b":
        return "true" if value == "1" else "false"
    return value.removesuffix(".0") if kind == "n" else value


def _column(letters: str) -> int:
    """0 of A, 26 of AA."""
    place = 0
    for letter in letters:
        place = place * 26 + ord(letter) - 64
    return place - 1


# --- Sheet

# Width by heading; the reference is left out where no item has one.
_COLUMNS = {
    "id": 18,
    "prompt": 50,
    "reference": 50,
    "answer": 70,
    "factor": 16,
    "criterion": 40,
    "levels": 24,
    "level": 14,
}
# Excel's list of a drop-down has at most so many characters.
_LONGEST_LIST = 255
# A sheet is texts of some hundred answers; more is none of ours. Its XML takes 40 times as much once parsed.
_LARGEST = 32 << 20
# What a file that is no sheet, or a damaged or encrypted archive, raises while it is unpacked.
_DAMAGED = (BadZipFile, ValueError, csv.Error, zlib.error, RuntimeError, EOFError)


# What names a question beside its id. A spreadsheet writes numbers and dates its own way: such texts, and the
# marks of Excel for control characters, are not compared.
_TEXTS = ("prompt", "answer", "factor")
_REWRITTEN = re.compile(
    r"(?=.*\d)[\d\W]*(e|am|pm|(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6})?[\d\W]*"
)
_WHOLE = re.compile(r"(-?[0-9]+)[.,]0+")
_ESCAPED = re.compile(r"_x[0-9A-Fa-f]{4}_")


class ReadSheet(NamedTuple):
    """Labels of a sheet, and what is wrong with other rows: a sentence each; ``empty`` rows have no level,
    ``kept`` of them had one before."""

    labels: list[HumanLabel]
    problems: list[str]
    empty: int
    kept: int


def check_new_sheet(path: Path, recorded: Mapping[str, str]) -> None:
    """Check that a sheet can be written there without loss.

    Parameters
    ----------
    path : where; a sheet that is there already is written over if all its levels are ``recorded``
    recorded : level by the id of its question

    Raises UsageError: the name ends neither in .csv nor in .xlsx, the folder is missing, or the file holds
    levels that are not recorded, or is no sheet of labels.
    """
    _kind(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    if not path.exists():
        return
    try:
        levels = [(name, level) for _, name, level, _ in _cells(path) if level]
    except UsageError as error:
        raise UsageError(f"{path} exists and is no sheet of labels; name another file") from error
    unread = [
        name
        for name, level in levels
        if recorded.get(name, "").casefold() not in (level.casefold(), _whole(level))
    ]
    if unread:
        raise UsageError(
            f"{path} holds {numbered(len(unread), 'level')} that are not recorded; "
            "read it first with --read, or name another file"
        )


def write_sheet(path: Path, questions: Sequence[LabelQuestion], given: Mapping[str, str]) -> None:
    """Write a row for each question, with the levels that are ``given`` already by its id.

    Raises UsageError: the name ends neither in .csv nor in .xlsx; StoreError: it cannot be written.
    """
    headings = [name for name in _COLUMNS if name != "reference" or any(one.reference for one in questions)]
    rows = [_row(one, given.get(one.id, ""), headings) for one in questions]
    if _kind(path) == ".xlsx":
        _write_workbook(path, headings, rows, [one.scale for one in questions])
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerows([headings, *([_no_formula(cell) for cell in row] for row in rows)])
        with replaced_whole(path) as file:
            file.write(text.getvalue().encode("utf-8-sig"))  # the mark tells Excel that it is UTF-8


def _kind(path: Path) -> str:
    if (kind := path.suffix.lower()) not in (".csv", ".xlsx"):
        raise UsageError(f"{path}: a sheet of labels ends in .csv or .xlsx")
    return kind


def _row(one: LabelQuestion, level: str, headings: Sequence[str]) -> list[str]:
    shown = {**one._asdict(), "levels": one.scale.spelled(), "level": level}
    return [sheet_text(shown[name]) for name in headings]


def _no_formula(cell: str) -> str:
    return f"'{cell}" if looks_like_formula(cell) else cell


def _write_workbook(
    path: Path, headings: Sequence[str], rows: Sequence[Sequence[str]], scales: Sequence[RubricScale]
) -> None:
    plainly = {"strings_to_formulas": False, "strings_to_numbers": False, "strings_to_urls": False}
    with replaced_whole(path) as file, xlsxwriter.Workbook(file, plainly) as book:
        sheet = book.add_worksheet("labels")
        text = book.add_format({"text_wrap": True, "valign": "top", "num_format": "@"})
        head = book.add_format({"bold": True})
        for column, name in enumerate(headings):
            sheet.write_string(0, column, name, head)
            sheet.set_column(column, column, _COLUMNS[name], text)
        for number, (row, scale) in enumerate(zip(rows, scales, strict=True), 1):
            for column, cell in enumerate(row):
                sheet.write_string(number, column, cell, text)
            if len(",".join(scale.levels)) <= _LONGEST_LIST:
                choice = {"validate": "list", "source": list(scale.levels)}
                sheet.data_validation(number, len(headings) - 1, number, len(headings) - 1, choice)
        sheet.freeze_panes(1, 0)


def read_sheet(path: Path, questions: Sequence[LabelQuestion], given: Mapping[str, str]) -> ReadSheet:
    """Read the levels of a sheet: each row is one of the ``questions``, by its id, and has one of its levels.
    A row without one takes nothing back: the level that is ``given`` already stays.

    Unknown and repeated ids, ids beside other texts, other levels and formulas are told by row, and give no
    label.

    Raises UsageError: there is no such file, it is no sheet, or lacks the columns ``id`` and ``level``.
    """
    known = {one.id: one for one in questions}
    by = questions[0].label.person if questions else "anybody"
    labels: dict[str, HumanLabel] = {}
    problems: list[str] = []
    empty = kept = 0
    for number, name, level, texts in _cells(path):
        if not (name or level):
            continue
        if (question := known.get(name)) is None:
            problems.append(f"row {number}: id {plain(name)[:40]!r} is none of the labels asked of {by}")
        elif name in labels:
            problems.append(f"row {number}: id {name} has a row above; the first one counts")
        elif level and (other := _misplaced(question, texts)):
            said = f"row {number}: its {other} is not the one of id {name}"
            problems.append(f"{said}; keep each id beside its own texts")
        elif level.startswith("="):
            problems.append(f"row {number}: the level is a formula; write the level itself")
        elif not level:
            empty += 1
            kept += name in given
        elif (found := question.scale.level(level) or question.scale.level(_whole(level))) is None:
            said = f"row {number}: {plain(level)[:40]!r} is no level of {question.factor}"
            problems.append(f"{said}; write one of {listed(question.scale.levels)}")
        else:
            labels[name] = question.at(found)
    return ReadSheet(list(labels.values()), problems, empty, kept)


def _whole(level: str) -> str:
    """``5`` for ``5.0`` or ``5,00``, as a spreadsheet may show a number; else the text itself."""
    found = _WHOLE.fullmatch(level)
    return level.casefold() if found is None else found[1]


def _misplaced(question: LabelQuestion, texts: Mapping[str, str]) -> str:
    """Which text of a row is another question's; empty where all are this one's."""
    for name, text in texts.items():
        asked = _plainly(getattr(question, name))
        if not _REWRITTEN.fullmatch(asked) and _plainly(text) != asked:
            return name
    return ""


def _plainly(text: str) -> str:
    """Without what a spreadsheet may change: white space, letter case of true and false, control marks."""
    return "".join(_ESCAPED.sub("", sheet_text(text)).removeprefix("'").split()).casefold()


def _cells(path: Path) -> Iterator[tuple[int, str, str, dict[str, str]]]:
    """Row number, id, level and texts of each row below the headings; a formula keeps its sign."""
    try:
        data = file_bytes(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except OSError as error:
        raise store_error("read", path, error) from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path} has more than {_LARGEST >> 20} MiB: it is no sheet of labels")
    is_workbook = data[:2] == b"PK"
    try:
        rows = workbook_cells(data, _LARGEST) if is_workbook else _csv_rows(data)
    except _DAMAGED as error:
        said = plain(str(error))[:200] or "damaged"
        raise UsageError(
            f"{path} is no sheet that can be read: {said}; "
            "save it as CSV UTF-8, or as .xlsx without a password"
        ) from error
    headings = {cell.strip().lower(): column for column, cell in rows[0][1].items()} if rows else {}
    if not {"id", "level"} <= headings.keys():
        if is_workbook:
            raise UsageError(
                f"the first worksheet of {path} lacks the columns id and level; move the one with the labels "
                "to the front, or write a sheet with --sheet"
            )
        raise UsageError(f"{path} lacks the columns id and level; write one with --sheet")
    for number, row in rows[1:]:
        name, level = (row.get(headings[of], "").strip().removeprefix("'") for of in ("id", "level"))
        yield number, name, level, {of: row.get(headings[of], "") for of in _TEXTS if of in headings}


def _csv_rows(data: bytes) -> list[SheetRow]:
    text = data.decode("utf-8-sig")  # UnicodeError is a ValueError
    first = text.partition("\n")[0]
    mark = max(",;\t", key=first.count)  # Excel saves with semicolons in many countries
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    return [(number, dict(enumerate(row))) for number, row in enumerate(rows, 1)]
