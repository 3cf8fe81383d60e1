"""Tables of differences between students, sides and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from coeval.analysis.comparison.comparison_report import spans_scale
from coeval.analysis.comparison.family import PairDifference
from coeval.core.figures import NOT_KNOWN, share_of_scale
from coeval.reports.content import Cell, ReportColumn, ReportTable
from coeval.reports.measure_table import column_of_field, difference_as_share, metric_error_as_share


def _over_judges_cell(pair: PairDifference, unit: str) -> Cell:
    interval = pair.ci95_over_judges_adjusted
    if interval is None:
        return None
    if spans_scale(interval, unit):
        return NOT_KNOWN
    return difference_as_share(pair.difference, interval, unit, pair.n)


# The name of a column is what pictures call it; cells are made of a difference and of its unit.
_COLUMNS: tuple[tuple[ReportColumn, Callable[[Any, str], Cell]], ...] = (
    (ReportColumn("mean", "Score", "points"), lambda pair, unit: share_of_scale(pair.mean_b, unit)),
    (
        ReportColumn("mean_baseline", "Baseline score", "points"),
        lambda pair, unit: share_of_scale(pair.mean_a, unit),
    ),
    (
        column_of_field(PairDifference, "difference"),
        lambda pair, unit: difference_as_share(pair.difference, pair.ci95_adjusted, unit, pair.n),
    ),
    (column_of_field(PairDifference, "ci95_over_judges_adjusted", "over_judges"), _over_judges_cell),
    (column_of_field(PairDifference, "p_adjusted", "p"), lambda pair, _: pair.p_adjusted),
    (
        column_of_field(PairDifference, "p_over_judges_adjusted", "p_over_judges"),
        lambda pair, _: pair.p_over_judges_adjusted,
    ),
    (
        ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment", ""),
        lambda pair, _: pair.significant,
    ),
    (column_of_field(PairDifference, "agreeing"), lambda pair, _: pair.agreeing),
    (ReportColumn("n", "Items", "count", terminal="n"), lambda pair, _: pair.n),
    (ReportColumn("shared", "Shared items", "count", terminal="shared"), lambda pair, _: pair.n),
    (
        ReportColumn("missing", "Missing", "count", "Items without a score on both sides"),
        lambda pair, _: pair.missing,
    ),
    (
        column_of_field(PairDifference, "minimum_detectable", "could_be_seen"),
        lambda pair, unit: metric_error_as_share(pair.minimum_detectable, unit),
    ),
    (ReportColumn("test", "Test"), lambda pair, _: pair.test),
    (ReportColumn("trend", "Trend"), lambda pair, _: pair.trend),
)


def add_difference_columns(
    table: ReportTable,
    differences: Sequence[PairDifference],
    fields: Sequence[str],
    p_meaning: str = "",
    *,
    unit: str = "share",
    only_used: bool = False,
) -> ReportTable:
    """Add columns on differences, one for each row, to a table of names.

    ``fields``: names of `_COLUMNS`; ``p_meaning``: tooltip of p-values if they are adjusted for more than
    the number of pairs; ``unit``: of differences that name none; ``only_used``: leave out columns that no
    difference has.
    """
    columns, rows = list(table.columns), [list(row) for row in table.rows]
    by_name = {column.name: (column, read_cell) for column, read_cell in _COLUMNS}
    for name in fields:
        column, read_cell = by_name[name]
        cells = [read_cell(difference, getattr(difference, "unit", unit)) for difference in differences]
        if only_used and all(cell is None for cell in cells):
            continue
        if p_meaning and column.kind == "probability":
            title = "p" if name == "p" else "p, judges too"
            column = msgspec.structs.replace(column, title=title, meaning=p_meaning)
        columns.append(column)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return msgspec.structs.replace(table, columns=tuple(columns), rows=tuple(map(tuple, rows)))


def leader_differences_table(by_student: Mapping[str, PairDifference], title_scope: str = "") -> ReportTable:
    """Tabulate by how much the first student leads each of the others; ``by_student`` as
    `Ranking.leader_differences`, ``title_scope``: in which task and label."""
    columns = (ReportColumn("student", "Student", terminal="student"),)
    title = f"Lead of the first student{title_scope}"
    names = ReportTable("leader", title, columns, tuple((name,) for name in by_student))
    fields = ("difference", "p", "over_judges", "p_over_judges", "shared")
    return add_difference_columns(names, [*by_student.values()], fields, only_used=True)
