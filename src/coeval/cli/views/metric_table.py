"""Metrics of benchmarks as a table, and their figures as text."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.plain import plain

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from collections.abc import Sequence

    from rich.console import Console

    from coeval.analysis.run_results import MetricScore

NONE = "–"


def print_metrics(metrics: Sequence[MetricScore], console: Console) -> None:
    """A row for each metric, below its task; with several samples, below each sample's."""
    samples = {metric.sample for metric in metrics}
    rows = []
    for (sample, task), found in groupby(metrics, key=lambda metric: (metric.sample, metric.task)):
        of_task = list(found)
        label = plain(task if len(samples) == 1 else f"run_{sample} {task}")
        counts = (f"{of_task[0].expected:,} {of_task[0].counted}", f"{of_task[0].failed:,}")
        rows.append(NameRow(label, ("", "", *counts), "bold"))
        for metric in of_task:
            bounds = None if metric.low is None or metric.high is None else (metric.low, metric.high)
            figures = (shown_value(metric.value, metric.unit), shown_interval(bounds, metric.unit))
            rows.append(NameRow(f"  {plain(metric.metric)}", (*figures, f"{metric.n:,}")))
    print_table(console, f"Metrics of {plain(metrics[0].model)}", "task and metric", METRIC_COLUMNS, rows)


METRIC_COLUMNS = [Column(heading) for heading in ("value", "95 % interval", "n", "failed")]


def shown_value(value: float | None, unit: str) -> str:
    """Shares with three digits, points with two, percent with one: about what their errors allow."""
    digits = {"points": 2, "percent": 1}.get(unit, 3)
    return NONE if value is None else f"{value:.{digits}f}"


def shown_interval(bounds: tuple[float, float] | None, unit: str) -> str:
    return NONE if bounds is None else "[" + ", ".join(shown_value(bound, unit) for bound in bounds) + "]"
