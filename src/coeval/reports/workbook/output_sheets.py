"""Answers, instructions, judgments and failures of what ``eval-framework`` left, as sheets of a workbook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import msgspec

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader, Stage
from coeval.analysis.readers.whole_items import TaskPlace
from coeval.core.errors import StoreError, Undecodable
from coeval.core.figures import FigureKind
from coeval.core.foreign import decoder
from coeval.core.records import RESPONSE_SQL, VALUE_SQL, good_sql
from coeval.reports.content import Cell, ReportColumn
from coeval.reports.workbook.workbook_file import SheetTable, cut_sql

# --- Record sheets, a page at a time

# Rows in memory at a time: some tens of megabytes of long answers.
PAGE = 2_000
# Rows of a sheet of records; a program that opens texts of more would stall.
MOST_RECORDS = 100_000

ERROR = "error.kind AS kind, error.message AS message"
ERROR_TYPE = "STRUCT(kind VARCHAR, message VARCHAR)"
FAILED = "what VARCHAR, task VARCHAR, id VARCHAR, model VARCHAR, kind VARCHAR, message VARCHAR"
"""The columns of ``sheet_failures``, which `failed_sheet` shows."""


def record_rows(reader: Reader, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, which is asked once: so long as they are read, ``sheet_rows`` holds them."""
    reader.rows(f"CREATE OR REPLACE TEMP TABLE sheet_rows AS {sql} LIMIT {MOST_RECORDS:d}", parameters)
    [(count,)] = reader.rows("SELECT count(*) FROM sheet_rows")
    for first in range(0, count, PAGE):
        page = "SELECT * FROM sheet_rows WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
        yield from reader.rows(page, [first, first + PAGE])


def failed_sheet(reader: Reader, whole: str) -> SheetTable:
    """A record that failed and did not come good later a row, in the order in which they were found."""
    columns = (
        ReportColumn("what", "What"),
        ReportColumn("task", "Task"),
        ReportColumn("id", "Record"),
        ReportColumn("model", "Model"),
        ReportColumn("reason", "Reason"),
        ReportColumn("message", "Message"),
    )
    [(total,)] = reader.rows("SELECT count(*) FROM sheet_failures")
    sql = "SELECT * REPLACE (coalesce(kind, 'nothing usable') AS kind) FROM sheet_failures ORDER BY rowid"
    return SheetTable("Failures", columns, record_rows(reader, sql), total=total, whole=whole)


_WHOLE = "coeval view FOLDER shows all"
# Columns for metrics, and for what judgments say.
_MOST_NAMES = 200
# A sheet holds greater numbers rounded.
_LARGEST = 2**53
_KEY = "md5_number(id) AS key"
_ANSWERS = Stage(
    "answers",
    "sheet_answers",
    {
        "id": "VARCHAR",
        "prompt": "VARCHAR",
        "response": "VARCHAR",
        "truncated": "BOOLEAN",
        "status": "VARCHAR",
        "error": ERROR_TYPE,
    },
    "id IS NOT NULL",
    f"{_KEY}, id, {cut_sql('prompt')} AS prompt, {cut_sql('response')} AS text, length(response) AS length, "
    f"coalesce(truncated, false) AS truncated, {ERROR}, NOT {good_sql(RESPONSE_SQL)} AS failed",
    {},
)
_SAID = Stage(
    "judgments",
    "sheet_judgments",
    {
        "id": "VARCHAR",
        "item": "VARCHAR",
        "judge": "VARCHAR",
        "recipe": "VARCHAR",
        "value": "VARCHAR",
        "raw": "VARCHAR",
        "status": "VARCHAR",
        "error": ERROR_TYPE,
    },
    "id IS NOT NULL AND item IS NOT NULL",
    f"{_KEY}, id, item, judge, value, {cut_sql('raw')} AS words, {ERROR}, "
    f"NOT {good_sql(VALUE_SQL)} AS failed",
    {},
)
# Of what a row is, whatever it says.
_COLUMNS = (
    ReportColumn("task", "Task"),
    ReportColumn("item", "Item"),
    ReportColumn("sample", "Sample", "count", "Of several answers to the same prompt, counting from 0"),
    ReportColumn("model", "Model"),
)


