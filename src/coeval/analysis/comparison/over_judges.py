"""A difference, or a mean, with the judges taken as a sample as well: its second interval, and in words.

The first interval is over items, by these judges. Whether other judges like these would say the same is the
question of the second one, `coeval.analysis.panel.mean_squares.judge_spread`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from scipy.special import stdtr, stdtrit

from coeval.analysis.anytime import Looks, bounds_at_any_look, p_at_any_look
from coeval.analysis.comparison.paired_difference import Difference
from coeval.analysis.intervals import LEVEL, Bounds
from coeval.analysis.panel.mean_squares import (
    ByJudge,
    JudgeScatter,
    JudgeSpread,
    judge_scatter,
    judge_spread,
    own_means,
    pooled_scatter,
)

# Differences by less are rounding: a judge sees neither ahead.
_SAME = 1e-9

_Pair = TypeVar("_Pair", bound=Hashable)


class OverJudges(msgspec.Struct, frozen=True):
    """A difference over items and judges.

    ``low``, ``high`` and ``p`` are None where nothing is known, as of one judge; ``degrees`` of freedom are
    those of its error. ``judges`` scored both; of these so many are ``agreeing``: by themselves they put
    the same one ahead.
    """

    low: float | None
    high: float | None
    p: float | None
    judges: int
    agreeing: int
    degrees: float = 1.0


def spread_over_judges(
    pairs: Mapping[_Pair, Sequence[ByJudge]], others: int
) -> dict[_Pair, JudgeScatter | None]:
    """By pair, what judges add to its difference: a variance that all pairs have in common.

    Parameters
    ----------
    pairs : by task, what each judge gave the second more than the first
    others : how many students a student is compared with
    """
    own = {pair: judge_scatter(tasks) for pair, tasks in pairs.items()}
    pooled = pooled_scatter(list(own.values()), others)
    return {
        pair: None if one is None or pooled is None else pooled._replace(judges=one.judges)
        for pair, one in own.items()
    }


def over_judges(
    found: Difference, tasks: Sequence[ByJudge], scatter: JudgeScatter | None
) -> OverJudges | None:
    """The second interval of a difference, never narrower than the first, and its p-value, never smaller;
    None where no judge scored any of it."""
    if not any(task.share > 0 for task in tasks):
        return None
    means = own_means(tasks)
    means = means[np.isfinite(means)]
    ahead = means * (1 if found.difference > 0 else -1) > _SAME
    agreeing = int(ahead.sum()) if abs(found.difference) > _SAME else 0
    if scatter is None or found.p is None:
        return OverJudges(None, None, None, len(means), agreeing)
    spread = judge_spread(found.error**2, found.degrees, scatter)
    low, high = _widened(found.difference, Bounds(found.low, found.high), spread, Bounds(-1.0, 1.0))
    p = 2 * float(stdtr(spread.degrees, -abs(found.difference) / spread.error)) if spread.error else 1.0
    return OverJudges(low, high, max(p, found.p), len(means), agreeing, spread.degrees)


def judges_at_any_look(found: OverJudges | None, by: float, looks: Looks | None) -> OverJudges | None:
    """The same of a difference of ``by`` with an interval and a p-value that hold at any look at a run that
    grows; one look: as it is."""
    if found is None or looks is None or not looks.many:
        return found
    if found.p is None or found.low is None or found.high is None:
        return found
    low, high = bounds_at_any_look(by, Bounds(found.low, found.high), found.degrees, looks)
    return msgspec.structs.replace(found, low=low, high=high, p=p_at_any_look(found.p, looks))


def mean_over_judges(mean: float, bounds: Bounds, items: int, scatter: JudgeScatter) -> Bounds:
    """The second interval of a mean from 0 to 1 over ``items``, whose first one is ``bounds``; what these say
    of its error is taken for the error over items."""
    degrees = max(items - 1, 1)
    error = (bounds.high - bounds.low) / 2 / float(stdtrit(degrees, (1 + LEVEL) / 2))
    return _widened(mean, bounds, judge_spread(error**2, degrees, scatter), Bounds(0.0, 1.0))


def _widened(middle: float, bounds: Bounds, spread: JudgeSpread, ends: Bounds) -> Bounds:
    half = float(stdtrit(spread.degrees, (1 + LEVEL) / 2)) * spread.error
    low, high = min(middle - half, bounds.low), max(middle + half, bounds.high)
    return Bounds(max(low, ends.low), min(high, ends.high))


# --- In words


class JudgesView(NamedTuple):
    """What a sentence says of judges: how many scored both, how many agree, and the ``interval`` over items
    and judges as it is shown, empty where nothing can be told."""

    judges: int
    agreeing: int
    interval: str


def doubt_of_judges(view: JudgesView) -> str:
    """Whether other judges would agree, where that is not shown: a clause after a semicolon."""
    if not view.interval:
        why = (
            ": one judge scored both" if view.judges == 1 else ": no items have scores of two judges of both"
        )
        return f"whether other judges would agree is not known{why}"
    seen = f"{view.interval}; {view.agreeing} of {view.judges} judges see it so"
    if view.judges == 2:
        return f"whether other judges would agree can only be guessed from two ({seen})"
    return f"whether other judges would agree is open ({seen})"
