"""How far judges agree with each other, pair by pair and judge by judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Bounds, Floats, Scatter, mean_bounds
from coeval.analysis.measures.agreement import (
    AlphaAndIcc,
    BootstrapDraws,
    Ends,
    LevelScale,
    PanelSums,
    Reweighting,
    bootstrap_interval,
    compute_alpha_and_icc,
    panel_sums_by_unit,
    smooth_level_shares,
    tabulate_pair_levels,
    unseen_agreement_share,
    weight_of_end_items,
)
from coeval.analysis.measures.measure_tree import FILES, NOT_MEASURED, Entity, Measured, ShownAs
from coeval.analysis.measures.score_grid import LevelCounts, ScoreGrid, count_levels_by_judge
from coeval.analysis.panel.bias_ledger import JudgeBiases

# Units that a judge must have in common with others to be ranked.
FEWEST_COMMON = 30


class PairAgreement(Entity, frozen=True):
    """How far two judges agree, or one with itself where it judged the same text again."""

    spa: Annotated[Measured, ShownAs("Share of equal levels", "Equal", "spa", "share")]
    wpa: Annotated[Measured, ShownAs("1 − distance between the two values", "Weighted", "wpa", "share")]
    kappa: Annotated[
        Measured,
        ShownAs("Agreement beyond chance: Cohen 1960; other scales: 1968", "κ", "kappa", "coefficient"),
    ]
    count: Annotated[int, ShownAs("Units that both scored", "Common scores", kind="count")]


class JudgeAgreement(Entity, frozen=True):
    """A judge's mean agreement with the other judges, plain and weighted by common units. With fewer than
    `FEWEST_COMMON` of these it is ``degenerate``, and not ranked."""

    spa_mean: Annotated[
        Measured, ShownAs("Equal levels, mean over the other judges", "Equal", "spa", "share")
    ]
    wpa_mean: Annotated[
        Measured, ShownAs("Weighted agreement: half for adjacent levels", "Agreement", "wpa", "share")
    ]
    kappa_mean: Annotated[Measured, ShownAs("Mean over the other judges", "κ, mean", "kappa", "coefficient")]
    spa_weighted: Annotated[Measured, ShownAs("Weighted by common units", kind="share", elsewhere=FILES)]
    wpa_weighted: Annotated[Measured, ShownAs("Weighted by common units", kind="share", elsewhere=FILES)]
    kappa_weighted: Annotated[
        Measured, ShownAs("Weighted by common units", kind="coefficient", elsewhere=FILES)
    ]
    degenerate: Annotated[bool, ShownAs("Too few common scores to be ranked", elsewhere="panel")]
    count: Annotated[int, ShownAs("Units in common with other judges", "Common scores", kind="count")]


class JudgeMeasures(JudgeAgreement, frozen=True):
    """All measures of a judge."""

    levels: Annotated[LevelCounts, ShownAs("Scores at each level", elsewhere="judge-levels")]
    bias: Annotated[JudgeBiases, ShownAs("Judge biases", elsewhere="biases")]
    consistency: Annotated[
        PairAgreement | None, ShownAs("With itself; None: nothing was judged twice", elsewhere="itself")
    ]


class PanelMeasures(Entity, frozen=True):
    """Reliability of all ``judges`` who scored anything, over the ``count`` of units (`FEWEST_COMMON` or
    more, or else undefined) that each of them scored."""

    krippendorff_alpha: Annotated[
        Measured, ShownAs("For ordinal levels (Krippendorff 2011)", kind="coefficient", elsewhere=FILES)
    ]
    icc_2_1: Annotated[
        Measured, ShownAs("For one judge (Shrout and Fleiss 1979)", kind="coefficient", elsewhere=FILES)
    ]
    icc_2_k: Annotated[Measured, ShownAs("For the mean of all judges", kind="coefficient", elsewhere=FILES)]
    judges: Annotated[tuple[str, ...], ShownAs("Judges who scored anything", elsewhere=FILES)]
    count: Annotated[int, ShownAs("Units that all of them scored", elsewhere=FILES)]
    kappa_weights: Annotated[
        str | None, ShownAs("Weighting of levels in κ; None: unweighted", elsewhere="agreement")
    ] = None


@dataclass(frozen=True, slots=True)
class JudgePair:
    """Two judges, named in order, and what both scored. ``units``, ``same`` and ``near`` are (blocks,): their
    units, those with equal levels, and the sum of their weighted agreement. ``shared`` (I,) marks the
    items; ``kappas`` are draws of ``kappa``; ``missing`` counts the units that one of them lacks."""

    first: str
    second: str
    units: Floats
    same: Floats
    near: Floats
    shared: NDArray[np.bool_]
    kappa: float
    kappas: BootstrapDraws
    missing: int

    @property
    def count(self) -> int:
        return int(self.units.sum())


def level_scale(grid: ScoreGrid) -> LevelScale:
    return LevelScale(grid.scale, weighted=not grid.has_default_scale)


def compare_judge_pairs(grid: ScoreGrid, reweighting: Reweighting) -> list[JudgePair]:
    pairs = []
    valid, block, scale = grid.valid, reweighting.block[grid.item], level_scale(grid)
    for first, second in combinations(range(len(grid.judges)), 2):
        levels = grid.levels[:, first], grid.levels[:, second]
        tables = tabulate_pair_levels(*levels, block, reweighting.blocks, len(grid.scale))
        shared = np.zeros(len(grid.items.ids), bool)
        shared[grid.item[valid[:, first] & valid[:, second]]] = True
        judges = (grid.judges[first], grid.judges[second])
        # Units that both were to score: those of the answers that anybody scored.
        both = np.array([design.judges >= set(judges) for design in grid.designs], bool)
        missing = int(both[grid.task].sum()) - int(tables.sum())
        pairs.append(compare_two_judges(judges, tables, shared, missing, scale, reweighting))
    return pairs


def compare_two_judges(
    judges: tuple[str, str],
    tables: Floats,
    shared: NDArray[np.bool_],
    missing: int,
    scale: LevelScale,
    reweighting: Reweighting,
) -> JudgePair:
    """Compare two judges, or one with itself. ``tables`` (blocks, K, K): the units that both scored by their
    levels; ``shared`` and ``missing`` as in `JudgePair`."""
    return JudgePair(
        *judges,
        tables.sum(axis=(1, 2)),
        np.trace(tables, axis1=1, axis2=2),
        (tables * scale.linear).sum(axis=(1, 2)),
        shared,
        float(scale.plain_or_linear_kappa(tables.sum(axis=0))),
        _bootstrap_kappa(tables, int(shared.sum()), scale, reweighting),
        missing,
    )


def measure_judge_pairs(pairs: Sequence[JudgePair]) -> dict[tuple[str, str], PairAgreement]:
    return {(pair.first, pair.second): measure_judge_pair(pair) for pair in pairs}


def measure_judge_pair(pair: JudgePair) -> PairAgreement:
    return PairAgreement(*_mean_spa_wpa_kappa([pair] if pair.count else []), count=pair.count)


def mean_agreement_by_judge(grid: ScoreGrid, pairs: Sequence[JudgePair]) -> dict[str, JudgeAgreement]:
    agreement_of_judge = {}
    for judge in grid.judges:
        own_pairs = [pair for pair in pairs if judge in (pair.first, pair.second) and pair.count]
        common = sum(pair.count for pair in own_pairs)
        measures = (
            *_mean_spa_wpa_kappa(own_pairs),
            *_mean_spa_wpa_kappa(own_pairs, by_count=True),
        )
        agreement_of_judge[judge] = JudgeAgreement(*measures, degenerate=common < FEWEST_COMMON, count=common)
    return agreement_of_judge


def combine_judge_measures(
    grid: ScoreGrid,
    agreement: Mapping[str, JudgeAgreement],
    biases: Mapping[str, JudgeBiases],
    consistency: Mapping[str, PairAgreement | None],
) -> dict[str, JudgeMeasures]:
    """Combine the parts of each judge's measures, by judge, with its scores at each level of the grid."""
    levels = count_levels_by_judge(grid)
    return {
        name: JudgeMeasures(
            **msgspec.structs.asdict(own),
            levels=levels[name],
            bias=biases[name],
            consistency=consistency[name],
        )
        for name, own in agreement.items()
    }


