"""All items, answers and failures of a run as sheets of a workbook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import duckdb

from coeval.analysis.measures.measured import Branch
from coeval.analysis.readers.reader import Stage
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError
from coeval.core.good import PROMPT_SQL, RESPONSE_SQL, SCORES_SQL, good_sql
from coeval.reports.content.report_content import Cell, ReportColumn
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_choice import ItemChoice
from coeval.reports.items.record_tables import make_record_table
from coeval.reports.workbook.cell_texts import LONGEST
from coeval.reports.workbook.workbook_file import MOST_ROWS, SheetTable

__all__ = ["MOST_ANSWERS", "run_sheets"]

_PAGE = 2_000
_MARK = 60
"""Characters that the mark of a cut takes at most."""
MOST_ANSWERS = 100_000
"""Rows of the sheet of answers, and of that of failures; a program that opens texts of more would stall."""


def _cut(column: str) -> str:
    """A text as an expression: of one that fits into no cell the beginning, with a mark that says how long it
    is; so that no page of rows is larger than it need be. Characters beyond U+FFFF count twice in a cell."""
    kept = f"left({column}, {LONGEST - _MARK})"
    wide = f"regexp_matches({kept}, '[\\x{{10000}}-\\x{{10FFFF}}]')"
    cut = f"left({column}, CASE WHEN {wide} THEN {LONGEST // 2 - _MARK} ELSE {LONGEST - _MARK} END)"
    mark = f"' … [cut: ' || format('{{:,}}', length({column})) || ' characters in all]'"
    return f"CASE WHEN length({column}) > {LONGEST} THEN {cut} || {mark} ELSE {column} END"


_ERROR = "error.kind AS kind, error.message AS message"
_ERROR_TYPE = "STRUCT(kind VARCHAR, message VARCHAR)"
_TEXTS = (
    Stage(
        "data_generation",
        "sheet_items",
        {
            "id": "VARCHAR",
            "teacher_model_id": "VARCHAR",
            "prompt": "VARCHAR",
            "reference_response": "VARCHAR",
            "status": "VARCHAR",
            "error": _ERROR_TYPE,
        },
        "id IS NOT NULL",
        f"md5_number(id) AS key, id, id AS item, teacher_model_id AS model, {_ERROR}, "
        f"{_cut('prompt')} AS prompt, "
        f"{_cut('reference_response')} AS reference, "
        f"NOT {good_sql(PROMPT_SQL)} AS failed",
        {},
    ),
    Stage(
        "response_collection",
        "sheet_answers",
        {
            "id": "VARCHAR",
            "datapoint_id": "VARCHAR",
            "student_model_id": "VARCHAR",
            "response": "VARCHAR",
            "truncated": "BOOLEAN",
            "status": "VARCHAR",
            "error": _ERROR_TYPE,
        },
        "id IS NOT NULL",
        f"md5_number(id) AS key, id, datapoint_id AS item, student_model_id AS model, {_ERROR}, "
        f"{_cut('response')} AS text, length(response) AS length, "
        f"coalesce(truncated, false) AS truncated, NOT {good_sql(RESPONSE_SQL)} AS failed",
        {},
    ),
    Stage(
        "evaluation",
        "sheet_judgments",
        {
            "id": "VARCHAR",
            "datapoint_id": "VARCHAR",
            "judge_model_id": "VARCHAR",
            "scores": "MAP(VARCHAR, VARCHAR)",
            "label_scores": "MAP(VARCHAR, STRUCT(match BOOLEAN))",
            "status": "VARCHAR",
            "error": _ERROR_TYPE,
        },
        "id IS NOT NULL",
        f"md5_number(id) AS key, id, datapoint_id AS item, judge_model_id AS model, {_ERROR}, "
        f"NOT {good_sql(SCORES_SQL)} AS failed",
        {},
    ),
)
_WHAT = ("item", "answer", "judgment")


class _ItemTexts(NamedTuple):
    """The beginning of a prompt and of its reference answer."""

    prompt: str | None
    reference: str | None


def run_sheets(reader: RunReader, items: Branch) -> Iterator[SheetTable]:
    """``items`` are their measures, by id (`measure_tree`).

    Raises
    ------
    StoreError
        a file cannot be read.
    """
    browser = ItemBrowser(reader)
    browser.flag(items)
    try:
        for stage in _TEXTS:
            make_record_table(reader, stage, reader.run.files(stage.files))
        yield _items(reader, browser, items)
        yield _answers(reader)
        yield _failures(reader)
    except duckdb.Error as error:
        raise StoreError(f"cannot read the records of {reader.folder}: {error}") from error


def _items(reader: RunReader, browser: ItemBrowser, measures: Branch) -> SheetTable:
    """An item a row: what it samples, how hard it is, what each student came to on it."""
    facets = browser.facets
    attributes = list(facets.attributes)
    columns = [
        ReportColumn("item", "Item"),
        ReportColumn("task", "Task"),
        ReportColumn("teacher", "Teacher"),
        *(ReportColumn(f"attribute {name}", name) for name in attributes),
        ReportColumn("difficulty", "Difficulty", "share", "1 less the mean score over students"),
        ReportColumn("discrimination", "Discrimination", "number", "Correlation with the other items"),
        ReportColumn("disagreement", "Disagreement", "share", "How far judges are apart"),
        ReportColumn("failed", "Failed", "count"),
        ReportColumn("flags", "Doubts"),
        *(ReportColumn(f"student {name}", name, "score") for name in facets.students),
        ReportColumn("prompt", "Prompt"),
        ReportColumn("reference", "Reference answer"),
    ]

    def rows() -> Iterator[Sequence[Cell]]:
        for first in range(0, facets.items, _PAGE):
            page = browser.rows(ItemChoice(), first, _PAGE).rows
            texts = _texts_of(reader, [row.item for row in page])
            for row in page:
                text = texts.get(row.item, _ItemTexts(None, None))
                yield (
                    row.item,
                    row.task,
                    row.teacher,
                    *(row.attributes.get(name) for name in attributes),
                    *_measured(measures, row.item),
                    row.disagreement,
                    row.failed,
                    ", ".join(flag.replace("_", " ") for flag in row.flags) or None,
                    *(row.scores.get(name) for name in facets.students),
                    *text,
                )

    return SheetTable("Items", columns, rows(), note=_cut_at(facets.items, MOST_ROWS))


def _measured(measures: Branch, item: str) -> tuple[float | None, float | None]:
    """Difficulty and discrimination."""
    found = measures.get(item, {})
    return found.get("difficulty"), found.get("discrimination")


def _texts_of(reader: RunReader, items: list[str]) -> dict[str, _ItemTexts]:
    sql = "SELECT id, prompt, reference FROM sheet_items WHERE id IN (SELECT unnest(?::VARCHAR[]))"
    return {item: _ItemTexts(prompt, reference) for item, prompt, reference in reader.rows(sql, [items])}


def _answers(reader: RunReader) -> SheetTable:
    """An answer a row, with its score and its text."""
    columns = (
        ReportColumn("item", "Item"),
        ReportColumn("task", "Task"),
        ReportColumn("student", "Student"),
        ReportColumn(
            "score", "Score", "score", "Mean over its judges and factors, or the share of right labels"
        ),
        ReportColumn("disagreement", "Disagreement", "share", "How far judges are apart"),
        ReportColumn("failed", "Failed", "count", "The answer, and judgments and factors of it"),
        ReportColumn("truncated", "Cut off", meaning="It ended at max_tokens"),
        ReportColumn("length", "Characters", "count"),
        ReportColumn("answer", "Answer"),
    )
    return _sheet_of(reader, "Answers", columns, _ANSWERS)


_ANSWERS = """
SELECT v.item, v.task, a.student::VARCHAR, a.score, a.disagreement, a.failed, t.truncated, t.length, t.text
FROM answered a JOIN viewed v USING (no)
    LEFT JOIN sheet_answers t ON t.item = v.item AND t.model = a.student::VARCHAR
