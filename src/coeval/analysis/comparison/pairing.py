"""What two sides have in common: the same items, scored by the same judges in the same factors; and the grids
of both as one, in which items that ask the same are one item, and so are judges of one name.

Items are the same where the same was asked, whatever their ids; where that is not on record, where their ids
are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.comparison.side import Measure, MetricName, OneSideJudges, RequestedItem, Side
from coeval.analysis.intervals import SHARE, Floats, Scale
from coeval.analysis.measures.near_duplicates import NearDuplicate, first_of_duplicate_group
from coeval.analysis.measures.pair_scores import ComparedGrid, SharedScores
from coeval.analysis.measures.score_grid import (
    UNSCORED,
    Codes,
    GridItems,
    ScoreGrid,
    TaskDesign,
    weights_of_mean_one,
)
from coeval.analysis.panel.mean_squares import JudgeValues
from coeval.core.text import join_names, pluralize


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
        notes += _note_items_of_one_side(a, b, task, items)
        notes += _note_changed_references_or_attributes(a, b, task, items)
    alike = [
        pair for side, own in zip((a, b), codes, strict=True) for pair in _find_near_duplicates(side, own)
    ]
    clusters = first_of_duplicate_group(alike, len(tasks)) if alike else None
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


def _note_items_of_one_side(a: Side, b: Side, task: str, items: Sequence[_ByCode]) -> list[Mismatch]:
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
        message += f" ({pluralize(moved_ids, 'id')} {stand} for different prompts)"
    return [Mismatch(task, message)]


def _note_changed_references_or_attributes(
    a: Side, b: Side, task: str, items: Sequence[_ByCode]
) -> list[Mismatch]:
    """Report shared items whose reference answer or attributes differ, so that judges and labels measured
    them against something else on either side."""
    items_a, items_b = items
    same = items_a.keys() & items_b.keys()
    notes = []
    for change, changed in (
        ("have another reference answer", {n for n in same if items_a[n].reference != items_b[n].reference}),
        ("have other attributes", {n for n in same if items_a[n].made_for != items_b[n].made_for}),
    ):
        if changed:
            where = f"in {b.folder_label} than in {a.folder_label}: this may explain part of the difference"
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
        designs=tuple(_second_design_on_shared_factors(name, judges.get(name), grids) for name in tasks),
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


def _second_design_on_shared_factors(
    task: str, judges: Collection[str] | None, grids: Sequence[ScoreGrid]
) -> TaskDesign:
    """Keep of the second side's design the factors that the first side is scored by too."""
    grid_a = grids[0]
    first, second = (grid.designs[grid.tasks.index(task)] for grid in grids)
    rows = grid_a.factor[grid_a.task == grid_a.tasks.index(task)]
    scored = {grid_a.factors[code] for code in np.unique(rows)}
    factors = second.factors & (scored | (first.factors if first.weights else set()))
    weights = weights_of_mean_one(
        {name: weight for name, weight in second.weights.items() if name in factors}
    )
    return TaskDesign(frozenset(judges or ()), factors, second.checks & factors, second.scales, weights)


# --- Two sides, paired


class SharedJudges(NamedTuple):
    """By task, the judges of both sides, or None if they have none in common: then each side's judges are
    pooled. ``compared``: by task, the judges whose scores are compared, all of them if they are pooled;
    ``one_side``: who judged one side only; ``notes``: who judged the sides differently."""

    by_task: Mapping[str, Collection[str] | None]
    compared: Mapping[str, Collection[str]]
    one_side: tuple[OneSideJudges, ...]
    notes: tuple[Mismatch, ...]


def _match_judges(a: Side, b: Side) -> SharedJudges:
    """Match the judges of both sides by task, and note who judged one side only or by another recipe."""
    by_task: dict[str, Collection[str] | None] = {}
    compared: dict[str, Collection[str]] = {}
    one_side, notes = [], list[Mismatch]()
    for task in sorted({task for task, _ in a.methods} & {task for task, _ in b.methods}):
        judges_a, judges_b = ({judge for at, judge in side.methods if at == task} for side in (a, b))
        both = judges_a & judges_b
        by_task[task], compared[task] = both or None, both or judges_a | judges_b
        if judges_a != judges_b:
            only_a, only_b = tuple(sorted(judges_a - both)), tuple(sorted(judges_b - both))
            one_side.append(OneSideJudges(task, (a.label, b.label), (only_a, only_b), none_shared=not both))
        notes += [
            Mismatch(
                task,
                f"{task}: {judge} judged {b.folder_label} by another recipe (model, parameters, prompt) than "
                f"{a.folder_label}",
            )
            for judge in sorted(both)
            if a.methods[task, judge] != b.methods[task, judge]
        ]
    return SharedJudges(by_task, compared, tuple(one_side), tuple(notes))


