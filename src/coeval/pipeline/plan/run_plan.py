"""The planned records of a run: the items of its tasks, under its modes and its policy. `walk` visits
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from coeval.core.records import CHECK, EXACT_MATCH, item_id, item_prefix, split_id, student_of
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Mode, Phase
from coeval.pipeline.plan.recipes import CHECK_RECIPE, hash_label_recipe
from coeval.pipeline.plan.recorded import Change, EvaluationEntry, RecordEntry, RunIndex
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_options import ChangePolicy
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import RunDir

# --- Status of a recorded item, response or evaluation


class ChangedRecords(NamedTuple):
    """Good records that are outdated: why, and the hashes of their recipes then and now."""

    phase: Phase
    task: str
    model: str
    change: Change
    old_recipe: str = ""
    new_recipe: str = ""
    factor: str = ""


class RecordStatus(NamedTuple):
    """Whether a record is to be made (again), and how a good one differs from one made now. ``factors`` are
    those of an evaluation that are still to be scored."""

    owed: bool
    changed: tuple[ChangedRecords, ...] = ()
    factors: tuple[str, ...] = ()


UP_TO_DATE = RecordStatus(owed=False)
"""The status of a good record that is what would be made now: there is one such object."""


EntryT = TypeVar("EntryT", bound=RecordEntry)


class _StatusCache(dict[EntryT | None, RecordStatus]):
    """Statuses by entry (None: not recorded), computed once for all records that share an entry."""

    def __missing__(self, entry: EntryT | None) -> RecordStatus:
        status = self._find_what_is_owed(entry)
        self[entry] = UP_TO_DATE if status == UP_TO_DATE else status
        return self[entry]

    def is_current(self, entry: EntryT | None) -> bool:
        return self[entry] is UP_TO_DATE

    def _find_what_is_owed(self, entry: EntryT | None) -> RecordStatus:
        raise NotImplementedError


class RecordStatuses(_StatusCache[RecordEntry]):
    """What ``part`` makes in a phase; changed records are made again (``redo``) or taken (``accepts``)."""

    def __init__(self, phase: Phase, setup: TaskSetup, part: RoleModel, *, redo: bool, accepts: bool) -> None:
        super().__init__()
        self._phase = phase
        self._setup = setup
        self._part = part
        self._redo = redo
        self._accepts_changed_records = accepts

    def _find_what_is_owed(self, entry: RecordEntry | None) -> RecordStatus:
        if entry is None or not entry.good:
            return RecordStatus(owed=True)
        redone = self._redo and bool(entry.find_recipe_or_input_change(self._part.recipe.hash))
        return RecordStatus(redone, self._find_change(entry))

    def _find_change(self, entry: RecordEntry) -> tuple[ChangedRecords, ...]:
        now = self._part.recipe.hash
        change = "" if self._accepts_changed_records else entry.find_recipe_or_input_change(now)
        if not change:
            return ()
        return (
            ChangedRecords(self._phase, self._setup.task.name, self._part.name, change, entry.recipe, now),
        )


class EvaluationStatuses(RecordStatuses):
    """Statuses of a judge's evaluations, which may have some of the factors and lack others."""

    def _find_what_is_owed(self, entry: RecordEntry | None) -> RecordStatus:
        """Compare the scored factors with the criteria of now, factor by factor."""
        criteria, redo = self._setup.criteria, self._redo
        if not isinstance(entry, EvaluationEntry) or not entry.good:
            return RecordStatus(bool(criteria), (), tuple(criteria))
        scored = dict(entry.scored)
        changed = self._find_change(entry)
        if changed:
            owed = tuple(factor for factor in criteria if redo or factor not in scored)
            return RecordStatus(bool(owed), changed, owed)
        old = [factor for factor, text in criteria.items() if scored.get(factor) not in ("", None, text)]
        owed = tuple(factor for factor in criteria if factor not in scored or (redo and factor in old))
        task, judge = self._setup.task.name, self._part.name
        noted = [] if self._accepts_changed_records else old
        changed = tuple(ChangedRecords("evaluation", task, judge, "recipe", factor=name) for name in noted)
        return RecordStatus(bool(owed), changed, owed)


class ComputedStatuses(_StatusCache[EvaluationEntry]):
    """Statuses of records that the rule-based judge ``name`` computes without a model. ``criteria`` are the
    factors of checks with their hashes; labels have none, and only their ``recipe`` counts. Computing is
    free: with ``redo``, outdated records are computed again without being asked for."""

    def __init__(self, name: str, recipe: str, criteria: Mapping[str, str], *, redo: bool) -> None:
        super().__init__()
        self.name = name
        self._recipe = recipe
        self._criteria = criteria
        self._redo = redo

    def _find_what_is_owed(self, entry: EvaluationEntry | None) -> RecordStatus:
        if entry is None or not entry.good:
            return RecordStatus(owed=True, factors=tuple(self._criteria))
        changed = self._redo and bool(entry.find_recipe_or_input_change(self._recipe))
        scored = dict(entry.scored)
        owed = tuple(
            factor
            for factor, current in self._criteria.items()
            if changed or factor not in scored or (self._redo and scored[factor] != current)
        )
        return RecordStatus(owed=True, factors=owed) if owed or changed else UP_TO_DATE


