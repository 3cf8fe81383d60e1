"""The quality of the benchmark itself: of each task, and of each of its datapoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import FILES, Entity, Measured, ShownAs
from coeval.analysis.measures.near_duplicates import Resemblance, surface_bias
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import item_scores
from coeval.analysis.readers.reader import Twin
from coeval.analysis.readers.run_reader import RunReader

_DIFFICULTY = "1 less the mean score over students; with labels alone, less the share of right labels"
_WITH_SCORE = "With a score of any student"


class TaskCoverage(Entity, frozen=True):
    """The items of a task: how much of the declared space they cover, and what they tell of students."""

    acr: Annotated[
        Measured, ShownAs("Declared values that occur, of all declared", "Values covered", "acr", "share")
    ]
    rar: Annotated[
        Measured,
        ShownAs("Of values that occur at most twice, those that occur at all", "Rare values", "rar", "share"),
    ]
    pairwise_acr: Annotated[
        Measured, ShownAs("Values covered, of pairs of two attributes' values", "Pairs covered", kind="share")
    ]
    pairwise_rar: Annotated[
        Measured, ShownAs("Rare values, of pairs likewise", kind="share", elsewhere=FILES)
    ]
    absent: Annotated[tuple[str, ...], ShownAs("Declared values that do not occur", elsewhere="strata")]
    surface_bias: Annotated[
        Measured,
        ShownAs("Mean Jaccard similarity of two prompts' 3-grams", "Prompts alike", "likeness", "share"),
    ]
    pairs: Annotated[int, ShownAs("Pairs of prompts that were held against each other", elsewhere=FILES)]
    difficulty: Annotated[Measured, ShownAs(_DIFFICULTY, "Difficulty", "difficulty", "points")]
    discrimination: Annotated[
        Measured, ShownAs("Mean item–rest correlation", "Discrimination", "discrimination", "coefficient")
    ]
    all_pass: Annotated[int, ShownAs("Items on which all have full marks", "All pass", kind="count")]
    all_fail: Annotated[int, ShownAs("Items on which nobody has any", "All fail", kind="count")]
    reversed: Annotated[int, ShownAs("Items whose discrimination is below 0", "Reversed", kind="count")]
    near_duplicates: Annotated[
        int, ShownAs("Items that nearly repeat an earlier one", "Near duplicates", kind="count")
    ]
    scored: Annotated[int, ShownAs(_WITH_SCORE, elsewhere="benchmark")]


class ItemMeasures(Entity, frozen=True):
    """One datapoint; ``students`` have a score of it."""

    task: Annotated[str, ShownAs("Its task", "Task", kind="text")]
    teacher: Annotated[str, ShownAs("Who wrote it", "Teacher", kind="text")]
    difficulty: Annotated[float | None, ShownAs(_DIFFICULTY, "Difficulty", "difficulty", "points")]
    discrimination: Annotated[
        float | None, ShownAs("Item–rest correlation", "Discrimination", "discrimination", "coefficient")
    ]
    students: Annotated[int, ShownAs("Who have a score of it", terminal="students")]
    all_pass: Annotated[bool, ShownAs("All have full marks", elsewhere="items-shown")]
    all_fail: Annotated[bool, ShownAs("Nobody has any", elsewhere="items-shown")]
    near_duplicate_of: Annotated[
        str | None, ShownAs("An earlier one that it nearly repeats", elsewhere="items-shown")
    ]

    @property
    def is_reversed(self) -> bool:
        """Whether better students do worse on it."""
        return self.discrimination is not None and self.discrimination < 0


class BenchmarkMeasures(NamedTuple):
    """By task, and by datapoint."""

    coverage: dict[str, TaskCoverage]
    items: dict[str, ItemMeasures]


# --- Coverage of the declared attributes

Space: TypeAlias = Mapping[str, Sequence[str]]
"""Attribute → its declared values."""

Stratum: TypeAlias = tuple[str, ...]
"""``attribute=value``, or two of them in order."""


class Coverage(NamedTuple):
    """Over strata, that is ``attribute=value``: ``acr`` = those declared that occur / all declared; ``rar`` =
    those declared that occur once or twice / those that occur at most twice (None where there are none). The
    same over pairs of values of two attributes. None where nothing is declared. ``absent``: the strata that
    do not occur."""

    acr: float | None
    rar: float | None
    pairwise_acr: float | None
    pairwise_rar: float | None
    absent: tuple[str, ...]


# RAR counts values that occur once or twice, as its definition does.
_RARE = 2


def attribute_coverage(declared: Space, sampled: Iterable[Sequence[str]]) -> Coverage:
    """``sampled``: the strata of each datapoint, ``attribute=value``; what is not declared does not count.
    Either may hold a ``=`` of its own: strata are compared as they stand, and never taken apart."""
    single: Counter[Stratum] = Counter()
    double: Counter[Stratum] = Counter()
    for strata_of in sampled:
        single.update((stratum,) for stratum in strata_of)
        double.update(combinations(sorted(strata_of), 2))
    strata: list[Stratum] = [
        (f"{name}={value}",) for name, values in declared.items() for value in dict.fromkeys(values)
    ]
    pairs: list[Stratum] = [
        (min(a, b), max(a, b))
        for one, other in combinations(sorted(declared), 2)
        for a in (f"{one}={value}" for value in dict.fromkeys(declared[one]))
        for b in (f"{other}={value}" for value in dict.fromkeys(declared[other]))
    ]
    absent = tuple(stratum[0] for stratum in strata if not single[stratum])
    return Coverage(*_ratios(strata, single), *_ratios(pairs, double), absent)


def _ratios(declared: Sequence[Stratum], found: Counter[Stratum]) -> tuple[float | None, float | None]:
    counts = [found[stratum] for stratum in declared]
    if not counts:
        return None, None
    scarce = [count for count in counts if count <= _RARE]
    rare = sum(1 for count in scarce if count)
    return sum(1 for count in counts if count) / len(counts), rare / len(scarce) if scarce else None


# --- Item difficulty and discrimination

# A correlation over fewer is no more than the sign of one difference.
FEWEST_STUDENTS = 3


class ItemQuality(NamedTuple):
    """Of each datapoint of a task, (I,): ``difficulty`` = 1 − the mean over students; ``discrimination``, the
    item–rest correlation; ``students`` who have a score; whether all of them have full marks, or none. NaN
    where a measure is not defined."""

    difficulty: Floats
    discrimination: Floats
    students: NDArray[np.int64]
    all_pass: NDArray[np.bool_]
    all_fail: NDArray[np.bool_]


def item_quality(scores: Floats) -> ItemQuality:
    """``scores``: (S, I) of one task, 0 to 1, NaN where a student has none.

    The discrimination of an item is Pearson's correlation, over students, of their score on it with their
    mean over the task's other items (the corrected item–total correlation; Henrysson 1963). It is not
    defined with fewer than `FEWEST_STUDENTS`, or where all scores are the same.
    """
    known = np.isfinite(scores)
    filled = np.where(known, scores, 0.0)
    students = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / students
        others = known.sum(axis=1, keepdims=True) - known
        rest = (filled.sum(axis=1, keepdims=True) - filled) / others
        found = _correlation(filled, np.where(others > 0, rest, 0.0), known & (others > 0))
    return ItemQuality(
        difficulty=1 - mean,
        discrimination=found,
        students=students,
        all_pass=(students > 0) & (np.where(known, scores, 1.0) >= 1).all(axis=0),
        all_fail=(students > 0) & (np.where(known, scores, 0.0) <= 0).all(axis=0),
    )


def _correlation(x: Floats, y: Floats, known: NDArray[np.bool_]) -> Floats:
    """Pearson's, down each column."""
    n = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dx = np.where(known, x - np.where(known, x, 0.0).sum(axis=0) / n, 0.0)
        dy = np.where(known, y - np.where(known, y, 0.0).sum(axis=0) / n, 0.0)
        spread = np.sqrt((dx**2).sum(axis=0) * (dy**2).sum(axis=0))
        found = (dx * dy).sum(axis=0) / spread
    return np.where((n >= FEWEST_STUDENTS) & (spread > 1e-12), found, np.nan)


