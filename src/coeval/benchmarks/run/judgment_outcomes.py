"""Outcomes of the judgments that a task's items need: values, and reasons of the missing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from coeval.analysis.intervals import Interval, clustered_mean, clustered_standard_error, scale_of_unit
from coeval.analysis.pairwise.rates import Rate
from coeval.benchmarks.benchmark import (
    Answer,
    Benchmark,
    Item,
    JudgmentValue,
    Metric,
    TaskRecords,
    Unit,
    good_response,
    why_value_missing,
)


class Outcomes(msgspec.Struct, frozen=True):
    """Judgments by outcome. An item without an answer lacks all of its judgments. ``values`` holds each
    item's judgment values in the order of its asks, None where missing."""

    values: dict[str, tuple[JudgmentValue | None, ...]]
    failed: dict[str, int]

    @property
    def expected(self) -> int:
        return sum(map(len, self.values.values()))

    @property
    def scored(self) -> int:
        return self.expected - sum(self.failed.values())

    def complete_values(self, item: str) -> tuple[JudgmentValue, ...] | None:
        values = tuple(value for value in self.values[item] if value is not None)
        return values if len(values) == len(self.values[item]) else None


def look_up_outcomes(benchmark: Benchmark, records: TaskRecords) -> Outcomes:
    """Look up the outcome of each ask of each item. ``failed`` counts by the judgment's failure
    (``unparsable``, ``content_filter``, ``missing``), or by the answer's, such as ``answer timeout``."""
    values: dict[str, tuple[JudgmentValue | None, ...]] = {}
    failed: Counter[str] = Counter()
    for item in records.items:
        answer = records.answers.get(item.id)
        reason = why_value_missing(answer)
        asks = benchmark.asks(item, answer if reason is None and answer else Answer(id=item.id))
        item_values: list[JudgmentValue | None] = []
        for ask in asks:
            judgment = records.judgments.get(ask.id)
            why = why_value_missing(judgment) if reason is None else f"answer {reason}"
            if why is not None:
                failed[why] += 1
            item_values.append(judgment.value if judgment is not None and why is None else None)
        values[item.id] = tuple(item_values)
    return Outcomes(values, dict(sorted(failed.items())))


def pair_with_responses(records: TaskRecords) -> list[tuple[Item, str]]:
    """Return the items with a response, even an empty one, and their responses."""
    pairs = ((item, good_response(records.answers.get(item.id))) for item in records.items)
    return [(item, response) for item, response in pairs if response is not None]


def mean_metric(values: Sequence[float], unit: Unit) -> Metric:
    """Return the mean of independent items, its standard error ``sd / √n`` and 95% interval."""
    return clustered_mean_metric([[value] for value in values], unit)


def clustered_mean_metric(groups: Sequence[Sequence[float]], unit: Unit) -> Metric:
    """Return the mean of all values; its standard error and interval allow the values of one group, which is
    an item, to depend on each other."""
    values = [value for group in groups for value in group]
    items = [number for number, group in enumerate(groups) for _ in group]
    mean = clustered_mean(values, items, scale_of_unit(unit))
    return metric_from_interval(mean, unit, clustered_standard_error(values, items))


def rate_metric(rate: Rate | None, n: int) -> Metric:
    """Make a metric of a rate in percent; None: it is unknown."""
    if rate is None:
        return Metric(None, unit="percent")
    return Metric(rate.value, rate.standard_error, (rate.low_95, rate.high_95), n, "percent")


def metric_from_interval(interval: Interval, unit: Unit, standard_error: float | None = None) -> Metric:
    """Make a metric of a mean; ``n`` counts its clusters, that is prompts."""
    low, high = interval.low, interval.high
    ci95 = None if low is None or high is None else (low, high)
    return Metric(interval.mean, standard_error, ci95, interval.n, unit)
