"""A number with what is to be known of it, and how numbers lie in ``measures.json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from coeval.analysis.intervals import Bounds, Interval
from coeval.analysis.measures.score_grid import ScoreGrid


class Measured(NamedTuple):
    """A measure; None where it is not defined. ``low`` and ``high`` are its 95 % interval, ``n`` the
    datapoints that it rests on, ``missing`` the (response, factor, judge) scores that it lacks."""

    value: float | None
    low: float | None
    high: float | None
    n: int | None
    missing: int | None


Tree: TypeAlias = Mapping[str, Any]
"""Names to measures, to plain values, or to trees of these."""

Branch: TypeAlias = dict[str, Any]


class Leaf(NamedTuple):
    """A measure with the names that lead to it."""

    path: tuple[str, ...]
    measured: Measured


def leaves(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All numbers of a tree; those that are no measures have neither interval nor n."""
    for name, part in tree.items():
        match part:
            case Measured():
                yield Leaf((*path, name), part)
            case dict():
                yield from leaves(part, (*path, name))
            case bool() | str() | list() | tuple() | None:
                continue
            case _:
                yield Leaf((*path, name), Measured(part, None, None, None, None))


def with_bounds(value: float, bounds: Bounds | None, n: int, missing: int) -> Measured:
    """A measure that may not be defined (NaN), and its interval if it has one."""
    if not math.isfinite(value):
        return Measured(None, None, None, n, missing)
    low, high = bounds or (None, None)
    return Measured(value, low, high, n, missing)


def of_interval(interval: Interval, missing: int | None) -> Measured:
    return Measured(interval.mean, interval.low, interval.high, interval.n, missing)


def as_plain(tree: Tree) -> dict[str, Any]:
    """As ``measures.json`` has it: where a tree holds measures, its values are numbers, and ``n``,
    ``missing`` and ``ci95`` (``[low, high]``) stand beside them with the same nested keys."""
    plain = _values(tree)
    if _holds_measures(tree):
        plain["n"] = _leaves(tree, lambda found: found.n)
        plain["missing"] = _leaves(tree, lambda found: found.missing)
        plain["ci95"] = _leaves(tree, _bounds)
    return plain


def _values(tree: Tree) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, part in tree.items():
        match part:
            case Measured():
                plain[name] = part.value
            case dict():
                plain[name] = _values(part)
            case _:
                plain[name] = part
    return plain


def _holds_measures(tree: Tree) -> bool:
    return any(
        isinstance(part, Measured) or (isinstance(part, dict) and _holds_measures(part))
        for part in tree.values()
    )


def _leaves(tree: Tree, take: Callable[[Measured], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in tree.items():
        if isinstance(part, Measured):
            found[name] = take(part)
        elif isinstance(part, dict) and (not part or _holds_measures(part)):
            found[name] = _leaves(part, take)
    return found


def _bounds(found: Measured) -> list[float] | None:
    return None if found.low is None or found.high is None else [found.low, found.high]


# --- Level counts by student and judge

LEVEL_NAMES = ("Low", "Medium", "High")
LevelCounts: TypeAlias = dict[str, int]


def levels_by_student(grid: ScoreGrid) -> dict[str, LevelCounts]:
    """Units at each level, by student."""
    counts = np.zeros((len(grid.students), len(LEVEL_NAMES)), np.int64)
    for column in grid.levels.T:
        valid = column >= 0
        key = grid.student[valid].astype(np.int64) * len(LEVEL_NAMES) + column[valid]
        counts += np.bincount(key, minlength=counts.size).reshape(counts.shape)
    return {name: _named(row.tolist()) for name, row in zip(grid.students, counts, strict=True)}


def levels_by_judge(grid: ScoreGrid) -> dict[str, LevelCounts]:
    """Units at each level, by the judge who gave them."""
    return {
        judge: _named(np.bincount(column[column >= 0], minlength=len(LEVEL_NAMES)).tolist())
        for judge, column in zip(grid.judges, grid.levels.T, strict=True)
    }


def _named(counts: list[int]) -> LevelCounts:
    return dict(zip(LEVEL_NAMES, counts, strict=True))
