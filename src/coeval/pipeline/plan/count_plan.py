"""A whole plan in numbers: what is planned and owed of each phase, task and model, and what no longer stands.

It decides the counts that ``--dry-run`` and the progress bars show, the refusal where records of
another configuration stand, and which items the run has to look at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.record_status import Changed
from coeval.pipeline.plan.run_plan import Plan
from coeval.pipeline.plan.walk import Node, Spared, Walk


@dataclass(slots=True)
class ModelCount:
    """Records planned, records owed, and the calls that owed ones will make.

    ``spared`` are those among the owed records, and ``spared_calls`` those among the calls, that are not made
    where a lost item comes again the same, and so keeps its answers, or a lost answer its judgments.
    """

    planned: int = 0
    owed: int = 0
    calls: int = 0
    spared: int = 0
    spared_calls: int = 0

    def add(self, other: ModelCount) -> None:
        self.planned += other.planned
        self.owed += other.owed
        self.calls += other.calls
        self.spared += other.spared
        self.spared_calls += other.spared_calls


@dataclass(slots=True)
class PlanCount:
    """``tallies``: by phase, task and the name of who makes the records (labels are compared by
    ``exact_match``). ``open`` has one byte per slot of the plan, in order: 1 where something is owed of it.

    ``examples`` holds the first record of each kind of change. ``unsupplied`` items lack to the totals of
    benchmark teachers, and are not among the planned ones.
    """

    tallies: dict[tuple[Phase, str, str], ModelCount] = field(default_factory=dict)
    changed: Counter[Changed] = field(default_factory=Counter)
    examples: dict[Changed, str] = field(default_factory=dict)
    open: bytearray = field(default_factory=bytearray)
    unsupplied: int = 0

    def total(
        self, phase: Phase | None = None, *, task: str | None = None, model: str | None = None
    ) -> ModelCount:
        """The sum of a phase, of a task, of a model: of all that is named."""
        found = ModelCount()
        for place, tally in self.tallies.items():
            if all(wanted in (None, part) for wanted, part in zip((phase, task, model), place, strict=True)):
                found.add(tally)
        return found

    def owing(self) -> set[str]:
        """Who is to make records that are owed."""
        return {name for (_, _, name), count in self.tallies.items() if count.owed}

    def tally(self, phase: Phase, task: str, model: str) -> ModelCount:
        return self.tallies.setdefault((phase, task, model), ModelCount())

    def add(self, task: str, node: Node) -> None:
        tally = self.tally(node.phase, task, node.name)
        tally.planned += node.records
        if node.owed:
            tally.owed += node.records
            tally.calls += node.records * node.calls
        for change in node.status.changed:
            self.changed[change] += 1
            self.examples.setdefault(change, node.key)

    def spare(self, task: str, spared: Iterable[Spared]) -> None:
        for each in spared:
            tally = self.tally(each.phase, task, each.name)
            tally.spared += each.records
            tally.spared_calls += each.calls


def count_plan(plan: Plan) -> PlanCount:
    """Count a whole plan. Nothing is read but the indexes."""
    found = PlanCount()
    for setup in plan.setups:
        walk, task = Walk(plan, setup), setup.task.name
        for slot in plan.slots(setup):
            is_open = False
            for node in walk.of_slot(slot):
                found.add(task, node)
                is_open = is_open or node.owed
            found.open.append(is_open)
        for node in walk.alike():
            found.add(task, node)
        found.spare(task, walk.spared)
        found.unsupplied += sum(plan.unsupplied(setup).values())
    return found