def _note_changed_rubrics(a: Side, b: Side) -> Iterator[Mismatch]:
    """Report the factors of one name that ask for something else, and how."""
    for task in sorted(a.rubrics.keys() & b.rubrics.keys()):
        for factor in sorted(a.rubrics[task].keys() & b.rubrics[task].keys()):
            if change := a.describe_factor_change(b, task, factor):
                yield Mismatch(task, f"{task}: {change}")


def _note_changed_weights(a: Side, b: Side) -> Iterator[Mismatch]:
    """Report the tasks in which the shared factors have other relative weights on either side."""
    grids = [side.grids["factor"] for side in (a, b) if "factor" in side.grids]
    shared = set.intersection(*({*grid.task_factors} for grid in grids)) if len(grids) == 2 else set()
    for task in sorted({task for task, _ in shared}):
        weights = [grid.grid.designs[grid.grid.tasks.index(task)].weights for grid in grids]
        factors = sorted(factor for at, factor in shared if at == task)
        relative = [
            [*weights_of_mean_one({name: own.get(name, 0.0) for name in factors}).values()] for own in weights
        ]
        if bool(weights[0]) != bool(weights[1]) or not np.allclose(relative[0], relative[1]):
            first, second = a.folder_label, b.folder_label
            change = f"its factors have other weights in {second} than in {first}; those of {second} are used"
            yield Mismatch(task, f"{task}: {change}")


class ScoredPairs(NamedTuple):
    """The paired items of a task on a scale of 0 to 1; the number of ``missing`` items, without a pair; and
    the range of the difference over all items, whatever the missing ones would score."""

    pairs: PairedScores
    missing: int
    low: float
    high: float
    scale: Scale


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two sides, named ``a`` and ``b`` in common ``grids``, one for each kind of score.

    ``judged``: by task, the judges whose scores are compared. ``one_side``: who judged one side only.
    ``mismatches``: what else does not fit.
    """

    a: str
    b: str
    metrics: Sequence[MetricName]
    grids: Mapping[Measure, ComparedGrid]
    judged: Mapping[str, Collection[str]]
    one_side: tuple[OneSideJudges, ...]
    mismatches: tuple[Mismatch, ...]

    def has_equal_coverage(self, students: Collection[str]) -> bool:
        """Check whether these students of the grids have scores on the same items by the same judges."""
        cuts = (grid.shared_scores(*factor) for grid in self.grids.values() for factor in grid.task_factors)
        return not self.one_side and all(cut.have_scores_in_same_cells(students) for cut in cuts)

    def build_scored_pairs(self, task: str, metric: MetricName | None = None) -> ScoredPairs | None:
        """Return the paired item means of a task in one metric, or over all factors (with weights or checks,
        an item needs a shared score in each of them); None if no item is paired."""
        shared = self._shared_scores(task, metric)
        pairs = shared.item_means_by_task(self.a, self.b).get(task)
        if pairs is None:
            return None
        scores = [shared.means_and_coverage(student) for student in (self.a, self.b)]
        scale = _extend_scale(SHARE if metric is None else metric.scale, [means for means, _ in scores])
        paired = np.isfinite(shared.shared_item_means_or_nan(self.a, self.b)[0])
        missing = self._mark_items_of_metric(task, metric) & ~paired
        (low_a, high_a), (low_b, high_b) = (
            _sum_missing_at_ends(scale.to_shares(means), present, missing) for means, present in scores
        )
        pairs = pairs._replace(a=scale.to_shares(pairs.a), b=scale.to_shares(pairs.b))
        gaps = float(np.average(pairs.b - pairs.a, weights=pairs.weights)) * len(pairs.a)
        lacking = int(missing.sum())
        items = len(pairs.a) + lacking
        low, high = (gaps + low_b - high_a) / items, (gaps + high_b - low_a) / items
        return ScoredPairs(pairs, lacking, low, high, scale)

    def b_minus_a_by_judge(self, task: str, metric: MetricName | None = None) -> JudgeValues:
        """Return each judge's mean gaps, second side minus first; empty if the sides share no judge."""
        if (metric is None or metric.measure != "label") and any(
            judges.task == task and judges.none_shared and judges.compared for judges in self.one_side
        ):
            return JudgeValues(np.empty((0, 0)), 1.0)
        shared = self._shared_scores(task, metric)
        [gaps] = shared.judge_differences_by_task(self.a, self.b, [task])
        if metric is None or metric.measure != "metric":
            return gaps
        scale = _extend_scale(metric.scale, [shared.means_and_coverage(name)[0] for name in (self.a, self.b)])
        return gaps._replace(values=gaps.values / scale.width)

    def _shared_scores(self, task: str, metric: MetricName | None) -> SharedScores:
        if metric is None:
            return self.grids["factor"].shared_scores(task)
        return self.grids[metric.measure].shared_scores(task, metric.metric)

    def _mark_items_of_metric(self, task: str, metric: MetricName | None) -> NDArray[np.bool_]:
        """Mark the items (n,) that the metric applies to: all of the task, unless a benchmark's metric
        applies to some items only."""
        if metric is None or metric.measure != "metric":
            return np.ones(len(self._shared_scores(task, metric).grid.items.ids), bool)
        whole = self.grids["metric"].task_grid(task)
        in_metric, in_any = np.zeros((2, len(whole.items.ids)), bool)
        in_metric[whole.item[whole.factor == whole.factors.index(metric.metric)]] = True
        in_any[whole.item[whole.scored]] = True
        return in_metric if (in_any & ~in_metric).any() else np.ones(len(in_metric), bool)


