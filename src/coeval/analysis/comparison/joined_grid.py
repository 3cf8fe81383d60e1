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
from coeval.analysis.measures.near_duplicates import NearDuplicate, group_duplicates
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
    """A sentence on something in a task that differs between two sides."""

    task: str
    message: str


class NumberedItems(NamedTuple):
    """Items of two sides under common numbers. ``codes``: for each side, by the number of an item in its
    grids, the common one, equal for the same item; −1: the other side lacks its task. ``tasks`` and
    ``clusters`` go by the common number; near duplicates on either side share a cluster; None: there are
    none."""

    codes: tuple[Codes, Codes]
    tasks: list[str]
    clusters: NDArray[np.int64] | None
    notes: tuple[Mismatch, ...]


def number_items_of_shared_tasks(a: Side, b: Side) -> NumberedItems:
    """Number the items of both sides; tasks that only one has are left out."""
    tasks_of_sides = [{item.task for item in side.items} for side in (a, b)]
    shared = tasks_of_sides[0] & tasks_of_sides[1]
    by_id = {item.task for side in (a, b) for item in side.items if item.content is None}
    numbers: dict[tuple[object, ...], int] = {}
    tasks: list[str] = []
    codes: list[list[int]] = []
    for side in (a, b):
        occurrences = Counter[tuple[object, ...]]()
        own: list[int] = []
        for item in side.items:
            if item.task not in shared:
                own.append(-1)
                continue
            prompt = (item.task, item.id if item.task in by_id else item.content)
            occurrences[prompt] += 1  # a task may have the same prompt several times
            if (key := (*prompt, occurrences[prompt])) not in numbers:
                numbers[key] = len(tasks)
                tasks.append(item.task)
            own.append(numbers[key])
        codes.append(own)
    notes = [
        Mismatch(task, f"only {side.folder_label} has the task {task}: it is not compared")
        for side, own_tasks in zip((a, b), tasks_of_sides, strict=True)
        for task in sorted(own_tasks - shared)
    ]
    for task in sorted(shared):
        items = [
            {code: item for code, item in zip(own, side.items, strict=True) if item.task == task}
            for own, side in zip(codes, (a, b), strict=True)
        ]
        notes += _note_unshared_items(a, b, task, items)
        notes += _note_changed_context(a, b, task, items)
    alike = [
        pair for side, own in zip((a, b), codes, strict=True) for pair in _find_near_duplicates(side, own)
    ]
    clusters = group_duplicates(alike, len(tasks)) if alike else None
    codes_a, codes_b = (np.array(own, np.int64) for own in codes)
    return NumberedItems((codes_a, codes_b), tasks, clusters, tuple(notes))


def _find_near_duplicates(side: Side, numbers: Sequence[int]) -> Iterator[NearDuplicate]:
    """Pair the numbers of items that nearly repeat another one, or have the very same prompt."""
    kept = [(code, item) for code, item in zip(numbers, side.items, strict=True) if code >= 0]
    by_id = {(item.task, item.id): code for code, item in kept}
    first_by_content: dict[tuple[str, int], int] = {}
    for code, item in kept:
        if item.duplicate_of is not None:
            yield NearDuplicate(code, by_id[item.task, item.duplicate_of], 1.0)
        if item.content is not None:
            first = first_by_content.setdefault((item.task, item.content), code)
            if first != code:
                yield NearDuplicate(code, first, 1.0)


_ByCode = Mapping[int, RequestedItem]


def _note_unshared_items(a: Side, b: Side, task: str, items: Sequence[_ByCode]) -> list[Mismatch]:
    same = items[0].keys() & items[1].keys()
    if len(same) == len(items[0]) == len(items[1]):
        return []
    ids = [{item.id for item in by_number.values()} for by_number in items]
    moved_ids = len(ids[0] & ids[1]) - len(same)
    own = zip((a, b), items, strict=True)
    only = [f"{len(by_number) - len(same):,} only {side.folder_label}" for side, by_number in own]
    message = f"{task}: both have {pluralize(len(same), 'item')} in common, {' and '.join(only)} has"
    if moved_ids > 0:
        stand = "stands" if moved_ids == 1 else "stand"
        message += f" ({pluralize(moved_ids, 'id')} {stand} for another prompt in each)"
    return [Mismatch(task, message)]


def _note_changed_context(a: Side, b: Side, task: str, items: Sequence[_ByCode]) -> list[Mismatch]:
    """Report shared items whose reference answer or attributes differ, so that judges and labels measured
    them against something else on either side."""
    items_a, items_b = items
    same = items_a.keys() & items_b.keys()
    notes = []
    for change, changed in (
        ("have another reference answer", {n for n in same if items_a[n].reference != items_b[n].reference}),
        ("were made for other attributes", {n for n in same if items_a[n].made_for != items_b[n].made_for}),
    ):
        if changed:
            where = f"in {b.folder_label} than in {a.folder_label}: part of the difference may be theirs"
            shared = f"{len(changed):,} of {pluralize(len(same), 'item')} in common"
            notes.append(Mismatch(task, f"{task}: {shared} {change} {where}"))
    return notes


