"""How far judges agree with each other, pair by pair and judge by judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Bounds, Floats, Scatter, mean_bounds
from coeval.analysis.measures.agreement import (
    Agreement,
    BootstrapDraws,
    Ends,
    LevelScale,
    PanelSums,
    Reweighting,
    bootstrap_interval,
    compute_agreement,
    intraclass_correlations,
    krippendorff_alpha,
    linear_weights,
    smooth_level_shares,
    sum_by_unit,
    tabulate_pair_levels,
    unseen_agreement,
    weight_of_ends,
)
from coeval.analysis.measures.measure_tree import (
    FILES,
    NOT_MEASURED,
    Entity,
    Measured,
    ShownAs,
    measured_with_bounds,
)
from coeval.analysis.measures.score_grid import LevelCounts, ScoreGrid
from coeval.analysis.panel.bias_ledger import JudgeBiases

# Units that a judge must have in common with others to be ranked.
FEWEST_COMMON = 30


class PairAgreement(Entity, frozen=True):
    """How far two judges agree, or one with itself where it was asked the very same again."""

    spa: Annotated[Measured, ShownAs("Share of equal levels", "Equal", "spa", "share")]
    wpa: Annotated[Measured, ShownAs("1 less the distance of the two values", "Weighted", "wpa", "share")]
    kappa: Annotated[
        Measured,
        ShownAs("Agreement beyond chance: Cohen 1960; of other scales, 1968", "κ", "kappa", "coefficient"),
    ]
    count: Annotated[int, ShownAs("Units that both scored", "Common scores", kind="count")]


class JudgeAgreement(Entity, frozen=True):
    """A judge's means over the other judges, plain and weighted by common units; it is ``degenerate``, and
    not ranked, with fewer than `FEWEST_COMMON` of these."""

    spa_mean: Annotated[
        Measured, ShownAs("Equal levels, mean over the other judges", "Equal", "spa", "share")
    ]
    wpa_mean: Annotated[
        Measured, ShownAs("Weighted agreement: half for adjacent levels", "Agreement", "wpa", "share")
    ]
    kappa_mean: Annotated[Measured, ShownAs("Mean over the other judges", "κ, mean", "kappa", "coefficient")]
    spa_weighted: Annotated[Measured, ShownAs("The same by common units", kind="share", elsewhere=FILES)]
    wpa_weighted: Annotated[Measured, ShownAs("The same by common units", kind="share", elsewhere=FILES)]
    kappa_weighted: Annotated[
        Measured, ShownAs("The same by common units", kind="coefficient", elsewhere=FILES)
    ]
    degenerate: Annotated[bool, ShownAs("Too few common scores to be ranked", elsewhere="panel")]
    count: Annotated[int, ShownAs("Units in common with other judges", "Common scores", kind="count")]


class JudgeMeasures(JudgeAgreement, frozen=True):
    levels: Annotated[LevelCounts, ShownAs("Scores at each level", elsewhere="judge-levels")]
    bias: Annotated[JudgeBiases, ShownAs("What it leans on", elsewhere="biases")]
    consistency: Annotated[
        PairAgreement | None,
        ShownAs("With itself; None: nothing was asked twice", elsewhere="itself"),
    ]


class PanelMeasures(Entity, frozen=True):
    """Of all ``judges`` who scored anything, over the ``count`` of units that each of them scored; undefined
    below `FEWEST_COMMON` of these."""

    krippendorff_alpha: Annotated[
        Measured, ShownAs("Of ordinal levels (Krippendorff 2011)", kind="coefficient", elsewhere=FILES)
    ]
    icc_2_1: Annotated[
        Measured, ShownAs("Of one judge (Shrout and Fleiss 1979)", kind="coefficient", elsewhere=FILES)
    ]
    icc_2_k: Annotated[Measured, ShownAs("Of the mean of all judges", kind="coefficient", elsewhere=FILES)]
    judges: Annotated[tuple[str, ...], ShownAs("Who scored anything", elsewhere=FILES)]
    count: Annotated[int, ShownAs("Units that all of them scored", elsewhere=FILES)]
    kappa_weights: Annotated[
        str | None, ShownAs("How κ weighs levels; None: not at all", elsewhere="agreement")
    ] = None


PairWeights: TypeAlias = Callable[[Sequence["JudgePair"]], Floats]
"""What share each pair has in a mean over them: (pairs,), one in all."""


@dataclass(frozen=True, slots=True)
class JudgePair:
    """Two judges, named in order, and what both scored. ``units``, ``same`` and ``near`` are (blocks,): their
    units, those with equal levels, and the sum of their agreement; ``shared`` (I,) says of which datapoints;
    ``kappas`` are the draws of their κ; ``missing`` counts the units of which one or the other is lacking."""

    first: str
    second: str
    units: Floats
    same: Floats
    near: Floats
    shared: NDArray[np.bool_]
    found: Agreement
    kappas: BootstrapDraws
    missing: int

    @property
    def count(self) -> int:
        return int(self.units.sum())


def level_scale(grid: ScoreGrid) -> LevelScale:
    return LevelScale(grid.scale, weighted=not grid.has_default_scale)


def compare_judge_pairs(grid: ScoreGrid, reweighting: Reweighting) -> list[JudgePair]:
    """Of all judges of a run."""
    pairs = []
    valid, block, scale = grid.valid, reweighting.block[grid.item], level_scale(grid)
    for one, other in combinations(range(len(grid.judges)), 2):
        levels = grid.levels[:, one], grid.levels[:, other]
        tables = tabulate_pair_levels(*levels, block, reweighting.blocks, len(grid.scale))
        shared = np.zeros(len(grid.items.ids), bool)
        shared[grid.item[valid[:, one] & valid[:, other]]] = True
        judges = (grid.judges[one], grid.judges[other])
        # Units that both were to score: those of the answers that anybody scored.
        both = np.array([design.judges >= set(judges) for design in grid.designs], bool)
        missing = int(both[grid.task].sum()) - int(tables.sum())
        pairs.append(compare_two_judges(judges, PairTables(tables, shared, missing), scale, reweighting))
    return pairs


class PairTables(NamedTuple):
    """What two judges both scored: ``tables`` (blocks, K, K) of units by their levels; for the others see
    `JudgePair`."""

    tables: Floats
    shared: NDArray[np.bool_]
    missing: int


def compare_two_judges(
    judges: tuple[str, str], found: PairTables, scale: LevelScale, reweighting: Reweighting
) -> JudgePair:
    """Of two judges, or of one with itself."""
    tables = found.tables
    return JudgePair(
        *judges,
        tables.sum(axis=(1, 2)),
        np.trace(tables, axis1=1, axis2=2),
        (tables * scale.linear).sum(axis=(1, 2)),
        found.shared,
        compute_agreement(tables.sum(axis=0), scale),
        _bootstrap_kappa(tables, int(found.shared.sum()), scale, reweighting),
        found.missing,
    )


def measure_judge_pairs(pairs: Sequence[JudgePair]) -> dict[tuple[str, str], PairAgreement]:
    return {(pair.first, pair.second): measure_judge_pair(pair) for pair in pairs}


def measure_judge_pair(pair: JudgePair) -> PairAgreement:
    return PairAgreement(*_mean_over_pairs([pair] if pair.count else [], _equal_weights), count=pair.count)


def agreement_by_judge(grid: ScoreGrid, pairs: Sequence[JudgePair]) -> dict[str, JudgeAgreement]:
    """By judge."""
    found = {}
    for judge in grid.judges:
        mine = [pair for pair in pairs if judge in (pair.first, pair.second) and pair.count]
        common = sum(pair.count for pair in mine)
        measures = (*_mean_over_pairs(mine, _equal_weights), *_mean_over_pairs(mine, _weights_by_count))
        found[judge] = JudgeAgreement(*measures, degenerate=common < FEWEST_COMMON, count=common)
    return found


def combine_judge_measures(
    agreement: Mapping[str, JudgeAgreement],
    levels: Mapping[str, LevelCounts],
    biases: Mapping[str, JudgeBiases],
    consistency: Mapping[str, PairAgreement | None],
) -> dict[str, JudgeMeasures]:
    """All that is known of each judge; the arguments go by judge."""
    return {
        name: JudgeMeasures(
            **msgspec.structs.asdict(found),
            levels=levels[name],
            bias=biases[name],
            consistency=consistency[name],
        )
        for name, found in agreement.items()
    }


def _bootstrap_kappa(
    tables: Floats, items: int, scale: LevelScale, reweighting: Reweighting
) -> BootstrapDraws:
    alone = reweighting.draws(tables.reshape(len(tables), math.prod(tables.shape[1:])))
    if not items:
        return BootstrapDraws(*[np.full(len(alone), np.nan)] * 3)
    weight = weight_of_ends(unseen_agreement(tables, items, scale.linear))
    with_ends = reweighting.with_ends(alone, _pair_ends(tables.sum(axis=0), items), weight, weight)
    of_alone, of_both = (scale.kappa(flat.reshape(-1, *tables.shape[1:])) for flat in (alone, with_ends))
    return BootstrapDraws(of_alone, of_both, of_both)


def _pair_ends(table: Floats, items: int) -> Ends:
    """Of a datapoint with as many units as others have: all scored alike, or each by its judge's habit."""
    units = table.sum()
    first, second = (
        smooth_level_shares(table.sum(axis=1) / units),
        smooth_level_shares(table.sum(axis=0) / units),
    )
    each = units / items
    return Ends((np.diag((first + second) / 2) * each).ravel(), (np.outer(first, second) * each).ravel())


