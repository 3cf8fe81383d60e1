"""``python -m evidence.measure_coverage``: how often the intervals of measures hold the truth.

Draws fresh datapoints for the same students and judges again and again, and counts. Students differ in
ability, judges in severity, and what judges see of an answer is the same but for their own error. The truth
is that of a run of 20,000 datapoints. Writes ``docs/evidence/measure-coverage.md``; seeded, so that it is
the same every time (ten minutes).

    python -m evidence.measure_coverage                 the page as it is kept
    python -m evidence.measure_coverage --repeats 100   a quick look, on the terminal
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import (
    compare_judge_pairs,
    mean_agreement_by_judge,
    measure_judge_pairs,
    measure_panel,
)
from coeval.analysis.measures.measure_tree import Measured, iterate_leaves
from coeval.analysis.measures.ranking import rank_students
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.measures.student_measures import measure_students
from coeval.analysis.measures.teacher_measures import measure_teachers
from evidence.page import write_page
from evidence.planted import judge_missing, judging_themselves, ranked

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "measure-coverage.md"
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
    """Of so many experiments in which the measure had a value: the share that held the truth, mean width, how
    wide 95% of the values lie (3.92 standard deviations), and how many had no interval."""

    measure: str
    n: int
    coverage: float
    width: float
    scatter: float
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
    pairs = compare_judge_pairs(grid, reweighting)
    found = {
        "student": measure_students(grid, rank_students(grid).scores)["student-1"],
        "pair": measure_judge_pairs(pairs)["judge-0", "judge-1"],
        "judge": mean_agreement_by_judge(grid, pairs)["judge-0"],
        "panel": measure_panel(grid, reweighting),
        "teacher": measure_teachers(grid, reweighting)["teacher-0"],
    }
    return {
        f"{of} {leaf.measure}": leaf.measured
        for of, one in found.items()
        for leaf in iterate_leaves(of, one)
        if leaf.measure in _SHOWN
    }


_SHOWN = {
    "overall", "score", "spa", "wpa", "kappa", "kappa_mean", "spa_mean",
    "krippendorff_alpha", "icc_2_1", "icc_2_k", "v1", "s2", "r3",
}  # fmt: skip


def coverage(world: World, items: int, repeats: int, seed: int = 1) -> Iterator[Covered]:
    random = np.random.default_rng(seed)
    truth = measured(drawn_grid(world, TRUTH, random), Reweighting(TRUTH))
    held: defaultdict[str, list[tuple[bool, float, float]]] = defaultdict(list)
    none: defaultdict[str, int] = defaultdict(int)
    reweighting = Reweighting(items)
    for _ in range(repeats):
        for name, found in measured(drawn_grid(world, items, random), reweighting).items():
            if found.low is None or found.high is None:
                none[name] += 1
            else:
                true = truth[name].value
                assert true is not None
                assert found.value is not None
                inside = found.low <= true <= found.high
                held[name].append((inside, found.high - found.low, found.value))
    for name in truth:
        of = held[name]
        columns = np.array(of, np.float64).T if of else np.full((3, 1), np.nan)
        share, width, scatter = float(columns[0].mean()), float(columns[1].mean()), float(columns[2].std())
        yield Covered(name, len(of), share, width, 3.92 * scatter, none[name])


RANKED = (
    World("four apart", (0.8, 0.4, 0.0, -0.5)),
    World("two alike, two behind", (0.5, 0.5, 0.35, -0.6)),
    World("all alike", (0.0, 0.0, 0.0, 0.0)),
    World("near the end, one behind", (3.4, 3.4, 3.4, 2.0)),
)
RANKED_ITEMS = (20, 40, 100)


def page(repeats: int) -> str:
    """Markdown."""
    parts = [INTRODUCTION.format(repeats=f"{repeats:,}")]
    for world in WORLDS:
        found = [{one.measure: one for one in coverage(world, items, repeats)} for items in ITEMS]
        lines = [f"| measure | {' | '.join(map(str, ITEMS))} |", "| --- |" + " --- |" * len(ITEMS)]
        for measure in found[0]:
            cells = " | ".join(shown_cell(of[measure], repeats) for of in found)
            lines.append(f"| {measure} | {cells} |")
        parts += [f"## {world.said[0].upper()}{world.said[1:]}", "\n".join(lines)]
    parts += [RANKS, _ranks(repeats), PANELS, panels(repeats)]
    return "\n\n".join(parts) + "\n"


def shown_cell(found: Covered, repeats: int) -> str:
    none = f" ({100 * found.none / repeats:.0f} without)" if found.none else ""
    return f"{100 * found.coverage:.1f} · {found.width:.3f}{none}"


def shown_ranks(world: World, items: int, repeats: int) -> str:
    random = np.random.default_rng([items, *map(ord, world.said)])
    found = ranked(world.abilities, (drawn_grid(world, items, random) for _ in range(repeats)))
    figures = " | ".join(f"{100 * share:.1f}" for share in (found.held, found.decided, found.order))
    return f"| {world.said} | {items} | {figures} | {found.ranks:.2f} |"


def _ranks(repeats: int) -> str:
    lines = [
        "| students | datapoints | all ranges hold the true ranks | all ranges are the true ranks | "
        "the order shown is true | ranks in a range |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [shown_ranks(world, items, repeats) for world in RANKED for items in RANKED_ITEMS]
    return "\n".join(lines)


def panels(repeats: int) -> str:
    lines = ["| students | datapoints | any two called different | first of the order |"]
    lines.append("| --- | ---: | ---: | --- |")
    for items in (50, 100):
        cells = [
            (f"{students} alike, a judge missing for some of one", judge_missing(items, repeats, students))
            for students in (2, 3)
        ]
        cells.append(("3 alike, who judge each other", judging_themselves(items, repeats)))
        for said, found in cells:
            first = " · ".join(f"{100 * share:.1f}" for share in found.first)
            lines.append(f"| {said} | {items} | {100 * found.false:.1f} | {first} |")
    return "\n".join(lines)


INTRODUCTION = """\
# How often the intervals of measures hold the truth

