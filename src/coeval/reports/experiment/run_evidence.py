"""All that a run's report is made of, read once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coeval.analysis.answer_costs import AnswerCosts, answer_costs, packed_figures
from coeval.analysis.measures.measured_run import MeasuredRun
from coeval.analysis.measures.score_grid import ScoreGrid, level_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import Results, bill
from coeval.analysis.scores import results
from coeval.core.shown_names import short_names
from coeval.pipeline.upkeep.repair import Missing, look_for_gaps


class RunEvidence(NamedTuple):
    """An open reader, what its scores come to, and what of the plan is missing."""

    reader: RunReader
    measured: MeasuredRun
    results: Results
    missing: Missing
    costs: AnswerCosts

    @property
    def students(self) -> list[str]:
        """Best first, by their score, or by the first label where there are only labels; those without
        either stand last, by name."""
        measures = self.measured.measures
        labels = (found.ranking.order for names in measures.labels.values() for found in names.values())
        order = measures.ranking.order or next(labels, ())
        return [*order, *(name for name in self.measured.grid.students if name not in order)]

    @property
    def labels(self) -> dict[str, str]:
        """By model, what people read in place of its name: the label of the run's file, or as short a name as
        is unique."""
        planned = self.reader.planned
        return short_names(self.models, labels=None if planned is None else planned.labels)

    @property
    def usd_per_item(self) -> float | None:
        """What an item costs with all its answers and judgments; None where part of the bill is unknown."""
        reported, items = bill(self.results.costs), len(self.measured.grid.items.ids)
        if reported.is_partial or not reported.cost_usd or not items:
            return None
        return reported.cost_usd / items

    @property
    def models(self) -> list[str]:
        """All who take part, students first: so that each has one colour in every picture."""
        grid = self.measured.grid
        return list(dict.fromkeys((*self.students, *grid.judges, *grid.teachers)))


def evidence_of(reader: RunReader, measured: MeasuredRun, notes: tuple[str, ...]) -> RunEvidence:
    """Of a reader that is open already, and what was measured of it."""
    found, missing = results(reader, notes, measured), look_for_gaps(reader.run)
    return RunEvidence(reader, measured, found, missing, answer_costs(reader))


# --- Scores packed for filtering in the page

# In place of a level where there is none: a scale has 101 levels at most.
_NONE = 255


class ScoreBlocks(NamedTuple):
    """``design``: names, and what lies where. ``levels``: task by task, (items, students, the task's judged
    factors, its judges) as one byte each, a place in the scale, or 255 where there is no score. ``checked``:
    likewise (items, students, the task's checks), doubles, the low byte first, NaN for none. ``teachers``: of
    each item, two bytes, the low one first. ``members``: for each attribute value, a bit for each item, the
    first in the highest bit of a byte. ``spent``: as `packed_figures`. Items stand task by task."""

    design: dict[str, Any]
    levels: bytes
    checked: bytes
    teachers: bytes
    members: bytes
    spent: bytes = b""


def score_blocks(evidence: RunEvidence) -> ScoreBlocks:
    measured, costs = evidence.measured, evidence.costs
    grid = measured.grid
    tasks, levels, checked = [], [], []
    names, does = level_names(grid), grid.does
    order = np.argsort(grid.items.task, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first = 0
    for task, name in enumerate(grid.tasks):
        design = grid.designs[task]
        factors = [at for at, factor in enumerate(grid.factors) if factor in design.judged]
        checks = [at for at, factor in enumerate(grid.factors) if factor in design.factors & design.checks]
        judges = [at for at, judge in enumerate(grid.judges) if judge in design.judges]
        items = int((grid.items.task == task).sum())
        tensor = np.full((items, len(grid.students), len(factors), len(judges)), _NONE, np.uint8)
        rows = (grid.task == task) & np.isin(grid.factor, factors)
        factor = np.searchsorted(factors, grid.factor[rows])
        found = grid.levels[rows][:, judges]
        tensor[place[grid.item[rows]] - first, grid.student[rows], factor] = np.where(found < 0, _NONE, found)
        levels.append(tensor.tobytes())
        checked.append(_checked(grid, task, checks, place - first, items))
        weights = [design.weights.get(grid.factors[at]) for at in (*factors, *checks)]
        tasks.append(
            {
                "name": name,
                "items": items,
                "factors": factors,
                "checks": checks,
                "judges": judges,
                "without": np.flatnonzero(~does[:, task]).tolist(),
                "weights": weights if design.weights else None,
                "levels": [names.place[task, at].tolist() for at in factors],
            }
        )
        first += items
    spent = packed_figures(costs, dict(zip(grid.items.ids, place.tolist(), strict=True)), grid.students)
    return ScoreBlocks(
        {
            "students": grid.students,
            "judges": grid.judges,
            "factors": grid.factors,
            "teachers": grid.teachers,
            "values": list(grid.items.attributes),
            "tasks": tasks,
            "scale": grid.scale.tolist(),
            "levels": names.names,
            "alike": _alike(grid, place),
            "own": measured.measures.without_own.applicable,
            "looks": grid.looks.share if grid.looks and grid.looks.many else None,
        },
        b"".join(levels),
        b"".join(checked),
        grid.items.teacher[order].astype("<u2").tobytes(),
        b"".join(_bits(place[items], len(order)) for items in grid.items.attributes.values()),
        b"" if spent is None else spent.tobytes(),
    )


def _checked(grid: ScoreGrid, task: int, checks: list[int], place: np.ndarray[Any, Any], items: int) -> bytes:
    """``place``: of each item among those of the task."""
    tensor = np.full((items, len(grid.students), len(checks)), np.nan)
    if grid.checked is not None and checks:
        rows = (grid.task == task) & np.isin(grid.factor, checks)
        factor = np.searchsorted(checks, grid.factor[rows])
        tensor[place[grid.item[rows]], grid.student[rows], factor] = grid.checked[rows]
    return tensor.astype("<f8").tobytes()


def _alike(grid: ScoreGrid, place: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """Where items stand that nearly repeat another one, each with the first of its group."""
    _, first, which = np.unique(grid.items.cluster, return_index=True, return_inverse=True)
    later = np.flatnonzero(first[which] != np.arange(len(which)))
    return list(zip(place[later].tolist(), place[first[which[later]]].tolist(), strict=True))


def _bits(places: np.ndarray[Any, Any], items: int) -> bytes:
    members = np.zeros(items, np.uint8)
    members[places] = 1
    return np.packbits(members).tobytes()