def _bootstrap_kappa(
    tables: Floats, items: int, scale: LevelScale, reweighting: Reweighting
) -> BootstrapDraws:
    plain = reweighting.draw_sums(tables.reshape(len(tables), math.prod(tables.shape[1:])))
    if not items:
        return BootstrapDraws(*[np.full(len(plain), np.nan)] * 3)
    weight = weight_of_end_items(unseen_agreement_share(tables, items, scale.linear))
    with_ends = reweighting.add_ends(plain, _pair_ends(tables.sum(axis=0), items), weight, weight)
    plain_kappas, kappas_with_ends = (
        scale.plain_or_linear_kappa(flat.reshape(-1, *tables.shape[1:])) for flat in (plain, with_ends)
    )
    return BootstrapDraws(plain_kappas, kappas_with_ends, kappas_with_ends)


def _pair_ends(table: Floats, items: int) -> Ends:
    """Return what an average item would add at either end: units scored alike, or by each judge's habit."""
    units = table.sum()
    first, second = (
        smooth_level_shares(table.sum(axis=1) / units),
        smooth_level_shares(table.sum(axis=0) / units),
    )
    units_per_item = units / items
    return Ends(
        (np.diag((first + second) / 2) * units_per_item).ravel(),
        (np.outer(first, second) * units_per_item).ravel(),
    )