Written by `python -m evidence.measure_coverage`: {repeats} experiments of each kind, with fresh datapoints
for the same four students and three judges, two factors; a teacher wrote half of the datapoints. How many in
a hundred 95% intervals hold the truth, and how wide they are on average; columns are datapoints. κ, α and
the correlations are not defined where all scores are the same; such experiments have no interval (how many
in a hundred stands behind), and the figures are of the others. Of 1,000 experiments, chance leaves ± 1.4 of
a figure near 95. [How the intervals are made](measures.md#judges-agreementab-judgesname-panel).

In the middle of the scale intervals of means and of agreement hold the truth in 93 to 97 of a hundred cases
from 20 datapoints on, and with six in 94 to 99. Near its end more do, and of some measures all: nearly
every run shows one of the same few results there (with six datapoints and means of 0.99, six runs in ten
know nothing but full marks), and an interval that allows for what was not drawn, a failure or a judge who
sees it otherwise, holds the truth in each of these cases or in none. `wpa` is the plainest: the truth is
0.994, a single adjacent score in twenty datapoints leaves 0.997, and a failure not drawn is a loss of one
twentieth; the truth could be missed only from above."""

RANKS = """\
## Ranks

Runs of four students whose order is known; students who are alike share their ranks. In 95 of 100 runs or
more no range of ranks may be too narrow. Where students are alike, or nearly, the order shown is partly
chance, and the ranges say so."""

PANELS = """\
## Panels that differ

Runs of equal students who were not scored by the same judges (`evidence.planted`). A judge that is 0.2
stricter lacks scores of two in five answers of the first student; or three students are the judges, 0.2
stricter, fair and 0.2 kinder, and are ranked without what they gave themselves. In how many of a hundred runs
some two are called different, which should be 5 at most, and each stands first, which should be as often as
the others. Means over all the judges that there are would call some pair different in 14 to 25 of 100 runs of
the first kind, and put the strictest judge first in nearly all of the last."""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "experiments of each kind")
