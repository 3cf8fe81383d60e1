"""Where a run's scores scatter, and what more items or judges are worth.

Variances are those of the datapoints that all students and judges have; standard errors, of all that two
students have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import Record, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import item_scores
from coeval.analysis.panel.mean_squares import COVERED, judge_cells
from coeval.analysis.readers.run_reader import RunReader

# --- Scores of a task as a full block of items, students and judges


def complete_cells(grid: ScoreGrid, task: int) -> Floats:
    """(n, S, J), 0 to 1: the datapoints of a task that all of its students and judges have scores of, each a
    mean over factors.

    Students and judges of the run who have none there, or less than half as many as others, are NaN
    throughout.
    """
    cells = judge_cells(grid, task)
    there = np.isfinite(cells)
    by_student, by_judge = there.any(axis=2).sum(axis=0), there.any(axis=1).sum(axis=0)
    cells[:, by_student < COVERED * by_student.max(initial=0), :] = np.nan
    cells[:, :, by_judge < COVERED * by_judge.max(initial=0)] = np.nan
    there = np.isfinite(cells)
    students, judges = (np.asarray(there.any(axis=axes), bool) for axes in ((0, 2), (0, 1)))
    block = students[:, None] & judges
    whole: Floats = cells[(there | ~block).all(axis=(1, 2)) & block.any()]
    return whole


# --- Variance components, and what would make a ranking more certain
#
# A score of datapoint i, student s and judge j, the mean over factors, is taken to be
#
#     y = μ_s + I_i + (SI)_si + J_j + e_sij
#
# with the variances of items, of students × items, of judges and of the residual (noise, and judges' own
# views of items and students) found by the method of moments from the mean squares of the full block
# (Henderson's method I, which is that of Cornfield and Tukey 1956 for full data). Students are the same ones
# throughout, so they have a mean each and no variance. Estimates are unbiased, and so may fall below zero:
# with such a one set to zero, the others would no longer add up to the scatter that was seen.

# Purchases a user would weigh: half as many again, twice, four times (which halves the error of item noise).
_MORE_ITEMS = (1.5, 2.0, 4.0)
# Panels have some three judges: two more nearly double their cost.
_MORE_JUDGES = (1, 2)


class VarianceShares(Record, frozen=True):
    """Of the variance of single scores; None where they do not vary."""

    items: Annotated[float | None, ShownAs("items differ", elsewhere="variance")]
    students_items: Annotated[float | None, ShownAs("students differ by item", elsewhere="variance")]
    judges: Annotated[float | None, ShownAs("judges differ", elsewhere="variance")]
    residual: Annotated[float | None, ShownAs("noise, and judges' own views", elsewhere="variance")]
    datapoints: Annotated[int, ShownAs("That all students and judges of a task have", elsewhere="variance")]


class VarianceParts(NamedTuple):
    """Variances of scores from 0 to 1; over ``items`` datapoints, ``students`` and ``judges``."""

    item: float
    student_item: float
    judge: float
    residual: float
    items: int
    students: int
    judges: int

    @property
    def shares(self) -> VarianceShares:
        total = sum(self[:4])
        items, crossed, judges, rest = (part / total if total > 0 else None for part in self[:4])
        return VarianceShares(items, crossed, judges, rest, self.items)


class TaskErrors(NamedTuple):
    """How sure a task's scores are as they are: the variance of a student's mean (``headline``) and of the
    difference between two (``difference``), averaged over students and over pairs. ``parts``: what makes up
    the scatter, None where no full block is to be had."""

    headline: float
    difference: float
    items: int
    students: int
    judges: int
    parts: VarianceParts | None


class Prices(NamedTuple):
    """US dollars on average: of writing a datapoint, of an answer, of a judgment; None: not known."""

    item: float | None
    answer: float | None
    judgment: float | None


class Purchase(Record, frozen=True):
    """What the standard errors would be with so many more ``items`` in each task, or more ``judges``."""

    items: Annotated[int, ShownAs("Items more in each task", elsewhere="next")]
    judges: Annotated[int, ShownAs("Judges more", elsewhere="next")]
    headline: Annotated[float, ShownAs("Standard error of a student's score", "Error of a score")]
    difference: Annotated[float, ShownAs("Standard error, two students", "Error of a difference")]
    cost_usd: Annotated[float | None, ShownAs("US dollars; None: not known", "Cost", kind="usd")]


def variance_parts(cells: Floats) -> VarianceParts | None:
    """Of a full block (n, S, J); None with fewer than two of anything."""
    students, judges = (np.isfinite(cells).any(axis=axes) for axes in ((0, 2), (0, 1)))
    y = cells[:, students][:, :, judges]
    n, m, k = y.shape
    if min(n, m, k) < 2:
        return None
    grand = y.mean()
    by_item, by_judge = y.mean(axis=(1, 2)), y.mean(axis=(0, 1))
    both = y.mean(axis=2)
    crossed = both - both.mean(axis=0) - by_item[:, None] + grand
    rest = y - both[:, :, None] - by_judge + grand
    of_rest = float((rest**2).sum()) / ((n * m - 1) * (k - 1))
    of_both = k * float((crossed**2).sum()) / ((n - 1) * (m - 1))
    of_item = m * k * float(((by_item - grand) ** 2).sum()) / (n - 1)
    of_judge = n * m * float(((by_judge - grand) ** 2).sum()) / (k - 1)
    return VarianceParts(
        item=(of_item - of_both) / (m * k),
        student_item=(of_both - of_rest) / k,
        judge=(of_judge - of_rest) / (n * m),
        residual=of_rest,
        items=n,
        students=m,
        judges=k,
    )


def task_errors(
    means: Floats, clusters: NDArray[np.integer[Any]], judges: int, parts: VarianceParts | None
) -> TaskErrors | None:
    """Of the students' item means, (S, n), NaN where there is none; None where no two share two items.

    Each pair is taken on the items that both have. Of a full block that is ``2 MS_SI / (k n)``, with the mean
    square of students × items. Items of one cluster, (n,), depend on each other.
    """
    headline = [_variance(own, clusters) for own in means]
    difference = [_variance(one - other, clusters) for one, other in combinations(means, 2)]
    known, pairs = ([v for v in found if v is not None] for found in (headline, difference))
    if not pairs:
        return None
    there = np.isfinite(means)
    items, students = int(there.any(axis=0).sum()), int(there.any(axis=1).sum())
    return TaskErrors(float(np.mean(known)), float(np.mean(pairs)), items, students, judges, parts)


def _variance(values: Floats, clusters: NDArray[np.integer[Any]]) -> float | None:
    """Of the mean of those that are known; None of a single cluster."""
    there = np.isfinite(values)
    known, of = values[there], clusters[there]
    count = int((np.bincount(of) > 0).sum()) if len(of) else 0
    if count < 2:
        return None
    distances = np.bincount(of, known - known.mean())
    return float(distances @ distances) / len(known) ** 2 * count / (count - 1)


def pooled(parts: Sequence[VarianceParts]) -> VarianceParts | None:
    """Of all tasks: the mean of their variances, each counting by its datapoints."""
    if not parts:
        return None
    weights = [part.items for part in parts]
    item, student_item, judge, residual = (
        float(np.average([part[place] for part in parts], weights=weights)) for place in range(4)
    )
    students, judges = max(part.students for part in parts), max(part.judges for part in parts)
    return VarianceParts(item, student_item, judge, residual, sum(weights), students, judges)


def purchases(tasks: Sequence[TaskErrors], prices: Prices) -> list[Purchase]:
    """As it stands; then half as many items more, twice and four times as many; then one judge more, and two,
    where all tasks say what judges add.

    What was measured is scaled by what the parts foretell, with fresh items and the same judges:
    ``v = (σ_I² + σ_SI² + σ_e²/k) / n`` of a score, and ``2 (σ_SI² + σ_e²/k) / n`` of a difference, in which
    hard items cancel out. Over T tasks it is ``Σ_t v_t / T²``.
    """
    if not tasks:
        return []
    found = [_purchase(tasks, prices, times, 0) for times in (1.0, *_MORE_ITEMS)]
    if all(task.parts is not None for task in tasks):
        found += [_purchase(tasks, prices, 1.0, more) for more in _MORE_JUDGES]
    return found


def _purchase(tasks: Sequence[TaskErrors], prices: Prices, times: float, judges: int) -> Purchase:
    headline = difference = 0.0
    cost: float | None = 0.0
    items = 0
    for task in tasks:
        more = round(task.items * (times - 1))
        share = task.items / (task.items + more) / len(tasks) ** 2
        of_headline, of_difference = _left(task.parts, judges) if task.parts is not None else (1.0, 1.0)
        headline += task.headline * share * of_headline
        difference += task.difference * share * of_difference
        items = max(items, more)
        paid = _cost(task, prices, more, judges)
        cost = None if cost is None or paid is None else cost + paid
    return Purchase(items, judges, headline**0.5, difference**0.5, cost)


def _left(parts: VarianceParts, judges: int) -> tuple[float, float]:
    """What share of the variance of a score, and of a difference, more judges leave: k/(k + more) to 1."""
    k = parts.judges
    of_rest = k / (k + judges)

    def shrunk(part: float) -> float:
        """An estimate below zero is noise of the mean square that it was taken off, and shrinks as that."""
        return part if part >= 0 else part * of_rest

    seen = parts.student_item + parts.residual / k
    after = shrunk(parts.student_item) + parts.residual / (k + judges)
    whole, whole_after = parts.item + seen, shrunk(parts.item) + after
    return whole_after / whole if whole > 0 else 1.0, after / seen if seen > 0 else 1.0


def _cost(task: TaskErrors, prices: Prices, items: int, judges: int) -> float | None:
    """Of what is added to a task; None where a price that it takes is not known."""
    if prices.judgment is None or (items and (prices.item is None or prices.answer is None)):
        return None
    of_items = 0.0
    if items:
        each = (prices.item or 0.0) + task.students * ((prices.answer or 0.0) + task.judges * prices.judgment)
        of_items = items * each
    return of_items + judges * task.items * task.students * prices.judgment


# Records whose mean price is taken.
_SOME = 2_000


class PanelWorth(NamedTuple):
    """``variance`` is None where no task has a full block; ``next`` are the `purchases`."""

    variance: VarianceShares | None
    next: tuple[Purchase, ...]


def panel_worth(reader: RunReader, grid: ScoreGrid) -> PanelWorth:
    blocks = _complete(grid).values()
    whole = pooled([part for cells in blocks if (part := variance_parts(cells)) is not None])
    bought = purchases(errors_by_task(grid), _prices(reader))
    return PanelWorth(None if whole is None else whole.shares, tuple(bought))


def errors_by_task(grid: ScoreGrid) -> list[TaskErrors]:
    """Of the tasks in which two students can be compared."""
    means = item_scores(grid).mean
    complete = _complete(grid)
    found = []
    for task in range(len(grid.tasks)):
        mine = grid.items.task == task
        judges = int(grid.valid[grid.task == task].any(axis=0).sum())
        whole = task in complete and not grid.designs[task].checks  # what judges add to checks is not known
        parts = variance_parts(complete[task]) if whole else None
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
    found = reader.of_lines(phase, {"usage": "STRUCT(cost_usd DOUBLE)"}, _COSTS)
    known, priced, total = found[0] if found else (0, 0, 0.0)
    if priced < known:
        return None
    return float(total or 0.0) / known if known else 0.0


_COSTS = f"""
SELECT count(usage), count(usage.cost_usd), sum(usage.cost_usd) FROM (
    SELECT usage FROM {{lines}} LIMIT {_SOME}
)
"""  # noqa: S608
