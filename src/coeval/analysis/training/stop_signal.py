"""Whether the last checkpoints still gained anything that this evaluation could have seen.

"Nothing significant" is no sign that nothing is there. So the claim is turned round: the signal is given
where a gain of the detectable size or more can be ruled out, in every one of the last checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.special import stdtrit

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import LEVEL
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.figure_text import points_text
from coeval.core.text import listed, numbered

__all__ = ["LAST", "StopSignal", "stop_signal"]

LAST = 3
"""Checkpoints that are looked at, where nobody says another number."""


class StopSignal(msgspec.Struct, frozen=True):
    """Of the ``last`` checkpoints against the one ``before`` them, in the metric's unit.

    ``largest_gain`` is what the best of them gained, ``at_most`` the one-sided 95 % bound of it, and
    ``detectable`` the gain that one comparison finds with 80 % power (or the one that was named). ``stop``:
    every bound is below it. Where the gain is that large in truth, the signal is given in at most 5 of 100
    cases: all bounds would have to fail, so their number needs no adjustment (an intersection-union test).
    """

    before: int
    last: tuple[int, ...]
    largest_gain: float
    at_most: float
    detectable: float
    n_items: int
    stop: bool
    sentence: str


class _Gain(NamedTuple):
    seen: float
    at_most: float
    detectable: float


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
    return StopSignal(
        before=found.steps[before],
        last=found.steps[before + 1 :],
        largest_gain=max(gain.seen for gain in gains) * width,
        at_most=at_most,
        detectable=least,
        n_items=items,
        stop=at_most < least,
        sentence=_sentence(found.steps[before:], (at_most, least), unit, named=detectable is not None),
    )


def _gain(found: CommonItems, before: int, at: int) -> _Gain:
    """Of a checkpoint, on the scale from 0 to 1."""
    a, b = found.scores[:, before], found.scores[:, at]
    items, seen = len(a), float((b - a).mean())
    error = float((b - a).std(ddof=1)) / np.sqrt(items)
    held = paired_difference([PairedScores(a, b, np.ones(items))])
    return _Gain(seen, seen + float(stdtrit(items - 1, LEVEL)) * error, held.minimum_detectable or 1.0)


def _sentence(steps: Sequence[int], sizes: tuple[float, float], unit: str, *, named: bool) -> str:
    """``steps``: the one before the last ones, and these; ``sizes``: the bound, and the gain that matters."""
    before, *last = steps
    bound, least = (points_text(size, unit) for size in sizes)
    which = f"the last {numbered(len(last), 'checkpoint')} ({listed(map(str, last))})"
    matters = "that were named as the smallest that matter" if named else "that could be detected"
    if sizes[0] < sizes[1]:
        return (
            f"{which} gained nothing over step {before} that could be told: at most {bound} points (95 %), "
            f"less than the {least} {matters}"
        )
    return (
        f"{which} may still have gained over step {before}: up to {bound} points (95 %), not less than the "
        f"{least} {matters}"
    )
