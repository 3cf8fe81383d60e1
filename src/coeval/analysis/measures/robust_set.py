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

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import Reweighting, shifted_spread
from coeval.analysis.measures.judge_measures import FEWEST_COMMON, JudgeAgreement
from coeval.analysis.measures.measured import FILES, Entity, Measured, Record, ShownAs, with_bounds
from coeval.analysis.measures.ranking import NOBODY, Ranking, ranking
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import StudentMeasures, student_measures

Formula: TypeAlias = Literal["v1", "s2", "r3"]
FORMULAS: tuple[Formula, ...] = ("v1", "s2", "r3")


class TeacherMeasures(Entity, frozen=True):
    """How far a teacher's items tell students apart, of μ, the mean over its datapoints of the mean over
    judges, or of what a check gives."""

    v1: Annotated[
        Measured,
        ShownAs("Mean over tasks and factors of the variance over students", "Variance", "v1", "number"),
    ]
    s2: Annotated[Measured, ShownAs("The root of it", "Deviation", "s2")]
    r3: Annotated[Measured, ShownAs("Mean of the highest student's mean less the lowest's", "Range", "r3")]


class Differentiation(NamedTuple):
    """``v1``: the mean over (task, factor) of the sample variance of the students' means; ``s2``: its root;
    ``r3``: the mean over (task, factor) of the largest less the least. NaN with one student."""

    v1: Floats
    s2: Floats
    r3: Floats


def differentiation(means: Floats) -> Differentiation:
    """Of students' means μ(task, factor, student), 0 to 1: (…, parts, students), NaN where there is none.

    A (task, factor) with fewer than two students' means enters no mean.
    """
    known = np.isfinite(means)
    there = known.sum(axis=-1)
    reported = there >= 2
    filled = np.where(known, means, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = filled.sum(axis=-1, keepdims=True) / there[..., None]
        squares = np.where(known, (means - centre) ** 2, 0.0).sum(axis=-1)
        variance = np.where(reported, squares / (there - 1), 0.0)
        ranges = np.where(known, means, -np.inf).max(axis=-1, initial=-np.inf) - np.where(
            known, means, np.inf
        ).min(axis=-1, initial=np.inf)
        parts = reported.sum(axis=-1)
        v1 = variance.sum(axis=-1) / parts
        r3 = np.where(reported, ranges, 0.0).sum(axis=-1) / parts
    v1 = np.where(parts > 0, v1, np.nan)
    return Differentiation(v1, np.sqrt(v1), np.where(parts > 0, r3, np.nan))


def teacher_measures(grid: ScoreGrid, reweighting: Reweighting) -> dict[str, TeacherMeasures]:
    """By teacher."""
    possible = _possible_units(grid)
    found = {}
    for place, (name, rows) in enumerate(_rows_of(grid).items()):
        needed = int(possible[grid.items.teacher == place].sum()) * int(grid.times.sum())
        found[name] = _of_teacher(rows, reweighting, needed - rows.units)
    return found


def differences_of(grid: ScoreGrid) -> dict[str, Differentiation]:
    """By teacher: the same without intervals."""
    one_block = np.zeros(len(grid.items.ids), np.int64)
    found = {}
    for name, rows in _rows_of(grid).items():
        sums, counts = rows.summed(one_block[rows.item], 1)
        found[name] = differentiation(_ratio(sums[0], counts[0]).reshape(rows.shape))
    return found


def _rows_of(grid: ScoreGrid) -> dict[str, _Rows]:
    sums = grid.sums(alike=True)
    count, mean = sums.units, _ratio(sums.total, sums.units)
    teacher = grid.items.teacher[grid.item]
    return {
        name: _Rows(grid, (count > 0) & (teacher == place), mean, count)
        for place, name in enumerate(grid.teachers)
    }


def _ratio(sums: Floats, counts: NDArray[Any]) -> Floats:
    """NaN where there is nothing."""
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts, np.float64)


