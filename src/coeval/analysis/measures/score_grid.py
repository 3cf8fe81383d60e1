"""A run's scores as one matrix: a row for each (datapoint, student, factor), a column for each judge, and one
for checks.

DuckDB groups the records; what is left is a few bytes for each score, so that a million judgments are tens of
megabytes, and every measure is a sum over columns of numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats, Looks
from coeval.analysis.planned_names import Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import CHECK, EXACT_MATCH
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale

Codes: TypeAlias = NDArray[np.integer[Any]]
"""Places in a list of names, or numbers of datapoints."""

# In place of a level where a judge gave none.
UNSCORED = -1
LevelCounts: TypeAlias = Mapping[str, int]
"""Scores at each level, by its name, scale by scale and from worst to best."""

# Codes beyond these do not fit one byte, or two.
_MOST_CODES, _MOST_LONG_CODES = 127, 32_767
# Of longer scales only the levels that were given are told apart: tables of two judges have so many squared.
_MOST_LEVELS = 21


class GridItems(NamedTuple):
    """The good datapoints, (I,): each one's task and teacher. ``ids`` are theirs; ``attributes`` holds, by
    ``attribute=value``, the datapoints that sampled it. ``alike``: a number that those share whose prompts
    nearly repeat each other, below I; None: no two do."""

    ids: Sequence[str]
    task: Codes
    teacher: Codes
    attributes: Mapping[str, Codes]
    alike: Codes | None = None

    @property
    def cluster(self) -> Codes:
        """(I,): the datapoints of one cluster are no independent evidence."""
        return np.arange(len(self.ids)) if self.alike is None else self.alike


class TaskDesign(NamedTuple):
    """Whose scores a task is to have, by which factors: those planned, and those on record.

    ``checks`` are the factors that a check scores, ``scales`` those of the others. ``weights`` are by factor,
    1 on average, and empty where each score counts alike: in tasks without checks and weights.
    """

    judges: Set[str]
    factors: Set[str]
    checks: Set[str] = frozenset()
    scales: Mapping[str, RubricScale] = {}
    weights: Mapping[str, float] = {}

    @property
    def judged_factors(self) -> Set[str]:
        """The factors that judges score."""
        return self.factors - self.checks

    @property
    def scores(self) -> int:
        """How many scores an answer is to have."""
        return len(self.judges) * len(self.judged_factors) + len(self.factors & self.checks)

    def count_scores(self, factor: str) -> int:
        """How many of them are of one factor."""
        return int(factor in self.factors) * (1 if factor in self.checks else len(self.judges))


class RowSums(NamedTuple):
    """Of rows, (R,): the sum of the scores and the sum of their shares in it, and how many there are."""

    total: Floats
    share: Floats
    units: NDArray[np.int64]

    @property
    def mean(self) -> Floats:
        """0 to 1; NaN where there is no score."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.share, np.float64)


THREE_LEVELS: Floats = np.array(HIGH_MEDIUM_LOW.values)


