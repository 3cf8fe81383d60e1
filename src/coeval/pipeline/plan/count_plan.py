"""A whole plan in numbers: what is planned and owed of each phase, task and model, and what no longer stands.

It decides the counts that ``--dry-run`` and the progress bars show, the refusal where records of
another configuration stand, and which items the run has to look at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coeval.engine.work_counts import WorkCounts
from coeval.pipeline.plan.record_status import Changed
from coeval.pipeline.plan.run_plan import Node, Plan, Spared
from coeval.pipeline.plan.walk import Walk


@dataclass(slots=True)
class PlanCount(WorkCounts):
    """``open`` has one byte per slot of the plan, in order: 1 where something is owed of it.

    ``examples`` holds the first record of each kind of change. ``unsupplied`` items lack to the totals of
    benchmark teachers, and are not among the planned ones.
    """

    changed: Counter[Changed] = field(default_factory=Counter)
    examples: dict[Changed, str] = field(default_factory=dict)
    open: bytearray = field(default_factory=bytearray)
    unsupplied: int = 0

    def add(self, task: str, node: Node) -> None:
        count = self.of(node.phase, task, node.name)
        count.planned += node.records
        if node.owed:
            count.owed += node.records
            count.calls += node.records * node.calls
        for change in node.status.changed:
            self.changed[change] += 1
            self.examples.setdefault(change, node.key)

    def spare(self, task: str, spared: Iterable[Spared]) -> None:
        for each in spared:
            count = self.of(each.phase, task, each.name)
            count.spared += each.records
            count.spared_calls += each.calls


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
