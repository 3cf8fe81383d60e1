"""A folder's items, open for questions: of its rows, and of each item whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import duckdb
import msgspec

from coeval.analysis.measures.run_measures import MeasuredRun
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader, Stage, literally, source, without_long_lines
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError
from coeval.core.records import PROMPT_SQL, RESPONSE_SQL, counting_sql, good_sql
from coeval.reports.items.item_rows import (
    FLAGS,
    ItemChoice,
    ItemFacets,
    RowPage,
    find_rows,
    item_facets,
    make_item_tables,
)
from coeval.reports.items.output_items import OutputItems
from coeval.reports.items.run_items import ItemDetail, RunItems
from coeval.store.output_folder import RESPONSES

# --- Record tables with full texts


def make_record_table(reader: Reader, stage: Stage, paths: Sequence[Path], wanted: str = "true") -> None:
    """Make the table of a stage, whose select has ``key`` and ``failed``, of the lines that are ``wanted``,
    an expression over its columns. Of an id's lines the one that counts is kept. Raises as DuckDB does."""
    with TemporaryDirectory(prefix="coeval-") as copies:
        try:
            _read(reader, stage, paths, wanted)
        except duckdb.InvalidInputException:  # a line is too long
            shortened = [
                without_long_lines(path, stage.columns, Path(copies) / str(place))
                for place, path in enumerate(paths)
            ]
            _read(reader, stage, shortened, wanted)


def _read(reader: Reader, stage: Stage, paths: Sequence[Path], wanted: str) -> None:
    files = [literally(path) for path in paths]
    reader.rows(
        f"CREATE OR REPLACE TABLE {stage.table} AS SELECT {stage.select} FROM {source(stage, files)} "  # noqa: S608
        f"WHERE {stage.required} AND {wanted}",
        [files] if files else [],
    )
    reader.rows(f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_sql(stage.table)})")  # noqa: S608


# --- Search words of items
#
# At a million judgments it takes seconds and some 200 MB, so it is made when somebody first searches.

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


class ItemBrowser:
    """Answers about what a reader read, to one thread at a time; the reader stays open as long.

    Raises
    ------
    StoreError
        what was read cannot be put into tables.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = Lock()
        self._searchable = False
        self._items = _items_of(reader)
        try:
            make_item_tables(reader)
            self.facets: ItemFacets = item_facets(reader)
        except duckdb.Error as error:
            raise StoreError(f"cannot show the items of {reader.folder}: {error}") from error

    def prepare(self) -> None:
        """Find the lines of all items, which takes seconds at a million judgments: nobody waits for it then.

        Raises
        ------
        StoreError
            a file cannot be read.
        """
        self._items.prepare()

    def rows(self, choice: ItemChoice, first: int = 0, most: int = 50) -> RowPage:
        """A page of the items that fit a choice.

        Raises
        ------
        StoreError
            files that are to be searched cannot be read.
        """
        with self._lock:
            if choice.words and not self._searchable:
                make_text_table(self._reader)
                self._searchable = True
            return find_rows(self._reader, choice, first, most)

    def detail(self, item: str, task: str = "") -> ItemDetail | None:
        """An item whole; ``task`` where ids are unique in a task alone. None: there is no such item.

        Raises
        ------
        StoreError
            a file cannot be read.
        """
        with self._lock:
            found = self._reader.rows(
                "SELECT item, task FROM viewed WHERE item = ? AND (? = '' OR task = ?) LIMIT 1",
                [item, task, task],
            )
            return self._items.detail(*found[0]) if found else None

    def mark(self, keys: Iterable[tuple[str, str]]) -> None:
        """Say which items are marked, by task and item."""
        tasks, items = [list(column) for column in zip(*keys, strict=True)] or ([], [])
        with self._lock:
            self._reader.rows("DELETE FROM marked")
            self._reader.rows(
                "INSERT INTO marked SELECT v.no FROM viewed v JOIN "
                "(SELECT unnest(?::VARCHAR[]) AS task, unnest(?::VARCHAR[]) AS item) USING (task, item)",
                [tasks, items],
            )

    def flag(self, items: Mapping[str, Mapping[str, object]]) -> None:
        """Take over what `measure_tree` says of a run's ``items``, by id."""
        found = [(item, flag) for item, told in items.items() for flag in _flags(told)]
        with self._lock:
            self._reader.rows("DELETE FROM flagged")
            self._reader.rows(
                "INSERT INTO flagged SELECT v.no, f.flag FROM viewed v JOIN "
                "(SELECT unnest(?::VARCHAR[]) AS item, unnest(?::VARCHAR[]) AS flag) f USING (item)",
                [[item for item, _ in found], [flag for _, flag in found]],
            )

    def rank(self, order: Sequence[str]) -> None:
        """Name students in an order, best first; the others behind them."""
        students = [name for name in order if name in self.facets.students]
        students += [name for name in self.facets.students if name not in students]
        self.facets = msgspec.structs.replace(self.facets, students=students)


def flagged_items(reader: RunReader, measured: MeasuredRun) -> ItemBrowser:
    """A run's items, with the flags of what was measured; raises as `ItemBrowser`."""
    browser = ItemBrowser(reader)
    browser.flag(measured.tree["items"])
    browser.rank(measured.ranks.order)
    return browser


def _items_of(reader: Reader) -> RunItems | OutputItems:
    match reader:
        case RunReader():
            return RunItems(reader)
        case OutputReader():
            return OutputItems(reader)
        case _:
            raise TypeError(f"nobody shows the items of what a {type(reader).__name__} reads")


def _flags(told: Mapping[str, object]) -> list[str]:
    discrimination = told.get("discrimination")
    holds = {
        "all_pass": told.get("all_pass") is True,
        "all_fail": told.get("all_fail") is True,
        "reversed": isinstance(discrimination, float) and discrimination < 0,
        "near_duplicate": told.get("near_duplicate_of") is not None,
    }
    return [flag for flag in FLAGS if holds[flag]]
