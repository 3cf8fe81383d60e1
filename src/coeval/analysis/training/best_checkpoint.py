"""The best checkpoint, with what luck gave it taken off, and how figures of training runs are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.special import log_ndtr, ndtri

from coeval.analysis.intervals import LEVEL, Floats, Scatter, scale_of, unseen_share
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.core.figures import difference_text, points_per

# --- Experimental: the largest of several means
#
# The largest of several means is larger than its truth on average: whoever wins was lucky as well. The
# conditional distribution of the winner's mean, given that it won, says by how much: it is a normal one cut
# off where another would have won. Inference from it alone is right on average and very wide where two are
# nearly equal; the hybrid of it and the simultaneous interval is never much wider than that one (Andrews,
# Kitagawa and McCloskey 2024, Inference on Winners).
#
# Where the winner leads by next to nothing, the hybrid shrinks to a point at the far end of the simultaneous
# interval. So two bounds are set to it: no more luck is taken off than there is on average where all are
# alike, and the interval is never narrower than the usual one.

# What share of the error is left to the simultaneous interval; the authors' choice.
_SIMULTANEOUS = 0.1
# The quantile at `_SIMULTANEOUS` × 5 % still rests on 100 draws.
_DRAWS = 20_000
# Draws that are held in memory.
_AT_ONCE = 1_000
# Bisection to the last bit of a float: 2⁻⁵³ of the bracket and a few more.
_HALVINGS = 60


class Winner(NamedTuple):
    """Which one is largest, what it is worth (median-unbiased), and the interval of that."""

    place: int
    estimate: float
    low: float
    high: float


class Estimates(NamedTuple):
    """K means and the covariance of their errors, (K, K); ``step`` is the smallest difference that two of
    them can have, 0 where they are continuous."""

    means: Floats
    covariance: Floats
    step: float = 0.0


def stabilised(scores: Floats) -> Estimates:
    """The means as ``arcsin √m``, whose errors are about normal and of the same size near an end of the scale
    as in its middle.

    As in `mean_bounds`, h of an observation is added at either end of the scale, the more the fewer items
    say what those are like that were not drawn; items that all score alike have an error as well. It is that
    of the largest mean for all of them, so that the largest stays the largest.
    """
    items = len(scores)
    means = np.clip(scores.mean(axis=0), 0.0, 1.0)
    away = scores - scores.mean(axis=0)
    squares = (away**2).sum(axis=0)
    top = int(np.argmax(scores.mean(axis=0)))
    added = unseen_share(float(means[top]), [Scatter(items, float(squares[top]))]) / 2
    total = items + 2 * added
    centres = (items * means + added) / total
    spread = (squares + items * means**2 + added) / total - centres**2
    errors = np.sqrt(spread / (total - 1))
    lengths = np.sqrt(squares)
    standard = away / np.where(lengths > 0, lengths, 1.0)
    correlation = standard.T @ standard
    np.fill_diagonal(correlation, 1.0)
    slopes = 1 / (2 * np.sqrt(centres * (1 - centres)))
    errors = errors * slopes
    gaps = np.diff(np.unique(scores))
    step = float(gaps.min() / items * slopes[top]) if len(gaps) else 0.0
    return Estimates(np.arcsin(np.sqrt(centres)), correlation * np.outer(errors, errors), step)


def unstabilised(stable: float) -> float:
    return float(np.sin(min(max(stable, 0.0), np.pi / 2)) ** 2)


def winner(found: Estimates, level: float = LEVEL) -> Winner:
    """The hybrid estimate and interval of the largest mean; of equally large ones the first.

    Where means can only differ by steps, winning is leading by more than minus half a step.
    """
    means, covariance, _ = found
    place = int(np.argmax(means))
    error = float(np.sqrt(covariance[place, place]))
    x = float(means[place])
    if error == 0:
        return Winner(place, x, x, x)
    least, most = _won_between(found, place)
    outer = (1 - level) * _SIMULTANEOUS
    largest = _largest_errors(covariance)
    reach = float(np.quantile(largest.either_way, 1 - outer)) * error
    tail = ((1 - level) - outer) / (1 - outer) / 2

    def share_below(truth: float) -> float:
        """Of the winner's means at this truth, those below the one that was seen."""
        ends = (max(least, truth - reach), min(most, truth + reach))
        return _truncated((x - truth) / error, *((end - truth) / error for end in ends))

    def solved(share: float) -> float:
        low, high = x - reach, x + reach
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if share_below(middle) > share else (low, middle)
        return (low + high) / 2

    low, high = solved(1 - tail), solved(tail)
    usual = float(ndtri((1 + level) / 2)) * error
    if high - low < 2 * usual:
        low, high = min(low, x - usual), max(high, low + 2 * usual)
    estimate = max(solved(0.5), x - max(float(largest.upwards.mean()), 0.0) * error)
    return Winner(place, estimate, low, max(high, estimate))


