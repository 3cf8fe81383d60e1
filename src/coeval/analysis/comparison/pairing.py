"""What two sides have in common: the same items, scored by the same judges in the same factors.

Items are the same where the same was asked, whatever their ids; where that is not on record, where their ids
are the same. A score counts only where the other side has its counterpart, so that neither a hard item nor a
strict judge weighs on one side alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.comparison.side import JudgedApart, MetricName, RequestedItem, Side, Units
from coeval.analysis.intervals import Floats, Scale
from coeval.analysis.measures.near_duplicates import NearDuplicate, groups
from coeval.analysis.panel.mean_squares import ByJudge
from coeval.core.text import listed, numbered


class Mismatch(NamedTuple):
    """What of a task does not fit on two sides, and a sentence on it."""

    task: str
    said: str


# --- Items and judges that two sides share


class SharedItems(NamedTuple):
    """``codes``: of each side, from the hash of an item to its number, which is the same for the same item;
    ``tasks``: by that number. Items of one side only have numbers of their own. ``clusters``: by that number,
    one that items share which nearly repeat each other on either side; None: none do."""

    codes: tuple[Mapping[int, int], Mapping[int, int]]
    tasks: list[str]
    clusters: NDArray[np.int64] | None
    notes: tuple[Mismatch, ...]

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
        Mismatch(task, f"only {side.place} has the task {task}: it is not compared")
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
    requested: dict[tuple[str, int], int] = {}
    for key, item in side.items.items():
        if key not in own:
            continue
        if item.alike is not None:
            yield NearDuplicate(own[key], by_id[item.task, item.alike], 1.0)
        if item.content is not None:
            first = requested.setdefault((item.task, item.content), own[key])
            if first != own[key]:
                yield NearDuplicate(own[key], first, 1.0)


def _other_items(a: Side, b: Side, task: str, codes: list[dict[int, int]]) -> list[Mismatch]:
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
    if alike > 0:
        said += f" ({numbered(alike, 'id')} {'stands' if alike == 1 else 'stand'} for another prompt in each)"
    return [Mismatch(task, said)]


def _other_making(a: Side, b: Side, task: str, codes: list[dict[int, int]]) -> list[Mismatch]:
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
            said = (
                f"{task}: {len(other):,} of {numbered(len(same), 'item')} in common {what} in {b.place} "
                f"than in {a.place}: part of the difference may be theirs"
            )
            notes.append(Mismatch(task, said))
    return notes


def _of_task(side: Side, task: str) -> dict[int, RequestedItem]:
    return {key: item for key, item in side.items.items() if item.task == task}


class SharedJudges(NamedTuple):
    """By task, the judges that both sides have, or None where they have none in common: then each side's
    judges are taken together. ``apart`` says who judged one side only, ``notes`` who judged otherwise."""

    by_task: Mapping[str, Collection[str] | None]
    apart: tuple[JudgedApart, ...]
    notes: tuple[Mismatch, ...]

    def codes(self, side: Side, tasks: list[str]) -> dict[tuple[int, int], int]:
        """By place in ``tasks`` and the hash of a judge (0: nobody judges), a number that is the same on both
        sides; judges that are left out have none."""
        judges = {name for names in self.by_task.values() for name in names or ()}
        numbers = {name: number for number, name in enumerate(sorted(judges), start=1)}
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


def other_weights(a: Side, b: Side) -> tuple[Mismatch, ...]:
    """The tasks whose factors count otherwise on either side."""
    of_a, of_b = _weights(a), _weights(b)
    tasks = {task for task, *_ in of_a.keys() & of_b.keys()}
    return tuple(
        Mismatch(
            task,
            f"{task}: its factors have other weights in {b.place} than in {a.place}; those of {b.place} are "
            "used",
        )
        for task in sorted(tasks)
        if any(of_a[key] != of_b[key] for key in of_a.keys() & of_b.keys() if key[0] == task)
    )


def _weights(side: Side) -> dict[tuple[str, str, str], float | None]:
    """By metric, the weight of a factor, if it has any."""
    found = dict(zip(side.units.metric.tolist(), side.units.part.tolist(), strict=True))
    return {
        side.metrics[key].key: None if np.isnan(part) else part
        for key, part in found.items()
        if key in side.metrics
    }


Codes = NDArray[np.int64]


class ScoredPairs(NamedTuple):
    """The paired items of a task on a scale of 0 to 1; how many items have no such pair; and the least and
    the most that the difference over all items can be, whatever the missing ones would score."""

    pairs: PairedScores
    missing: int
    low: float
    high: float
    scale: Scale


class _Means(NamedTuple):
    """Of items, in the order of their codes; ``sizes``: the sums of the shares of their values."""

    codes: Codes
    values: Floats
    weights: Floats
    sizes: Floats


def _by_metric(scores: Units, metrics: Sequence[int]) -> Units:
    return scores.chosen(np.isin(scores.metric, metrics))


def _shares_of(scores: Units) -> Floats:
    """How much each value counts in its item's mean: a factor with a weight counts once, by its mean."""
    if not np.isfinite(scores.part).any():
        return np.ones(len(scores.item))
    cells = scores.item * _MOST_METRICS + scores.metric
    _, at, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return np.where(np.isfinite(scores.part), scores.part / counts[at], 1.0)


