"""The base of readers of results: load JSONL files as tables in memory, count and report damage."""

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

from coeval.analysis.doubtful_answers import ServedModel, served_models
from coeval.analysis.intervals import Looks
from coeval.analysis.planned_names import BeyondTotal, LeftOut, Planned
from coeval.analysis.readers.whole_items import WholeItems
from coeval.analysis.run_results import MetricScore
from coeval.core.errors import StoreError, UsageError
from coeval.core.model import WINDOW
from coeval.core.records import counting_sql, good_sql
from coeval.core.text import join_names, pluralize
from coeval.store.jsonl import read_torn_tail, store_error
from coeval.store.rundir import PAIRS

# Bytes: the default of DuckDB's ``maximum_object_size``, of which it holds two.
_LONGEST_LINE = 1 << 24

TRUNCATED_SQL = (
    "coalesce(truncated, false) AS truncated, "
    f"coalesce(truncated AND finish_reason = '{WINDOW}', false) AS windowed"
)
EMPTY_SQL = r"NOT regexp_matches(coalesce(response, ''), '\S') AS empty"
"""Of an answer: it has no text, or only blanks."""


SERVED_COLUMNS = {"served_by": "VARCHAR", "served_as": "VARCHAR"}
SERVED_SQL = "nullif(served_by, '') AS served_by, coalesce(served_as, '') AS served_as"
"""Of an answer or judgment: see `Kept`."""


class Damage(msgspec.Struct, frozen=True):
    """Lines of a file that hold no record: a last line cut off by a crash, and others."""

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
WHERE id IS NOT NULL AND judge_model_id IS NOT NULL AND {good_sql("winner IS NOT NULL")}
GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - ours


class Stage(NamedTuple):
    """How files of a kind become a table.

    ``columns`` are what is read of a line, ``required`` what holds of every record (its id says what
    it is about, so no name in it can be damaged unseen), ``select`` the table's columns. ``terms`` are those
    of them that hold names of models, tasks and factors: a ``term`` (an ENUM) each, or a ``term[]``.
    """

    files: str
    table: str
    columns: dict[str, str]
    required: str
    select: str
    terms: Mapping[str, str]


class Twin(NamedTuple):
    """An item whose prompt is nearly that of an earlier one of its task, ``of``, and the ``first`` of all
    that are alike."""

    of: str
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMetric(MetricScore):
    """A metric of one sample of a task (from 0), as its ``summary.json`` has it."""

    sample: int
    samples: int = 1


