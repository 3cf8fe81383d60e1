"""The only reader of results: a run's records as DuckDB views, in memory.

Views (ids and names are VARCHAR):

``datapoints``   id, task_id, teacher_model_id, attributes MAP(VARCHAR, VARCHAR), failed
``responses``    id, datapoint_id, task_id, teacher_model_id, student_model_id, failed,
                 truncated (the answer was cut off), empty (it has no text, or only blanks)
``evaluations``  response_id, datapoint_id, task_id, teacher_model_id, student_model_id,
                 judge_model_id, failed
``asked``        one per factor that a good evaluation was asked for: the ids of its evaluation,
                 factor, value (High 1, Medium ½, Low 0; NULL where it was not scored)
``units``        those of ``asked`` with a value: one per (response, factor, judge)
``labels``       one per (response, attribute): the ids of its response, attribute, expected,
                 predicted (NULL: none of the labels), match; what the judge ``exact_match`` wrote,
                 and never among the units

``responses`` holds those whose datapoint exists (and did not fail), ``evaluations`` those whose
response stands so too; the others are counted in ``orphans``. Student, teacher and task of an
evaluation are those of its response and datapoint, so both layouts read alike.

Given what is planned, no view holds what `left_out` names: a planned task's items by teachers, its
judgments by judges and its factors that the plan has lost. All of students and tasks is there. Nor does
any hold what comes of items beyond a task's total, which `beyond_total` counts.

What is not good has ``failed``. Of records with the same id the one counts that counts in
`coeval.core.good.by_id`, by file name and then by line. A million
evaluations load in seconds and about 300 MB: ids become 128-bit hashes, names an ENUM, texts
stay on disk.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import msgspec
from numpy.typing import NDArray

from coeval.analysis.long_lines import without_long_lines
from coeval.analysis.planned_names import KINDS, BeyondTotal, Kind, LeftOut, Planned
from coeval.analysis.tables import BEYOND, STAGES, VIEWS, Stage, source
from coeval.core.errors import StoreError, UsageError
from coeval.core.good import counting_sql
from coeval.core.text import numbered
from coeval.store.jsonl import read_json, torn_tail
from coeval.store.legacy import target_attrs_file
from coeval.store.rundir import RunDir


class Damage(msgspec.Struct, frozen=True):
    """Lines of a file that hold no record: a last line cut off by a crash, and others."""

    file: str
    torn: int
    damaged: int


class Orphans(msgspec.Struct, frozen=True):
    """Records left out: responses without a good datapoint, evaluations without such a response."""

    responses: int
    evaluations: int


class _Survey(NamedTuple):
    terms: set[str]
    damage: list[Damage]


class RunReader:
    """A run's records, read once. Close it, or use it as a context manager.

    Without ``planned`` all that is on record counts.

    Raises
    ------
    UsageError
        the folder is no run.
    StoreError
        a file cannot be read at all.
    """

    def __init__(self, folder: str | Path, planned: Planned | None = None) -> None:
        self.run = RunDir(folder)
        self.planned = planned
        if not self.run.is_run():
            raise UsageError(f"{folder} is no run: it holds neither meta.json nor any phase's files")
        self.run.refuse_foreign()
        self._db = duckdb.connect(
            ":memory:",
            config={
                "temp_directory": str(Path(tempfile.gettempdir()) / f"coeval-{uuid4().hex}"),
                "autoinstall_known_extensions": False,
                "threads": 1,  # no slower on these files, and each more holds 70 MB of buffers
            },
        )
        try:
            self.damage = self._load()
            self.orphans = self._count_orphans()
            self.beyond_total = self._cut_off()  # after the count: what is left out is no orphan
            self.left_out = self._leave_out()
        except duckdb.Error as error:
            self._db.close()
            raise StoreError(f"cannot read the records of {folder}: {error}") from error

    def __enter__(self) -> RunReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query over the views (``?`` stands for a parameter)."""
        return self._db.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, NDArray[Any]]:
        """A query's columns as numpy arrays, masked where they hold NULL."""
        columns: dict[str, NDArray[Any]] = self._db.execute(sql, list(parameters)).fetchnumpy()
        return columns

    @property
    def simulated(self) -> bool:
        """Whether ``meta.json`` says that simulated models took part; an older or damaged one does not."""
        try:
            meta = read_json(self.run.meta, dict[str, Any])
        except (FileNotFoundError, StoreError):
            return False
        return meta.get("simulated") is True

    def target_attributes(self, task: str) -> dict[str, list[str]]:
        """The attribute space that phase 1 declared for a task; empty where there is no file."""
        try:
            return read_json(target_attrs_file(self.run, task), dict[str, list[str]])
        except FileNotFoundError:
            return {}

    def notes(self) -> tuple[str, ...]:
        """What was left out of the views, one sentence each, for people."""
        notes = [
            f"{damage.file}: skipped, as no whole record: {numbered(damage.torn + damage.damaged, 'line')}"
            + (" (the last one was cut off)" if damage.torn else "")
            for damage in self.damage
        ]
        if self.orphans.responses or self.orphans.evaluations:
            notes.append(
                f"not counted: {numbered(self.orphans.responses, 'response')} without a good datapoint, "
                f"{numbered(self.orphans.evaluations, 'evaluation')} without a good response"
            )
        return tuple(notes)

    def _load(self) -> tuple[Damage, ...]:
        """Two passes over the files: the names and the damage first, then the compact tables."""
        with tempfile.TemporaryDirectory(prefix="coeval-") as copies:
            files_of = {stage.phase: self.run.files(stage.phase) for stage in STAGES}
            try:
                return self._tables(files_of)
            except duckdb.InvalidInputException:  # raised by the first pass, where a line is too long
                for stage in STAGES:
                    folder = Path(copies) / stage.phase
                    folder.mkdir()
                    files_of[stage.phase] = [
                        without_long_lines(path, stage.columns, folder) for path in files_of[stage.phase]
                    ]
                return self._tables(files_of)

    def _tables(self, paths: Mapping[str, Sequence[Path]]) -> tuple[Damage, ...]:
        files_of = {phase: [_literally(path) for path in found] for phase, found in paths.items()}
        surveys = [self._plan_count(stage, files_of[stage.phase]) for stage in STAGES]
        terms = sorted(set().union(*(surveyed.terms for surveyed in surveys)))
        self._db.execute("CREATE TABLE terms AS SELECT unnest(?::VARCHAR[]) AS term", [terms])
        self._db.execute("CREATE TYPE term AS ENUM (SELECT term FROM terms)")
        for stage in STAGES:
            files = files_of[stage.phase]
            self._db.execute(
                f"CREATE TABLE {stage.table} AS SELECT {stage.select} FROM {source(stage, files)} "  # noqa: S608
                f"WHERE {stage.required} AND {stage.known}",
                [files] if files else [],
            )
            # Rows stand in the order of the files and, within one, of its lines.
            if stage.table == "datapoint":
                self._find_beyond()
            self._db.execute(
                f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_sql(stage.table)})"  # noqa: S608
            )
        self._db.execute(VIEWS)
        return tuple(damage for surveyed in surveys for damage in surveyed.damage)

    def _plan_count(self, stage: Stage, files: list[str]) -> _Survey:
        groups = self._db.execute(
            f"SELECT filename, coalesce(({stage.required}), false) AS good, {stage.terms} AS terms, count(*) "  # noqa: S608
            f"FROM {source(stage, files)} GROUP BY ALL",
            [files] if files else [],
        ).fetchall()
        bad: dict[str, int] = {}
        terms: set[str] = set()
        for file, good, found, count in groups:
            if good:
                terms.update(found)
            else:
                bad[file] = bad.get(file, 0) + count
        damage = []
        for file, count in sorted(bad.items()):
            torn = int(bool(torn_tail(Path(file))))
            damage.append(Damage(Path(file).name, torn, count - torn))
        return _Survey(terms, damage)

    def _count_orphans(self) -> Orphans:
        counts = [
            self.rows(f"SELECT (SELECT count(*) FROM {table}) - (SELECT count(*) FROM {view})")[0][0]  # noqa: S608
            for table, view in (("response", "responses"), ("evaluation", "judged"))
        ]
        return Orphans(*counts)

    def _find_beyond(self) -> None:
        limits = [
            (task, teacher, plan.total, teacher in plan.supply)
            for task, plan in (self.planned.tasks.items() if self.planned is not None else ())
            if plan.total is not None
            for teacher in plan.teachers or ()
        ]
        self._db.execute(BEYOND, [list(column) for column in zip(*limits, strict=True)] or [[]] * 4)

    def _cut_off(self) -> tuple[BeyondTotal, ...]:
        """Take the items beyond a total, and with them what was made of them, out of all views."""
        cut = self.rows(
            "SELECT task, count(*) FROM beyond WHERE NOT failed GROUP BY task ORDER BY task::VARCHAR"
        )
        self.rows("DELETE FROM datapoint WHERE key IN (SELECT key FROM beyond)")
        return tuple(BeyondTotal(task, items) for task, items in cut)

    def _leave_out(self) -> tuple[LeftOut, ...]:
        if self.planned is None:
            return ()
        recorded: dict[tuple[str, Kind], set[str]] = {}
        for task, teacher in self.rows("SELECT DISTINCT task_id, teacher_model_id FROM datapoints"):
            recorded.setdefault((task, "teacher"), set()).add(teacher)
        for task, judge, factors in self.rows(
            "SELECT DISTINCT task_id, judge_model_id, factors::VARCHAR[] FROM judged"
        ):
            recorded.setdefault((task, "judge"), set()).add(judge)
            recorded.setdefault((task, "factor"), set()).update(factors)
        left_out = []
        for kind in KINDS:
            for task, plan in sorted(self.planned.tasks.items()):
                names = plan.names(kind)
                gone = recorded.get((task, kind), set()) - names if names is not None else ()
                left_out += [LeftOut(kind, task, name) for name in sorted(gone)]
        for each in left_out:
            self.rows("INSERT INTO left_out VALUES (?, ?, ?)", [each.kind, each.task, each.name])
        return tuple(left_out)


def _literally(path: Path) -> str:
    """A path that DuckDB takes as it stands: it reads ``~`` and the signs of patterns otherwise."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path.absolute()))
