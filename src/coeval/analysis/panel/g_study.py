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

from coeval.analysis.intervals import LEVEL, Bounds, Floats
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import NEARLY
from coeval.analysis.panel.mean_squares import (
    MeanSquares,
    average_judge_scores_over_factors,
    is_well_covered,
    jackknife_error,
    mean_squares,
)
from coeval.analysis.special import fdtrc, stdtrit

# Groups of items, left out one after the other: more make the interval no narrower, and take longer.
_MOST_BLOCKS = 50
# Of items, students and judges: one has no variance.
_FEWEST = 2
# Of a difference of shares, and of what has no scale.
_WHOLE, _ENDLESS = Bounds(-1.0, 1.0), Bounds(-np.inf, np.inf)


class Component(Entity, frozen=True):
    """A variance component of single scores, from 0 to 1."""

    variance: Annotated[
        Measured, ShownAs("Its variance; estimates may be below 0", kind="number", elsewhere=FILES)
    ]
    sd: Annotated[
        Measured,
        ShownAs("Square root of the variance; 0 if the variance is negative", "Scatter, sd", "sd", "points"),
    ]


class JudgeWorth(Entity, frozen=True):
    """What a judge adds to the reliability of the panel."""

    worth: Annotated[
        Measured,
        ShownAs(
            "Eρ² with it − Eρ² without it; None: fewer than three judges", "Worth", "worth", "coefficient"
        ),
    ]


class GStudy(Entity, frozen=True):
    """A generalizability study over the ``items`` of which all ``students`` and ``judges`` have scores."""

    reliability: Annotated[
        Measured,
        ShownAs("Share of the variance between students that would replicate", "Eρ²", "Eρ²", "coefficient"),
    ]
    components: Annotated[Mapping[str, Component], ShownAs("By source of variation", elsewhere="variance")]
    worth: Annotated[
        Mapping[str, JudgeWorth], ShownAs("Contribution of each judge to Eρ²", elsewhere="worth")
    ]
    items: Annotated[int, ShownAs("Items that count", elsewhere="reliability")]
    left_out: Annotated[int, ShownAs("Items that lack some score", elsewhere="variance")]
    students: Annotated[tuple[str, ...], ShownAs("Who counts in some task", elsewhere="variance")]
    judges: Annotated[tuple[str, ...], ShownAs("Who counts in some task", elsewhere="variance")]
    p: Annotated[
        float | None,
        ShownAs("F test that students do not differ over items, with these judges", "p", "p", "probability"),
    ] = None


def label_components(components: Mapping[str, Component]) -> dict[str, Component]:
    """Return the components by the names that people read: ``students × items``."""
    return {name.replace("_", " × "): component for name, component in components.items()}


# --- Full blocks


class Block(NamedTuple):
    """A task's scores by item, student and judge, (n, S, k), without holes; ``cluster`` (n,): of each item;
    ``students`` and ``judges``: indices in the grid; ``left_out``: the number of items that lack some
    score."""

    cells: Floats
    cluster: NDArray[np.int64]
    students: NDArray[np.intp]
    judges: NDArray[np.intp]
    left_out: int


def select_well_covered_block(grid: ScoreGrid, task: int) -> Block:
    """Select the items that all students and judges of a task have scores of, after leaving out students and
    judges with less than half as many scores as the best covered one."""
    cells, items = average_judge_scores_over_factors(grid, task), np.unique(grid.item[grid.task == task])
    scored = np.isfinite(cells).any(axis=(1, 2))
    cells, items = cells[scored], items[scored]
    is_scored = np.isfinite(cells)
    students, judges = (
        np.flatnonzero(is_well_covered(is_scored.any(axis=other).sum(axis=0))) for other in (2, 1)
    )
    cells = cells[:, students][:, :, judges]
    whole = np.isfinite(cells).all(axis=(1, 2))
    return Block(cells[whole], grid.items.cluster[items][whole], students, judges, int((~whole).sum()))


# --- The study


def estimate_g_study(grid: ScoreGrid) -> GStudy | None:
    """Estimate variance components, reliability and each judge's worth; None if no task has two students,
    judges and items with all scores."""
    all_blocks = (select_well_covered_block(grid, task) for task in range(len(grid.tasks)))
    blocks = [block for block in all_blocks if min(block.cells.shape) >= _FEWEST]
    if not blocks:
        return None
    clusters = np.unique(np.concatenate([block.cluster for block in blocks]))
    groups = min(len(clusters), _MOST_BLOCKS)
    group_of_cluster = np.random.default_rng(0).permutation(np.arange(len(clusters)) % groups)
    memberships = [group_of_cluster[np.searchsorted(clusters, block.cluster)] for block in blocks]
    squares = [
        mean_squares(block.cells, group, groups) for block, group in zip(blocks, memberships, strict=True)
    ]
    weights = [len(block.cells) for block in blocks]
    items = sum(weights)
    overall = variances_of_overall_means(blocks, squares)
    reliability = overall.reliability
    # the share that would not show again is a quotient of variances: its logarithm is nearly normal
    with np.errstate(invalid="ignore", divide="ignore"):
        unreliability = _jackknife_interval(np.log(1 - reliability), items)
    judges = np.unique(np.concatenate([block.judges for block in blocks]))
    return GStudy(
        Measured.with_bounds(float(reliability[0]), _reliability_bounds(unreliability), items, 0),
        {
            name: _build_component(np.average([part.components[name] for part in squares], 0, weights), items)
            for name in squares[0].components
        },
        {
            grid.judges[judge]: JudgeWorth(_jackknife_interval(reliability - without, items, _WHOLE))
            for judge in judges
            for without in [_reliability_without_judge(blocks, memberships, groups, judge)]
        },
        items,
        sum(block.left_out for block in blocks),
        tuple(grid.students[code] for code in np.unique(np.concatenate([b.students for b in blocks]))),
        tuple(grid.judges[code] for code in judges),
        overall.p_value,
    )


