"""What more items and judges are worth: the gap that could be detected with them, and what they cost.

It starts from what the run has: the variance of its pairs' paired differences over items, and what their
judges add (`coeval.analysis.panel.mean_squares`), on the scores that each pair has in common. Of more items
and judges they are what the run's components foretell (Brennan 2001, chapter 4): over items
``2 (σ_SI² + σ_e²/k) / n``, over judges ``2 (σ_SJ² + σ_e²/n) / k``, over both the sum with σ_e² once.
"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import stdtrit

from coeval.analysis.comparison.paired_difference import POWER
from coeval.analysis.intervals import LEVEL, Floats
from coeval.analysis.measures.measured import Record, ShownAs
from coeval.analysis.measures.score_grid import Codes, ScoreGrid
from coeval.analysis.measures.student_measures import item_scores
from coeval.analysis.panel.g_study import full_block
from coeval.analysis.panel.mean_squares import (
    ByJudge,
    JudgeScatter,
    judge_cells,
    judge_scatter,
    judge_spread,
    judged_share,
    mean_squares,
    pooled_scatter,
)
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.text import numbered

# Designs a user would weigh: half as many items again, twice, four times (half the error over items), …
_ITEMS = (1.0, 1.5, 2.0, 4.0)
# … and up to two judges more, as panels have some three.
_JUDGES = (0, 1, 2)
# So many more the best design for a budget may have: models of further makers are hard to find.
_MOST_JUDGES = 8
# No gap is larger than the scale.
_WHOLE = 1.0
_FEWEST = 2


class Design(Record, frozen=True):
    """So many ``items`` more, shared among tasks as they are now, and ``judges`` more, and the standard
    errors that a difference of two students would have: to other items by these judges, to other judges on
    these items, and to both."""

    items: Annotated[int, ShownAs("Items more, in all tasks", elsewhere="next")]
    judges: Annotated[int, ShownAs("Judges more", elsewhere="next")]
    over_items: Annotated[float, ShownAs("Standard error, these judges", "To other items", kind="points")]
    over_judges: Annotated[
        float | None, ShownAs("Standard error, these items", "To other judges", kind="points")
    ]
    over_both: Annotated[float | None, ShownAs("Standard error", "To other items and judges", kind="points")]
    detectable: Annotated[
        float,
        ShownAs(
            "Gap found four times in five, for other judges too; of one judge, by it",
            "Detectable gap",
            kind="points",
        ),
    ]
    cost_usd: Annotated[float | None, ShownAs("US dollars; None: not known", "Cost", kind="usd")]


def design_name(design: Design) -> str:
    items = [f"+{numbered(design.items, 'item')}"] * bool(design.items)
    judges = [f"+{numbered(design.judges, 'judge')}"] * bool(design.judges)
    return ", ".join([*items, *judges]) or "now"


class DStudy(NamedTuple):
    """``designs``: as it is, then with more of either; ``best``: for a budget."""

    designs: tuple[Design, ...]
    best: Design | None


# --- What the run has


class TaskErrors(NamedTuple):
    """Of a task, the variance of the difference of two students over items, a mean over pairs, and the
    components of it that judges bring down; None: not known."""

    variance: float
    items: int
    students: int
    judges: int
    students_items: float | None
    residual: float | None


class RunErrors(NamedTuple):
    """``scatter``: what judges add to the difference of two students over all tasks, None: not known."""

    tasks: tuple[TaskErrors, ...]
    scatter: JudgeScatter | None


class Prices(NamedTuple):
    """US dollars on average: of writing an item, of all answers of a student to it, of their judgments by a
    judge; None: not known."""

    item: float | None
    answer: float | None
    judgment: float | None


def run_errors(grid: ScoreGrid) -> RunErrors:
    """Of the tasks in which two students can be compared."""
    means = item_scores(grid).mean
    found, judged = [], []
    for task in range(len(grid.tasks)):
        mine = grid.items.task == task
        judges = int(grid.valid[grid.task == task].any(axis=0).sum())
        # What judges add to checks is not known.
        cells = np.empty((0, 0, 0)) if grid.designs[task].checks else full_block(grid, task).cells
        errors = task_errors(means[:, mine], grid.items.cluster[mine], judges, cells)
        if errors is not None:
            found.append(errors)
            judged.append((judge_cells(grid, task), judged_share(grid.designs[task])))
    scatters = [
        judge_scatter([ByJudge(cells[:, b] - cells[:, a], share) for cells, share in judged])
        for a, b in combinations(range(len(grid.students)), 2)
    ]
    return RunErrors(tuple(found), pooled_scatter(scatters, len(grid.students) - 1))


def task_errors(means: Floats, clusters: Codes, judges: int, cells: Floats) -> TaskErrors | None:
    """Of the students' item means, (S, n), NaN where there is none; None where no two share two items.

    Each pair is taken on the items that both have. Of a full block that is ``2 MS_SI / (k n)``, with the mean
    square of students × items. Items of one cluster, (n,), depend on each other. ``cells`` are the scores
    that all students and judges have, (m, S, k).
    """
    found = [_variance(one - other, clusters) for one, other in combinations(means, 2)]
    pairs = [v for v in found if v is not None]
    if not pairs:
        return None
    there = np.isfinite(means)
    items, students = int(there.any(axis=0).sum()), int(there.any(axis=1).sum())
    crossed = residual = None
    if min(cells.shape) >= _FEWEST:
        parts = mean_squares(cells).components
        crossed, residual = (float(parts[name][0]) for name in ("students_items", "residual"))
    return TaskErrors(float(np.mean(pairs)), items, students, judges, crossed, residual)


def _variance(values: Floats, clusters: Codes) -> float | None:
    """Of the mean of those that are known; None of a single cluster."""
    there = np.isfinite(values)
    known, of = values[there], clusters[there]
    count = int((np.bincount(of) > 0).sum()) if len(of) else 0
    if count < _FEWEST:
        return None
    distances = np.bincount(of, known - known.mean())
    return float(distances @ distances) / len(known) ** 2 * count / (count - 1)


# --- Designs


def d_study(reader: RunReader, grid: ScoreGrid, budget_usd: float | None = None) -> DStudy:
    """``budget_usd``: of the best design; None: as much as the run has cost."""
    errors, prices = run_errors(grid), _prices(reader)
    best = best_design(errors, prices, _spent(errors, prices) if budget_usd is None else budget_usd)
    return DStudy(tuple(designs(errors, prices)), best)


def designs(errors: RunErrors, prices: Prices) -> list[Design]:
    """As it is, then with more items, then each of these with more judges, where all tasks say what judges
    add."""
    if not errors.tasks:
        return []
    tellable = errors.scatter is not None and all(task.residual is not None for task in errors.tasks)
    more = _JUDGES if tellable else _JUDGES[:1]
    return [_design(errors, prices, times, judges) for judges in more for times in _ITEMS]


def best_design(errors: RunErrors, prices: Prices, budget_usd: float | None) -> Design | None:
    """The least detectable gap for so many dollars more; None where a price is not known or nothing can be
    bought."""
    if not budget_usd or not errors.tasks or None in prices:
        return None
    tellable = errors.scatter is not None and all(task.residual is not None for task in errors.tasks)
    found = []
    for more in range(_MOST_JUDGES + 1 if tellable else 1):
        judged = _cost(errors, prices, 1.0, more) or 0.0
        doubled = (_cost(errors, prices, 2.0, more) or 0.0) - judged
        if judged > budget_usd or doubled <= 0:
            continue
        found.append(_design(errors, prices, 1 + (budget_usd - judged) / doubled, more))
    bought = [one for one in found if one.items or one.judges]
    return min(bought, key=lambda one: one.detectable) if bought else None


def _more(task: TaskErrors, times: float) -> int:
    """Whole items: what does not buy one more is left."""
    return int(task.items * (times - 1) + 1e-9)


def _design(errors: RunErrors, prices: Prices, times: float, judges: int) -> Design:
    items = [task.items + _more(task, times) for task in errors.tasks]
    share = 1 / len(errors.tasks) ** 2
    by_task = [
        share * task.variance * task.items / n * _left(task, judges)
        for task, n in zip(errors.tasks, items, strict=True)
    ]
    v_items = sum(by_task)
    spent = sum(v**2 / max(n - 1, 1) for v, n in zip(by_task, items, strict=True))
    degrees = v_items**2 / spent if spent else 1.0
    over_judges = over_both = None
    error = v_items**0.5
    if errors.scatter is not None:
        scatter = _with_more(errors.scatter, sum(items) / sum(task.items for task in errors.tasks), judges)
        over_judges = (scatter.between / scatter.judges) ** 0.5
        error, degrees = judge_spread(v_items, degrees, scatter)
        over_both = error
    reached = float(stdtrit(degrees, [(1 + LEVEL) / 2, POWER]).sum())
    return Design(
        items=sum(_more(task, times) for task in errors.tasks),
        judges=judges,
        over_items=v_items**0.5,
        over_judges=over_judges,
        over_both=over_both,
        detectable=min(reached * error, _WHOLE),
        cost_usd=_cost(errors, prices, times, judges),
    )


def _with_more(scatter: JudgeScatter, times: float, judges: int) -> JudgeScatter:
    """Chance shrinks with the items, judges' own views of students do not."""
    own, within = scatter.between - scatter.within, scatter.within / times
    k = scatter.judges + judges
    things = scatter.degrees_between / (scatter.judges - 1)
    return scatter._replace(
        between=own + within if own > 0 else scatter.between / times,
        within=within,
        judges=k,
        degrees_between=things * (k - 1),
        degrees_within=scatter.degrees_within * times * (k - 1) / (scatter.judges - 1),
    )


