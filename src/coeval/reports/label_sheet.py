"""Labels as a CSV sheet: written for people to fill in, and read back."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coeval.analysis.people.label_questions import LabelQuestion
from coeval.core.errors import UsageError
from coeval.core.plain import escape_line, looks_like_formula
from coeval.core.regular_files import read_file_bytes
from coeval.core.text import join_names, pluralize
from coeval.reports.writers.sheet import clean_sheet_text
from coeval.store.human_labels import HumanLabel
from coeval.store.jsonl import replace_file, store_error

# The reference is left out where no item has one.
_COLUMNS = ("id", "prompt", "reference", "answer", "factor", "criterion", "levels", "level")
# A sheet is texts of some hundred answers; more is none of ours.
_LARGEST = 32 << 20


# What names a question beside its id. A spreadsheet writes numbers and dates its own way: such texts are not
# compared.
_TEXTS = ("prompt", "answer", "factor")
_REWRITTEN = re.compile(
    r"(?=.*\d)[\d\W]*(e|am|pm|(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6})?[\d\W]*"
)
_WHOLE = re.compile(r"(-?[0-9]+)[.,]0+")


class LabelSheet(NamedTuple):
    """Labels read from a sheet, and problems of other rows, a sentence each; ``empty`` rows have no level,
    ``kept`` of them had one before."""

    labels: list[HumanLabel]
    problems: list[str]
    empty: int
    kept: int


def check_new_sheet(path: Path, recorded_by_question: Mapping[str, str]) -> None:
    """Check that writing a sheet to ``path`` loses no level: an existing one's are all in
    ``recorded_by_question``.

    Raises UsageError: the name does not end in .csv, the folder is missing, or the file holds other
    levels, or is no sheet of labels.
    """
    if path.suffix.lower() != ".csv":
        raise UsageError(f"{path}: name a sheet of labels with .csv, which Excel opens")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    if not path.exists():
        return
    try:
        levels = [(name, level) for _, name, level, _ in _read_rows(path) if level]
    except UsageError as error:
        raise UsageError(f"{path} exists and is not a sheet of labels; name another file") from error
    unread = [
        name
        for name, level in levels
        if recorded_by_question.get(name, "").casefold() not in (level.casefold(), _trim_zeros(level))
    ]
    if unread:
        raise UsageError(
            f"{path} holds {pluralize(len(unread), 'level')} that are not recorded; "
            "read it first with --read, or name another file"
        )


def write_label_sheet(
    path: Path, questions: Sequence[LabelQuestion], levels_by_id: Mapping[str, str]
) -> None:
    """Write a row for each question, with the levels recorded so far. Raises StoreError: it cannot be
    written."""
    has_reference = any(question.reference for question in questions)
    headings = [name for name in _COLUMNS if name != "reference" or has_reference]
    rows = []
    for question in questions:
        level = levels_by_id.get(question.id, "")
        texts = {**question._asdict(), "levels": question.scale.levels_text(), "level": level}
        rows.append([clean_sheet_text(texts[name]) for name in headings])
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    safe = ([f"'{cell}" if looks_like_formula(cell) else cell for cell in row] for row in rows)
    writer.writerows([headings, *safe])
    with replace_file(path) as file:
        file.write(text.getvalue().encode("utf-8-sig"))  # the mark tells Excel that it is UTF-8


def read_label_sheet_and_problems(
    path: Path, questions: Sequence[LabelQuestion], levels_by_id: Mapping[str, str]
) -> LabelSheet:
    """Read the levels of a sheet: each row is one of the ``questions``, by its id. A row without a level
    keeps the recorded one.

    Unknown and repeated ids, ids beside other texts, unknown levels and formulas are reported by row, and
    give no label.

    Raises UsageError: there is no such file, it is no sheet, or lacks the columns ``id`` and ``level``.
    """
    questions_by_id = {question.id: question for question in questions}
    by = questions[0].label.person if questions else "anybody"
    labels: dict[str, HumanLabel] = {}
    problems: list[str] = []
    empty = kept = 0
    for number, name, level, texts in _read_rows(path):
        if not (name or level):
            continue
        if (question := questions_by_id.get(name)) is None:
            problems.append(f"row {number}: id {escape_line(name)[:40]!r} is not a label requested from {by}")
        elif name in labels:
            problems.append(f"row {number}: id {name} has a row above; the first one counts")
        elif level and (other := _find_misplaced_text(question, texts)):
            problem = f"row {number}: its {other} is not the one of id {name}"
            problems.append(f"{problem}; keep each id beside its own texts")
        elif level.startswith("="):
            problems.append(f"row {number}: the level is a formula; write the level itself")
        elif not level:
            empty += 1
            kept += name in levels_by_id
        elif (new_level := question.scale.level(level) or question.scale.level(_trim_zeros(level))) is None:
            problem = f"row {number}: {escape_line(level)[:40]!r} is not a level of {question.factor}"
            problems.append(f"{problem}; write one of {join_names(question.scale.levels)}")
        else:
            labels[name] = question.label_with_level(new_level)
    return LabelSheet(list(labels.values()), problems, empty, kept)


def _trim_zeros(level: str) -> str:
    """Return ``5`` for ``5.0`` or ``5,00``, as a spreadsheet may show a number; else the text itself."""
    match = _WHOLE.fullmatch(level)
    return level if match is None else match[1]


def _find_misplaced_text(question: LabelQuestion, texts: Mapping[str, str]) -> str:
    """Return which text of a row belongs to another question, or '' if none does."""
    for name, text in texts.items():
        expected = _normalise_text(getattr(question, name))
        if not _REWRITTEN.fullmatch(expected) and _normalise_text(text) != expected:
            return name
    return ""


def _normalise_text(text: str) -> str:
    """Remove what a spreadsheet may change: white space, and the letter case of true and false."""
    return "".join(clean_sheet_text(text).removeprefix("'").split()).casefold()


def _read_rows(path: Path) -> Iterator[tuple[int, str, str, dict[str, str]]]:
    """Yield row number, id, level and texts of each row below the headings; a formula keeps its sign."""
    try:
        data = read_file_bytes(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except OSError as error:
        raise store_error("read", path, error) from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path} has more than {_LARGEST >> 20} MiB: it is not a sheet of labels")
    if data[:2] == b"PK":
        raise UsageError(
            f"{path} is a workbook; save its worksheet of labels as CSV UTF-8, and read that file"
        )
    try:
        rows = _parse_csv_with_any_delimiter(data)
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"{path} cannot be read as a sheet: {escape_line(str(error))[:200]}; save it as CSV UTF-8"
        ) from error
    headings = {cell.strip().lower(): column for column, cell in enumerate(rows[0])} if rows else {}
    if not {"id", "level"} <= headings.keys():
        raise UsageError(f"{path} lacks the columns id and level; write one with --sheet")
    for number, row in enumerate(rows[1:], 2):
        cells = {heading: row[column] for heading, column in headings.items() if column < len(row)}
        name, level = (cells.get(heading, "").strip().removeprefix("'") for heading in ("id", "level"))
        texts = {heading: cells.get(heading, "") for heading in _TEXTS if heading in headings}
        yield number, name, level, texts


def _parse_csv_with_any_delimiter(data: bytes) -> list[list[str]]:
    text = data.decode("utf-8-sig")  # UnicodeError is a ValueError
    first = text.partition("\n")[0]
    mark = max(",;\t", key=first.count)  # Excel saves with semicolons in many countries
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=mark))
