"""``python -m perf.measure_coverage``: how often the intervals of measures hold the truth.

Draws fresh datapoints for the same students and judges again and again, and counts. Students differ in
ability, judges in severity, and what judges see of an answer is the same but for their own error. Writes a
table; the truth is that of a run of 20,000 datapoints. A thousand experiments take some minutes.

    python -m perf.measure_coverage --repeats 200
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from coeval.analysis.measures.judge_measures import judge_measures, judge_pairs, pair_measures
from coeval.analysis.measures.measured import Branch, Measured, leaves
from coeval.analysis.measures.panel_measures import panel_measures
from coeval.analysis.measures.reweighting import Reweighting
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.measures.student_measures import student_measures
from coeval.analysis.measures.teacher_measures import teacher_measures

REPEATS = 1000
TRUTH = 20_000
ITEMS = (6, 20, 100)
FACTORS = 2
SEVERITY = (0.0, 0.3, -0.2)


class World(NamedTuple):
    """``abilities`` of the students: at 0 the mean score is about a half, at 3.4 about 0.99."""

    said: str
    abilities: tuple[float, ...]


MIDDLE = World("middle of the scale", (-0.4, 0.0, 0.2, 0.5))
END = World("means of 0.99", (3.2, 3.3, 3.4, 3.5))
WORLDS = (MIDDLE, END)


class Covered(NamedTuple):
    """Of so many experiments in which the measure had a value: the share that held the truth, mean width, and
    how many had no interval."""

    measure: str
    n: int
    coverage: float
    width: float
    none: int


def drawn_grid(world: World, items: int, random: np.random.Generator) -> ScoreGrid:
    """Scores of a run of one task and two teachers, whose items are alike."""
    students, judges = len(world.abilities), len(SEVERITY)
    shape = (items, students, FACTORS)
    hard = random.normal(size=(items, 1, 1))
    seen = np.array(world.abilities)[None, :, None] - 0.8 * hard + 0.6 * random.normal(size=shape)
    judged = seen[..., None] - np.array(SEVERITY) + 0.5 * random.normal(size=(*shape, judges))
    levels = ((judged > -0.5).astype(np.int8) + (judged > 0.5)).reshape(-1, judges).astype(np.int8)
    item, student, factor = (axis.ravel() for axis in np.indices(shape))
    names = tuple(f"judge-{n}" for n in range(judges))
    factors = tuple(f"factor-{n}" for n in range(FACTORS))
    found = GridItems([str(n) for n in range(items)], np.zeros(items, int), np.arange(items) % 2, {})
    return ScoreGrid(
        item,
        student,
        factor,
        levels,
        found,
        tuple(f"student-{n}" for n in range(students)),
        names,
        factors,
        ("task",),
        ("teacher-0", "teacher-1"),
        (TaskDesign(frozenset(names), frozenset(factors)),),
    )


def measured(grid: ScoreGrid, reweighting: Reweighting) -> dict[str, Measured]:
    pairs = judge_pairs(grid, reweighting)
    tree: Branch = {
        "student": student_measures(grid)["student-1"],
        "pair": pair_measures(pairs)["judge-0|judge-1"],
        "judge": judge_measures(grid, pairs)["judge-0"],
        "panel": panel_measures(grid, reweighting),
        "teacher": teacher_measures(grid, reweighting)["teacher-0"],
    }
    return {" ".join(leaf.path): leaf.measured for leaf in leaves(tree) if leaf.path[-1] in _SHOWN}


_SHOWN = {
    "overall", "headline", "spa", "wpa", "kappa", "kappa_mean", "spa_mean",
    "krippendorff_alpha", "icc_2_1", "icc_2_k", "v1", "s2", "r3",
}  # fmt: skip


def coverage(world: World, items: int, repeats: int, seed: int = 1) -> Iterator[Covered]:
    random = np.random.default_rng(seed)
    truth = measured(drawn_grid(world, TRUTH, random), Reweighting(TRUTH))
    held: defaultdict[str, list[tuple[bool, float]]] = defaultdict(list)
    none: defaultdict[str, int] = defaultdict(int)
    reweighting = Reweighting(items)
    for _ in range(repeats):
        for name, found in measured(drawn_grid(world, items, random), reweighting).items():
            if found.low is None or found.high is None:
                none[name] += 1
            else:
                true = truth[name].value
                assert true is not None
                held[name].append((found.low <= true <= found.high, found.high - found.low))
    for name in truth:
        of = held[name]
        share, width = (np.mean(column) for column in zip(*of, strict=True)) if of else (np.nan, np.nan)
        yield Covered(name, len(of), float(share), float(width), none[name])


def table(repeats: int, worlds: Sequence[World] = WORLDS) -> Iterator[str]:
    yield "| students | datapoints | measure | coverage | width | without interval |"
    yield "| --- | ---: | --- | ---: | ---: | ---: |"
    for world in worlds:
        for items in ITEMS:
            for found in coverage(world, items, repeats):
                figures = f"{found.coverage:.1%} | {found.width:.3f} | {found.none / repeats:.1%}"
                yield f"| {world.said} | {items} | {found.measure} | {figures} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    for line in table(parser.parse_args().repeats):
        print(line, flush=True)
