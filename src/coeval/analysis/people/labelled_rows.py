"""Human labels as rows of the grid of scores, beside what judges gave there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats, Scale, clustered_mean
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import PairAgreement, compare_judge_pairs, measure_judge_pair
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, ShownAs, measured_from_interval
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid, grid_level_names
from coeval.core.records import SAMPLE, item_number, response_id
from coeval.core.scale import HIGH_MEDIUM_LOW
from coeval.store.human_labels import HumanLabel

PANEL = "all judges"
PEOPLE = "human labels"
"""No model has a name with a blank."""

_SIGNED = Scale(-1.0, 1.0)
# Of distances: below, two levels are equally near.
_EQUAL = 1e-9


class LabelledRows(NamedTuple):
    """Beside the rows of a grid, (C,): the mean of people's labels (NaN: none) and that of judges' scores.
    ``by_person``: each person's labels alone."""

    people: Floats
    judged: Floats
    by_person: Mapping[str, Floats]


class AgainstPeople(Entity, frozen=True):
    """A judge, or the mean of all, beside people, over answers' factors that both scored."""

    bias: Annotated[Measured, ShownAs("Judge less people, mean", "Bias", "bias", "points")]
    spa: Annotated[Measured, ShownAs("Share of equal levels", "Equal", "equal", "share")]
    kappa: Annotated[
        Measured,
        ShownAs(
            "Agreement beyond chance; of other scales weighted (Cohen 1960, 1968)",
            "κ",
            "kappa",
            "coefficient",
        ),
    ]
    count: Annotated[int, ShownAs("Labels that it has a score beside", "Labels", kind="count")]
    bias_by_level: Annotated[
        Mapping[str, Measured], ShownAs("Judge less people, by people's level", elsewhere=FILES)
    ]
    confusion: Annotated[
        Mapping[str, Mapping[str, float]],
        ShownAs("Labels by people's level, then by the judge's", elsewhere=FILES),
    ]


def match_labels_to_rows(grid: ScoreGrid, labels: Iterable[HumanLabel]) -> LabelledRows:
    """Find each label's row; several people's labels of one row are averaged. What the grid has no row for,
    or no level, is left out."""
    labels = list(labels)
    named = {label.datapoint_id for label in labels}
    items = [at for at, name in enumerate(grid.items.ids) if name in named]
    samples = np.zeros(len(grid.item), np.int64) if grid.sample is None else grid.sample
    row_of = {}
    for row in np.flatnonzero(np.isin(grid.item, items)).tolist():
        item, student = grid.items.ids[grid.item[row]], grid.students[grid.student[row]]
        row_of[response_id(item, student, int(samples[row])), grid.factors[grid.factor[row]]] = row
    given: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for label in labels:
        if (at := row_of.get((label.response_id, label.factor))) is not None:
            scale = grid.designs[int(grid.task[at])].scales.get(label.factor, HIGH_MEDIUM_LOW)
            if (level := scale.level(label.level)) is not None:
                given[label.judge_model_id][at] = scale.value(level)
    by_person = {}
    for person, values in sorted(given.items()):
        column = np.full(len(grid.item), np.nan)
        column[list(values)] = list(values.values())
        by_person[person] = column
    return LabelledRows(
        _mean_of_columns(list(by_person.values()), len(grid.item)), _mean_judge_scores(grid), by_person
    )


def _labelled_student(label: HumanLabel) -> str:
    return label.response_id.removeprefix(f"{label.datapoint_id}__").partition(SAMPLE)[0]


class SampledRows(NamedTuple):
    """Rows without those of answers that came after the draw; ``later``: how many items these are to."""

    rows: LabelledRows
    later: int


def exclude_later_answers(grid: ScoreGrid, rows: LabelledRows, drawn: Iterable[HumanLabel]) -> SampledRows:
    """Leave out a student's answers to items of a task that were not among those drawn from: labels are no
    sample of them. Items that a student has no answer to are none of these.

    Items come in the order of their numbers, those with ids of their own as they are on record. Of several
    draws the one from the fewest items counts: what it was from, all of them were from.
    """
    fewest: dict[tuple[str, str], int] = {}
    for label in drawn:
        if label.drawn is not None and label.drawn.items:
            stratum = label.task_id, _labelled_student(label)
            fewest[stratum] = min(label.drawn.items, fewest.get(stratum, label.drawn.items))
    numbers = [item_number(name) for name in grid.items.ids]
    judged, out = np.isfinite(rows.judged), np.zeros(len(grid.item), bool)
    for (task, student), most in fewest.items():
        if task in grid.tasks and student in grid.students:
            mine = (grid.task == grid.tasks.index(task)) & (grid.student == grid.students.index(student))
            items = np.unique(grid.item[mine & judged]).tolist()
            ordered = sorted(items, key=lambda at: (numbers[at] if numbers[at] is not None else at, at))
            out |= mine & np.isin(grid.item, ordered[most:])

    def without(column: Floats) -> Floats:
        return np.where(out, np.nan, column)

    by_person = {person: without(column) for person, column in rows.by_person.items()}
    kept = LabelledRows(without(rows.people), without(rows.judged), by_person)
    return SampledRows(kept, len(np.unique(grid.item[out])))


