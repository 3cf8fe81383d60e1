"""A run's scores as one matrix: a row for each (datapoint, student, factor), a column for each judge.

DuckDB groups the records; what is left is a few bytes for each score, so that a million judgments are tens of
megabytes, and every measure is a sum over columns of numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.planned_names import Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import EXACT_MATCH

Codes: TypeAlias = NDArray[np.integer[Any]]
"""Places in a list of names, or numbers of datapoints."""

# In place of a level where a judge gave none.
UNSCORED = -1
LEVEL_NAMES = ("Low", "Medium", "High")
LevelCounts: TypeAlias = Mapping[str, int]
"""Scores at each level, by its name."""


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

    def alike_of(self, some: NDArray[np.bool_]) -> Codes | None:
        """The clusters of some, None where no two are alike."""
        return None if self.alike is None else self.alike[some]


class TaskDesign(NamedTuple):
    """Whose scores a task is to have, by which factors: those planned, and those on record."""

    judges: Set[str]
    factors: Set[str]


class ScoreGrid(NamedTuple):
    """``item``, ``student`` and ``factor`` are (C,), ``levels`` is (C, J): 0 Low, 1 Medium, 2 High, or
    `UNSCORED`. Students, judges, factors, tasks and teachers are named in order of their names. Students and
    tasks that the configuration has lost are left out."""

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

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(C, J): where there is a score."""
        return self.levels >= 0

    @property
    def task(self) -> Codes:
        """(C,): the task of each row."""
        return self.items.task[self.item]

    @property
    def cluster(self) -> Codes:
        """(C,): the cluster of each row."""
        return self.items.cluster[self.item]

    def kept(self, items: NDArray[np.bool_]) -> ScoreGrid:
        """Some of the datapoints, (I,), with their rows; names stay."""
        rows = items[self.item]
        number = np.cumsum(items) - 1
        return self._replace(
            item=number[self.item[rows]],
            student=self.student[rows],
            factor=self.factor[rows],
            levels=self.levels[rows],
            items=GridItems(
                [item for item, stays in zip(self.items.ids, items, strict=True) if stays],
                self.items.task[items],
                self.items.teacher[items],
                {value: number[of[items[of]]] for value, of in self.items.attributes.items()},
                None if self.items.alike is None else _renumbered(self.items.alike[items]),
            ),
        )

    def judged_by(self, judges: Sequence[str]) -> ScoreGrid:
        """The scores of some judges, in their order."""
        places = [self.judges.index(judge) for judge in judges]
        designs = tuple(design._replace(judges=design.judges & set(judges)) for design in self.designs)
        return self._replace(levels=self.levels[:, places], judges=tuple(judges), designs=designs)


def level_counts(levels: NDArray[np.int8]) -> LevelCounts:
    """How often each level is given; levels below 0 are none."""
    counts = np.bincount(levels[levels >= 0], minlength=len(LEVEL_NAMES))
    return dict(zip(LEVEL_NAMES, counts.tolist(), strict=True))


def levels_by_judge(grid: ScoreGrid) -> dict[str, LevelCounts]:
    return {judge: level_counts(given) for judge, given in zip(grid.judges, grid.levels.T, strict=True)}


def _renumbered(alike: Codes) -> Codes:
    return np.unique(alike, return_inverse=True)[1]


def score_grid(reader: RunReader) -> ScoreGrid:
    """The scores that count in a run."""
    planned = reader.planned
    terms = [term for (term,) in reader.rows("SELECT term FROM terms ORDER BY rowid")]
    tasks = [name for name in _distinct(reader, "task", "planned") if _has_task(planned, name)]
    students = _students(reader)
    judges = [name for name in _distinct(reader, "judge", "coded") if name != EXACT_MATCH]
    designs = tuple(_design(reader, task) for task in tasks)
    judges = sorted({*judges, *(judge for design in designs for judge in design.judges)})
    factors = sorted({*_distinct(reader, "factor", "coded"), *(f for d in designs for f in d.factors)})
    teachers = _distinct(reader, "teacher", "planned")
    places = _Places(terms)
    items, number_of = _items(reader, places, tasks, teachers)
    columns = reader.columns(_grid_sql(judges))
    item = number_of[columns["item"]]
    student = places.codes(students)[columns["student"]]
    counts = (item >= 0) & (student >= 0)
    levels = np.empty((int(counts.sum()), len(judges)), np.int8)
    for place in range(len(judges)):
        levels[:, place] = columns[f"judge_{place}"][counts]
    return ScoreGrid(
        item=item[counts],
        student=student[counts],
        factor=places.codes(factors)[columns["factor"]][counts],
        levels=levels,
        items=items,
        students=tuple(students),
        judges=tuple(judges),
        factors=tuple(factors),
        tasks=tuple(tasks),
        teachers=tuple(teachers),
        designs=designs,
    )


