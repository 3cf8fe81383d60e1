"""A run's scores as one matrix: a row for each (item, student, factor), a column for each judge, and one for
checks.

DuckDB groups the records, so that a million judgments are tens of megabytes here, and every measure is a
sum over columns of numbers.
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
from coeval.analysis.readers.reader import quote_text
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import CHECK, EXACT_MATCH
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale

Codes: TypeAlias = NDArray[np.integer[Any]]
"""Places in a list of names, or numbers of datapoints."""

# In place of a level where a judge gave none.
UNSCORED = -1
LevelCounts: TypeAlias = Mapping[str, int]
"""Scores at each level, by its name, scale by scale and from worst to best."""

# The highest codes that fit one byte, and two.
_MOST_CODES, _MOST_LONG_CODES = 127, 32_767
# Longer scales keep only the levels that judges gave: a table of two judges has this many cells squared.
_MOST_LEVELS = 21


class GridItems(NamedTuple):
    """The good items, (I,): ``ids``, with the task and teacher of each. ``attributes``: by
    ``attribute=value``, the items that sampled it. ``alike``: a number below I that items share whose
    prompts nearly repeat each other; None: no two do."""

    ids: Sequence[str]
    task: Codes
    teacher: Codes
    attributes: Mapping[str, Codes]
    alike: Codes | None = None

    @property
    def cluster(self) -> Codes:
        """Return the cluster of each item, (I,); items of one cluster are not independent evidence."""
        return np.arange(len(self.ids)) if self.alike is None else self.alike


class TaskDesign(NamedTuple):
    """The judges and factors of a task: those planned, and those on record. ``checks`` are the factors that a
    check scores, ``scales`` those of the others. ``weights`` are by factor, 1 on average; empty in tasks
    without checks and weights, where all scores count equally."""

    judges: Set[str]
    factors: Set[str]
    checks: Set[str] = frozenset()
    scales: Mapping[str, RubricScale] = {}
    weights: Mapping[str, float] = {}

    @property
    def judged_factors(self) -> Set[str]:
        return self.factors - self.checks

    @property
    def score_count(self) -> int:
        """Return how many scores a complete answer has."""
        return len(self.judges) * len(self.judged_factors) + len(self.factors & self.checks)

    def count_scores(self, factor: str) -> int:
        """Count the scores that a complete answer has in one factor."""
        return int(factor in self.factors) * (1 if factor in self.checks else len(self.judges))


class RowSums(NamedTuple):
    """Sums over each row's scores, (R,): ``total``, summed weights (``share``) and number (``units``)."""

    total: Floats
    share: Floats
    units: NDArray[np.int64]

    @property
    def mean(self) -> Floats:
        """Return the mean score of each row, 0 to 1; NaN where a row has no score."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.share, np.float64)


THREE_LEVELS: Floats = np.array(HIGH_MEDIUM_LOW.values)


class ScoreGrid(NamedTuple):
    """All scores of a run, or a selection of them.

    ``item``, ``student`` and ``factor`` are (C,); ``levels`` is (C, J): indices into ``scale``, the values
    (0 to 1) of all levels in rising order, or `UNSCORED`. ``checked`` (C,) are the scores of checks, NaN
    where a row has none; None: the run has none. Names are sorted; students and tasks that the
    configuration has lost are left out. ``sample`` (C,) distinguishes several answers of a student to an
    item, and ``samples`` says how many each student gave; None and empty where nobody gave more than one.
    ``weight`` (C,) is how often an item counts in a mean over items, by the metric of a benchmark; None:
    once.
    """

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
    def student_task_assignments(self) -> NDArray[np.bool_]:
        """Return (students, tasks): whether a student is to do a task, or has a score in it all the same."""
        if self.planned is None or not self.planned.own_tasks:
            return np.ones((len(self.students), len(self.tasks)), bool)
        assigned = [[self.planned.is_assigned(name, task) for task in self.tasks] for name in self.students]
        is_assigned = np.array(assigned, bool).reshape(len(self.students), len(self.tasks))
        is_assigned[self.student, self.task] = True
        return is_assigned

    @property
    def answers_per_item(self) -> Codes:
        """Return how many answers each student gives to an item, (students,)."""
        return np.array([self.samples.get(name, 1) for name in self.students], np.int64)

    @property
    def scores_due(self) -> NDArray[np.int64]:
        """Return how many scores an answer to each item is to have, (I,)."""
        return np.array([design.score_count for design in self.designs], np.int64)[self.items.task]

    @property
    def answer(self) -> Codes:
        """Return a number for each row's answer, (C,)."""
        numbers = self.item.astype(np.int64) * len(self.students) + self.student
        return (
            numbers
            if self.sample is None
            else numbers * int(self.answers_per_item.max(initial=1)) + self.sample
        )

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Return where a judge gave a score, (C, J)."""
        return self.levels >= 0

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Return which rows have any score, (C,)."""
        judged = np.asarray(self.valid.any(axis=1), bool)
        return judged if self.checked is None else judged | np.isfinite(self.checked)

    @property
    def judge_scores(self) -> ScoreGrid:
        """Return the grid without the scores of checks; none of those count as missing."""
        if self.checked is None:
            return self
        return self.select_rows(np.asarray(self.valid.any(axis=1), bool))._replace(checked=None)

    def select_rows(self, rows: NDArray[np.bool_] | Codes) -> ScoreGrid:
        """Select some of the rows, (C,); items and names stay."""
        names = ("item", "student", "factor", "levels", "checked", "sample", "weight")
        columns = {name: column for name in names if (column := getattr(self, name)) is not None}
        return self._replace(**{name: column[rows] for name, column in columns.items()})

    @property
    def values(self) -> Floats:
        """Return the value of each level, (K + 1,); index `UNSCORED` holds 0."""
        return np.append(self.scale, 0.0)

    @property
    def distinct_scales(self) -> tuple[RubricScale, ...]:
        """Return the scales of all judged factors, High, Medium and Low first."""
        scales = {design.scales[name]: None for design in self.designs for name in sorted(design.scales)}
        return tuple(sorted(scales, key=lambda scale: scale is not HIGH_MEDIUM_LOW)) or (HIGH_MEDIUM_LOW,)

    @property
    def has_default_scale(self) -> bool:
        """Check whether all judged factors are on the default scale."""
        return self.distinct_scales == (HIGH_MEDIUM_LOW,)

    def sum_scores(self, *, equal_weights: bool = False, complete_only: bool = True) -> RowSums:
        """Sum the scores of each row.

        A score's share is 1; in tasks with weights or checks, unless ``equal_weights``, it is the factor's
        weight over the number of its scores, so that a factor counts once by the mean over its judges. There,
        ``complete_only`` skips answers that lack a factor.
        """
        total, units, values = np.zeros(len(self.item)), np.zeros(len(self.item), np.int64), self.values
        for column in self.levels.T:
            total += values[column]
            units += column >= 0
        if self.checked is not None:
            has_check = np.isfinite(self.checked)
            total += np.where(has_check, self.checked, 0.0)
            units += has_check
        weights = None if equal_weights else self._weights_by_task_and_factor
        if weights is None:
            return RowSums(total, units.astype(np.float64), units)
        weight = weights[self.task, self.factor]
        share = np.where(np.isfinite(weight), weight / np.maximum(units, 1), 1.0)
        if complete_only:
            units = units * (np.isnan(weight) | self._is_complete(units > 0))
        return RowSums(total * share * (units > 0), np.asarray(units * share, np.float64), units)

    def _is_complete(self, has_score: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Check for each row, (C,), if its answer is scored in all factors; ``has_score``: which rows are."""
        answer, required = self.answer, np.array([len(design.factors) for design in self.designs])
        scored_factors = np.bincount(answer[has_score], minlength=int(answer.max(initial=0)) + 1)
        return np.asarray(scored_factors[answer] == required[self.task], bool)

    @property
    def is_weighted(self) -> bool:
        """Check whether any task has weights or checks, so that scores count unequally."""
        return any(design.weights for design in self.designs)

    @property
    def _weights_by_task_and_factor(self) -> Floats | None:
        """Return (tasks, factors) weights, NaN for a task where scores count equally; None for such a run."""
        if not self.is_weighted:
            return None
        return np.array(
            [[design.weights.get(name, np.nan) for name in self.factors] for design in self.designs]
        )

    @property
    def task(self) -> Codes:
        """Return the task of each row, (C,)."""
        return self.items.task[self.item]

    @property
    def cluster(self) -> Codes:
        """Return the cluster of each row, (C,)."""
        return self.items.cluster[self.item]

    def select_items(self, items: NDArray[np.bool_]) -> ScoreGrid:
        """Select some of the items, (I,), with their rows; names stay."""
        rows = items[self.item]
        number = np.cumsum(items) - 1
        return self.select_rows(rows)._replace(
            item=number[self.item[rows]],
            items=GridItems(
                [item for item, stays in zip(self.items.ids, items, strict=True) if stays],
                self.items.task[items],
                self.items.teacher[items],
                {value: number[rows[items[rows]]] for value, rows in self.items.attributes.items()},
                None if self.items.alike is None else unique_codes(self.items.alike[items])[1],
            ),
        )

    def select_judges(self, judges: Sequence[str]) -> ScoreGrid:
        """Select the scores of some judges, in this order, and those of checks."""
        places = [self.judges.index(judge) for judge in judges]
        designs = tuple(design._replace(judges=design.judges & set(judges)) for design in self.designs)
        return self._replace(levels=self.levels[:, places], judges=tuple(judges), designs=designs)

    def select_factors(self, factors: Set[str]) -> ScoreGrid:
        """Select the scores of some factors; names stay."""
        rows = np.isin(self.factor, [at for at, name in enumerate(self.factors) if name in factors])
        designs = tuple(design._replace(factors=design.factors & factors) for design in self.designs)
        return self.select_rows(rows)._replace(designs=designs)

    def select_students(self, students: Sequence[str]) -> ScoreGrid:
        """Select the scores of some students, in this order."""
        number = np.full(len(self.students), -1, self.student.dtype)
        number[[self.students.index(name) for name in students]] = np.arange(len(students))
        kept = self.select_rows(np.asarray(number[self.student] >= 0, bool))
        samples = {name: count for name, count in self.samples.items() if name in students}
        return kept._replace(student=number[kept.student], students=tuple(students), samples=samples)


class LevelNames(NamedTuple):
    """Names of all levels, scale by scale, from worst to best; ``positions`` (tasks, factors, K) index them
    by a judge's level. Where scales share a word, the name adds the scale."""

    names: tuple[str, ...]
    positions: NDArray[np.int64]

    def count_levels(self, codes: NDArray[np.int64]) -> LevelCounts:
        numbers = np.bincount(codes, minlength=len(self.names)).tolist()
        return dict(zip(self.names, numbers, strict=True))


def grid_level_names(grid: ScoreGrid) -> LevelNames:
    """Name the levels of all scales of a grid, and map each task, factor and level index to its name."""
    scales = grid.distinct_scales
    words = Counter(level for scale in scales for level in scale.levels)
    names = [
        level if words[level] == 1 else f"{level} ({scale.levels_text()})"
        for scale in scales
        for level in scale.levels
    ]
    first = dict(zip(scales, np.cumsum([0, *(len(scale.levels) for scale in scales)]).tolist(), strict=False))
    codes_by_scale = {
        scale: first[scale]
        + np.array([scale.levels.index(scale.nearest_level(value)) for value in grid.scale.tolist()])
        for scale in scales
    }
    codes = np.zeros((len(grid.designs), len(grid.factors), len(grid.scale)), np.int64)
    for task, design in enumerate(grid.designs):
        for factor, name in enumerate(grid.factors):
            codes[task, factor] = codes_by_scale[design.scales.get(name, scales[0])]
    return LevelNames(tuple(names), codes)


def _level_names_and_codes(grid: ScoreGrid) -> tuple[LevelNames, NDArray[np.int64]]:
    """Return the level names, and (C, J) the index of each score's level, below 0 where there is none."""
    names = grid_level_names(grid)
    if len(names.names) == len(grid.scale):  # one scale
        return names, grid.levels.astype(np.int64)
    codes = names.positions[grid.task[:, None], grid.factor[:, None], grid.levels]
    return names, np.where(grid.valid, codes, UNSCORED)


def count_levels_by_judge(grid: ScoreGrid) -> dict[str, LevelCounts]:
    names, codes = _level_names_and_codes(grid)
    return {
        judge: names.count_levels(column[column >= 0])
        for judge, column in zip(grid.judges, codes.T, strict=True)
    }


def count_levels_by_student(grid: ScoreGrid) -> list[LevelCounts]:
    """Count each student's scores at each level, in the order of the grid's students."""
    names, codes = _level_names_and_codes(grid)
    columns = [codes[grid.student == student_code] for student_code in range(len(grid.students))]
    return [names.count_levels(column[column >= 0]) for column in columns]


_SPARSE = 4  # places for each code: counting a million takes as long as np.unique at 5 (timeit)


def unique_codes(codes: Codes) -> tuple[Codes, Codes]:
    """Return the distinct codes in order, and each code's place among them: counted, not sorted, if dense."""
    places = int(codes.max(initial=-1)) + 1
    if places > _SPARSE * len(codes):
        return np.unique(codes, return_inverse=True)
    present = np.zeros(places, bool)
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]


