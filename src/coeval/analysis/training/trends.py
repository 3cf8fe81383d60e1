"""Whether scores, or the lengths of answers, rise or fall over training; items are the independent units."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.special import stdtr

from coeval.analysis.intervals import Floats

__all__ = ["Trend", "trend"]


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
