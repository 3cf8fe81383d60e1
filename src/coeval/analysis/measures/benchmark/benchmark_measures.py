"""The quality of the benchmark itself: of each task, and of each of its datapoints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.benchmark.attribute_coverage import attribute_coverage
from coeval.analysis.measures.benchmark.item_quality import ItemQuality, item_quality
from coeval.analysis.measures.benchmark.item_texts import item_texts
from coeval.analysis.measures.benchmark.surface_bias import surface_bias
from coeval.analysis.measures.benchmark.teacher_leak import teacher_leak
from coeval.analysis.measures.measured import Branch, Measured
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import item_scores
from coeval.analysis.panel.model_families import model_families
from coeval.analysis.readers.run_reader import RunReader, Twin

__all__ = ["benchmark_measures"]


def benchmark_measures(reader: RunReader, grid: ScoreGrid) -> Branch:
    """``coverage`` by task, ``items`` by datapoint, and ``leak``: see docs/measures.md for the keys."""
    texts = item_texts(reader.run, grid.items.ids)
    prompts = [texts[item].prompt or "" if item in texts else "" for item in grid.items.ids]
    judged = item_scores(grid).mean
    scores = _with_labels(reader, grid, judged)
    coverage: Branch = {}
    items: Branch = {}
    for place, task in enumerate(grid.tasks):
        mine = np.flatnonzero(grid.items.task == place)
        of_task = [prompts[item] for item in mine]
        twins = [reader.twins.get(grid.items.ids[item]) for item in mine.tolist()]
        quality = item_quality(scores[:, mine])
        coverage[task] = {
            **_coverage(reader, grid, task, mine),
            **_resemblance(of_task),
            **_summary(quality, twins),
        }
        items |= _items(grid, mine, quality, twins)
    told = reader.planned.families if reader.planned is not None else {}
    families = model_families((*grid.students, *grid.teachers), told)
    return {"coverage": coverage, "leak": teacher_leak(grid, judged, families), "items": items}


def _with_labels(reader: RunReader, grid: ScoreGrid, judged: Floats) -> Floats:
    """The scores, (S, I), and in their place the share of right labels in tasks that have labels alone."""
    known = np.isfinite(judged)
    alone = [name for task, name in enumerate(grid.tasks) if not known[:, grid.items.task == task].any()]
    if not (found := reader.rows(_RIGHT, [alone, list(grid.students)])):
        return judged
    number = {item: at for at, item in enumerate(grid.items.ids)}
    place = {name: at for at, name in enumerate(grid.students)}
    filled = judged.copy()
    for item, student, right in found:
        filled[place[student], number[item]] = right
    return filled


_RIGHT = """
SELECT item, model, avg(match::INTEGER) FROM labels
WHERE list_contains(?::VARCHAR[], task) AND list_contains(?::VARCHAR[], model) GROUP BY ALL
"""


def _coverage(reader: RunReader, grid: ScoreGrid, task: str, mine: NDArray[np.int64]) -> Branch:
    number = {int(item): at for at, item in enumerate(mine)}
    sampled: list[list[str]] = [[] for _ in mine]
    for stratum, items in grid.items.attributes.items():
        for item in items.tolist():
            if (at := number.get(item)) is not None:
                sampled[at].append(stratum)
    found = attribute_coverage(reader.target_attributes(task), sampled)
    n = len(mine)
    ratios = {"acr": found.acr, "rar": found.rar, "pairwise_acr": found.pairwise_acr}
    ratios["pairwise_rar"] = found.pairwise_rar
    return {
        **{name: Measured(value, None, None, n, 0) for name, value in ratios.items()},
        "absent": list(found.absent),
    }


def _resemblance(prompts: Sequence[str]) -> Branch:
    found = surface_bias(prompts)
    return {"surface_bias": Measured(found.mean, None, None, len(prompts), 0), "pairs": found.pairs}


def _summary(quality: ItemQuality, twins: Sequence[Twin | None]) -> Branch:
    scored = quality.students > 0

    def mean(values: Floats) -> Measured:
        known = values[np.isfinite(values)]
        value = float(known.mean()) if len(known) else None
        return Measured(value, None, None, len(known), len(values) - len(known))

    return {
        "difficulty": mean(quality.difficulty),
        "discrimination": mean(quality.discrimination),
        "all_pass": int(quality.all_pass.sum()),
        "all_fail": int(quality.all_fail.sum()),
        "reversed": int((quality.discrimination < 0).sum()),
        "near_duplicates": sum(twin is not None for twin in twins),
        "scored": int(scored.sum()),
    }


def _items(
    grid: ScoreGrid, mine: NDArray[np.int64], quality: ItemQuality, twins: Sequence[Twin | None]
) -> Branch:
    found: Branch = {}
    for at, item in enumerate(mine.tolist()):
        twin = twins[at]
        found[grid.items.ids[item]] = {
            "task": grid.tasks[grid.items.task[item]],
            "teacher": grid.teachers[grid.items.teacher[item]],
            "difficulty": _number(quality.difficulty[at]),
            "discrimination": _number(quality.discrimination[at]),
            "students": int(quality.students[at]),
            "all_pass": bool(quality.all_pass[at]),
            "all_fail": bool(quality.all_fail[at]),
            "near_duplicate_of": twin.of if twin is not None else None,
        }
    return found


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
