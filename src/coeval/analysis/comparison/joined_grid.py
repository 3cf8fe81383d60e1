"""The grids of two sides as one: items that ask the same are one item, and so are judges of one name.

Items are the same where the same was asked, whatever their ids; where that is not on record, where their ids
are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.compared_grid import ComparedGrid
from coeval.analysis.comparison.side import Measure, RequestedItem, Side
from coeval.analysis.measures.near_duplicates import NearDuplicate, groups
from coeval.analysis.measures.score_grid import (
    UNSCORED,
    Codes,
    GridItems,
    ScoreGrid,
    TaskDesign,
    normalize_weights,
)
from coeval.core.text import pluralize


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
    said = f"{task}: both have {pluralize(len(same), 'item')} in common, {' and '.join(only)} has"
    if alike > 0:
        said += (
            f" ({pluralize(alike, 'id')} {'stands' if alike == 1 else 'stand'} for another prompt in each)"
        )
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
                f"{task}: {len(other):,} of {pluralize(len(same), 'item')} in common {what} in {b.place} "
                f"than in {a.place}: part of the difference may be theirs"
            )
            notes.append(Mismatch(task, said))
    return notes


# --- One grid of two


class _Joined(NamedTuple):
    """What rows of both sides are numbered by: ``task`` of each item; ``judges`` of each task, None where the
    sides have none in common."""

    task: Codes
    judges: Sequence[Collection[str] | None]
    names: Sequence[str]
    factors: Sequence[str]


def joined_grid(
    a: Side, b: Side, measure: Measure, items: SharedItems, judges: Mapping[str, Collection[str] | None]
) -> ComparedGrid:
    """Two students, by their labels. ``judges``: by task, those that both have; None: they have none in
    common, and each side's are taken together, as a check would be. Weights are those of ``b``."""
    grids = [side.grids[measure].grid for side in (a, b)]
    tasks = sorted(set(items.tasks))
    number = {name: at for at, name in enumerate(tasks)}
    joined = _Joined(
        np.array([number[name] for name in items.tasks], np.int32),
        [judges.get(name) for name in tasks],
        sorted({name for shared in judges.values() for name in shared or ()}),
        sorted({name for grid in grids for name in grid.factors}),
    )
    rows = [
        _aligned(_of_student(grid, side.model, codes), codes, joined)
        for side, grid, codes in zip((a, b), grids, items.codes, strict=True)
    ]
    whole: dict[str, Any] = {
        name: np.concatenate([getattr(grid, name) for grid in rows])
        for name in ("item", "factor", "checked", "scale", "sample", "weight")
    }
    first, second = (grid.levels.astype(np.int32) for grid in rows)
    second += len(rows[0].scale) * (second >= 0)
    whole["levels"] = np.concatenate([first, second])
    known = GridItems([*map(str, range(len(joined.task)))], joined.task, joined.task * 0, {}, items.clusters)
    found = ScoreGrid(
        **whole,
        student=np.repeat(np.arange(2), [len(grid.item) for grid in rows]),
        items=known,
        students=(a.label, b.label),
        judges=tuple(joined.names),
        factors=tuple(joined.factors),
        tasks=tuple(tasks),
        teachers=(),
        designs=tuple(_design(name, judges.get(name), grids) for name in tasks),
        samples={
            side.label: int(grid.answers_per_item.max(initial=1))
            for side, grid in zip((a, b), rows, strict=True)
        },
    )
    sampled = any(grid.sample is not None for grid in grids)
    return ComparedGrid(found if sampled else found._replace(sample=None))


def _of_student(grid: ScoreGrid, name: str, codes: Codes) -> ScoreGrid:
    """Its rows of items that have a number."""
    return grid.select_rows((grid.student == grid.students.index(name)) & (codes[grid.item] >= 0))


def _aligned(grid: ScoreGrid, codes: Codes, joined: _Joined) -> ScoreGrid:
    """One side's rows by the numbers of both, on its own scale."""
    item = codes[grid.item]
    task, values = joined.task[item], grid.values[grid.levels]
    levels = np.full((len(item), len(joined.names)), UNSCORED, grid.levels.dtype)
    for place, name in enumerate(joined.names):
        if name in grid.judges:
            counts = np.array([name in (shared or ()) for shared in joined.judges], bool)[task]
            levels[:, place] = np.where(counts, grid.levels[:, grid.judges.index(name)], UNSCORED)
    together = np.array([shared is None for shared in joined.judges], bool)[task] & grid.valid.any(axis=1)
    means = values.sum(axis=1) / np.maximum(grid.valid.sum(axis=1), 1)
    checked = np.full(len(item), np.nan) if grid.checked is None else grid.checked
    places = np.array([joined.factors.index(name) for name in grid.factors], np.int64)
    return grid._replace(
        item=item,
        factor=places[grid.factor],
        levels=levels,
        checked=np.where(together, means, checked),
        sample=np.zeros(len(item), np.int64) if grid.sample is None else grid.sample,
        weight=np.ones(len(item)) if grid.weight is None else grid.weight,
    )


def _design(task: str, judges: Collection[str] | None, grids: Sequence[ScoreGrid]) -> TaskDesign:
    """Of a task that is weighed, the factors of the second side that the first is scored by too."""
    of_a = grids[0]
    first, second = (grid.designs[grid.tasks.index(task)] for grid in grids)
    rows = of_a.factor[of_a.task == of_a.tasks.index(task)]
    known = {of_a.factors[place] for place in np.unique(rows)} | (first.factors if first.weights else set())
    factors = frozenset(second.factors & known)
    weights = normalize_weights({name: weight for name, weight in second.weights.items() if name in factors})
    return TaskDesign(frozenset(judges or ()), factors, second.checks & factors, second.scales, weights)