def output_sheets(reader: OutputReader) -> Iterator[SheetTable]:
    """Texts are read one task's folder after the other.

    Raises StoreError: a file cannot be read.
    """
    places = reader.places()
    try:
        yield _items(reader, places)
        followed = [(place, place.followed()) for place in places]
        if any(found for _, found in followed):
            rows = (
                (place.task, item, place.sample, place.model, each.instruction, each.strict, each.loose)
                for place, found in followed
                for item, instructions in sorted(found.items())
                for each in instructions
            )
            yield SheetTable("Instructions", _INSTRUCTIONS, rows)
        if any(place.judgments for place in places):
            yield _judgments(reader, places)
        _find_failures(reader, places)
        yield failed_sheet(reader, _WHOLE)
    except duckdb.Error as error:
        raise StoreError(f"cannot read the records of {reader.folder}: {error}") from error


_INSTRUCTIONS = (
    *_COLUMNS,
    ReportColumn("instruction", "Instruction"),
    ReportColumn("strict", "Followed, strictly", "text", "As the answer stands"),
    ReportColumn("loose", "Followed, loosely", "text", "Also without first or last line, or asterisks"),
)


def _items(reader: OutputReader, places: Sequence[TaskPlace]) -> SheetTable:
    """A row for each prompt and sample: its scores by metric, and the answer."""
    metrics = _metric_kinds(reader)
    columns = (
        *_COLUMNS,
        *(ReportColumn(f"metric {name}", name, kind) for name, kind in metrics.items()),
        ReportColumn("failed", "Answer failed"),
        ReportColumn("truncated", "Cut off", meaning="It ended at max_tokens"),
        ReportColumn("length", "Characters", "count"),
        ReportColumn("prompt", "Prompt"),
        ReportColumn("answer", "Answer"),
    )

    def rows() -> Iterator[Sequence[Cell]]:
        for place in places:
            reader.record_table(_ANSWERS, paths=place.answers)
            found = record_rows(reader, _SCORED, [place.task, place.sample])
            for item, names, values, *others in found:
                scores = dict(zip(names or (), values or (), strict=True))
                yield (place.task, item, place.sample, place.model, *map(scores.get, metrics), *others)

    [(total,)] = reader.rows("SELECT count(*) FROM (SELECT task, item, sample FROM answers UNION "
                             "SELECT task, item, sample FROM scores)")  # fmt: skip
    return SheetTable("Items", columns, rows(), total=total, whole=_WHOLE)


_SCORED = """
SELECT coalesce(a.id, s.item) AS item, s.names, s.found, a.failed, a.truncated, a.length, a.prompt, a.text
FROM sheet_answers a FULL JOIN (
    SELECT item, list(metric ORDER BY metric) AS names, list(value ORDER BY metric) AS found
    FROM scores WHERE task = ? AND sample = ? GROUP BY item
) s ON s.item = a.id
ORDER BY 1
"""


def _metric_kinds(reader: OutputReader) -> dict[str, FigureKind]:
    """The metrics that items have scores of, those of the summaries first: shares of a whole, or others."""
    scored = {
        name: bool(shares)
        for name, shares in reader.rows(
            "SELECT metric, bool_and(value BETWEEN 0 AND 1) FROM scores GROUP BY metric ORDER BY metric"
        )
    }
    order = dict.fromkeys((*(metric.metric for metric in reader.metrics), *scored))
    found: dict[str, FigureKind] = {
        name: "points" if scored[name] else "number" for name in order if name in scored
    }
    return dict(list(found.items())[:_MOST_NAMES])


