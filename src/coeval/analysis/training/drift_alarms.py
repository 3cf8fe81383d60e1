"""Experimental: what speaks for a judge being flattered rather than a model getting better.

Judged scores that rise while scores by rule fall, or while answers grow longer, are what learning to please a
judge looks like. Each alarm needs both of its halves to be there beyond chance, and the p-values allow for
the number of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from scipy.special import stdtr

from coeval.analysis.comparison.paired_difference import holm
from coeval.analysis.intervals import ALPHA, Floats
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.core.figures import gap_text
from coeval.core.text import p_text

# --- Trends of scores and answer lengths


class Trend(msgspec.Struct, frozen=True):
    """``change`` from the first to the last of ``steps`` along the line that fits best, in the unit of the
    values, over ``n_items``; one-sided p-values of its rising and of its falling."""

    change: float
    p_rising: float
    p_falling: float
    n_items: int
    steps: tuple[int, ...]


def trend(values: Floats, steps: Sequence[int]) -> Trend | None:
    """Each item has a slope of its own, and a t test asks whether they are 0 on average (a summary-measure
    analysis of repeated measures; Matthews, Altman, Campbell and Royston 1990): what the checkpoints have in
    common, their items, makes nothing more certain. None where there are no two steps or items.

    Parameters
    ----------
    values : (n, K) of n items at K steps
    """
    items, count = values.shape
    if items < 2 or count < 2:
        return None
    place = np.asarray(steps, np.float64) - np.mean(steps)
    slopes = values @ place / (place @ place)
    change = float(slopes.mean()) * (steps[-1] - steps[0])
    error = float(slopes.std(ddof=1)) / np.sqrt(items)
    if error == 0:
        falling = 0.5 if change == 0 else float(change > 0)
    else:
        falling = float(stdtr(items - 1, float(slopes.mean()) / error))
    return Trend(change, 1 - falling, falling, items, tuple(steps))


Kind: TypeAlias = Literal["rules fall", "answers grow"]

# Of the length of answers, from the first checkpoint to the last: less is not spoken of.
GROWTH = 0.10


class WatchedTask(NamedTuple):
    task: str
    unit: str
    judged: bool
    items: CommonItems


class DriftAlarm(msgspec.Struct, frozen=True):
    """A judged task rises, and ``beside`` it a task scored by rules falls, or its own answers grow.

    ``rise`` is the change from the first checkpoint to the last in the metric's unit; ``other`` that of the
    rules' score, or the share by which answers grew. ``p`` is the larger of the two one-sided p-values, with
    Holm's adjustment over all pairs that were looked at.
    """

    kind: Kind
    task: str
    beside: str
    rise: float
    other: float
    p: float
    sentence: str


class _Pair(NamedTuple):
    kind: Kind
    judged: WatchedTask
    beside: WatchedTask
    rise: Trend
    other: Trend
    p: float


def drift_alarms(tasks: Sequence[WatchedTask]) -> tuple[DriftAlarm, ...]:
    """Alarms that are significant at 5% over all pairs, in the order of tasks."""
    pairs = list(_pairs(tasks))
    adjusted = holm([pair.p for pair in pairs])
    return tuple(
        _alarm(pair, p)
        for pair, p in zip(pairs, adjusted, strict=True)
        if p < ALPHA and (pair.kind == "rules fall" or _grown(pair.other) >= GROWTH)
    )


def _pairs(tasks: Sequence[WatchedTask]) -> Iterator[_Pair]:
    trends = {one.task: trend(one.items.scores, one.items.steps) for one in tasks}
    by_rule = [one for one in tasks if not one.judged]
    for judged in (one for one in tasks if one.judged):
        if (rise := trends[judged.task]) is None:
            continue
        for beside in by_rule:
            if (other := trends[beside.task]) is not None:
                yield _Pair("rules fall", judged, beside, rise, other, max(rise.p_rising, other.p_falling))
        if (longer := _length_trend(judged.items)) is not None:
            yield _Pair("answers grow", judged, judged, rise, longer, max(rise.p_rising, longer.p_rising))


def _length_trend(items: CommonItems) -> Trend | None:
    """Of the logarithm of the answers' lengths, so that it is a matter of shares."""
    known = np.isfinite(items.characters).all(axis=1) & (items.characters > 0).all(axis=1)
    return trend(np.log(items.characters[known]), items.steps)


def _grown(longer: Trend) -> float:
    return float(np.expm1(longer.change))


def _alarm(pair: _Pair, p: float) -> DriftAlarm:
    judged, beside = pair.judged, pair.beside
    rise = pair.rise.change * (judged.items.scale.most - judged.items.scale.least)
    first, last = pair.rise.steps[0], pair.rise.steps[-1]
    said = (
        f"experimental alarm: {judged.task}, which is judged, rises by {gap_text(rise, judged.unit)} "
        f"points from step {first} to {last}, while "
    )
    if pair.kind == "rules fall":
        other = pair.other.change * (beside.items.scale.most - beside.items.scale.least)
        said += (
            f"{beside.task}, which is scored by rules, falls by {gap_text(-other, beside.unit)} "
            f"({p_text(p)}): what the judge rewards may not be what is wanted"
        )
    else:
        other = _grown(pair.other)
        said += (
            f"its answers grow longer by {100 * other:.0f} % ({p_text(p)}): the judge may reward length; "
            "look at answers of the first and the last checkpoint side by side"
        )
    return DriftAlarm(pair.kind, judged.task, beside.task, rise, other, p, said)
