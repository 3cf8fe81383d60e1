"""What is known of a training run: for each task its figures over the checkpoints, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from coeval.analysis.pairwise.length_control import FEW_PREFERENCES, LENGTH_CONTROLLED
from coeval.analysis.training.best_checkpoint import BestCheckpoint
from coeval.analysis.training.checkpoint_scores import CheckpointScores
from coeval.analysis.training.drift_alarms import DriftAlarm
from coeval.analysis.training.first_better import FirstBetter
from coeval.analysis.training.stop_signal import StopSignal

__all__ = ["CurvePoint", "TaskCurve", "TrainingRun"]


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A task's headline at one checkpoint, in the metric's unit.

    ``mean``, ``std``, ``sem``, ``ci95``, ``per_run`` as in ``summary_agg.json``; without that file
    (``aggregated`` False) the mean of the samples there are, and no errors. ``band``: its part of the
    simultaneous 95 % band over all checkpoints, None where the items' scores are not there. ``folder`` is the
    checkpoint's output folder, ``judge`` None where rules score; ``comparable``: made and judged like most
    checkpoints of the task, so that conclusions count it.
    """

    step: int
    folder: Path
    mean: float
    std: float | None
    sem: float | None
    ci95: tuple[float, float] | None
    band: tuple[float, float] | None
    per_run: tuple[float, ...]
    n_items: int
    n_runs: int
    missing: int
    model: str
    judge: str | None
    aggregated: bool
    comparable: bool


@dataclass(frozen=True, slots=True)
class TaskCurve:
    """A task over the checkpoints, ``points`` by step.

    ``items`` are the scores behind the conclusions: of ``metric``, or, where that one is fitted to all items
    at once, of the next metric that items have scores in; then no point has a band. ``conclusions`` are
    sentences, those of ``first_better``, ``best`` and ``stop``; ``notes`` are what to know of the figures.
    """

    task: str
    metric: str
    unit: str
    judged: bool
    points: tuple[CurvePoint, ...]
    items: CheckpointScores | None
    first_better: FirstBetter | None
    best: BestCheckpoint | None
    stop: StopSignal | None
    conclusions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(point.step for point in self.points)

    @property
    def fewest(self) -> int | None:
        """On how few prompts a length-controlled rate rests, where these are too few for an estimate."""
        fewest = min(point.n_items for point in self.points)
        return fewest if self.metric == LENGTH_CONTROLLED and fewest < FEW_PREFERENCES else None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """``curves`` by task; ``drift`` is what speaks against the scores of judged tasks, ``alarms`` its
    sentences."""

    label: str
    folder: Path
    curves: dict[str, TaskCurve]
    drift: tuple[DriftAlarm, ...]
    notes: tuple[str, ...]

    @property
    def alarms(self) -> tuple[str, ...]:
        return tuple(one.sentence for one in self.drift)
