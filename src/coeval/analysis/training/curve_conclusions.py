"""What follows from the items' scores at the checkpoints of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coeval.analysis.intervals import scale_of
from coeval.analysis.training.best_checkpoint import BestCheckpoint, best_checkpoint
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.first_better import FirstBetter, first_better
from coeval.analysis.training.simultaneous_bands import simultaneous_bounds
from coeval.analysis.training.stop_signal import StopSignal, stop_signal

__all__ = ["NOTHING_FOLLOWS", "CurveConclusions", "conclude_curve"]


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
