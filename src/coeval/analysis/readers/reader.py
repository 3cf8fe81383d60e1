"""The base of readers of results: load JSONL files as tables in memory, and report damage."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from uuid import uuid4

import duckdb
import msgspec
from numpy.typing import NDArray

from coeval.analysis.doubtful_answers import ServedModel, find_stand_ins_and_mixtures
from coeval.analysis.intervals import Looks
from coeval.analysis.planned_names import ItemsBeyondTotal, LeftOut, Planned
from coeval.analysis.readers.whole_items import WholeItems
from coeval.analysis.run_results import MetricScore
from coeval.core.errors import StoreError, UsageError
from coeval.core.model import WINDOW
from coeval.core.records import counting_rowids_sql, is_good_sql
from coeval.core.text import join_names, pluralize
from coeval.store.jsonl import read_torn_tail, store_error
from coeval.store.rundir import PAIRS

# Bytes: the default of DuckDB's ``maximum_object_size``, of which it holds two.
_LONGEST_LINE = 1 << 24

# Texts of `RepeatedJson` that are parsed ahead; five factors of three levels have 243.
_MOST_TEXTS = 20_000

TRUNCATED_SQL = (
    "coalesce(truncated, false) AS truncated, "
    f"coalesce(truncated AND finish_reason = '{WINDOW}', false) AS windowed"
)
EMPTY_SQL = r"NOT regexp_matches(coalesce(response, ''), '\S') AS empty"
"""Of an answer: it has no text, or only blanks."""


SERVED_COLUMNS = "served_by served_as"
SERVED_SQL = "nullif(served_by, '') AS served_by, coalesce(served_as, '') AS served_as"
"""Of an answer or judgment: see `Kept`."""


def text_columns(names: str) -> dict[str, str]:
    """Return columns of a `Stage` that hold texts; blanks separate their names."""
    return dict.fromkeys(names.split(), "VARCHAR")


class Damage(msgspec.Struct, frozen=True):
    """Lines of a file that hold no record: ``torn``, a last one that a crash cut off, or ``damaged``."""

    file: str
    torn: int
    damaged: int


_SERVED = """
SELECT role, task::VARCHAR, model::VARCHAR, served_by::VARCHAR, served_as, count(*)
FROM served GROUP BY ALL ORDER BY ALL
"""


_SERVED_PAIRS = f"""
SELECT 'judge', task_id, judge_model_id, served_by, served_as, count(DISTINCT id)
FROM (SELECT * EXCLUDE (served_by, served_as), {SERVED_SQL} FROM {{lines}})
WHERE id IS NOT NULL AND judge_model_id IS NOT NULL AND {is_good_sql("winner IS NOT NULL")}
GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - ours


class RepeatedJson(NamedTuple):
    """A column of nested JSON that holds few distinct texts: those that occur again are parsed once, and
    lines look up what follows: the columns of ``derived``, the SQL of a STRUCT, instead of this one.
    """

    column: str
    kind: str
    derived: str


class Stage(NamedTuple):
    """How files of a kind become a table. ``columns`` are those read from a line; ``required`` holds of every
    record (its id contains the other names, so no name can be damaged unseen); ``select`` gives the
    table's columns, ``terms`` those that hold names of models, tasks and factors: a ``term`` (an ENUM), or
    a ``term[]``."""

    files: str
    table: str
    columns: dict[str, str]
    required: str
    select: str
    terms: Mapping[str, str]
    repeated: RepeatedJson | None = None


class Twin(NamedTuple):
    """The earlier item ``of`` its task that an item nearly repeats, and the ``first`` of all such."""

    of: str
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMetricFigure(MetricScore):
    """A metric of one sample of a task (from 0), as its ``summary.json`` has it."""

    sample: int
    samples: int = 1


