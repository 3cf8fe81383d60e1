"""Differences as tables: of students, of sides and of checkpoints alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from coeval.analysis.comparison.comparison_report import spans_scale
from coeval.analysis.comparison.family import PairDifference
from coeval.core.figures import NOT_KNOWN, share_of_scale
from coeval.reports.content import Cell, ReportColumn, ReportTable
from coeval.reports.measure_table import column_of_field, metric_error_in_points, metric_gap_in_points


def _over_judges(one: PairDifference, unit: str) -> Cell:
    interval = one.ci95_over_judges_adjusted
    if interval is None:
        return None
    if spans_scale(interval, unit):
        return NOT_KNOWN
    return metric_gap_in_points(one.difference, interval, unit, one.n)


_Field = tuple[ReportColumn, Callable[[Any, str], Cell]]
# By the name that pictures have for it; cells are made of a difference and of its unit.
_FIELDS: Mapping[str, _Field] = {
    "mean": (ReportColumn("mean", "Score", "points"), lambda one, unit: share_of_scale(one.mean_b, unit)),
    "mean_baseline": (
        ReportColumn("mean_baseline", "Baseline's", "points"),
        lambda one, unit: share_of_scale(one.mean_a, unit),
    ),
    "difference": (
        msgspec.structs.replace(column_of_field(PairDifference, "difference"), terminal="difference"),
        lambda one, unit: metric_gap_in_points(one.difference, one.ci95_adjusted, unit, one.n),
    ),
    "over_judges": (
        msgspec.structs.replace(
            column_of_field(PairDifference, "ci95_over_judges_adjusted", "over_judges"),
            terminal="other judges",
        ),
        _over_judges,
    ),
    "p": (
        msgspec.structs.replace(column_of_field(PairDifference, "p_adjusted", "p"), terminal="p"),
        lambda one, _: one.p_adjusted,
    ),
    "p_over_judges": (
        msgspec.structs.replace(
            column_of_field(PairDifference, "p_over_judges_adjusted", "p_over_judges"), terminal="p"
        ),
        lambda one, _: one.p_over_judges_adjusted,
    ),
    "sure": (
        ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment", ""),
        lambda one, _: one.significant,
    ),
    "agreeing": (column_of_field(PairDifference, "agreeing"), lambda one, _: one.agreeing),
    "n": (ReportColumn("n", "Items", "count", terminal="n"), lambda one, _: one.n),
    "missing": (
        ReportColumn("missing", "Missing", "count", "Items without a score on both sides"),
        lambda one, _: one.missing,
    ),
    "could_be_seen": (
        column_of_field(PairDifference, "minimum_detectable", "could_be_seen"),
        lambda one, unit: metric_error_in_points(one.minimum_detectable, unit),
    ),
    "test": (ReportColumn("test", "Test"), lambda one, _: one.test),
    "trend": (ReportColumn("trend", "Trend"), lambda one, _: one.trend),
}


def with_differences(
    table: ReportTable,
    found: Sequence[PairDifference],
    fields: Sequence[str],
    adjusted: str = "",
    *,
    unit: str = "share",
    in_use: bool = False,
) -> ReportTable:
    """Add to a table whose rows are names what is known of the difference that each is of.

    Parameters
    ----------
    fields : of `_FIELDS`
    adjusted : for what p-values allow, where that is more than the number of pairs
    unit : of differences that name none
    in_use : leave those out that no difference has
    """
    columns, rows = list(table.columns), [list(row) for row in table.rows]
    for name in fields:
        column, cell = _FIELDS[name]
        cells = [cell(one, getattr(one, "unit", unit)) for one in found]
        if in_use and all(each is None for each in cells):
            continue
        if adjusted and column.kind == "probability":
            title = "p" if name == "p" else "p, judges too"
            column = msgspec.structs.replace(column, title=title, meaning=adjusted)
        columns.append(column)
        for row, each in zip(rows, cells, strict=True):
            row.append(each)
    return msgspec.structs.replace(table, columns=tuple(columns), rows=tuple(map(tuple, rows)))


def leader_table(gaps: Mapping[str, PairDifference], where: str = "") -> ReportTable:
    """Tabulate by how much the first student leads each of the others; ``gaps`` as `Ranking.leader_gaps`,
    ``where``: in which task and label."""
    columns = (ReportColumn("student", "Student", terminal="student"),)
    names = ReportTable(
        "leader", f"Lead of the first student{where}", columns, tuple((name,) for name in gaps)
    )
    fields = ("difference", "p", "over_judges", "p_over_judges", "n")
    return with_differences(names, [*gaps.values()], fields, in_use=True)
