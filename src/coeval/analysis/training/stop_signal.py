"""Whether the last checkpoints still gained anything that this evaluation could have seen.

"Nothing significant" is no sign that nothing is there. So the claim is turned round: the signal is given
where a gain of the detectable size or more can be ruled out, in every one of the last checkpoints. Where that
size is more than a gain worth having, too few items were asked to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.special import stdtrit

from coeval.analysis.comparison.comparison_sentence import ALPHA
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import LEVEL, scale_of
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.figure_text import points_text
from coeval.core.text import listed, numbered

__all__ = ["LAST", "StopSignal", "stop_signal"]

LAST = 3
"""Checkpoints that are looked at, where nobody says another number."""
_WORTH = 0.1
"""Of the scale: a gain that must not be overlooked."""
_OF_GAINED = 0.2
"""Of what was gained before; that counts where it is more."""


class StopSignal(msgspec.Struct, frozen=True):
    """Of the ``last`` checkpoints against the one ``before`` them, in the metric's unit.

    ``largest_gain`` is what the best of them gained, ``at_most`` the one-sided 95 % bound of it, and
    ``detectable`` the gain that one comparison finds with 80 % power (or the one that was named). ``stop``:
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
    """``sure``: it is there, beyond chance in one comparison."""

    step: int
    seen: float
    at_most: float
    detectable: float
    sure: bool


def stop_signal(
    found: CommonItems, unit: str, last: int = LAST, detectable: float | None = None
) -> StopSignal | None:
    """None where there are no more than ``last`` checkpoints.

    Parameters
    ----------
    detectable : the smallest gain that matters, in the metric's unit; without it, the smallest that one of
        the comparisons could find
    """
    items, count = found.scores.shape
    if count <= last or items < 2 or last < 1:
        return None
    width = found.scale.most - found.scale.least
    before = count - last - 1
    gains = [_gain(found, before, at) for at in range(before + 1, count)]
    least = max(gain.detectable for gain in gains) * width if detectable is None else detectable
    at_most = max(gain.at_most for gain in gains) * width
    needed = None
    if detectable is None:
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
    matters = (
        "that could be detected" if detectable is None else "that were named as the smallest that matter"
    )
    return msgspec.structs.replace(signal, sentence=_sentence(signal, gains, unit, matters))


def _gain(found: CommonItems, before: int, at: int) -> _Gain:
    """Of a checkpoint, on the scale from 0 to 1."""
    a, b = found.scores[:, before], found.scores[:, at]
    items, seen = len(a), float((b - a).mean())
    error = float((b - a).std(ddof=1) / np.sqrt(items))
    held = paired_difference([PairedScores(a, b, np.ones(items))])
    at_most = seen + float(stdtrit(items - 1, LEVEL)) * error
    sure = seen > 0 and held.p is not None and held.p < ALPHA
    return _Gain(found.steps[at], seen, at_most, held.minimum_detectable or 1.0, sure)


def _sentence(signal: StopSignal, gains: Sequence[_Gain], unit: str, matters: str) -> str:
    bound, least = (points_text(size, unit) for size in (signal.at_most, signal.detectable))
    which = f"the last {numbered(len(signal.last), 'checkpoint')} ({listed(map(str, signal.last))})"
    if signal.stop:
        return (
            f"{which} gained nothing over step {signal.before} that could be told: at most {bound} points "
            f"(95 %), less than the {least} {matters}"
        )
    if any(gain.sure for gain in gains):
        gain = points_text(signal.largest_gain, unit)
        if all(one.sure for one in gains) and gains[-1].seen == max(one.seen for one in gains):
            return f"{which} still gained over step {signal.before}: up to {gain} points"
        sure, rest = ([str(one.step) for one in gains if one.sure is known] for known in (True, False))
        told = f"step {listed(sure)} gained over step {signal.before}: up to {gain} points"
        if rest:
            return f"{told}; step {listed(rest)} shows no detectable gain over it"
        return f"{told}; the highest is step {max(gains, key=lambda one: one.seen).step}"
    if signal.items_needed is not None:
        return (
            f"{signal.n_items:,} items are too few to tell whether {which} gained over step {signal.before}: "
            f"gains below {least} points are not seen; about {signal.items_needed:,} items would do"
        )
    return (
        f"{which} may have gained over step {signal.before}: at most {bound} points (95 %), not less than "
        f"the {least} {matters}"
    )
