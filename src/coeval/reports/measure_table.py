"""Tables of measures by what their records declare: a column for each field that has a heading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.measure_tree import Entity, Measured, Record, ShownAs, field_declarations
from coeval.core.figures import points_per, share_of_scale
from coeval.reports.content import Cell, ReportColumn, ReportTable, columns_of

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from coeval.analysis.run_results import MetricScore
    from coeval.analysis.training.sample_figures import SampleFigure

_Record = TypeVar("_Record", bound=Entity)


class Named(NamedTuple):
    """A table's ``name`` and ``title``, the ``headings`` of the names that its rows begin with, and under
    which word a link chooses the first of these; empty: rows have no links."""

    name: str
    title: str
    headings: tuple[str, ...]
    link: str = ""


def declared_column(record: type[Record], field: str, name: str = "") -> ReportColumn:
    """Of one field; ``name`` is what pictures and filters call it, where that is not the field's."""
    return msgspec.structs.replace(declared_columns(record)[field], name=name or field)


def declared_columns(record: type[Record]) -> dict[str, ReportColumn]:
    """By field, in the order of the record."""
    return {
        name: ReportColumn(name, shown.column, shown.kind, shown.meaning, shown.terminal)
        for name, shown in field_declarations(record).items()
        if isinstance(shown, ShownAs) and shown.column
    }


def measure_table(
    of: Named,
    record: type[_Record],
    rows: Mapping[Any, _Record],
    items: str = "Items",
    beside: Mapping[ReportColumn, Callable[[_Record], Cell]] | None = None,
) -> ReportTable:
    """A row for each of ``rows``, whose keys are the names, with all that the record declares.

    Parameters
    ----------
    items : the heading of what the first measure rests on
    beside : further columns
    """
    columns, others = declared_columns(record), beside or {}
    cells: list[tuple[Cell, ...]] = []
    for key, found in rows.items():
        names = key if isinstance(key, tuple) else (key,)
        figures = [getattr(found, name) for name in columns]
        # of nothing measured, as of the agreement of a single judge, there is no count
        n = next((figure.n for figure in figures if isinstance(figure, Measured)), None) or None
        further = (take(found) for take in others.values())
        cells.append((*names, *map(_cell, figures), n, *further))
    return ReportTable(
        of.name,
        of.title,
        (
            *(ReportColumn(heading.lower(), heading) for heading in of.headings),
            *columns.values(),
            ReportColumn("n", items, "count", terminal="n"),
            *others,
        ),
        tuple(cells),
        links={at: urlencode({of.link: key}) for at, key in enumerate(rows)} if of.link else {},
        names=len(of.headings),
    )


def _cell(figure: Any) -> Cell:
    """A measure that has no interval by its nature is a plain number."""
    if isinstance(figure, Measured) and figure.low is None and figure.value is not None:
        return figure.value
    if isinstance(figure, tuple) and not isinstance(figure, Measured):
        return rank_text(figure)
    found: Cell = figure
    return found


def in_points(
    ends: tuple[float | None, float | None, float | None], unit: str, n: int | None = None
) -> Measured:
    """A benchmark's metric with its interval as shares of the scale of its ``unit``."""
    value, low, high = (None if end is None else share_of_scale(end, unit) for end in ends)
    return Measured(value, low, high, n, None)


def gap_in_points(difference: float, ends: tuple[float, float], unit: str, n: int | None = None) -> Measured:
    """A difference of a benchmark's metric likewise."""
    by = points_per(unit) / 100
    return Measured(by * difference, by * ends[0], by * ends[1], n, None)


def error_in_points(error: float | None, unit: str) -> float | None:
    """A standard error of a benchmark's metric, or the like."""
    return None if error is None else points_per(unit) / 100 * error


def rank_text(ranks: tuple[int, int] | None) -> str | None:
    """``2`` or ``2–4``."""
    if ranks is None:
        return None
    low, high = ranks
    return f"{low}" if low == high else f"{low}–{high}"


def apart(bounds: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """None where nothing is missing: the score itself is the answer."""
    least, most = bounds or (None, None)
    return (None, None) if least == most else (least, most)


# --- Benchmark metrics

SAMPLED = (
    *columns_of("mean", "SEM", kind="points"),
    *columns_of("runs", "items", kind="count"),
)
"""Columns of a metric over the samples of its prompts."""


def sampled_cells(figure: SampleFigure, ends: tuple[float, float] | None) -> tuple[Cell, ...]:
    """What `SAMPLED` columns hold; ``ends``: of the mean's interval."""
    mean = in_points((figure.mean, *(ends or (None, None))), figure.unit, figure.n_items)
    return (mean, error_in_points(figure.sem, figure.unit), figure.n_runs, figure.n_items)


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
