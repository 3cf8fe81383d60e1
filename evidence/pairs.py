"""``python -m evidence.pairs``: how often strengths by comparisons are right, on students of known strength.

Draws comparisons of students' answers again and again: answers of one student differ in quality from item to
item, judges lean to the answer shown first, and call near answers a tie. Counts how often intervals hold the
true strength, how often an order that is called significant is wrong, and how often a planted leaning is
found. Writes the page ``docs/evidence/pairs-coverage.md``; seeded, so that it is the same every time (some
minutes).

    python -m evidence.pairs                 the page as it is kept
    python -m evidence.pairs --repeats 20    a quick look, on the terminal
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit, roots_hermitenorm

from coeval.analysis.comparison.paired_difference import holm_adjust
from coeval.analysis.intervals import ALPHA, Floats, clustered_mean
from coeval.analysis.pairwise.rates import fit_bradley_terry, fit_strengths, share_bounds
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "pairs-coverage.md"
REPEATS = 300
# Log-odds: of answers to one item around their student, of a judge to the first place, and up to which two
# answers are called a tie.
SCATTER, LEANING, TIE = 0.5, 0.4, 0.3


class World(NamedTuple):
    """Students' log-strengths ``levels``, and so many ``items``."""

    levels: Floats
    items: int

    def outcomes(self, generator: np.random.Generator) -> Floats:
        """(items, k, k): what the first of two answers wins, 1, ½ or 0, for every order."""
        count = len(self.levels)
        quality = self.levels + SCATTER * generator.normal(size=(self.items, count))
        gap = quality[:, :, None] - quality[:, None, :] + LEANING
        seen = gap + generator.logistic(size=gap.shape)
        return np.where(np.abs(seen) < TIE, 0.5, (seen > 0).astype(np.float64))

    def truth(self) -> Floats:
        """The expected wins against the others that the fit tends to as items grow without end."""
        points, weights = roots_hermitenorm(60)
        gap = self.levels[:, None] - self.levels[None, :]
        apart = gap[..., None] + SCATTER * np.sqrt(2) * points
        wins = np.zeros_like(gap)
        for lean in (LEANING, -LEANING):
            for edge in (TIE, -TIE):
                wins += (expit(apart + lean + edge) * weights).sum(axis=-1) / weights.sum() / 4
        np.fill_diagonal(wins, 0.0)
        log = fit_strengths(wins[None])[0]
        chance = expit(log[:, None] - log[None, :])
        return np.asarray((chance.sum(axis=1) - 0.5) / (len(log) - 1), dtype=np.float64)


def sums_of(outcomes: Floats) -> Floats:
    """All comparisons of all items."""
    wins = outcomes + np.swapaxes(1 - outcomes, 1, 2)
    wins[:, np.arange(wins.shape[1]), np.arange(wins.shape[1])] = 0.0
    return np.asarray(wins, np.float64)


class Found(NamedTuple):
    """Of so many repeats: shares of intervals that hold the truth, of pairs that are called different, of
    these wrongly, and of repeats with any such; the leaning's found share."""

    coverage: float
    width: float
    different: float
    any_wrong: float
    leaning: float


def coverage(world: World, repeats: int, seed: int = 0) -> Found:
    generator = np.random.default_rng(seed)
    truth, pairs = world.truth(), list(combinations(range(len(world.levels)), 2))
    held, widths, different, wrong, leaning = [], [], [], [], []
    off = ~np.eye(len(world.levels), dtype=bool)
    for repeat in range(repeats):
        outcomes = world.outcomes(generator)
        fitted = fit_bradley_terry(sums_of(outcomes), seed=repeat)
        expected, again = fitted.expected_win_rates()
        for at, share in enumerate(expected):
            low, high = share_bounds(float(share), float(again[:, at].std(ddof=1)), fitted.clusters)
            held.append(low <= truth[at] <= high)
            widths.append(high - low)
        adjusted = holm_adjust([fitted.p_value(*pair) for pair in pairs])
        sure = [pair for pair, p in zip(pairs, adjusted, strict=True) if p < ALPHA]
        different.append(len(sure) / len(pairs))
        wrong.append(any((expected[a] - expected[b]) * (truth[a] - truth[b]) <= 0 for a, b in sure))
        first = outcomes[:, off]
        items = np.repeat(np.arange(world.items), first.shape[1])
        bounds = clustered_mean(first.ravel(), items)
        leaning.append(bounds.low is not None and bounds.low > 0.5)
    return Found(*(float(np.mean(each)) for each in (held, widths, different, wrong, leaning)))


WORLDS = {
    "3 students, close": np.array([-0.2, 0.0, 0.2]),
    "5 students": np.linspace(-0.8, 0.8, 5),
    "5 students, far apart": np.linspace(-3.0, 3.0, 5),
    "10 students": np.linspace(-1.5, 1.5, 10),
}
ITEMS = (20, 50, 200)

_INTRODUCTION = """# Comparisons: coverage and false orders

Written by `python -m evidence.pairs`, which draws comparisons of students with known strengths: answers of
one student differ from item to item (by {scatter} in log-odds), the judge leans to the answer shown
first (by {leaning}), and calls near answers a tie. All pairs are compared in both orders. Each row is of
{repeats:,} experiments, in hundredths: how many 95% intervals of strength hold the true one, and how
wide they are (points); how many pairs of students differ significantly after Holm's adjustment; in how
many experiments any of these pairs is in the wrong order; in how many the judge's leaning is found.

| students | items | hold the truth | width | different | any wrong order | leaning found |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def page(repeats: int) -> str:
    text = _INTRODUCTION.format(scatter=SCATTER, leaning=LEANING, repeats=repeats)
    for name, levels in WORLDS.items():
        for items in ITEMS:
            found = coverage(World(levels, items), repeats)
            text += f"| {name} | {items} | {' | '.join(f'{100 * each:.1f}' for each in found)} |\n"
    return text


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "experiments of each row")
