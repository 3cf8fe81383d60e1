"""What follows from the items' scores at the checkpoints of a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.special import ndtr, ndtri

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, LEVEL, Bounds, Floats, Scatter, mean_bounds, scale_of
from coeval.analysis.training.best_checkpoint import signed_points
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.core.figures import gap_text
from coeval.core.text import numbered, p_text

# --- First checkpoint significantly better than the base
#
# Every checkpoint is held against the base on the same items. Whoever looks at six of them and takes the
# first that seems better is wrong more often than 5 times in 100, so the p-values allow for their number.

# With the observed signs 5,000: p-values are multiples of 0.0002, of which 5 % has 250.
_FLIPS = 4_999
# Flips held in memory at a time: 500 × 2,000 items are 8 MB.
_AT_ONCE = 500


class AgainstBase(msgspec.Struct, frozen=True):
    """How a checkpoint differs from the base on the same items, in the metric's unit: ``difference`` with its
    own 95% interval, and ``p_adjusted`` for the number of checkpoints."""

    step: int
    difference: float
    ci95: tuple[float, float]
    p_adjusted: float


class FirstBetter(msgspec.Struct, frozen=True):
    """``step`` is the first after ``base`` that is better at 5 % (two-sided, over all checkpoints), None:
    none is. ``minimum_detectable`` is the true difference that one comparison finds four times in five."""

    base: int
    step: int | None
    n_items: int
    minimum_detectable: float | None
    checkpoints: tuple[AgainstBase, ...]
    sentence: str


def first_better(found: CommonItems, unit: str, base: int | None = None) -> FirstBetter | None:
    """None where there is nothing to hold against the base, which is the first step unless it is named.

    Parameters
    ----------
    found : the items' scores; ``base`` is one of its steps
    """
    base = found.steps[0] if base is None and found.steps else base
    if base not in found.steps or len(found.steps) < 2 or len(found.scores) < 2:
        return None
    width = found.scale.most - found.scale.least
    at = found.steps.index(base)
    others = [place for place in range(len(found.steps)) if place != at]
    adjusted = step_down(found.scores[:, others] - found.scores[:, [at]])
    once = np.ones(len(found.scores))
    held, detectable = [], []
    for place, p in zip(others, adjusted, strict=True):
        pairs = PairedScores(found.scores[:, at], found.scores[:, place], once)
        one = paired_difference([pairs])
        ci95 = (one.low * width, one.high * width)
        held.append(AgainstBase(found.steps[place], one.difference * width, ci95, p))
        detectable.append((one.minimum_detectable or 0.0) * width)
    better = (one for one in held if one.step > base and one.difference > 0 and one.p_adjusted < ALPHA)
    first = next(better, None)
    least = float(np.median(detectable))
    return FirstBetter(
        base=base,
        step=None if first is None else first.step,
        n_items=len(found.scores),
        minimum_detectable=least,
        checkpoints=tuple(held),
        sentence=_sentence(first, base, len(found.scores), least, unit),
    )


def _sentence(first: AgainstBase | None, base: int, items: int, least: float, unit: str) -> str:
    if first is None:
        return (
            f"no checkpoint is significantly better than step {base}, {numbered(items, 'paired item')}; a "
            f"true gain of {gap_text(least, unit)} points would be detected four times in five"
        )
    by = signed_points(first.difference, *first.ci95, unit)
    return (
        f"step {first.step} is the first significantly better than step {base}: by {by} points "
        f"({p_text(first.p_adjusted)} over all checkpoints), {numbered(items, 'paired item')}"
    )


def step_down(differences: Floats) -> list[float]:
    """Two-sided p-values of the means of K columns, adjusted for their number and in their order.

    The signs of an item's differences are flipped together (Fisher 1935), so the correlation of the columns,
    which share the base and the items, is kept; a column is tested by its largest ``|t|``, and each next
    smaller one against the columns that are left (the step-down of Romano and Wolf 2005). One below 0.05 is a
    false one in at most 5 of 100 families.

    Parameters
    ----------
    differences : (n, K) of n items
    """
    shares = differences / _lengths(differences)
    # The flipped sum over √(n Σd²) rises with |t| in the same way for every column.
    return _stepped_down(shares.sum(axis=0), _flipped(shares))


def step_down_pairs(scores: Floats) -> Floats:
    """`step_down` of the differences of every two of K columns, as a symmetric (K, K) matrix of p-values.

    Parameters
    ----------
    scores : (n, K) of n items
    """
    count = scores.shape[1]
    one, other = np.triu_indices(count, 1)
    differences = scores[:, one] - scores[:, other]
    lengths = _lengths(differences)
    flipped = ((sums[:, one] - sums[:, other]) / lengths for sums in _flipped(scores))
    found = np.ones((count, count))
    found[one, other] = found[other, one] = _stepped_down(differences.sum(axis=0) / lengths, flipped)
    return found


def _lengths(differences: Floats) -> Floats:
    lengths: Floats = np.sqrt((differences**2).sum(axis=0) * len(differences))
    return np.where(lengths > 0, lengths, 1.0)


def _stepped_down(sums: Floats, flips: Iterable[Floats]) -> list[float]:
    """Adjusted p-values of K sums, in their order; ``flips``: the same sums under random flips of signs."""
    seen = np.abs(sums)
    order = np.argsort(-seen, kind="stable")
    reached = np.zeros(len(order))
    for flipped in flips:
        left = np.maximum.accumulate(np.abs(flipped[:, order])[:, ::-1], axis=1)[:, ::-1]
        reached += (left >= seen[order] - 1e-12).sum(axis=0)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate((reached + 1) / (_FLIPS + 1))
    return [float(p) for p in adjusted]


def _flipped(columns: Floats) -> Iterator[Floats]:
    """The columns' sums under random flips of the items' signs, some at a time."""
    generator = np.random.default_rng(0)
    for start in range(0, _FLIPS, _AT_ONCE):
        count = min(_AT_ONCE, _FLIPS - start)
        signs = 2.0 * generator.integers(0, 2, (count, len(columns))) - 1
        yield signs @ columns


# --- Simultaneous intervals over checkpoints
#
# Of six pointwise 95% intervals one leaves its truth out in more than 5 of 100 training runs, so nothing can
# be read off the shape of a curve by them. These are as much wider as it takes, and no wider: checkpoints are
# asked the same items, and what is hard for one is hard for the next.

# The 95% quantile of their maxima rests on the 100 largest.
_RESAMPLES = 2000
# Resamples: what is held in memory at a time.
_DRAWS_AT_ONCE = 250


def simultaneous_bounds(scores: Floats) -> Sequence[Bounds]:
    """The band at each checkpoint, from 0 to 1: `mean_bounds` at the level that `pointwise_level` says.

    Parameters
    ----------
    scores : (n, K) of n ≥ 1 items at K checkpoints, 0 to 1
    """
    each = pointwise_level(scores)
    means = scores.mean(axis=0)
    squares = ((scores - means) ** 2).sum(axis=0)
    return [
        mean_bounds(float(min(max(mean, 0.0), 1.0)), [Scatter(len(scores), float(square))], each)
        for mean, square in zip(means, squares, strict=True)
    ]


def pointwise_level(scores: Floats, level: float = LEVEL) -> float:
    """At which level the K intervals hold all means at once with probability ``level``.

    That of the quantile of the largest ``|m*_j − m_j| / se_j`` over a bootstrap of the items, which keeps the
    correlation between checkpoints (as in Montiel Olea and Plagborg-Møller 2019). It is at least ``level``
    and at most Šidák's ``level^(1/K)``, which stands where some checkpoint's items all score alike.
    """
    items, count = scores.shape
    sidak = float(level ** (1 / count))
    errors = scores.std(axis=0) / np.sqrt(items)
    if count == 1 or items < 2 or (errors <= 0).any():
        return sidak
    generator = np.random.default_rng(0)
    standard = (scores - scores.mean(axis=0)) / errors / items
    largest = []
    for _ in range(_RESAMPLES // _DRAWS_AT_ONCE):
        drawn = generator.multinomial(items, np.full(items, 1 / items), size=_DRAWS_AT_ONCE)
        largest.append(np.abs(drawn @ standard).max(axis=1))
    quantile = np.quantile(np.concatenate(largest), level)
    quantile = np.clip(quantile, ndtri((1 + level) / 2), ndtri((1 + sidak) / 2))
    return float(2 * ndtr(quantile) - 1)


class CurveConclusions(NamedTuple):
    """``bands``: by step, in the metric's unit. What too few checkpoints or items say nothing of is None."""

    bands: Mapping[int, tuple[float, float]]
    first_better: FirstBetter | None


NOTHING_FOLLOWS = CurveConclusions({}, None)


def conclude_curve(items: CommonItems, unit: str, base: int | None = None) -> CurveConclusions:
    """Compute the simultaneous band, and the first step that is better than ``base`` (without it, than the
    first one)."""
    if not len(items.scores):
        return NOTHING_FOLLOWS
    width = items.scale.most - items.scale.least
    scale = scale_of(unit)  # the items' is longer where single scores lie beyond; their mean may not
    bands = {
        step: (
            max(items.scale.least + width * bounds.low, scale.least),
            min(items.scale.least + width * bounds.high, scale.most),
        )
        for step, bounds in zip(items.steps, simultaneous_bounds(items.scores), strict=True)
    }
    return CurveConclusions(bands, first_better(items, unit, base))