class Reader:
    """The results in a folder as views in memory, read once. Close it, or use it as a context manager.

    ``views`` names those that users may request: see `coeval.analysis.load`. ``searched`` are the stages
    of the texts that items are searched by: tables of ``key``, ``failed``, ``item`` and ``text``.
    ``planned`` is what the folder's configuration plans, None if unknown; ``left_out`` and
    ``beyond_total`` are what the views exclude because of it.
    """

    views: ClassVar[tuple[str, ...]] = ()
    stages: ClassVar[tuple[Stage, ...]] = ()
    view_sql: ClassVar[str] = ""
    searched: ClassVar[tuple[Stage, ...]] = ()
    planned: Planned | None = None
    left_out: tuple[LeftOut, ...] = ()
    beyond_total: tuple[ItemsBeyondTotal, ...] = ()
    looks: Looks | None = None
    """The look that this reading is, if others were or will be taken at the run; None: nobody counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damage: tuple[Damage, ...] = ()
        self._longest = _LONGEST_LINE
        self._files: dict[str, list[Path]] = {}
        self._name = uuid4().hex
        self._db = self._connect()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Open a connection to the reader's tables, which live as long as one is open."""
        return duckdb.connect(
            f":memory:{self._name}",
            config={
                "temp_directory": str(Path(tempfile.gettempdir()) / f"coeval-{self._name}"),
                "autoinstall_known_extensions": False,
                "allocator_background_threads": True,  # what tables took while they were made is given back
                "threads": 1,  # so that rows come in one order; each more holds 70 MB of buffers
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the views and files (``?`` stands for a parameter). Raises
        StoreError: a file of the folder is gone or cannot be read."""
        with self._translate_to_store_error(duckdb.IOException):
            return self._db.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, NDArray[Any]]:
        """Return a query's columns as numpy arrays, masked where they hold NULL. Raises as `rows`."""
        with self._translate_to_store_error(duckdb.IOException):
            columns: dict[str, NDArray[Any]] = self._db.execute(sql, list(parameters)).fetchnumpy()
        return columns

    @contextmanager
    def _translate_to_store_error(self, *failures: type[duckdb.Error]) -> Iterator[None]:
        try:
            yield
        except failures as error:
            raise StoreError(f"cannot read the records of {self.folder}: {error}") from error

    def table(self, view: str) -> duckdb.DuckDBPyRelation:
        """Return a view as a relation, in order of its rows; an item's attributes become columns
        ``attributes.NAME``. It is computed when fetched, and stays valid when the reader is closed.

        Raises UsageError: there is no such view.
        """
        name = _RECORDS.get(view, view)
        if name not in self.views:
            raise UsageError(f"there is no table {view!r} here; there are {join_names(self.views)}")
        connection = self._connect()  # the reader's would be closed with it
        selected = "*"
        if name == "items":
            keys = connection.execute(
                "SELECT DISTINCT unnest(map_keys(attributes)) AS name FROM items ORDER BY name"
            ).fetchall()
            values = "".join(
                f", attributes[{quote_text(key)}] AS " + '"attributes.' + key.replace('"', '""') + '"'
                for (key,) in keys
            )
            selected = f"* EXCLUDE (attributes){values}"
        return connection.sql(f"SELECT {selected} FROM (SELECT * FROM {name} ORDER BY ALL)")  # noqa: S608

    @property
    def simulated(self) -> bool:
        """Check whether the folder says that simulated models took part."""
        return False

    @property
    def metrics(self) -> tuple[SampleMetricFigure, ...]:
        """Return a benchmark's own figures by task and sample, headline first; none if scores are levels."""
        return ()

    @property
    def twins(self) -> Mapping[str, Twin]:
        """Return the items that nearly repeat an earlier one, by id."""
        return {}

    def rubrics(self) -> dict[str, dict[str, str]]:
        """Return each task's factors with their descriptions; empty where no readable rubric is kept."""
        return {}

    @property
    def check_hashes(self) -> Mapping[tuple[str, str], AbstractSet[str]]:
        """Return the hashes of the options and code that made the good scores, by task and check."""
        return {}

    def answering_models(self) -> tuple[str, ...]:
        """Name the models that answered; only those that the configuration still names, if there are any."""
        names = [model for (model,) in self.rows("SELECT DISTINCT model FROM answers ORDER BY model")]
        if self.planned is not None and self.planned.students is not None:
            names = [name for name in names if name in self.planned.students] or names
        return tuple(names)

    def model_condition_sql(self, model: str) -> tuple[str, list[str]]:
        """Return the SQL condition of a model's rows, with its parameters."""
        return "model = ?", [model]

    def headline_metrics(self) -> dict[str, str]:
        """Return, by task, the first of its `metrics` that items have scores of."""
        scored = {tuple(row) for row in self.rows("SELECT DISTINCT task, metric FROM scores")}
        headlines: dict[str, str] = {}
        for metric in self.metrics:
            if (metric.task, metric.metric) in scored:
                headlines.setdefault(metric.task, metric.metric)
        return headlines

    def items(self) -> WholeItems:
        """Return the items, each read whole from the files as they are at the first request."""
        raise NotImplementedError

    def files(self, kind: str) -> list[Path]:
        """Return the files that the stages of a kind were read from."""
        return self._files.get(kind, [])

    def query_lines(self, kind: str, columns: Mapping[str, str], sql: str) -> list[tuple[Any, ...]]:
        """Query ``{lines}``, those of a kind's files as columns of these types; no rows without a file."""
        stage = Stage(kind, "", dict(columns), "", "", {})
        files = [escape_glob_pattern(path) for path in self.files(kind)]
        return self.rows(sql.format(lines=self._lines_sql(stage, files)), [files]) if files else []

    def make_record_table(self, stage: Stage, paths: Sequence[Path] | None = None) -> None:
        """Make the table of a stage of texts, which no view holds. Its select has ``key`` and ``failed``; of
        each id the line that counts is kept. Raises as DuckDB does."""
        existing = self.files(stage.files) if paths is None else paths
        files = [escape_glob_pattern(path) for path in existing]
        self.rows(
            f"CREATE OR REPLACE TABLE {stage.table} AS SELECT {stage.select} "  # noqa: S608
            f"FROM {self._lines_sql(stage, files)} WHERE {stage.required}",
            [files] if files else [],
        )
        self.rows(f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_rowids_sql(stage.table)})")  # noqa: S608

    def fill_item_text_table(self) -> None:
        """Add items' texts to ``item_text`` (no, text), by number in ``viewed``. Raises as DuckDB does."""
        for stage in self.searched:
            self._insert_item_texts(stage, self.files(stage.files))

    def _insert_item_texts(self, stage: Stage, paths: Sequence[Path], only_task: str = "") -> None:
        """Add the texts of these files; ``only_task``: the task of all their items, if it is only one."""
        self.make_record_table(stage, paths=paths)
        self.rows(
            f"INSERT INTO item_text SELECT v.no, w.text FROM {stage.table} w JOIN viewed v USING (item) "  # noqa: S608
            "WHERE w.text IS NOT NULL AND (? = '' OR v.task = ?)",
            [only_task, only_task],
        )
        self.rows(f"DROP TABLE {stage.table}")

    def stand_ins_and_mixtures(self, *, by_task: bool = False) -> tuple[ServedModel, ...]:
        """Return whom other models, or several, served; over all tasks together unless ``by_task``."""
        requested = self.planned.requested if self.planned is not None else {}
        return tuple(find_stand_ins_and_mixtures(self._served_counts, requested, by_task=by_task))

    @cached_property
    def _served_counts(self) -> list[tuple[Any, ...]]:
        """Count good answers, judgments and planned comparisons by the model that served them, once."""
        columns = text_columns(f"id task_id judge_model_id winner status {SERVED_COLUMNS}")
        pairs, planned = self.query_lines(PAIRS, columns, _SERVED_PAIRS), self.planned
        counted = (row for row in pairs if planned is None or planned.is_counted(row[1], "judge", row[2]))
        return [*self.rows(_SERVED), *counted]

    def notes(self) -> tuple[str, ...]:
        """Say what the views leave out, and which models stood in for others, one sentence each."""
        damaged = (
            f"{damage.file}: skipped, as no whole record: {pluralize(damage.torn + damage.damaged, 'line')}"
            + (" (the last one was cut off)" if damage.torn else "")
            for damage in self.damage
        )
        return (*damaged, *(served.note for served in self.stand_ins_and_mixtures()))

    @contextmanager
    def _close_on_failure(self) -> Iterator[None]:
        """Close the reader and raise StoreError where DuckDB fails to make tables."""
        try:
            with self._translate_to_store_error(duckdb.Error):
                yield
        except StoreError:
            self.close()
            raise

    def _load_files(self, files_by_kind: Mapping[str, Sequence[Path]]) -> None:
        """Read the files once, by two threads, and again where lines are longer than DuckDB expects: answers
        are cut when they are made, but older files, other programs and damage know no such limit."""
        self._files = {kind: list(files) for kind, files in files_by_kind.items()}
        self._db.execute("SET threads = 2")  # rows of files keep their order all the same
        try:
            self._make_tables()
        except duckdb.InvalidInputException:
            self._longest = max(map(_longest_line_bytes, chain.from_iterable(self._files.values())))
            self._make_tables()
        self._db.execute("SET threads = 1")

    def _make_tables(self) -> None:
        """Make a table of each stage, without the lines that are no records, and the views."""
        self._make_table_of_files()
        for stage in self.stages:
            files = [escape_glob_pattern(path) for path in self.files(stage.files)]
            self._db.execute(
                f"CREATE OR REPLACE TABLE {_raw_table_name(stage)} AS SELECT {stage.select}, "  # noqa: S608
                f"CASE WHEN NOT coalesce(({stage.required}), false) THEN filename END AS no_record_of "
                f"FROM {self._make_lookup_and_lines_sql(stage, files)}",
                [files] if files else [],
            )
        self.damage = tuple(damage for stage in self.stages for damage in self._count_damage_by_file(stage))
        names = " UNION ALL ".join(
            f"SELECT {f'unnest({name})' if kind.endswith('[]') else name} AS term "  # noqa: S608
            f"FROM {_raw_table_name(stage)} WHERE no_record_of IS NULL"
            for stage in self.stages
            for name, kind in stage.terms.items()
        )
        self._db.execute(
            f"CREATE TABLE terms AS SELECT DISTINCT term FROM ({names}) WHERE term IS NOT NULL ORDER BY term"  # noqa: S608
        )
        self._db.execute("CREATE TYPE term AS ENUM (SELECT term FROM terms)")
        for stage in self.stages:
            compact = ", ".join(f"{name}::{kind} AS {name}" for name, kind in stage.terms.items())
            raw = _raw_table_name(stage)
            self._db.execute(
                f"CREATE TABLE {stage.table} AS SELECT * EXCLUDE (no_record_of) "  # noqa: S608
                f"{compact and f'REPLACE ({compact})'} FROM {raw} WHERE no_record_of IS NULL"
            )
            self._db.execute(f"DROP TABLE {raw}")
            self._note_items_beyond_limits(stage)
            self._db.execute(
                f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_rowids_sql(stage.table)})"  # noqa: S608
            )
        self._db.execute(self.view_sql)

    def _make_table_of_files(self) -> None:
        """Prepare what the first table needs."""

    def _note_items_beyond_limits(self, stage: Stage) -> None:
        """Note what is beyond the plan, while rows are in the order of the files and their lines."""

    def _display_name(self, path: Path) -> str:
        return path.name

    def _count_damage_by_file(self, stage: Stage) -> Iterator[Damage]:
        for file, count in self.rows(
            f"SELECT no_record_of, count(*) FROM {_raw_table_name(stage)} WHERE no_record_of IS NOT NULL "  # noqa: S608
            "GROUP BY ALL ORDER BY ALL"
        ):
            torn = int(bool(read_torn_tail(Path(file))))
            yield Damage(self._display_name(Path(file)), torn, count - torn)

    def _make_lookup_and_lines_sql(self, stage: Stage, files: Sequence[str]) -> str:
        """Build `_lines_sql` of a stage, with what follows from its repeated JSON."""
        if stage.repeated is None:
            return self._lines_sql(stage, files)
        column, kind, derived = stage.repeated
        lines = self._lines_sql(stage._replace(columns=stage.columns | {column: "VARCHAR"}), files)
        parsed = f"[{derived} FOR {column} IN [TRY_CAST(TRY_CAST({column} AS JSON) AS {kind})]][1]"
        self._db.execute(
            f"CREATE OR REPLACE TABLE common AS SELECT {column} AS text, {parsed} AS parsed "  # noqa: S608
            f"FROM (SELECT {column} FROM {lines} WHERE {column} IS NOT NULL "
            f"GROUP BY 1 HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT {_MOST_TEXTS})",
            [files] if files else [],
        )
        self._db.execute("DROP TYPE IF EXISTS common")
        self._db.execute("CREATE TYPE common AS ENUM (SELECT text FROM common ORDER BY text)")
        number = f"enum_code(TRY_CAST({column} AS common)) + 1"
        known = f"(SELECT list(parsed ORDER BY text) FROM common)[{number}]"  # noqa: S608
        return (
            f"(SELECT * EXCLUDE ({column}, derived), unnest(derived) "  # noqa: S608
            f"FROM (SELECT *, coalesce({known}, {parsed}) AS derived FROM {lines}))"
        )

    def _lines_sql(self, stage: Stage, files: Sequence[str]) -> str:
        """Build a table expression of a phase's lines, with one parameter (the files) if there are any. A
        line that is not a JSON object becomes a row of NULLs (``ignore_errors``), which the reader counts."""
        if not files:
            columns = ", ".join(f"NULL::{kind} AS {column}" for column, kind in stage.columns.items())
            return f"(SELECT {columns}, NULL::VARCHAR AS filename WHERE false)"
        columns = ", ".join(f"{column}: '{kind}'" for column, kind in stage.columns.items())
        return (
            f"read_json(?::VARCHAR[], format = 'newline_delimited', records = true, columns = {{{columns}}}, "
            f"ignore_errors = true, filename = true, maximum_object_size = {self._longest})"
        )


def _raw_table_name(stage: Stage) -> str:
    """Name the table of all lines of a kind's files, in which names are still texts."""
    return f"raw_{stage.table}"


def _longest_line_bytes(path: Path) -> int:
    try:
        with path.open("rb") as lines:
            return max(map(len, lines), default=0)
    except OSError as error:
        raise store_error("read", path, error) from error


# What a run's records of them are called → the view.
_RECORDS = {"datapoints": "items", "responses": "answers", "evaluations": "judgments"}


def quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def escape_glob_pattern(path: Path) -> str:
    """Escape a path so that DuckDB takes it literally, not as a pattern."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path.absolute()))