def unscored_levels(shape: tuple[int, int], levels: int) -> NDArray[np.int8]:
    """Return an array full of `UNSCORED`, in the smallest integers that hold so many levels."""
    kind: Any = np.int8 if levels <= _MOST_CODES else np.int16 if levels <= _MOST_LONG_CODES else np.int32
    return np.full(shape, UNSCORED, kind)


# By reader: a page and its items need the same grid.
_GRIDS: WeakKeyDictionary[RunReader, ScoreGrid] = WeakKeyDictionary()


def read_score_grid(reader: RunReader) -> ScoreGrid:
    """Return a run's score grid, read once per reader."""
    if reader not in _GRIDS:
        _GRIDS[reader] = _read_grid(reader, include_removed=False)
    return _GRIDS[reader]


def _read_grid(reader: RunReader, *, include_removed: bool) -> ScoreGrid:
    """Read the scores that count; with ``include_removed`` also of students and tasks no longer planned."""
    planned = reader.planned
    terms = [term for (term,) in reader.rows("SELECT term FROM terms ORDER BY rowid")]
    tasks = [
        name
        for name in _distinct_names(reader, "task", "planned")
        if include_removed or is_planned_task(planned, name)
    ]
    students, values_given = (
        _student_names(reader, include_removed=include_removed),
        reader.rows(_VALUES_GIVEN, [CHECK]),
    )
    judged = reader.rows(_JUDGED)
    designs = tuple(_combine_task_design(reader.planned, task, judged, values_given) for task in tasks)
    judges = sorted(
        {
            *(judge for _, _, judge, _ in values_given if judge != CHECK),
            *(j for d in designs for j in d.judges),
        }
    )
    factors = sorted(
        {*(factor for _, factor, _, _ in values_given), *(f for d in designs for f in d.factors)}
    )
    teachers = _distinct_names(reader, "teacher", "planned")
    items, number_of = _read_items_and_codes_by_place(reader, terms, tasks, teachers)
    scale = _list_level_values({value for *_, value in values_given if value is not None}, designs)
    columns = reader.columns(_grid_sql(judges, len(scale), has_samples=reader.has_samples), [scale])
    item = number_of[columns["item"]]
    student = _code_by_term(terms, students)[columns["student"]]
    kept = (item >= 0) & (student >= 0)
    levels = unscored_levels((int(kept.sum()), len(judges)), len(scale))
    for column in range(len(judges)):
        levels[:, column] = columns[f"judge_{column}"][kept]
    checked = np.ma.filled(columns["checked"][kept].astype(np.float64), np.nan)
    return ScoreGrid(
        item=item[kept],
        student=student[kept],
        factor=_code_by_term(terms, factors)[columns["factor"]][kept],
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
        sample=columns["sample"][kept] if reader.has_samples else None,
        samples={name: times for name, times in reader.samples_by_student.items() if times > 1},
        planned=planned,
        looks=reader.looks,
    )


