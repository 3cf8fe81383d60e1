"""Benchmark metrics and what models cost, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from coeval.analysis.run_results import Bill, ModelCost, bill, perhaps_billed
from coeval.cli.streams import say
from coeval.cli.views.table_view import show_each
from coeval.pricing.tariff import sources_reported
from coeval.reports.content import Cell, ReportColumn, ReportTable, columns_of
from coeval.reports.measure_table import in_points
from coeval.reports.result_tables import cost_table

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from coeval.analysis.run_results import MetricScore

# --- Benchmark metrics


class TaskMetrics(NamedTuple):
    """A task's metrics, each by name with its value, interval and n; ``state`` says why there are none."""

    task: str
    state: str
    counts: tuple[str, int] | tuple[()]
    metrics: Sequence[tuple[str, Cell, int]]


def metric_rows(tasks: Iterable[TaskMetrics], title: str = "") -> ReportTable:
    """A row for each metric below that of its task, which says what it is scored by and how much failed."""
    rows: list[tuple[Cell, ...]] = []
    bold = set()
    for one in tasks:
        bold.add((len(rows), 0))
        rows.append((one.task, one.state, *(one.counts or ("", ""))))
        rows += [(f"  {name}", value, n, "") for name, value, n in one.metrics]
    columns = (
        *columns_of("task and metric"),
        ReportColumn("value", "value [95% interval]", "points"),
        *columns_of("n", "failed", kind="count"),
    )
    return ReportTable("metrics", title, columns, tuple(rows), bold=frozenset(bold))


def metrics_table(metrics: Sequence[MetricScore]) -> ReportTable:
    tasks = []
    for task, found in groupby(metrics, key=lambda metric: metric.task):
        first, *others = found
        tasks.append(
            TaskMetrics(
                task if first.samples == 1 else f"{task}, {first.samples:,} samples of each prompt",
                f"not measured: {first.not_measured}" if first.not_measured else "",
                (f"{first.expected:,} {first.counted}", first.failed),
                [
                    (one.metric, in_points((one.value, one.low, one.high), one.unit), one.n)
                    for one in (first, *others)
                ],
            )
        )
    return metric_rows(tasks, f"Metrics of {metrics[0].model}")


# --- Model costs


def show_costs(costs: Sequence[ModelCost], console: Console) -> None:
    """A row for each model, the sum of them, and whose prices these are."""
    of_all, perhaps = bill(costs), [*perhaps_billed(costs)]
    if of_all or perhaps:
        show_each(console, [cost_table(costs)])
        for sentence in (*perhaps, *_notes(of_all)):
            say(console, sentence, "dim")


def _notes(of_all: Bill) -> Iterator[str]:
    if of_all.unknown:
        plus = "; +: and what these took" if of_all.cost_usd else ""
        yield (
            f"price unknown for {', '.join(of_all.unknown)}{plus}; overrides in Config/provider_pricing.yaml "
            "can name one (docs/prices.md)"
        )
    if of_all.untold:
        yield (
            f"cost unknown of some answers of {', '.join(of_all.untold)}: the host reported no "
            "tokens for them, or they came before the price was known"
        )
    if of_all.sources:
        yield f"Prices: {sources_reported(of_all.sources)}."
