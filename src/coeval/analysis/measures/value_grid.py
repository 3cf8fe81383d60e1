"""Grids of values that are not levels of a factor: labels of a run, and a benchmark's metrics.

A value without a judge is stored where a check's score would be, on the scale of its metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import Codes, GridItems, ScoreGrid, TaskDesign, unscored_levels
from coeval.analysis.readers.reader import Reader

_VALUES = """
SELECT n.number AS item, list_position(?::VARCHAR[], {metric})::INTEGER - 1 AS factor,
       coalesce(list_position(?::VARCHAR[], {judge})::INTEGER, 0) - 1 AS judge,
       coalesce(nullif(list_position(?::VARCHAR[], model)::INTEGER, 0), {other}) - 1 AS student, sample,
       {value}::DOUBLE AS value, {weight}::DOUBLE AS weight
FROM {view} JOIN (
    SELECT unnest(?::VARCHAR[]) AS task, unnest(?::VARCHAR[]) AS item, unnest(range(?)) AS number
) n USING (task, item)
ORDER BY ALL
"""
_LABELS = {
    "view": "labels",
    "metric": "attribute",
    "judge": "NULL",
    "value": "match::INTEGER",
    "weight": "1",
    "other": "0",  # of students that the configuration has lost
}
_METRICS = {
    "view": "scores",
    "metric": "metric",
    "judge": "judge",
    "value": "value",
    "weight": "weight",
    "other": "1",  # all of a folder is one model's
}


class _Names(NamedTuple):
    """The names that the codes of a grid stand for."""

    students: tuple[str, ...]
    judges: tuple[str, ...]
    tasks: tuple[str, ...]
    teachers: tuple[str, ...] = ()


def read_label_grid(reader: Reader, grid: ScoreGrid) -> ScoreGrid:
    """Read whether each label was matched, 0 or 1, for the items and students of a run's ``grid``."""
    return _read_value_grid(reader, _LABELS, grid.items, _Names(grid.students, (), grid.tasks, grid.teachers))


def read_metric_grid(reader: Reader, counted_samples_by_task: Mapping[str, Sequence[int]]) -> ScoreGrid:
    """Read a benchmark's scores by item, on their metric's scale."""
    item_keys = reader.rows("SELECT DISTINCT task, item FROM items ORDER BY task, item")
    tasks = tuple(dict.fromkeys(task for task, _ in item_keys))
    codes = {task: code for code, task in enumerate(tasks)}
    task = np.array([codes[task] for task, _ in item_keys], np.int32)
    items = GridItems([item for _, item in item_keys], task, np.zeros(len(item_keys), np.int32), {})
    judges = tuple(sorted(name for (name,) in reader.rows("SELECT DISTINCT judge FROM scores") if name))
    return _read_value_grid(
        reader, _METRICS, items, _Names(reader.answering_models(), judges, tasks), counted_samples_by_task
    )


def _read_value_grid(
    reader: Reader,
    source: dict[str, str],
    items: GridItems,
    names: _Names,
    counted: Mapping[str, Sequence[int]] | None = None,
) -> ScoreGrid:
    """Read the grid of a view. ``source`` fills `_VALUES`."""
    metrics = reader.rows("SELECT DISTINCT {metric} FROM {view} ORDER BY 1".format_map(source))
    factors = tuple(name for (name,) in metrics)
    item_tasks = [names.tasks[code] for code in items.task.tolist()]
    columns = reader.columns(
        _VALUES.format_map(source),
        [
            list(factors),
            list(names.judges),
            list(names.students),
            item_tasks,
            list(items.ids),
            len(items.ids),
        ],
    )
    is_known = np.asarray(columns["student"]) >= 0
    if counted is not None:
        pairs = zip(np.asarray(columns["item"]).tolist(), np.asarray(columns["sample"]).tolist(), strict=True)
        is_known &= np.array([sample in counted.get(item_tasks[item], ()) for item, sample in pairs], bool)
    value = np.ma.filled(columns["value"].astype(np.float64), np.nan)[is_known]
    item, student, factor, judge, sample, weight = (
        np.asarray(columns[name])[is_known]
        for name in ("item", "student", "factor", "judge", "sample", "weight")
    )
    scale, levels = _code_levels(value, judge, len(names.judges))
    cells = np.unique((item * max(len(names.students), 1) + student) * max(len(factors), 1) + factor)
    return ScoreGrid(
        item=item,
        student=student,
        factor=factor,
        levels=levels,
        items=items,
        students=names.students,
        judges=names.judges,
        factors=factors,
        tasks=names.tasks,
        teachers=names.teachers,
        designs=tuple(
            _task_design(names.judges, factors, judge[rows], factor[rows])
            for rows in (items.task[item] == code for code in range(len(names.tasks)))
        ),
        scale=scale,
        checked=np.where(judge < 0, value, np.nan),
        sample=None if len(cells) == len(item) else sample,
        weight=weight,
    )


def _code_levels(value: Floats, judge: Codes, judges: int) -> tuple[Floats, NDArray[np.int8]]:
    """Return the values that judges gave, rising, and (C, J) the index of each score among them."""
    judged = (judge >= 0) & np.isfinite(value)
    scale, codes = np.unique(value[judged], return_inverse=True)
    levels = unscored_levels((len(value), judges), len(scale))
    levels[judged, judge[judged]] = codes
    return scale, levels


def _task_design(judges: Sequence[str], factors: Sequence[str], judge: Codes, factor: Codes) -> TaskDesign:
    """Return the judges, factors and checks that occur in a task's rows."""
    return TaskDesign(
        frozenset(judges[code] for code in np.unique(judge[judge >= 0])),
        frozenset(factors[code] for code in np.unique(factor)),
        frozenset(factors[code] for code in np.unique(factor[judge < 0])),
    )
