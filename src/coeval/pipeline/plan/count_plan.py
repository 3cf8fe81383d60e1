"""One walk over a plan: what is planned, what is owed, and what no longer stands.

It decides the counts that ``--dry-run`` and the progress bars show, the refusal where records of
another configuration stand, and which items the run has to look at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from coeval.core.ids import SEPARATOR, evaluation_id
from coeval.engine.role_model import RoleModel
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.record_entry import Entry
from coeval.pipeline.plan.record_status import SETTLED, Changed, RecordStatus, RecordStatuses
from coeval.pipeline.plan.run_plan import FLOWING, Plan, Slot
from coeval.pipeline.plan.task_setup import TaskSetup


@dataclass(slots=True)
class PlanCount:
    """Per (phase, task): records planned, records owed, and the calls that owed ones will make.

    ``spared`` are those among the owed records, and ``spared_calls`` those among the calls, that are not made
    where a lost item comes again the same, and so keeps its answers, or a lost answer its judgments.

    ``open`` has one byte per slot of the plan, in order: 1 where something is owed of it.
    ``examples`` holds the first record of each kind of change. ``unsupplied`` items lack to the totals of
    benchmark teachers, and are not among the planned ones.
    """

    planned: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    owed: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    calls: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    spared: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    spared_calls: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    owed_of_model: Counter[str] = field(default_factory=Counter)
    changed: Counter[Changed] = field(default_factory=Counter)
    examples: dict[Changed, str] = field(default_factory=dict)
    open: bytearray = field(default_factory=bytearray)
    unsupplied: int = 0

    def phase(self, counts: Counter[tuple[Phase, str]], phase: Phase) -> int:
        return sum(count for (of, _), count in counts.items() if of == phase)


def count_plan(plan: Plan) -> PlanCount:
    """Count a whole plan. Nothing is read but the indexes."""
    found = PlanCount()
    for setup in plan.setups:
        walk = _Walk(plan, setup, found)
        for slot in plan.slots(setup):
            found.open.append(walk.item(slot))
        walk.close()
        found.unsupplied += sum(plan.unsupplied(setup).values())
    return found


@dataclass(slots=True)
class _Tally:
    planned: int = 0
    owed: int = 0
    calls: int = 0
    spared: int = 0
    spared_calls: int = 0


class _Made(NamedTuple):
    """What one model makes: its name, how its records' ids end, where those that are recorded stand."""

    name: str
    suffix: str
    statuses: RecordStatuses