class _Rows:
    """A teacher's rows: their means as parts (task, factor) × students, summed by block."""

    def __init__(
        self, grid: ScoreGrid, rows: NDArray[np.bool_], means: Floats, units: NDArray[np.int64]
    ) -> None:
        part = grid.task[rows].astype(np.int64) * max(len(grid.factors), 1) + grid.factor[rows]
        known, part = np.unique(part, return_inverse=True)
        self.shape = (len(known), len(grid.students))
        self.cell = part * len(grid.students) + grid.student[rows]
        self.means = means[rows]
        self.units = int(units[rows].sum())
        self.item = grid.item[rows]
        self.items = len(np.unique(self.item))

    def summed(self, block: NDArray[np.int64], blocks: int) -> tuple[Floats, Floats]:
        """(blocks, parts × students) sums of means, and how many there are."""
        cells = self.shape[0] * self.shape[1]
        key = block * cells + self.cell
        sums = np.bincount(key, self.means, blocks * cells).astype(np.float64)
        counts = np.bincount(key, minlength=blocks * cells).astype(np.float64)
        return sums.reshape(blocks, cells), counts.reshape(blocks, cells)


def _of_teacher(rows: _Rows, reweighting: Reweighting, missing: int) -> TeacherMeasures:
    sums, counts = rows.summed(reweighting.block[rows.item], reweighting.blocks)
    means = _ratio(sums.sum(axis=0), counts.sum(axis=0)).reshape(rows.shape)
    drawn = reweighting.shares(sums, counts)
    drawn = drawn.reshape(len(drawn), *rows.shape)
    found, draws = differentiation(means), differentiation(drawn)
    v1, s2, r3 = (
        with_bounds(float(value), shifted_spread(of_draws, float(value), rows.items), rows.items, missing)
        for value, of_draws in zip(found, draws, strict=True)
    )
    return TeacherMeasures(v1, s2, r3)


def _possible_units(grid: ScoreGrid) -> NDArray[np.int64]:
    each = [design.scores for design in grid.designs]
    return np.array(each, np.int64)[grid.items.task]


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
    ranking: Annotated[Ranking, ShownAs("Their order", elsewhere=FILES)] = NOBODY


class RobustSet(NamedTuple):
    """``judges`` (J*) and ``teachers`` (T*), best first; ``stays``, (I,): the datapoints."""

    judges: list[str]
    teachers: list[str]
    stays: NDArray[np.bool_]

    def of(self, grid: ScoreGrid) -> ScoreGrid:
        """Its scores, of the grid that it is a part of."""
        return grid.judged_by(sorted(self.judges)).kept(self.stays)


def robust_set(
    grid: ScoreGrid, judges: Mapping[str, JudgeAgreement], options: RobustOptions
) -> RobustSet | None:
    """None where too few judges are ranked; ``judges`` are those of the grid."""
    best = best_judges(judges, options)
    if len(best) < FEWEST_JUDGES:
        return None
    by_best = grid.judged_by(sorted(best))
    teachers = _best_teachers(by_best, options.teacher_score_formula)
    places = [grid.teachers.index(teacher) for teacher in teachers]
    stays = np.isin(grid.items.teacher, places) & consistent_items(by_best, options)
    return RobustSet(best, teachers, stays)


def robust_measures(
    grid: ScoreGrid, judges: Mapping[str, JudgeAgreement], options: RobustOptions
) -> RobustMeasures:
    """Students over the robust set; ``judges`` are those of the grid."""
    if (found := robust_set(grid, judges, options)) is None:
        reason = (
            f"fewer than {FEWEST_JUDGES} judges have {FEWEST_COMMON} scores or more in common with others"
        )
        return RobustMeasures(applicable=False, options=options, reason=reason)
    kept = found.of(grid)
    students = student_measures(kept)
    return RobustMeasures(
        applicable=True,
        options=options,
        judges=tuple(found.judges),
        teachers=tuple(found.teachers),
        datapoints=int(found.stays.sum()),
        of_datapoints=len(grid.items.ids),
        students=students,
        ranking=ranking(kept, students).untested,
    )


def best_judges(judges: Mapping[str, JudgeAgreement], options: RobustOptions) -> list[str]:
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


def consistent_items(grid: ScoreGrid, options: RobustOptions) -> NDArray[np.bool_]:
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


def _best_teachers(grid: ScoreGrid, formula: Formula) -> list[str]:
    """T*, best first: the better half, rounded up; teachers whose items separate no students come last."""
    place = FORMULAS.index(formula)
    values: dict[str, Any] = {}
    for teacher, found in differences_of(grid).items():
        value = float(found[place])
        values[teacher] = value if np.isfinite(value) else -np.inf
    ranked = sorted(values, key=lambda teacher: (-values[teacher], teacher))
    return ranked[: ceil(len(ranked) / 2)]