class _Places:
    """From the codes of the reader's names to places in a list of them."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = {term: code for code, term in enumerate(terms)}

    def codes(self, names: Sequence[str]) -> Codes:
        """(number of terms,): the place of each in ``names``, -1 for the others."""
        codes = np.full(len(self._terms) + 1, -1, np.int32)
        for place, name in enumerate(names):
            if (code := self._terms.get(name)) is not None:
                codes[code] = place
        return codes


def _distinct(reader: RunReader, column: str, view: str) -> list[str]:
    rows = reader.rows(f"SELECT DISTINCT {column}::VARCHAR AS name FROM {view} ORDER BY name")  # noqa: S608
    return [name for (name,) in rows]


def _has_task(planned: Planned | None, task: str) -> bool:
    return planned is None or task in planned.tasks


def _students(reader: RunReader) -> list[str]:
    """Those with an answer on record, and those that are planned."""
    rows = reader.rows("SELECT DISTINCT student::VARCHAR FROM response")
    found = {name for (name,) in rows}
    needed = reader.planned.students if reader.planned is not None else None
    return sorted(found if needed is None else needed)


def _design(reader: RunReader, task: str) -> TaskDesign:
    rows = reader.rows(
        "SELECT judge::VARCHAR, list_distinct(flatten(list(factors)))::VARCHAR[] FROM coded_judgments "
        "WHERE task = ? GROUP BY ALL",
        [task],
    )
    judges = {judge for judge, _ in rows}
    factors = {factor for _, found in rows for factor in found or () if factor is not None}
    plan = reader.planned.tasks[task] if reader.planned is not None else _ANYBODY
    judges |= (plan.judges or frozenset()) - {EXACT_MATCH}
    factors |= plan.factors or frozenset()
    if plan.factors is not None:
        factors &= plan.factors
    return TaskDesign(frozenset(judges), frozenset(factors))


_ANYBODY = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def _items(
    reader: RunReader, places: _Places, tasks: Sequence[str], teachers: Sequence[str]
) -> tuple[GridItems, Codes]:
    """The datapoints in order of their ids, and the number of each by its place in the reader's table."""
    columns = reader.columns(
        "SELECT place, id, enum_code(task)::INTEGER AS task, enum_code(teacher)::INTEGER AS teacher "
        "FROM planned WHERE NOT failed ORDER BY id"
    )
    task = places.codes(tasks)[columns["task"]]
    teacher = places.codes(teachers)[columns["teacher"]]
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
    own = None if alike is None else _renumbered(alike)
    return GridItems(ids, task[counts], teacher[counts], attributes, own), number_of


_ATTRIBUTES = """
SELECT attribute, list(place) FROM (
    SELECT place, entry.key || '=' || entry.value AS attribute
    FROM (SELECT place, unnest(map_entries(attributes)) AS entry FROM planned WHERE NOT failed)
)
WHERE attribute IS NOT NULL GROUP BY attribute
"""


def _grid_sql(judges: Sequence[str]) -> str:
    levels = "".join(
        f", coalesce(max(CASE WHEN judge = {_quoted(judge)} THEN level END), {UNSCORED})::TINYINT "
        f"AS judge_{place}"
        for place, judge in enumerate(judges)
    )
    return f"""
        SELECT item, enum_code(student)::INTEGER AS student, enum_code(factor)::INTEGER AS factor{levels}
        FROM coded WHERE level IS NOT NULL AND sample = 0 GROUP BY item, coded.student, coded.factor
    """  # noqa: S608


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
