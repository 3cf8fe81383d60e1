"""What two sides have in common: the same items, scored by the same judges in the same factors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.compared_grid import ComparedGrid
from coeval.analysis.comparison.joined_grid import Mismatch, joined_grid, shared_items
from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.comparison.side import JudgedApart, Measure, MetricName, Side
from coeval.analysis.intervals import SHARE, Floats, Scale
from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.score_grid import normalize_weights
from coeval.analysis.panel.mean_squares import ByJudge
from coeval.core.text import join_names


class SharedJudges(NamedTuple):
    """By task, the judges that both sides have, or None where they have none in common: then each side's
    judges are taken together. ``apart`` says who judged one side only, ``notes`` who judged otherwise."""

    by_task: Mapping[str, Collection[str] | None]
    apart: tuple[JudgedApart, ...]
    notes: tuple[Mismatch, ...]

    def taken(self, a: Side, b: Side) -> dict[str, Collection[str]]:
        """By task, whose scores are compared: of judges who are taken together, all of them."""
        return {
            task: {judge for side in (a, b) for at, judge in side.methods if at == task}
            if shared is None
            else shared
            for task, shared in self.by_task.items()
        }


def shared_judges(a: Side, b: Side) -> SharedJudges:
    """Who judged both, and whether they judged alike."""
    by_task: dict[str, Collection[str] | None] = {}
    apart, notes = [], list[Mismatch]()
    for task in sorted({task for task, _ in a.methods} & {task for task, _ in b.methods}):
        of_a, of_b = ({judge for at, judge in side.methods if at == task} for side in (a, b))
        both = of_a & of_b
        by_task[task] = both or None
        if of_a != of_b:
            only_a, only_b = tuple(sorted(of_a - both)), tuple(sorted(of_b - both))
            apart.append(JudgedApart(task, (a.label, b.label), (only_a, only_b), nobody_both=not both))
        notes += [
            Mismatch(
                task,
                f"{task}: {judge} judged {b.place} by another recipe (model, parameters, prompt) than "
                f"{a.place}",
            )
            for judge in sorted(both)
            if a.methods[task, judge] != b.methods[task, judge]
        ]
    return SharedJudges(by_task, tuple(apart), tuple(notes))


def other_rubrics(a: Side, b: Side) -> tuple[Mismatch, ...]:
    """The factors that go by the same name and ask for something else, and how."""
    return tuple(
        Mismatch(task, f"{task}: {said}")
        for task in sorted(a.rubrics.keys() & b.rubrics.keys())
        for factor in sorted(a.rubrics[task].keys() & b.rubrics[task].keys())
        if (said := a.otherwise(b, task, factor))
    )


def other_weights(a: Side, b: Side) -> Iterator[Mismatch]:
    """The tasks in which the factors of both count otherwise against each other on either side."""
    grids = [side.grids["factor"] for side in (a, b) if "factor" in side.grids]
    shared = set.intersection(*({*grid.parts} for grid in grids)) if len(grids) == 2 else set()
    for task in sorted({task for task, _ in shared}):
        of_a, of_b = (grid.grid.designs[grid.grid.tasks.index(task)].weights for grid in grids)
        factors = sorted(factor for at, factor in shared if at == task)
        own = [
            [*normalize_weights({name: weights.get(name, 0.0) for name in factors}).values()]
            for weights in (of_a, of_b)
        ]
        if bool(of_a) != bool(of_b) or not np.allclose(own[0], own[1]):
            yield Mismatch(
                task,
                f"{task}: its factors have other weights in {b.place} than in {a.place}; those of {b.place} "
                "are used",
            )


class ScoredPairs(NamedTuple):
    """The paired items of a task on a scale of 0 to 1; how many items have no such pair; and the least and
    the most that the difference over all items can be, whatever the missing ones would score."""

    pairs: PairedScores
    missing: int
    low: float
    high: float
    scale: Scale


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two sides as students of one grid each of what they are scored by: ``grids``, in which ``a`` and ``b``
    are their names.

    ``judged``: by task, whose scores are taken. ``apart``: who judged one side only. ``mismatches``: what
    else does not fit.
    """

    a: str
    b: str
    metrics: Sequence[MetricName]
    grids: Mapping[Measure, ComparedGrid]
    judged: Mapping[str, Collection[str]]
    apart: tuple[JudgedApart, ...]
    mismatches: tuple[Mismatch, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The mismatches, in sentences."""
        return tuple(one.said for one in self.mismatches)

    def evenly_covered(self, names: Collection[str]) -> bool:
        """Whether these students of the grids have scores of the same items by the same judges."""
        cuts = (one.cut(*part) for one in self.grids.values() for part in one.parts)
        return not self.apart and all(cut.have_same_scores(names) for cut in cuts)

    def scored(self, task: str, metric: MetricName | None = None) -> ScoredPairs | None:
        """The items' means of a task by one metric, or by all factors (in a task with weights or checks an
        item needs a shared score of each); None where no item is paired."""
        shared = self._cut(task, metric)
        pairs = shared.pair_means(self.a, self.b).get(task)
        if pairs is None:
            return None
        known = [shared.recorded_means(student) for student in (self.a, self.b)]
        scale = _longer(SHARE if metric is None else metric.scale, [means for means, _ in known])
        paired = np.isfinite(shared.item_means(self.a, self.b)[0])
        missing = self._universe(task, metric) & ~paired
        of_a, of_b = (_ends(scale.shares(means), there, missing) for means, there in known)
        low, high = float((of_b.low - of_a.high).sum()), float((of_b.high - of_a.low).sum())
        pairs = pairs._replace(a=scale.shares(pairs.a), b=scale.shares(pairs.b))
        found = float(np.average(pairs.b - pairs.a, weights=pairs.weights)) * len(pairs.a)
        items = len(pairs.a) + int(missing.sum())
        return ScoredPairs(pairs, int(missing.sum()), (found + low) / items, (found + high) / items, scale)

    def by_judge(self, task: str, metric: MetricName | None = None) -> ByJudge:
        """Each judge's difference, second side minus first; empty if the sides share no judge."""
        if (metric is None or metric.measure != "label") and any(
            one.task == task and one.nobody_both and one.compared for one in self.apart
        ):
            return ByJudge(np.empty((0, 0)), 1.0)
        return self.between(self.a, self.b, task, metric)

    def between(self, first: str, second: str, task: str, metric: MetricName | None = None) -> ByJudge:
        """The same of any two students of the grid."""
        shared = self._cut(task, metric)
        [found] = shared.differences_by_judge(first, second, [task])
        if metric is None or metric.measure != "metric":
            return found
        scale = _longer(metric.scale, [shared.recorded_means(name)[0] for name in (first, second)])
        return found._replace(values=found.values / scale.width)

    def _cut(self, task: str, metric: MetricName | None) -> SharedScores:
        if metric is None:
            return self.grids["factor"].cut(task)
        return self.grids[metric.measure].cut(task, metric.metric)

    def _universe(self, task: str, metric: MetricName | None) -> NDArray[np.bool_]:
        """The items to be scored: all of the task; of a benchmark's metric of some items only, these."""
        if metric is None or metric.measure != "metric":
            return np.ones(len(self._cut(task, metric).grid.items.ids), bool)
        whole = self.grids["metric"].of_task(task)
        mine, scored = np.zeros((2, len(whole.items.ids)), bool)
        mine[whole.item[whole.factor == whole.factors.index(metric.metric)]] = True
        scored[whole.item[whole.scored]] = True
        return mine if (scored & ~mine).any() else np.ones(len(mine), bool)


