"""How far judges agree, pair by pair.

All is computed from tables of counts: ``T[a, b]`` units, that is (response, factor), that one judge scored at
level a and the other at level b, levels being 0 Low, 1 Medium, 2 High. Every function takes an array of such
tables, (…, 3, 3), and gives one number for each, NaN where it is not defined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import Codes

__all__ = [
    "LEVELS",
    "LINEAR",
    "STRICT",
    "Agreement",
    "agreement",
    "kappa",
    "pair_tables",
    "spa",
    "weighted_kappa",
    "wpa",
]

LEVELS = 3
STRICT: Floats = np.eye(LEVELS)
LINEAR: Floats = 1 - np.abs(np.subtract.outer(np.arange(LEVELS), np.arange(LEVELS))) / (LEVELS - 1)
"""How far two levels agree: wholly or not at all; wholly, half where they are adjacent, or not at all."""


class Agreement(NamedTuple):
    """Of each table: (…,)."""

    spa: Floats
    wpa: Floats
    kappa: Floats


def agreement(tables: NDArray[np.float64]) -> Agreement:
    return Agreement(spa(tables), wpa(tables), kappa(tables))


def spa(tables: Floats) -> Floats:
    """Strict pair agreement: the share of units that both scored alike, ``Σ T[a, a] / Σ T``."""
    return _share((tables * STRICT).sum(axis=(-2, -1)), tables)


def wpa(tables: Floats) -> Floats:
    """Weighted pair agreement: the mean weight of the units, 1 where levels are equal, ½ where they are
    adjacent, 0 where they are opposite (linear weights; Cicchetti and Allison 1971)."""
    return _share((tables * LINEAR).sum(axis=(-2, -1)), tables)


def kappa(tables: Floats) -> Floats:
    """Cohen's κ (1960) over the three levels, ``(SPA − pe) / (1 − pe)``, where ``pe = Σ p_a q_a`` is what two
    judges with these shares of levels agree in by chance. Not defined where pe = 1."""
    return _beyond_chance(spa(tables), tables, STRICT)


def weighted_kappa(tables: Floats) -> Floats:
    """Cohen's weighted κ (1968) with linear weights: the same of the weighted agreement."""
    return _beyond_chance(wpa(tables), tables, LINEAR)


def _beyond_chance(agreed: Floats, tables: Floats, weights: Floats) -> Floats:
    total = tables.sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = tables.sum(axis=-1) / total[..., None], tables.sum(axis=-2) / total[..., None]
        by_chance = (first[..., :, None] * weights * second[..., None, :]).sum(axis=(-2, -1))
        found = (agreed - by_chance) / (1 - by_chance)
    return np.where(by_chance < 1 - 1e-12, found, np.nan)


def pair_tables(first: NDArray[np.int8], second: NDArray[np.int8], block: Codes, blocks: int) -> Floats:
    """(blocks, 3, 3): the units that both scored, by the block of datapoints that they belong to.

    Parameters
    ----------
    first, second : (C,) levels of two judges, below 0 where they gave none
    block : (C,) of each unit, below ``blocks``
    """
    both = (first >= 0) & (second >= 0)
    key = (block[both].astype(np.int64) * LEVELS + first[both]) * LEVELS + second[both]
    counts = np.bincount(key, minlength=blocks * LEVELS * LEVELS)
    return counts.reshape(blocks, LEVELS, LEVELS).astype(np.float64)


def _share(part: Floats, tables: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / tables.sum(axis=(-2, -1)), np.float64)
