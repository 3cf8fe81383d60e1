"""All items, answers, judgments and failures of a folder as sheets of a workbook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec

from coeval.analysis.judged_answers import SCORED_SQL
from coeval.analysis.measures.benchmark_measures import ItemMeasures
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader, Stage
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.readers.whole_items import TaskPlace
from coeval.core.errors import StoreError, Undecodable
from coeval.core.figures import FigureKind
from coeval.core.foreign import decoder
from coeval.core.records import PROMPT_SQL, RESPONSE_SQL, VALUE_SQL, good_sql
from coeval.reports.content import Cell, ReportColumn
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import ItemChoice
from coeval.reports.workbook.workbook_file import SheetTable, cut_sql
from coeval.store.rundir import PAIRS

# Rows in memory at a time: some tens of megabytes of long answers.
_PAGE = 2_000
# Rows of a sheet of records; a program that opens texts of more would stall.
MOST_RECORDS = 100_000
# Who shows all records, of a run and of an output of eval-framework.
_WHOLE_RUN, _WHOLE_OUTPUT = "coeval view RUN shows all", "coeval view FOLDER shows all"
_ITEM, _TASK, _JUDGE = (
    ReportColumn("item", "Item"),
    ReportColumn("task", "Task"),
    ReportColumn("judge", "Judge"),
)
_DISAGREEMENT = ReportColumn("disagreement", "Disagreement", "points", "How far judges are apart")
_TRUNCATED = ReportColumn("truncated", "Cut off", meaning="It ended at max_tokens, or at its server's window")
_LENGTH = ReportColumn("length", "Characters", "count")


def _stage(files: str, table: str, texts: str, select: str, good: str, **others: str) -> Stage:
    """Records by id: ``texts`` names their columns, ``others`` those of another type; one is good if ``good``
    holds."""
    columns = {**dict.fromkeys(["id", *texts.split(), "status"], "VARCHAR"), **others}
    select = f"md5_number(id) AS key, id, {select}, NOT {good_sql(good)} AS failed"
    return Stage(files, table, columns, "id IS NOT NULL", select, {})


def _record_rows(reader: Reader, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, which is asked once: so long as they are read, ``sheet_rows`` holds them."""
    reader.rows(f"CREATE OR REPLACE TEMP TABLE sheet_rows AS {sql} LIMIT {MOST_RECORDS:d}", parameters)
    [(count,)] = reader.rows("SELECT count(*) FROM sheet_rows")
    for first in range(0, count, _PAGE):
        page = "SELECT * FROM sheet_rows WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
        yield from reader.rows(page, [first, first + _PAGE])


@contextmanager
def _reading(reader: Reader) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(f"cannot read the records of {reader.folder}: {error}") from error


# --- Failures

_ERROR = "error.kind AS kind, error.message AS message"
_ERROR_TYPE = "STRUCT(kind VARCHAR, message VARCHAR)"


class _Failed(NamedTuple):
    """Where failed records are: ``what`` they are, a stage whose select has ``task``, ``model``, ``kind`` and
    ``message``, the lines that are ``needed`` of its ``paths`` (None: of all); ``task`` and ``model`` where
    lines name none."""

    what: str
    stage: Stage
    needed: str = "true"
    paths: Sequence[Path] | None = None
    task: str | None = None
    model: str | None = None


def _failed_stage(files: str, task: str, model: str, good: str) -> Stage:
    """``task`` and ``model`` are columns, or NULL."""
    texts = " ".join(name for name in (task, model, "item", "recipe", "response", "value") if name != "NULL")
    select = f"{task}::VARCHAR AS task, {model}::VARCHAR AS model, {_ERROR}"
    return _stage(files, "sheet_failed", texts, select, good, error=_ERROR_TYPE)


def _failed_sheet(reader: Reader, found: Iterable[_Failed], whole: str, others: str = "") -> SheetTable:
    """A record that failed and did not come good later a row, in the order in which they are found;
    ``others``: a query of further rows."""
    reader.rows(
        "CREATE OR REPLACE TABLE sheet_failures "
        "(what VARCHAR, task VARCHAR, id VARCHAR, model VARCHAR, kind VARCHAR, message VARCHAR)"
    )
    for one in found:
        reader.record_table(one.stage, one.needed, one.paths)
        reader.rows(
            "INSERT INTO sheet_failures SELECT ?, coalesce(task, ?), id, coalesce(model, ?), kind, message "
            "FROM sheet_failed WHERE failed ORDER BY id",
            [one.what, one.task, one.model],
        )
    if others:
        reader.rows(f"INSERT INTO sheet_failures {others}")
    columns = (
        ReportColumn("what", "What"),
        _TASK,
        ReportColumn("id", "Record"),
        ReportColumn("model", "Model"),
        ReportColumn("reason", "Reason"),
        ReportColumn("message", "Message"),
    )
    [(total,)] = reader.rows("SELECT count(*) FROM sheet_failures")
    sql = "SELECT * REPLACE (coalesce(kind, 'nothing usable') AS kind) FROM sheet_failures ORDER BY rowid"
    return SheetTable("Failures", columns, _record_rows(reader, sql), total=total, whole=whole)


