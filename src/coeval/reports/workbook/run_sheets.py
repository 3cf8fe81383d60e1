"""All items, answers and failures of a run as sheets of a workbook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb

from coeval.analysis.judged_answers import SCORED_SQL
from coeval.analysis.measures.benchmark_measures import ItemMeasures
from coeval.analysis.readers.reader import Stage
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError
from coeval.core.records import PROMPT_SQL, RESPONSE_SQL, good_sql
from coeval.reports.content import Cell, ReportColumn
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import ItemChoice
from coeval.reports.workbook.output_sheets import (
    ERROR,
    ERROR_TYPE,
    FAILED,
    MOST_RECORDS,
    PAGE,
    failed_sheet,
    record_rows,
)
from coeval.reports.workbook.workbook_file import SheetTable, cut_sql
from coeval.store.rundir import PAIRS

_WHOLE = "coeval view RUN shows all"
_KEY = "md5_number(id) AS key"
_ITEMS = Stage(
    "data_generation",
    "sheet_items",
    {"id": "VARCHAR", "prompt": "VARCHAR", "reference_response": "VARCHAR", "status": "VARCHAR"}
    | {"passage_source": "VARCHAR"},
    "id IS NOT NULL",
    f"{_KEY}, id, {cut_sql('prompt')} AS prompt, {cut_sql('reference_response')} AS reference, "
    f"{cut_sql('passage_source')} AS source, "
    f"NOT {good_sql(PROMPT_SQL)} AS failed",
    {},
)
_ANSWERS = Stage(
    "response_collection",
    "sheet_answers",
    {"id": "VARCHAR", "response": "VARCHAR", "truncated": "BOOLEAN", "status": "VARCHAR"},
    "id IS NOT NULL",
    f"{_KEY}, {cut_sql('response')} AS text, length(response) AS length, "
    f"coalesce(truncated, false) AS truncated, NOT {good_sql(RESPONSE_SQL)} AS failed",
    {},
)
_REASONS = Stage(
    "evaluation",
    "sheet_reasons",
    {
        "id": "VARCHAR",
        "response_id": "VARCHAR",
        "judge_model_id": "VARCHAR",
        "reasons": "MAP(VARCHAR, VARCHAR)",
        "status": "VARCHAR",
    },
    "reasons IS NOT NULL",
    f"{_KEY}, md5_number(response_id) AS answer, judge_model_id AS judge, "
    "array_to_string([one.key || ': ' || one.value FOR one IN map_entries(reasons)], chr(10)) AS text, "
    "coalesce(status, 'ok') = 'failed' AS failed",
    {},
)
_COMPARISONS = Stage(
    PAIRS,
    "sheet_comparisons",
    {
        "id": "VARCHAR",
        "datapoint_id": "VARCHAR",
        "task_id": "VARCHAR",
        "first_model_id": "VARCHAR",
        "second_model_id": "VARCHAR",
        "judge_model_id": "VARCHAR",
        "winner": "VARCHAR",
        "reason": "VARCHAR",
        "status": "VARCHAR",
    },
    "id IS NOT NULL",
    f"{_KEY}, datapoint_id AS item, task_id AS task, judge_model_id AS judge, first_model_id AS first, "
    "second_model_id AS second, CASE winner WHEN 'first' THEN first_model_id WHEN 'second' THEN "
    f"second_model_id WHEN 'tie' THEN 'tie' END AS winner, {cut_sql('reason')} AS reason, "
    f"NOT {good_sql('winner IS NOT NULL')} AS failed",
    {},
)
# What failed, the reader's table of it, its files, whose failure it is.
_FAILED = (
    ("item", "datapoint", "data_generation", "teacher_model_id"),
    ("answer", "response", "response_collection", "student_model_id"),
    ("judgment", "evaluation", "evaluation", "judge_model_id"),
)


def run_sheets(reader: RunReader, items: Mapping[str, ItemMeasures]) -> Iterator[SheetTable]:
    """``items`` are their measures, by id. Texts are read of what has a row alone.

    Raises StoreError: a file cannot be read.
    """
    browser = ItemBrowser(reader)
    browser.flag(items)
    try:
        needed = f"id IN (SELECT item FROM viewed WHERE no < {MOST_RECORDS:d})"  # noqa: S608 - our number
        reader.record_table(_ITEMS, needed)
        yield _items(reader, browser, items)
        yield _answers(reader)
        if reader.run.files(PAIRS):
            yield _comparisons(reader)
        _find_failures(reader)
        yield failed_sheet(reader, _WHOLE)
    except duckdb.Error as error:
        raise StoreError(f"cannot read the records of {reader.folder}: {error}") from error


def _items(reader: RunReader, browser: ItemBrowser, measures: Mapping[str, ItemMeasures]) -> SheetTable:
    """An item a row: what it samples, how hard it is, what each student came to on it."""
    facets = browser.facets
    attributes = list(facets.attributes)
    columns = [
        ReportColumn("item", "Item"),
        ReportColumn("task", "Task"),
        ReportColumn("teacher", "Teacher"),
        *(ReportColumn(f"attribute {name}", name) for name in attributes),
        ReportColumn("difficulty", "Difficulty", "points", "100 less the mean score over students"),
        ReportColumn("discrimination", "Discrimination", "coefficient", "Correlation with the other items"),
        ReportColumn("disagreement", "Disagreement", "points", "How far judges are apart"),
        ReportColumn("failed", "Failed", "count"),
        ReportColumn("flags", "Doubts"),
        *(ReportColumn(f"student {name}", name, "points") for name in facets.students),
        ReportColumn("prompt", "Prompt"),
        ReportColumn("reference", "Reference answer"),
        ReportColumn("source", "Source", "text", "The passage of a document that the item was made from"),
    ]

    def rows() -> Iterator[Sequence[Cell]]:
        for first in range(0, min(facets.items, MOST_RECORDS), PAGE):
            page = browser.rows(ItemChoice(), first, PAGE).rows
            texts = _texts_of(reader, [row.item for row in page])
            for row in page:
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
                    *texts.get(row.item, (None, None, None)),
                )

    return SheetTable("Items", columns, rows(), total=facets.items, whole=_WHOLE)


def _measured(measures: Mapping[str, ItemMeasures], item: str) -> tuple[float | None, float | None]:
    """Difficulty and discrimination."""
    found = measures.get(item)
    return (None, None) if found is None else (found.difficulty, found.discrimination)


def _texts_of(reader: RunReader, items: list[str]) -> dict[str, tuple[str | None, ...]]:
    """By item, of its prompt, its reference answer and the passage that it was made from the beginnings."""
    sql = "SELECT id, prompt, reference, source FROM sheet_items WHERE id IN (SELECT unnest(?::VARCHAR[]))"
    return {item: tuple(texts) for item, *texts in reader.rows(sql, [items])}


def _answers(reader: RunReader) -> SheetTable:
    """An answer a row, with its score and its text."""
    columns = (
        ReportColumn("item", "Item"),
        ReportColumn("task", "Task"),
        ReportColumn("student", "Student"),
        *(
            [ReportColumn("sample", "Sample", "count", "Which of its answers to the item")]
            if reader.sampled
            else ()
        ),
        ReportColumn(
            "score",
            "Score",
            "points",
            "Mean over its judges and factors (and all samples), or the share of right labels",
        ),
        ReportColumn("disagreement", "Disagreement", "points", "How far judges are apart"),
        ReportColumn("failed", "Failed", "count", "The answer, and judgments and factors of it"),
        ReportColumn("truncated", "Cut off", meaning="It ended at max_tokens"),
        ReportColumn("length", "Characters", "count"),
        ReportColumn("answer", "Answer", meaning="Of several samples the first"),
        ReportColumn("reasons", "Reasons", meaning="Why its judges scored it so, by factor"),
    )
    reader.rows(f"CREATE OR REPLACE TABLE sheet_answered AS {_ANSWERED} LIMIT {MOST_RECORDS:d}")
    reader.record_table(_ANSWERS, "md5_number(id) IN (SELECT key FROM sheet_answered)")
    reader.record_table(_REASONS, "md5_number(response_id) IN (SELECT key FROM sheet_answered)")
    rows = record_rows(reader, _WITH_TEXTS.format(sample=", a.sample" if reader.sampled else ""))
    [(total,)] = reader.rows("SELECT count(*) FROM answers")
    return SheetTable("Answers", columns, rows, total=total, whole=_WHOLE)


_ANSWERED = f"""
{SCORED_SQL}
SELECT v.no, v.item, v.task, f.model AS student, a.sample + 1 AS sample, f.score, f.disagreement,
       coalesce(lost.failed, 0) AS failed, md5_number(f.answer) AS key
