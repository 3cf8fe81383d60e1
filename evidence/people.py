"""``python -m evidence.people``: whether scores on the human scale hold what people would have said.

Draws items, three students of the same quality, people's levels of all answers, and three judges who lean to
one student. Some items are drawn, and their labels alone are shown to PPI++. Counts how often intervals hold
the mean of people's levels over all items there might be, how often anybody is called the leader among
equals, and how often a student that is better is found. Writes the page ``docs/evidence/people.md``; seeded.

    python -m evidence.people                 the page as it is kept (some minutes)
    python -m evidence.people --repeats 100   a quick look, on the terminal
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from coeval.analysis.comparison.paired_difference import holm_adjust
from coeval.analysis.intervals import ALPHA, Floats
from coeval.analysis.people.calibration import (
    LabelledStratum,
    LineInWeight,
    estimate_mean_as_line_in_weight,
    estimate_powered_difference,
    estimate_powered_mean,
)
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "people.md"
REPEATS = 3000
ITEMS = 400
STUDENTS = 3
JUDGES = 3
# Of an answer's quality, in its sd: where levels part, the mean, a judge's own scatter. Half of the variance
# is the item's.
CUTS, MEAN, NOISE = (-0.5, 0.5), 0.3, 0.8


class World(NamedTuple):
    """Judges lean to the first student by so many sd, whose answers are ``better`` by as many."""

    leaning: float
    labels: int
    tasks: int = 1
    better: float = 0.0

    @property
    def truth(self) -> Floats:
        """(students,): the mean of people's levels over all items there might be."""
        mean = MEAN + np.array([self.better, *[0.0] * (STUDENTS - 1)])
        return np.asarray(np.mean([1 - ndtr(cut - mean) for cut in CUTS], axis=0), np.float64)

    def draw(self, generator: np.random.Generator) -> list[list[LabelledStratum]]:
        """By student, the strata of one experiment."""
        shape = (ITEMS, STUDENTS)
        quality = MEAN + np.sqrt(0.5) * (generator.normal(size=(ITEMS, 1)) + generator.normal(size=shape))
        quality[:, 0] += self.better
        people = levels(quality)
        leaning = np.array([self.leaning, *[0.0] * (STUDENTS - 1)])
        noise = NOISE * generator.normal(size=(JUDGES, *shape))
        judged = levels(quality + leaning + noise).mean(axis=0)
        each = ITEMS // self.tasks
        shown = np.full(shape, np.nan)
        for task in range(self.tasks):
            chosen = task * each + generator.permutation(each)[: self.labels // self.tasks]
            shown[chosen] = people[chosen]
        parts = [slice(task * each, (task + 1) * each) for task in range(self.tasks)]
        items = np.arange(ITEMS)
        return [
            [LabelledStratum(shown[part, at], judged[part, at], items[part]) for part in parts]
            for at in range(STUDENTS)
        ]


def levels(quality: Floats) -> Floats:
    return np.asarray(np.digitize(quality, CUTS) / len(CUTS), np.float64)


def sure_pairs(parts: list[LineInWeight]) -> set[tuple[int, int]]:
    """Who is significantly ahead of whom, after Holm's adjustment."""
    pairs = list(combinations(range(len(parts)), 2))
    found = [estimate_powered_difference(parts[one], parts[other]) for one, other in pairs]
    adjusted = holm_adjust([each.p or 0.0 for each in found])
    return {
        pair if each.difference > 0 else pair[::-1]
        for pair, each, p in zip(pairs, found, adjusted, strict=True)
        if p < ALPHA
    }


def leader(ahead: set[tuple[int, int]]) -> int | None:
    """Who is ahead of all others."""
    counts = [sum(first == student for first, _ in ahead) for student in range(STUDENTS)]
    return counts.index(STUDENTS - 1) if STUDENTS - 1 in counts else None


def as_if_labelled(strata: list[LabelledStratum]) -> list[LabelledStratum]:
    """Judged scores in place of people's."""
    return [one._replace(people=one.judged, judged=np.zeros(len(one.judged))) for one in strata]


def alone(strata: list[LabelledStratum]) -> list[LabelledStratum]:
    """Labels without judged scores."""
    return [one._replace(judged=np.zeros(len(one.judged))) for one in strata]


class Found(NamedTuple):
    """Shares of experiments: ``held`` intervals of students, ``wider`` than those of labels alone; ``width``
    and ``alone``: their widths; whether the first student (among equals: anybody) is called the leader by
    judges, by labels alone and by both, and whether any two are called different by both."""

    held: float
    width: float
    alone: float
    wider: float
    by_judges: float
    by_labels: float
    by_both: float
    any_two: float


def measure(world: World, repeats: int, seed: int = 0) -> Found:
    generator = np.random.default_rng(seed)
    truth, rows = world.truth, []
    for _ in range(repeats):
        students = world.draw(generator)
        means = [estimate_powered_mean(strata, ITEMS) for strata in students]
        held = [mean.bounds.low <= true <= mean.bounds.high for mean, true in zip(means, truth, strict=True)]
        width = [mean.bounds.high - mean.bounds.low for mean in means]
        by_labels = [mean.alone_bounds.high - mean.alone_bounds.low for mean in means]
        wider = [one > other + 1e-12 for one, other in zip(width, by_labels, strict=True)]
        ahead = [
            sure_pairs([estimate_mean_as_line_in_weight(change(strata), ITEMS) for strata in students])
            for change in (as_if_labelled, alone, list)
        ]
        named = [leader(pairs) for pairs in ahead]
        called = [(who == 0) if world.better else (who is not None) for who in named]
        figures = np.mean(held), np.mean(width), np.mean(by_labels), np.mean(wider)
        rows.append([*figures, *called, bool(ahead[-1])])
    return Found(*np.mean(rows, axis=0).tolist())


_INTRODUCTION = """# People: coverage, false leaders, widths

Written by `python -m evidence.people`. {students} students answer {items} items; people would give High,
Medium or Low, and so do three judges with a scatter of {noise} sd of their own. They lean to one student by
so many standard deviations of an answer's quality. Of the items so many are labelled at random (every
student's answer to them), in one task or in two. Each row is of {repeats:,} experiments. In hundredths: how
many 95% intervals hold the mean that people would give over all items there might be, how many are wider than
those of the labels alone, and the widths of both, in points. Then in how many experiments a leader is named
although all students are equal: by judged scores alone, by labels alone, by both (PPI++); and in how many any
two students are called different by both, after Holm's adjustment.

| leaning | labelled | tasks | hold | wider | width | alone | by judges | by labels | by both | any two |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
_POWER = """
## A student that is better

The same with one student better by half a standard deviation, and judges who do not lean, or lean against it
by as much: in how many experiments of a hundred it is called the leader.

| leaning | labelled | by judges | by labels | by both |
| ---: | ---: | ---: | ---: | ---: |
"""


def page(repeats: int) -> str:
    text = _INTRODUCTION.format(students=STUDENTS, items=ITEMS, noise=NOISE, repeats=repeats)
    for leaning in (0.0, 0.25, 0.5):
        for labels in (30, 60, 120):
            for tasks in (1, 2):
                one = measure(World(leaning, labels, tasks), repeats)
                cells = (one.held, one.wider, one.width, one.alone, *one[4:])
                shown = " | ".join(f"{100 * cell:.1f}" for cell in cells)
                text += f"| {leaning:g} | {labels} | {tasks} | {shown} |\n"
    text += _POWER
    for leaning in (0.0, -0.5):
        for labels in (30, 60, 120):
            one = measure(World(leaning, labels, better=0.5), repeats)
            shown = " | ".join(f"{100 * cell:.1f}" for cell in (one.by_judges, one.by_labels, one.by_both))
            text += f"| {leaning:g} | {labels} | {shown} |\n"
    return text


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "experiments of each line")