ORDER BY v.no, a.student::VARCHAR
"""


def _failures(reader: RunReader) -> SheetTable:
    """A record that failed and did not come good later a row."""
    columns = (
        ReportColumn("what", "What"),
        ReportColumn("id", "Record"),
        ReportColumn("model", "Model"),
        ReportColumn("reason", "Reason"),
        ReportColumn("message", "Message"),
    )
    parts = (
        f"SELECT {place} AS place, '{what}' AS what, id, model, "  # noqa: S608
        f"coalesce(kind, 'nothing usable') AS kind, message FROM {stage.table} WHERE failed"
        for place, (what, stage) in enumerate(zip(_WHAT, _TEXTS, strict=True))
    )
    sql = f"SELECT * EXCLUDE (place) FROM ({' UNION ALL '.join(parts)}) ORDER BY place, id"  # noqa: S608
    return _sheet_of(reader, "Failures", columns, sql)


def _sheet_of(reader: RunReader, name: str, columns: Sequence[ReportColumn], sql: str) -> SheetTable:
    """The rows of a query, some thousands at a time."""
    [(count,)] = reader.rows(f"SELECT count(*) FROM ({sql})")  # noqa: S608 - queries of ours

    def rows() -> Iterator[Sequence[Cell]]:
        reader.rows(f"CREATE OR REPLACE TEMP TABLE sheet_rows AS {sql} LIMIT {MOST_ANSWERS:d}")
        for first in range(0, min(count, MOST_ANSWERS), _PAGE):
            yield from reader.rows(
                "SELECT * FROM sheet_rows WHERE rowid >= ? AND rowid < ? ORDER BY rowid",
                [first, first + _PAGE],
            )

    return SheetTable(name, columns, rows(), note=_cut_at(count, MOST_ANSWERS))


def _cut_at(count: int, most: int) -> str:
    """What is not there, where a sheet takes no more; `coeval view` has all."""
    return f"the first {most:,} of {count:,}; coeval view RUN shows all" if count > most else ""
