"""The robust filter: the datapoints on which the judges who agree best agree, of the teachers who tell
students apart best.

J* is the better half of the ranked judges, T* the better half of the teachers by J*'s scores. A datapoint of
T* stays if, for every student and factor, enough of J* lie near their mean.

The set is chosen by the very scores that are then averaged over it: teachers by how far their items happen to
tell students apart. A test on it calls students different who are not (``docs/measures.md`` has the figures),
so it gives an order and no p-values, ranks or differences.
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
    """``agreement_threshold``: which share of J* must lie within ``score_tolerance`` (of a scale from 0 to
    1) of the mean that J* gives."""

    judge_selection: JudgeSelection = "top_half"
    agreement_metric: AgreementMetric = "wpa"
    agreement_threshold: float = 0.5
    teacher_score_formula: Formula = "v1"
    score_tolerance: float = 0.25


class RobustMeasures(Record, frozen=True):
    """``students`` over the datapoints that stay, by J* alone, and their ``ranking``, an order without tests;
    or that it is not ``applicable``, and for what ``reason``: then ``judges`` and what follows are None."""

    applicable: Annotated[bool, ShownAs("Whether there are enough judges", elsewhere=FILES)]
    options: Annotated[RobustOptions, ShownAs("Of the filter", kind="number", elsewhere=FILES)]
    reason: Annotated[str | None, ShownAs("Why the filter does not apply", elsewhere=FILES)] = None
    judges: Annotated[tuple[str, ...] | None, ShownAs("J*, best first", elsewhere=FILES)] = None
    teachers: Annotated[tuple[str, ...] | None, ShownAs("T*, best first", elsewhere=FILES)] = None
    datapoints: Annotated[int | None, ShownAs("That stay", elsewhere=FILES)] = None
    of_datapoints: Annotated[int | None, ShownAs("That there are", elsewhere=FILES)] = None
    students: Annotated[Mapping[str, StudentMeasures], ShownAs("Over what stays", elsewhere=FILES)] = {}
    ranking: Annotated[Ranking, ShownAs("Their order", elsewhere=FILES)] = EMPTY_RANKING


class RobustSet(NamedTuple):
    """``judges`` (J*) and ``teachers`` (T*), best first; ``stays``, (I,): the datapoints."""

    judges: list[str]
    teachers: list[str]
    stays: NDArray[np.bool_]

    def of(self, grid: ScoreGrid) -> ScoreGrid:
        """Its scores, of the grid that it is a part of."""
        return grid.select_judges(sorted(self.judges)).select_items(self.stays)


def choose_robust_set(
    grid: ScoreGrid, judges: Mapping[str, JudgeAgreement], options: RobustOptions
) -> RobustSet | None:
    """None where too few judges are ranked; ``judges`` are those of the grid."""
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
    """Students over the robust set; ``judges`` are those of the grid."""
    if (found := choose_robust_set(grid, judges, options)) is None:
        reason = (
            f"fewer than {FEWEST_JUDGES} judges have {FEWEST_COMMON} scores or more in common with others"
        )
        return RobustMeasures(applicable=False, options=options, reason=reason)
    kept = found.of(grid)
    ranks, scores = rank_students(kept)
    return RobustMeasures(
        applicable=True,
        options=options,
        judges=tuple(found.judges),
        teachers=tuple(found.teachers),
        datapoints=int(found.stays.sum()),
        of_datapoints=len(grid.items.ids),
        students=measure_students(kept, scores),
        ranking=msgspec.structs.replace(ranks, ranges={}, differences={}),
    )


def choose_best_judges(judges: Mapping[str, JudgeAgreement], options: RobustOptions) -> list[str]:
    """J*, best first: of those that are ranked the better half, rounded up, and two at least; or all of them.
    Who agrees alike is ordered by common units, then by name."""

    def order(judge: str) -> tuple[float, int, str]:
        found = judges[judge]
        measured = {"wpa": found.wpa_mean, "spa": found.spa_mean, "kappa": found.kappa_mean}
        value = measured[options.agreement_metric].value
        return np.inf if value is None else -value, -found.count, judge

    ranked = sorted((judge for judge, found in judges.items() if not found.degenerate), key=order)
    if options.judge_selection == "all":
        return ranked
    return ranked[: max(ceil(len(ranked) / 2), FEWEST_JUDGES)]


def find_consistent_items(grid: ScoreGrid, options: RobustOptions) -> NDArray[np.bool_]:
    """(I,): where, for every student and factor that judges score, enough of the grid's judges lie near their
    mean. A judge without a score is not near; a datapoint without any score does not stay."""
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
    there = np.bincount(grid.item[grid.scored], minlength=items) > 0
    differs = np.bincount(grid.item[scored & ~enough], minlength=items) > 0
    return np.asarray(there & ~differs)


def _choose_best_teachers(grid: ScoreGrid, formula: Formula) -> list[str]:
    """T*, best first: the better half, rounded up; teachers whose items separate no students come last."""
    place = FORMULAS.index(formula)
    values: dict[str, Any] = {}
    for teacher, found in differentiation_by_teacher(grid).items():
        value = float(found[place])
        values[teacher] = value if np.isfinite(value) else -np.inf
    ranked = sorted(values, key=lambda teacher: (-values[teacher], teacher))
    return ranked[: ceil(len(ranked) / 2)]