def _code_by_term(terms: Sequence[str], names: Sequence[str]) -> Codes:
    """Return (number of terms + 1,): by the reader's code of a name, its index in ``names``, or -1."""
    codes = {name: at for at, name in enumerate(names)}
    return np.array([*(codes.get(term, -1) for term in terms), -1], np.int32)


def _distinct_names(reader: RunReader, column: str, view: str) -> list[str]:
    rows = reader.rows(f"SELECT DISTINCT {column}::VARCHAR AS name FROM {view} ORDER BY name")  # noqa: S608
    return [name for (name,) in rows]


def read_grid_with_removed(reader: RunReader) -> ScoreGrid:
    """Return the grid with the scores of removed students and tasks added, if there are any."""
    grid = read_score_grid(reader)
    on_record = {*_distinct_names(reader, "task", "planned"), *_distinct_names(reader, "student", "response")}
    return grid if on_record <= {*grid.tasks, *grid.students} else _read_grid(reader, include_removed=True)


def is_planned_task(planned: Planned | None, task: str) -> bool:
    return planned is None or task in planned.tasks


def _student_names(reader: RunReader, *, include_removed: bool) -> list[str]:
    """Name the students with an answer on record, and those planned."""
    recorded = _distinct_names(reader, "student", "response")
    expected = reader.planned.students if reader.planned is not None else None
    if expected is None:
        return recorded
    return sorted({*recorded, *expected} if include_removed else expected)


