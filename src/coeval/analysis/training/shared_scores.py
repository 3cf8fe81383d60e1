"""The scores of checkpoints of one or several training runs on the items that all of them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.comparison.paired_difference import Difference, PairedScores, paired_difference
from coeval.analysis.intervals import SHARE, Floats, Scale, mean_over_strata, scale_of_unit
from coeval.analysis.training.checkpoint_scores import (
    ItemColumn,
    describe_judging_change,
    describe_sampling_change,
    select_common_items,
)
from coeval.analysis.training.sample_figures import mean_over_tasks
from coeval.analysis.training.training_curves import TaskCurve, TrainingRun
from coeval.core.text import join_names, pluralize


class TrainedCheckpoint(msgspec.Struct, frozen=True):
    """A step of a training run, by the run's label."""

    run: str
    step: int


class CheckpointMatrix(NamedTuple):
    """Scores of C ``checkpoints``, from 0 to 1 of ``scale``, on the items that all of them have.

    ``strata``: (n, C) for each task, which count alike; ``task`` None: over tasks. ``figures``: what the
    benchmark itself reports of each checkpoint, where it is of these very items; None: their means.
    ``judges``: 1 where one judged them, None where rules did.
    """

    task: str | None
    metric: str
    unit: str
    checkpoints: tuple[TrainedCheckpoint, ...]
    strata: tuple[Floats, ...]
    scale: Scale
    figures: tuple[float, ...] | None = None
    judges: int | None = None

    @property
    def items(self) -> int:
        return sum(len(part) for part in self.strata)

    @property
    def means(self) -> tuple[float, ...]:
        """In the metric's unit."""
        if self.figures is not None:
            return self.figures
        shares = np.mean([part.mean(axis=0) for part in self.strata], axis=0)
        return tuple(self.scale.to_scores(shares).tolist())

    def mean_interval(self, checkpoint: TrainedCheckpoint) -> tuple[float, float]:
        """The 95% interval of a checkpoint's mean over items, in the metric's unit."""
        found = mean_over_strata([part[:, self.column_of(checkpoint)] for part in self.strata])
        shown = self.means[self.column_of(checkpoint)]
        low, high = (
            shown if each is None else self.scale.to_scores(each) for each in (found.low, found.high)
        )
        return min(low, shown), max(high, shown)

    def column_of(self, checkpoint: TrainedCheckpoint) -> int:
        return self.checkpoints.index(checkpoint)

    def steps_of_run(self, run: str) -> list[int]:
        return [one.step for one in self.checkpoints if one.run == run]

    def difference(self, a: TrainedCheckpoint, b: TrainedCheckpoint, family: int = 1) -> Difference:
        """b − a, paired by item, as a share of the scale."""
        of_a, of_b = self.column_of(a), self.column_of(b)
        pairs = [PairedScores(part[:, of_a], part[:, of_b], np.ones(len(part))) for part in self.strata]
        return paired_difference(pairs, family)


class MatchedRuns(NamedTuple):
    """``shared``: over the tasks first, where there are several; ``notes`` say what could not be put side by
    side, and why; ``left_out``: checkpoints that lack a task or too many items, or were made otherwise."""

    shared: tuple[CheckpointMatrix, ...]
    notes: tuple[str, ...]
    left_out: tuple[TrainedCheckpoint, ...] = ()


def match_runs(runs: Sequence[TrainingRun]) -> MatchedRuns:
    """The tasks that all of these runs have, scored by the same metric and judged alike."""
    found: list[CheckpointMatrix] = []
    notes: list[str] = []
    for task in dict.fromkeys(task for run in runs for task in run.curves):
        curves = {run.label: run.curves[task] for run in runs if task in run.curves}
        if lacking := [run.label for run in runs if run.label not in curves]:
            notes.append(f"{task} is not compared: {join_names(lacking)} lacks it")
            continue
        if why := _why_incomparable(curves):
            notes.append(f"{task} is not compared: {why}")
            continue
        notes += _sampling_notes(task, curves)
        if (shared := _build_task_matrix(task, curves, notes)) is not None:
            found.append(shared)
    over = _average_over_tasks(found)
    if over is not None:
        for one in dict.fromkeys(one for each in found for one in each.checkpoints):
            if one not in over.checkpoints:
                notes.append(f"step {one.step} of {one.run} lacks a task: it is in no mean over tasks")
    together = (over, *found) if over is not None else tuple(found)
    every = [TrainedCheckpoint(run.label, step) for run in runs for step in run.steps] if found else []
    main = found if over is None else [over]
    out = [one for one in every if not any(one in each.checkpoints for each in main)]
    return MatchedRuns(together, tuple(dict.fromkeys(notes)), tuple(out))


