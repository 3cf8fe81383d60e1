"""A generalizability study of a run: where its scores scatter, and how well its panel tells students apart.

A score of student s, item i and judge j is taken to be ``μ_s + I_i + J_j + SI_si + SJ_sj + IJ_ij + e_sij``,
students fixed, items and judges sampled. The variances are those of the mean squares of the scores that all
students and judges of a task have (Cornfield and Tukey 1956; Brennan 2001, *Generalizability Theory*):
nothing is filled in, and an estimate below zero is shown as it is. Intervals are a jackknife over items, so
they are about these judges.

Of several tasks, variances are their means, by items. Eρ² is that of the students' overall scores, in which
tasks count alike: the share of their variance that fresh items and fresh judges would show again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtrit

from coeval.analysis.intervals import LEVEL, Bounds, Floats
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, ShownAs, measured_with_bounds
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import NEARLY
from coeval.analysis.panel.mean_squares import COVERED, MeanSquares, judge_cells, mean_squares

# Groups of items, left out one after the other: more make the interval no narrower, and take longer.
_MOST_BLOCKS = 50
# Of items, students and judges: one has no variance.
_FEWEST = 2
# Of a difference of shares, and of what has no scale.
_WHOLE, _ENDLESS = Bounds(-1.0, 1.0), Bounds(-np.inf, np.inf)


class Component(Entity, frozen=True):
    """Of single scores, from 0 to 1."""

    variance: Annotated[
        Measured, ShownAs("Its variance; below 0: an estimate too", kind="number", elsewhere=FILES)
    ]
    sd: Annotated[
        Measured,
        ShownAs("Square root of the variance; 0 if the variance is negative", "Scatter, sd", "sd", "points"),
    ]


class JudgeWorth(Entity, frozen=True):
    worth: Annotated[
        Measured,
        ShownAs(
            "Eρ² with it less Eρ² without it; None: it takes three judges", "Worth", "worth", "coefficient"
        ),
    ]


class GStudy(Entity, frozen=True):
    """Over ``items`` that all ``students`` and ``judges`` of a task have scores of."""

    reliability: Annotated[
        Measured,
        ShownAs("The share of students' variance that would show again", "Eρ²", "Eρ²", "coefficient"),
    ]
    components: Annotated[Mapping[str, Component], ShownAs("By what scatters", elsewhere="variance")]
    worth: Annotated[Mapping[str, JudgeWorth], ShownAs("What each judge adds to Eρ²", elsewhere="worth")]
    items: Annotated[int, ShownAs("Items that count", elsewhere="reliability")]
    left_out: Annotated[int, ShownAs("Items that lack some score", elsewhere="variance")]
    students: Annotated[tuple[str, ...], ShownAs("Who counts in some task", elsewhere="variance")]
    judges: Annotated[tuple[str, ...], ShownAs("Who counts in some task", elsewhere="variance")]
    p: Annotated[
        float | None,
        ShownAs("F test that students do not differ over items, with these judges", "p", "p", "probability"),
    ] = None


def part_names(components: Mapping[str, Component]) -> dict[str, Component]:
    """By the names that people read: ``students × items``."""
    return {name.replace("_", " × "): one for name, one in components.items()}


# --- Full blocks


class Block(NamedTuple):
    """A task's scores by item, student and judge, (n, S, k), without holes; ``cluster`` (n,) is that of each
    item; ``students`` and ``judges`` are places in the grid. ``left_out``: items that lack some score."""

    cells: Floats
    cluster: NDArray[np.int64]
    students: NDArray[np.intp]
    judges: NDArray[np.intp]
    left_out: int


def full_block(grid: ScoreGrid, task: int) -> Block:
    """The items that all students and judges of a task have scores of; left out first: students and judges
    with less than half as many scores as the best covered one."""
    cells, items = judge_cells(grid, task), np.unique(grid.item[grid.task == task])
    scored = np.isfinite(cells).any(axis=(1, 2))
    cells, items = cells[scored], items[scored]
    there = np.isfinite(cells)
    kept = []
    for other in (2, 1):
        counts = there.any(axis=other).sum(axis=0)
        kept.append(np.flatnonzero((counts > 0) & (counts >= COVERED * counts.max(initial=0))))
    students, judges = kept
    cells = cells[:, students][:, :, judges]
    whole = np.isfinite(cells).all(axis=(1, 2))
    return Block(cells[whole], grid.items.cluster[items][whole], students, judges, int((~whole).sum()))


# --- The study


def g_study(grid: ScoreGrid) -> GStudy | None:
    """None where no task has two students, judges and items with all scores."""
    every = (full_block(grid, task) for task in range(len(grid.tasks)))
    blocks = [block for block in every if min(block.cells.shape) >= _FEWEST]
    if not blocks:
        return None
    clusters = np.unique(np.concatenate([block.cluster for block in blocks]))
    groups = min(len(clusters), _MOST_BLOCKS)
    of_cluster = np.random.default_rng(0).permutation(np.arange(len(clusters)) % groups)
    group = [of_cluster[np.searchsorted(clusters, block.cluster)] for block in blocks]
    squares = [mean_squares(block.cells, of, groups) for block, of in zip(blocks, group, strict=True)]
    weights = [len(block.cells) for block in blocks]
    items = sum(weights)
    overall = overall_variances(blocks, squares)
    reliability = overall.reliability
    # The share that would not show again is a quotient of variances: its logarithm is next to normal.
    with np.errstate(invalid="ignore", divide="ignore"):
        lost = _measured(np.log(1 - reliability), items)
    judges = np.unique(np.concatenate([block.judges for block in blocks]))
    return GStudy(
        measured_with_bounds(float(reliability[0]), _bounds_of(lost), items, 0),
        {
            name: _component(np.average([one.components[name] for one in squares], 0, weights), items)
            for name in squares[0].components
        },
        {
            grid.judges[judge]: JudgeWorth(
                _measured(reliability - _without(blocks, group, groups, judge), items, _WHOLE)
            )
            for judge in judges
        },
        items,
        sum(block.left_out for block in blocks),
        tuple(grid.students[place] for place in np.unique(np.concatenate([b.students for b in blocks]))),
        tuple(grid.judges[place] for place in judges),
        overall.p,
    )


class OverallVariances(NamedTuple):
    """Of students' means over tasks, (R,): what is ``seen`` between students, and the errors over items by
    these judges and over items and judges; ``degrees`` of freedom of the first two."""

    seen: Floats
    of_items: Floats
    of_both: Floats
    degrees: tuple[float, float]

    @property
    def reliability(self) -> Floats:
        """(R,): Eρ²; NaN: fewer than two students, or they do not differ."""
        found = np.full(len(self.seen), np.nan)
        np.divide(np.maximum(self.of_both, 0.0), self.seen, out=found, where=self.seen > NEARLY**2)
        return 1 - found

    @property
    def p(self) -> float | None:
        """How easily chance over items would set these students so far apart by these judges (F test)."""
        seen, error = float(self.seen[0]), float(self.of_items[0])
        return float(fdtrc(*self.degrees, seen / error)) if error > 0 else None


def overall_variances(blocks: Sequence[Block], squares: Sequence[MeanSquares]) -> OverallVariances:
    """Of those students whom all tasks have; of fewer than two, nothing is seen.

    A judge keeps its view of a student from task to task, so what it adds is summed before it is squared.
    """
    common = [place for place in blocks[0].students if all(place in block.students for block in blocks)]
    replicates, s = len(squares[0].n), len(common)
    if s < _FEWEST:
        nothing = np.zeros(replicates)
        return OverallVariances(nothing, nothing, nothing, (1.0, 1.0))
    scores, v_items, chance = np.zeros((replicates, s)), np.zeros(replicates), np.zeros(replicates)
    views = np.zeros((replicates, s, 1 + max(int(block.judges.max()) for block in blocks)))
    share, spent = 1 / len(blocks), 0.0
    for block, one in zip(blocks, squares, strict=True):
        means = one.means[:, np.searchsorted(block.students, common)]
        k = means.shape[2]
        scores += share * means.mean(axis=2)
        part = share**2 * one.students_items / (k * one.n)
        v_items += part
        spent += float(part[0]) ** 2 / float((s - 1) * (one.n[0] - 1))
        chance += share**2 * one.residual / (k * one.n)
        means = means - means.mean(axis=1, keepdims=True)
        means -= means.mean(axis=2, keepdims=True)
        views[:, :, block.judges] += share * means / np.sqrt(k * (k - 1))
    error = v_items + (views**2).sum(axis=(1, 2)) / (s - 1) - chance
    degrees = (s - 1.0, float(v_items[0]) ** 2 / spent if spent else 1.0)
    return OverallVariances(scores.var(axis=1, ddof=1), v_items, error, degrees)


def _without(blocks: Sequence[Block], group: Sequence[NDArray[np.int64]], groups: int, judge: int) -> Floats:
    """(R,): Eρ² without a judge; NaN where a task has one other only."""
    left = []
    for block in blocks:
        others = block.judges != judge
        left.append(block._replace(cells=block.cells[:, :, others], judges=block.judges[others]))
    if any(len(block.judges) < _FEWEST for block in left):
        return np.full(groups + 1, np.nan)
    squares = [mean_squares(block.cells, of, groups) for block, of in zip(left, group, strict=True)]
    return overall_variances(left, squares).reliability


def _bounds_of(lost: Measured) -> Bounds | None:
    """Of Eρ², a share, by the logarithm of what it lacks to 1."""
    if lost.low is None or lost.high is None:
        return None
    ends = 1 - np.exp(np.minimum([lost.high, lost.low], 0.0))
    return Bounds(float(ends[0]), float(ends[1]))


def _component(values: Floats, items: int) -> Component:
    found = _measured(values, items)
    value, low, high = (None if one is None else max(one, 0.0) ** 0.5 for one in found[:3])
    return Component(found, Measured(value, low, high, items, 0))


def _measured(values: Floats, items: int, ends: Bounds = _ENDLESS) -> Measured:
    """Of an estimate and those without one group of items after the other, by t; its bounds lie within
    ``ends``."""
    value, left = float(values[0]), values[1:]
    groups = len(left)
    if groups < _FEWEST or not np.isfinite(left).all():
        return measured_with_bounds(value, None, items, 0)
    error = float(np.sqrt(((left - left.mean()) ** 2).sum() * (groups - 1) / groups))
    half = float(stdtrit(groups - 1, (1 + LEVEL) / 2)) * error
    return measured_with_bounds(
        value, Bounds(*np.clip([value - half, value + half], *ends).tolist()), items, 0
    )
