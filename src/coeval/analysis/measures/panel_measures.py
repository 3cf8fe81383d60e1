"""How reliable a run's judges are together, over the units that all compared judges scored."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import LEVELS
from coeval.analysis.measures.judge_measures import FEWEST_COMMON
from coeval.analysis.measures.measured import Branch, with_bounds
from coeval.analysis.measures.reliability import PanelSums, correlations, krippendorff_alpha, panel_sums
from coeval.analysis.measures.reweighting import (
    Drawn,
    Ends,
    Reweighting,
    at_ends,
    spread,
    unseen_agreement,
    weight_at_ends,
)
from coeval.analysis.measures.score_grid import ScoreGrid

__all__ = ["panel_measures"]

_CHUNK = 1 << 17
_MEASURES = ("krippendorff_alpha", "icc_2_1", "icc_2_k")


def panel_measures(grid: ScoreGrid, reweighting: Reweighting) -> Branch:
    """``krippendorff_alpha`` (ordinal), ``icc_2_1``, ``icc_2_k`` of the ``judges``, all who scored anything,
    over the ``count`` of units that each of them scored; None below `FEWEST_COMMON` of these."""
    judges = [place for place in range(len(grid.judges)) if grid.valid[:, place].any()]
    levels = grid.levels[:, judges]
    whole = (levels >= 0).all(axis=1) if judges else np.zeros(len(grid.item), bool)
    items = len(np.unique(grid.item[whole]))
    missing = int((levels < 0).sum())
    count = int(whole.sum())
    found: Branch = {name: with_bounds(math.nan, None, items, missing) for name in _MEASURES}
    if len(judges) >= 2 and count >= FEWEST_COMMON:
        flat = _by_block(levels[whole], reweighting.block[grid.item[whole]], reweighting.blocks)
        drawn = _drawn(flat, _ends(levels[whole], count / items), items, reweighting)
        values = _values(flat.sum(axis=0), len(judges))
        for name, value, of_draws in zip(_MEASURES, values, drawn, strict=True):
            found[name] = with_bounds(float(value), spread(of_draws, float(value), items), items, missing)
    return {**found, "judges": [grid.judges[place] for place in judges], "count": count}


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
    """In the order of `_MEASURES`.

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


def _ends(levels: NDArray[np.int8], units: float) -> Ends:
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
