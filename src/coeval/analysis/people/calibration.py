"""Judges against people, and students' scores on the human scale."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.family import FamilyMember, adjust_family
from coeval.analysis.comparison.paired_difference import Difference, PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, LEVEL, Bounds, Floats, Scatter, mean_bounds, mean_over_strata
from coeval.analysis.measures.measure_tree import Entity, Measured, Record, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.people.labelled_rows import LabelledRows
from coeval.analysis.special import stdtr, stdtrit

# --- Prediction-powered means
#
# Means on the human scale, from few labels and the judged scores of all answers (PPI++).
#
# A judged score that leans is corrected by the labelled answers, and a label that costs is stretched by the
# judged scores of the others: ``λ·mean of judged + mean of (label − λ·judged)``, with λ from the data, so
# that judges without worth are left aside (Angelopoulos, Duchi and Zrnic 2023, PPI++, arXiv 2311.01453).
# Labels are drawn at random within strata; answers to one item depend on each other. It is measured by
# ``python -m evidence.people``.

# Labels of one student: below, λ and the scatter are guesses.
FEWEST_LABELS = 5
# Of the largest variance of a difference, at least so much is taken to be unseen, as in `mean_bounds`.
_UNSEEN = 1 / 3


class LabelledStratum(NamedTuple):
    """The answers of one stratum, (N,): the ``people``'s values (NaN where none was drawn), the judges', and
    each answer's item, or cluster of near duplicates. Values run from 0 to 1."""

    people: Floats
    judged: Floats
    cluster: NDArray[np.integer]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        return np.isfinite(self.people)


class LineInWeight(NamedTuple):
    """An estimate as a line in λ: its value is ``alone + λ·judged``, its variance the sum of squared cluster
    distances ``from_alone + λ·from_judged`` (G,). ``has_label`` (G,): the clusters with a label;
    ``labels`` counts labelled answers, ``means`` the means estimated."""

    alone: float
    judged: float
    from_alone: Floats
    from_judged: Floats
    has_label: NDArray[np.bool_]
    labels: int
    means: int

    @property
    def degrees_of_freedom(self) -> int:
        """Return the degrees of freedom of the variance, at least 1."""
        return max(int(self.has_label.sum()) - self.means, 1)

    def value_at(self, weight: float) -> float:
        return self.alone + weight * self.judged

    def variance_at(self, weight: float) -> float:
        distances = self.from_alone + weight * self.from_judged
        return float(distances @ distances)

    def __sub__(self, other: LineInWeight) -> LineInWeight:
        """Subtract another student's estimate, keeping what both got on one item together. Over clusters that
        both share, only the mean difference is estimated, in place of two means."""
        both, either = self.has_label & other.has_label, self.has_label | other.has_label
        shared = round(min(self.means, other.means) * int(both.sum()) / max(int(either.sum()), 1))
        return LineInWeight(
            self.alone - other.alone,
            self.judged - other.judged,
            self.from_alone - other.from_alone,
            self.from_judged - other.from_judged,
            either,
            self.labels + other.labels,
            self.means + other.means - shared,
        )


class PoweredMean(NamedTuple):
    """A mean on the human scale, its bounds, the weight λ of judged scores; the mean of ``labels`` alone."""

    value: float
    bounds: Bounds
    weight: float
    alone: float
    alone_bounds: Bounds
    labels: int


def estimate_best_weight(strata: Sequence[LabelledStratum]) -> float:
    """Estimate λ over strata that count equally: ``Σ cov_h/n_h / Σ var_h (1/n_h + 1/N_h)``, clipped to 0–1.

    For one stratum that is ``cov / var / (1 + n/N)``, with the covariance over n labelled answers and the
    variance of judged scores over all n + N.
    """
    shared = spread = 0.0
    for stratum in strata:
        labelled = stratum.labelled
        n, others = int(labelled.sum()), int((~labelled).sum())
        if not others:
            return 0.0  # all is labelled: judges add nothing
        people, judged = stratum.people[labelled], stratum.judged[labelled]
        shared += float((people - people.mean()) @ (judged - judged.mean())) / n / n
        spread += float(stratum.judged.var(ddof=1)) * (1 / n + 1 / others)
    return float(np.clip(shared / spread, 0.0, 1.0)) if spread > 0 else 0.0