def benchmark_measures(reader: RunReader, grid: ScoreGrid) -> BenchmarkMeasures:
    """What the items of a run are worth."""
    texts = reader.texts(grid.items.ids)
    prompts = [texts[item].prompt or "" if item in texts else "" for item in grid.items.ids]
    scores = _with_labels(reader, grid, item_scores(grid).mean)
    coverage: dict[str, TaskCoverage] = {}
    items: dict[str, ItemMeasures] = {}
    for place, task in enumerate(grid.tasks):
        mine = np.flatnonzero(grid.items.task == place)
        of_task = [prompts[item] for item in mine]
        twins = [reader.twins.get(grid.items.ids[item]) for item in mine.tolist()]
        quality = item_quality(scores[:, mine])
        covered = attribute_coverage(reader.target_attributes(task), _strata(grid, mine))
        coverage[task] = _task_coverage(covered, surface_bias(of_task), quality, twins)
        items |= _items(grid, mine, quality, twins)
    return BenchmarkMeasures(coverage, items)


def _with_labels(reader: RunReader, grid: ScoreGrid, judged: Floats) -> Floats:
    """The scores, (S, I), and in their place the share of right labels in tasks that have labels alone."""
    known = np.isfinite(judged)
    alone = [name for task, name in enumerate(grid.tasks) if not known[:, grid.items.task == task].any()]
    if not (found := reader.rows(_RIGHT, [alone, list(grid.students)])):
        return judged
    number = {item: at for at, item in enumerate(grid.items.ids)}
    place = {name: at for at, name in enumerate(grid.students)}
    filled = judged.copy()
    for item, student, right in found:
        filled[place[student], number[item]] = right
    return filled