def _mean_over_pairs(pairs: Sequence[JudgePair], weigh: PairWeights) -> tuple[Measured, Measured, Measured]:
    """``spa``, ``wpa`` and ``kappa`` as the weighted mean over pairs; κ over those that have one."""
    if not pairs:
        return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
    items = int(np.logical_or.reduce([pair.shared for pair in pairs]).sum())
    missing = sum(pair.missing for pair in pairs)
    strict, linear = (
        measured_with_bounds(*_mean_agreement(pairs, weigh(pairs), sums), items, missing)
        for sums in ([pair.same for pair in pairs], [pair.near for pair in pairs])
    )
    defined = [pair for pair in pairs if np.isfinite(pair.found.kappa)]
    if not defined:
        return strict, linear, measured_with_bounds(math.nan, None, items, missing)
    weights = weigh(defined)
    value = float(weights @ [float(pair.found.kappa) for pair in defined])
    drawn = BootstrapDraws(
        *(weights @ np.stack(of) for of in zip(*(pair.kappas for pair in defined), strict=True))
    )
    return (
        strict,
        linear,
        measured_with_bounds(value, bootstrap_interval(drawn, value, items), items, missing),
    )


def _mean_agreement(
    pairs: Sequence[JudgePair], weights: Floats, agreed: Sequence[Floats]
) -> tuple[float, Bounds]:
    """The weighted mean over pairs of how far their units agree, of which ``agreed`` (blocks,) has the sum,
    with the interval of a mean that is clustered by datapoint: a datapoint's distance is the weighted sum of
    those that it has in each pair."""
    items = int(np.logical_or.reduce([pair.shared for pair in pairs]).sum())
    distances = np.zeros(len(pairs[0].units))
    value = 0.0
    for pair, weight, sums in zip(pairs, weights, agreed, strict=True):
        sizes = pair.units
        share = sums.sum() / sizes.sum()
        value += float(weight * share)
        distances += weight * (sums - share * sizes) / sizes.sum()
    scatter = Scatter(items, float(distances @ distances) * items**2)
    return value, mean_bounds(min(max(value, 0.0), 1.0), [scatter])


