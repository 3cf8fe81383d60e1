"""The one walk over a plan: its records as nodes, each with who makes it, where it stands and what it takes.

Counting (`count_plan`), running (`coeval.pipeline.run_flow`) and telling what is missing
(`coeval.pipeline.upkeep.gaps`) fold these nodes, so they agree. A plan may have a million of them: what
stands, and what follows from records that are all owed, is counted, and comes at the end as one node for all
that are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from coeval.core.records import SEPARATOR, answer_name, item_part, pair_name
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.judge_form import OrderedPair, PairDesign
from coeval.pipeline.plan.recorded import Entry
from coeval.pipeline.plan.run_plan import (
    SETTLED,
    ComputedStatuses,
    Node,
    Plan,
    RecordStatus,
    RecordStatuses,
    Slot,
    Spared,
    rows_that_stand,
)
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.store.record_index import NO_ROW

Anew: TypeAlias = Callable[[Phase, str], bool]
"""Whether what is recorded by an id was made from something else than what there is now."""


def always(_: Phase, __: str) -> bool:
    """What it is made from is to be made first, and will be another."""
    return True


def never(_: Phase, __: str) -> bool:
    """What it is made from is there, or comes again the same."""
    return False


def spared_of(foreseen: Iterable[Node], real: Iterable[Node]) -> Iterator[Spared]:
    """What of the nodes that were to follow need not be made, since what they follow from is the same."""
    owed = {node.key: node.calls for node in real if node.owed}
    for node in foreseen:
        left = owed.get(node.key)
        if node.owed and left != node.calls:  # None where it is not owed at all
            yield Spared(
                node.phase, node.teacher, node.name, records=int(left is None), calls=node.calls - (left or 0)
            )


class _Maker(NamedTuple):
    """What one model makes (of a student, one of its samples): its name, how its records' ids end, where
    those that are recorded stand."""

    name: str
    suffix: str
    statuses: RecordStatuses
    part: RoleModel


class _Computed(NamedTuple):
    """What is computed of each answer without a model: comparisons of labels, or checks."""

    name: str
    suffix: str
    statuses: ComputedStatuses


class _Comparison(NamedTuple):
    """One comparison of every item: the places of its students and judge, how ids end, what is recorded."""

    of: OrderedPair
    first: int
    second: int
    judge: int
    suffix: str
    entry: Callable[[int], Entry | None]


Ready: TypeAlias = Sequence[bool | None]
"""Of each answer to an item: whether it is there, or is owed (False), or will not come (None)."""


class _Alike:
    """Of a teacher's items and what follows from them: how many records stand, and how many are made anew;
    ``whole``: the items that stand with all that follows from them."""

    def __init__(self, students: int, judges: int, computed: int) -> None:
        self.whole = self.items = self.fresh_items = self.fresh_answers = 0
        self.answers, self.verdicts, self.computed = [0] * students, [0] * judges, [0] * computed
        self.fresh_pairs = [0] * judges


class Walk:
    """The walk over one task. ``each``: every node that is owed comes by itself, so work can begin."""

    def __init__(self, plan: Plan, setup: TaskSetup, *, each: bool = False) -> None:
        self._plan = plan
        self._recorded, self._left = plan.recorded, plan.requested_for
        self._per_factor = setup.task.evaluation_mode == "per_factor"
        self._computed = [_Computed(s.name, SEPARATOR + s.name, s) for s in plan.computed(setup)]
        self._gathers = not each and not plan.selective
        self._given = setup.given
        self.unanswered: Counter[str] = Counter()
        """Answers that exist and are not there, by student; complete once `alike` was walked over."""

        def makers(phase: Phase, parts: Iterable[RoleModel]) -> list[_Maker]:
            return [
                _Maker(p.name, SEPARATOR + answer_name(p.name, k), plan.statuses(phase, setup, p), each)
                for p in parts
                for k, each in enumerate(p.split_by_sample())
            ]

        self._teachers = {maker.name: maker for maker in makers("data_generation", setup.teachers)}
        self._students = makers("response_collection", setup.students)
        self._asked = [student for student in self._students if student.name not in setup.given]
        self._judges = makers("evaluation", setup.judges)
        self._scoring = self._judges if setup.pairs is None else []
        self._comparisons = list(self._compared(setup.pairs)) if setup.pairs is not None else []
        # what is recorded of a student's answers, and of the judgments of them, by the row of the item
        self._answers = [self._recorded.responses.entry_getter(s.suffix) for s in self._students]
        self._verdicts = {
            s.suffix: [
                self._recorded.evaluations.entry_getter(s.suffix + suffix)
                for suffix in (*(j.suffix for j in self._scoring), *(c.suffix for c in self._computed))
            ]
            for s in self._students
        }
        self._alike: dict[str, _Alike] = {}
        self._spared: dict[tuple[Phase, str, str], Spared] = {}
        self._item = self._recorded.items.entry_getter("")
        self._passages = frozenset(passage.key for passage in setup.space.passages)
        self._outdated: dict[Entry, Entry] = {}
        self._setup = setup
        by_row = not (each or plan.selective or plan.regenerated_ids)
        self._whole = rows_that_stand(self._recorded.rows.values(), self._columns()) if by_row else set[int]()
        self._any_follows = bool(self._recorded.responses) or bool(self._recorded.evaluations)

    def _compared(self, design: PairDesign) -> Iterator[_Comparison]:
        place = {student.name: at for at, student in reversed([*enumerate(self._students)])}  # of sample 0
        for of in design.orders:
            for at, judge in enumerate(self._judges):
                suffix = SEPARATOR + pair_name(*of) + judge.suffix
                entry = self._recorded.pairs.entry_getter(suffix)
                yield _Comparison(of, place[of.first], place[of.second], at, suffix, entry)

    # --- items -------------------------------------------------------------------------------

    def of_slot(self, slot: Slot) -> Iterator[Node]:
        """What is owed, or to be told, of an item and of what follows from it; the rest is in `alike`."""
        row = self._recorded.rows.get(slot.id, NO_ROW)
        entry, teacher = self._item(row), slot.teacher_name
        if entry is not None and self._passages and not self._is_current(row):
            entry = self._outdated.setdefault(entry, msgspec.structs.replace(entry, fresh=False))
        status = SETTLED if slot.teacher is None else self._teachers[teacher].statuses[entry]
        owed = status.owed and self._left("data_generation", slot.id, teacher)
        good = (entry is not None and entry.good) or slot.id in self._recorded.assumed
        if not owed and not good:
            return  # left as it is, or another model's work: nothing follows from it
        alike = self._alike.get(teacher)
        if alike is None:
            counts = len(self._students), len(self._judges), len(self._computed)
            alike = self._alike[teacher] = _Alike(*counts)
        if owed or status is not SETTLED:
            yield Node("data_generation", slot.id, teacher, teacher, slot.teacher, status, owed, int(owed))
        elif row in self._whole:
            alike.whole += 1
            return
        else:
            alike.items += 1
        if not owed:
            yield from self.below_item(slot.id, teacher, never, alike=alike)
            return
        if not good and self._any_follows:
            for student in self._asked:
                self._spare(slot.id + student.suffix, (teacher, student.name), student)
        if self._gathers:
            alike.fresh_items += 1
        else:
            yield from self.below_item(slot.id, teacher, always, waits=True)

    def _is_current(self, row: int) -> bool:
        """Whether the passages that an item was made from, if any, are still there."""
        about = self._recorded.about.get(row)
        keys = about.split("+") if about else []
        return about is None or (len(keys) == self._setup.space.per_item and self._passages.issuperset(keys))

    def _columns(self) -> Iterator[tuple[Mapping[int, Entry], Callable[[Any], bool]]]:
        """What may follow from items: records by the item's row, and how to tell whether one stands."""
        answers, verdicts = self._recorded.responses.columns, self._recorded.evaluations.columns
        for student in self._students:
            yield answers[student.suffix].entries, student.statuses.settles
            for judge in self._scoring:
                yield verdicts[student.suffix + judge.suffix].entries, judge.statuses.settles
            for computed in self._computed:
                yield verdicts[student.suffix + computed.suffix].entries, computed.statuses.settles
        for each in self._comparisons:
            settles = self._judges[each.judge].statuses.settles
            yield self._recorded.pairs.columns[each.suffix].entries, settles

    # --- responses and evaluations -----------------------------------------------------------

    def below_item(
        self,
        item: str,
        teacher: str,
        anew: Anew,
        *,
        waits: bool = False,
        alike: _Alike | None = None,
        waiting: bool = True,
    ) -> Iterator[Node]:
        """What is owed, or to be told, of the answers to an item and of what follows from them; without
        ``waiting``, not what follows from answers that are themselves owed."""
        plan, row = self._plan, self._recorded.rows.get(item, NO_ROW)
        ready: list[bool | None] = [None] * len(self._students)
        for place, student in enumerate(self._students):
            key, names = item + student.suffix, (teacher, student.name)
            entry = held = self._answers[place](row)
            if entry is not None and (anew("response_collection", key) or plan.unanswered(item, key)):
                held = None
            if student.name in self._given and (held is None or not held.good):
                self.unanswered[student.name] += self._left("response_collection", key, *names)
                continue  # nobody is asked for it
            status = student.statuses[held]
            owed = status.owed and (not plan.selective or self._left("response_collection", key, *names))
            good = entry is not None and entry.good
            if not owed and not good:
                continue
            ready[place] = not owed
            if owed or status is not SETTLED:
                part, calls = student.part, int(owed)
                yield Node(
                    "response_collection", key, teacher, student.name, part, status, owed, calls, waits
                )
            elif alike is not None:
                alike.answers[place] += 1
            if not owed:
                yield from self.below_response(key, names, anew, alike=alike)
                continue
            if alike is not None and not good and self._any_follows:
                self._spare(key, names, student)
            if alike is not None and self._gathers:
                alike.fresh_answers += 1
            elif waiting:
                yield from self.below_response(key, names, always, waits=True)
        if self._comparisons:
            yield from self.pairs_of(item, teacher, ready, anew=anew is not never, alike=alike)

    def stands(self, item: str) -> Ready:
        """Whether the answers to an item are there, as they are on record; None where one is not."""
        row = self._recorded.rows.get(item, NO_ROW)
        found = (get(row) for get in self._answers)
        return [True if entry is not None and entry.good else None for entry in found]

    def pairs_of(
        self, item: str, teacher: str, ready: Ready, *, anew: bool, alike: _Alike | None = None
    ) -> Iterator[Node]:
        """What is owed, or to be told, of the comparisons of answers to an item; ``anew``: none on record
        counts. A comparison whose answer is made again is made again too, whatever the answer says."""
        plan, row = self._plan, self._recorded.rows.get(item, NO_ROW)
        for of, first, second, at, suffix, get in self._comparisons:
            if ready[first] is None or ready[second] is None:
                continue
            waits = not (ready[first] and ready[second])
            judge, key = self._judges[at], item + suffix
            entry = None if anew or waits else get(row)
            if entry is not None and plan.regenerated_ids and key not in plan.regenerated_ids:
                answers = {item + self._students[place].suffix for place in (first, second)}
                entry = None if not answers.isdisjoint(plan.regenerated_ids) else entry
            status = judge.statuses[entry]
            if status is SETTLED:
                if alike is not None:
                    alike.verdicts[at] += 1
            elif waits and alike is not None and self._gathers:
                alike.fresh_pairs[at] += 1
            else:
                owed = status.owed and self._left("evaluation", key, teacher, *of, judge.name)
                if owed or (entry is not None and entry.good):
                    yield Node(
                        "evaluation", key, teacher, judge.name, judge.part, status, owed, int(owed), waits
                    )

    def below_response(
        self,
        response: str,
        names: tuple[str, str],
        anew: Anew,
        *,
        waits: bool = False,
        alike: _Alike | None = None,
    ) -> Iterator[Node]:
        """What is owed, or to be told, of the judgments of an answer; ``names``: its teacher and student."""
        plan, teacher, item = self._plan, names[0], item_part(response, 1)
        row = self._recorded.rows.get(item, NO_ROW)
        is_regenerated = bool(plan.regenerated_ids) and response in plan.regenerated_ids
        held = [get(row) for get in self._verdicts[response[len(item) :]]]
        for place, (name, suffix, statuses, part) in enumerate(self._scoring):
            entry = held[place]
            stale = is_regenerated and response + suffix not in plan.regenerated_ids
            if entry is not None and (stale or (anew is not never and anew("evaluation", response + suffix))):
                entry = None
            status = statuses[entry]
            if status is SETTLED:  # nearly always, in a run that goes on
                if alike is not None:
                    alike.verdicts[place] += 1
                continue
            key = response + suffix
            owed = status.owed and (not plan.selective or self._left("evaluation", key, *names, name))
            if owed or (entry is not None and entry.good):
                calls = (len(status.factors) if self._per_factor else 1) if owed else 0
                yield Node("evaluation", key, teacher, name, part, status, owed, calls, waits, 1, entry)
        for place, (name, suffix, computed) in enumerate(self._computed):
            key = response + suffix
            entry = known = held[len(self._scoring) + place]
            stale = is_regenerated and key not in plan.regenerated_ids
            if known is not None and (stale or anew("evaluation", key)):
                entry = None
            status = computed[entry]
            if status.owed and (not plan.selective or self._left("evaluation", key, *names, name)):
                yield Node("evaluation", key, teacher, name, None, status, True, 0, waits, 1, entry)
            elif alike is not None and known is not None:
                alike.computed[place] += 1

    def responses_to(self, item: str) -> list[str]:
        """The ids of the answers to an item."""
        return [item + student.suffix for student in self._students]

    def judgments_of(self, response: str) -> list[str]:
        """The ids of the judgments of an answer, its labels and checks among them."""
        suffixes = (*(judge.suffix for judge in self._scoring), *(each.suffix for each in self._computed))
        return [response + suffix for suffix in suffixes]

    def pairs_with(self, response: str) -> Iterator[str]:
        """The ids of the comparisons of an answer with others."""
        item = item_part(response, 1)
        for each in self._comparisons:
            if response[len(item) :] in (self._students[at].suffix for at in (each.first, each.second)):
                yield item + each.suffix

    def _calls(self, status: RecordStatus) -> int:
        return len(status.factors) if self._per_factor else 1

    # --- what is alike -----------------------------------------------------------------------

    @property
    def spared(self) -> Iterable[Spared]:
        """Of what was walked over: a sum for each phase, teacher and model."""
        return self._spared.values()

    def alike(self) -> Iterator[Node]:
        """What was walked over and did not come by itself: one node for all that are alike."""
        return (node for node in self._counted() if node.records)

    def _counted(self) -> Iterator[Node]:
        for teacher, counts in self._alike.items():
            answers = counts.whole * len(self._students)
            yield self._all("data_generation", teacher, None, SETTLED, counts.items + counts.whole)
            for student, count in zip(self._students, counts.answers, strict=True):
                yield self._all("response_collection", teacher, student, SETTLED, count + counts.whole)
            pairs = Counter(each.judge for each in self._comparisons)
            for at, (judge, count) in enumerate(zip(self._judges, counts.verdicts, strict=True)):
                whole = counts.whole * pairs[at] if self._comparisons else answers
                yield self._all("evaluation", teacher, judge, SETTLED, count + whole)
            for computed, count in zip(self._computed, counts.computed, strict=True):
                yield self._all("evaluation", teacher, computed, SETTLED, count + answers)
            yield from self._fresh(teacher, counts)

    def _fresh(self, teacher: str, counts: _Alike) -> Iterator[Node]:
        """What follows from items and answers that are made anew: all is owed, whatever is recorded."""
        items, answers = counts.fresh_items, counts.fresh_answers
        self.unanswered.update(dict.fromkeys(self._given, items))
        for student in self._asked:
            yield self._all("response_collection", teacher, student, student.statuses[None], items)
        answers += items * len(self._asked)
        asked = {student.name for student in self._asked}
        pairs = Counter(each.judge for each in self._comparisons if asked.issuperset(each.of))
        for at, judge in enumerate(self._judges):
            made = items * pairs[at] + counts.fresh_pairs[at] if self._comparisons else answers
            yield self._all("evaluation", teacher, judge, judge.statuses[None], made)
        for computed in self._computed:
            yield self._all("evaluation", teacher, computed, computed.statuses[None], answers)

    def _all(
        self,
        phase: Phase,
        teacher: str,
        maker: _Maker | _Computed | None,
        status: RecordStatus,
        records: int,
    ) -> Node:
        name, part, calls = teacher if maker is None else maker.name, None, 0
        if isinstance(maker, _Maker):
            part = maker.part
            if status.owed:
                calls = self._calls(status) if phase == "evaluation" else 1
        return Node(phase, "", teacher, name, part, status, status.owed, calls, status.owed, records)

    def _spare(self, response: str, names: tuple[str, str], student: _Maker) -> None:
        """Note what is not made where an item, or an answer, that was lost comes again the same."""
        entry = self._recorded.responses.get(response)
        left = self._left("response_collection", response, *names)
        if entry is not None and entry.good:
            if left and student.statuses[entry].owed:
                return  # it is made again for another reason, and judged again
            if left:
                self._add_spared(Spared("response_collection", *names, 1, 1))
        elif not left:
            return
        foreseen, real = (self.below_response(response, names, anew) for anew in (always, never))
        for spared in spared_of(foreseen, real):
            self._add_spared(spared)

    def _add_spared(self, more: Spared) -> None:
        known = self._spared.get(more[:3])
        if known is not None:
            more = more._replace(records=known.records + more.records, calls=known.calls + more.calls)
        self._spared[more[:3]] = more