# --- Sheets of a run

_RUN_ITEMS = _stage(
    "data_generation",
    "sheet_items",
    "prompt reference_response passage_source",
    f"{cut_sql('prompt')} AS prompt, {cut_sql('reference_response')} AS reference, "
    f"{cut_sql('passage_source')} AS source",
    PROMPT_SQL,
)
_RUN_ANSWERS = _stage(
    "response_collection",
    "sheet_answers",
    "response",
    f"{cut_sql('response')} AS text, length(response) AS length, coalesce(truncated, false) AS truncated",
    RESPONSE_SQL,
    truncated="BOOLEAN",
)
_REASONS = _stage(
    "evaluation",
    "sheet_reasons",
    "response_id judge_model_id",
    "md5_number(response_id) AS answer, judge_model_id AS judge, "
    "array_to_string([one.key || ': ' || one.value FOR one IN map_entries(reasons)], chr(10)) AS text",
    "true",
    reasons="MAP(VARCHAR, VARCHAR)",
)
_COMPARISONS = _stage(
    PAIRS,
    "sheet_comparisons",
    "datapoint_id task_id first_model_id second_model_id judge_model_id winner reason",
    "datapoint_id AS item, task_id AS task, judge_model_id AS judge, first_model_id AS first, "
    "second_model_id AS second, CASE winner WHEN 'first' THEN first_model_id WHEN 'second' THEN "
    f"second_model_id WHEN 'tie' THEN 'tie' END AS winner, {cut_sql('reason')} AS reason",
    "winner IS NOT NULL",
)


def run_sheets(reader: RunReader, items: Mapping[str, ItemMeasures]) -> Iterator[SheetTable]:
    """``items`` are their measures, by id. Texts are read of what has a row alone.

    Raises StoreError: a file cannot be read.
    """
    browser = ItemBrowser(reader)
    browser.flag(items)
    with _reading(reader):
        needed = f"id IN (SELECT item FROM viewed WHERE no < {MOST_RECORDS:d})"  # noqa: S608 - our number
        reader.record_table(_RUN_ITEMS, needed)
        yield _run_items(reader, browser, items)
        yield _run_answers(reader)
        if reader.run.files(PAIRS):
            yield _comparisons(reader)
        yield _failed_sheet(reader, _run_failures(reader), _WHOLE_RUN, _WITHOUT_SCORE)


def _run_items(reader: RunReader, browser: ItemBrowser, measures: Mapping[str, ItemMeasures]) -> SheetTable:
    """An item a row: what it samples, how hard it is, what each student came to on it."""
    facets = browser.facets
    attributes = list(facets.attributes)
    columns = [
        _ITEM,
        _TASK,
        ReportColumn("teacher", "Teacher"),
        *(ReportColumn(f"attribute {name}", name) for name in attributes),
        ReportColumn("difficulty", "Difficulty", "points", "100 less the mean score over students"),
        ReportColumn("discrimination", "Discrimination", "coefficient", "Correlation with the other items"),
        _DISAGREEMENT,
        ReportColumn("failed", "Failed", "count"),
        ReportColumn("flags", "Doubts"),
        *(ReportColumn(f"student {name}", name, "points") for name in facets.students),
        ReportColumn("prompt", "Prompt"),
        ReportColumn("reference", "Reference answer"),
        ReportColumn("source", "Source", "text", "The passage of a document that the item was made from"),
    ]

    def rows() -> Iterator[Sequence[Cell]]:
        for first in range(0, min(facets.items, MOST_RECORDS), _PAGE):
            page = browser.rows(ItemChoice(), first, _PAGE).rows
            texts = {item: of for item, *of in reader.rows(_TEXTS, [[row.item for row in page]])}
            for row in page:
                measured = measures.get(row.item)
                yield (
                    row.item,
                    row.task,
                    row.teacher,
                    *(row.attributes.get(name) for name in attributes),
                    None if measured is None else measured.difficulty,
                    None if measured is None else measured.discrimination,
                    row.disagreement,
                    row.failed,
                    ", ".join(flag.replace("_", " ") for flag in row.flags) or None,
                    *(row.scores.get(name) for name in facets.students),
                    *texts.get(row.item, (None, None, None)),
                )

    return SheetTable("Items", columns, rows(), total=facets.items, whole=_WHOLE_RUN)


