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
    LEVELS,
    LINEAR,
    STRICT,
    Agreement,
    Drawn,
    Ends,
    PanelSums,
    Reweighting,
    agreement,
    at_ends,
    correlations,
    kappa,
    krippendorff_alpha,
    pair_tables,
    panel_sums,
    spread,
    unseen_agreement,
    weight_at_ends,
)
from coeval.analysis.measures.measured import FILES, NOT_MEASURED, Entity, Measured, ShownAs, with_bounds
from coeval.analysis.measures.score_grid import LevelCounts, ScoreGrid
from coeval.analysis.panel.bias_ledger import JudgeBiases

# Units that a judge must have in common with others to be ranked.
FEWEST_COMMON = 30


class PairAgreement(Entity, frozen=True):
    """How far two judges agree, or one with itself where it was asked the very same again."""

    spa: Annotated[Measured, ShownAs("Share of equal levels", "Equal", "spa")]
    wpa: Annotated[Measured, ShownAs("1 where equal, half where adjacent", "Weighted", "wpa")]
    kappa: Annotated[Measured, ShownAs("Agreement beyond chance (Cohen 1960)", "κ", "kappa")]
    count: Annotated[int, ShownAs("Units that both scored", "Common scores", kind="count")]


class JudgeAgreement(Entity, frozen=True):
    """A judge's means over the other judges, plain and weighted by common units; it is ``degenerate``, and
    not ranked, with fewer than `FEWEST_COMMON` of these."""

    spa_mean: Annotated[Measured, ShownAs("Equal levels, mean over the other judges", "Equal", "spa")]
    wpa_mean: Annotated[Measured, ShownAs("Weighted agreement: half for adjacent levels", "Agreement", "wpa")]
    kappa_mean: Annotated[Measured, ShownAs("Mean over the other judges", "κ, mean", "kappa")]
    spa_weighted: Annotated[Measured, ShownAs("The same by common units", elsewhere=FILES)]
    wpa_weighted: Annotated[Measured, ShownAs("The same by common units", elsewhere=FILES)]
    kappa_weighted: Annotated[Measured, ShownAs("The same by common units", elsewhere=FILES)]
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

    krippendorff_alpha: Annotated[Measured, ShownAs("Of ordinal levels (Krippendorff 2011)", elsewhere=FILES)]
    icc_2_1: Annotated[Measured, ShownAs("Of one judge (Shrout and Fleiss 1979)", elsewhere=FILES)]
    icc_2_k: Annotated[Measured, ShownAs("Of the mean of all judges", elsewhere=FILES)]
    judges: Annotated[tuple[str, ...], ShownAs("Who scored anything", elsewhere=FILES)]
    count: Annotated[int, ShownAs("Units that all of them scored", elsewhere=FILES)]


Weighing: TypeAlias = Callable[[Sequence["JudgePair"]], Floats]
"""What share each pair has in a mean over them: (pairs,), one in all."""


@dataclass(frozen=True, slots=True)
class JudgePair:
    """Two judges, named in order, and what both scored. ``tables`` is (blocks, 3, 3), ``shared`` (I,) says of
    which datapoints; ``kappas`` are the draws of their κ; ``missing`` counts the units of which one or the
    other is lacking."""

    first: str
    second: str
    tables: Floats
    shared: NDArray[np.bool_]
    found: Agreement
    kappas: Drawn
    missing: int

    @property
    def count(self) -> int:
        return int(self.tables.sum())


def judge_pairs(grid: ScoreGrid, reweighting: Reweighting) -> list[JudgePair]:
    """Of all judges of a run."""
    pairs = []
    valid, block = grid.valid, reweighting.block[grid.item]
    for one, other in combinations(range(len(grid.judges)), 2):
        tables = pair_tables(grid.levels[:, one], grid.levels[:, other], block, reweighting.blocks)
        shared = np.zeros(len(grid.items.ids), bool)
        shared[grid.item[valid[:, one] & valid[:, other]]] = True
        judges = (grid.judges[one], grid.judges[other])
        missing = _possible(grid, judges) - int(tables.sum())
        pairs.append(judge_pair(judges, tables, shared, missing, reweighting))
    return pairs


def judge_pair(
    judges: tuple[str, str],
    tables: Floats,
    shared: NDArray[np.bool_],
    missing: int,
    reweighting: Reweighting,
) -> JudgePair:
    """Of their ``tables``, (blocks, 3, 3)."""
    kappas = _kappas(tables, int(shared.sum()), reweighting)
    return JudgePair(*judges, tables, shared, agreement(tables.sum(axis=0)), kappas, missing)


