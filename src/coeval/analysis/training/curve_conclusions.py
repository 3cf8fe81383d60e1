"""What follows from the items' scores at the checkpoints of a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, LEVEL, Bounds, Floats, Scatter, mean_bounds, scale_of
from coeval.analysis.training.best_checkpoint import BestCheckpoint, best_checkpoint, signed_points
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.core.figures import gap_text
from coeval.core.text import listed, numbered, p_text

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


# --- Gains of the last checkpoints
#
# "Nothing significant" is no sign that nothing is there. So the claim is turned round: the signal is given
# where a gain of the detectable size or more can be ruled out, in every one of the last checkpoints. Where
# that size is more than a gain worth having, too few items were asked to tell.

# Checkpoints that are looked at, where nobody says another number.
LAST = 3
# Of the scale: a gain that must not be overlooked.
_WORTH = 0.1
# Of what was gained before; that counts where it is more.
_OF_GAINED = 0.2


class StopSignal(msgspec.Struct, frozen=True):
    """Of the ``last`` checkpoints against the one ``before`` them, in the metric's unit.

    ``largest_gain`` is what the best of them gained, ``at_most`` the one-sided 95% bound of it, and
    ``detectable`` the gain that one comparison finds with 80 % power. ``stop``:
    every bound is below it. Where the gain is that large in truth, the signal is given in at most 5 of 100
    cases: all bounds would have to fail, so their number needs no adjustment (an intersection-union test).
    ``items_needed``: how many items would detect a gain worth having, where these are too few; then there is
    no signal.
    """

    before: int
    last: tuple[int, ...]
    largest_gain: float
    at_most: float
    detectable: float
    n_items: int
    stop: bool
    items_needed: int | None
    sentence: str


class _Gain(NamedTuple):
    """``sure``: significant in one comparison."""

    step: int
    seen: float
    at_most: float
    detectable: float
    sure: bool


def stop_signal(found: CommonItems, unit: str, last: int = LAST) -> StopSignal | None:
    """None where there are no more than ``last`` checkpoints."""
    items, count = found.scores.shape
    if count <= last or items < 2 or last < 1:
        return None
    width = found.scale.most - found.scale.least
    before = count - last - 1
    gains = [_gain(found, before, at) for at in range(before + 1, count)]
    least = max(gain.detectable for gain in gains) * width
    at_most = max(gain.at_most for gain in gains) * width
    gained = float((found.scores[:, before] - found.scores[:, 0]).mean()) * width
    scale = scale_of(unit)
    worth = max(_WORTH * (scale.most - scale.least), _OF_GAINED * gained)
    needed = ceil(items * (least / worth) ** 2) if least > worth else None
    signal = StopSignal(
        before=found.steps[before],
        last=found.steps[before + 1 :],
        largest_gain=max(gain.seen for gain in gains) * width,
        at_most=at_most,
        detectable=least,
        n_items=items,
        stop=at_most < least and needed is None,
        items_needed=needed,
        sentence="",
    )
    return msgspec.structs.replace(signal, sentence=_gain_sentence(signal, gains, unit, width))


def _gain(found: CommonItems, before: int, at: int) -> _Gain:
    """Of a checkpoint, on the scale from 0 to 1."""
    a, b = found.scores[:, before], found.scores[:, at]
    items, seen = len(a), float((b - a).mean())
    error = float((b - a).std(ddof=1) / np.sqrt(items))
    held = paired_difference([PairedScores(a, b, np.ones(items))])
    at_most = seen + float(stdtrit(items - 1, LEVEL)) * error
    sure = seen > 0 and held.p is not None and held.p < ALPHA
    return _Gain(found.steps[at], seen, at_most, held.minimum_detectable or 1.0, sure)


def _gain_sentence(signal: StopSignal, gains: Sequence[_Gain], unit: str, width: float) -> str:
    bound, least = (gap_text(size, unit) for size in (signal.at_most, signal.detectable))
    which = f"the last {numbered(len(signal.last), 'checkpoint')} ({listed(map(str, signal.last))})"
    if signal.stop:
        verb = "shows" if len(signal.last) == 1 else "show"
        return (
            f"{which} {verb} no detectable gain over step {signal.before}: at most {bound} points (95%), "
            f"less than the {least} that could be detected"
        )
    if sure := [one for one in gains if one.sure]:
        gain = gap_text(max(one.seen for one in sure) * width, unit)
        if all(one.sure for one in gains) and gains[-1].seen == max(one.seen for one in gains):
            return f"{which} still gained over step {signal.before}: up to {gain} points"
        reported = f"{_steps(sure)} gained over step {signal.before}: up to {gain} points"
        if rest := [one for one in gains if not one.sure]:
            verb = "shows" if len(rest) == 1 else "show"
            return f"{reported}; {_steps(rest)} {verb} no detectable gain over it"
        return f"{reported}; the highest is step {max(gains, key=lambda one: one.seen).step}"
    if signal.items_needed is not None:
        return (
            f"{signal.n_items:,} items are too few to show whether {which} gained over step {signal.before}: "
            f"gains below {least} points go undetected; about {signal.items_needed:,} items would do"
        )
    return (
        f"{which} may have gained over step {signal.before}: at most {bound} points (95%), not less than "
        f"the {least} that could be detected"
    )


def _steps(gains: Sequence[_Gain]) -> str:
    return f"step{'s' * (len(gains) > 1)} {listed(str(one.step) for one in gains)}"


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
    best: BestCheckpoint | None
    stop: StopSignal | None

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(one.sentence for one in (self.first_better, self.best, self.stop) if one is not None)


NOTHING_FOLLOWS = CurveConclusions({}, None, None, None)


def conclude_curve(
    items: CommonItems, unit: str, base: int | None = None, figures: Mapping[int, float] | None = None
) -> CurveConclusions:
    """
    Parameters
    ----------
    figures : by step, what the benchmark reports in the items' metric
    base : the step that others are held against; without it, the first one
    """
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
    return CurveConclusions(
        bands,
        first_better(items, unit, base),
        best_checkpoint(items, unit, figures),
        stop_signal(items, unit),
    )