def estimate_mean_as_line_in_weight(
    strata: Sequence[LabelledStratum], cluster_count: int, *, uncorrected: bool = False
) -> LineInWeight:
    """Estimate the mean over strata that count equally, each with two labels or more. ``cluster_count``: over
    all strata; ``uncorrected``: as ppi-python does, without the correction of distances for few labels."""
    alone = judged = 0.0
    from_alone, from_judged = np.zeros(cluster_count), np.zeros(cluster_count)
    labelled = np.zeros(cluster_count, bool)
    for stratum in strata:
        is_labelled = stratum.labelled
        n, others = int(is_labelled.sum()), int((~is_labelled).sum())
        items = len(np.unique(stratum.cluster[is_labelled]))
        few = 1.0 if uncorrected else float(np.sqrt(items / max(items - 1, 1)))
        weight = 1 / len(strata)
        people, own = stratum.people[is_labelled], stratum.judged[is_labelled]
        rest = stratum.judged[~is_labelled] if others else own
        alone += weight * float(people.mean())
        judged += weight * float(rest.mean() - own.mean())
        at = stratum.cluster[is_labelled]
        from_alone += np.bincount(at, weight * few * (people - people.mean()) / n, cluster_count)
        from_judged -= np.bincount(at, weight * few * (own - own.mean()) / n, cluster_count)
        if others:
            distances = weight * (rest - rest.mean()) / others
            from_judged += np.bincount(stratum.cluster[~is_labelled], distances, cluster_count)
        labelled[at] = True
    labels = sum(int(stratum.labelled.sum()) for stratum in strata)
    return LineInWeight(alone, judged, from_alone, from_judged, labelled, labels, len(strata))


def estimate_powered_mean(strata: Sequence[LabelledStratum], clusters: int) -> PoweredMean:
    """Estimate the mean on the human scale; from labels alone if judged scores would widen its interval."""
    parts = estimate_mean_as_line_in_weight(strata, clusters)
    weight = estimate_best_weight(strata)
    alone, alone_variance = _clip_to_scale(parts.alone), _variance_with_weight(parts, 0.0)
    alone_bounds = _mean_bounds_from_variance(alone, alone_variance, parts.degrees_of_freedom)
    value, variance = _clip_to_scale(parts.value_at(weight)), _variance_with_weight(parts, weight)
    bounds = _mean_bounds_from_variance(value, variance, parts.degrees_of_freedom)
    if variance >= alone_variance or bounds.high - bounds.low > alone_bounds.high - alone_bounds.low:
        value, bounds, weight = alone, alone_bounds, 0.0
    return PoweredMean(value, bounds, weight, alone, alone_bounds, parts.labels)


def _clip_to_scale(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _variance_with_weight(parts: LineInWeight, weight: float) -> float:
    """Return the variance, with the degree of freedom that an estimated λ takes."""
    lost = parts.degrees_of_freedom / max(parts.degrees_of_freedom - 1, 1) if weight else 1.0
    return parts.variance_at(weight) * lost


def _mean_bounds_from_variance(value: float, variance: float, degrees_of_freedom: int) -> Bounds:
    """Return `mean_bounds` of as many items as there are labels to estimate the scatter from."""
    items = degrees_of_freedom + 1
    return mean_bounds(value, [Scatter(items, variance * items * degrees_of_freedom)])


def estimate_powered_difference(first: LineInWeight, second: LineInWeight) -> Difference:
    """Estimate how far the first is ahead of the second, by Student's t; ``n`` counts labels. λ is that of
    the difference with the least variance: ``−Σ a·b / Σ b²`` over clusters, with the distances a of the
    labels and b of the judged scores."""
    parts = first - second
    squares = float(parts.from_judged @ parts.from_judged)
    weight = -float(parts.from_alone @ parts.from_judged) / squares if squares > 0 else 0.0
    weight = float(np.clip(weight, 0.0, 1.0))
    if _variance_with_weight(parts, weight) >= _variance_with_weight(parts, 0.0):
        weight = 0.0
    items = parts.degrees_of_freedom + 1
    variance = max(_variance_with_weight(parts, weight), _UNSEEN / items / parts.degrees_of_freedom)
    value = min(max(parts.value_at(weight), -1.0), 1.0)
    error, degrees_of_freedom = float(np.sqrt(variance)), max(parts.degrees_of_freedom - bool(weight), 1)
    half = float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2)) * error
    p = float(2 * stdtr(degrees_of_freedom, -abs(value) / error))
    ends = max(value - half, -1.0), min(value + half, 1.0)
    return Difference(0.0, value, value, *ends, error, degrees_of_freedom, p, parts.labels, None, "paired t")