def _mean_spa_wpa_kappa(
    pairs: Sequence[JudgePair], *, by_count: bool = False
) -> tuple[Measured, Measured, Measured]:
    """Return ``spa``, ``wpa`` and ``kappa`` as means over pairs, κ over those that have one; ``by_count``:
    weighted by common units."""
    if not pairs:
        return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
    items = int(np.logical_or.reduce([pair.shared for pair in pairs]).sum())
    missing = sum(pair.missing for pair in pairs)
    strict, linear = (
        Measured.with_bounds(*_mean_agreement(pairs, _pair_weights(pairs, by_count), sums), items, missing)
        for sums in ([pair.same for pair in pairs], [pair.near for pair in pairs])
    )
    defined = [pair for pair in pairs if math.isfinite(pair.kappa)]
    if not defined:
        return strict, linear, Measured.with_bounds(math.nan, None, items, missing)
    weights = _pair_weights(defined, by_count)
    value = float(weights @ [pair.kappa for pair in defined])
    drawn = BootstrapDraws(
        *(weights @ np.stack(kappas) for kappas in zip(*(pair.kappas for pair in defined), strict=True))
    )
    return (
        strict,
        linear,
        Measured.with_bounds(value, bootstrap_interval(drawn, value, items), items, missing),
    )


def _mean_agreement(
    pairs: Sequence[JudgePair], weights: Floats, agreed: Sequence[Floats]
) -> tuple[float, Bounds]:
    """Return the weighted mean over pairs of their agreement, whose sums are ``agreed`` (blocks,), with its
    interval clustered by item: an item's distance is the weighted sum of those that it has in each pair."""
    items = int(np.logical_or.reduce([pair.shared for pair in pairs]).sum())
    distances = np.zeros(len(pairs[0].units))
    value = 0.0
    for pair, weight, sums in zip(pairs, weights, agreed, strict=True):
        sizes = pair.units
        share = sums.sum() / sizes.sum()
        value += float(weight * share)
        distances += weight * (sums - share * sizes) / sizes.sum()
    scatter = Scatter(items, float(distances @ distances) * items**2)
    return value, mean_bounds(value, [scatter])


def _pair_weights(pairs: Sequence[JudgePair], by_count: bool) -> Floats:
    counts = np.array([pair.count if by_count else 1 for pair in pairs], np.float64)
    return np.asarray(counts / counts.sum(), np.float64)


# --- Reliability of a run's judges

# Numbers per chunk: with three levels and judges, 16 columns of some 131,000 units, 16 MB.
_CHUNK = (1 << 17) * 16