def find_current_rows(
    rows: Iterable[int], columns: Iterable[tuple[Mapping[int, RecordEntry], Callable[[Any], bool]]]
) -> set[int]:
    """Return the rows whose record in every column is current, or absent where None counts as current. Each
    column comes with its check. Records that are alike share an entry, which is checked once."""
    current_rows = set(rows)
    for entries, is_current in columns:
        kinds = set(entries.values())
        if outdated_entries := {entry for entry in kinds if not is_current(entry)}:
            current_rows -= {row for row, entry in entries.items() if entry in outdated_entries}
        if not is_current(None):
            current_rows.intersection_update(entries)
    return current_rows


FLOWING: tuple[Phase, ...] = ("data_generation", "response_collection", "evaluation")
"""The phases that overlap; 1–2 come before them."""
FED_BY: Mapping[str, str] = {"response_collection": "data_generation", "evaluation": "response_collection"}
"""Phase → the one whose records its own are made from, while they overlap."""


class Slot(NamedTuple):
    """A planned item: ``n`` counts from 1; ``teacher`` is None if the item is used as it is."""

    id: str
    n: int
    teacher: RoleModel | None
    teacher_name: str


class Node(NamedTuple):
    """A planned record, or (``key`` is empty) a group of ``records`` that are alike.

    ``name`` is its model's, ``maker`` that model in its role; None if no model is called: supplied items,
    labels, checks. ``calls`` are per owed record. ``waits``: it is made from a record that is itself owed.
    ``entry``: the evaluation on record.
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


class ReusableRecords(NamedTuple):
    """Owed records that are on disk: they stay if what they were made from comes again unchanged."""

    phase: Phase
    teacher: str
    name: str
    records: int
    calls: int


class KeptCombinations:
    """The combinations of task and models that a phase's mode leaves as they are: those with any record."""

    _FIELDS: Mapping[str, tuple[int, ...]] = {
        # ids are task__teacher__n__student__judge: the places that name a combination
        "data_generation": (0, 1),
        "response_collection": (0, -1),
        "evaluation": (0, -2, -1),
    }

    def __init__(self, phase: Phase, mode: Mode, ids: Iterable[str]) -> None:
        self._places = {"Keep": (0,), "Model": self._FIELDS[phase]}.get(mode, ())
        self._left = {self._combination(split_id(key)) for key in ids} if self._places else set()

    def _combination(self, fields: list[str]) -> tuple[str, ...]:
        return tuple(student_of(fields[index]) for index in self._places)

    def keeps(self, key: str) -> bool:
        """Check whether the combination of the record ``key``, present or not, is left as it is."""
        return bool(self._left) and self._combination(split_id(key)) in self._left