class ScoreGrid(NamedTuple):
    """``item``, ``student`` and ``factor`` are (C,), ``levels`` is (C, J): places in ``scale``, the values
    (0 to 1) of all levels in rising order, or `UNSCORED`. ``checked`` (C,) are the scores of checks, NaN
    where there is none; None: there are none at all. Students, judges, factors, tasks and teachers are named
    in order of their names. Students and tasks that the configuration has lost are left out. ``sample``
    (C,) tells several answers of a student to a datapoint apart, ``samples`` how many each student gave of
    them; None and empty where nobody gave more than one. ``weight`` (C,) is how often a datapoint counts in
    a mean over datapoints, by the metric of a benchmark; None: once."""

    item: Codes
    student: Codes
    factor: Codes
    levels: NDArray[np.int8]
    items: GridItems
    students: tuple[str, ...]
    judges: tuple[str, ...]
    factors: tuple[str, ...]
    tasks: tuple[str, ...]
    teachers: tuple[str, ...]
    designs: tuple[TaskDesign, ...]
    scale: Floats = THREE_LEVELS
    checked: Floats | None = None
    sample: Codes | None = None
    samples: Mapping[str, int] = {}
    weight: Floats | None = None
    planned: Planned | None = None
    looks: Looks | None = None

    @property
    def is_assigned(self) -> NDArray[np.bool_]:
        """(students, tasks): whether a student is to do a task, or has a score in it all the same."""
        if self.planned is None or not self.planned.own_tasks:
            return np.ones((len(self.students), len(self.tasks)), bool)
        found = [[self.planned.does(name, task) for task in self.tasks] for name in self.students]
        does = np.array(found, bool).reshape(len(self.students), len(self.tasks))
        does[self.student, self.task] = True
        return does

    @property
    def answers_per_item(self) -> Codes:
        """(students,): how many answers each gives to a datapoint."""
        return np.array([self.samples.get(name, 1) for name in self.students], np.int64)

    @property
    def scores_due(self) -> NDArray[np.int64]:
        """(I,): how many scores an answer to each datapoint is to have."""
        return np.array([design.scores for design in self.designs], np.int64)[self.items.task]

    @property
    def answer(self) -> Codes:
        """(C,): a number for each answer."""
        numbers = self.item.astype(np.int64) * len(self.students) + self.student
        return (
            numbers
            if self.sample is None
            else numbers * int(self.answers_per_item.max(initial=1)) + self.sample
        )

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(C, J): where there is a score of a judge."""
        return self.levels >= 0

    @property
    def scored(self) -> NDArray[np.bool_]:
        """(C,): where there is any score."""
        judged = np.asarray(self.valid.any(axis=1), bool)
        return judged if self.checked is None else judged | np.isfinite(self.checked)

    @property
    def judge_scores(self) -> ScoreGrid:
        """The scores of judges alone: of a check they are to have none, and none is missing."""
        if self.checked is None:
            return self
        return self.select_rows(np.asarray(self.valid.any(axis=1), bool))._replace(checked=None)

    def select_rows(self, rows: NDArray[np.bool_] | Codes) -> ScoreGrid:
        """Some of the rows, (C,); datapoints and names stay."""
        return self._replace(
            item=self.item[rows],
            student=self.student[rows],
            factor=self.factor[rows],
            levels=self.levels[rows],
            checked=None if self.checked is None else self.checked[rows],
            sample=None if self.sample is None else self.sample[rows],
            weight=None if self.weight is None else self.weight[rows],
        )

    @property
    def values(self) -> Floats:
        """(K + 1,): the value of each level; by `UNSCORED`, that of none, 0."""
        return np.append(self.scale, 0.0)

    @property
    def scales(self) -> tuple[RubricScale, ...]:
        """Those of all judged factors, High, Medium and Low first."""
        found = {design.scales[name]: None for design in self.designs for name in sorted(design.scales)}
        return tuple(sorted(found, key=lambda scale: scale is not HIGH_MEDIUM_LOW)) or (HIGH_MEDIUM_LOW,)

    @property
    def has_default_scale(self) -> bool:
        """Whether all judged factors are on the default scale."""
        return self.scales == (HIGH_MEDIUM_LOW,)

    def sum_scores(
        self,
        rows: Codes | None = None,
        levels: NDArray[np.int8] | None = None,
        checked: Floats | None = None,
        *,
        equal_weights: bool = False,
        complete_only: bool = True,
    ) -> RowSums:
        """Sum the scores of each row.

        A score's share is 1; in tasks with weights or checks, unless ``equal_weights``, the factor's
        weight over the number of its scores, so that a factor counts once by the mean over its judges.

        Parameters
        ----------
        rows : which; None: all
        levels, checked : their scores, where these are other ones than the grid's
        complete_only : in tasks with weights or checks, count no score of an answer that lacks a factor
        """
        if levels is None:
            levels, checked = self.levels, self.checked
            if rows is not None:
                levels, checked = levels[rows], None if checked is None else checked[rows]
        total, units, values = np.zeros(len(levels)), np.zeros(len(levels), np.int64), self.values
        for column in levels.T:
            total += values[column]
            units += column >= 0
        if checked is not None:
            there = np.isfinite(checked)
            total += np.where(there, checked, 0.0)
            units += there
        weights = None if equal_weights else self._weights
        if weights is None:
            return RowSums(total, units.astype(np.float64), units)
        mine = self if rows is None else self.select_rows(rows)
        weight = weights[mine.task, mine.factor]
        share = np.where(np.isfinite(weight), weight / np.maximum(units, 1), 1.0)
        if complete_only:
            units = units * (np.isnan(weight) | mine._whole(units > 0))
        return RowSums(total * share * (units > 0), np.asarray(units * share, np.float64), units)

    def _whole(self, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(C,): whether the row's answer has a score of each factor of its task; ``there``: which rows have
        one."""
        answer, needed = self.answer, np.array([len(design.factors) for design in self.designs])
        found = np.bincount(answer[there], minlength=int(answer.max(initial=0)) + 1)
        return np.asarray(found[answer] == needed[self.task], bool)

    @property
    def is_weighted(self) -> bool:
        """Whether any task has weights or checks, so that not all scores count alike."""
        return any(design.weights for design in self.designs)

    @property
    def _weights(self) -> Floats | None:
        """(tasks, factors), NaN in tasks in which all scores count alike; None: in all."""
        if not self.is_weighted:
            return None
        return np.array(
            [[design.weights.get(name, np.nan) for name in self.factors] for design in self.designs]
        )

    @property
    def task(self) -> Codes:
        """(C,): the task of each row."""
        return self.items.task[self.item]

    @property
    def cluster(self) -> Codes:
        """(C,): the cluster of each row."""
        return self.items.cluster[self.item]

    def select_items(self, items: NDArray[np.bool_]) -> ScoreGrid:
        """Some of the datapoints, (I,), with their rows; names stay."""
        rows = items[self.item]
        number = np.cumsum(items) - 1
        return self.select_rows(rows)._replace(
            item=number[self.item[rows]],
            items=GridItems(
                [item for item, stays in zip(self.items.ids, items, strict=True) if stays],
                self.items.task[items],
                self.items.teacher[items],
                {value: number[of[items[of]]] for value, of in self.items.attributes.items()},
                None if self.items.alike is None else consecutive(self.items.alike[items]),
            ),
        )

    def select_judges(self, judges: Sequence[str]) -> ScoreGrid:
        """The scores of some judges, in their order, and those of checks."""
        places = [self.judges.index(judge) for judge in judges]
        designs = tuple(design._replace(judges=design.judges & set(judges)) for design in self.designs)
        return self._replace(levels=self.levels[:, places], judges=tuple(judges), designs=designs)

    def select_factors(self, factors: Set[str]) -> ScoreGrid:
        """The scores of some factors; names stay."""
        rows = np.isin(self.factor, [at for at, name in enumerate(self.factors) if name in factors])
        designs = tuple(design._replace(factors=design.factors & factors) for design in self.designs)
        return self.select_rows(rows)._replace(designs=designs)

    def select_students(self, students: Sequence[str]) -> ScoreGrid:
        """The scores of some students, in their order."""
        number = np.full(len(self.students), -1, self.student.dtype)
        number[[self.students.index(name) for name in students]] = np.arange(len(students))
        kept = self.select_rows(np.asarray(number[self.student] >= 0, bool))
        samples = {name: count for name, count in self.samples.items() if name in students}
        return kept._replace(student=number[kept.student], students=tuple(students), samples=samples)