def _left(task: TaskErrors, judges: int) -> float:
    """What share of the variance over items more judges leave: k/(k + m) to 1."""
    if not judges or task.students_items is None or task.residual is None:
        return 1.0
    k = task.judges
    seen = task.students_items + task.residual / k
    if seen <= 0:
        return 1.0
    # An estimate below zero is noise of the mean square that it was taken off, and shrinks as that.
    crossed = task.students_items * (1.0 if task.students_items >= 0 else k / (k + judges))
    return (crossed + task.residual / (k + judges)) / seen


# --- Prices


def _cost(errors: RunErrors, prices: Prices, times: float, judges: int) -> float | None:
    """Of what is added to the run; None where a price that it takes is not known."""
    total = 0.0
    for task in errors.tasks:
        items = _more(task, times)
        if prices.judgment is None or (items and (prices.item is None or prices.answer is None)):
            return None
        panel = task.judges + judges
        each = (prices.item or 0.0) + task.students * ((prices.answer or 0.0) + panel * prices.judgment)
        total += items * each + judges * task.items * task.students * prices.judgment
    return total


def _spent(errors: RunErrors, prices: Prices) -> float | None:
    """What the items, answers and judgments that count have cost."""
    return _cost(errors, prices, 2.0, 0)


def _prices(reader: RunReader) -> Prices:
    item, answer, judgment = (
        _price(reader, phase) for phase in ("data_generation", "response_collection", "evaluation")
    )
    [(each,)] = reader.rows("SELECT count(*) / count(DISTINCT (datapoint, student)) FROM response")
    samples = each or 1.0
    return Prices(
        item,
        None if answer is None else answer * samples,
        None if judgment is None else judgment * samples,
    )


def _price(reader: RunReader, phase: str) -> float | None:
    """The mean over the records of a phase; None where the price of any of them is not known. What nobody
    was asked for (items of one's own, labels) has no usage, and costs nothing."""
    found = reader.of_lines(phase, {"usage": "STRUCT(cost_usd DOUBLE, stored BIGINT)"}, _COSTS)
    known, priced, total = found[0] if found else (0, 0, 0.0)
    if priced < known:
        return None
    return float(total or 0.0) / known if known else 0.0


_COSTS = """
SELECT count(usage), count(usage.cost_usd), sum(usage.cost_usd) FROM {lines} WHERE usage.stored IS NULL
"""
