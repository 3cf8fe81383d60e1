"""A choice of a run's scores: those of some tasks, teachers, judges, factors, variants and attribute values.

Whatever is measured of a choice is measured as if the run had only these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.core.errors import UsageError
from coeval.core.records import VARIANT
from coeval.core.text import join_names

NamesByDimension = Mapping[str, Set[str]]
"""By dimension, the names that are chosen; a dimension without names is not restricted. Values of one
attribute (``attribute=value``) are a union, attributes are a cut."""


def attribute_of(value: str) -> str:
    """Return the attribute of ``attribute=value``."""
    return value.partition("=")[0]


def variant_of(student: str) -> str:
    """Return the variant of a prompt that a student is, or '' if it is none."""
    return student.partition(VARIANT)[2]


_NAMES: Mapping[str, Callable[[ScoreGrid], Iterable[str]]] = {
    "task": lambda grid: grid.tasks,
    "judge": lambda grid: grid.judges,
    "teacher": lambda grid: grid.teachers,
    "factor": lambda grid: grid.factors,
    "variant": lambda grid: sorted({*map(variant_of, grid.students)} - {""}),
    "attribute": lambda grid: grid.items.attributes,
}


def make_score_choice(grid: ScoreGrid, dimensions_and_names: Iterable[tuple[str, str]]) -> NamesByDimension:
    """Read a choice from pairs of a dimension and a name. Raises UsageError: the grid has no such one."""
    choice: dict[str, set[str]] = {}
    for dimension, name in dimensions_and_names:
        if dimension not in _NAMES:
            raise UsageError(f"scores are chosen by {join_names(_NAMES)}, not by {dimension}")
        if name not in _NAMES[dimension](grid):
            raise UsageError(f"no score of this run has the {dimension} {name}")
        choice.setdefault(dimension, set()).add(name)
    return choice


def select_chosen_scores(grid: ScoreGrid, choice: NamesByDimension) -> ScoreGrid:
    """Return the scores of a choice; names of tasks, teachers and factors stay."""
    chosen = grid.select_items(find_chosen_items(grid, choice))
    if judges := choice.get("judge"):
        chosen = chosen.select_judges([name for name in grid.judges if name in judges])
    if factors := choice.get("factor"):
        chosen = chosen.select_factors(factors)
    if variants := choice.get("variant"):
        chosen = chosen.select_students([name for name in grid.students if variant_of(name) in variants])
    return chosen


def find_chosen_items(grid: ScoreGrid, choice: NamesByDimension) -> NDArray[np.bool_]:
    """Return which items are chosen, (I,)."""
    items = np.ones(len(grid.items.ids), bool)
    for dimension, names, of_items in (
        ("task", grid.tasks, grid.items.task),
        ("teacher", grid.teachers, grid.items.teacher),
    ):
        if chosen := choice.get(dimension):
            items &= np.isin(of_items, [at for at, name in enumerate(names) if name in chosen])
    by_attribute: dict[str, list[str]] = {}
    for value in choice.get("attribute", ()):
        by_attribute.setdefault(attribute_of(value), []).append(value)
    for values in by_attribute.values():
        members = np.zeros(len(items), bool)
        for value in values:
            members[grid.items.attributes[value]] = True
        items &= members
    return items


# An attribute of more values is an amount or an id: few items share one.
_MOST_VALUES = 12


def offered_dimension_names(grid: ScoreGrid) -> Sequence[tuple[str, str]]:
    """List the choices of one name that a report offers, as (dimension, name): all names where there are two
    or more, and values of attributes that have at most 12."""
    names = {dimension: tuple(named(grid)) for dimension, named in _NAMES.items()}
    counts = Counter(map(attribute_of, names["attribute"]))
    names["attribute"] = tuple(v for v in names["attribute"] if 1 < counts[attribute_of(v)] <= _MOST_VALUES)
    return [(dimension, name) for dimension, some in names.items() if len(some) > 1 for name in some]