def _sum_missing_at_ends(
    means: Floats, present_shares: Floats, is_missing: NDArray[np.bool_]
) -> tuple[float, float]:
    """Sum the missing items' scores with what each lacks at 0, and at 1. ``means`` of the scores that each
    item (n,) has, and the share of its scores that these are."""
    scores, present = means[is_missing], present_shares[is_missing]
    low = np.where(np.isfinite(scores), scores * present, 0.0)
    high = np.where(np.isfinite(scores), low + 1 - present, 1.0)
    return float(low.sum()), float(high.sum())


def _extend_scale(scale: Scale, means: Sequence[Floats]) -> Scale:
    """Widen the scale to scores that lie beyond it, as those of a single example of HealthBench may."""
    scores = np.concatenate(means)
    return Scale(min(scale.least, float(np.nanmin(scores))), max(scale.most, float(np.nanmax(scores))))


def pair_sides(a: Side, b: Side) -> Pairing:
    """Pair two sides: students of one folder in its own grids, others in joined ones."""
    judges = _match_judges(a, b)
    if a.grids is b.grids:
        names, grids, notes = (a.model, b.model), a.grids, tuple[Mismatch, ...]()
        # two students whom no judge scored in common have no difference there, rather than one of judges too
        one_side = tuple(pair._replace(compared=not pair.none_shared) for pair in judges.one_side)
    else:
        items = number_items_of_shared_tasks(a, b)
        names, notes, one_side = (a.label, b.label), items.notes, judges.one_side
        both = [measure for measure in a.grids if measure in b.grids]
        grids = {measure: join_grids(a, b, measure, items, judges.by_task) for measure in both}
    by_name = {metric[:3]: metric for side in (b, a) for metric in side.metrics}
    tasks = {item.task for item in a.items} & {item.task for item in b.items}
    scored = {(task, measure, name) for measure, grid in grids.items() for task, name in grid.task_factors}
    metrics = [metric for name, metric in by_name.items() if metric.task in tasks and name in scored]
    pairing = Pairing(
        *names,
        sorted(metrics, key=lambda metric: (metric.task, not metric.headline, metric[:3])),
        grids,
        judges.compared,
        one_side,
        (
            *notes,
            *judges.notes,
            *_note_changed_rubrics(a, b),
            *_note_changed_weights(a, b),
            *(
                Mismatch(task, f"{task}: {side.label}: {served.came_from_clause}")
                for side in (a, b)
                for task, served in side.served.items()
            ),
        ),
    )
    return replace(pairing, mismatches=(*pairing.mismatches, *_note_tasks_without_fully_scored_pair(pairing)))


def _note_tasks_without_fully_scored_pair(pairing: Pairing) -> Iterator[Mismatch]:
    """Report the tasks with weights or checks in which single factors are shared, but no item's score."""
    grids = pairing.grids.get("factor")
    for task, design in zip(grids.grid.tasks, grids.grid.designs, strict=True) if grids is not None else ():
        if not design.weights or pairing.build_scored_pairs(task) is not None:
            continue
        shared = {
            metric.metric
            for metric in pairing.metrics
            if metric.task == task and metric.measure == "factor" and metric.metric in design.weights
            if pairing.build_scored_pairs(task, metric)
        }
        if shared:
            lacking = sorted(design.weights.keys() - shared)
            yield Mismatch(
                task,
                f"{task}: no item is scored in {join_names(lacking) or 'every factor'} on both sides, so "
                "only single factors are compared",
            )