def count_labels_needed(strata: Sequence[LabelledStratum], half_width: float) -> int | None:
    """Return how many labels of a student make a 95% interval of ± ``half_width``, given how labels and
    judged scores scatter so far; None: more than there are answers. The interval is that of
    `estimate_powered_mean`, which has a width where all labels are alike."""
    weight = estimate_best_weight(strata)
    value = spread = imputed = 0.0
    answers = 0
    for stratum in strata:
        is_labelled = stratum.labelled
        residual = stratum.people[is_labelled] - weight * stratum.judged[is_labelled]
        value += (float(residual.mean()) + weight * float(stratum.judged.mean())) / len(strata)
        spread += float(residual.var(ddof=1)) / len(strata)
        imputed += weight**2 * float(stratum.judged.var(ddof=1)) / len(stratum.judged) / len(strata) ** 2
        answers += len(stratum.judged)
    value = _clip_to_scale(value)

    def is_too_wide(labels: int) -> bool:
        low, high = _mean_bounds_from_variance(value, spread / labels + imputed, labels - len(strata))
        return (high - low) / 2 > half_width

    least = min(max(FEWEST_LABELS, 2 * len(strata)), answers + 1)
    needed = bisect_left(range(answers + 1), True, lo=least, key=lambda labels: not is_too_wide(labels))
    return needed if needed <= answers else None


# --- Calibration

ALL_FACTORS = "all factors"
"""The scale of an answer's mean over its factors, all of which judges score."""
_JUDGED_FACTORS = "all judged factors"
# Of the scale: what most readers take for no difference.
GOAL = 0.03


class CalibratedStudent(Entity, frozen=True):
    """A student by judges and by people, over the same tasks and factors."""

    judged: Annotated[Measured, ShownAs("Mean by judges, over all answers", "Judged", "judged", "points")]
    people: Annotated[
        Measured,
        ShownAs("Labels, plus judged scores if they help (PPI++)", "Human scale", "human scale", "points"),
    ]
    alone: Annotated[
        Measured,
        ShownAs("Mean of the labels without judged scores", "Labels alone", "labels alone", "points"),
    ]
    weight: Annotated[float | None, ShownAs("λ: weight of judged scores, 0 to 1", "λ", "λ", "number")]
    labels: Annotated[int, ShownAs("Labelled answers of this student", "Labels", "labels", "count")]
    needed: Annotated[
        int | None,
        ShownAs("Labels needed for ± 3 points", "For ± 3", "for ± 3", "count"),
    ]


class CalibratedPair(Entity, frozen=True):
    """How far the first student is ahead of the second."""

    judged: Annotated[Measured, ShownAs("Difference by judges", "Judged", "judged", "points")]
    people: Annotated[
        Measured,
        ShownAs(
            "Difference on the human scale; the interval belongs to p", "Human scale", "human scale", "points"
        ),
    ]
    p: Annotated[float, ShownAs("Adjusted for the number of pairs (Holm)", "p", "p", "probability")]

    @property
    def is_significant(self) -> bool:
        return self.p < ALPHA


