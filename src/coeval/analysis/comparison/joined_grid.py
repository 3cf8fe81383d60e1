"""The grids of two sides as one: items that ask the same are one item, and so are judges of one name.

Items are the same where the same was asked, whatever their ids; where that is not on record, where their ids
are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.compared_grid import ComparedGrid
from coeval.analysis.comparison.side import Measure, RequestedItem, Side
from coeval.analysis.intervals import Floats
from coeval.analysis.measures.near_duplicates import NearDuplicate, groups
from coeval.analysis.measures.score_grid import (
    Codes,
    GridItems,
    ScoreGrid,
    TaskDesign,
    evened,
    no_levels,
)
from coeval.core.text import numbered


class Mismatch(NamedTuple):
    """What of a task does not fit on two sides, and a sentence on it."""

    task: str
    said: str


class SharedItems(NamedTuple):
    """``codes``: of each side, by the number of an item in its grids, its number here, which is the same for
    the same item; below 0: the other side lacks its task. ``tasks``: by that number. Items of one side only
    have numbers of their own. ``clusters``: by that number, one that items share which nearly repeat each
    other on either side; None: none do."""

    codes: tuple[Codes, Codes]
    tasks: list[str]
    clusters: NDArray[np.int64] | None
    notes: tuple[Mismatch, ...]


def shared_items(a: Side, b: Side) -> SharedItems:
    """Number the items of both sides; tasks that only one has are left out."""
    of_tasks = [{item.task for item in side.items} for side in (a, b)]
    shared = of_tasks[0] & of_tasks[1]
    by_id = {item.task for side in (a, b) for item in side.items if item.content is None}
    numbers: dict[tuple[object, ...], int] = {}
    tasks: list[str] = []
    codes: list[list[int]] = []
    for side in (a, b):
        seen = Counter[tuple[object, ...]]()
        own: list[int] = []
        for item in side.items:
            if item.task not in shared:
                own.append(-1)
                continue
            what = (item.task, item.id if item.task in by_id else item.content)
            seen[what] += 1  # the same prompt may stand in a task several times
            if (place := (*what, seen[what])) not in numbers:
                numbers[place] = len(tasks)
                tasks.append(item.task)
            own.append(numbers[place])
        codes.append(own)
    notes = [
        Mismatch(task, f"only {side.place} has the task {task}: it is not compared")
        for side, found in ((a, of_tasks[0]), (b, of_tasks[1]))
        for task in sorted(found - shared)
    ]
    for task in sorted(shared):
        items = [
            {code: item for code, item in zip(own, side.items, strict=True) if item.task == task}
            for own, side in zip(codes, (a, b), strict=True)
        ]
        notes += _other_items(a, b, task, items)
        notes += _other_making(a, b, task, items)
    alike = [pair for side, own in zip((a, b), codes, strict=True) for pair in _alike(side, own)]
    clusters = groups(alike, len(tasks)) if alike else None
    of_a, of_b = (np.array(own, np.int64) for own in codes)
    return SharedItems((of_a, of_b), tasks, clusters, tuple(notes))


def _alike(side: Side, own: Sequence[int]) -> Iterator[NearDuplicate]:
    """Items that nearly repeat another one, and those that ask the very same; by their numbers."""
    kept = [(code, item) for code, item in zip(own, side.items, strict=True) if code >= 0]
    by_id = {(item.task, item.id): code for code, item in kept}
    requested: dict[tuple[str, int], int] = {}
    for code, item in kept:
        if item.alike is not None:
            yield NearDuplicate(code, by_id[item.task, item.alike], 1.0)
        if item.content is not None:
            first = requested.setdefault((item.task, item.content), code)
            if first != code:
                yield NearDuplicate(code, first, 1.0)


_ByCode = Mapping[int, RequestedItem]


def _other_items(a: Side, b: Side, task: str, items: Sequence[_ByCode]) -> list[Mismatch]:
    same = items[0].keys() & items[1].keys()
    if len(same) == len(items[0]) == len(items[1]):
        return []
    ids = [{item.id for item in found.values()} for found in items]
    alike = len(ids[0] & ids[1]) - len(same)
    only = [
        f"{len(found) - len(same):,} only {side.place}" for side, found in zip((a, b), items, strict=True)
    ]
    said = f"{task}: both have {numbered(len(same), 'item')} in common, {' and '.join(only)} has"
    if alike > 0:
        said += f" ({numbered(alike, 'id')} {'stands' if alike == 1 else 'stand'} for another prompt in each)"
    return [Mismatch(task, said)]


def _other_making(a: Side, b: Side, task: str, items: Sequence[_ByCode]) -> list[Mismatch]:
    """Of items that ask the same: where other texts stood beside the question, so that judges and labels
    had other measures on either side."""
    of_a, of_b = items
    same = of_a.keys() & of_b.keys()
    notes = []
    for what, other in (
        ("have another reference answer", {n for n in same if of_a[n].reference != of_b[n].reference}),
        ("were made for other attributes", {n for n in same if of_a[n].made_for != of_b[n].made_for}),
    ):
        if other:
            said = (
                f"{task}: {len(other):,} of {numbered(len(same), 'item')} in common {what} in {b.place} "
                f"than in {a.place}: part of the difference may be theirs"
            )
            notes.append(Mismatch(task, said))
    return notes


# --- One grid of two


JudgesByTask = Mapping[str, Collection[str] | None]


class _Columns(NamedTuple):
    """A side's rows among the judges of both; ``tasks``: of each row, among the shared ones."""

    grid: ScoreGrid
    item: Codes
    values: Floats
    checked: Floats


