"""The robust filter: the items on which the best-agreeing judges agree, by the teachers who separate students
best.

J* is the better half of the ranked judges, T* the better half of the teachers by J*'s scores. An item of
T* is kept if, for every student and factor, enough of J* lie near their mean.

The set is chosen by the very scores that are then averaged over it: teachers by how far their items happen
to separate students. A test on it calls students different who are not (``docs/measures.md`` has the
figures), so it gives an order and no p-values, ranks or differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.measures.judge_measures import FEWEST_COMMON, JudgeAgreement
from coeval.analysis.measures.measure_tree import FILES, Record, ShownAs
from coeval.analysis.measures.ranking import EMPTY_RANKING, Ranking, rank_students
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import StudentMeasures, measure_students
from coeval.analysis.measures.teacher_measures import FORMULAS, Formula, differentiation_by_teacher

JudgeSelection: TypeAlias = Literal["top_half", "all"]
AgreementMetric: TypeAlias = Literal["wpa", "spa", "kappa"]

# One judge agrees with itself: consistency needs a second.
FEWEST_JUDGES = 2
# A distance of exactly the tolerance is within it, however the mean was rounded.
_ROUNDING = 1e-9


class RobustOptions(msgspec.Struct, frozen=True):
    """Options of the filter. ``agreement_threshold``: the share of J* that must lie within
    ``score_tolerance`` (of a scale from 0 to 1) of J*'s mean."""

    judge_selection: JudgeSelection = "top_half"
    agreement_metric: AgreementMetric = "wpa"
    agreement_threshold: float = 0.5
    teacher_score_formula: Formula = "v1"
    score_tolerance: float = 0.25


class RobustMeasures(Record, frozen=True):
    """``students`` over the kept items, by J* alone, and their ``ranking``, an order without tests. Where the
    filter is not ``applicable``, ``reason`` says why, and ``judges`` and what follows are None."""

    applicable: Annotated[bool, ShownAs("Whether there are enough judges", elsewhere=FILES)]
    options: Annotated[RobustOptions, ShownAs("Of the filter", kind="number", elsewhere=FILES)]
    reason: Annotated[str | None, ShownAs("Why the filter does not apply", elsewhere=FILES)] = None
    judges: Annotated[tuple[str, ...] | None, ShownAs("J*, best first", elsewhere=FILES)] = None
    teachers: Annotated[tuple[str, ...] | None, ShownAs("T*, best first", elsewhere=FILES)] = None
    datapoints: Annotated[int | None, ShownAs("That stay", elsewhere=FILES)] = None
    of_datapoints: Annotated[int | None, ShownAs("Items in total", elsewhere=FILES)] = None
    students: Annotated[Mapping[str, StudentMeasures], ShownAs("Over the items kept", elsewhere=FILES)] = {}
    ranking: Annotated[Ranking, ShownAs("Their order", elsewhere=FILES)] = EMPTY_RANKING


class RobustSet(NamedTuple):
    """``judges`` (J*) and ``teachers`` (T*), best first; ``stays``, (I,): which items are kept."""

    judges: list[str]
    teachers: list[str]
    stays: NDArray[np.bool_]

    def select(self, grid: ScoreGrid) -> ScoreGrid:
        """Select the set's scores from the grid that it was chosen from."""
        return grid.select_judges(sorted(self.judges)).select_items(self.stays)


def choose_robust_set(
    grid: ScoreGrid, judges: Mapping[str, JudgeAgreement], options: RobustOptions
) -> RobustSet | None:
    """Choose judges, teachers and items by the filter; None where too few judges are ranked."""
    best = choose_best_judges(judges, options)
    if len(best) < FEWEST_JUDGES:
        return None
    by_best = grid.select_judges(sorted(best))
    teachers = _choose_best_teachers(by_best, options.teacher_score_formula)
    places = [grid.teachers.index(teacher) for teacher in teachers]
    stays = np.isin(grid.items.teacher, places) & find_consistent_items(by_best, options)
    return RobustSet(best, teachers, stays)


def measure_robust_set(
    grid: ScoreGrid, judges: Mapping[str, JudgeAgreement], options: RobustOptions
) -> RobustMeasures:
    """Score and order students over the robust set. ``judges``: those of the grid."""
    if (robust := choose_robust_set(grid, judges, options)) is None:
        reason = (
            f"fewer than {FEWEST_JUDGES} judges have {FEWEST_COMMON} scores or more in common with others"
        )
        return RobustMeasures(applicable=False, options=options, reason=reason)
    selected = robust.select(grid)
    ranks, scores = rank_students(selected)
    return RobustMeasures(
        applicable=True,
        options=options,
        judges=tuple(robust.judges),
        teachers=tuple(robust.teachers),
        datapoints=int(robust.stays.sum()),
        of_datapoints=len(grid.items.ids),
        students=measure_students(selected, scores),
        ranking=msgspec.structs.replace(ranks, ranges={}, differences={}),
    )


def choose_best_judges(judges: Mapping[str, JudgeAgreement], options: RobustOptions) -> list[str]:
    """Choose J*, best first: the better half of the ranked judges, rounded up, two at least; or all of them.
    Ties are ordered by common units, then by name."""

    def sort_key(judge: str) -> tuple[float, int, str]:
        value = getattr(judges[judge], f"{options.agreement_metric}_mean").value
        return np.inf if value is None else -value, -judges[judge].count, judge

    ranked = sorted((judge for judge, agreement in judges.items() if not agreement.degenerate), key=sort_key)
    if options.judge_selection == "all":
        return ranked
    return ranked[: max(ceil(len(ranked) / 2), FEWEST_JUDGES)]


def find_consistent_items(grid: ScoreGrid, options: RobustOptions) -> NDArray[np.bool_]:
    """Find the items, (I,), where for every student and factor that judges score, enough of the grid's judges
    lie near their mean. A judge without a score is not near; an item without any score is dropped."""
    valid = grid.valid
    count = valid.sum(axis=1)
    scored = count > 0
    values = grid.values[grid.levels]
    with np.errstate(invalid="ignore"):
        mean = values.sum(axis=1) / count
    distance = np.abs(values - mean[:, None])
    near = (valid & (distance <= options.score_tolerance + _ROUNDING)).sum(axis=1)
    enough = near >= options.agreement_threshold * len(grid.judges) - _ROUNDING
    items = len(grid.items.ids)
    has_score = np.bincount(grid.item[grid.scored], minlength=items) > 0
    differs = np.bincount(grid.item[scored & ~enough], minlength=items) > 0
    return np.asarray(has_score & ~differs)


def _choose_best_teachers(grid: ScoreGrid, formula: Formula) -> list[str]:
    """Choose T*, best first: the better half, rounded up; whose items separate no students comes last."""
    formula_index = FORMULAS.index(formula)
    values: dict[str, Any] = {}
    for teacher, differentiation in differentiation_by_teacher(grid).items():
        value = float(differentiation[formula_index])
        values[teacher] = value if np.isfinite(value) else -np.inf
    ranked = sorted(values, key=lambda teacher: (-values[teacher], teacher))
    return ranked[: ceil(len(ranked) / 2)]
