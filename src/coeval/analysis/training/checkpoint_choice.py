"""Which checkpoint to ship, of which training run: the best one and those tied with it, whether scores still
rise, and runs held against each other at equal steps.

All of it is paired, on the items that every checkpoint has (`coeval.analysis.training.shared_scores`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from coeval.analysis.comparison.comparisons import gatekept
from coeval.analysis.intervals import ALPHA
from coeval.analysis.training.best_checkpoint import FEWEST, Estimates, best_checkpoint, winner
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.curve_conclusions import step_down_pairs
from coeval.analysis.training.shared_scores import CheckpointMatrix, TrainedCheckpoint


class CheckpointChoice(msgspec.Struct, frozen=True):
    """The ``best`` of ``of`` checkpoints in a task (None: over tasks), in the metric's unit.

    ``corrected`` is its ``mean`` after correcting for picking the best, with ``ci95``; None with fewer than
    15 items. ``peers`` are statistically tied with it: pairwise tests of all checkpoints, adjusted for their
    number, do not tell them from it.
    """

    task: str | None
    metric: str
    unit: str
    best: TrainedCheckpoint
    mean: float
    corrected: float | None
    ci95: tuple[float, float] | None
    peers: tuple[TrainedCheckpoint, ...]
    n_items: int
    of: int


class StepChange(msgspec.Struct, frozen=True):
    """A run's last step against the one ``before``, in the metric's unit; ``p_adjusted`` allows for all tasks
    and runs."""

    run: str
    task: str | None
    unit: str
    before: int
    step: int
    difference: float
    ci95: tuple[float, float]
    p: float | None
    p_adjusted: float | None
    n_items: int

    @property
    def trend(self) -> Literal["rising", "falling", "no significant change"]:
        if self.p_adjusted is None or self.p_adjusted >= ALPHA:
            return "no significant change"
        return "rising" if self.difference > 0 else "falling"


class OverallMean(msgspec.Struct, frozen=True):
    """A checkpoint's mean over the tasks, each counting alike, as a share; ``band``: its part of the 95% band
    that holds all checkpoints of the run at once."""

    run: str
    step: int
    mean: float
    band: tuple[float, float]
    n_items: int


class RunDifference(msgspec.Struct, frozen=True):
    """Run b less run a at one ``step``, in the metric's unit; ``p_adjusted`` allows for all steps, tasks and
    pairs of runs."""

    a: str
    b: str
    task: str | None
    unit: str
    step: int
    mean_a: float
    mean_b: float
    difference: float
    ci95: tuple[float, float]
    p: float | None
    p_adjusted: float | None
    n_items: int
    minimum_detectable: float | None
    identical: bool = False

    @property
    def significant(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA


# --- The best checkpoint and its peers


def choose(shared: CheckpointMatrix) -> CheckpointChoice | None:
    """None where there is nothing to choose from."""
    count, means = len(shared.checkpoints), shared.means
    if count < 2 or shared.items < 2:
        return None
    best = int(np.argmax(means))
    won = _corrected(shared, best)
    p_values = step_down_pairs(shared.stacked())[best]
    peers = [at for at in range(count) if at != best and p_values[at] >= ALPHA]
    peers.sort(key=lambda at: -means[at])
    return CheckpointChoice(
        task=shared.task,
        metric=shared.metric,
        unit=shared.unit,
        best=shared.checkpoints[best],
        mean=means[best],
        corrected=None if won is None else won.value,
        ci95=None if won is None else won.ci95,
        peers=tuple(shared.checkpoints[at] for at in peers),
        n_items=shared.items,
        of=count,
    )


class _Corrected(NamedTuple):
    value: float
    ci95: tuple[float, float]


def _corrected(shared: CheckpointMatrix, best: int) -> _Corrected | None:
    """What the best is worth in the metric's unit; None with too few items, or where another one has the
    highest mean over items than by the benchmark's own figure."""
    if shared.items < FEWEST:
        return None
    if len(shared.strata) == 1:
        [scores] = shared.strata
        places = tuple(range(len(shared.checkpoints)))
        items = CommonItems(places, scores, np.empty(0), shared.scale, ())
        figures = None if shared.figures is None else dict(enumerate(shared.figures))
        one = best_checkpoint(items, shared.unit, figures)
        if one is None or one.step != best or one.corrected is None or one.ci95 is None:
            return None
        return _Corrected(one.corrected, one.ci95)
    means = np.mean([part.mean(axis=0) for part in shared.strata], axis=0)
    variances = [np.atleast_2d(np.cov(part.T)) / len(part) for part in shared.strata if len(part) > 1]
    won = winner(Estimates(means, np.sum(variances, axis=0) / len(shared.strata) ** 2))
    if won.place != best:
        return None
    by = shared.means[best] - (shared.scale.least + shared.width * float(means[best]))
    value, low, high = (shared.scale.least + shared.width * float(share) + by for share in won[1:])
    return _Corrected(value, (low, high))


def overall_means(shared: CheckpointMatrix) -> Iterator[OverallMean]:
    for run in dict.fromkeys(one.run for one in shared.checkpoints):
        for step, band in shared.bands(run).items():
            mean = shared.means[shared.at(TrainedCheckpoint(run, step))]
            yield OverallMean(run, step, mean, band, shared.items)


# --- Still rising?


def changes(shared: CheckpointMatrix) -> Iterator[StepChange]:
    for run in dict.fromkeys(one.run for one in shared.checkpoints):
        if len(steps := sorted(shared.steps(run))) < 2:
            continue
        before, last = steps[-2:]
        found = shared.difference(TrainedCheckpoint(run, before), TrainedCheckpoint(run, last))
        yield StepChange(
            run=run,
            task=shared.task,
            unit=shared.unit,
            before=before,
            step=last,
            difference=found.difference * shared.width,
            ci95=(found.low * shared.width, found.high * shared.width),
            p=found.p,
            p_adjusted=None,
            n_items=found.n,
        )


# --- Run against run, at equal steps


def differences(shared: CheckpointMatrix) -> Iterator[RunDifference]:
    runs = list(dict.fromkeys(one.run for one in shared.checkpoints))
    pairs = [
        (a, b, step)
        for a, b in combinations(runs, 2)
        for step in sorted({*shared.steps(a)} & {*shared.steps(b)})
    ]
    for a, b, step in pairs:
        one, other = TrainedCheckpoint(a, step), TrainedCheckpoint(b, step)
        found = shared.difference(one, other, len(pairs))
        least = found.minimum_detectable
        yield RunDifference(
            a=a,
            b=b,
            task=shared.task,
            unit=shared.unit,
            step=step,
            mean_a=shared.means[shared.at(one)],
            mean_b=shared.means[shared.at(other)],
            difference=found.difference * shared.width,
            ci95=(found.low * shared.width, found.high * shared.width),
            p=found.p,
            p_adjusted=None,
            n_items=found.n,
            minimum_detectable=None if least is None else least * shared.width,
            identical=found.identical,
        )


_Tested = TypeVar("_Tested", StepChange, RunDifference)


def adjusted(rows: Sequence[_Tested]) -> list[_Tested]:
    """One error rate for all: half of it for what is over tasks, half for single tasks, by Holm in each."""
    found = gatekept([one.p for one in rows], [None] * len(rows), [one.task is None for one in rows])
    return [msgspec.structs.replace(one, p_adjusted=p) for one, p in zip(rows, found, strict=True)]