class LevelNames(NamedTuple):
    """``names`` of all levels, scale by scale and from worst to best; ``place`` (tasks, factors, K): which of
    them a judge's level is. Where scales share a word, the scale is named beside it."""

    names: tuple[str, ...]
    place: NDArray[np.int64]

    def counts(self, places: NDArray[np.int64]) -> LevelCounts:
        found = np.bincount(places, minlength=len(self.names)).tolist()
        return dict(zip(self.names, found, strict=True))


def grid_level_names(grid: ScoreGrid) -> LevelNames:
    scales = grid.scales
    words = Counter(level for scale in scales for level in scale.levels)
    names = [
        level if words[level] == 1 else f"{level} ({scale.levels_text()})"
        for scale in scales
        for level in scale.levels
    ]
    first = dict(zip(scales, np.cumsum([0, *(len(scale.levels) for scale in scales)]).tolist(), strict=False))
    of_scale = {
        scale: first[scale]
        + np.array([scale.levels.index(scale.nearest_level(value)) for value in grid.scale.tolist()])
        for scale in scales
    }
    place = np.zeros((len(grid.designs), len(grid.factors), len(grid.scale)), np.int64)
    for task, design in enumerate(grid.designs):
        for factor, name in enumerate(grid.factors):
            place[task, factor] = of_scale[design.scales.get(name, scales[0])]
    return LevelNames(tuple(names), place)