FROM found f JOIN viewed v USING (task, item) JOIN answers a USING (answer) LEFT JOIN (
    SELECT answer, count(*) AS failed FROM (
        SELECT answer FROM answers WHERE failed UNION ALL SELECT answer FROM judgments WHERE failed
        UNION ALL SELECT answer FROM scores WHERE value IS NULL
    )
    GROUP BY answer
) lost USING (answer)
ORDER BY v.no, f.model, a.sample
"""  # noqa: S608
_WITH_TEXTS = """
SELECT a.item, a.task, a.student{sample}, a.score, a.disagreement, a.failed, t.truncated, t.length, t.text, (
        SELECT string_agg(judge || chr(10) || text, chr(10) || chr(10) ORDER BY judge)
        FROM sheet_reasons r WHERE r.answer = a.key AND NOT r.failed
    ) AS reasons
FROM sheet_answered a LEFT JOIN sheet_answers t USING (key)
ORDER BY a.no, a.student, a.sample
"""


def _comparisons(reader: RunReader) -> SheetTable:
    """A comparison a row: which of two answers won, in which order they were shown, and why."""
    columns = (
        ReportColumn("item", "Item"),
        ReportColumn("task", "Task"),
        ReportColumn("judge", "Judge"),
        ReportColumn("first", "Shown first", meaning="The student whose answer the judge saw first"),
        ReportColumn("second", "Shown second"),
        ReportColumn("winner", "Winner", meaning="A student, tie, or failed"),
        ReportColumn("reason", "Reason"),
    )
    needed = "datapoint_id IN (SELECT item FROM viewed)"
    reader.record_table(_COMPARISONS, needed, reader.run.files(PAIRS))
    [(total,)] = reader.rows("SELECT count(*) FROM sheet_comparisons")
    return SheetTable("Comparisons", columns, record_rows(reader, _COMPARED), total=total, whole=_WHOLE)


_COMPARED = """
SELECT item, task, judge, first, second, CASE WHEN failed THEN 'failed' ELSE winner END, reason
FROM sheet_comparisons ORDER BY task, item, least(first, second), greatest(first, second), judge, first
"""


def _find_failures(reader: RunReader) -> None:
    """Fill ``sheet_failures``; files are looked through only where anything in them failed."""
    reader.rows(f"CREATE OR REPLACE TABLE sheet_failures ({FAILED})")
    for what, table, files, model in _FAILED:
        failed = f"SELECT key FROM {table} WHERE failed"  # noqa: S608 - names of ours
        if not reader.rows(f"{failed} LIMIT 1"):
            continue
        stage = Stage(
            files,
            "sheet_failed",
            {"id": "VARCHAR", "task_id": "VARCHAR", model: "VARCHAR", "error": ERROR_TYPE},
            "id IS NOT NULL",
            f"{_KEY}, id, task_id AS task, {model} AS model, {ERROR}, true AS failed",
            {},
        )
        reader.record_table(stage, f"md5_number(id) IN ({failed})")
        reader.rows(
            f"INSERT INTO sheet_failures SELECT '{what}', task, id, model, kind, message "  # noqa: S608
            "FROM sheet_failed ORDER BY id"
        )
    reader.rows(
        "INSERT INTO sheet_failures SELECT 'score', task, answer || '__' || judge, judge, 'no score', "
        "'no score in ' || metric FROM scores WHERE value IS NULL ORDER BY answer, judge, metric"
    )