_TEXTS = "SELECT id, prompt, reference, source FROM sheet_items WHERE id IN (SELECT unnest(?::VARCHAR[]))"


def _run_answers(reader: RunReader) -> SheetTable:
    """An answer a row, with its score and its text."""
    sample = [ReportColumn("sample", "Sample", "count", "Which of its answers to the item")]
    score = "Mean over its judges and factors (and all samples), or the share of right labels"
    columns = (
        _ITEM,
        _TASK,
        ReportColumn("student", "Student"),
        *(sample if reader.sampled else ()),
        ReportColumn("score", "Score", "points", score),
        _DISAGREEMENT,
        ReportColumn("failed", "Failed", "count", "The answer, and judgments and factors of it"),
        _TRUNCATED,
        _LENGTH,
        ReportColumn("answer", "Answer", meaning="Of several samples the first"),
        ReportColumn("reasons", "Reasons", meaning="Why its judges scored it so, by factor"),
    )
    reader.rows(f"CREATE OR REPLACE TABLE sheet_answered AS {_ANSWERED} LIMIT {MOST_RECORDS:d}")
    reader.record_table(_RUN_ANSWERS, "md5_number(id) IN (SELECT key FROM sheet_answered)")
    shown = "reasons IS NOT NULL AND md5_number(response_id) IN (SELECT key FROM sheet_answered)"
    reader.record_table(_REASONS, shown)
    rows = _record_rows(reader, _WITH_TEXTS.format(sample=", a.sample" if reader.sampled else ""))
    [(total,)] = reader.rows("SELECT count(*) FROM answers")
    return SheetTable("Answers", columns, rows, total=total, whole=_WHOLE_RUN)


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
        _ITEM,
        _TASK,
        _JUDGE,
        ReportColumn("first", "Shown first", meaning="The student whose answer the judge saw first"),
        ReportColumn("second", "Shown second"),
        ReportColumn("winner", "Winner", meaning="A student, tie, or failed"),
        ReportColumn("reason", "Reason"),
    )
    needed = "datapoint_id IN (SELECT item FROM viewed)"
    reader.record_table(_COMPARISONS, needed, reader.run.files(PAIRS))
    [(total,)] = reader.rows("SELECT count(*) FROM sheet_comparisons")
    rows = _record_rows(reader, _COMPARED)
    return SheetTable("Comparisons", columns, rows, total=total, whole=_WHOLE_RUN)


_COMPARED = """
SELECT item, task, judge, first, second, CASE WHEN failed THEN 'failed' ELSE winner END, reason
FROM sheet_comparisons ORDER BY task, item, least(first, second), greatest(first, second), judge, first
"""
_WITHOUT_SCORE = """
SELECT 'score', task, answer || '__' || judge, judge, 'no score', 'no score in ' || metric
FROM scores WHERE value IS NULL ORDER BY answer, judge, metric
"""
# What failed, the reader's table of it, its files, whose failure it is.
_FAILED = (
    ("item", "datapoint", "data_generation", "teacher_model_id"),
    ("answer", "response", "response_collection", "student_model_id"),
    ("judgment", "evaluation", "evaluation", "judge_model_id"),
)


def _run_failures(reader: RunReader) -> Iterator[_Failed]:
    """Files are looked through only where anything in them failed."""
    for what, table, files, model in _FAILED:
        failed = f"SELECT key FROM {table} WHERE failed"  # noqa: S608 - names of ours
        if reader.rows(f"{failed} LIMIT 1"):
            yield _Failed(
                what, _failed_stage(files, "task_id", model, "false"), f"md5_number(id) IN ({failed})"
            )


# --- Sheets of what eval-framework left

# Columns for metrics, and for what judgments say.
_MOST_NAMES = 200
# A sheet holds greater numbers rounded.
_LARGEST = 2**53
_OUTPUT_ANSWERS = _stage(
    "answers",
    "sheet_answers",
    "prompt response",
    f"{cut_sql('prompt')} AS prompt, {cut_sql('response')} AS text, length(response) AS length, "
    "coalesce(truncated, false) AS truncated",
    RESPONSE_SQL,
    truncated="BOOLEAN",
)
_SAID = _stage(
    "judgments",
    "sheet_judgments",
    "item judge recipe value raw",
    f"item, judge, value, {cut_sql('raw')} AS words",
    VALUE_SQL,
)
# Of what a row is, whatever it says.
_COLUMNS = (
    _TASK,
    _ITEM,
    ReportColumn("sample", "Sample", "count", "Of several answers to the same prompt, counting from 0"),
    ReportColumn("model", "Model"),
)


def output_sheets(reader: OutputReader) -> Iterator[SheetTable]:
    """Texts are read one task's folder after the other.

    Raises StoreError: a file cannot be read.
    """
    places = reader.places()
    with _reading(reader):
        yield _output_items(reader, places)
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
        yield _failed_sheet(reader, _output_failures(places), _WHOLE_OUTPUT)