class _Chosen(NamedTuple):
    """The metrics that count, the scores that have a counterpart, and the weights of factors."""

    metrics: Sequence[int]
    paired: list[Units]
    weights: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two sides, put together: all scores of each, and those that have a counterpart.

    ``universe``: by task, the codes of its items; ``clusters``: by code, what items share that nearly repeat
    each other; None: none do. ``lacking``: by metric, the items whose score is missing. ``factors``: by task
    with weights or checks, the weights of the factors by which both sides are scored.
    ``judged``: by task, whose scores are taken. ``apart``: who judged one side only. ``mismatches``: what
    else does not fit.
    """

    metrics: Sequence[MetricName]
    scores: tuple[Units, Units]
    paired: tuple[Units, Units]
    universe: Mapping[str, frozenset[int]]
    clusters: Codes | None
    lacking: Mapping[int, frozenset[int]]
    factors: Mapping[str, Mapping[str, float]]
    judged: Mapping[str, Collection[str]]
    apart: tuple[JudgedApart, ...]
    mismatches: tuple[Mismatch, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The mismatches, in sentences."""
        return tuple(one.said for one in self.mismatches)

    def scored(self, metrics: Sequence[int], *, whole: bool = False) -> ScoredPairs | None:
        """The items' means over these metrics of one task; None where no item is paired. ``whole``: they are
        all factors; then in a task with weights or checks an item needs a shared score of each."""
        metrics, paired, weights = self._of(metrics, whole=whole)
        a, b = map(_item_means, paired)
        if not len(a.codes):
            return None
        known = [_item_means(_by_metric(side, metrics)) for side in self.scores]
        scale = self._scale(metrics)
        missing = self._universe(metrics, known) - frozenset(a.codes.tolist())
        every = None if weights is None else sum(weights.values())
        ends = [_ends(mean, scale, every) for mean in known]
        low = sum(ends[1].get(item, _ANY)[0] - ends[0].get(item, _ANY)[1] for item in missing)
        high = sum(ends[1].get(item, _ANY)[1] - ends[0].get(item, _ANY)[0] for item in missing)
        alike = None if self.clusters is None else self.clusters[a.codes]
        pairs = PairedScores(scale.shares(a.values), scale.shares(b.values), a.weights, alike)
        found = float(np.average(pairs.b - pairs.a, weights=pairs.weights)) * len(a.codes)
        items = len(a.codes) + len(missing)
        bounds = (float(found + low) / items, float(found + high) / items)
        return ScoredPairs(pairs, len(missing), *bounds, scale)

    def _of(self, metrics: Sequence[int], *, whole: bool) -> _Chosen:
        weights = self.factors.get(self.metrics[metrics[0]].task) if whole else None
        if weights is None:
            return _Chosen(metrics, [_by_metric(side, metrics) for side in self.paired], None)
        metrics = [place for place in metrics if self.metrics[place].metric in weights]
        paired = [_by_metric(side, metrics) for side in self.paired]
        complete = _complete(paired[0], len(weights))
        return _Chosen(metrics, [side.chosen(np.isin(side.item, complete)) for side in paired], weights)

    def by_judge(self, metrics: Sequence[int], *, whole: bool = False) -> ByJudge:
        """Each judge's difference, second side minus first; empty if the sides share no judge."""
        task, measure, *_ = self.metrics[metrics[0]]
        metrics, (a, b), _ = self._of(metrics, whole=whole)
        items = np.unique(a.item)
        if measure != "label" and any(one.task == task and one.nobody_both for one in self.apart):
            return ByJudge(np.empty((len(items), 0)), 1.0)
        values = np.full((len(items), int(self.paired[0].judge.max(initial=0))), np.nan)
        scale = self._scale(metrics)
        for judge in np.unique(a.judge[a.judge > 0]).tolist():
            of_a, of_b = (_item_means(side.chosen(side.judge == judge)) for side in (a, b))
            apart = (of_b.values - of_a.values) / scale.width
            values[np.searchsorted(items, of_a.codes), judge - 1] = apart
        shares = _shares_of(a)
        return ByJudge(values, float(shares[a.judge > 0].sum() / shares.sum()))

    def _scale(self, metrics: Sequence[int]) -> Scale:
        """That of the metric; longer where scores lie beyond it, as a single example's of HealthBench may."""
        scale = self.metrics[metrics[0]].scale
        every = np.concatenate([_by_metric(side, metrics).value for side in self.scores])
        return Scale(min(scale.least, float(every.min())), max(scale.most, float(every.max())))

    def _universe(self, metrics: Sequence[int], known: Sequence[_Means]) -> frozenset[int]:
        """The items to be scored: all of the task; of a benchmark's metric of some items only, these."""
        name = self.metrics[metrics[0]]
        of_task = self.universe.get(name.task, frozenset())
        if name.measure != "metric":
            return of_task
        own = self.lacking.get(metrics[0], frozenset()).union(*(mean.codes.tolist() for mean in known))
        others = [n for n, metric in enumerate(self.metrics) if metric.task == name.task]
        scored = {item for side in self.scores for item in _by_metric(side, others).item.tolist()}
        return of_task if scored <= own else own


