"""The one walk over a plan: its records as nodes, each with its maker, its status and its calls.

Counting (`count_plan`), running (`coeval.pipeline.run_flow`) and reporting gaps
(`coeval.pipeline.upkeep.gaps`) all fold these nodes, so they agree. A plan may have a million records:
those that are up to date, and those that follow from owed ones, are only counted, and come at the end as
one node per group of equals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from coeval.core.records import SEPARATOR, answer_name, pair_name, strip_names
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.judge_form import OrderedPair, PairDesign
from coeval.pipeline.plan.recorded import RecordEntry
from coeval.pipeline.plan.run_plan import (
    UP_TO_DATE,
    ComputedStatuses,
    Node,
    Plan,
    RecordStatus,
    RecordStatuses,
    ReusableRecords,
    Slot,
    find_current_rows,
)
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.store.record_index import NO_ROW

IsOutdated: TypeAlias = Callable[[Phase, str], bool]
"""Tells whether the record of an id was made from something else than its source of now."""


def assume_outdated(_: Phase, __: str) -> bool:
    """Take every record as outdated: its source will be made again, with other content."""
    return True


def assume_current(_: Phase, __: str) -> bool:
    """Take every record as current: its source exists, or comes again unchanged."""
    return False


def find_reusable_records(foreseen: Iterable[Node], real: Iterable[Node]) -> Iterator[ReusableRecords]:
    """Yield what of the nodes ``foreseen`` need not be made, by the ``real`` ones: sources are unchanged."""
    owed = {node.key: node.calls for node in real if node.owed}
    for node in foreseen:
        left = owed.get(node.key)
        if node.owed and left != node.calls:  # None where it is not owed at all
            yield ReusableRecords(
                node.phase, node.teacher, node.name, records=int(left is None), calls=node.calls - (left or 0)
            )


class _ModelColumn(NamedTuple):
    """What one model makes (of one sample): its name, the suffix of ids, the statuses of recorded ones."""

    name: str
    suffix: str
    statuses: RecordStatuses
    part: RoleModel


class _RuleColumn(NamedTuple):
    """What is computed of each answer without a model: label scores, or checks."""

    name: str
    suffix: str
    statuses: ComputedStatuses


class _PairColumn(NamedTuple):
    """One comparison of every item: indices of students and judge, suffix of ids, getter of recorded ones."""

    pair: OrderedPair
    first: int
    second: int
    judge: int
    suffix: str
    entry: Callable[[int], RecordEntry | None]


AnswerStates: TypeAlias = Sequence[bool | None]
"""For each answer to an item: True: on record, False: owed, None: will not come."""


class _GroupCounts:
    """Counts of a teacher's records that need no node each: up to date, or to be regenerated; ``whole`` are
    items up to date with everything that follows from them."""

    def __init__(self, students: int, judges: int, computed: int) -> None:
        self.whole = self.items = self.fresh_items = self.fresh_answers = 0
        self.answers, self.verdicts, self.computed = [0] * students, [0] * judges, [0] * computed
        self.fresh_pairs = [0] * judges


class PlanWalk:
    """The walk over one task. ``each``: every owed node comes by itself, so work can begin."""

    def __init__(self, plan: Plan, setup: TaskSetup, *, yield_each: bool = False) -> None:
        self._plan = plan
        self._recorded, self._includes = plan.recorded, plan.includes
        self._per_factor = setup.task.evaluation_mode == "per_factor"
        self._computed = [_RuleColumn(s.name, SEPARATOR + s.name, s) for s in plan.list_rule_statuses(setup)]
        self._gathers = not yield_each and not plan.selective
        self._answered_students = setup.students_with_existing_answers
        self.unanswered: Counter[str] = Counter()
        """Missing existing answers, by student; complete once `list_nodes_of_alike_records` was consumed."""

        def makers(phase: Phase, parts: Iterable[RoleModel]) -> list[_ModelColumn]:
            return [
                _ModelColumn(
                    p.name,
                    SEPARATOR + answer_name(p.name, k),
                    plan.find_statuses(phase, setup, p),
                    yield_each,
                )
                for p in parts
                for k, yield_each in enumerate(p.split_by_sample())
            ]

        self._teachers = {maker.name: maker for maker in makers("data_generation", setup.teachers)}
        self._students = makers("response_collection", setup.students)
        answered = setup.students_with_existing_answers
        self._called_students = [student for student in self._students if student.name not in answered]
        self._judges = makers("evaluation", setup.judges)
        self._scoring = self._judges if setup.pairs is None else []
        self._comparisons = list(self._list_pair_columns(setup.pairs)) if setup.pairs is not None else []
        # what is recorded of a student's answers, and of the judgments of them, by the row of the item
        self._answers = [self._recorded.responses.entry_getter(s.suffix) for s in self._students]
        self._verdicts = {
            s.suffix: [
                self._recorded.evaluations.entry_getter(s.suffix + suffix)
                for suffix in (*(j.suffix for j in self._scoring), *(c.suffix for c in self._computed))
            ]
            for s in self._students
        }
        self._groups: dict[str, _GroupCounts] = {}
        self._reusable: dict[tuple[Phase, str, str], ReusableRecords] = {}
        self._item = self._recorded.items.entry_getter("")
        self._passages = frozenset(passage.key for passage in setup.space.passages)
        self._outdated: dict[RecordEntry, RecordEntry] = {}
        self._setup = setup
        by_row = not (yield_each or plan.selective or plan.regenerated_ids)
        self._current_rows = (
            find_current_rows(self._recorded.rows.values(), self._follower_columns())
            if by_row
            else set[int]()
        )
        self._any_follows = bool(self._recorded.responses) or bool(self._recorded.evaluations)

    def _list_pair_columns(self, design: PairDesign) -> Iterator[_PairColumn]:
        index_of = {student.name: at for at, student in reversed([*enumerate(self._students)])}  # of sample 0
        for pair in design.orders:
            for at, judge in enumerate(self._judges):
                suffix = SEPARATOR + pair_name(*pair) + judge.suffix
                entry = self._recorded.pairs.entry_getter(suffix)
                yield _PairColumn(pair, index_of[pair.first], index_of[pair.second], at, suffix, entry)

    # --- items -------------------------------------------------------------------------------

    def walk_slot(self, slot: Slot) -> Iterator[Node]:
        """Yield the owed or changed records of an item; see `list_nodes_of_alike_records` for the others."""
        row = self._recorded.rows.get(slot.id, NO_ROW)
        entry, teacher = self._item(row), slot.teacher_name
        if entry is not None and self._passages and not self._has_current_passages(row):
            entry = self._outdated.setdefault(entry, msgspec.structs.replace(entry, fresh=False))
        status = UP_TO_DATE if slot.teacher is None else self._teachers[teacher].statuses[entry]
        owed = status.owed and self._includes("data_generation", slot.id, teacher)
        good = (entry is not None and entry.good) or slot.id in self._recorded.assumed
        if not owed and not good:
            return  # left as it is, or another model's work: nothing follows from it
        group = self._groups.get(teacher)
        if group is None:
            counts = len(self._students), len(self._judges), len(self._computed)
            group = self._groups[teacher] = _GroupCounts(*counts)
        if owed or status is not UP_TO_DATE:
            yield Node("data_generation", slot.id, teacher, teacher, slot.teacher, status, owed, int(owed))
        elif row in self._current_rows:
            group.whole += 1
            return
        else:
            group.items += 1
        if not owed:
            yield from self.walk_answers_and_followers(slot.id, teacher, assume_current, group=group)
            return
        if not good and self._any_follows:
            for student in self._called_students:
                self._note_reusable_followers(slot.id + student.suffix, (teacher, student.name), student)
        if self._gathers:
            group.fresh_items += 1
        else:
            yield from self.walk_answers_and_followers(slot.id, teacher, assume_outdated, waits=True)

    def _has_current_passages(self, row: int) -> bool:
        """Check whether the passages that an item was made from, if any, still exist."""
        about = self._recorded.passage_keys_by_row.get(row)
        keys = about.split("+") if about else []
        return about is None or (len(keys) == self._setup.space.per_item and self._passages.issuperset(keys))

    def _follower_columns(self) -> Iterator[tuple[Mapping[int, RecordEntry], Callable[[Any], bool]]]:
        """Yield the recorded followers of items by row, each with the check whether one is current."""
        answers, verdicts = self._recorded.responses.columns, self._recorded.evaluations.columns
        for student in self._students:
            yield answers[student.suffix].entries, student.statuses.is_current
            for judge in self._scoring:
                yield verdicts[student.suffix + judge.suffix].entries, judge.statuses.is_current
            for computed in self._computed:
                yield verdicts[student.suffix + computed.suffix].entries, computed.statuses.is_current
        for column in self._comparisons:
            settles = self._judges[column.judge].statuses.is_current
            yield self._recorded.pairs.columns[column.suffix].entries, settles

    # --- responses and evaluations -----------------------------------------------------------

    def walk_answers_and_followers(
        self,
        item: str,
        teacher: str,
        is_outdated: IsOutdated,
        *,
        waits: bool = False,
        group: _GroupCounts | None = None,
        waiting: bool = True,
    ) -> Iterator[Node]:
        """Yield the owed or changed answers to an item, and their followers; without ``waiting``, not the
        followers of owed answers."""
        plan, row = self._plan, self._recorded.rows.get(item, NO_ROW)
        ready: list[bool | None] = [None] * len(self._students)
        for index, student in enumerate(self._students):
            key, names = item + student.suffix, (teacher, student.name)
            entry = held = self._answers[index](row)
            if entry is not None and (
                is_outdated("response_collection", key) or plan.has_outdated_answer(item, key)
            ):
                held = None
            if student.name in self._answered_students and (held is None or not held.good):
                self.unanswered[student.name] += self._includes("response_collection", key, *names)
                continue  # nobody is asked for it
            status = student.statuses[held]
            owed = status.owed and (not plan.selective or self._includes("response_collection", key, *names))
            good = entry is not None and entry.good
            if not owed and not good:
                continue
            ready[index] = not owed
            if owed or status is not UP_TO_DATE:
                part, calls = student.part, int(owed)
                yield Node(
                    "response_collection", key, teacher, student.name, part, status, owed, calls, waits
                )
            elif group is not None:
                group.answers[index] += 1
            if not owed:
                yield from self.walk_judgments(key, names, is_outdated, group=group)
                continue
            if group is not None and not good and self._any_follows:
                self._note_reusable_followers(key, names, student)
            if group is not None and self._gathers:
                group.fresh_answers += 1
            elif waiting:
                yield from self.walk_judgments(key, names, assume_outdated, waits=True)
        if self._comparisons:
            yield from self.walk_owed_pairs(
                item, teacher, ready, outdated=is_outdated is not assume_current, group=group
            )

    def find_recorded_answer_states(self, item: str) -> AnswerStates:
        """Return for each answer to an item whether it is on record: True or None."""
        row = self._recorded.rows.get(item, NO_ROW)
        entries = (get(row) for get in self._answers)
        return [True if entry is not None and entry.good else None for entry in entries]

    def walk_owed_pairs(
        self,
        item: str,
        teacher: str,
        ready: AnswerStates,
        *,
        outdated: bool,
        group: _GroupCounts | None = None,
    ) -> Iterator[Node]:
        """Yield the owed or changed comparisons of answers to an item; ``outdated``: none on record counts. A
        comparison is made again whenever one of its answers is, even if that answer comes out the same."""
        plan, row = self._plan, self._recorded.rows.get(item, NO_ROW)
        for pair, first, second, at, suffix, get in self._comparisons:
            if ready[first] is None or ready[second] is None:
                continue
            waits = not (ready[first] and ready[second])
            judge, key = self._judges[at], item + suffix
            entry = None if outdated or waits else get(row)
            if entry is not None and plan.regenerated_ids and key not in plan.regenerated_ids:
                answers = {item + self._students[index].suffix for index in (first, second)}
                entry = None if not answers.isdisjoint(plan.regenerated_ids) else entry
            status = judge.statuses[entry]
            if status is UP_TO_DATE:
                if group is not None:
                    group.verdicts[at] += 1
            elif waits and group is not None and self._gathers:
                group.fresh_pairs[at] += 1
            else:
                owed = status.owed and self._includes("evaluation", key, teacher, *pair, judge.name)
                if owed or (entry is not None and entry.good):
                    yield Node(
                        "evaluation", key, teacher, judge.name, judge.part, status, owed, int(owed), waits
                    )

    def walk_judgments(
        self,
        response: str,
        names: tuple[str, str],
        is_outdated: IsOutdated,
        *,
        waits: bool = False,
        group: _GroupCounts | None = None,
    ) -> Iterator[Node]:
        """Yield the owed or changed judgments of an answer; ``names``: its teacher and student."""
        plan, teacher, item = self._plan, names[0], strip_names(response, 1)
        row = self._recorded.rows.get(item, NO_ROW)
        is_regenerated = bool(plan.regenerated_ids) and response in plan.regenerated_ids
        held = [get(row) for get in self._verdicts[response[len(item) :]]]
        for index, (name, suffix, statuses, part) in enumerate(self._scoring):
            entry = held[index]
            stale = is_regenerated and response + suffix not in plan.regenerated_ids
            if entry is not None and (
                stale or (is_outdated is not assume_current and is_outdated("evaluation", response + suffix))
            ):
                entry = None
            status = statuses[entry]
            if status is UP_TO_DATE:  # nearly always, in a run that goes on
                if group is not None:
                    group.verdicts[index] += 1
                continue
            key = response + suffix
            owed = status.owed and (not plan.selective or self._includes("evaluation", key, *names, name))
            if owed or (entry is not None and entry.good):
                calls = (len(status.factors) if self._per_factor else 1) if owed else 0
                yield Node("evaluation", key, teacher, name, part, status, owed, calls, waits, 1, entry)
        for index, (name, suffix, computed) in enumerate(self._computed):
            key = response + suffix
            entry = recorded = held[len(self._scoring) + index]
            stale = is_regenerated and key not in plan.regenerated_ids
            if recorded is not None and (stale or is_outdated("evaluation", key)):
                entry = None
            status = computed[entry]
            if status.owed and (not plan.selective or self._includes("evaluation", key, *names, name)):
                yield Node("evaluation", key, teacher, name, None, status, True, 0, waits, 1, entry)
            elif group is not None and recorded is not None:
                group.computed[index] += 1

    def list_answer_ids(self, item: str) -> list[str]:
        return [item + student.suffix for student in self._students]

    def list_judgment_ids(self, response: str) -> list[str]:
        """List the ids of the judgments of an answer, label scores and checks included."""
        suffixes = (*(judge.suffix for judge in self._scoring), *(column.suffix for column in self._computed))
        return [response + suffix for suffix in suffixes]

    def list_pair_ids(self, response: str) -> Iterator[str]:
        item = strip_names(response, 1)
        for column in self._comparisons:
            if response[len(item) :] in (self._students[at].suffix for at in (column.first, column.second)):
                yield item + column.suffix

    # --- groups of equal records -----------------------------------------------------------------------

    @property
    def reusable(self) -> Iterable[ReusableRecords]:
        """Return the sums of reusable records so far, by phase, teacher and model."""
        return self._reusable.values()

    def list_nodes_of_alike_records(self) -> Iterator[Node]:
        """Yield the other records: one node for all of a phase, teacher and model that are alike."""
        return (node for node in self._group_nodes() if node.records)

    def _group_nodes(self) -> Iterator[Node]:
        """Yield the groups of records that are up to date, then those of regenerated ones."""
        for teacher, counts in self._groups.items():
            answers = counts.whole * len(self._students)
            yield self._make_group("data_generation", teacher, None, UP_TO_DATE, counts.items + counts.whole)
            for student, count in zip(self._students, counts.answers, strict=True):
                yield self._make_group(
                    "response_collection", teacher, student, UP_TO_DATE, count + counts.whole
                )
            pairs = Counter(column.judge for column in self._comparisons)
            for at, (judge, count) in enumerate(zip(self._judges, counts.verdicts, strict=True)):
                whole = counts.whole * pairs[at] if self._comparisons else answers
                yield self._make_group("evaluation", teacher, judge, UP_TO_DATE, count + whole)
            for computed, count in zip(self._computed, counts.computed, strict=True):
                yield self._make_group("evaluation", teacher, computed, UP_TO_DATE, count + answers)
            yield from self._group_regenerated_nodes(teacher, counts)

    def _group_regenerated_nodes(self, teacher: str, counts: _GroupCounts) -> Iterator[Node]:
        """Yield the followers of items and answers to be regenerated: all are owed, whatever is recorded."""
        items, answers = counts.fresh_items, counts.fresh_answers
        self.unanswered.update(dict.fromkeys(self._answered_students, items))
        for student in self._called_students:
            yield self._make_group("response_collection", teacher, student, student.statuses[None], items)
        answers += items * len(self._called_students)
        called = {student.name for student in self._called_students}
        pairs = Counter(column.judge for column in self._comparisons if called.issuperset(column.pair))
        for at, judge in enumerate(self._judges):
            made = items * pairs[at] + counts.fresh_pairs[at] if self._comparisons else answers
            yield self._make_group("evaluation", teacher, judge, judge.statuses[None], made)
        for computed in self._computed:
            yield self._make_group("evaluation", teacher, computed, computed.statuses[None], answers)

    def _make_group(
        self,
        phase: Phase,
        teacher: str,
        maker: _ModelColumn | _RuleColumn | None,
        status: RecordStatus,
        records: int,
    ) -> Node:
        """Make one node for this many records that are alike."""
        name, part, calls = teacher if maker is None else maker.name, None, 0
        if isinstance(maker, _ModelColumn):
            part = maker.part
            if status.owed:
                per_factor = phase == "evaluation" and self._per_factor
                calls = len(status.factors) if per_factor else 1
        return Node(phase, "", teacher, name, part, status, status.owed, calls, status.owed, records)

    def _note_reusable_followers(self, response: str, names: tuple[str, str], student: _ModelColumn) -> None:
        """Note which followers need not be made if a lost item or answer comes again unchanged."""
        entry = self._recorded.responses.get(response)
        left = self._includes("response_collection", response, *names)
        if entry is not None and entry.good:
            if left and student.statuses[entry].owed:
                return  # it is made again for another reason, and judged again
            if left:
                self._add_reusable(ReusableRecords("response_collection", *names, 1, 1))
        elif not left:
            return
        foreseen, real = (
            self.walk_judgments(response, names, is_outdated)
            for is_outdated in (assume_outdated, assume_current)
        )
        for reusable in find_reusable_records(foreseen, real):
            self._add_reusable(reusable)

    def _add_reusable(self, more: ReusableRecords) -> None:
        total = self._reusable.get(more[:3])
        if total is not None:
            more = more._replace(records=total.records + more.records, calls=total.calls + more.calls)
        self._reusable[more[:3]] = more