def _judgments(reader: OutputReader, places: Sequence[TaskPlace]) -> SheetTable:
    """A row for each judgment that counts: what it says by name, and the judge's words."""
    names = _said_names(reader, places)
    columns = (
        *_COLUMNS,
        ReportColumn("judge", "Judge"),
        ReportColumn("what", "Judged", meaning="A criterion, or the order in which a pair was shown"),
        *(ReportColumn(f"said {name}", name.replace("_", " ")) for name in names),
        ReportColumn("failed", "Failed"),
        ReportColumn("words", "Its words"),
    )
    read = decoder(dict[str, Any])

    def rows() -> Iterator[Sequence[Cell]]:
        for place in places:
            reader.record_table(_SAID, _of_recipe(place), place.judgments)
            for item, judge, what, value, failed, words in record_rows(reader, _BY_ITEM):
                said = _said(read, value, names)
                yield (place.task, item, place.sample, place.model, judge, what, *said, failed, words)

    [(total,)] = reader.rows("SELECT count(*) FROM judgments")
    return SheetTable("Judgments", columns, rows(), total=total, whole=_WHOLE)


_BY_ITEM = """
SELECT item, judge, CASE WHEN starts_with(id, item || '__') THEN right(id, length(id) - length(item) - 2)
       ELSE id END, value, failed, words
FROM sheet_judgments ORDER BY item, id
"""


def _of_recipe(place: TaskPlace) -> str:
    """The judgments of a folder that count, as an expression."""
    if place.judged_by is None:
        return "true"
    recipe = place.judged_by.replace("'", "''")
    return f"recipe = '{recipe}'"


def _said_names(reader: OutputReader, places: Sequence[TaskPlace]) -> list[str]:
    """What judgments say, by the names that they give it."""
    found: dict[str, None] = {}
    for place in places:
        stage = _SAID._replace(
            table="sheet_said",
            columns={"id": "VARCHAR", "item": "VARCHAR", "recipe": "VARCHAR", "value": "VARCHAR"},
            select=f"{_KEY}, json_keys(try_cast(value AS JSON)) AS names, false AS failed",
        )
        reader.record_table(stage, _of_recipe(place), place.judgments)
        sql = "SELECT name FROM (SELECT unnest(names) AS name FROM sheet_said) GROUP BY name ORDER BY name"
        found |= dict.fromkeys(name for (name,) in reader.rows(sql))
    return [name for name in found if name != "top_logprobs"][:_MOST_NAMES]


def _said(read: Any, value: str | None, names: Sequence[str]) -> list[Cell]:
    """By name; what is neither a text nor a number, as JSON."""
    try:
        said: Mapping[str, Any] = read(value.encode()) if value is not None else {}
    except Undecodable:
        said = {}
    return [_as_cell(said.get(name)) for name in names]


def _as_cell(found: Any) -> Cell:
    whole = isinstance(found, int) and abs(found) <= _LARGEST
    if found is None or whole or isinstance(found, str | float):
        return found  # type: ignore[no-any-return]
    return msgspec.json.encode(found).decode()


def _find_failures(reader: OutputReader, places: Sequence[TaskPlace]) -> None:
    """Fill ``sheet_failures``."""
    reader.rows(f"CREATE OR REPLACE TABLE sheet_failures ({FAILED})")
    for place in places:
        reader.record_table(_FAILED_ANSWERS, paths=place.answers)
        reader.rows(_TAKE_FAILED, ["answer", place.task, place.model])
        reader.record_table(_FAILED_JUDGMENTS, _of_recipe(place), place.judgments)
        reader.rows(_TAKE_FAILED, ["judgment", place.task, None])


_FAILED_ANSWERS = _ANSWERS._replace(
    table="sheet_failed",
    select=f"{_KEY}, id, NULL::VARCHAR AS judge, {ERROR}, NOT {good_sql(RESPONSE_SQL)} AS failed",
)
_FAILED_JUDGMENTS = _SAID._replace(
    table="sheet_failed", select=f"{_KEY}, id, judge, {ERROR}, NOT {good_sql(VALUE_SQL)} AS failed"
)
_TAKE_FAILED = """
INSERT INTO sheet_failures
SELECT ?, ?, id, coalesce(judge, ?), kind, message FROM sheet_failed WHERE failed ORDER BY id
"""
