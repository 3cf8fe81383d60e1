"""What two sides have in common: the same items, scored by the same judges in the same factors.

Items are the same where the same was asked, whatever their ids; where that is not on record, where their ids
are the same. A score counts only where the other side has its counterpart, so that neither a hard item nor a
strict judge weighs on one side alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.common_ground import other_rubrics, shared_items, shared_judges
from coeval.analysis.comparison.judged_apart import JudgedApart
from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.comparison.side import Hashes, MetricName, Side
from coeval.analysis.intervals import Floats, Scale

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
    """Of items, in the order of their codes."""

    codes: Codes
    values: Floats
    weights: Floats


class _CodedScores(NamedTuple):
    """A side's values, by codes of items, judges and metrics that both sides share."""

    item: Codes
    judge: Codes
    metric: Codes
    value: Floats
    weight: Floats

    def of(self, metrics: Sequence[int]) -> _CodedScores:
        return self.chosen(np.isin(self.metric, metrics))

    def chosen(self, which: NDArray[np.bool_] | Codes) -> _CodedScores:
        item, judge, metric, value, weight = self
        return _CodedScores(item[which], judge[which], metric[which], value[which], weight[which])


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two sides, put together: all scores of each, and those that have a counterpart.

    ``universe``: by task, the codes of its items; ``clusters``: by code, what items share that nearly repeat
    each other; None: none do. ``lacking``: by metric, the items whose score is missing.
    ``judged``: by task, whose scores are taken. ``apart``: who judged one side only. ``notes``: what else
    does not fit, one sentence each.
    """

    metrics: Sequence[MetricName]
    scores: tuple[_CodedScores, _CodedScores]
    paired: tuple[_CodedScores, _CodedScores]
    universe: Mapping[str, frozenset[int]]
    clusters: Codes | None
    lacking: Mapping[int, frozenset[int]]
    judged: Mapping[str, Collection[str]]
    apart: tuple[JudgedApart, ...]
    notes: tuple[str, ...]

    def scored(self, metrics: Sequence[int]) -> ScoredPairs | None:
        """The items' means over these metrics of one task; None where no item is paired."""
        a, b = (_item_means(side.of(metrics)) for side in self.paired)
        if not len(a.codes):
            return None
        known = [_item_means(side.of(metrics)) for side in self.scores]
        scale = self._scale(metrics)
        missing = self._universe(metrics, known) - frozenset(a.codes.tolist())
        shares = [
            dict(zip(mean.codes.tolist(), _shares(mean.values, scale).tolist(), strict=True))
            for mean in known
        ]
        low = sum(shares[1].get(item, 0.0) - shares[0].get(item, 1.0) for item in missing)
        high = sum(shares[1].get(item, 1.0) - shares[0].get(item, 0.0) for item in missing)
        alike = None if self.clusters is None else self.clusters[a.codes]
        pairs = PairedScores(_shares(a.values, scale), _shares(b.values, scale), a.weights, alike)
        found = float(np.average(pairs.b - pairs.a, weights=pairs.weights)) * len(a.codes)
        every = len(a.codes) + len(missing)
        bounds = (float(found + low) / every, float(found + high) / every)
        return ScoredPairs(pairs, len(missing), *bounds, scale)

    def _scale(self, metrics: Sequence[int]) -> Scale:
        """That of the metric; longer where scores lie beyond it, as a single example's of HealthBench may."""
        scale = self.metrics[metrics[0]].scale
        every = np.concatenate([side.of(metrics).value for side in self.scores])
        return Scale(min(scale.least, float(every.min())), max(scale.most, float(every.max())))

    def _universe(self, metrics: Sequence[int], known: Sequence[_Means]) -> frozenset[int]:
        """The items to be scored: all of the task; of a benchmark's metric of some items only, these."""
        name = self.metrics[metrics[0]]
        of_task = self.universe.get(name.task, frozenset())
        if name.measure != "metric":
            return of_task
        own = self.lacking.get(metrics[0], frozenset()).union(*(mean.codes.tolist() for mean in known))
        others = [n for n, metric in enumerate(self.metrics) if metric.task == name.task]
        scored = {item for side in self.scores for item in side.of(others).item.tolist()}
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
    return Pairing(
        metrics,
        (scores[0], scores[1]),
        _counterparts(scores[0], scores[1]),
        items.by_task(),
        items.clusters,
        {metric: frozenset(found) for metric, found in lacking.items()},
        judges.taken(a, b),
        judges.apart,
        (*items.notes, *judges.notes, *other_rubrics(a, b)),
    )


def _coded(
    side: Side, items: Mapping[int, int], metrics: Mapping[int, int], judges: Mapping[tuple[int, int], int]
) -> _CodedScores:
    """The units by codes, without those of items and judges that are left out; the units of judges who are
    taken together become one, their mean."""
    units = side.units
    item, metric = _looked_up(units.item, items), _looked_up(units.metric, metrics)
    known, at = np.unique(units.judge, return_inverse=True)
    places = range(max(metrics.values(), default=0) + 1)
    judge = np.array([[judges.get((n, key), -1) for key in known.tolist()] for n in places])[metric, at]
    whole = _CodedScores(item, judge, metric, units.value, units.weight).chosen((item >= 0) & (judge >= 0))
    keys, at = np.unique(_keys(whole), return_inverse=True)
    counts = np.bincount(at, minlength=len(keys))
    return _CodedScores(
        keys // (_MOST_JUDGES * _MOST_METRICS),
        keys // _MOST_METRICS % _MOST_JUDGES,
        keys % _MOST_METRICS,
        np.bincount(at, whole.value, len(keys)) / counts,
        np.bincount(at, whole.weight, len(keys)) / counts,
    )


_MOST_JUDGES = _MOST_METRICS = 1 << 16


def _keys(scores: _CodedScores) -> Codes:
    return (scores.item * _MOST_JUDGES + scores.judge) * _MOST_METRICS + scores.metric


def _looked_up(hashes: Hashes, codes: Mapping[int, int]) -> Codes:
    """The code of each hash; −1 where it has none."""
    if not codes:
        return np.full(len(hashes), -1, np.int64)
    keys = np.fromiter(codes, np.uint64, len(codes))
    values = np.fromiter(codes.values(), np.int64, len(codes))
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    place = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    return np.where(keys[place] == hashes, values[place], -1)


def _counterparts(a: _CodedScores, b: _CodedScores) -> tuple[_CodedScores, _CodedScores]:
    _, of_a, of_b = np.intersect1d(_keys(a), _keys(b), assume_unique=True, return_indices=True)
    return a.chosen(of_a), b.chosen(of_b)


def _item_means(scores: _CodedScores) -> _Means:
    codes, at = np.unique(scores.item, return_inverse=True)
    counts = np.bincount(at, minlength=len(codes))
    values, weights = (np.bincount(at, column, len(codes)) / counts for column in scores[3:])
    return _Means(codes, values, weights)


def _shares(values: Floats, scale: Scale) -> Floats:
    return (values - scale.least) / (scale.most - scale.least)