def pair_measures(pairs: Sequence[JudgePair]) -> dict[tuple[str, str], PairAgreement]:
    return {(pair.first, pair.second): measures_of_pair(pair) for pair in pairs}


def measures_of_pair(pair: JudgePair) -> PairAgreement:
    return PairAgreement(*_measures([pair] if pair.count else [], _alike), count=pair.count)


def judge_agreement(grid: ScoreGrid, pairs: Sequence[JudgePair]) -> dict[str, JudgeAgreement]:
    """By judge."""
    found = {}
    for judge in grid.judges:
        mine = [pair for pair in pairs if judge in (pair.first, pair.second) and pair.count]
        common = sum(pair.count for pair in mine)
        measures = (*_measures(mine, _alike), *_measures(mine, _by_count))
        found[judge] = JudgeAgreement(*measures, degenerate=common < FEWEST_COMMON, count=common)
    return found


def judge_measures(
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


def _kappas(tables: Floats, items: int, reweighting: Reweighting) -> Drawn:
    alone = reweighting.draws(tables.reshape(len(tables), LEVELS**2))
    if not items:
        return Drawn(*[np.full(len(alone), np.nan)] * 3)
    weight = weight_at_ends(unseen_agreement(tables, items))
    with_ends = reweighting.with_ends(alone, _ends(tables.sum(axis=0), items), weight, weight)
    of_alone, of_both = (kappa(flat.reshape(-1, *tables.shape[1:])) for flat in (alone, with_ends))
    return Drawn(of_alone, of_both, of_both)


def _ends(table: Floats, items: int) -> Ends:
    """Of a datapoint with as many units as others have: all scored alike, or each by its judge's habit."""
    units = table.sum()
    first, second = at_ends(table.sum(axis=1) / units), at_ends(table.sum(axis=0) / units)
    each = units / items
    return Ends((np.diag((first + second) / 2) * each).ravel(), (np.outer(first, second) * each).ravel())


def _possible(grid: ScoreGrid, judges: tuple[str, str]) -> int:
    """Units that these judges were both to score: those of the answers that anybody scored."""
    both = np.array([design.judges >= set(judges) for design in grid.designs], bool)
    return int(both[grid.task].sum())


def _measures(pairs: Sequence[JudgePair], weigh: Weighing) -> tuple[Measured, Measured, Measured]:
    """``spa``, ``wpa`` and ``kappa`` as the weighted mean over pairs; κ over those that have one."""
    if not pairs:
        return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
    items = int(np.logical_or.reduce([pair.shared for pair in pairs]).sum())
    missing = sum(pair.missing for pair in pairs)
    strict, linear = (
        with_bounds(*_mean_share(pairs, weigh(pairs), agreeing), items, missing)
        for agreeing in (STRICT, LINEAR)
    )
    defined = [pair for pair in pairs if np.isfinite(pair.found.kappa)]
    if not defined:
        return strict, linear, with_bounds(math.nan, None, items, missing)
    weights = weigh(defined)
    value = float(weights @ [float(pair.found.kappa) for pair in defined])
    drawn = Drawn(*(weights @ np.stack(of) for of in zip(*(pair.kappas for pair in defined), strict=True)))
    return strict, linear, with_bounds(value, spread(drawn, value, items), items, missing)


def _mean_share(pairs: Sequence[JudgePair], weights: Floats, agreeing: Floats) -> tuple[float, Bounds]:
    """The weighted mean over pairs of the share of their units that agree, with the interval of a mean that
    is clustered by datapoint: a datapoint's distance is the weighted sum of those that it has in each
    pair."""
    items = int(np.logical_or.reduce([pair.shared for pair in pairs]).sum())
    distances = np.zeros(len(pairs[0].tables))
    value = 0.0
    for pair, weight in zip(pairs, weights, strict=True):
        sizes, sums = pair.tables.sum(axis=(1, 2)), (pair.tables * agreeing).sum(axis=(1, 2))
        share = sums.sum() / sizes.sum()
        value += float(weight * share)
        distances += weight * (sums - share * sizes) / sizes.sum()
    scatter = Scatter(items, float(distances @ distances) * items**2)
    return value, mean_bounds(min(max(value, 0.0), 1.0), [scatter])


def _alike(pairs: Sequence[JudgePair]) -> Floats:
    return np.full(len(pairs), 1 / len(pairs))


def _by_count(pairs: Sequence[JudgePair]) -> Floats:
    counts = np.array([pair.count for pair in pairs], np.float64)
    return np.asarray(counts / counts.sum(), np.float64)


# --- Reliability of a run's judges

# Units at a time: a dozen float columns of so many take 12 MB.
_CHUNK = 1 << 17


def panel_measures(grid: ScoreGrid, reweighting: Reweighting) -> PanelMeasures:
    judges = [place for place in range(len(grid.judges)) if grid.valid[:, place].any()]
    levels = grid.levels[:, judges]
    whole = (levels >= 0).all(axis=1) if judges else np.zeros(len(grid.item), bool)
    items = len(np.unique(grid.item[whole]))
    missing = int((levels < 0).sum())
    count = int(whole.sum())
    found = [with_bounds(math.nan, None, items, missing)] * 3
    if len(judges) >= 2 and count >= FEWEST_COMMON:
        flat = _by_block(levels[whole], reweighting.block[grid.item[whole]], reweighting.blocks)
        drawn = _drawn(flat, _panel_ends(levels[whole], count / items), items, reweighting)
        values = _values(flat.sum(axis=0), len(judges))
        found = [
            with_bounds(float(value), spread(of_draws, float(value), items), items, missing)
            for value, of_draws in zip(values, drawn, strict=True)
        ]
    alpha, single, average = found
    return PanelMeasures(alpha, single, average, tuple(grid.judges[place] for place in judges), count)


class _Values(NamedTuple):
    alpha: Floats
    single: Floats
    average: Floats


def _flat(sums: PanelSums) -> Floats:
    """(…, 9 + 3 + k)"""
    tables = sums.coincidences.reshape(*sums.coincidences.shape[:-2], -1)
    others = np.stack([sums.units, sums.squares, sums.rows], axis=-1)
    return np.concatenate([tables, others, sums.columns], axis=-1)


def _values(flat: Floats, judges: int) -> _Values:
    tables = flat[..., : LEVELS**2].reshape(*flat.shape[:-1], LEVELS, LEVELS)
    units, squares, rows = (flat[..., LEVELS**2 + at] for at in range(3))
    sums = PanelSums(tables, units, squares, rows, flat[..., -judges:])
    return _Values(krippendorff_alpha(tables), *correlations(sums))


def _drawn(flat: Floats, ends: Ends, items: int, reweighting: Reweighting) -> tuple[Drawn, Drawn, Drawn]:
    """α, and both correlations.

    α takes its distances between levels from how often these occur, so a datapoint at one end would hide what
    one at the other might do. The less has been seen, the more its lower bound knows the worse end alone (and
    up to a quarter as much again of it, found by simulation), the upper one the better.
    """
    judges = flat.shape[-1] - LEVELS**2 - 3
    unseen = unseen_agreement(flat[:, : LEVELS**2].reshape(-1, LEVELS, LEVELS), items)
    weight, seen = weight_at_ends(unseen), 1 - unseen
    plain = reweighting.draws(flat)
    alone, both, worse, better = (
        _values(reweighting.with_ends(plain, ends, best * weight, worst * weight), judges)
        for best, worst in ((0.0, 0.0), (1.0, 1.0), (seen, 1 + unseen / 4), (1.0, seen))
    )
    return (
        Drawn(alone.alpha, worse.alpha, better.alpha),
        Drawn(alone.single, both.single, both.single),
        Drawn(alone.average, both.average, both.average),
    )


def _by_block(levels: NDArray[np.int8], block: NDArray[np.int64], blocks: int) -> Floats:
    """The sums of complete units, (blocks, 9 + 3 + k); so many units at a time that memory stays small."""
    whole = np.zeros((blocks, LEVELS**2 + 3 + levels.shape[1]))
    for first in range(0, len(levels), _CHUNK):
        some = slice(first, first + _CHUNK)
        columns = _flat(panel_sums(levels[some])).T
        whole += np.stack([np.bincount(block[some], column, blocks) for column in columns], axis=-1)
    return whole


def _panel_ends(levels: NDArray[np.int8], units: float) -> Ends:
    """Of a datapoint of so many units: all judges give the same level, or each one of its own by chance."""
    judges = levels.shape[1]
    shares = at_ends(np.stack([(levels == level).mean(axis=0) for level in range(LEVELS)], axis=-1))
    x = np.arange(LEVELS)
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
    return Ends(_flat(best) * units, _flat(worst) * units)