_VALUES_GIVEN = """
SELECT task::VARCHAR, factor::VARCHAR, judge::VARCHAR, value
FROM (SELECT task, factor, judge, CASE WHEN judge <> ? THEN value END AS value FROM coded) GROUP BY ALL
"""
"""The values that each judge gave by task and factor; none for checks, which may have a million."""

_JUDGED = """
SELECT task::VARCHAR, judge::VARCHAR, factors::VARCHAR[]
FROM (SELECT DISTINCT task, judge, factors FROM coded_judgments)
"""


def _combine_task_design(
    planned: Planned | None,
    task: str,
    judged_rows: Iterable[tuple[str, str, Sequence[str | None]]],
    value_rows: Iterable[tuple[str, str, str, float | None]],
) -> TaskDesign:
    """Combine what is planned for a task with what is recorded: rows of `_JUDGED` and `_VALUES_GIVEN`."""
    rows = [(judge, factors) for row_task, judge, factors in judged_rows if row_task == task]
    judges = {judge for judge, _ in rows}
    factors = {factor for _, row_factors in rows for factor in row_factors or () if factor is not None}
    plan = planned.tasks.get(task, _ANYBODY) if planned is not None else _ANYBODY
    if plan.compares:
        factors |= plan.checks or frozenset()
    else:
        judges |= plan.judges or frozenset()
        factors |= plan.factors or frozenset()
    if plan.factors is not None:
        factors &= plan.factors
    recorded = {factor for judge, row_factors in rows if judge == CHECK for factor in row_factors or ()}
    checks = factors & (recorded if plan.checks is None else plan.checks)
    values = {factor: set[float]() for factor in factors - checks}
    for row_task, factor, _, value in value_rows:
        if row_task == task and factor in values and value is not None:
            values[factor].add(value)
    return TaskDesign(
        frozenset(judges - {EXACT_MATCH, CHECK}),
        frozenset(factors),
        frozenset(checks),
        {
            name: plan.scales.get(name) or _unplanned_scale(sorted(row_factors))
            for name, row_factors in sorted(values.items())
        },
        weights_of_mean_one({factor: plan.weights.get(factor, 1.0) for factor in sorted(factors)})
        if checks or plan.weights
        else {},
    )