class Plan:
    """The planned records of phases 3–5, compared with what is recorded.

    ``only_models`` (``--only-models``): work in which none of them takes part is neither done nor counted.
    ``regenerated_ids`` are the items and responses that an earlier phase, or round, of this run has made
    again, and what was made from them since: all other records made from them are outdated.
    """

    def __init__(
        self,
        setups: Sequence[TaskSetup],
        recorded: RunIndex,
        modes: Mapping[Phase, Mode],
        change_policy: ChangePolicy,
        only_models: frozenset[str] | None = None,
        regenerated_ids: Set[str] = frozenset(),
    ) -> None:
        self.setups = setups
        self.scores_by_rule = True
        """Whether labels and checks are scored too; set before the plan is walked."""
        self.regenerated_ids = regenerated_ids
        self.recorded = recorded
        self.change_policy = change_policy
        self._only_models = only_models
        index: dict[Phase, PhaseIndex[RecordEntry] | PhaseIndex[EvaluationEntry]] = {
            "data_generation": recorded.items,
            "response_collection": recorded.responses,
            "evaluation": recorded.evaluations,
        }
        ids: dict[Phase, Iterable[str]] = {**index, "evaluation": chain(recorded.evaluations, recorded.pairs)}
        self._grain = {phase: KeptCombinations(phase, modes[phase], ids[phase]) for phase in FLOWING}
        self._kept_phases = {phase for phase in FLOWING if modes[phase] in ("Keep", "Model")}
        self.selective = only_models is not None or bool(self._kept_phases)
        """Whether names or modes leave out work, so that each id has to be checked."""
        self._statuses: dict[tuple[Phase, str, str], RecordStatuses] = {}

    def reread_records(self, folder: RunDir, regenerated_ids: Set[str]) -> None:
        """Read the records again; what modes leave as it was is still decided by those at first."""
        self.recorded = RunIndex()  # what was read before goes first: it may be a million records
        self._statuses.clear()
        self.regenerated_ids = regenerated_ids
        self.recorded.read(folder)

    def includes_any(self, *models: str) -> bool:
        return self._only_models is None or not self._only_models.isdisjoint(models)

    # --- items -------------------------------------------------------------------------------

    def list_slots(self, setup: TaskSetup) -> Iterator[Slot]:
        """Yield the items of a task; teachers take turns, so that all are busy."""
        name, most = setup.task.name, setup.task.sampling.max_items
        status = self._list_teachers_whose_items_stay(setup)
        for source in (*setup.sources, *status):
            ids = list(self.recorded.items_by_teacher.get((name, source), ()))
            for n, key in enumerate(ids[:most] if source in setup.sources else ids, 1):
                yield Slot(key, n, None, source)
        teachers = [teacher for teacher in setup.teachers if teacher.name not in status]
        for n in range(1, (most or 0) + 1):  # where models write items, there is a number
            for teacher in teachers:
                yield Slot(item_id(name, teacher.name, n), n, teacher, teacher.name)

    def count_unsupplied_items(self, setup: TaskSetup) -> dict[str, int]:
        """Count the items of a task that each benchmark teacher has yet to supply."""
        name, most = setup.task.name, setup.task.sampling.max_items or 0
        supplied = {s: len(self.recorded.items_by_teacher.get((name, s), ())) for s in setup.sources}
        return {s: max(0, most - count) for s, count in supplied.items() if self.includes_any(s)}

    def _list_teachers_whose_items_stay(self, setup: TaskSetup) -> list[str]:
        """List teachers whose items are used as they are: the mode keeps them, or the file names none."""
        recorded = [t for task, t in self.recorded.items_by_teacher if task == setup.task.name]
        grain = self._grain["data_generation"]
        if setup.teachers or setup.sources:
            task = setup.task.name
            return [t for t in recorded if grain.keeps(item_prefix(task, t)) and t not in setup.sources]
        return recorded

    def includes(self, phase: Phase, key: str, *models: str) -> bool:
        """Check whether names and modes leave the record ``key``, of these ``models``, to this run."""
        return not self.selective or (self.includes_any(*models) and not self._grain[phase].keeps(key))

    # --- responses and evaluations -----------------------------------------------------------

    def has_outdated_answer(self, item: str, response: str) -> bool:
        """Check whether this run has regenerated the item, but not its response."""
        return item in self.regenerated_ids and response not in self.regenerated_ids

    def can_keep_scores(self, entry: EvaluationEntry | None, judge: RoleModel | None) -> bool:
        """Check whether a judge's earlier scores stay, and only missing factors are due; None is a check."""
        if entry is None or not entry.good or not entry.scored:
            return False
        recipe = CHECK_RECIPE if judge is None else judge.recipe.hash
        return self.change_policy is not ChangePolicy.REDO or not entry.find_recipe_or_input_change(recipe)

    def list_rule_statuses(self, setup: TaskSetup) -> Iterator[ComputedStatuses]:
        """Yield the statuses of a task's labels and of its checks, if it has any."""
        if not self.scores_by_rule:
            return
        accepted = self.change_policy is ChangePolicy.REPORT or self._accepts_changed_records("evaluation")
        redo = self.change_policy is ChangePolicy.REDO or not accepted
        if setup.task.label_attributes:
            yield ComputedStatuses(EXACT_MATCH, hash_label_recipe(setup.labels), {}, redo=redo)
        if setup.checks:
            yield ComputedStatuses(CHECK, CHECK_RECIPE, setup.check_hashes, redo=redo)

    def find_statuses(self, phase: Phase, setup: TaskSetup, part: RoleModel) -> RecordStatuses:
        """Return the statuses of what ``part`` makes in a phase; whether it `includes` it is another
        question."""
        key = (phase, setup.task.name, part.name)
        statuses = self._statuses.get(key)
        if statuses is None:
            scores = phase == "evaluation" and setup.pairs is None
            kind = EvaluationStatuses if scores else RecordStatuses
            statuses = self._statuses[key] = kind(
                phase,
                setup,
                part,
                redo=self.change_policy is ChangePolicy.REDO,
                accepts=self._accepts_changed_records(phase),
            )
        return statuses

    def _accepts_changed_records(self, phase: Phase) -> bool:
        """Check whether good records of another configuration are taken as they are."""
        return self.change_policy is ChangePolicy.KEEP or phase in self._kept_phases