def _named_levels(grid: ScoreGrid) -> tuple[LevelNames, NDArray[np.int64]]:
    """And (C, J): the place of each score's level among the names, below 0 where there is none."""
    names = grid_level_names(grid)
    if len(names.names) == len(grid.scale):  # one scale
        return names, grid.levels.astype(np.int64)
    places = names.place[grid.task[:, None], grid.factor[:, None], grid.levels]
    return names, np.where(grid.valid, places, UNSCORED)


def levels_by_judge(grid: ScoreGrid) -> dict[str, LevelCounts]:
    names, places = _named_levels(grid)
    return {
        judge: names.counts(given[given >= 0]) for judge, given in zip(grid.judges, places.T, strict=True)
    }


def levels_by_student(grid: ScoreGrid) -> list[LevelCounts]:
    """In the order of the grid's students."""
    names, places = _named_levels(grid)
    of = [places[grid.student == place] for place in range(len(grid.students))]
    return [names.counts(given[given >= 0]) for given in of]


def consecutive(codes: Codes) -> Codes:
    """Renumber codes of 0 and more from 0 on, in their order, leaving none out; `np.unique` sorts for it."""
    present = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    present[codes] = True
    return (np.cumsum(present) - 1)[codes]


def no_levels(shape: tuple[int, int], levels: int) -> NDArray[np.int8]:
    """No level anywhere, in the smallest integers that hold so many levels."""
    kind: Any = np.int8 if levels <= _MOST_CODES else np.int16 if levels <= _MOST_LONG_CODES else np.int32
    return np.full(shape, UNSCORED, kind)


# By what is read, for all who measure it: a page and its items need the same.
_GRIDS: WeakKeyDictionary[RunReader, ScoreGrid] = WeakKeyDictionary()


def score_grid(reader: RunReader) -> ScoreGrid:
    """The scores that count in a run, read once."""
    if reader not in _GRIDS:
        _GRIDS[reader] = _read_grid(reader, removed=False)
    return _GRIDS[reader]


def _read_grid(reader: RunReader, *, removed: bool) -> ScoreGrid:
    """``removed``: the scores of students and tasks too that the configuration has lost."""
    planned = reader.planned
    terms = [term for (term,) in reader.rows("SELECT term FROM terms ORDER BY rowid")]
    tasks = [
        name for name in _distinct(reader, "task", "planned") if removed or is_planned_task(planned, name)
    ]
    students, given = _students(reader, removed=removed), reader.rows(_GIVEN, [CHECK])
    judged = reader.rows(_JUDGED)
    designs = tuple(_design(reader.planned, task, judged, given) for task in tasks)
    judges = sorted(
        {*(one for _, _, one, _ in given if one != CHECK), *(j for d in designs for j in d.judges)}
    )
    factors = sorted({*(factor for _, factor, _, _ in given), *(f for d in designs for f in d.factors)})
    teachers = _distinct(reader, "teacher", "planned")
    items, number_of = _items(reader, terms, tasks, teachers)
    scale = _scale({value for *_, value in given if value is not None}, designs)
    columns = reader.columns(_grid_sql(judges, len(scale), several=reader.sampled), [scale])
    item = number_of[columns["item"]]
    student = _codes(terms, students)[columns["student"]]
    counts = (item >= 0) & (student >= 0)
    levels = no_levels((int(counts.sum()), len(judges)), len(scale))
    for place in range(len(judges)):
        levels[:, place] = columns[f"judge_{place}"][counts]
    checked = np.ma.filled(columns["checked"][counts].astype(np.float64), np.nan)
    return ScoreGrid(
        item=item[counts],
        student=student[counts],
        factor=_codes(terms, factors)[columns["factor"]][counts],
        levels=levels,
        items=items,
        students=tuple(students),
        judges=tuple(judges),
        factors=tuple(factors),
        tasks=tuple(tasks),
        teachers=tuple(teachers),
        designs=designs,
        scale=np.array(scale),
        checked=checked if np.isfinite(checked).any() else None,
        sample=columns["sample"][counts] if reader.sampled else None,
        samples={name: times for name, times in reader.samples.items() if times > 1},
        planned=planned,
        looks=reader.looks,
    )