def weights_of_mean_one(weights: Mapping[str, float]) -> dict[str, float]:
    """Scale weights to 1 on average, so that a task's scores count the same with weights as without."""
    total = sum(weights.values()) or 1.0
    return {factor: weight * len(weights) / total for factor, weight in weights.items()}


def _unplanned_scale(values: Sequence[float]) -> RubricScale:
    """Return the scale of a factor that nobody planned: the default one, else the values that judges gave."""
    if set(values) <= set(HIGH_MEDIUM_LOW.values):
        return HIGH_MEDIUM_LOW
    return RubricScale(tuple(f"{value:g}" for value in values), tuple(values))


def _list_level_values(recorded: Set[float], designs: Sequence[TaskDesign]) -> list[float]:
    """Return all levels' values, rising: those recorded and, unless they are too many, those declared."""
    declared = {value for design in designs for scale in design.scales.values() for value in scale.values}
    all_values = recorded | (declared or set(HIGH_MEDIUM_LOW.values))
    return sorted(all_values if len(all_values) <= _MOST_LEVELS or not recorded else recorded)


_ANYBODY = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def _read_items_and_codes_by_place(
    reader: RunReader, terms: Sequence[str], tasks: Sequence[str], teachers: Sequence[str]
) -> tuple[GridItems, Codes]:
    """Read the items in order of their ids, and the number of each by its place in the reader's table."""
    columns = reader.columns(
        "SELECT place, id, enum_code(task)::INTEGER AS task, enum_code(teacher)::INTEGER AS teacher "
        "FROM planned WHERE NOT failed ORDER BY id"
    )
    task = _code_by_term(terms, tasks)[columns["task"]]
    teacher = _code_by_term(terms, teachers)[columns["teacher"]]
    kept = task >= 0
    [(most,)] = reader.rows("SELECT coalesce(max(rowid), -1) FROM datapoint")
    number_of = np.full(most + 1, -1, np.int32)
    number_of[columns["place"][kept]] = np.arange(int(kept.sum()), dtype=np.int32)
    sampled: defaultdict[str, list[int]] = defaultdict(list)
    for attribute, places in reader.rows(_ATTRIBUTES):
        numbers = number_of[np.asarray(places, np.int64)]
        sampled[attribute].extend(numbers[numbers >= 0].tolist())
    attributes = {
        name: np.sort(np.array(places, np.int32)) for name, places in sorted(sampled.items()) if places
    }
    ids = columns["id"][kept].tolist()
    alike = reader.item_clusters(ids)
    clusters = None if alike is None else unique_codes(alike)[1]
    return GridItems(ids, task[kept], teacher[kept], attributes, clusters), number_of