_RIGHT = """
SELECT item, model, avg(match::INTEGER) FROM labels
WHERE list_contains(?::VARCHAR[], task) AND list_contains(?::VARCHAR[], model) GROUP BY ALL
"""


def _strata(grid: ScoreGrid, mine: NDArray[np.int64]) -> list[list[str]]:
    """``attribute=value`` of each datapoint of a task."""
    number = {int(item): at for at, item in enumerate(mine)}
    sampled: list[list[str]] = [[] for _ in mine]
    for stratum, items in grid.items.attributes.items():
        for item in items.tolist():
            if (at := number.get(item)) is not None:
                sampled[at].append(stratum)
    return sampled


def _task_coverage(
    covered: Coverage, alike: Resemblance, quality: ItemQuality, twins: Sequence[Twin | None]
) -> TaskCoverage:
    items = len(twins)

    def mean(values: Floats) -> Measured:
        known = values[np.isfinite(values)]
        value = float(known.mean()) if len(known) else None
        return Measured(value, None, None, len(known), len(values) - len(known))

    def ratio(value: float | None) -> Measured:
        return Measured(value, None, None, items, 0)

    return TaskCoverage(
        acr=ratio(covered.acr),
        rar=ratio(covered.rar),
        pairwise_acr=ratio(covered.pairwise_acr),
        pairwise_rar=ratio(covered.pairwise_rar),
        absent=covered.absent,
        surface_bias=ratio(alike.mean),
        pairs=alike.pairs,
        difficulty=mean(quality.difficulty),
        discrimination=mean(quality.discrimination),
        all_pass=int(quality.all_pass.sum()),
        all_fail=int(quality.all_fail.sum()),
        reversed=int((quality.discrimination < 0).sum()),
        near_duplicates=sum(twin is not None for twin in twins),
        scored=int((quality.students > 0).sum()),
    )


def _items(
    grid: ScoreGrid, mine: NDArray[np.int64], quality: ItemQuality, twins: Sequence[Twin | None]
) -> dict[str, ItemMeasures]:
    return {
        grid.items.ids[item]: ItemMeasures(
            task=grid.tasks[grid.items.task[item]],
            teacher=grid.teachers[grid.items.teacher[item]],
            difficulty=_number(quality.difficulty[at]),
            discrimination=_number(quality.discrimination[at]),
            students=int(quality.students[at]),
            all_pass=bool(quality.all_pass[at]),
            all_fail=bool(quality.all_fail[at]),
            near_duplicate_of=None if (twin := twins[at]) is None else twin.of,
        )
        for at, item in enumerate(mine.tolist())
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
