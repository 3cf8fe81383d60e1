"""Tables of measures by what their records declare: a column for each field that has a heading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from coeval.analysis.measures.measure_tree import Entity, Measured, Record, ShownAs, field_declarations
from coeval.core.figures import points_per_unit, share_of_scale
from coeval.reports.content import Cell, ReportColumn, ReportTable, link_rows, make_columns

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from coeval.analysis.run_results import MetricScore
    from coeval.analysis.training.aggregate import SampleFigure

_Record = TypeVar("_Record", bound=Entity)


def column_of_field(record_type: type[Record], field: str, name: str = "") -> ReportColumn:
    """Return the column of one declared field; pictures and filters call it ``name``, by default as the
    field."""
    return msgspec.structs.replace(columns_by_field(record_type)[field], name=name or field)


def columns_by_field(record_type: type[Record]) -> dict[str, ReportColumn]:
    """Return the declared columns of a record, in its order."""
    return {
        field: ReportColumn(field, display.column, display.kind, display.meaning, display.terminal)
        for field, display in field_declarations(record_type).items()
        if isinstance(display, ShownAs) and display.column
    }


class MeasureTable(NamedTuple, Generic[_Record]):
    """A declared table with a row for each record and a column for each field that its type declares.

    ``headings``: of the name columns; ``link``: the key of a link that chooses the first of these, empty:
    rows have no links; ``count_title``: the heading of the first measure's n; ``further``: columns behind
    it, and how each reads its cell from a record.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    record_type: type[_Record]
    link: str = ""
    count_title: str = "Items"
    further: tuple[tuple[ReportColumn, Callable[[_Record], Cell]], ...] = ()

    def fill(self, records_by_name: Mapping[Any, _Record]) -> ReportTable:
        """Return the table of records, whose keys are the texts in the name columns."""
        columns = columns_by_field(self.record_type)
        rows: list[tuple[Cell, ...]] = []
        for key, record in records_by_name.items():
            names = key if isinstance(key, tuple) else (key,)
            figures = [getattr(record, field) for field in columns]
            # what is not measured, as the agreement of a single judge, has no count
            n = next((figure.n for figure in figures if isinstance(figure, Measured)), None) or None
            rows.append(
                (*names, *map(_measure_cell, figures), n, *(read(record) for _, read in self.further))
            )
        count = ReportColumn("n", self.count_title, "count", terminal="n")
        further = (column for column, _ in self.further)
        shown = (*make_columns(*self.headings), *columns.values(), count, *further)
        links = link_rows(rows, **{self.link: 0}) if self.link else {}
        return ReportTable(self.name, self.title, shown, tuple(rows), links=links, names=len(self.headings))


def _measure_cell(figure: Any) -> Cell:
    """Return a figure as a cell; a measure that never has an interval is a plain number."""
    if isinstance(figure, Measured) and figure.low is None and figure.value is not None:
        return figure.value
    if isinstance(figure, tuple) and not isinstance(figure, Measured):
        return format_ranks(figure)
    cell: Cell = figure
    return cell


def metric_as_share(
    value: float | None, interval: tuple[float | None, float | None] | None, unit: str, n: int | None = None
) -> Measured:
    """Convert a benchmark's metric and its interval to shares of the scale of its ``unit``."""
    numbers = (value, *(interval or (None, None)))
    value, low, high = (None if number is None else share_of_scale(number, unit) for number in numbers)
    return Measured(value, low, high, n, None)


def difference_as_share(
    difference: float, interval: tuple[float, float], unit: str, n: int | None = None
) -> Measured:
    """Convert a difference of a benchmark's metric, with its interval, likewise."""
    factor = points_per_unit(unit) / 100
    low, high = interval
    return Measured(factor * difference, factor * low, factor * high, n, None)


def metric_error_as_share(error: float | None, unit: str) -> float | None:
    """Convert a standard error of a benchmark's metric, or the like."""
    return None if error is None else points_per_unit(unit) / 100 * error


def format_ranks(ranks: tuple[int, int] | None) -> str | None:
    """Format the lowest and highest rank: ``2`` or ``2–4``."""
    if ranks is None:
        return None
    low, high = ranks
    return f"{low}" if low == high else f"{low}–{high}"


def bounds_unless_equal(bounds: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """Return the bounds, or None twice if they are equal: then nothing is missing."""
    least, most = bounds or (None, None)
    return (None, None) if least == most else (least, most)


# --- Benchmark metrics

SAMPLE_COLUMNS = (
    *make_columns("mean", "SEM", kind="points"),
    *make_columns("runs", "items", kind="count"),
)
"""Columns of a metric over the samples of its prompts."""


def mean_sem_cells(figure: SampleFigure, interval: tuple[float, float] | None) -> tuple[Cell, ...]:
    """Return the cells of `SAMPLE_COLUMNS`; ``interval`` is the mean's."""
    mean = metric_as_share(figure.mean, interval, figure.unit, figure.n_items)
    return (mean, metric_error_as_share(figure.sem, figure.unit), figure.n_runs, figure.n_items)


class TaskMetrics(NamedTuple):
    """A task's metrics, each by name with its value, interval and n; ``state`` says why it has none.
    ``counts``: what n counts, in words, and how many failed."""

    task: str
    state: str
    counts: tuple[str, int] | tuple[()]
    metrics: Sequence[tuple[str, Cell, int]]


def task_metrics_table(tasks: Iterable[TaskMetrics], title: str = "") -> ReportTable:
    """Make a row for each task, with what it counts and how much failed, and below it one for each of its
    metrics."""
    rows: list[tuple[Cell, ...]] = []
    bold = set()
    for task in tasks:
        bold.add((len(rows), 0))
        rows.append((task.task, task.state, *(task.counts or ("", ""))))
        rows += [(f"  {name}", value, n, "") for name, value, n in task.metrics]
    columns = (
        *make_columns("task and metric"),
        ReportColumn("value", "value [95% interval]", "points"),
        *make_columns("n", "failed", kind="count"),
    )
    return ReportTable("metrics", title, columns, tuple(rows), bold=frozenset(bold))


def single_model_metrics_table(metrics: Sequence[MetricScore]) -> ReportTable:
    """Make the table of one model's metrics by task."""
    tasks = []
    for task, group in groupby(metrics, key=lambda metric: metric.task):
        first, *others = group
        tasks.append(
            TaskMetrics(
                task if first.samples == 1 else f"{task}, {first.samples:,} samples of each prompt",
                f"not measured: {first.not_measured}" if first.not_measured else "",
                (f"{first.expected:,} {first.counted}", first.failed),
                [
                    (
                        metric.metric,
                        metric_as_share(metric.value, (metric.low, metric.high), metric.unit),
                        metric.n,
                    )
                    for metric in (first, *others)
                ],
            )
        )
    return task_metrics_table(tasks, f"Metrics of {metrics[0].model}")
