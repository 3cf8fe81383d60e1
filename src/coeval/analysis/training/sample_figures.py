"""Metrics over several samples of each prompt, in the shape of ``summary_agg.json``.

Samples of a prompt are alike, so it is the prompts that are random, not only the runs: the standard error
over runs (``sem``) says how far sampling moves the figure, ``item_se`` how far other prompts would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.intervals import Scale, clustered_mean, clustered_standard_error, scale_of_unit
from coeval.analysis.pairwise.rates import draw_counts, rate_with_spread
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import SampleMetricFigure
from coeval.analysis.run_results import MetricScore
from coeval.analysis.training.checkpoint_scores import (
    ChosenRuns,
    ItemColumn,
    choose_task_runs,
    read_item_columns,
)
from coeval.core.figures import share_of_scale


class SampleFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over the samples of a task, in its ``unit``.

    ``mean``, ``std`` (ddof 1) and ``sem`` are over the ``n_runs`` samples that have a value, ``per_run`` by
    sample; a single one has neither ``std`` nor ``sem``. ``item_se`` is ``√(MSB / (n_items · N))`` over
    ``n_items`` prompts with N samples of each (`coeval.analysis.intervals.clustered_standard_error`), and
    ``ci95`` the interval of the prompts' means; of Arena-Hard's win rates that of a bootstrap over prompts,
    and of a single sample the benchmark's own where it has one. A figure that is fitted to all prompts (a
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


class TaskFigures(NamedTuple):
    """A task over the samples that count, as every view of a folder shows it: its ``metrics``, the
    benchmark's headline first, and the scores of its ``items``."""

    runs: ChosenRuns
    metrics: dict[str, SampleFigure]
    items: dict[str, ItemColumn]

    @property
    def headline(self) -> str:
        return next(iter(self.metrics))


def compute_task_figures(
    reader: OutputReader, chosen: Sequence[ChosenRuns] | None = None
) -> dict[str, TaskFigures]:
    """Compute the figures of each task that has any, by the task's name in its records.

    ``chosen``: the samples that count; None: those that `choose_task_runs` chooses.
    """
    by_task = {}
    for runs in choose_task_runs(reader.folder) if chosen is None else chosen:
        if runs.runs:
            items = read_item_columns(reader, runs)
            samples: dict[str, list[SampleMetricFigure]] = {}
            for sample in reader.metrics:
                if sample.task == runs.recorded_task and sample.sample in runs.runs:
                    samples.setdefault(sample.metric, []).append(sample)
            figures = {
                name: figure
                for name, of_metric in samples.items()
                if (figure := _compute_figure(of_metric, items.get(name)))
            }
            by_task[runs.recorded_task] = TaskFigures(runs, figures, items)
    return by_task


def list_metric_scores(reader: OutputReader, figures: Mapping[str, TaskFigures]) -> tuple[MetricScore, ...]:
    """List the metrics of a folder by task, over the samples that count, including those without a value."""
    of_metric: dict[str, dict[tuple[str, str], list[SampleMetricFigure]]] = {}
    for sample in reader.metrics:
        figure = figures.get(sample.task)
        if figure is None or sample.sample in figure.runs.runs:
            of_metric.setdefault(sample.task, {}).setdefault((sample.model, sample.metric), []).append(sample)
    return tuple(
        _build_metric_score(samples, figures[task].metrics.get(metric) if task in figures else None)
        for task, metrics in of_metric.items()
        for (_, metric), samples in metrics.items()
    )


def _build_metric_score(samples: Sequence[SampleMetricFigure], figure: SampleFigure | None) -> MetricScore:
    """Build a metric's score: over several samples from ``figure``, else as the benchmark reports it."""
    first = samples[0]
    low, high = (figure.ci95 if figure is not None else None) or (None, None)
    several = figure is not None and figure.n_runs > 1
    return MetricScore(
        model=first.model,
        task=first.task,
        samples=len(samples),
        metric=first.metric,
        value=None if figure is None else figure.mean,
        low=low,
        high=high,
        standard_error=figure.item_se if figure is not None and several else first.standard_error,
        n=figure.n_items if figure is not None and several else first.n,
        unit=first.unit,
        counted=first.counted,
        expected=sum(sample.expected for sample in samples),
        failed=sum(sample.failed for sample in samples),
        not_measured=first.not_measured,
    )


def mean_over_tasks(headlines: Iterable[tuple[float, str]]) -> float:
    """Return the mean of tasks' headlines as a share; each is a value with its unit, and counts alike."""
    return fmean(share_of_scale(value, unit) for value, unit in headlines)


def _compute_figure(metrics: Sequence[SampleMetricFigure], items: ItemColumn | None) -> SampleFigure | None:
    """Compute a metric's mean, spread and interval over samples; None if no sample has a value."""
    per_run = tuple(metric.value for metric in metrics if metric.value is not None)
    if not per_run:
        return None
    unit, runs = metrics[0].unit, len(per_run)
    mean, std = fmean(per_run), stdev(per_run) if runs > 1 else None
    bounds, error, n = _average_sample_bounds(metrics), None, max(metric.n for metric in metrics)
    if items is not None:
        scale = scale_of_unit(unit)
        wide = Scale(min(scale.least, items.least), max(scale.most, items.most))
        item, means = np.arange(len(items.sums)), items.values
        error, n = clustered_standard_error(means, item, items.totals), len(item)
        if bounds is None or runs > 1:
            bounds = _bootstrap_ratio_bounds(items) if _is_ratio_over_verdicts(items, unit) else None
            if bounds is None:
                interval = clustered_mean(means, item, wide, items.totals)
                if interval.low is not None and interval.high is not None:
                    # single scores of HealthBench may lie below its scale; its mean does not
                    bounds = max(interval.low, scale.least), max(interval.high, scale.least)
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


def _is_ratio_over_verdicts(items: ItemColumn, unit: str) -> bool:
    """Check whether it is a win rate whose prompts count by their verdicts, as Arena-Hard's."""
    return unit == "percent" and len(items.sums) > 1 and len(np.unique(items.totals)) > 1


def _bootstrap_ratio_bounds(items: ItemColumn) -> tuple[float, float]:
    """Return the 95% interval that the benchmark itself gives such a rate (`coeval.analysis.pairwise.rates`):
    its prompts are resampled, each with the verdicts of all samples."""
    drawn = draw_counts(len(items.sums), np.random.default_rng(0))
    value = float(items.sums.sum() / items.totals.sum())
    bootstrap = rate_with_spread(value, (drawn @ items.sums) / (drawn @ items.totals), len(items.sums))
    return bootstrap.low_95, bootstrap.high_95


def _average_sample_bounds(metrics: Sequence[SampleMetricFigure]) -> tuple[float, float] | None:
    """Average the samples' own intervals: their errors are those of the same prompts, so they add up."""
    lows = [metric.low for metric in metrics if metric.low is not None]
    highs = [metric.high for metric in metrics if metric.high is not None]
    return (fmean(lows), fmean(highs)) if lows and len(lows) == len(highs) else None