def _codes(terms: Sequence[str], names: Sequence[str]) -> Codes:
    """(number of terms + 1,): by the code of the reader's name, its place in ``names``, -1 for the others."""
    place = {name: at for at, name in enumerate(names)}
    return np.array([*(place.get(term, -1) for term in terms), -1], np.int32)


def _distinct(reader: RunReader, column: str, view: str) -> list[str]:
    rows = reader.rows(f"SELECT DISTINCT {column}::VARCHAR AS name FROM {view} ORDER BY name")  # noqa: S608
    return [name for (name,) in rows]


def grid_with_removed(reader: RunReader) -> ScoreGrid:
    """The scores that count, and those of removed students and tasks, where there are any."""
    grid = score_grid(reader)
    on_record = {*_distinct(reader, "task", "planned"), *_distinct(reader, "student", "response")}
    return grid if on_record <= {*grid.tasks, *grid.students} else _read_grid(reader, removed=True)


def is_planned_task(planned: Planned | None, task: str) -> bool:
    return planned is None or task in planned.tasks


def _students(reader: RunReader, *, removed: bool) -> list[str]:
    """Those with an answer on record, and those that are planned."""
    found = _distinct(reader, "student", "response")
    needed = reader.planned.students if reader.planned is not None else None
    if needed is None:
        return found
    return sorted({*found, *needed} if removed else needed)


_GIVEN = """
SELECT task::VARCHAR, factor::VARCHAR, judge::VARCHAR, value
FROM (SELECT task, factor, judge, CASE WHEN judge <> ? THEN value END AS value FROM coded) GROUP BY ALL
"""
"""Who gave which values in which factors of a task; of checks without these: there may be a million."""

_JUDGED = """
SELECT task::VARCHAR, judge::VARCHAR, factors::VARCHAR[]
FROM (SELECT DISTINCT task, judge, factors FROM coded_judgments)
"""


def _design(
    planned: Planned | None,
    task: str,
    judged: Iterable[tuple[str, str, Sequence[str | None]]],
    given: Iterable[tuple[str, str, str, float | None]],
) -> TaskDesign:
    """``judged`` and ``given`` are rows of `_JUDGED` and `_GIVEN`."""
    rows = [(judge, factors) for of, judge, factors in judged if of == task]
    judges = {judge for judge, _ in rows}
    factors = {factor for _, found in rows for factor in found or () if factor is not None}
    plan = planned.tasks.get(task, _ANYBODY) if planned is not None else _ANYBODY
    if plan.compares:
        factors |= plan.checks or frozenset()
    else:
        judges |= plan.judges or frozenset()
        factors |= plan.factors or frozenset()
    if plan.factors is not None:
        factors &= plan.factors
    recorded = {factor for judge, found in rows if judge == CHECK for factor in found or ()}
    checks = factors & (recorded if plan.checks is None else plan.checks)
    values = {factor: set[float]() for factor in factors - checks}
    for of, factor, _, value in given:
        if of == task and factor in values and value is not None:
            values[factor].add(value)
    return TaskDesign(
        frozenset(judges - {EXACT_MATCH, CHECK}),
        frozenset(factors),
        frozenset(checks),
        {name: plan.scales.get(name) or _scale_of(sorted(found)) for name, found in sorted(values.items())},
        normalize_weights({factor: plan.weights.get(factor, 1.0) for factor in sorted(factors)})
        if checks or plan.weights
        else {},
    )


