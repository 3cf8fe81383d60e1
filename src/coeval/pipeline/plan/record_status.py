"""Where a recorded item, response or evaluation stands: what of it is owed, and what no longer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from coeval.engine.role_model import RoleModel
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.record_entry import Change, Entry, EvaluationEntry
from coeval.pipeline.plan.task_setup import TaskSetup


class Changed(NamedTuple):
    """Good records that no longer stand: why, by which recipes (hashes) they were and would be made."""

    phase: Phase
    task: str
    model: str
    change: Change
    old_recipe: str = ""
    new_recipe: str = ""
    factor: str = ""


class RecordStatus(NamedTuple):
    """Whether a record is to be made (again), and why a good one would be made otherwise now.

    ``factors`` are those of an evaluation that are still to be scored.
    """

    owed: bool
    changed: tuple[Changed, ...] = ()
    factors: tuple[str, ...] = ()


SETTLED = RecordStatus(owed=False)
"""Good, and just what would be made now: there is one such object."""


class RecordStatuses(dict[Entry | None, RecordStatus]):
    """Where what ``part`` makes in a phase of a task stands, by its entry (None: not recorded).

    Worked out once for all records that are alike: they share their entry. ``redo``: good records
    that would be made otherwise now are made again; ``accepts``: they are taken as they are.
    """

    def __init__(self, phase: Phase, setup: TaskSetup, part: RoleModel, *, redo: bool, accepts: bool) -> None:
        super().__init__()
        self._phase = phase
        self._setup = setup
        self._part = part
        self._redo = redo
        self._accepts = accepts

    def __missing__(self, entry: Entry | None) -> RecordStatus:
        status = self._stand(entry)
        self[entry] = SETTLED if status == SETTLED else status
        return self[entry]

    def settles(self, entry: Entry | None) -> bool:
        return self[entry] is SETTLED

    def _stand(self, entry: Entry | None) -> RecordStatus:
        if entry is None or not entry.good:
            return RecordStatus(owed=True)
        redone = self._redo and bool(entry.change(self._part.recipe.hash))
        return RecordStatus(redone, self._change(entry))

    def _change(self, entry: Entry) -> tuple[Changed, ...]:
        now = self._part.recipe.hash
        change = "" if self._accepts else entry.change(now)
        if not change:
            return ()
        return (Changed(self._phase, self._setup.task.name, self._part.name, change, entry.recipe, now),)


class EvaluationStatuses(RecordStatuses):
    """Those of a judge's evaluations, which may hold some of the factors and lack others."""

    def _stand(self, entry: Entry | None) -> RecordStatus:
        criteria, redo = self._setup.criteria, self._redo
        if not isinstance(entry, EvaluationEntry) or not entry.good:
            return RecordStatus(bool(criteria), (), tuple(criteria))
        scored = dict(entry.scored)
        changed = self._change(entry)
        if changed:
            owed = tuple(factor for factor in criteria if redo or factor not in scored)
            return RecordStatus(bool(owed), changed, owed)
        old = [factor for factor, text in criteria.items() if scored.get(factor) not in ("", None, text)]
        owed = tuple(factor for factor in criteria if factor not in scored or (redo and factor in old))
        task, judge = self._setup.task.name, self._part.name
        noted = [] if self._accepts else old
        changed = tuple(Changed("evaluation", task, judge, "recipe", factor=factor) for factor in noted)
        return RecordStatus(bool(owed), changed, owed)


def rows_that_stand(
    rows: Iterable[int], columns: Iterable[tuple[Mapping[int, Entry], Callable[[Any], bool]]]
) -> set[int]:
    """Those of the ``rows`` of which the record in every column stands, or (None) is not wanted.

    Each column comes with how to tell that. Records that are alike share an entry, which is asked about once.
    """
    left = set(rows)
    for entries, stands in columns:
        kinds = set(entries.values())
        if fallen := {entry for entry in kinds if not stands(entry)}:
            left.difference_update([row for row, entry in entries.items() if entry in fallen])
        if not stands(None):
            left.intersection_update(entries)
    return left