def joined_grid(a: Side, b: Side, measure: Measure, items: SharedItems, judges: JudgesByTask) -> ComparedGrid:
    """Two students, by their labels. ``judges``: by task, those that both have; None: they have none in
    common, and each side's are taken together, as a check would be. Weights are those of ``b``."""
    tasks = sorted(set(items.tasks))
    task = np.array([*map({name: at for at, name in enumerate(tasks)}.get, items.tasks)], np.int32)
    names = sorted({name for shared in judges.values() for name in shared or ()})
    grids = [side.grids[measure].grid for side in (a, b)]
    factors = sorted({name for grid in grids for name in grid.factors})
    of_both = [
        _columns(side, grid, codes, [judges.get(name) for name in tasks], names, task)
        for side, grid, codes in zip((a, b), grids, items.codes, strict=True)
    ]
    values = np.concatenate([own.values for own in of_both])
    there = np.isfinite(values)
    scale, place = np.unique(values[there], return_inverse=True)
    levels = no_levels((len(values), len(names)), len(scale))
    levels[there] = place
    sampled = any(grid.sample is not None for grid in grids)
    weighted = any(grid.weight is not None for grid in grids)
    return ComparedGrid(
        ScoreGrid(
            item=np.concatenate([own.item for own in of_both]),
            student=np.repeat(np.arange(2), [len(own.item) for own in of_both]),
            factor=np.concatenate([_factors_of(own.grid, factors) for own in of_both]),
            levels=levels,
            items=GridItems(
                [str(n) for n in range(len(task))], task, np.zeros_like(task), {}, items.clusters
            ),
            students=(a.label, b.label),
            judges=tuple(names),
            factors=tuple(factors),
            tasks=tuple(tasks),
            teachers=(),
            designs=tuple(_design(name, judges.get(name), grids) for name in tasks),
            scale=scale,
            checked=np.concatenate([own.checked for own in of_both]),
            sample=np.concatenate([_or_zeros(own.grid, own.grid.sample) for own in of_both])
            if sampled
            else None,
            samples={
                side.label: int(own.grid.times.max(initial=1))
                for side, own in zip((a, b), of_both, strict=True)
            },
            weight=np.concatenate([_or_zeros(own.grid, own.grid.weight) for own in of_both])
            if weighted
            else None,
        )
    )


def _or_zeros(grid: ScoreGrid, column: Codes | Floats | None) -> NDArray[np.float64] | Codes:
    return np.zeros(len(grid.item), np.int64) if column is None else column


def _columns(
    side: Side,
    grid: ScoreGrid,
    codes: Codes,
    judges: Sequence[Collection[str] | None],
    names: Sequence[str],
    task: Codes,
) -> _Columns:
    mine = (grid.student == grid.students.index(side.model)) & (codes[grid.item] >= 0)
    grid = grid.of_rows(mine)
    item = codes[grid.item]
    of_row = task[item]
    values = np.full((len(item), len(names)), np.nan)
    for place, name in enumerate(names):
        if name in grid.judges:
            given = grid.levels[:, grid.judges.index(name)]
            taken = np.array([shared is not None and name in shared for shared in judges])
            counts = (given >= 0) & taken[of_row]
            values[counts, place] = grid.values[given[counts]]
    checked = np.full(len(item), np.nan) if grid.checked is None else grid.checked
    together = np.array([shared is None for shared in judges])[of_row] & grid.valid.any(axis=1)
    if together.any():
        given = grid.levels[together]
        of_judges = (grid.values[given] * (given >= 0)).sum(axis=1) / (given >= 0).sum(axis=1)
        checked = checked.copy()
        checked[together] = of_judges
    return _Columns(grid, item, values, checked)


def _factors_of(grid: ScoreGrid, factors: Sequence[str]) -> Codes:
    place = {name: at for at, name in enumerate(factors)}
    return np.array([place[name] for name in grid.factors], np.int64)[grid.factor]


def _design(task: str, judges: Collection[str] | None, grids: Sequence[ScoreGrid]) -> TaskDesign:
    """Of a task that is weighed, the factors of the second side that the first is scored by too."""
    of_a = grids[0]
    first, second = (grid.designs[grid.tasks.index(task)] for grid in grids)
    rows = of_a.factor[of_a.task == of_a.tasks.index(task)]
    known = {of_a.factors[place] for place in np.unique(rows)} | (first.factors if first.weights else set())
    factors = second.factors & known
    weights = {name: weight for name, weight in second.weights.items() if name in factors}
    return TaskDesign(
        frozenset(judges or ()),
        frozenset(factors),
        frozenset(second.checks & factors),
        second.scales,
        evened(weights),
    )
