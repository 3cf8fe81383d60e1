"""Judges against people, and students' scores on the human scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import PairedScores, holm, paired_difference
from coeval.analysis.intervals import ALPHA, Floats, mean_over_strata
from coeval.analysis.measures.measured import FILES, Entity, Measured, Record, ShownAs, of_interval
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.people.labelled_rows import LabelledRows
from coeval.analysis.people.prediction_powered import (
    FEWEST,
    LabelledStratum,
    Transported,
    labels_needed,
    parts_of,
    powered_difference,
    powered_mean,
    transported_mean,
)

ALL_FACTORS = "all factors"
"""The scale of an answer's mean over its judged factors."""
# Of the scale: what most readers take for no difference.
GOAL = 0.03


class CalibratedStudent(Entity, frozen=True):
    """A student by judges and by people, over the same tasks and factors."""

    judged: Annotated[Measured, ShownAs("Mean by judges, over all answers", "Judged", "judged", "points")]
    people: Annotated[
        Measured,
        ShownAs("Labels, and judged scores where they help (PPI++)", "Human scale", "human scale", "points"),
    ]
    alone: Annotated[
        Measured,
        ShownAs("Mean of the labels without judged scores", "Labels alone", "labels alone", "points"),
    ]
    weight: Annotated[float | None, ShownAs("λ: how far judged scores are used, 0 to 1", "λ", "λ", "number")]
    labels: Annotated[int, ShownAs("Labelled answers of this student", "Labels", "labels", "count")]
    needed: Annotated[
        int | None,
        ShownAs("Labels of this student for ± 3 points", "For ± 3", "for ± 3", "count"),
    ]
    transport_p: Annotated[
        float | None,
        ShownAs(
            "p that other students' corrections are alike, where theirs are used",
            kind="probability",
            elsewhere=FILES,
        ),
    ] = None


class CalibratedPair(Entity, frozen=True):
    """How much more the first student has than the second."""

    judged: Annotated[Measured, ShownAs("Difference by judges", "Judged", "judged", "points")]
    people: Annotated[
        Measured, ShownAs("Difference on the human scale", "Human scale", "human scale", "points")
    ]
    p: Annotated[float, ShownAs("Adjusted for the number of pairs (Holm)", "p", "p", "probability")]

    @property
    def sure(self) -> bool:
        return self.p < ALPHA


class HumanScale(Record, frozen=True):
    """Students and pairs by one factor, or by all, over the ``tasks`` with labels."""

    tasks: Annotated[tuple[str, ...], ShownAs("Tasks with labels", elsewhere="people")]
    unlabelled: Annotated[tuple[str, ...], ShownAs("Tasks without, in no figure", elsewhere="people")]
    students: Annotated[Mapping[str, CalibratedStudent], ShownAs("Of each student", elsewhere="people")]
    pairs: Annotated[
        Mapping[tuple[str, str], CalibratedPair], ShownAs("Of every two", elsewhere="people-pairs")
    ]


class LabelledAnswers(NamedTuple):
    """Answers with a whole judged score, (A,): item, student and task; what people gave (NaN: not drawn, or
    not in all factors) and what judges gave."""

    item: NDArray[np.int64]
    student: NDArray[np.int64]
    task: NDArray[np.int64]
    people: Floats
    judged: Floats


def human_scales(grid: ScoreGrid, rows: LabelledRows) -> dict[str, HumanScale]:
    """By scale: that of all judged factors first, where people labelled all of them in all tasks, then each
    factor's, where there are several."""
    found = {}
    whole = _answers(grid, rows, None)
    if np.isfinite(whole.people).any():
        scale = _human_scale(grid, whole)
        if not scale.unlabelled:
            found[ALL_FACTORS] = scale
    known = np.isfinite(rows.people)
    names = sorted({grid.factors[at] for at in np.unique(grid.factor[known]).tolist()})
    for name in names if not found or any(len(design.judged) > 1 for design in grid.designs) else ():
        answers = _answers(grid, rows, [name])
        if np.isfinite(answers.people).any():
            found[name] = _human_scale(grid, answers)
    return found


def _answers(grid: ScoreGrid, rows: LabelledRows, factors: Sequence[str] | None) -> LabelledAnswers:
    weights = np.zeros((len(grid.tasks), len(grid.factors)))
    for number, design in enumerate(grid.designs):
        for factor in design.judged if factors is None else design.judged & set(factors):
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


