"""Benchmark metrics and what models cost, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from coeval.analysis.run_results import Bill, ModelCost, bill
from coeval.cli.streams import say
from coeval.cli.views.table_view import show_each
from coeval.core.text import dollars
from coeval.engine.progress import short
from coeval.pricing.tariff import sources_reported
from coeval.reports.content import Cell, ReportColumn, ReportTable, columns_of
from coeval.reports.measure_table import in_points

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

_UNKNOWN = "unknown"
_FIGURES = columns_of("requests", "input", "output", "cost", "perhaps", kind="count")


def show_costs(costs: Sequence[ModelCost], console: Console) -> None:
    """A row for each model, the sum of them, and whose prices these are."""
    of_all, perhaps = bill(costs), sum(cost.perhaps_usd for cost in costs)
    if not of_all and not perhaps:
        return
    rows = [(cost.model, *_figures([cost]), _cost(cost), _perhaps(cost.perhaps_usd)) for cost in costs]
    if len(costs) > 1:
        rows.append(("total", *_figures(costs), _total(of_all), _perhaps(perhaps)))
    columns, bold = (*columns_of("model"), *_FIGURES), frozenset({(len(costs), 0)})
    title = "Cost, in tokens and US dollars"
    show_each(console, [ReportTable("costs", title, columns, tuple(rows), bold=bold)])
    if perhaps:
        say(
            console,
            f"perhaps: {dollars(perhaps)} was set aside for requests that may have been billed; "
            "coeval status RUN --settle MODEL=USD takes the provider's bill for it",
            "dim",
        )
    for sentence in _notes(of_all):
        say(console, sentence, "dim")


def _figures(costs: Sequence[ModelCost]) -> tuple[int, str, str]:
    return (
        sum(cost.requests for cost in costs),
        short(sum(cost.input_tokens for cost in costs)),
        short(sum(cost.output_tokens for cost in costs)),
    )


def _cost(cost: ModelCost) -> str:
    if cost.cost_usd is None:
        return _UNKNOWN if cost.unpriced else ""
    return dollars(cost.cost_usd) + "+" * bool(cost.unpriced)


def _perhaps(usd: float) -> str:
    return dollars(usd) if usd else ""


def _total(of_all: Bill) -> str:
    return dollars(of_all.cost_usd) + "+" * of_all.is_partial if of_all.cost_usd else _UNKNOWN


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