_ATTRIBUTES = """
SELECT attribute, list(place) FROM (
    SELECT place, entry.key || '=' || entry.value AS attribute
    FROM (SELECT place, unnest(map_entries(attributes)) AS entry FROM planned WHERE NOT failed)
)
WHERE attribute IS NOT NULL GROUP BY attribute
"""


def _grid_sql(judges: Sequence[str], levels: int, *, has_samples: bool) -> str:
    """Build the query of the grid. Its parameter: all ``levels``' values; ``has_samples``: of each item."""
    sample = ", sample" if has_samples else ""
    kind = "TINYINT" if levels <= _MOST_CODES else "INTEGER"
    columns = "".join(
        f", coalesce(max(CASE WHEN judge = {quote_text(judge)} THEN level END), {UNSCORED})::{kind} "
        f"AS judge_{column}"
        for column, judge in enumerate(judges)
    )
    return f"""
        SELECT item{sample}, enum_code(student)::INTEGER AS student,
               enum_code(factor)::INTEGER AS factor{columns},
               max(CASE WHEN judge = '{CHECK}' THEN value END) AS checked
        FROM (SELECT *, list_position(?::DOUBLE[], value) - 1 AS level FROM coded) one
        WHERE value IS NOT NULL GROUP BY item, one.student, one.factor{sample}
    """  # noqa: S608