class HumanScale(Record, frozen=True):
    """Students and pairs by one factor, or by all, over the ``tasks`` with labels."""

    tasks: Annotated[tuple[str, ...], ShownAs("Tasks with labels", elsewhere="people")]
    unlabelled: Annotated[tuple[str, ...], ShownAs("Tasks without labels, in no figure", elsewhere="people")]
    students: Annotated[Mapping[str, CalibratedStudent], ShownAs("By student", elsewhere="people")]
    pairs: Annotated[
        Mapping[tuple[str, str], CalibratedPair], ShownAs("By pair of students", elsewhere="people-pairs")
    ]


class LabelledAnswers(NamedTuple):
    """Answers with a complete judged score, (A,): item, student and task; people's values (NaN: not drawn, or
    not in all factors) and the judges'."""

    item: NDArray[np.int64]
    student: NDArray[np.int64]
    task: NDArray[np.int64]
    people: Floats
    judged: Floats


def calibrate_human_scales(grid: ScoreGrid, rows: LabelledRows) -> dict[str, HumanScale]:
    """Score students on each human scale: that of all judged factors first, where people labelled all of them
    in all tasks, then each factor's, where there are several."""
    scales = {}
    whole = _average_answers(grid, rows)
    if np.isfinite(whole.people).any():
        scale = _calibrate_scale(grid, whole)
        if not scale.unlabelled:
            scales[_name_of_whole_scale(grid)] = scale
    has_label = np.isfinite(rows.people)
    names = sorted({grid.factors[at] for at in np.unique(grid.factor[has_label]).tolist()})
    for name in names if not scales or any(len(design.judged_factors) > 1 for design in grid.designs) else ():
        answers = _average_answers(grid, rows, name)
        if np.isfinite(answers.people).any():
            scales[name] = _calibrate_scale(grid, answers)
    return scales


def _name_of_whole_scale(grid: ScoreGrid) -> str:
    """Name what a mean over the judged factors covers: one factor is called by its own name."""
    judged = {factor for design in grid.designs for factor in design.judged_factors}
    if len(judged) == 1:
        return judged.pop()
    return _JUDGED_FACTORS if any(design.checks for design in grid.designs) else ALL_FACTORS


def _average_answers(grid: ScoreGrid, rows: LabelledRows, only: str | None = None) -> LabelledAnswers:
    """Average each answer over the judged factors, or take ``only`` one of them."""
    weights = np.zeros((len(grid.tasks), len(grid.factors)))
    for number, design in enumerate(grid.designs):
        for factor in design.judged_factors if only is None else design.judged_factors & {only}:
            weights[number, grid.factors.index(factor)] = design.weights.get(factor, 1.0)
    weight = weights[grid.task, grid.factor]
    use = (weight > 0) & np.isfinite(rows.judged)
    _, first, at = np.unique(grid.answer[use], return_index=True, return_inverse=True)
    item, student = grid.item[use][first].astype(np.int64), grid.student[use][first].astype(np.int64)
    task = grid.items.task[item].astype(np.int64)
    total = np.bincount(at, weight[use], len(first))
    whole = np.isclose(total, weights.sum(axis=1)[task])
    people, judged = (
        np.bincount(at, weight[use] * values[use], len(first)) / total
        for values in (rows.people, rows.judged)
    )
    return LabelledAnswers(item[whole], student[whole], task[whole], people[whole], judged[whole])


def _calibrate_scale(grid: ScoreGrid, answers: LabelledAnswers) -> HumanScale:
    tasks = np.unique(answers.task[np.isfinite(answers.people)])
    others = np.setdiff1d(answers.task, tasks)
    clusters = int(grid.items.cluster.max(initial=-1)) + 1
    item_cluster = grid.items.cluster[answers.item].astype(np.int64)
    strata: dict[str, list[LabelledStratum]] = {}
    for at, name in enumerate(grid.students):
        cells = [
            (answers.student == at) & (answers.task == task)
            for task in tasks.tolist()
            if grid.student_task_assignments[at, task]
        ]
        if cells and min(int(rows.sum()) for rows in cells) > 1:
            strata[name] = [
                LabelledStratum(answers.people[rows], answers.judged[rows], item_cluster[rows])
                for rows in cells
            ]
    students = {name: _calibrate_student(own, clusters) for name, own in strata.items()}
    comparable = {
        name: own
        for name, own in strata.items()
        if students[name].weight is not None and len(own) == len(tasks)
    }
    labelled, unlabelled = (tuple(grid.tasks[at] for at in some.tolist()) for some in (tasks, others))
    judged = {
        pair: _difference_by_judges(grid, answers, tasks.tolist(), pair)
        for pair in combinations(sorted(comparable), 2)
    }
    return HumanScale(labelled, unlabelled, students, _calibrate_pairs(comparable, judged, clusters))


