"""What a run is to hold: the items of its tasks, under its modes and its stance. `walk` goes over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from coeval.core.records import CHECK, EXACT_MATCH, id_fields, item_id, item_prefix, student_of
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Mode, Phase
from coeval.pipeline.plan.recipes import CHECK_RECIPE, label_recipe
from coeval.pipeline.plan.recorded import Change, Entry, EvaluationEntry, Recorded
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_options import ChangePolicy
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import RunDir

# --- Status of a recorded item, response or evaluation


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


EntryT = TypeVar("EntryT", bound=Entry)


class _Statuses(dict[EntryT | None, RecordStatus]):
    """Where records stand, by their entry (None: not recorded): worked out once for all that are alike, which
    share their entry."""

    def __missing__(self, entry: EntryT | None) -> RecordStatus:
        status = self._stand(entry)
        self[entry] = SETTLED if status == SETTLED else status
        return self[entry]

    def settles(self, entry: EntryT | None) -> bool:
        return self[entry] is SETTLED

    def _stand(self, entry: EntryT | None) -> RecordStatus:
        raise NotImplementedError


class RecordStatuses(_Statuses[Entry]):
    """Those of what ``part`` makes in a phase of a task. ``redo``: good records that would be made otherwise
    now are made again; ``accepts``: they are taken as they are."""

    def __init__(self, phase: Phase, setup: TaskSetup, part: RoleModel, *, redo: bool, accepts: bool) -> None:
        super().__init__()
        self._phase = phase
        self._setup = setup
        self._part = part
        self._redo = redo
        self._accepts = accepts

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


class ComputedStatuses(_Statuses[EvaluationEntry]):
    """Those of records that are computed without a model, by the judge ``name``.

    ``criteria`` are the factors of checks with their hashes; labels have none, and their ``recipe``
    alone tells. Computing costs nothing: with ``redo``, what no longer stands is computed again unasked.
    """

    def __init__(self, name: str, recipe: str, criteria: Mapping[str, str], *, redo: bool) -> None:
        super().__init__()
        self.name = name
        self._recipe = recipe
        self._criteria = criteria
        self._redo = redo

    def _stand(self, entry: EvaluationEntry | None) -> RecordStatus:
        if entry is None or not entry.good:
            return RecordStatus(owed=True, factors=tuple(self._criteria))
        changed, scored = self._redo and bool(entry.change(self._recipe)), dict(entry.scored)
        owed = tuple(
            factor
            for factor, current in self._criteria.items()
            if changed or factor not in scored or (self._redo and scored[factor] != current)
        )
        return RecordStatus(owed=True, factors=owed) if owed or changed else SETTLED


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


FLOWING: tuple[Phase, ...] = ("data_generation", "response_collection", "evaluation")
"""The phases that overlap; 1–2 come before them."""
FED_BY: Mapping[str, str] = {
    "response_collection": "data_generation",
    "evaluation": "response_collection",
}
"""Phase → the one whose records its own are made from, while they overlap."""


class Slot(NamedTuple):
    """An item of the plan: ``n`` counts from 1; ``teacher`` is None for items that are used as they lie."""

    id: str
    n: int
    teacher: RoleModel | None
    teacher_name: str


class Node(NamedTuple):
    """A planned record, or (``key`` is empty) so many ``records`` that are alike.

    ``name`` is its model's, and ``maker`` that model in its role; None where nobody is asked: for items as
    they lie, labels and checks. ``calls`` are those of each owed record. ``waits``: it is made from
    a record that is itself owed. ``entry``: the evaluation on record that it is held against.
    """

    phase: Phase
    key: str
    teacher: str
    name: str
    maker: RoleModel | None
    status: RecordStatus
    owed: bool
    calls: int = 0
    waits: bool = False
    records: int = 1
    entry: EvaluationEntry | None = None


class Spared(NamedTuple):
    """What is among the owed and is there already: it stays if what it was made from comes again the same."""

    phase: Phase
    teacher: str
    name: str
    records: int
    calls: int


class Grain:
    """Which combinations a phase's mode leaves as they are: those with any record."""

    _FIELDS: Mapping[str, tuple[int, ...]] = {
        # ids are task__teacher__n__student__judge: the places that name a combination
        "data_generation": (0, 1),
        "response_collection": (0, -1),
        "evaluation": (0, -2, -1),
    }

    def __init__(self, phase: Phase, mode: Mode, ids: Iterable[str]) -> None:
        self._places = {"Keep": (0,), "Model": self._FIELDS[phase]}.get(mode, ())
        self._left = {self._combination(id_fields(key)) for key in ids} if self._places else set()

    def _combination(self, fields: list[str]) -> tuple[str, ...]:
        return tuple(student_of(fields[place]) for place in self._places)

    def leaves(self, key: str) -> bool:
        """Whether the record ``key``, present or not, belongs to a combination left as it is."""
        return bool(self._left) and self._combination(id_fields(key)) in self._left