def pair(a: Side, b: Side) -> Pairing:
    """Put two sides together."""
    items = shared_items(a, b)
    judges = shared_judges(a, b)
    by_key = {metric.key: metric for side in (b, a) for metric in side.metrics.values()}
    metrics = sorted(by_key.values(), key=lambda metric: (metric.task, not metric.headline, metric.key))
    tasks = [metric.task for metric in metrics]
    place = {metric.key: n for n, metric in enumerate(metrics)}
    lacking: dict[int, set[int]] = {}
    scores = []
    for side, codes in zip((a, b), items.codes, strict=True):
        names = {key: place[metric.key] for key, metric in side.metrics.items()}
        for item, metric in zip(*(column.tolist() for column in side.lacking), strict=True):
            if item in codes:
                lacking.setdefault(names[metric], set()).add(codes[item])
        scores.append(_coded(side, codes, names, judges.codes(side, tasks)))
    paired, factors = _counterparts(scores[0], scores[1]), _shared_factors(a, b)
    return Pairing(
        metrics,
        (scores[0], scores[1]),
        paired,
        items.by_task(),
        items.clusters,
        {metric: frozenset(found) for metric, found in lacking.items()},
        factors,
        judges.taken(a, b),
        judges.apart,
        (
            *items.notes,
            *judges.notes,
            *other_rubrics(a, b),
            *other_weights(a, b),
            *_other_models(a, b),
            *_incomplete(metrics, paired[0], factors),
        ),
    )


def _other_models(a: Side, b: Side) -> Iterator[Mismatch]:
    """The tasks in which another model than the compared one answered."""
    for side in (a, b):
        for task, served in side.served.items():
            yield Mismatch(task, f"{task}: {side.label}: {served.clause}")


def _incomplete(
    metrics: Sequence[MetricName], paired: Units, factors: Mapping[str, Mapping[str, float]]
) -> Iterator[Mismatch]:
    for task, weights in factors.items():
        names = {place: name.metric for place, name in enumerate(metrics) if name.task == task}
        shared = _by_metric(paired, [place for place, name in names.items() if name in weights])
        if len(shared.item) and not len(_complete(shared, len(weights))):
            lacking = sorted(weights.keys() - {names[place] for place in shared.metric.tolist()})
            yield Mismatch(
                task,
                f"{task}: no item is scored in {listed(lacking) or 'every factor'} on both sides, so only "
                "single factors are compared",
            )