def _equal_weights(pairs: Sequence[JudgePair]) -> Floats:
    return np.full(len(pairs), 1 / len(pairs))


def _weights_by_count(pairs: Sequence[JudgePair]) -> Floats:
    counts = np.array([pair.count for pair in pairs], np.float64)
    return np.asarray(counts / counts.sum(), np.float64)


# --- Reliability of a run's judges

# Numbers at a time: with three levels and judges 16 columns of some 131,000 units, 16 MB.
_CHUNK = (1 << 17) * 16


def measure_panel(grid: ScoreGrid, reweighting: Reweighting) -> PanelMeasures:
    judges = [place for place in range(len(grid.judges)) if grid.valid[:, place].any()]
    levels = grid.levels[:, judges]
    whole = (levels >= 0).all(axis=1) if judges else np.zeros(len(grid.item), bool)
    items = len(np.unique(grid.item[whole]))
    missing = int((levels < 0).sum())
    count = int(whole.sum())
    found = [measured_with_bounds(math.nan, None, items, missing)] * 3
    if len(judges) >= 2 and count >= FEWEST_COMMON:
        block = reweighting.block[grid.item[whole]]
        flat = _sum_by_block(levels[whole], grid.scale, block, reweighting.blocks)
        ends = _panel_ends(levels[whole], grid.scale, count / items)
        drawn = _bootstrap_panel(flat, grid.scale, ends, items, reweighting)
        values = _panel_values(flat.sum(axis=0), len(grid.scale))
        found = [
            measured_with_bounds(
                float(value), bootstrap_interval(of_draws, float(value), items), items, missing
            )
            for value, of_draws in zip(values, drawn, strict=True)
        ]
    alpha, single, average = found
    names = tuple(grid.judges[place] for place in judges)
    return PanelMeasures(alpha, single, average, names, count, None if grid.has_default_scale else "linear")