def normalize_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """By factor, 1 on average: a task's scores count no more for its weights."""
    total = sum(weights.values()) or 1.0
    return {factor: weight * len(weights) / total for factor, weight in weights.items()}


def _scale_of(values: Sequence[float]) -> RubricScale:
    """The scale of a factor that nobody planned: the default one, or else the values that judges gave."""
    if set(values) <= set(HIGH_MEDIUM_LOW.values):
        return HIGH_MEDIUM_LOW
    return RubricScale(tuple(f"{value:g}" for value in values), tuple(values))


def _scale(given: Set[float], designs: Sequence[TaskDesign]) -> list[float]:
    """The values of all levels, rising: those on record and, unless they are too many, all others."""
    declared = {value for design in designs for scale in design.scales.values() for value in scale.values}
    every = given | (declared or set(HIGH_MEDIUM_LOW.values))
    return sorted(every if len(every) <= _MOST_LEVELS or not given else given)


_ANYBODY = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def _items(
    reader: RunReader, terms: Sequence[str], tasks: Sequence[str], teachers: Sequence[str]
) -> tuple[GridItems, Codes]:
    """The datapoints in order of their ids, and the number of each by its place in the reader's table."""
    columns = reader.columns(
        "SELECT place, id, enum_code(task)::INTEGER AS task, enum_code(teacher)::INTEGER AS teacher "
        "FROM planned WHERE NOT failed ORDER BY id"
    )
    task = _codes(terms, tasks)[columns["task"]]
    teacher = _codes(terms, teachers)[columns["teacher"]]
    counts = task >= 0
    [(most,)] = reader.rows("SELECT coalesce(max(rowid), -1) FROM datapoint")
    number_of = np.full(most + 1, -1, np.int32)
    number_of[columns["place"][counts]] = np.arange(int(counts.sum()), dtype=np.int32)
    sampled: defaultdict[str, list[int]] = defaultdict(list)
    for attribute, found in reader.rows(_ATTRIBUTES):
        numbers = number_of[np.asarray(found, np.int64)]
        sampled[attribute].extend(numbers[numbers >= 0].tolist())
    attributes = {
        name: np.sort(np.array(found, np.int32)) for name, found in sorted(sampled.items()) if found
    }
    ids = columns["id"][counts].tolist()
    alike = reader.clusters_of(ids)
    own = None if alike is None else consecutive(alike)
    return GridItems(ids, task[counts], teacher[counts], attributes, own), number_of


_ATTRIBUTES = """
SELECT attribute, list(place) FROM (
    SELECT place, entry.key || '=' || entry.value AS attribute
    FROM (SELECT place, unnest(map_entries(attributes)) AS entry FROM planned WHERE NOT failed)
)
WHERE attribute IS NOT NULL GROUP BY attribute
"""


def _grid_sql(judges: Sequence[str], levels: int, *, several: bool) -> str:
    """``?``: the values of all ``levels``; ``several``: there are several answers to an item."""
    sample = ", sample" if several else ""
    kind = "TINYINT" if levels <= _MOST_CODES else "INTEGER"
    columns = "".join(
        f", coalesce(max(CASE WHEN judge = {_quoted(judge)} THEN level END), {UNSCORED})::{kind} "
        f"AS judge_{place}"
        for place, judge in enumerate(judges)
    )
    return f"""
        SELECT item{sample}, enum_code(student)::INTEGER AS student,
               enum_code(factor)::INTEGER AS factor{columns},
               max(CASE WHEN judge = '{CHECK}' THEN value END) AS checked
        FROM (SELECT *, list_position(?::DOUBLE[], value) - 1 AS level FROM coded) one
        WHERE value IS NOT NULL GROUP BY item, one.student, one.factor{sample}
    """  # noqa: S608


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