def _shared_factors(a: Side, b: Side) -> dict[str, dict[str, float]]:
    known = {(name.task, name.metric) for name in a.metrics.values()}
    known |= {(task, factor) for task, factors in a.weighed.items() for factor in factors}
    return {
        task: {factor: weight for factor, weight in factors.items() if (task, factor) in known}
        for task, factors in b.weighed.items()
    }


def _coded(
    side: Side, items: Mapping[int, int], metrics: Mapping[int, int], judges: Mapping[tuple[int, int], int]
) -> Units:
    """The units by codes, without those of items and judges that are left out; the units of judges who are
    taken together become one, their mean."""
    units = side.units
    item, metric = _looked_up(units.item, items), _looked_up(units.metric, metrics)
    known, at = np.unique(units.judge, return_inverse=True)
    places = range(max(metrics.values(), default=0) + 1)
    judge = np.array([[judges.get((n, key), -1) for key in known.tolist()] for n in places])[metric, at]
    whole = Units(item, judge, metric, *units[3:]).chosen((item >= 0) & (judge >= 0))
    keys, at = np.unique(_keys(whole), return_inverse=True)
    counts = np.bincount(at, minlength=len(keys))
    return Units(
        keys // (_MOST_JUDGES * _MOST_METRICS),
        keys // _MOST_METRICS % _MOST_JUDGES,
        keys % _MOST_METRICS,
        *(np.bincount(at, column, len(keys)) / counts for column in whole[3:]),
    )


# Item, judge and metric share a 64-bit key: 16 bits for each of the latter leave 31 for items.
_MOST_JUDGES = _MOST_METRICS = 1 << 16


def _keys(scores: Units) -> Codes:
    keys = (scores.item * _MOST_JUDGES + scores.judge) * _MOST_METRICS + scores.metric
    return np.asarray(keys, np.int64)


def _looked_up(hashes: NDArray[np.integer[Any]], codes: Mapping[int, int]) -> Codes:
    """The code of each hash; −1 where it has none."""
    if not codes:
        return np.full(len(hashes), -1, np.int64)
    keys = np.fromiter(codes, np.uint64, len(codes))
    values = np.fromiter(codes.values(), np.int64, len(codes))
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    place = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    return np.where(keys[place] == hashes, values[place], -1)


def _counterparts(a: Units, b: Units) -> tuple[Units, Units]:
    _, of_a, of_b = np.intersect1d(_keys(a), _keys(b), assume_unique=True, return_indices=True)
    paired = b.chosen(of_b)
    return a.chosen(of_a)._replace(part=paired.part), paired  # where weights differ, those of b


def _item_means(scores: Units) -> _Means:
    codes, at = np.unique(scores.item, return_inverse=True)
    shares = _shares_of(scores)
    sizes = np.bincount(at, shares, len(codes))
    values, weights = (
        np.bincount(at, column * shares, len(codes)) / sizes for column in (scores.value, scores.weight)
    )
    return _Means(codes, values, weights, sizes.astype(np.float64))


_ANY = (0.0, 1.0)
"""What an item without a score might have."""


def _ends(means: _Means, scale: Scale, every: float | None) -> dict[int, tuple[float, float]]:
    """By item, its mean with the factors that it lacks at 0, and at 1; ``every``: the sum of all factors'
    weights, None where no factor lacks."""
    shares = scale.shares(means.values)
    known = 1.0 if every is None else np.minimum(means.sizes / every, 1.0)
    least = shares * known
    ends = np.stack([least, least + 1 - known], axis=1).tolist()
    return {item: (low, high) for item, (low, high) in zip(means.codes.tolist(), ends, strict=True)}


def _complete(scores: Units, factors: int) -> Codes:
    """The items that have a score by each of so many metrics."""
    items, counts = np.unique(
        np.unique(scores.item * _MOST_METRICS + scores.metric) // _MOST_METRICS, return_counts=True
    )
    return np.asarray(items[counts == factors], np.int64)
