"""How often levels are given."""

from __future__ import annotations

from collections.abc import Mapping

from coeval.analysis.panel.level_use import LEVEL_NAMES, LevelCounts
from coeval.reports.content.report_content import Cell, ReportColumn, ReportTable

__all__ = ["LEVELS_BEST_FIRST", "level_table"]

LEVELS_BEST_FIRST = tuple(reversed(LEVEL_NAMES))


def level_table(name: str, title: str, counts: Mapping[str, LevelCounts]) -> ReportTable:
    """A row for each name and level, with its share of the name's scores."""
    rows: list[tuple[Cell, ...]] = []
    for each, levels in counts.items():
        total = sum(levels.values())
        rows += [(each, level, levels[level] / total, levels[level]) for level in LEVELS_BEST_FIRST if total]
    return ReportTable(
        name,
        title,
        (
            ReportColumn("name", "Name"),
            ReportColumn("level", "Level"),
            ReportColumn("share", "Share", "share"),
            ReportColumn("count", "Scores", "count"),
        ),
        tuple(rows),
    )
