"""Strengths of students from comparisons (Bradley and Terry 1952); a tie is half a win for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from coeval.analysis.intervals import Bounds, Floats, Scatter, mean_bounds
from coeval.analysis.pairwise.rates import RESAMPLES, fit_logistic

# Draws × clusters held at a time: 160 MB.
_AT_ONCE = 20_000_000
# A p-value is shown to three digits; halving so often leaves 2⁻²⁰.
_HALVINGS = 20


def strengths(wins: Floats) -> Floats:
    """Log-strengths, (fits, k), of wins (fits, k, k), where ``wins[:, i, j]`` are those of i over j.

    They sum to zero. A student that wins or loses everything has a large one, not an infinite one: see the
    ridge of `fit_logistic`.
    """
    count = wins.shape[-1]
    winner, loser = np.nonzero(~np.eye(count, dtype=bool))
    features = np.zeros((len(winner), count))
    features[np.arange(len(winner)), winner] = 1.0
    features[np.arange(len(winner)), loser] = -1.0
    # Coordinates without the direction in which all strengths rise alike, of which comparisons say nothing.
    # Helmert's contrasts by their formula: loading scipy.linalg for them would take every run 70 ms.
    row, column = np.arange(1, count)[:, None], np.arange(count)
    basis = np.where(column < row, 1.0, np.where(column == row, -row, 0.0)) / np.sqrt(row * (row + 1.0))
    found = fit_logistic(features @ basis.T, np.ones(len(winner)), wins[:, winner, loser])
    return np.asarray(found @ basis, dtype=np.float64)


class PairedSums(NamedTuple):
    """Wins of every student over every other, (clusters, k, k), by cluster of items; a tie is half of one."""

    wins: Floats

    @classmethod
    def of(
        cls, shape: tuple[int, int], cluster: NDArray[np.int64], who: NDArray[np.int64], won: Floats
    ) -> PairedSums:
        """``shape``: clusters and students; ``who``: (n, 2), first and second of each comparison; ``won``: 1
        where the first won, ½ for a tie."""
        clusters, students = shape
        wins = np.zeros((clusters, students, students))
        np.add.at(wins, (cluster, who[:, 0], who[:, 1]), won)
        np.add.at(wins, (cluster, who[:, 1], who[:, 0]), 1 - won)
        return cls(wins)


class Strengths(NamedTuple):
    """Strengths of k students, and of as many resamples of clusters: (resamples, k). ``chance`` is how likely
    each wins against each, (k, k), ``again`` the same of the resamples."""

    clusters: int
    chance: Floats
    again: Floats

    def expected(self) -> tuple[Floats, Floats]:
        """The chance of each to win against a student drawn from the others, and that of the resamples."""
        others = len(self.chance) - 1
        return (self.chance.sum(axis=-1) - 0.5) / others, (self.again.sum(axis=-1) - 0.5) / others

    def p_value(self, one: int, other: int) -> float:
        """How easily chance alone would set two students so far apart: 1 less the largest level at which the
        interval of the chance that ``one`` wins leaves ½ out."""
        share, sd = float(self.chance[one, other]), float(self.again[:, one, other].std(ddof=1))
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            bounds = share_bounds(share, sd, self.clusters, level)
            low, high = (level, high) if not bounds.low <= 0.5 <= bounds.high else (low, level)
        return 1 - low


def share_bounds(share: float, sd: float, clusters: int, level: float = 0.95) -> Bounds:
    """The interval of a share whose standard deviation over resamples of clusters is ``sd``; it has a width
    where nothing scatters."""
    return mean_bounds(share, [Scatter(clusters, (clusters * sd) ** 2)], level)


def bradley_terry(sums: PairedSums, *, seed: int = 0, resamples: int = RESAMPLES) -> Strengths:
    """Fit the strengths, and those of resamples of clusters of items (Efron 1979)."""
    clusters, count, _ = sums.wins.shape
    flat = sums.wins.reshape(clusters, -1)
    drawn = np.concatenate([flat.sum(axis=0)[None], *_resampled(flat, seed, resamples)])
    log = strengths(drawn.reshape(-1, count, count))
    chance = expit(log[:, :, None] - log[:, None, :])
    return Strengths(clusters, chance[0], chance[1:])


def _resampled(flat: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """Sums over clusters that are drawn with replacement, some resamples at a time."""
    generator, clusters = np.random.default_rng(seed), len(flat)
    step = max(1, _AT_ONCE // clusters)
    for first in range(0, resamples, step):
        size = min(step, resamples - first)
        drawn = generator.multinomial(clusters, np.full(clusters, 1 / clusters), size=size)
        yield drawn.astype(np.float64) @ flat
