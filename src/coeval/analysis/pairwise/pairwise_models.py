"""The statistics of the judged benchmarks, by the name of the benchmark they belong to.

Preferences and win rates of AlpacaEval 2 with length control, scores of Arena-Hard with style
control, and HealthBench's share of points. Each is documented where it is defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coeval.analysis.intervals import SHARE, Bounds, Scale, Scatter, clustered_mean, mean_bounds
from coeval.analysis.pairwise.alpaca import (
    GamedAnnotations,
    LengthControl,
    WinRate,
    alpaca_length_controlled,
    alpaca_preference,
    alpaca_win_rate,
    fit_length_control,
    switched_order,
)
from coeval.analysis.pairwise.arena import (
    VERDICTS,
    ArenaJudgment,
    ArenaScore,
    Style,
    StyleControl,
    StyledPair,
    arena_scores,
    markdown_style,
)
from coeval.analysis.pairwise.rates import draws

__all__ = [
    "VERDICTS",
    "ArenaJudgment",
    "ArenaScore",
    "ClippedMean",
    "GamedAnnotations",
    "LengthControl",
    "Style",
    "StyleControl",
    "StyledPair",
    "WinRate",
    "alpaca_length_controlled",
    "alpaca_preference",
    "alpaca_win_rate",
    "arena_scores",
    "clipped_mean",
    "fit_length_control",
    "healthbench_score",
    "markdown_style",
    "switched_order",
]


# --- HealthBench score: points for met rubric items
#
# Arora et al. 2025. Negative points are for what an answer should not do, so an answer can score below 0;
# only the mean is clipped.


class ClippedMean(NamedTuple):
    """A mean clipped to 0 … 1, its bootstrap's standard deviation, its 95 % interval, the number of values.

    Without values there is none of the first three.
    """

    mean: float | None
    bootstrap_std: float | None
    bounds: Bounds | None
    n: int


def healthbench_score(points: Sequence[float], met: Sequence[bool]) -> float | None:
    """``Σ points of the met items / Σ positive points``; None where no points can be gained.

    >>> healthbench_score([7, 5, 10, -6], [True, False, True, True])
    0.5
    """
    if len(points) != len(met):
        raise ValueError(f"each rubric item needs a verdict: {len(points)} items, {len(met)} verdicts")
    reachable = sum(value for value in points if value > 0)
    if reachable == 0:
        return None
    return sum(value for value, is_met in zip(points, met, strict=True) if is_met) / reachable


def clipped_mean(values: Sequence[float], least: Sequence[float], *, seed: int = 0) -> ClippedMean:
    """Mean of item scores as the benchmark reports it; resampled means are clipped likewise.

    The interval is that of the mean on its own scale, which begins at the mean of the least scores, clipped.
    Where all of it lies below 0, it is that of as many scores of 0: no interval is without a width.

    Parameters
    ----------
    values : item scores, at most 1 each; what failed is left out by the caller, who reports it
    least : what each of these items' scores could be at the least, 0 or less
    seed : of the bootstrap
    """
    scores = np.array(values, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("values must be finite; leave out what has no score")
    n = len(scores)
    if not n:
        return ClippedMean(None, None, None, 0)
    drawn = draws(n, np.random.default_rng(seed))
    spread = float(np.clip(drawn @ scores / n, 0.0, 1.0).std())
    scale = Scale(float(np.mean(least)), SHARE.most)
    interval = clustered_mean(scores, np.arange(n), scale)
    low, high = interval.low or 0.0, interval.high or 0.0
    if high <= 0:
        low, high = mean_bounds(0.0, [Scatter(n, 0.0)])
    return ClippedMean(float(np.clip(scores.mean(), 0.0, 1.0)), spread, Bounds(max(low, 0.0), high), n)