def _calibrate_student(strata: Sequence[LabelledStratum], clusters: int) -> CalibratedStudent:
    """Score one student; without a figure on the human scale where a stratum has too few labels."""
    over_tasks = mean_over_strata([stratum.judged for stratum in strata], [own.cluster for own in strata])
    judged = Measured.from_interval(over_tasks)
    labels = [int(stratum.labelled.sum()) for stratum in strata]
    if min(labels) < 2 or sum(labels) < FEWEST_LABELS:
        not_estimated = Measured(None, None, None, sum(labels), None)
        return CalibratedStudent(judged, not_estimated, not_estimated, None, sum(labels), None)
    mean = estimate_powered_mean(strata, clusters)
    return CalibratedStudent(
        judged,
        Measured(mean.value, *mean.bounds, mean.labels, None),
        Measured(mean.alone, *mean.alone_bounds, mean.labels, None),
        mean.weight,
        mean.labels,
        count_labels_needed(strata, GOAL),
    )


def _difference_by_judges(
    grid: ScoreGrid, answers: LabelledAnswers, tasks: Sequence[int], pair: tuple[str, str]
) -> Measured:
    """Return how far judges put the first ahead of the second, on the items that both answered."""
    items, means = len(grid.items.ids), []
    for name in pair:
        own = answers.student == grid.students.index(name)
        total = np.bincount(answers.item[own], answers.judged[own], items)
        with np.errstate(invalid="ignore"):
            means.append(total / np.bincount(answers.item[own], minlength=items))
    first, second = means
    strata = []
    for task in tasks:
        both = np.isfinite(first) & np.isfinite(second) & (grid.items.task == task)
        if both.any():
            alike = grid.items.cluster[both]
            strata.append(PairedScores(second[both], first[both], np.ones(len(alike)), alike))
    if not strata:
        return Measured(None, None, None, None, None)
    difference = paired_difference(strata)
    return Measured(difference.difference, difference.low, difference.high, difference.n, None)


def _calibrate_pairs(
    strata_by_student: Mapping[str, Sequence[LabelledStratum]],
    judged: Mapping[tuple[str, str], Measured],
    clusters: int,
) -> dict[tuple[str, str], CalibratedPair]:
    parts = {name: estimate_mean_as_line_in_weight(own, clusters) for name, own in strata_by_student.items()}
    differences = {(a, b): estimate_powered_difference(parts[a], parts[b]) for a, b in judged}
    tested = adjust_family([FamilyMember(people) for people in differences.values()])
    return {
        pair: CalibratedPair(
            judged[pair], Measured(gap.difference, *gap.ci95_adjusted, gap.n, None), gap.p_adjusted or 0.0
        )
        for pair, gap in zip(differences, tested, strict=True)
    }


def find_clear_leader(scale: HumanScale) -> str | None:
    """Return who is significantly ahead of all other `list_compared_students`, None if nobody is."""
    names = list_compared_students(scale)
    for name in names:
        is_ahead = [
            pair.is_significant and ((pair.people.value or 0.0) > 0) == (first == name)
            for (first, second), pair in scale.pairs.items()
            if name in (first, second)
        ]
        if is_ahead and all(is_ahead):
            return name
    return None


def list_compared_students(scale: HumanScale) -> list[str]:
    """Name the students in pairs: those with labels of their own in all tasks."""
    return sorted({name for pair in scale.pairs for name in pair})
