"""Where a recorded item, response or evaluation stands: what of it is owed, and what no longer holds."""

from __future__ import annotations

from typing import NamedTuple

from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.recorded import Change, Entry, EvaluationEntry
from coeval.pipeline.plan.task_setup import Part, Scene


class Changed(NamedTuple):
    """Good records that no longer stand: why, by which recipes (hashes) they were and would be made."""

    phase: Phase
    task: str
    model: str
    change: Change
    old_recipe: str = ""
    new_recipe: str = ""
    factor: str = ""


class Standing(NamedTuple):
    """Whether a record is to be made (again), and why a good one would be made otherwise now.

    ``factors`` are those of an evaluation that are still to be scored.
    """

    owed: bool
    changed: tuple[Changed, ...] = ()
    factors: tuple[str, ...] = ()


SETTLED = Standing(owed=False)
"""Good, and just what would be made now: there is one such object."""


class Standings(dict[Entry | None, Standing]):
    """Where what ``part`` makes in a phase of a task stands, by its entry (None: not recorded).

    Worked out once for all records that are alike: they share their entry. ``redo``: good records
    that would be made otherwise now are made again; ``accepts``: they are taken as they are.
    """

    def __init__(self, phase: Phase, scene: Scene, part: Part, *, redo: bool, accepts: bool) -> None:
        super().__init__()
        self._phase = phase
        self._scene = scene
        self._part = part
        self._redo = redo
        self._accepts = accepts

    def __missing__(self, entry: Entry | None) -> Standing:
        standing = self._stand(entry)
        self[entry] = SETTLED if standing == SETTLED else standing
        return self[entry]

    def _stand(self, entry: Entry | None) -> Standing:
        if entry is None or not entry.good:
            return Standing(owed=True)
        redone = self._redo and bool(entry.change(self._part.recipe.hash))
        return Standing(redone, self._change(entry))

    def _change(self, entry: Entry) -> tuple[Changed, ...]:
        now = self._part.recipe.hash
        change = "" if self._accepts else entry.change(now)
        if not change:
            return ()
        return (Changed(self._phase, self._scene.task.name, self._part.name, change, entry.recipe, now),)


class EvaluationStandings(Standings):
    """Those of a judge's evaluations, which may hold some of the factors and lack others."""

    def _stand(self, entry: Entry | None) -> Standing:
        criteria, redo = self._scene.criteria, self._redo
        if not isinstance(entry, EvaluationEntry) or not entry.good:
            return Standing(bool(criteria), (), tuple(criteria))
        scored = dict(entry.scored)
        changed = self._change(entry)
        if changed:
            owed = tuple(factor for factor in criteria if redo or factor not in scored)
            return Standing(bool(owed), changed, owed)
        old = [factor for factor, text in criteria.items() if scored.get(factor) not in ("", None, text)]
        owed = tuple(factor for factor in criteria if factor not in scored or (redo and factor in old))
        task, judge = self._scene.task.name, self._part.name
        noted = [] if self._accepts else old
        changed = tuple(Changed("evaluation", task, judge, "recipe", factor=factor) for factor in noted)
        return Standing(bool(owed), changed, owed)
