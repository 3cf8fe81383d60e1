"""Metrics over several samples of each prompt, in the shape of ``summary_agg.json``.

Samples of a prompt are alike, so it is the prompts that are random, not only the runs: the standard error
over runs (``sem``) says how far sampling moves the figure, ``item_se`` how far other prompts would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats, Scale, clustered_error, clustered_mean, scale_of
from coeval.analysis.pairwise.rates import draws, rate
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.run_results import MetricScore


class SampleFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over the samples of a task, in its ``unit``.

    ``mean``, ``std`` (ddof 1) and ``sem`` are over the ``n_runs`` samples that have a value, ``per_run`` by
    sample; a single one has neither ``std`` nor ``sem``. ``item_se`` is ``√(MSB / (n_items · N))`` over
    ``n_items`` prompts with N samples of each (`coeval.analysis.intervals.clustered_error`), and ``ci95`` the
    interval of the prompts' means; of Arena-Hard's win rates that of a bootstrap over prompts, and of a
    single sample the benchmark's own where it has one. A figure that is fitted to all prompts (a
    length-controlled win rate) has no scores of prompts: its ``item_se`` is None, and ``ci95`` is the mean of
    the samples' own, each of which already holds what other prompts would change.
    """

    mean: float
    std: float | None
    sem: float | None
    n_runs: int
    per_run: tuple[float, ...]
    item_se: float | None
    ci95: tuple[float, float] | None
    n_items: int
    unit: str


class _OfItems(NamedTuple):
    """The values of a metric, summed by prompt over its samples."""

    sums: Floats
    weights: Floats
    least: float
    most: float


def sample_figures(reader: OutputReader) -> dict[str, dict[str, dict[str, SampleFigure]]]:
    """By model, task and metric; of the tasks that have several samples of each prompt."""
    of_task: defaultdict[tuple[str, str], list[MetricScore]] = defaultdict(list)
    for metric in reader.metrics:
        of_task[metric.model, metric.task].append(metric)
    found: dict[str, dict[str, dict[str, SampleFigure]]] = {}
    for (model, task), metrics in of_task.items():
        if len({metric.sample for metric in metrics}) > 1:
            found.setdefault(model, {})[task] = figures_of(reader, metrics)
    return found


def figures_of(reader: OutputReader, metrics: Sequence[MetricScore]) -> dict[str, SampleFigure]:
    """By metric, over the samples that these are of: one or several of one model's in one task."""
    samples = sorted({metric.sample for metric in metrics})
    items = {
        name: _OfItems(np.array(sums), np.array(weights), *ends)
        for name, sums, weights, *ends in reader.rows(_ITEMS, [metrics[0].model, metrics[0].task, samples])
    }
    return {
        name: figure
        for name in dict.fromkeys(metric.metric for metric in metrics)
        if (figure := _figure([one for one in metrics if one.metric == name], items.get(name)))
    }


def _figure(metrics: Sequence[MetricScore], items: _OfItems | None) -> SampleFigure | None:
    """None where no sample has a value."""
    per_run = tuple(metric.value for metric in metrics if metric.value is not None)
    if not per_run:
        return None
    unit, runs = metrics[0].unit, len(per_run)
    mean, std = fmean(per_run), stdev(per_run) if runs > 1 else None
    bounds, error, n = _own_bounds(metrics), None, max(metric.n for metric in metrics)
    if items is not None:
        scale = scale_of(unit)
        wide = Scale(min(scale.least, items.least), max(scale.most, items.most))
        place, means = np.arange(len(items.sums)), items.sums / items.weights
        error, n = clustered_error(means, place, items.weights), len(place)
        if bounds is None or runs > 1:
            bounds = _bootstrapped(items) if _is_ratio(items, unit) else None
            if bounds is None:
                interval = clustered_mean(means, place, wide, items.weights)
                bounds = _within(interval.low, interval.high, scale)
    return SampleFigure(
        mean=mean,
        std=std,
        sem=None if std is None else std / runs**0.5,
        n_runs=runs,
        per_run=per_run,
        item_se=error,
        ci95=bounds and (min(bounds[0], mean), max(bounds[1], mean)),
        n_items=n,
        unit=unit,
    )


def _is_ratio(items: _OfItems, unit: str) -> bool:
    """Whether it is a win rate whose prompts count by their verdicts, as Arena-Hard's."""
    return unit == "percent" and len(items.sums) > 1 and len(np.unique(items.weights)) > 1


def _bootstrapped(items: _OfItems) -> tuple[float, float]:
    """The interval that the benchmark itself gives such a rate (`coeval.analysis.pairwise.rates`): its
    prompts are resampled, each with the verdicts of all samples."""
    drawn = draws(len(items.sums), np.random.default_rng(0))
    value = float(items.sums.sum() / items.weights.sum())
    found = rate(value, (drawn @ items.sums) / (drawn @ items.weights), len(items.sums))
    return found.low_95, found.high_95


def _own_bounds(metrics: Sequence[MetricScore]) -> tuple[float, float] | None:
    """The mean of the samples' own intervals: their errors are those of the same prompts, so they add up."""
    lows = [metric.low for metric in metrics if metric.low is not None]
    highs = [metric.high for metric in metrics if metric.high is not None]
    return (fmean(lows), fmean(highs)) if lows and len(lows) == len(highs) else None


def _within(low: float | None, high: float | None, scale: Scale) -> tuple[float, float] | None:
    """Single scores of HealthBench may lie below its scale; its mean does not."""
    if low is None or high is None:
        return None
    return max(low, scale.least), max(high, scale.least)


_ITEMS = """
SELECT metric, list(sums ORDER BY item), list(weights ORDER BY item), min(least), max(most)
FROM (
    SELECT metric, item, sum(value * weight) AS sums, sum(weight) AS weights,
           min(value) AS least, max(value) AS most
    FROM scores
    WHERE model IS NOT DISTINCT FROM coalesce(nullif(?, ''), model) AND task = ?
        AND list_contains(?::INTEGER[], sample) AND value IS NOT NULL AND weight > 0
    GROUP BY ALL
)
GROUP BY ALL
"""