# --- One grid of two


class _JoinedNames(NamedTuple):
    """What the rows of both sides are numbered by: the ``task`` of each item; the ``judges`` of each task,
    None if the sides have none in common; the ``names`` of all judges."""

    task: Codes
    judges: Sequence[Collection[str] | None]
    names: Sequence[str]
    factors: Sequence[str]


def join_grids(
    a: Side, b: Side, measure: Measure, items: NumberedItems, judges: Mapping[str, Collection[str] | None]
) -> ComparedGrid:
    """Join the rows of two students, named by their labels, in one grid, with the weights of ``b``.
    ``judges``: by task, those of both; None: there are none, and each side's are pooled as if a check."""
    grids = [side.grids[measure].grid for side in (a, b)]
    tasks = sorted(set(items.tasks))
    number = {name: at for at, name in enumerate(tasks)}
    joined = _JoinedNames(
        np.array([number[name] for name in items.tasks], np.int32),
        [judges.get(name) for name in tasks],
        sorted({name for shared in judges.values() for name in shared or ()}),
        sorted({name for grid in grids for name in grid.factors}),
    )
    rows = [
        _renumber_rows(
            grid.select_rows((grid.student == grid.students.index(side.model)) & (codes[grid.item] >= 0)),
            codes,
            joined,
        )
        for side, grid, codes in zip((a, b), grids, items.codes, strict=True)
    ]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(grid, name) for grid in rows])
        for name in ("item", "factor", "checked", "scale", "sample", "weight")
    }
    first, second = (grid.levels.astype(np.int32) for grid in rows)
    second += len(rows[0].scale) * (second >= 0)
    columns["levels"] = np.concatenate([first, second])
    ids = [*map(str, range(len(joined.task)))]
    joined_scores = ScoreGrid(
        **columns,
        student=np.repeat(np.arange(2), [len(grid.item) for grid in rows]),
        items=GridItems(ids, joined.task, joined.task * 0, {}, items.clusters),
        students=(a.label, b.label),
        judges=tuple(joined.names),
        factors=tuple(joined.factors),
        tasks=tuple(tasks),
        teachers=(),
        designs=tuple(_join_task_designs(name, judges.get(name), grids) for name in tasks),
        samples={
            side.label: int(grid.answers_per_item.max(initial=1))
            for side, grid in zip((a, b), rows, strict=True)
        },
    )
    sampled = any(grid.sample is not None for grid in grids)
    return ComparedGrid(joined_scores if sampled else joined_scores._replace(sample=None))


def _renumber_rows(grid: ScoreGrid, codes: Codes, joined: _JoinedNames) -> ScoreGrid:
    """Renumber one side's rows by the common numbers; levels stay on its own scale."""
    item = codes[grid.item]
    task, values = joined.task[item], grid.values[grid.levels]
    levels = np.full((len(item), len(joined.names)), UNSCORED, grid.levels.dtype)
    for column, name in enumerate(joined.names):
        if name in grid.judges:
            is_compared = np.array([name in (shared or ()) for shared in joined.judges], bool)[task]
            levels[:, column] = np.where(is_compared, grid.levels[:, grid.judges.index(name)], UNSCORED)
    takes_all = np.array([shared is None for shared in joined.judges], bool)[task] & grid.valid.any(axis=1)
    means = values.sum(axis=1) / np.maximum(grid.valid.sum(axis=1), 1)
    checked = np.full(len(item), np.nan) if grid.checked is None else grid.checked
    factor_numbers = np.array([joined.factors.index(name) for name in grid.factors], np.int64)
    return grid._replace(
        item=item,
        factor=factor_numbers[grid.factor],
        levels=levels,
        checked=np.where(takes_all, means, checked),
        sample=np.zeros(len(item), np.int64) if grid.sample is None else grid.sample,
        weight=np.ones(len(item)) if grid.weight is None else grid.weight,
    )


def _join_task_designs(task: str, judges: Collection[str] | None, grids: Sequence[ScoreGrid]) -> TaskDesign:
    """Keep of the second side's design the factors that the first side is scored by too."""
    grid_a = grids[0]
    first, second = (grid.designs[grid.tasks.index(task)] for grid in grids)
    rows = grid_a.factor[grid_a.task == grid_a.tasks.index(task)]
    scored = {grid_a.factors[code] for code in np.unique(rows)}
    factors = second.factors & (scored | (first.factors if first.weights else set()))
    weights = normalize_weights({name: weight for name, weight in second.weights.items() if name in factors})
    return TaskDesign(frozenset(judges or ()), factors, second.checks & factors, second.scales, weights)
