"""Human labels as rows of the score grid, with the judges' scores of the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats, Scale, clustered_mean
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import PairAgreement, compare_judge_pairs, measure_judge_pair
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, ShownAs
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid, grid_level_names
from coeval.core.records import item_number, response_id, student_of
from coeval.core.scale import HIGH_MEDIUM_LOW
from coeval.store.human_labels import HumanLabel

PANEL = "all judges"
PEOPLE = "human labels"
"""No model has a name with a blank."""

_SIGNED = Scale(-1.0, 1.0)
# Of distances: below, two levels are equally near.
_EQUAL = 1e-9


class LabelledRows(NamedTuple):
    """For each row of a grid, (C,): the mean of people's labels (NaN: none) and that of judges' scores.
    ``by_person``: each person's labels alone."""

    people: Floats
    judged: Floats
    by_person: Mapping[str, Floats]


class AgainstPeople(Entity, frozen=True):
    """A judge, or the mean of all, compared with people, over the answers' factors that both scored."""

    bias: Annotated[Measured, ShownAs("Mean of judge − people", "Bias", "bias", "points")]
    spa: Annotated[Measured, ShownAs("Share of equal levels", "Equal", "equal", "share")]
    kappa: Annotated[
        Measured,
        ShownAs(
            "Agreement beyond chance; weighted for other scales (Cohen 1960, 1968)",
            "κ",
            "kappa",
            "coefficient",
        ),
    ]
    count: Annotated[int, ShownAs("Labels of answers that it scored", "Labels", kind="count")]
    bias_by_level: Annotated[
        Mapping[str, Measured], ShownAs("Judge − people, by people's level", elsewhere=FILES)
    ]
    confusion: Annotated[
        Mapping[str, Mapping[str, float]],
        ShownAs("Labels by people's level, then by the judge's", elsewhere=FILES),
    ]


def match_labels_to_rows(grid: ScoreGrid, labels: Iterable[HumanLabel]) -> LabelledRows:
    """Find each label's row; several people's labels of one row are averaged. Labels without a row or level
    in the grid are left out."""
    labels = list(labels)
    named = {label.datapoint_id for label in labels}
    items = [at for at, name in enumerate(grid.items.ids) if name in named]
    samples = np.zeros(len(grid.item), np.int64) if grid.sample is None else grid.sample
    row_of = {}
    for row in np.flatnonzero(np.isin(grid.item, items)).tolist():
        item, student = grid.items.ids[grid.item[row]], grid.students[grid.student[row]]
        row_of[response_id(item, student, int(samples[row])), grid.factors[grid.factor[row]]] = row
    values_by_person: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for label in labels:
        if (at := row_of.get((label.response_id, label.factor))) is not None:
            scale = grid.designs[int(grid.task[at])].scales.get(label.factor, HIGH_MEDIUM_LOW)
            if (level := scale.level(label.level)) is not None:
                values_by_person[label.judge_model_id][at] = scale.value(level)
    by_person = {}
    for person, values in sorted(values_by_person.items()):
        column = np.full(len(grid.item), np.nan)
        column[list(values)] = list(values.values())
        by_person[person] = column
    judged = [np.where(column >= 0, grid.values[column], np.nan) for column in grid.levels.T]
    people, rows = list(by_person.values()), len(grid.item)
    return LabelledRows(_mean_of_columns(people, rows), _mean_of_columns(judged, rows), by_person)


def exclude_items_added_after_draw(
    grid: ScoreGrid, rows: LabelledRows, labels: Iterable[HumanLabel]
) -> tuple[LabelledRows, int]:
    """Leave out a student's answers to items of a task that were not among those drawn from: labels are no
    sample of them; count the items of these. Items without an answer of the student do not count.

    Items come in the order of their numbers, those with ids of their own as they are on record. Of several
    draws the one from the fewest items counts, since all draws included those items.
    """
    fewest: dict[tuple[str, str], int] = {}
    for label in labels:
        if label.drawn is not None and label.drawn.items:
            stratum = label.task_id, student_of(label.response_id.removeprefix(f"{label.datapoint_id}__"))
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
    return kept, len(np.unique(grid.item[out]))


