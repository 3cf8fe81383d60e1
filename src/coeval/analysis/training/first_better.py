"""The first checkpoint that is better than the base, and not by chance.

Every checkpoint is held against the base on the same items. Whoever looks at six of them and takes the first
that seems better is wrong more often than 5 times in 100, so the p-values allow for their number.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from coeval.analysis.comparison.comparison_sentence import ALPHA
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import Floats
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.figure_text import p_text, points_text, signed_points
from coeval.core.text import numbered

__all__ = ["AgainstBase", "FirstBetter", "first_better", "step_down"]

_FLIPS = 4_999
_AT_ONCE = 500


class AgainstBase(msgspec.Struct, frozen=True):
    """How a checkpoint differs from the base on the same items, in the metric's unit: ``difference`` with its
    own 95 % interval, and ``p_adjusted`` for the number of checkpoints."""

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
            f"no checkpoint is better than step {base} beyond chance, {numbered(items, 'paired item')}; one "
            f"that is better by {points_text(least, unit)} points would be found four times in five"
        )
    by = signed_points(first.difference, *first.ci95, unit)
    return (
        f"step {first.step} is the first that is better than step {base} beyond chance: by {by} points "
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
    lengths = np.sqrt((differences**2).sum(axis=0) * len(differences))
    shares = differences / np.where(lengths > 0, lengths, 1.0)
    # The flipped sum over √(n Σd²) rises with |t| in the same way for every column.
    seen = np.abs(shares.sum(axis=0))
    order = np.argsort(-seen, kind="stable")
    reached = np.zeros(len(order))
    for flipped in _flipped(shares[:, order]):
        left = np.maximum.accumulate(np.abs(flipped)[:, ::-1], axis=1)[:, ::-1]
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