def _human_scale(grid: ScoreGrid, answers: LabelledAnswers) -> HumanScale:
    tasks = np.unique(answers.task[np.isfinite(answers.people)])
    others = np.setdiff1d(answers.task, tasks)
    clusters = int(grid.items.cluster.max(initial=-1)) + 1
    strata = {
        name: [
            _stratum(grid, answers, (answers.student == at) & (answers.task == task))
            for task in tasks.tolist()
            if grid.does[at, task]
        ]
        for at, name in enumerate(grid.students)
    }
    strata = {name: of for name, of in strata.items() if of and all(len(one.judged) > 1 for one in of)}
    own = {
        name: of
        for name, of in strata.items()
        if all(one.estimable for one in of) and sum(int(one.labelled.sum()) for one in of) >= FEWEST
    }
    students = {}
    for name, of in strata.items():
        students[name] = _own(of, clusters) if name in own else _transported(of, list(own.values()), clusters)
    comparable = {name: of for name, of in own.items() if len(of) == len(tasks)}
    labelled, unlabelled = (tuple(grid.tasks[at] for at in some.tolist()) for some in (tasks, others))
    judged = {
        pair: _judged_difference(grid, answers, tasks.tolist(), pair)
        for pair in combinations(sorted(comparable), 2)
    }
    return HumanScale(labelled, unlabelled, students, _pairs(comparable, judged, clusters))


def _stratum(grid: ScoreGrid, answers: LabelledAnswers, mine: NDArray[np.bool_]) -> LabelledStratum:
    return LabelledStratum(
        answers.people[mine], answers.judged[mine], grid.items.cluster[answers.item[mine]].astype(np.int64)
    )


def _judged(strata: Sequence[LabelledStratum]) -> Measured:
    clusters = [one.cluster for one in strata]
    return of_interval(mean_over_strata([one.judged for one in strata], clusters=clusters), None)


def _own(strata: Sequence[LabelledStratum], clusters: int) -> CalibratedStudent:
    found = powered_mean(strata, clusters)
    return CalibratedStudent(
        _judged(strata),
        Measured(found.value, *found.bounds, found.labels, None),
        Measured(found.alone, *found.alone_bounds, found.labels, None),
        found.weight,
        found.labels,
        labels_needed(strata, GOAL),
    )


def _transported(
    strata: Sequence[LabelledStratum], others: Sequence[Sequence[LabelledStratum]], clusters: int
) -> CalibratedStudent:
    """By other students' labels; without a figure where these are fewer than three."""
    labels = sum(int(one.labelled.sum()) for one in strata)
    nothing = Measured(None, None, None, labels, None)
    found: Transported | None = transported_mean(strata, others, clusters)
    if found is None:
        return CalibratedStudent(_judged(strata), nothing, nothing, None, labels, None)
    people = Measured(found.value, *found.bounds, labels, None)
    return CalibratedStudent(_judged(strata), people, nothing, None, labels, None, found.p)


def _judged_difference(
    grid: ScoreGrid, answers: LabelledAnswers, tasks: Sequence[int], pair: tuple[str, str]
) -> Measured:
    """How much more judges give the first than the second, on the items that both answered."""
    strata = []
    for task in tasks:
        means = []
        for name in pair:
            mine = (answers.task == task) & (answers.student == grid.students.index(name))
            item, places = answers.item[mine], len(grid.items.ids)
            count = np.bincount(item, minlength=places)
            total = np.bincount(item, answers.judged[mine], places)
            means.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
        first, second = means
        both = np.isfinite(first) & np.isfinite(second)
        if both.any():
            alike = grid.items.cluster[both]
            strata.append(PairedScores(second[both], first[both], np.ones(len(alike)), alike))
    if not strata:
        return Measured(None, None, None, None, None)
    found = paired_difference(strata)
    return Measured(found.difference, found.low, found.high, found.n, None)


def _pairs(
    own: Mapping[str, Sequence[LabelledStratum]], judged: Mapping[tuple[str, str], Measured], clusters: int
) -> dict[tuple[str, str], CalibratedPair]:
    parts = {name: parts_of(of, clusters) for name, of in own.items()}
    found = {(one, other): powered_difference(parts[one], parts[other]) for one, other in judged}
    adjusted = holm([people.p for people in found.values()])
    return {
        pair: CalibratedPair(judged[pair], Measured(people.value, *people.bounds, people.labels, None), p)
        for (pair, people), p in zip(found.items(), adjusted, strict=True)
    }


def leaders(scale: HumanScale) -> Iterator[str]:
    """Name who is significantly ahead of all others that are `compared`; nobody, or one."""
    names = compared(scale)
    for name in names:
        mine = [
            found.sure and ((found.people.value or 0.0) > 0) == (one == name)
            for (one, other), found in scale.pairs.items()
            if name in (one, other)
        ]
        if mine and all(mine):
            yield name


def compared(scale: HumanScale) -> list[str]:
    """Name the students in pairs: those with labels of their own in all tasks."""
    return sorted({name for pair in scale.pairs for name in pair})