class OverallVariances(NamedTuple):
    """Variances (R,) of students' means over tasks: ``observed`` between students, and the errors over items
    by these judges and over items and judges; ``degrees`` of freedom of the first two."""

    observed: Floats
    over_items: Floats
    over_both: Floats
    degrees: tuple[float, float]

    @property
    def reliability(self) -> Floats:
        """Return Eρ² (R,); NaN if fewer than two students differ."""
        unreliability = np.full(len(self.observed), np.nan)
        np.divide(
            np.maximum(self.over_both, 0.0), self.observed, out=unreliability, where=self.observed > NEARLY**2
        )
        return 1 - unreliability

    @property
    def p_value(self) -> float | None:
        """Return the p-value of the F test that students do not differ over items, by these judges."""
        observed, error = float(self.observed[0]), float(self.over_items[0])
        return float(fdtrc(*self.degrees, observed / error)) if error > 0 else None


def variances_of_overall_means(blocks: Sequence[Block], squares: Sequence[MeanSquares]) -> OverallVariances:
    """Estimate the variances of the students that all tasks have; zeros for fewer than two. A judge keeps its
    view of a student from task to task, so what it adds is summed before it is squared."""
    common = [student for student in blocks[0].students if all(student in block.students for block in blocks)]
    replicates, s = len(squares[0].n), len(common)
    if s < _FEWEST:
        nothing = np.zeros(replicates)
        return OverallVariances(nothing, nothing, nothing, (1.0, 1.0))
    scores, v_items, chance = np.zeros((replicates, s)), np.zeros(replicates), np.zeros(replicates)
    views = np.zeros((replicates, s, 1 + max(int(block.judges.max()) for block in blocks)))
    share, spent = 1 / len(blocks), 0.0
    for block, block_squares in zip(blocks, squares, strict=True):
        means = block_squares.means[:, np.searchsorted(block.students, common)]
        k = means.shape[2]
        scores += share * means.mean(axis=2)
        part = share**2 * block_squares.students_items / (k * block_squares.n)
        v_items += part
        spent += float(part[0]) ** 2 / float((s - 1) * (block_squares.n[0] - 1))
        chance += share**2 * block_squares.residual / (k * block_squares.n)
        means = means - means.mean(axis=1, keepdims=True)
        means -= means.mean(axis=2, keepdims=True)
        views[:, :, block.judges] += share * means / np.sqrt(k * (k - 1))
    error = v_items + (views**2).sum(axis=(1, 2)) / (s - 1) - chance
    degrees = (s - 1.0, float(v_items[0]) ** 2 / spent if spent else 1.0)
    return OverallVariances(scores.var(axis=1, ddof=1), v_items, error, degrees)


def _reliability_without_judge(
    blocks: Sequence[Block], group: Sequence[NDArray[np.int64]], groups: int, judge: int
) -> Floats:
    """Return Eρ² (R,) without a judge; NaN if some task has only one other."""
    remaining = []
    for block in blocks:
        others = block.judges != judge
        remaining.append(block._replace(cells=block.cells[:, :, others], judges=block.judges[others]))
    if any(len(block.judges) < _FEWEST for block in remaining):
        return np.full(groups + 1, np.nan)
    squares = [mean_squares(block.cells, own, groups) for block, own in zip(remaining, group, strict=True)]
    return variances_of_overall_means(remaining, squares).reliability


def _reliability_bounds(log_unreliability: Measured) -> Bounds | None:
    """Return the bounds of Eρ², a share, from those of the logarithm of its complement."""
    if log_unreliability.low is None or log_unreliability.high is None:
        return None
    ends = 1 - np.exp(np.minimum([log_unreliability.high, log_unreliability.low], 0.0))
    return Bounds(float(ends[0]), float(ends[1]))


def _build_component(values: Floats, items: int) -> Component:
    variance = _jackknife_interval(values, items)
    value, low, high = (None if end is None else max(end, 0.0) ** 0.5 for end in variance[:3])
    return Component(variance, Measured(value, low, high, items, 0))


def _jackknife_interval(values: Floats, items: int, ends: Bounds = _ENDLESS) -> Measured:
    """Return an estimate with its t interval from the ``values`` that leave out one group of items each,
    after the first; bounds lie within ``ends``."""
    value, left = float(values[0]), values[1:]
    groups = len(left)
    if groups < _FEWEST or not np.isfinite(left).all():
        return Measured.with_bounds(value, None, items, 0)
    half = float(stdtrit(groups - 1, (1 + LEVEL) / 2)) * jackknife_error(left)
    return Measured.with_bounds(
        value, Bounds(*np.clip([value - half, value + half], *ends).tolist()), items, 0
    )
