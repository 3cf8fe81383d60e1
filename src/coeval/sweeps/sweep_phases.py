"""Which parts of a sweep are done by this start of it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SweepPhases"]


class SweepPhases(NamedTuple):
    """``inference`` asks the checkpoints, ``judge`` has the judged tasks judged, ``plot`` puts the samples
    together and draws the curves. What rules score is scored in any case."""

    inference: bool = True
    judge: bool = True
    plot: bool = True
