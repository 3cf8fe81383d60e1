"""Which answers people are asked to label: drawn by chance within strata, the same ones at every start.

Every task has one random order of its items, and all students' answers to an item are drawn together, since
differences between students are surest on shared items. So the first labels of a draw are a draw themselves:
who stops early has labelled at random all the same, and a larger draw begins with the smaller one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.core.errors import UsageError
from coeval.core.records import response_id
from coeval.core.text import digest, listed
from coeval.store.human_labels import ByChance


class JudgedKey(NamedTuple):
    """An answer that a judge scored: its id, item, task, student and sample."""

    answer: str
    item: str
    task: str
    student: str
    sample: int


class DrawnAnswer(NamedTuple):
    """``drawn`` is None of one that was picked by hand."""

    key: JudgedKey
    drawn: ByChance | None


def judged_factors(grid: ScoreGrid, chosen: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Name the factors that judges score, by task; of these the ``chosen``, where there are any.

    Raises UsageError: nobody scores a chosen one, or there are none at all.
    """
    known = {
        task: tuple(sorted(design.judged)) for task, design in zip(grid.tasks, grid.designs, strict=True)
    }
    chosen = tuple(chosen)
    every = sorted({factor for factors in known.values() for factor in factors})
    if not every:
        raise UsageError("no judge scores a factor of this run, so there is nothing to label")
    if unknown := [factor for factor in chosen if factor not in every]:
        raise UsageError(f"--factor {unknown[0]}: judges score {listed(every)}")
    return {
        task: tuple(factor for factor in factors if not chosen or factor in chosen)
        for task, factors in known.items()
    }


def draw(grid: ScoreGrid, factors: dict[str, tuple[str, ...]], n: int, seed: int) -> list[DrawnAnswer]:
    """Draw ``n`` answers, or all if there are fewer, in the order in which they are shown.

    Strata are task × student; an answer's probability is the share of its stratum that is drawn.
    """
    strata: defaultdict[tuple[str, str], dict[str, list[JudgedKey]]] = defaultdict(dict)
    for key in _candidates(grid, factors):
        strata[key.task, key.student].setdefault(key.item, []).append(key)
    place = {item: at for _, items in _by_task(strata) for at, item in enumerate(_ordered(items, seed))}
    one_each = {
        min(keys, key=lambda key: _hash(seed, key.answer)): len(keys)
        for items in strata.values()
        for keys in items.values()
    }
    order = sorted(
        one_each, key=lambda key: (place[key.item], _hash(seed, key.item), _hash(seed, key.answer))
    )
    taken = order[:n]
    counts = Counter((key.task, key.student) for key in taken)
    found = []
    for key in taken:
        stratum = key.task, key.student
        items = len(strata[stratum])
        share = counts[stratum] / items / one_each[key]
        found.append(DrawnAnswer(key, ByChance(share, " × ".join(stratum), seed, items)))
    return found


def picked(grid: ScoreGrid, factors: dict[str, tuple[str, ...]], items: Collection[str]) -> list[DrawnAnswer]:
    """Choose all answers to some items, by hand.

    Raises UsageError: no judge scored an answer to one of them.
    """
    found = [DrawnAnswer(key, None) for key in _candidates(grid, factors) if key.item in {*items}]
    if unknown := {*items} - {key.item for key, _ in found}:
        raise UsageError(f"--item {min(unknown)}: no judge scored an answer to such an item")
    return sorted(found, key=lambda one: (one.key.item, _hash(0, one.key.answer)))


def share_out(
    drawn: Sequence[DrawnAnswer], people: Sequence[str], by: str, overlap: float
) -> list[DrawnAnswer]:
    """Choose one person's part: the first ``overlap`` of the draw, which all have, and every k-th of the
    rest.

    Raises UsageError: the person is not among the people.
    """
    if not people:
        return list(drawn)
    names = sorted(set(people))
    if by not in names:
        raise UsageError(f"--by {by} is not among {listed(names)}; name the same people at every start")
    common = round(overlap * len(drawn))
    mine = range(common + names.index(by), len(drawn), len(names))
    return [*drawn[:common], *(drawn[at] for at in mine)]


def _candidates(grid: ScoreGrid, factors: dict[str, tuple[str, ...]]) -> Iterator[JudgedKey]:
    """The answers with a judge's score in one of these factors."""
    chosen = np.array([[name in factors[task] for name in grid.factors] for task in grid.tasks], bool)
    rows = grid.valid.any(axis=1) & chosen[grid.task, grid.factor]
    sample = grid.sample if grid.sample is not None else np.zeros(len(grid.item), np.int64)
    for item, student, at in sorted(
        set(zip(grid.item[rows].tolist(), grid.student[rows].tolist(), sample[rows].tolist(), strict=True))
    ):
        name, who = grid.items.ids[item], grid.students[student]
        task = grid.tasks[int(grid.items.task[item])]
        yield JudgedKey(response_id(name, who, at), name, task, who, at)


def _by_task(
    strata: dict[tuple[str, str], dict[str, list[JudgedKey]]],
) -> Iterator[tuple[str, set[str]]]:
    for task in sorted({task for task, _ in strata}):
        yield task, {item for (of, _), items in strata.items() if of == task for item in items}


def _ordered(items: Iterable[str], seed: int) -> list[str]:
    return sorted(items, key=lambda item: _hash(seed, item))


def _hash(seed: int, name: str) -> str:
    return digest("label", str(seed), name)
