"""The best checkpoint, with what luck gave it taken off, and how figures of training runs are written."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from coeval.analysis.experimental.winner import Winner, stabilised, unstabilised, winner
from coeval.analysis.intervals import scale_of
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.core.figures import difference_text, metric_text, points_per

# --- Scores and differences in sentences


def signed_points(difference: float, low: float, high: float, unit: str) -> str:
    """``3.1 ± 1.9``, or ``3.1 [0.4, 4.2]`` where the interval is lopsided."""
    by = points_per(unit)
    return difference_text(difference * by, low * by, high * by, 1)


# Items; with fewer, normal errors are no guide to what luck gave.
FEWEST = 15


class BestCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoint of the largest mean over ``n_items``, in the metric's unit: ``corrected`` is its score
    with the luck of the winner taken off, too large about as often as too small; ``ci95`` is its interval.
    Both are None where there are fewer than `FEWEST` items."""

    step: int
    mean: float
    corrected: float | None
    ci95: tuple[float, float] | None
    n_items: int
    of: int
    sentence: str


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
    head = f"step {step} scores highest, {metric_text(mean, unit)}"
    if few:
        reported = (
            f"{head}; {items} items are too few to estimate how much of that is luck ({FEWEST} would do)"
        )
        return BestCheckpoint(step, mean, None, None, items, count, reported)
    return BestCheckpoint(
        step=step,
        mean=mean,
        corrected=corrected,
        ci95=(low, high),
        n_items=items,
        of=count,
        sentence=(
            f"{head}; {metric_text(corrected, unit)} [{metric_text(low, unit)}, {metric_text(high, unit)}] "
            f"after correcting for picking the best of {count} (experimental)"
        ),
    )