def _mean_of_columns(columns: Sequence[Floats], rows: int) -> Floats:
    """Average the columns row by row, ignoring NaN; NaN where all are."""
    total, count = np.zeros(rows), np.zeros(rows)
    for column in columns:
        has_value = np.isfinite(column)
        total[has_value] += column[has_value]
        count += has_value
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def compare_judges_with_people(
    grid: ScoreGrid, rows: LabelledRows, reweighting: Reweighting
) -> dict[str, AgainstPeople]:
    """Compare each judge, and the mean of all, with people. Rows are taken twice: a mean between two levels
    is half of each."""
    rows_labelled = np.tile(np.flatnonzero(np.isfinite(rows.people) & np.isfinite(rows.judged)), 2)
    is_second_copy = np.arange(len(rows_labelled)) >= len(rows_labelled) // 2
    labelled, people = _select_judge_rows(grid, rows_labelled), rows.people[rows_labelled]
    judged, values = rows.judged[rows_labelled], grid.values
    human = _nearest_level_codes(labelled, people, is_second_copy)
    columns = {name: labelled.levels[:, at] for at, name in enumerate(grid.judges)}
    scored = {name: np.where(column >= 0, values[column], np.nan) for name, column in columns.items()}
    columns[PANEL], scored[PANEL] = _nearest_level_codes(labelled, judged, is_second_copy), judged
    comparisons = {}
    for name, column in columns.items():
        has_level = column >= 0
        if has_level.any():
            agreed = _compare_columns(labelled, (name, column), (PEOPLE, human), reweighting)
            distances = scored[name][has_level] - people[has_level]
            comparisons[name] = _compare_with_people(
                labelled.select_rows(has_level), agreed, distances, (human[has_level], column[has_level])
            )
    return comparisons


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
        bias=Measured.from_interval(clustered_mean(distances, grid.cluster, _SIGNED)),
        spa=agreed.spa,
        kappa=agreed.kappa,
        count=agreed.count // 2,
        bias_by_level={
            names.names[at]: Measured.from_interval(
                clustered_mean(distances[human == at], grid.cluster[human == at], _SIGNED)
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
    return int(count) // 2 if count % 2 == 0 else int(count) / 2


def compare_people_pairwise(
    grid: ScoreGrid, rows: LabelledRows, reweighting: Reweighting
) -> dict[tuple[str, str], PairAgreement]:
    """Compare every two people over what both labelled."""
    agreements = {}
    for names in combinations(rows.by_person, 2):
        first, second = (np.isfinite(rows.by_person[name]) for name in names)
        both = first & second
        if both.any():
            common = _select_judge_rows(grid, both)
            columns = [(name, _nearest_level_codes(common, rows.by_person[name][both])) for name in names]
            agreements[names] = _compare_columns(common, columns[0], columns[1], reweighting)
    return agreements


def _compare_columns(
    grid: ScoreGrid,
    first: tuple[str, NDArray[np.int8]],
    second: tuple[str, NDArray[np.int8]],
    reweighting: Reweighting,
) -> PairAgreement:
    names = (first[0], second[0])
    designs = tuple(design._replace(judges=frozenset(names)) for design in grid.designs)
    both = grid._replace(levels=np.c_[first[1], second[1]], judges=names, designs=designs)
    [pair] = compare_judge_pairs(both, reweighting)
    return measure_judge_pair(pair)


def _nearest_level_codes(
    grid: ScoreGrid, values: Floats, ties_to_last: NDArray[np.bool_] | None = None
) -> NDArray[np.int8]:
    """Return the index, among all levels, of the nearest level of each row's scale; between two, the first of
    its scale, or the last for the rows of ``ties_to_last``."""
    nearest = np.full(len(values), UNSCORED, grid.levels.dtype)
    for task, design in enumerate(grid.designs):
        for factor, name in enumerate(grid.factors):
            rows = (grid.task == task) & (grid.factor == factor)
            if rows.any():
                scale = design.scales.get(name, HIGH_MEDIUM_LOW)
                own = np.array(scale.values)
                far = np.abs(values[rows][:, None] - own)
                near = far <= far.min(axis=1, keepdims=True) + _EQUAL
                first, last = near.argmax(axis=1), len(own) - 1 - near[:, ::-1].argmax(axis=1)
                level = own[first if ties_to_last is None else np.where(ties_to_last[rows], last, first)]
                nearest[rows] = np.abs(level[:, None] - grid.scale).argmin(axis=1)
    return nearest


def _select_judge_rows(grid: ScoreGrid, rows: NDArray[np.bool_] | NDArray[np.intp]) -> ScoreGrid:
    """Select these rows with judges' scores alone."""
    return grid.select_rows(rows)._replace(checked=None)
