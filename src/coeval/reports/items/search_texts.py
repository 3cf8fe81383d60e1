"""The words of items, for searching: ids, prompts, references and answers in lower case, in one table.

At a million judgments it takes seconds and some 200 MB, so it is made when somebody first searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader, Stage
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError
from coeval.core.good import PROMPT_SQL, RESPONSE_SQL, good_sql
from coeval.reports.items.record_tables import make_record_table
from coeval.store.output_folder import RESPONSES

__all__ = ["make_text_table"]

_ITEMS = Stage(
    "data_generation",
    "item_words",
    {"id": "VARCHAR", "prompt": "VARCHAR", "reference_response": "VARCHAR", "status": "VARCHAR"},
    "id IS NOT NULL",
    f"md5_number(id) AS key, id AS item, NOT {good_sql(PROMPT_SQL)} AS failed, "
    "lower(concat_ws(chr(10), id, prompt, reference_response)) AS text",
    {},
)
_ANSWERS = Stage(
    "response_collection",
    "answer_words",
    {"id": "VARCHAR", "datapoint_id": "VARCHAR", "response": "VARCHAR", "status": "VARCHAR"},
    "id IS NOT NULL",
    f"md5_number(id) AS key, datapoint_id AS item, "
    f"NOT {good_sql(RESPONSE_SQL)} AS failed, lower(response) AS text",
    {},
)
_OUTPUT = Stage(
    RESPONSES,
    "answer_words",
    {"id": "VARCHAR", "prompt": "VARCHAR", "response": "VARCHAR", "status": "VARCHAR"},
    "id IS NOT NULL",
    f"md5_number(filename || chr(10) || id) AS key, id AS item, "
    f"NOT {good_sql(RESPONSE_SQL)} AS failed, lower(concat_ws(chr(10), id, prompt, response)) AS text",
    {},
)


def make_text_table(reader: Reader) -> None:
    """Make ``item_text`` (number of an item, a text of it) beside what `make_item_tables` made.

    Raises
    ------
    StoreError
        a file cannot be read.
    """
    try:
        reader.rows("CREATE OR REPLACE TABLE item_text (no INTEGER, text VARCHAR)")
        match reader:
            case RunReader():
                for stage in (_ITEMS, _ANSWERS):
                    _take(reader, stage, reader.run.files(stage.files))
            case OutputReader():
                for folder, task in reader.rows("SELECT DISTINCT folder, task FROM place"):
                    files = [path for path in [Path(folder) / RESPONSES] if path.is_file()]
                    _take(reader, _OUTPUT, files, task)
    except duckdb.Error as error:
        raise StoreError(f"cannot search the records of {reader.folder}: {error}") from error


def _take(reader: Reader, stage: Stage, paths: Sequence[Path], task: str = "") -> None:
    """Add the texts of some files; ``task``: what all of them are of."""
    make_record_table(reader, stage, paths)
    reader.rows(
        f"INSERT INTO item_text SELECT v.no, w.text FROM {stage.table} w JOIN viewed v USING (item) "  # noqa: S608
        "WHERE w.text IS NOT NULL AND (? = '' OR v.task = ?)",
        [task, task],
    )
    reader.rows(f"DROP TABLE {stage.table}")
