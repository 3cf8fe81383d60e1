"""What the cells of a grid have beyond their row and their column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

__all__ = ["column_means", "residuals"]

Cells = Mapping[tuple[str, str], float]
"""By (row, column)."""


def column_means(cells: Cells) -> dict[str, float]:
    """By column, over the rows that have it."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for (_, column), value in cells.items():
        found[column].append(value)
    return {column: sum(values) / len(values) for column, values in found.items()}


def residuals(cells: Cells) -> dict[tuple[str, str], float]:
    """``value − row − column + grand`` with the means of the rows and columns that are there."""
    columns = column_means(cells)
    rows = column_means({(column, row): value for (row, column), value in cells.items()})
    grand = sum(cells.values()) / len(cells) if cells else 0.0
    return {
        (row, column): value - rows[row] - columns[column] + grand for (row, column), value in cells.items()
    }