class Reader:
    """The results in a folder as views in memory, read once. Close it, or use it as a context manager.

    ``views`` names those that people may ask for: see `coeval.analysis.load`. ``searched`` are the stages of
    the texts that items are searched by: tables of ``key``, ``failed``, ``item`` and ``text``. ``planned`` is
    what the folder's configuration plans, None where nobody says; ``left_out`` and ``beyond_total`` are what
    the views leave out because of it.
    """

    views: ClassVar[tuple[str, ...]] = ()
    stages: ClassVar[tuple[Stage, ...]] = ()
    view_sql: ClassVar[str] = ""
    searched: ClassVar[tuple[Stage, ...]] = ()
    planned: Planned | None = None
    left_out: tuple[LeftOut, ...] = ()
    beyond_total: tuple[BeyondTotal, ...] = ()
    looks: Looks | None = None
    """The look that this reading is, if others were or will be taken at the run; None: nobody counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damage: tuple[Damage, ...] = ()
        self._longest = _LONGEST_LINE
        self._files: dict[str, list[Path]] = {}
        self._name = uuid4().hex
        self._db = self._connected()

    def _connected(self) -> duckdb.DuckDBPyConnection:
        """A connection to the reader's tables, which live as long as one is open."""
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
        """Return the rows of a query over the views and files (``?`` stands for a parameter).

        Raises StoreError: a file of the folder is gone or cannot be read.
        """
        with self._reading(duckdb.IOException):
            return self._db.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, NDArray[Any]]:
        """A query's columns as numpy arrays, masked where they hold NULL. Raises as `rows`."""
        with self._reading(duckdb.IOException):
            columns: dict[str, NDArray[Any]] = self._db.execute(sql, list(parameters)).fetchnumpy()
        return columns

    @contextmanager
    def _reading(self, *failures: type[duckdb.Error]) -> Iterator[None]:
        """While files are read: these failures of DuckDB become a StoreError."""
        try:
            yield
        except failures as error:
            raise StoreError(f"cannot read the records of {self.folder}: {error}") from error

    def table(self, view: str) -> duckdb.DuckDBPyRelation:
        """A view as a relation, in order of its rows; an item's attributes are columns ``attributes.NAME``.
        It is computed when it is fetched, and stays good when the reader is closed.

        Raises UsageError: there is no such view.
        """
        name = _RECORDS.get(view, view)
        if name not in self.views:
            raise UsageError(f"there is no table {view!r} here; there are {join_names(self.views)}")
        own = self._connected()  # the reader's would be closed with it
        selected = "*"
        if name == "items":
            found = own.execute(
                "SELECT DISTINCT unnest(map_keys(attributes)) AS name FROM items ORDER BY name"
            ).fetchall()
            values = "".join(
                f", attributes[{_text(key)}] AS {_identifier(f'attributes.{key}')}" for (key,) in found
            )
            selected = f"* EXCLUDE (attributes){values}"
        return own.sql(f"SELECT {selected} FROM (SELECT * FROM {name} ORDER BY ALL)")  # noqa: S608

    @property
    def simulated(self) -> bool:
        """Whether the folder says that simulated models took part."""
        return False

    @property
    def metrics(self) -> tuple[SampleMetric, ...]:
        """A benchmark's own figures by task and sample, its headline first; none where scores are levels."""
        return ()

    @property
    def twins(self) -> Mapping[str, Twin]:
        """By item, those that nearly repeat an earlier one."""
        return {}

    def rubrics(self) -> dict[str, dict[str, str]]:
        """By task, what each factor asks for; empty where none is kept, or none can be read."""
        return {}

    @property
    def check_hashes(self) -> Mapping[tuple[str, str], AbstractSet[str]]:
        """By task and check, the hashes of the options and code that made its good scores."""
        return {}

    def models(self) -> tuple[str, ...]:
        """Who answered, by name; of those that the configuration still names, if there are any."""
        found = [model for (model,) in self.rows("SELECT DISTINCT model FROM answers ORDER BY model")]
        if self.planned is not None and self.planned.students is not None:
            found = [name for name in found if name in self.planned.students] or found
        return tuple(found)

    def of_model(self, model: str) -> tuple[str, list[str]]:
        """What holds of a model's rows, as an expression with its parameters."""
        return "model = ?", [model]

    def headlines(self) -> dict[str, str]:
        """By task, the first of its `metrics` that items have scores of."""
        scored = {tuple(row) for row in self.rows("SELECT DISTINCT task, metric FROM scores")}
        found: dict[str, str] = {}
        for metric in self.metrics:
            if (metric.task, metric.metric) in scored:
                found.setdefault(metric.task, metric.metric)
        return found

    def items(self) -> WholeItems:
        """The items, each to be read whole from the files as they stand when one is first asked for."""
        raise NotImplementedError

    def files(self, kind: str) -> list[Path]:
        """The files that the stages of a kind were read from."""
        return self._files.get(kind, [])

    def of_lines(self, kind: str, columns: Mapping[str, str], sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query over ``{lines}``, the lines of a kind's files as columns of these types; none
        where there is no file."""
        stage = Stage(kind, "", dict(columns), "", "", {})
        files = [literally(path) for path in self.files(kind)]
        return self.rows(sql.format(lines=self._lines(stage, files)), [files]) if files else []

    def record_table(self, stage: Stage, paths: Sequence[Path] | None = None) -> None:
        """Read texts, of which the views hold none: make the table of a stage, whose select has ``key`` and
        ``failed``, of which the line of an id that counts is kept. Raises as DuckDB does."""
        found = self.files(stage.files) if paths is None else paths
        files = [literally(path) for path in found]
        self.rows(
            f"CREATE OR REPLACE TABLE {stage.table} AS SELECT {stage.select} "  # noqa: S608
            f"FROM {self._lines(stage, files)} WHERE {stage.required}",
            [files] if files else [],
        )
        self.rows(f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_sql(stage.table)})")  # noqa: S608

    def add_searched(self) -> None:
        """Add the texts of all items to ``item_text`` (no, text), by their numbers in ``viewed``; raises as
        DuckDB does."""
        for stage in self.searched:
            self._search(stage, self.files(stage.files))

    def _search(self, stage: Stage, paths: Sequence[Path], task: str = "") -> None:
        """``task``: what all items of these files are of."""
        self.record_table(stage, paths=paths)
        self.rows(
            f"INSERT INTO item_text SELECT v.no, w.text FROM {stage.table} w JOIN viewed v USING (item) "  # noqa: S608
            "WHERE w.text IS NOT NULL AND (? = '' OR v.task = ?)",
            [task, task],
        )
        self.rows(f"DROP TABLE {stage.table}")

    def served(self, *, by_task: bool = False) -> tuple[ServedModel, ...]:
        """The students and judges that other models, or several, stood in for: in all tasks together."""
        requested = self.planned.requested if self.planned is not None else {}
        return tuple(served_models(self._served_counts, requested, by_task=by_task))

    @cached_property
    def _served_counts(self) -> list[tuple[Any, ...]]:
        """Count, once for all who show it, the good answers and judgments of each model that served them, the
        comparisons of planned judges among them."""
        kinds = dict.fromkeys(("id", "task_id", "judge_model_id", "winner", "status"), "VARCHAR")
        pairs, planned = self.of_lines(PAIRS, kinds | SERVED_COLUMNS, _SERVED_PAIRS), self.planned
        counted = (row for row in pairs if planned is None or planned.counts(row[1], "judge", row[2]))
        return [*self.rows(_SERVED), *counted]

    def notes(self) -> tuple[str, ...]:
        """What was left out of the views, and whose answers these are, one sentence each, for people."""
        damaged = (
            f"{damage.file}: skipped, as no whole record: {pluralize(damage.torn + damage.damaged, 'line')}"
            + (" (the last one was cut off)" if damage.torn else "")
            for damage in self.damage
        )
        return (*damaged, *(served.note for served in self.served()))

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """While tables are made: what DuckDB cannot do becomes a StoreError, and the reader is closed."""
        try:
            with self._reading(duckdb.Error):
                yield
        except StoreError:
            self.close()
            raise

    def _load(self, files_of: Mapping[str, Sequence[Path]]) -> None:
        """Read the files once, by two threads, and once more where lines are longer than DuckDB expects:
        answers are cut when they are made, but older files, other programs and damage know no such limit."""
        self._files = {kind: list(files) for kind, files in files_of.items()}
        self._db.execute("SET threads = 2")  # rows of files keep their order all the same
        try:
            self._make_tables()
        except duckdb.InvalidInputException:
            self._longest = max(map(_longest_line, chain.from_iterable(self._files.values())))
            self._make_tables()
        self._db.execute("SET threads = 1")

    def _make_tables(self) -> None:
        self._begin()
        for stage in self.stages:
            files = [literally(path) for path in self.files(stage.files)]
            self._db.execute(
                f"CREATE OR REPLACE TABLE {_raw(stage)} AS SELECT {stage.select}, "  # noqa: S608
                f"CASE WHEN NOT coalesce(({stage.required}), false) THEN filename END AS no_record_of "
                f"FROM {self._lines(stage, files)}",
                [files] if files else [],
            )
        self.damage = tuple(damage for stage in self.stages for damage in self._damage(stage))
        names = " UNION ALL ".join(
            f"SELECT {f'unnest({name})' if kind.endswith('[]') else name} AS term "  # noqa: S608
            f"FROM {_raw(stage)} WHERE no_record_of IS NULL"
            for stage in self.stages
            for name, kind in stage.terms.items()
        )
        self._db.execute(
            f"CREATE TABLE terms AS SELECT DISTINCT term FROM ({names}) WHERE term IS NOT NULL ORDER BY term"  # noqa: S608
        )
        self._db.execute("CREATE TYPE term AS ENUM (SELECT term FROM terms)")
        for stage in self.stages:
            compact = ", ".join(f"{name}::{kind} AS {name}" for name, kind in stage.terms.items())
            self._db.execute(
                f"CREATE TABLE {stage.table} AS SELECT * EXCLUDE (no_record_of) "  # noqa: S608
                f"{compact and f'REPLACE ({compact})'} FROM {_raw(stage)} WHERE no_record_of IS NULL"
            )
            self._db.execute(f"DROP TABLE {_raw(stage)}")
            self._made(stage)
            self._db.execute(
                f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_sql(stage.table)})"  # noqa: S608
            )
        self._db.execute(self.view_sql)

    def _begin(self) -> None:
        """Before the first table is made."""

    def _made(self, stage: Stage) -> None:
        """A table was made: its rows stand in the order of the files and, within one, of its lines."""

    def _called(self, path: Path) -> str:
        """The name of a file in messages."""
        return path.name

    def _damage(self, stage: Stage) -> Iterator[Damage]:
        """What lines of a kind's files are no records."""
        for file, count in self.rows(
            f"SELECT no_record_of, count(*) FROM {_raw(stage)} WHERE no_record_of IS NOT NULL "  # noqa: S608
            "GROUP BY ALL ORDER BY ALL"
        ):
            torn = int(bool(read_torn_tail(Path(file))))
            yield Damage(self._called(Path(file)), torn, count - torn)

    def _lines(self, stage: Stage, files: Sequence[str]) -> str:
        """The lines of a phase as a table expression, one parameter (the files) where there are any.

        With ``ignore_errors`` a line that is no JSON object becomes a row of NULLs, which the reader counts.
        """
        if not files:
            columns = ", ".join(f"NULL::{kind} AS {column}" for column, kind in stage.columns.items())
            return f"(SELECT {columns}, NULL::VARCHAR AS filename WHERE false)"
        columns = ", ".join(f"{column}: '{kind}'" for column, kind in stage.columns.items())
        return (
            f"read_json(?::VARCHAR[], format = 'newline_delimited', columns = {{{columns}}}, "
            f"ignore_errors = true, filename = true, maximum_object_size = {self._longest})"
        )


def _raw(stage: Stage) -> str:
    """The table of all lines of a kind's files, names as texts."""
    return f"raw_{stage.table}"


def _longest_line(path: Path) -> int:
    try:
        with path.open("rb") as lines:
            return max(map(len, lines), default=0)
    except OSError as error:
        raise store_error("read", path, error) from error


# What a run's records of them are called → the view.
_RECORDS = {"datapoints": "items", "responses": "answers", "evaluations": "judgments"}


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literally(path: Path) -> str:
    """A path that DuckDB takes as it stands: it reads ``~`` and the signs of patterns otherwise."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path.absolute()))