def _mean_of_columns(columns: Sequence[Floats], rows: int) -> Floats:
    """Over those that are there, NaN where none is."""
    total, count = np.zeros(rows), np.zeros(rows)
    for column in columns:
        there = np.isfinite(column)
        total[there] += column[there]
        count += there
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean_judge_scores(grid: ScoreGrid) -> Floats:
    values = grid.values
    return _mean_of_columns(
        [np.where(column >= 0, values[column], np.nan) for column in grid.levels.T], len(grid.item)
    )


def compare_judges_with_people(
    grid: ScoreGrid, rows: LabelledRows, reweighting: Reweighting
) -> dict[str, AgainstPeople]:
    """By judge, and of the mean over all. Rows are taken twice: a mean between two levels is half of each."""
    known = np.tile(np.flatnonzero(np.isfinite(rows.people) & np.isfinite(rows.judged)), 2)
    again = np.arange(len(known)) >= len(known) // 2
    some, people, values = _select_judge_rows(grid, known), rows.people[known], grid.values
    columns = {name: some.levels[:, at] for at, name in enumerate(grid.judges)}
    human = _nearest_levels(some, people, again)
    scored = {name: np.where(column >= 0, values[column], np.nan) for name, column in columns.items()} | {
        PANEL: rows.judged[known]
    }
    columns[PANEL] = _nearest_levels(some, rows.judged[known], again)
    found = {}
    for name, column in columns.items():
        there = column >= 0
        if there.any():
            agreed = _compare_columns(some, (name, column), (PEOPLE, human), reweighting)
            distances = scored[name][there] - people[there]
            found[name] = _compare_with_people(
                some.select_rows(there), agreed, distances, (human[there], column[there])
            )
    return found


def _compare_with_people(
    grid: ScoreGrid,
    agreed: PairAgreement,
    distances: Floats,
    levels: tuple[NDArray[np.int8], NDArray[np.int8]],
) -> AgainstPeople:
    names = grid_level_names(grid)
    human, own = (names.positions[grid.task, grid.factor, column] for column in levels)
    used = [at for at in range(len(names.names)) if (human == at).any() or (own == at).any()]
    return AgainstPeople(
        bias=measured_from_interval(clustered_mean(distances, grid.cluster, _SIGNED), None),
        spa=agreed.spa,
        kappa=agreed.kappa,
        count=agreed.count // 2,
        bias_by_level={
            names.names[at]: measured_from_interval(
                clustered_mean(distances[human == at], grid.cluster[human == at], _SIGNED), None
            )
            for at in used
            if (human == at).any()
        },
        confusion={
            names.names[at]: {
                names.names[to]: _halve_count(((human == at) & (own == to)).sum()) for to in used
            }
            for at in used
        },
    )


def _halve_count(count: np.int64) -> float:
    """A whole number where it is one."""
    return int(count) // 2 if count % 2 == 0 else int(count) / 2


def compare_people_pairwise(
    grid: ScoreGrid, rows: LabelledRows, reweighting: Reweighting
) -> dict[tuple[str, str], PairAgreement]:
    """Of every two people, over what both labelled."""
    found = {}
    names = list(rows.by_person)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            both = np.isfinite(rows.by_person[one]) & np.isfinite(rows.by_person[other])
            if both.any():
                some = _select_judge_rows(grid, both)
                columns = [(name, _nearest_levels(some, rows.by_person[name][both])) for name in (one, other)]
                found[one, other] = _compare_columns(some, columns[0], columns[1], reweighting)
    return found


def _compare_columns(
    grid: ScoreGrid,
    one: tuple[str, NDArray[np.int8]],
    other: tuple[str, NDArray[np.int8]],
    reweighting: Reweighting,
) -> PairAgreement:
    names = (one[0], other[0])
    designs = tuple(design._replace(judges=frozenset(names)) for design in grid.designs)
    both = grid._replace(levels=np.c_[one[1], other[1]], judges=names, designs=designs)
    [pair] = compare_judge_pairs(both, reweighting)
    return measure_judge_pair(pair)


def _nearest_levels(
    grid: ScoreGrid, values: Floats, last_of: NDArray[np.bool_] | None = None
) -> NDArray[np.int8]:
    """The place of the nearest level of each row's scale among all levels; between two, the first of its
    scale, and the last of the rows ``last_of``."""
    found = np.full(len(values), UNSCORED, grid.levels.dtype)
    for task, design in enumerate(grid.designs):
        for factor, name in enumerate(grid.factors):
            rows = (grid.task == task) & (grid.factor == factor)
            if rows.any():
                scale = design.scales.get(name, HIGH_MEDIUM_LOW)
                own = np.array(scale.values)
                far = np.abs(values[rows][:, None] - own)
                near = far <= far.min(axis=1, keepdims=True) + _EQUAL
                first, last = near.argmax(axis=1), len(own) - 1 - near[:, ::-1].argmax(axis=1)
                level = own[first if last_of is None else np.where(last_of[rows], last, first)]
                found[rows] = np.abs(level[:, None] - grid.scale).argmin(axis=1)
    return found


def _select_judge_rows(grid: ScoreGrid, rows: NDArray[np.bool_] | NDArray[np.intp]) -> ScoreGrid:
    """These rows by judges alone."""
    return grid.select_rows(rows)._replace(checked=None)