_INSTRUCTIONS = (
    *_COLUMNS,
    ReportColumn("instruction", "Instruction"),
    ReportColumn("strict", "Followed, strictly", "text", "As the answer stands"),
    ReportColumn("loose", "Followed, loosely", "text", "Also without first or last line, or asterisks"),
)


def _output_items(reader: OutputReader, places: Sequence[TaskPlace]) -> SheetTable:
    """A row for each prompt and sample: its scores by metric, and the answer."""
    metrics = _metric_kinds(reader)
    columns = (
        *_COLUMNS,
        *(ReportColumn(f"metric {name}", name, kind) for name, kind in metrics.items()),
        ReportColumn("failed", "Answer failed"),
        _TRUNCATED,
        _LENGTH,
        ReportColumn("prompt", "Prompt"),
        ReportColumn("answer", "Answer"),
    )

    def rows() -> Iterator[Sequence[Cell]]:
        for place in places:
            reader.record_table(_OUTPUT_ANSWERS, paths=place.answers)
            found = _record_rows(reader, _SCORED, [place.task, place.sample])
            for item, names, values, *others in found:
                scores = dict(zip(names or (), values or (), strict=True))
                yield (place.task, item, place.sample, place.model, *map(scores.get, metrics), *others)

    [(total,)] = reader.rows("SELECT count(*) FROM (SELECT task, item, sample FROM answers UNION "
                             "SELECT task, item, sample FROM scores)")  # fmt: skip
    return SheetTable("Items", columns, rows(), total=total, whole=_WHOLE_OUTPUT)


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
    kinds: dict[str, FigureKind] = {
        name: "points" if shares else "number"
        for name, shares in reader.rows(
            "SELECT metric, bool_and(value BETWEEN 0 AND 1) FROM scores GROUP BY metric ORDER BY metric"
        )
    }
    order = dict.fromkeys((*(metric.metric for metric in reader.metrics), *kinds))
    return {name: kinds[name] for name in [name for name in order if name in kinds][:_MOST_NAMES]}


def _judgments(reader: OutputReader, places: Sequence[TaskPlace]) -> SheetTable:
    """A row for each judgment that counts: what it says by name, and the judge's words."""
    names = _said_names(reader, places)
    columns = (
        *_COLUMNS,
        _JUDGE,
        ReportColumn("what", "Judged", meaning="A criterion, or the order in which a pair was shown"),
        *(ReportColumn(f"said {name}", name.replace("_", " ")) for name in names),
        ReportColumn("failed", "Failed"),
        ReportColumn("words", "Its words"),
    )
    read = decoder(dict[str, Any])

    def rows() -> Iterator[Sequence[Cell]]:
        for place in places:
            reader.record_table(_SAID, _of_recipe(place), place.judgments)
            for item, judge, what, value, failed, words in _record_rows(reader, _BY_ITEM):
                said = _said(read, value, names)
                yield (place.task, item, place.sample, place.model, judge, what, *said, failed, words)

    [(total,)] = reader.rows("SELECT count(*) FROM judgments")
    return SheetTable("Judgments", columns, rows(), total=total, whole=_WHOLE_OUTPUT)


_BY_ITEM = """
SELECT item, judge, CASE WHEN starts_with(id, item || '__') THEN right(id, length(id) - length(item) - 2)
       ELSE id END, value, failed, words
FROM sheet_judgments ORDER BY item, id
"""


def _of_recipe(place: TaskPlace) -> str:
    """The judgments of a folder that count, as an expression."""
    if place.judged_by is None:
        return "item IS NOT NULL"
    recipe = place.judged_by.replace("'", "''")
    return f"item IS NOT NULL AND recipe = '{recipe}'"


def _said_names(reader: OutputReader, places: Sequence[TaskPlace]) -> list[str]:
    """What judgments say, by the names that they give it."""
    stage = _stage(
        "judgments", "sheet_said", "item recipe value", "json_keys(try_cast(value AS JSON)) AS names", "true"
    )
    found: dict[str, None] = {}
    for place in places:
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


_FAILED_ANSWERS = _failed_stage("answers", "NULL", "NULL", RESPONSE_SQL)
_FAILED_JUDGMENTS = _failed_stage("judgments", "NULL", "judge", VALUE_SQL)


def _output_failures(places: Sequence[TaskPlace]) -> Iterator[_Failed]:
    for place in places:
        yield _Failed("answer", _FAILED_ANSWERS, "true", place.answers, place.task, place.model)
        yield _Failed("judgment", _FAILED_JUDGMENTS, _of_recipe(place), place.judgments, place.task)
