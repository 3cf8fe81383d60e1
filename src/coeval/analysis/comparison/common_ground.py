"""Which items and judges two sides have in common, and what is told where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.judged_apart import JudgedApart
from coeval.analysis.comparison.side import AskedItem, Side
from coeval.analysis.measures.benchmark.near_duplicates import NearDuplicate, groups
from coeval.core.text import numbered


class SharedItems(NamedTuple):
    """``codes``: of each side, from the hash of an item to its number, which is the same for the same item;
    ``tasks``: by that number. Items of one side only have numbers of their own. ``clusters``: by that number,
    one that items share which nearly repeat each other on either side; None: none do."""

    codes: tuple[Mapping[int, int], Mapping[int, int]]
    tasks: list[str]
    clusters: NDArray[np.int64] | None
    notes: tuple[str, ...]

    def by_task(self) -> dict[str, frozenset[int]]:
        found: dict[str, set[int]] = {}
        for number, task in enumerate(self.tasks):
            found.setdefault(task, set()).add(number)
        return {task: frozenset(numbers) for task, numbers in found.items()}


def shared_items(a: Side, b: Side) -> SharedItems:
    """Number the items of both sides; tasks that only one has are left out."""
    of_tasks = [{item.task for item in side.items.values()} for side in (a, b)]
    shared = of_tasks[0] & of_tasks[1]
    by_id = {item.task for side in (a, b) for item in side.items.values() if item.content is None}
    numbers: dict[tuple[object, ...], int] = {}
    tasks: list[str] = []
    codes: list[dict[int, int]] = []
    for side in (a, b):
        seen = Counter[tuple[object, ...]]()
        own: dict[int, int] = {}
        for key, item in side.items.items():
            if item.task not in shared:
                continue
            what = (item.task, item.id if item.task in by_id else item.content)
            seen[what] += 1  # the same prompt may stand in a task several times
            if (place := (*what, seen[what])) not in numbers:
                numbers[place] = len(tasks)
                tasks.append(item.task)
            own[key] = numbers[place]
        codes.append(own)
    notes = [
        f"only {side.place} has the task {task}: it is not compared"
        for side, found in ((a, of_tasks[0]), (b, of_tasks[1]))
        for task in sorted(found - shared)
    ]
    for task in sorted(shared):
        notes += _other_items(a, b, task, codes)
        notes += _other_making(a, b, task, codes)
    alike = [pair for side, own in zip((a, b), codes, strict=True) for pair in _alike(side, own)]
    clusters = groups(alike, len(tasks)) if alike else None
    return SharedItems((codes[0], codes[1]), tasks, clusters, tuple(notes))


def _alike(side: Side, own: Mapping[int, int]) -> Iterator[NearDuplicate]:
    """Items that nearly repeat another one, and those that ask the very same; by their numbers."""
    by_id = {(item.task, item.id): own[key] for key, item in side.items.items() if key in own}
    asked: dict[tuple[str, int], int] = {}
    for key, item in side.items.items():
        if key not in own:
            continue
        if item.alike is not None:
            yield NearDuplicate(own[key], by_id[item.task, item.alike], 1.0)
        if item.content is not None:
            first = asked.setdefault((item.task, item.content), own[key])
            if first != own[key]:
                yield NearDuplicate(own[key], first, 1.0)


def _other_items(a: Side, b: Side, task: str, codes: list[dict[int, int]]) -> list[str]:
    items = [_of_task(side, task) for side in (a, b)]
    same = {codes[0][key] for key in items[0]} & {codes[1][key] for key in items[1]}
    if len(same) == len(items[0]) == len(items[1]):
        return []
    ids = [{item.id for item in found.values()} for found in items]
    alike = len(ids[0] & ids[1]) - len(same)
    only = [
        f"{len(found) - len(same):,} only {side.place}" for side, found in zip((a, b), items, strict=True)
    ]
    said = f"{task}: both have {numbered(len(same), 'item')} in common, {' and '.join(only)} has"
    return [
        said
        + (
            f" ({numbered(alike, 'id')} {'stands' if alike == 1 else 'stand'} for another prompt in each)"
            if alike > 0
            else ""
        )
    ]


def _other_making(a: Side, b: Side, task: str, codes: list[dict[int, int]]) -> list[str]:
    """Of items that ask the same: where other texts stood beside the question, so that judges and labels
    had other measures on either side."""
    of_a, of_b = (
        {own[key]: item for key, item in _of_task(side, task).items()}
        for side, own in zip((a, b), codes, strict=True)
    )
    same = of_a.keys() & of_b.keys()
    notes = []
    for what, other in (
        ("have another reference answer", {n for n in same if of_a[n].reference != of_b[n].reference}),
        ("were made for other attributes", {n for n in same if of_a[n].made_for != of_b[n].made_for}),
    ):
        if other:
            notes.append(
                f"{task}: {len(other):,} of {numbered(len(same), 'item')} in common {what} in {b.place} "
                f"than in {a.place}: part of the difference may be theirs"
            )
    return notes


def _of_task(side: Side, task: str) -> dict[int, AskedItem]:
    return {key: item for key, item in side.items.items() if item.task == task}


class SharedJudges(NamedTuple):
    """By task, the judges that both sides have, or None where they have none in common: then each side's
    judges are taken together. ``apart`` says who judged one side only, ``notes`` who judged otherwise."""

    by_task: Mapping[str, Collection[str] | None]
    apart: tuple[JudgedApart, ...]
    notes: tuple[str, ...]

    def codes(self, side: Side, tasks: list[str]) -> dict[tuple[int, int], int]:
        """By place in ``tasks`` and the hash of a judge (0: nobody judges), a number that is the same on both
        sides; judges that are left out have none."""
        numbers = {name: number for number, name in enumerate(sorted(_judge_names(self.by_task)), start=1)}
        found: dict[tuple[int, int], int] = {}
        for place, task in enumerate(tasks):
            found[place, 0] = 0
            shared = self.by_task.get(task)
            for key, name in side.judges.items():
                if shared is None:
                    found[place, key] = 0
                elif name in shared:
                    found[place, key] = numbers[name]
        return found

    def taken(self, a: Side, b: Side) -> dict[str, Collection[str]]:
        """By task, whose scores are compared: of judges who are taken together, all of them."""
        return {
            task: {judge for side in (a, b) for at, judge in side.methods if at == task}
            if shared is None
            else shared
            for task, shared in self.by_task.items()
        }


def _judge_names(by_task: Mapping[str, Collection[str] | None]) -> set[str]:
    return {name for names in by_task.values() for name in names or ()}


def shared_judges(a: Side, b: Side) -> SharedJudges:
    """Who judged both, and whether they judged alike."""
    by_task: dict[str, Collection[str] | None] = {}
    apart, notes = [], list[str]()
    for task in sorted({task for task, _ in a.methods} & {task for task, _ in b.methods}):
        of_a, of_b = ({judge for at, judge in side.methods if at == task} for side in (a, b))
        both = of_a & of_b
        by_task[task] = both or None
        if of_a != of_b:
            only_a, only_b = tuple(sorted(of_a - both)), tuple(sorted(of_b - both))
            apart.append(JudgedApart(task, (a.label, b.label), (only_a, only_b), nobody_both=not both))
        notes += [
            f"{task}: {judge} judged {b.place} by another recipe (model, parameters, prompt) than {a.place}"
            for judge in sorted(both)
            if a.methods[task, judge] != b.methods[task, judge]
        ]
    return SharedJudges(by_task, tuple(apart), tuple(notes))


def other_rubrics(a: Side, b: Side) -> tuple[str, ...]:
    """The factors that go by the same name and ask for something else."""
    return tuple(
        f"{task}: the factor {factor} is described otherwise for {b.place} than for {a.place}"
        for task in sorted(a.rubrics.keys() & b.rubrics.keys())
        for factor in sorted(a.rubrics[task].keys() & b.rubrics[task].keys())
        if a.rubrics[task][factor] != b.rubrics[task][factor]
    )
