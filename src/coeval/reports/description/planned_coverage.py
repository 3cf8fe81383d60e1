"""What the items of a task will cover: the sampling plan drawn as a run draws it, and what it cannot hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from coeval.core.text import listed
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.sampling.samples import Samples

__all__ = ["MOST_DRAWN", "PlannedCoverage", "planned_coverage"]

MOST_DRAWN = 20_000
"""Items of a teacher that are drawn; what so many cover says how the rest is spread."""


class PlannedCoverage(NamedTuple):
    """``items`` are those of the plan, ``drawn`` those of which the attributes are known. ``target`` and
    ``nuance`` count the items of each declared value, by attribute; ``pairs`` of all pairs of values of two
    target attributes, ``held`` occur. ``shortfalls`` say what the number of items cannot cover."""

    items: int
    drawn: int
    target: dict[str, dict[str, int]]
    nuance: dict[str, dict[str, int]]
    pairs: int
    held: int
    shortfalls: tuple[str, ...]

    @property
    def values(self) -> int:
        return sum(map(len, self.target.values()))

    @property
    def values_held(self) -> int:
        return sum(1 for counts in self.target.values() for count in counts.values() if count)

    def lacking(self) -> str:
        """What of the declared values and of their pairs no item has, in words; empty where nothing is."""
        absent = [
            f"{attribute} = {value}"
            for attribute, counts in self.target.items()
            for value, items in counts.items()
            if not items
        ]
        if absent:
            return f"no item has {listed(absent)}"
        if self.held < self.pairs:
            return f"{self.held:,} of {self.pairs:,} pairs of values of two attributes occur"
        return ""


def planned_coverage(setup: TaskSetup, preview: Preview) -> PlannedCoverage:
    """Draw the items that teachers are to write, and count those that lie there."""
    space = setup.space
    target, nuance = _none_of(space.target), _none_of(space.nuance)
    met: set[tuple[str, str, str, str]] = set()
    drawn = 0
    for (of_target, of_nuance), times in _drawn(setup, preview).items():
        drawn += times
        for counts, held in ((target, of_target), (nuance, of_nuance)):
            for name, value in held:
                if value in counts.get(name, {}):
                    counts[name][value] += times
        met.update((*one, *other) for one, other in combinations(sorted(of_target), 2))
    sizes = [len(values) for values in target.values()]
    declared = {(name, value) for name, values in target.items() for value in values}
    held_pairs = sum(1 for a, v, b, w in met if (a, v) in declared and (b, w) in declared)
    return PlannedCoverage(
        items=preview.plan_count.total("data_generation", task=setup.task.name).planned,
        drawn=drawn,
        target=target,
        nuance=nuance,
        pairs=sum(one * other for one, other in combinations(sizes, 2)),
        held=held_pairs,
        shortfalls=tuple(setup.shortfalls()),
    )


_Alike = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Target attributes and nuance of items."""


def _none_of(attributes: Mapping[str, list[str]]) -> dict[str, dict[str, int]]:
    return {name: dict.fromkeys(values, 0) for name, values in attributes.items()}


def _drawn(setup: TaskSetup, preview: Preview) -> Counter[_Alike]:
    """How many items have each combination of attributes."""
    found: Counter[_Alike] = Counter()
    task, recorded = setup.task, preview.plan.recorded
    for source in setup.sources:
        for key, attributes in recorded.by_teacher.get((task.name, source), {}).items():
            if key not in recorded.assumed:
                found[tuple(attributes.items()), ()] += 1
    if not (setup.space.target or setup.space.nuance):
        return found
    for teacher in setup.teachers:
        samples = Samples(setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher.name)
        for n in range(1, min(task.sampling.most or 0, MOST_DRAWN) + 1):
            sample = samples.item(n)
            found[tuple(sample.target.items()), tuple(sample.nuance.items())] += 1
    return found