class _PanelValues(NamedTuple):
    alpha: Floats
    single: Floats
    average: Floats


def _flatten_sums(sums: PanelSums) -> Floats:
    """(…, K² + 3 + k)"""
    tables = sums.coincidences.reshape(*sums.coincidences.shape[:-2], -1)
    others = np.stack([sums.units, sums.squares, sums.rows], axis=-1)
    return np.concatenate([tables, others, sums.columns], axis=-1)


def _panel_values(flat: Floats, levels: int) -> _PanelValues:
    tables = flat[..., : levels**2].reshape(*flat.shape[:-1], levels, levels)
    units, squares, rows = (flat[..., levels**2 + at] for at in range(3))
    sums = PanelSums(tables, units, squares, rows, flat[..., levels**2 + 3 :])
    return _PanelValues(krippendorff_alpha(tables), *intraclass_correlations(sums))


def _bootstrap_panel(
    flat: Floats, scale: Floats, ends: Ends, items: int, reweighting: Reweighting
) -> tuple[BootstrapDraws, BootstrapDraws, BootstrapDraws]:
    """α, and both correlations.

    α takes its distances between levels from how often these occur, so a datapoint at one end would hide what
    one at the other might do. The less has been seen, the more its lower bound knows the worse end alone (and
    up to a quarter as much again of it, found by simulation), the upper one the better.
    """
    levels = len(scale)
    tables = flat[:, : levels**2].reshape(-1, levels, levels)
    unseen = unseen_agreement(tables, items, linear_weights(scale))
    weight, seen = weight_of_ends(unseen), 1 - unseen
    plain = reweighting.draws(flat)
    alone, both, worse, better = (
        _panel_values(reweighting.with_ends(plain, ends, best * weight, worst * weight), levels)
        for best, worst in ((0.0, 0.0), (1.0, 1.0), (seen, 1 + unseen / 4), (1.0, seen))
    )
    return (
        BootstrapDraws(alone.alpha, worse.alpha, better.alpha),
        BootstrapDraws(alone.single, both.single, both.single),
        BootstrapDraws(alone.average, both.average, both.average),
    )


def _sum_by_block(levels: NDArray[np.int8], scale: Floats, block: NDArray[np.int64], blocks: int) -> Floats:
    """The sums of complete units, (blocks, K² + 3 + k); so many units at a time that memory stays small."""
    whole = np.zeros((blocks, len(scale) ** 2 + 3 + levels.shape[1]))
    step = max(_CHUNK // whole.shape[1], 1)
    for first in range(0, len(levels), step):
        some = slice(first, first + step)
        columns = _flatten_sums(sum_by_unit(levels[some], scale)).T
        whole += np.stack([np.bincount(block[some], column, blocks) for column in columns], axis=-1)
    return whole


def _panel_ends(levels: NDArray[np.int8], scale: Floats, units: float) -> Ends:
    """Of a datapoint of so many units: all judges give the same level, or each one of its own by chance."""
    judges = levels.shape[1]
    shares = smooth_level_shares(
        np.stack([(levels == level).mean(axis=0) for level in range(len(scale))], axis=-1)
    )
    x = scale
    mean, square = shares @ x, shares @ x**2
    together = shares.mean(axis=0)
    crossed = np.outer(shares.sum(axis=0), shares.sum(axis=0)) - shares.T @ shares
    best = PanelSums(
        np.diag(together) * judges,
        np.array(1.0),
        np.array(judges * (together @ x**2)),
        np.array(judges**2 * (together @ x**2)),
        np.full(judges, together @ x),
    )
    worst = PanelSums(
        crossed / (judges - 1),
        np.array(1.0),
        np.array(square.sum()),
        np.array((square - mean**2).sum() + mean.sum() ** 2),
        mean,
    )
    return Ends(_flatten_sums(best) * units, _flatten_sums(worst) * units)