class Plan:
    """The planned records of phases 3–5, compared with what is recorded.

    ``only_models`` (``--only-models``): work in which none of them takes part is neither done nor counted.
    ``regenerated_ids`` are the items and responses that an earlier phase, or round, of this run has made
    again, and what was made from them since: all other records made from them are outdated.
    """

    def __init__(
        self,
        setups: Sequence[TaskSetup],
        recorded: Recorded,
        modes: Mapping[Phase, Mode],
        stance: ChangePolicy,
        only_models: frozenset[str] | None = None,
        regenerated_ids: Set[str] = frozenset(),
    ) -> None:
        self.setups = setups
        self.computes = True
        """Whether labels and checks have work too; set before anything is walked over."""
        self.regenerated_ids = regenerated_ids
        self.recorded = recorded
        self.change_policy = stance
        self._only_models = only_models
        index: dict[Phase, PhaseIndex[Entry] | PhaseIndex[EvaluationEntry]] = {
            "data_generation": recorded.items,
            "response_collection": recorded.responses,
            "evaluation": recorded.evaluations,
        }
        ids: dict[Phase, Iterable[str]] = {**index, "evaluation": chain(recorded.evaluations, recorded.pairs)}
        self._grain = {phase: Grain(phase, modes[phase], ids[phase]) for phase in FLOWING}
        self._as_it_is = {phase for phase in FLOWING if modes[phase] in ("Keep", "Model")}
        self.selective = only_models is not None or bool(self._as_it_is)
        """Whether work is left out by its models' names or by a mode, so that each id has to be asked for."""
        self._statuses: dict[tuple[Phase, str, str], RecordStatuses] = {}

    def read_again(self, folder: RunDir, regenerated_ids: Set[str]) -> None:
        """Hold the plan against what is recorded now. What its modes left as it was at first, they leave
        still: what has been made since is not for that reason left by them."""
        self.recorded = Recorded()  # what was read before goes first: it may be a million records
        self._statuses.clear()
        self.regenerated_ids = regenerated_ids
        self.recorded.read(folder)

    def takes_part(self, *models: str) -> bool:
        return self._only_models is None or not self._only_models.isdisjoint(models)

    # --- items -------------------------------------------------------------------------------

    def slots(self, setup: TaskSetup) -> Iterator[Slot]:
        """The items of a task: its teachers take turns, so that all of them are busy."""
        name, most = setup.task.name, setup.task.sampling.most
        status = self._standing_teachers(setup)
        for source in (*setup.sources, *status):
            ids = list(self.recorded.by_teacher.get((name, source), ()))
            for n, key in enumerate(ids[:most] if source in setup.sources else ids, 1):
                yield Slot(key, n, None, source)
        teachers = [teacher for teacher in setup.teachers if teacher.name not in status]
        for n in range(1, (most or 0) + 1):  # where models write items, there is a number
            for teacher in teachers:
                yield Slot(item_id(name, teacher.name, n), n, teacher, teacher.name)

    def unsupplied(self, setup: TaskSetup) -> dict[str, int]:
        """How many items of a task each of its benchmark teachers has yet to supply."""
        name, most = setup.task.name, setup.task.sampling.most or 0
        there = {s: len(self.recorded.by_teacher.get((name, s), ())) for s in setup.sources}
        return {s: max(0, most - count) for s, count in there.items() if self.takes_part(s)}

    def _standing_teachers(self, setup: TaskSetup) -> list[str]:
        """Teachers whose items are used as they lie on disk: where the mode says that the items are
        left as they are, or where the configuration names no teacher for the task."""
        recorded = [t for task, t in self.recorded.by_teacher if task == setup.task.name]
        grain = self._grain["data_generation"]
        if setup.teachers or setup.sources:
            return [
                t
                for t in recorded
                if grain.leaves(item_prefix(setup.task.name, t)) and t not in setup.sources
            ]
        return recorded

    def requested_for(self, phase: Phase, key: str, *models: str) -> bool:
        """Whether names and modes leave the record ``key``, in which ``models`` take part, to this run."""
        return not self.selective or (self.takes_part(*models) and not self._grain[phase].leaves(key))

    # --- responses and evaluations -----------------------------------------------------------

    def unanswered(self, item: str, response: str) -> bool:
        """Whether an earlier phase of this run has made the item anew, and not its response."""
        return item in self.regenerated_ids and response not in self.regenerated_ids

    def completes(self, entry: EvaluationEntry | None, judge: RoleModel | None) -> bool:
        """Whether what the judge gave before stays, so that only what it lacks is due; None: a check."""
        if entry is None or not entry.good or not entry.scored:
            return False
        recipe = CHECK_RECIPE if judge is None else judge.recipe.hash
        return self.change_policy is not ChangePolicy.REDO or not entry.change(recipe)

    def computed(self, setup: TaskSetup) -> Iterator[ComputedStatuses]:
        """Those of a task's labels and of its checks, where it has any."""
        if not self.computes:
            return
        accepted = self.change_policy is ChangePolicy.REPORT or self._accepts("evaluation")
        redo = self.change_policy is ChangePolicy.REDO or not accepted
        if setup.task.label_attributes:
            yield ComputedStatuses(EXACT_MATCH, label_recipe(setup.labels), {}, redo=redo)
        if setup.checks:
            yield ComputedStatuses(CHECK, CHECK_RECIPE, setup.check_hashes, redo=redo)

    def statuses(self, phase: Phase, setup: TaskSetup, part: RoleModel) -> RecordStatuses:
        """Those of what ``part`` makes in a phase of a task; `requested_for` is apart from them."""
        place = (phase, setup.task.name, part.name)
        known = self._statuses.get(place)
        if known is None:
            scores = phase == "evaluation" and setup.pairs is None
            kind = EvaluationStatuses if scores else RecordStatuses
            known = self._statuses[place] = kind(
                phase, setup, part, redo=self.change_policy is ChangePolicy.REDO, accepts=self._accepts(phase)
            )
        return known

    def _accepts(self, phase: Phase) -> bool:
        """Whether good records of another configuration are taken as they are."""
        return self.change_policy is ChangePolicy.KEEP or phase in self._as_it_is