def _won_between(found: Estimates, place: int) -> tuple[float, float]:
    """Between which values the winner's mean makes it win, all that is independent of it being as it is."""
    means, covariance, step = found
    slopes = covariance[:, place] / covariance[place, place]
    rest = means - slopes * means[place] - step / 2
    least, most = -np.inf, np.inf
    for k, (slope, other) in enumerate(zip(slopes.tolist(), rest.tolist(), strict=True)):
        if k == place or abs(1 - slope) < 1e-9:
            continue
        bound = other / (1 - slope)
        if slope < 1:
            least = max(least, bound)
        else:
            most = min(most, bound)
    return min(least, float(means[place])), max(most, float(means[place]))


class _LargestErrors(NamedTuple):
    """Of normal errors, drawn many times, in their standard errors: the largest either way, and upwards."""

    either_way: Floats
    upwards: Floats


def _largest_errors(covariance: Floats) -> _LargestErrors:
    errors = np.sqrt(np.diag(covariance))
    known = errors > 0
    values, vectors = np.linalg.eigh(covariance[np.ix_(known, known)])
    root = vectors * np.sqrt(np.maximum(values, 0.0)) / errors[known][:, None]
    generator = np.random.default_rng(0)
    either_way, upwards = [], []
    for _ in range(_DRAWS // _AT_ONCE):
        drawn = generator.standard_normal((_AT_ONCE, len(values))) @ root.T
        either_way.append(np.abs(drawn).max(axis=1))
        upwards.append(drawn.max(axis=1))
    return _LargestErrors(np.concatenate(either_way), np.concatenate(upwards))


def _truncated(z: float, low: float, high: float) -> float:
    """The distribution function of a standard normal between ``low`` and ``high``, at z."""
    if z <= low:
        return 0.0
    if z >= high:
        return 1.0
    return float(np.exp(_log_between(low, z) - _log_between(low, high)))


def _log_between(low: float, high: float) -> float:
    """The logarithm of how likely a standard normal lies between, exact far out as well."""
    if low > 0:  # where the upper tails hold the digits
        low, high = -high, -low
    upper, lower = float(log_ndtr(high)), float(log_ndtr(low))
    return upper + float(np.log1p(-np.exp(min(lower - upper, 0.0))))


# --- Scores and differences in sentences


def signed_points(difference: float, low: float, high: float, unit: str) -> str:
    """``3.1 ± 1.9``, or ``3.1 [0.4, 4.2]`` where the interval is lopsided."""
    by = points_per(unit)
    return difference_text(difference * by, low * by, high * by)


# Items; with fewer, normal errors are no guide to what luck gave.
FEWEST = 15


class BestCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoint of the largest mean, in the metric's unit: ``corrected`` is its score
    with the luck of the winner taken off, too large about as often as too small; ``ci95`` is its interval.
    Both are None where there are fewer than `FEWEST` items."""

    step: int
    mean: float
    corrected: float | None
    ci95: tuple[float, float] | None


def best_checkpoint(
    found: CommonItems, unit: str, figures: Mapping[int, float] | None = None
) -> BestCheckpoint | None:
    """None where there are no two checkpoints, or no two items.

    Parameters
    ----------
    figures : what the benchmark itself reports, by step. It may differ from the items' mean (HealthBench
        clips each sample's mean, and some items may not be shared by all checkpoints); what is told is moved
        by so much, so that one checkpoint has one figure
    """
    items, count = found.scores.shape
    if count < 2 or items < 2:
        return None
    means = found.scores.mean(axis=0)
    few = items < FEWEST
    won = Winner(int(np.argmax(means)), 0.0, 0.0, 0.0) if few else winner(stabilised(found.scores))
    scale = scale_of(unit)
    mean, corrected, low, high = (
        min(max(found.scale.least + share * (found.scale.most - found.scale.least), scale.least), scale.most)
        for share in (float(means[won.place]), *map(unstabilised, won[1:]))
    )
    step = found.steps[won.place]
    if figures is not None:
        by = figures[step] - mean
        mean, corrected, low, high = (
            min(max(one + by, scale.least), scale.most) for one in (mean, corrected, low, high)
        )
    return BestCheckpoint(step, mean, *((None, None) if few else (corrected, (low, high))))