class _Ends(NamedTuple):
    """The least and the most that items may score, (n,)."""

    low: Floats
    high: Floats


def _ends(means: Floats, there: Floats, missing: NDArray[np.bool_]) -> _Ends:
    """Of the items that are missing, each one's mean with what it lacks at 0, and at 1."""
    known, part = means[missing], there[missing]
    low = np.where(np.isfinite(known), known * part, 0.0)
    return _Ends(low, np.where(np.isfinite(known), low + 1 - part, 1.0))


def _longer(scale: Scale, means: Sequence[Floats]) -> Scale:
    """The scale; longer where scores lie beyond it, as a single example's of HealthBench may."""
    every = np.concatenate(means)
    return Scale(min(scale.least, float(np.nanmin(every))), max(scale.most, float(np.nanmax(every))))


def pair(a: Side, b: Side) -> Pairing:
    """Put two sides together: students of one folder in its own grids, others in joined ones."""
    judges = shared_judges(a, b)
    if a.grids is b.grids:
        names, grids, notes = (a.model, b.model), a.grids, tuple[Mismatch, ...]()
        # whom no judge scored in common has no difference there, rather than one of judges too
        apart = tuple(one._replace(compared=not one.nobody_both) for one in judges.apart)
    else:
        items = shared_items(a, b)
        names, notes, apart = (a.label, b.label), items.notes, judges.apart
        both = [measure for measure in a.grids if measure in b.grids]
        grids = {measure: joined_grid(a, b, measure, items, judges.by_task) for measure in both}
    by_key = {metric.key: metric for side in (b, a) for metric in side.metrics}
    tasks = {item.task for item in a.items} & {item.task for item in b.items}
    known = {(measure, *part) for measure, one in grids.items() for part in one.parts}
    metrics = [one for one in by_key.values() if one.task in tasks]
    metrics = [one for one in metrics if (one.measure, one.task, one.metric) in known]
    found = Pairing(
        *names,
        sorted(metrics, key=lambda metric: (metric.task, not metric.headline, metric.key)),
        grids,
        judges.taken(a, b),
        apart,
        (*notes, *judges.notes, *other_rubrics(a, b), *other_weights(a, b), *_other_models(a, b)),
    )
    return replace(found, mismatches=(*found.mismatches, *_incomplete(found)))


def _other_models(a: Side, b: Side) -> Iterator[Mismatch]:
    """The tasks in which another model than the compared one answered."""
    for side in (a, b):
        for task, served in side.served.items():
            yield Mismatch(task, f"{task}: {side.label}: {served.clause}")


def _incomplete(pairing: Pairing) -> Iterator[Mismatch]:
    """The tasks with weights or checks in which single factors are shared, and no item's score."""
    grids = pairing.grids.get("factor")
    for task, design in zip(grids.grid.tasks, grids.grid.designs, strict=True) if grids is not None else ():
        if not design.weights or pairing.scored(task) is not None:
            continue
        parts = [one for one in pairing.metrics if one.task == task and one.metric in design.weights]
        shared = [one.metric for one in parts if one.measure == "factor" and pairing.scored(task, one)]
        if shared:
            lacking = sorted(design.weights.keys() - {*shared})
            yield Mismatch(
                task,
                f"{task}: no item is scored in {join_names(lacking) or 'every factor'} on both sides, so "
                "only single factors are compared",
            )