def _why_incomparable(curves: dict[str, TaskCurve]) -> str:
    """Why the scores of some two runs are no measure of the same thing."""
    for (a, one), (b, other) in combinations(curves.items(), 2):
        if not (one.columns and other.columns):
            return "no item has a score of its own"
        [mine, *_], [theirs, *_] = one.columns.values(), other.columns.values()
        if (mine.metric, mine.unit) != (theirs.metric, theirs.unit):
            return f"its metric is {mine.metric} in {a} and {theirs.metric} in {b}"
        if how := describe_judging_change(one.facts, other.facts):
            return f"{a} and {b} are {how}; judge both alike, with --judge-only or --no-inference"
    return ""


def _sampling_notes(task: str, curves: dict[str, TaskCurve]) -> Iterator[str]:
    for (a, one), (b, other) in combinations(curves.items(), 2):
        if how := describe_sampling_change(one.facts, other.facts):
            yield f"{task}: {a} and {b} were sampled differently ({how}): the difference is also one of that"


def _build_task_matrix(task: str, curves: dict[str, TaskCurve], notes: list[str]) -> CheckpointMatrix | None:
    columns: dict[int, ItemColumn] = {}
    checkpoints: list[TrainedCheckpoint] = []
    figures: list[float] = []
    for run, curve in curves.items():
        alike = {point.step: point.mean for point in curve.points if point.step in curve.alike}
        own = {step: column for step, column in curve.columns.items() if step in alike}
        for step in select_common_items(own).steps if own else ():
            columns[len(checkpoints)] = own[step]
            checkpoints.append(TrainedCheckpoint(run, step))
            figures.append(alike[step])
    if not columns:
        return None
    common = select_common_items(columns, 1.0)
    if len(common.scores) < 2:
        notes.append(f"{task} is not compared: the runs share {pluralize(len(common.scores), 'item')} of it")
        return None
    if len(curves) > 1:  # a curve has the same note of its own run
        notes += (f"{task}: {note}" for note in common.notes)
    whole = not common.notes and common.metric == next(iter(curves.values())).metric
    return CheckpointMatrix(
        task,
        common.metric,
        common.unit,
        tuple(checkpoints),
        (common.scores,),
        common.scale,
        tuple(figures) if whole else None,
        1 if any(curve.facts.judge is not None for curve in curves.values()) else None,
    )


def _average_over_tasks(tasks: Sequence[CheckpointMatrix]) -> CheckpointMatrix | None:
    """The mean over tasks, as a share of each one's scale, of the checkpoints that are in all of them."""
    if len(tasks) < 2:
        return None
    everywhere = tuple(
        one for one in tasks[0].checkpoints if all(one in each.checkpoints for each in tasks[1:])
    )
    if not everywhere:
        return None
    shares = []
    for each in tasks:
        places = [each.column_of(one) for one in everywhere]
        shares.append(scale_of_unit(each.unit).to_shares(each.scale.to_scores(each.strata[0][:, places])))
    # longer than from 0 to 1 where items of some task score beyond it, as in HealthBench
    least = min(SHARE.least, *(float(part.min()) for part in shares))
    most = max(SHARE.most, *(float(part.max()) for part in shares))
    longer = Scale(least, most)
    strata = tuple(map(longer.to_shares, shares))
    figures = None
    if all(each.figures is not None for each in tasks):
        figures = tuple(
            mean_over_tasks((each.means[each.column_of(one)], each.unit) for each in tasks)
            for one in everywhere
        )
    judges = next((each.judges for each in tasks if each.judges is not None), None)
    return CheckpointMatrix(None, "mean over tasks", "share", everywhere, strata, longer, figures, judges)
