"""Where a run's scores scatter, and what more items or judges are worth, in the shape of ``measures.json``.

``variance``: the shares of items, students × items, judges and residual; ``next``: the standard errors as
they are, and with more items in each task or more judges, with the dollars of that where prices are known.
Variances are those of the datapoints that all students and judges have; standard errors, of all that two
students have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import item_scores
from coeval.analysis.panel.score_cells import complete_cells
from coeval.analysis.panel.variance_budget import (
    Prices,
    TaskErrors,
    pooled,
    purchases,
    task_errors,
    variance_parts,
)
from coeval.analysis.readers.run_reader import RunReader

__all__ = ["PanelWorth", "errors_by_task", "panel_worth"]

_SOME = 2_000
"""Records whose mean price is taken."""


class PanelWorth(NamedTuple):
    variance: Branch
    next: list[dict[str, Any]]


def panel_worth(reader: RunReader, grid: ScoreGrid) -> PanelWorth:
    blocks = _complete(grid).values()
    whole = pooled([part for cells in blocks if (part := variance_parts(cells)) is not None])
    variance: Branch = dict(whole.shares) if whole is not None else {}
    if whole is not None:
        variance["datapoints"] = whole.items
    return PanelWorth(
        variance,
        [purchase.as_plain() for purchase in purchases(errors_by_task(grid), _prices(reader))],
    )


def errors_by_task(grid: ScoreGrid) -> list[TaskErrors]:
    """Of the tasks in which two students can be compared."""
    means = item_scores(grid).mean
    complete = _complete(grid)
    found = []
    for task in range(len(grid.tasks)):
        mine = grid.items.task == task
        judges = int(grid.valid[grid.task == task].any(axis=0).sum())
        parts = variance_parts(complete[task]) if task in complete else None
        found.append(task_errors(means[:, mine], grid.items.cluster[mine], judges, parts))
    return [errors for errors in found if errors is not None]


def _complete(grid: ScoreGrid) -> dict[int, Floats]:
    """By task, the full block of those that have one."""
    return {task: cells for task in range(len(grid.tasks)) if len(cells := complete_cells(grid, task))}


def _prices(reader: RunReader) -> Prices:
    return Prices(
        *(_price(reader, phase) for phase in ("data_generation", "response_collection", "evaluation"))
    )


def _price(reader: RunReader, phase: str) -> float | None:
    """The mean over some records of a phase; None where the price of any of them is not known. What nobody
    was asked for (items of one's own, labels) has no usage, and costs nothing."""
    files = [str(path.absolute()) for path in reader.run.files(phase)]
    if not files:
        return 0.0
    [(known, priced, total)] = reader.rows(_COSTS, [files])
    if priced < known:
        return None
    return float(total or 0.0) / known if known else 0.0


_COSTS = f"""
SELECT count(usage), count(usage.cost_usd), sum(usage.cost_usd) FROM (
    SELECT usage FROM read_json(?::VARCHAR[], format = 'newline_delimited', ignore_errors = true,
        columns = {{usage: 'STRUCT(cost_usd DOUBLE)'}}) LIMIT {_SOME}
)
"""  # noqa: S608
