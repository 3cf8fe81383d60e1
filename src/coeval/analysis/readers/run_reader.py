"""The reader of a run folder; its views are those of `coeval.analysis.load`.

``answers`` holds those whose item is there and did not fail, ``judgments`` and ``scores`` those whose answer
stands so too; the others are counted in ``orphans``. Model, teacher and task of a judgment are those of its
answer and item, so both layouts read alike.

Given what is planned, no view holds what `left_out` names: a planned task's items by teachers, its
judgments by judges and its factors that the plan has lost. All of students and tasks is there. Nor does
any hold what comes of items beyond a task's total, which `beyond_total` counts.

A million judgments load in seconds and about 300 MB: ids become 128-bit hashes, names an ENUM, texts
stay on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.measures.benchmark.item_texts import item_texts
from coeval.analysis.measures.benchmark.near_duplicates import groups, near_duplicates
from coeval.analysis.planned_names import KINDS, BeyondTotal, Kind, LeftOut, Planned
from coeval.analysis.readers.reader import Reader, Stage
from coeval.analysis.readers.run_tables import BEYOND, STAGES, VIEWS
from coeval.core.errors import StoreError, UsageError
from coeval.core.text import numbered
from coeval.store.jsonl import read_json
from coeval.store.legacy import declared_attributes
from coeval.store.rundir import RunDir


class Orphans(msgspec.Struct, frozen=True):
    """Records left out: responses without a good datapoint, evaluations without such a response."""

    responses: int
    evaluations: int


class Twin(NamedTuple):
    """An item whose prompt is nearly that of an earlier one of its task, ``of``, and the ``first`` of all
    that are alike."""

    of: str
    first: str


class RunReader(Reader):
    """A run's records. Without ``planned`` all that is on record counts.

    Raises
    ------
    UsageError
        the folder is no run.
    StoreError
        a file cannot be read at all.
    """

    views: ClassVar = ("items", "answers", "judgments", "scores", "labels")
    stages: ClassVar = STAGES
    view_sql: ClassVar = VIEWS

    def __init__(self, folder: str | Path, planned: Planned | None = None) -> None:
        self.run = RunDir(folder)
        self.planned = planned
        if not self.run.is_run():
            raise UsageError(f"{folder} is no run: it holds neither meta.json nor any phase's files")
        self.run.refuse_unreadable()
        super().__init__(self.run.path)
        with self._loading():
            self._load({stage.files: self.run.files(stage.files) for stage in self.stages})
            self.orphans = self._count_orphans()
            self.beyond_total = self._cut_off()  # after the count: what is left out is no orphan
            self.left_out = self._leave_out()

    @property
    def simulated(self) -> bool:
        """Whether ``meta.json`` says that simulated models took part; an older or damaged one does not."""
        try:
            meta = read_json(self.run.meta, dict[str, Any])
        except (FileNotFoundError, StoreError):
            return False
        return meta.get("simulated") is True

    @cached_property
    def twins(self) -> Mapping[str, Twin]:
        """By item, those that nearly repeat another one; read from the files when first asked for."""
        items = self.rows("SELECT task::VARCHAR, id FROM planned WHERE NOT failed ORDER BY id")
        texts = item_texts(self.run, [item for _, item in items])
        of_task: dict[str, list[str]] = {}
        for task, item in items:
            of_task.setdefault(task, []).append(item)
        found: dict[str, Twin] = {}
        for ids in of_task.values():
            alike = near_duplicates([(texts[item].prompt or "") if item in texts else "" for item in ids])
            first = groups(alike, len(ids))
            found |= {ids[one.place]: Twin(ids[one.of], ids[first[one.place]]) for one in alike}
        return found

    @property
    def names_sql(self) -> str:
        """What `clusters_of` wants of the items of a group, as a column of a query over them."""
        return "list(item ORDER BY item)" if self.twins else "NULL"

    def clusters_of(self, items: Sequence[str] | None) -> NDArray[np.int64] | None:
        """(items,): a number for each, which those that nearly repeat each other share; None: none do."""
        if items is None or not self.twins:
            return None
        places = {item: place for place, item in enumerate(items)}
        first = [self.twins[item].first if item in self.twins else item for item in items]
        return np.array([places.setdefault(item, len(places)) for item in first], np.int64)

    def target_attributes(self, task: str) -> dict[str, list[str]]:
        """The attribute space that phase 1 declared for a task; empty where there is no file."""
        return declared_attributes(self.run, task)

    def notes(self) -> tuple[str, ...]:
        notes = super().notes()
        if self.orphans.responses or self.orphans.evaluations:
            notes += (
                f"not counted: {numbered(self.orphans.responses, 'response')} without a good datapoint, "
                f"{numbered(self.orphans.evaluations, 'evaluation')} without a good response",
            )
        return notes

    def _made(self, stage: Stage) -> None:
        if stage.table == "datapoint":
            self._find_beyond()

    def _count_orphans(self) -> Orphans:
        counts = [
            self.rows(f"SELECT (SELECT count(*) FROM {table}) - (SELECT count(*) FROM {view})")[0][0]  # noqa: S608
            for table, view in (("response", "answers"), ("evaluation", "judged"))
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
        for task, teacher in self.rows("SELECT DISTINCT task, teacher FROM items"):
            recorded.setdefault((task, "teacher"), set()).add(teacher)
        for task, judge, factors in self.rows("SELECT DISTINCT task, judge, factors::VARCHAR[] FROM judged"):
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