class _Walk:
    """The walk over one task. It looks at a million records: what is the same for many is worked out once."""

    def __init__(self, plan: Plan, setup: TaskSetup, count_plan: PlanCount) -> None:
        self._plan = plan
        self._setup = setup
        self._plan_count = count_plan
        self._per_factor = setup.task.evaluation_mode == "per_factor"
        self._selective = plan.selective
        self._recorded = plan.recorded
        self._renewed = plan.renewed

        def made(phase: Phase, parts: Iterable[RoleModel]) -> list[_Made]:
            return [_Made(p.name, SEPARATOR + p.name, plan.statuses(phase, setup, p)) for p in parts]

        self._teachers = {p.name: plan.statuses("data_generation", setup, p) for p in setup.teachers}
        self._students = made("response_collection", setup.students)
        self._judges = made("evaluation", setup.judges)
        self._items, self._answers, self._verdicts = _Tally(), _Tally(), _Tally()
        self._any_follows = bool(self._recorded.responses) or bool(self._recorded.evaluations)
        self._fresh_items = self._fresh_answers = 0

    def item(self, slot: Slot) -> bool:
        """Count an item and what follows from it; whether anything is owed of it."""
        entry = self._recorded.items.get(slot.id)
        status = SETTLED if slot.teacher is None else self._teachers[slot.teacher_name][entry]
        owed = status.owed
        if owed and self._selective:
            owed = self._plan.asked_for("data_generation", slot.id, slot.teacher_name)
        if owed:
            self._owe(self._items, slot.teacher_name)
        elif (entry is None or not entry.good) and slot.id not in self._recorded.assumed:
            return False  # left as it is, or another model's work: nothing follows from it
        self._items.planned += 1
        if status.changed:
            self._note(slot.id, status)
        lost = owed and (entry is None or not entry.good)
        if owed and not self._selective:
            self._fresh_items += 1
            if lost and self._any_follows:
                for student in self._students:
                    self._spare_answer(slot.id + student.suffix, slot, student)
            return True
        opened = owed
        for student in self._students:
            opened |= self._answer(slot, student, renewed=owed, lost=lost)
        return opened

    def _answer(self, slot: Slot, student: _Made, *, renewed: bool, lost: bool) -> bool:
        """Count a response and its evaluations; whether anything is owed of them. ``lost``: the item was."""
        key = slot.id + student.suffix
        entry = self._recorded.responses.get(key)
        if self._renewed:
            renewed = renewed or self._plan.unanswered(slot.id, key)
        status = student.statuses[None if renewed else entry]
        names = (slot.teacher_name, student.name)
        owed = status.owed
        if owed and self._selective:
            owed = self._plan.asked_for("response_collection", key, *names)
        if owed:
            self._owe(self._answers, student.name)
        elif entry is None or not entry.good:
            return False
        self._answers.planned += 1
        if status.changed:
            self._note(key, status)
        if owed and (lost or entry is None or not entry.good):
            self._spare_answer(key, slot, student)
        if owed and not self._selective:
            self._fresh_answers += 1
            return True
        opened, get, settled = owed, self._recorded.evaluations.get, 0
        anew = owed or key in self._renewed
        for judge in self._judges:
            _, suffix, statuses = judge
            entry = None if anew else get(key + suffix)
            if statuses[entry] is SETTLED:  # nearly always, in a run that goes on
                settled += 1
            else:
                opened |= self._judge(key + suffix, names, judge, entry)
        self._verdicts.planned += settled
        if self._setup.task.label_attributes:
            opened |= self._compare(evaluation_id(key), names, renewed=anew)
        return opened

    def _spare_answer(self, key: str, slot: Slot, student: _Made) -> None:
        """Count what is not made where an item or an answer that was lost comes again the same."""
        entry, names = self._recorded.responses.get(key), (slot.teacher_name, student.name)
        if entry is not None and entry.good:
            if student.statuses[entry].owed or not self._left(key, "response_collection", *names):
                return  # it is made again for another reason, and judged again
            self._answers.spared += 1
            self._answers.spared_calls += 1
        for judge in self._judges:
            verdict = f"{key}{judge.suffix}"
            entry = self._recorded.evaluations.get(verdict)
            if entry is None or not entry.good or not self._left(verdict, "evaluation", *names, judge.name):
                continue
            foreseen, left = judge.statuses[None].factors, judge.statuses[entry].factors
            spared = bool(foreseen) - bool(left)
            self._verdicts.spared += spared
            self._verdicts.spared_calls += len(foreseen) - len(left) if self._per_factor else spared
        verdict = evaluation_id(key)
        if self._setup.task.label_attributes and verdict in self._recorded.evaluations:
            foreseen_labels = self._plan.owes_labels(verdict, self._setup, names, renewed=True)
            owed = self._plan.owes_labels(verdict, self._setup, names, renewed=False)
            self._verdicts.spared += foreseen_labels - owed

    def _left(self, key: str, phase: Phase, *models: str) -> bool:
        """Whether names and modes leave the record to this run."""
        return not self._selective or self._plan.asked_for(phase, key, *models)

    def _judge(self, key: str, names: tuple[str, str], judge: _Made, entry: Entry | None) -> bool:
        """Count an evaluation; whether it is owed."""
        status = judge.statuses[entry]
        owed = status.owed
        if owed and self._selective:
            owed = self._plan.asked_for("evaluation", key, *names, judge.name)
        if owed:
            self._owe(self._verdicts, judge.name, len(status.factors) if self._per_factor else 1)
        elif entry is None or not entry.good:
            return False
        self._verdicts.planned += 1
        if status.changed:
            self._note(key, status)
        return owed

    def _compare(self, key: str, names: tuple[str, str], *, renewed: bool) -> bool:
        """Count a label comparison, which asks nobody; whether it is owed."""
        owed = self._plan.owes_labels(key, self._setup, names, renewed=renewed)
        if owed or key in self._plan.recorded.evaluations:
            self._verdicts.planned += 1
            self._verdicts.owed += owed
        return owed

    def _follow_the_fresh(self) -> None:
        """Count what follows from items and answers that are made anew: all is owed, whatever is recorded."""
        items, answers = self._fresh_items, self._fresh_answers + self._fresh_items * len(self._students)
        self._answers.planned += items * len(self._students)
        for student in self._students if items else ():
            self._owe(self._answers, student.name, records=items)
        self._verdicts.planned += answers * len(self._judges)
        for judge in self._judges if answers else ():
            status = judge.statuses[None]
            if status.owed:
                calls = len(status.factors) if self._per_factor else 1
                self._owe(self._verdicts, judge.name, calls, records=answers)
        if self._setup.task.label_attributes:
            self._verdicts.planned += answers
            self._verdicts.owed += answers

    def _owe(self, tally: _Tally, model: str, calls: int = 1, *, records: int = 1) -> None:
        tally.owed += records
        tally.calls += calls * records
        self._plan_count.owed_of_model[model] += records

    def _note(self, key: str, status: RecordStatus) -> None:
        """Remember why a good record would be made otherwise now."""
        for change in status.changed:
            self._plan_count.changed[change] += 1
            self._plan_count.examples.setdefault(change, key)

    def close(self) -> None:
        """Add the counts to the plan_count."""
        self._follow_the_fresh()
        count_plan, task = self._plan_count, self._setup.task.name
        for phase, tally in zip(FLOWING, (self._items, self._answers, self._verdicts), strict=True):
            count_plan.planned[phase, task] += tally.planned
            count_plan.owed[phase, task] += tally.owed
            count_plan.calls[phase, task] += tally.calls
            count_plan.spared[phase, task] += tally.spared
            count_plan.spared_calls[phase, task] += tally.spared_calls