def measure_panel(grid: ScoreGrid, reweighting: Reweighting) -> PanelMeasures:
    """Measure how reliable all judges of a grid are together, with intervals."""
    judges = [at for at in range(len(grid.judges)) if grid.valid[:, at].any()]
    levels = grid.levels[:, judges]
    is_complete = (levels >= 0).all(axis=1) if judges else np.zeros(len(grid.item), bool)
    items = len(np.unique(grid.item[is_complete]))
    missing = int((levels < 0).sum())
    count = int(is_complete.sum())
    measured = [Measured.with_bounds(math.nan, None, items, missing)] * 3
    if len(judges) >= 2 and count >= FEWEST_COMMON:
        block = reweighting.block[grid.item[is_complete]]
        flat = _sum_complete_units(levels[is_complete], grid.scale, block, reweighting.blocks)
        ends = _panel_ends(levels[is_complete], grid.scale, count / items)
        drawn = _bootstrap_alpha_and_correlations(flat, grid.scale, ends, items, reweighting)
        values = _alpha_and_icc_from_sums(flat.sum(axis=0), len(grid.scale))
        measured = [
            Measured.with_bounds(
                float(value), bootstrap_interval(of_draws, float(value), items), items, missing
            )
            for value, of_draws in zip(values, drawn, strict=True)
        ]
    alpha, single, average = measured
    names = tuple(grid.judges[at] for at in judges)
    return PanelMeasures(alpha, single, average, names, count, None if grid.has_default_scale else "linear")


def _flatten_sums(sums: PanelSums) -> Floats:
    """Return panel sums as one row of numbers, (…, K² + 3 + k)."""
    tables = sums.coincidences.reshape(*sums.coincidences.shape[:-2], -1)
    others = np.stack([sums.units, sums.squares, sums.rows], axis=-1)
    return np.concatenate([tables, others, sums.columns], axis=-1)


def _alpha_and_icc_from_sums(flat_sums: Floats, levels: int) -> AlphaAndIcc:
    tables = flat_sums[..., : levels**2].reshape(*flat_sums.shape[:-1], levels, levels)
    units, squares, rows = (flat_sums[..., levels**2 + at] for at in range(3))
    return compute_alpha_and_icc(PanelSums(tables, units, squares, rows, flat_sums[..., levels**2 + 3 :]))


def _bootstrap_alpha_and_correlations(
    flat_sums: Floats, scale: Floats, ends: Ends, items: int, reweighting: Reweighting
) -> tuple[BootstrapDraws, BootstrapDraws, BootstrapDraws]:
    """Draw α and both correlations. α takes its distances between levels from how often these occur, so an
    item at one end would hide what one at the other might do. The less is seen, the more its lower bound
    uses the worse end alone (and up to a quarter more, found by simulation), its upper bound the better."""
    levels = len(scale)
    tables = flat_sums[:, : levels**2].reshape(-1, levels, levels)
    unseen = unseen_agreement_share(tables, items, LevelScale(scale).linear)
    weight, seen = weight_of_end_items(unseen), 1 - unseen
    drawn = reweighting.draw_sums(flat_sums)
    plain, both, worse, better = (
        _alpha_and_icc_from_sums(reweighting.add_ends(drawn, ends, best * weight, worst * weight), levels)
        for best, worst in ((0.0, 0.0), (1.0, 1.0), (seen, 1 + unseen / 4), (1.0, seen))
    )
    return (
        BootstrapDraws(plain.alpha, worse.alpha, better.alpha),
        BootstrapDraws(plain.single, both.single, both.single),
        BootstrapDraws(plain.average, both.average, both.average),
    )


def _sum_complete_units(
    levels: NDArray[np.int8], scale: Floats, block: NDArray[np.int64], blocks: int
) -> Floats:
    """Sum complete units by block, (blocks, K² + 3 + k), in chunks so that memory stays small."""
    sums_by_block = np.zeros((blocks, len(scale) ** 2 + 3 + levels.shape[1]))
    step = max(_CHUNK // sums_by_block.shape[1], 1)
    for first in range(0, len(levels), step):
        chunk = slice(first, first + step)
        columns = _flatten_sums(panel_sums_by_unit(levels[chunk], scale)).T
        sums_by_block += np.stack([np.bincount(block[chunk], column, blocks) for column in columns], axis=-1)
    return sums_by_block


def _panel_ends(levels: NDArray[np.int8], scale: Floats, units_per_item: float) -> Ends:
    """Return what an item of so many ``units`` would add: all judges alike, or each its own by chance."""
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
    return Ends(_flatten_sums(best) * units_per_item, _flatten_sums(worst) * units_per_item)
