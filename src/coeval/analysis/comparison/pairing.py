"""What two sides have in common: the same items, scored by the same judges in the same factors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.compared_grid import ComparedGrid
from coeval.analysis.comparison.joined_grid import Mismatch, join_grids, number_items_of_shared_tasks
from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.comparison.side import Measure, MetricName, Side, UnsharedJudges
from coeval.analysis.intervals import SHARE, Floats, Scale
from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.score_grid import normalize_weights
from coeval.analysis.panel.mean_squares import JudgeValues
from coeval.core.text import join_names


class SharedJudges(NamedTuple):
    """By task, the judges of both sides, or None if they have none in common: then each side's judges are
    pooled. ``compared``: by task, the judges whose scores are compared, all of them if they are pooled;
    ``unshared``: who judged one side only; ``notes``: who judged the sides differently."""

    by_task: Mapping[str, Collection[str] | None]
    compared: Mapping[str, Collection[str]]
    unshared: tuple[UnsharedJudges, ...]
    notes: tuple[Mismatch, ...]


def _match_judges(a: Side, b: Side) -> SharedJudges:
    """Match the judges of both sides by task, and note who judged one side only or by another recipe."""
    by_task: dict[str, Collection[str] | None] = {}
    compared: dict[str, Collection[str]] = {}
    unshared, notes = [], list[Mismatch]()
    for task in sorted({task for task, _ in a.methods} & {task for task, _ in b.methods}):
        judges_a, judges_b = ({judge for at, judge in side.methods if at == task} for side in (a, b))
        both = judges_a & judges_b
        by_task[task], compared[task] = both or None, both or judges_a | judges_b
        if judges_a != judges_b:
            only_a, only_b = tuple(sorted(judges_a - both)), tuple(sorted(judges_b - both))
            unshared.append(UnsharedJudges(task, (a.label, b.label), (only_a, only_b), none_shared=not both))
        notes += [
            Mismatch(
                task,
                f"{task}: {judge} judged {b.folder_label} by another recipe (model, parameters, prompt) than "
                f"{a.folder_label}",
            )
            for judge in sorted(both)
            if a.methods[task, judge] != b.methods[task, judge]
        ]
    return SharedJudges(by_task, compared, tuple(unshared), tuple(notes))


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
            [*normalize_weights({name: own.get(name, 0.0) for name in factors}).values()] for own in weights
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

    ``judged``: by task, the judges whose scores are compared. ``unshared``: who judged one side only.
    ``mismatches``: what else does not fit.
    """

    a: str
    b: str
    metrics: Sequence[MetricName]
    grids: Mapping[Measure, ComparedGrid]
    judged: Mapping[str, Collection[str]]
    unshared: tuple[UnsharedJudges, ...]
    mismatches: tuple[Mismatch, ...]

    def has_equal_coverage(self, students: Collection[str]) -> bool:
        """Check whether these students of the grids have scores on the same items by the same judges."""
        cuts = (grid.shared_scores(*factor) for grid in self.grids.values() for factor in grid.task_factors)
        return not self.unshared and all(cut.have_same_scores(students) for cut in cuts)

    def build_scored_pairs(self, task: str, metric: MetricName | None = None) -> ScoredPairs | None:
        """Return the paired item means of a task in one metric, or over all factors (with weights or checks,
        an item needs a shared score in each of them); None if no item is paired."""
        shared = self._shared_scores(task, metric)
        pairs = shared.pair_means(self.a, self.b).get(task)
        if pairs is None:
            return None
        scores = [shared.recorded_means(student) for student in (self.a, self.b)]
        scale = _extend_scale(SHARE if metric is None else metric.scale, [means for means, _ in scores])
        paired = np.isfinite(shared.item_means(self.a, self.b)[0])
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

    def differences_by_judge(self, task: str, metric: MetricName | None = None) -> JudgeValues:
        """Return each judge's mean gaps, second side minus first; empty if the sides share no judge."""
        if (metric is None or metric.measure != "label") and any(
            judges.task == task and judges.none_shared and judges.compared for judges in self.unshared
        ):
            return JudgeValues(np.empty((0, 0)), 1.0)
        shared = self._shared_scores(task, metric)
        [gaps] = shared.differences_by_judge(self.a, self.b, [task])
        if metric is None or metric.measure != "metric":
            return gaps
        scale = _extend_scale(metric.scale, [shared.recorded_means(name)[0] for name in (self.a, self.b)])
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
        unshared = tuple(pair._replace(compared=not pair.none_shared) for pair in judges.unshared)
    else:
        items = number_items_of_shared_tasks(a, b)
        names, notes, unshared = (a.label, b.label), items.notes, judges.unshared
        both = [measure for measure in a.grids if measure in b.grids]
        grids = {measure: join_grids(a, b, measure, items, judges.by_task) for measure in both}
    by_key = {metric.key: metric for side in (b, a) for metric in side.metrics}
    tasks = {item.task for item in a.items} & {item.task for item in b.items}
    scored = {(task, measure, name) for measure, grid in grids.items() for task, name in grid.task_factors}
    metrics = [metric for metric in by_key.values() if metric.task in tasks and metric.key in scored]
    pairing = Pairing(
        *names,
        sorted(metrics, key=lambda metric: (metric.task, not metric.headline, metric.key)),
        grids,
        judges.compared,
        unshared,
        (
            *notes,
            *judges.notes,
            *_note_changed_rubrics(a, b),
            *_note_changed_weights(a, b),
            *(
                Mismatch(task, f"{task}: {side.label}: {served.clause}")
                for side in (a, b)
                for task, served in side.served.items()
            ),
        ),
    )
    return replace(pairing, mismatches=(*pairing.mismatches, *_note_tasks_compared_by_factors_only(pairing)))


def _note_tasks_compared_by_factors_only(pairing: Pairing) -> Iterator[Mismatch]:
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
