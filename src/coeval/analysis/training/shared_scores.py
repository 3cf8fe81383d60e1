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
    benchmark itself reports of each checkpoint, if it covers these very items; None: their means.
    ``judges``: 1 if one judged them, None if rules did.
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
        """Return each checkpoint's mean, in the metric's unit."""
        if self.figures is not None:
            return self.figures
        shares = np.mean([part.mean(axis=0) for part in self.strata], axis=0)
        return tuple(self.scale.to_scores(shares).tolist())

    def mean_interval(self, checkpoint: TrainedCheckpoint) -> tuple[float, float]:
        """Return the 95% interval of a checkpoint's mean over items, in the metric's unit."""
        bounds = mean_over_strata([part[:, self.column_of(checkpoint)] for part in self.strata])
        mean = self.means[self.column_of(checkpoint)]
        low, high = (mean if end is None else self.scale.to_scores(end) for end in (bounds.low, bounds.high))
        return min(low, mean), max(high, mean)

    def column_of(self, checkpoint: TrainedCheckpoint) -> int:
        return self.checkpoints.index(checkpoint)

    def steps_of_run(self, run: str) -> list[int]:
        return [checkpoint.step for checkpoint in self.checkpoints if checkpoint.run == run]

    def difference(self, a: TrainedCheckpoint, b: TrainedCheckpoint, family: int = 1) -> Difference:
        """Return b − a, paired by item, as a share of the scale."""
        column_a, column_b = self.column_of(a), self.column_of(b)
        pairs = [
            PairedScores(part[:, column_a], part[:, column_b], np.ones(len(part))) for part in self.strata
        ]
        return paired_difference(pairs, family)


class MatchedRuns(NamedTuple):
    """Runs on their ``shared`` tasks: over the tasks first, if there are several; ``notes``: what could not
    be compared, and why; ``left_out``: checkpoints that lack a task or too many items, or were made
    differently."""

    shared: tuple[CheckpointMatrix, ...]
    notes: tuple[str, ...]
    left_out: tuple[TrainedCheckpoint, ...] = ()


def match_runs(runs: Sequence[TrainingRun]) -> MatchedRuns:
    """Match the tasks that all of these runs have, scored by the same metric and judged alike."""
    matrices: list[CheckpointMatrix] = []
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
            matrices.append(shared)
    over = _average_over_tasks(matrices)
    if over is not None:
        for checkpoint in dict.fromkeys(
            checkpoint for matrix in matrices for checkpoint in matrix.checkpoints
        ):
            if checkpoint not in over.checkpoints:
                notes.append(
                    f"step {checkpoint.step} of {checkpoint.run} lacks a task: it is in no mean over tasks"
                )
    together = (over, *matrices) if over is not None else tuple(matrices)
    all_checkpoints = (
        [TrainedCheckpoint(run.label, step) for run in runs for step in run.steps] if matrices else []
    )
    main = matrices if over is None else [over]
    left_out = [
        checkpoint
        for checkpoint in all_checkpoints
        if not any(checkpoint in matrix.checkpoints for matrix in main)
    ]
    return MatchedRuns(together, tuple(dict.fromkeys(notes)), tuple(left_out))


def _why_incomparable(curves: dict[str, TaskCurve]) -> str:
    """Say why the scores of two runs do not measure the same thing; empty if all do."""
    for (a, curve_a), (b, curve_b) in combinations(curves.items(), 2):
        if not (curve_a.columns and curve_b.columns):
            return "no item has a score of its own"
        [column_a, *_], [column_b, *_] = curve_a.columns.values(), curve_b.columns.values()
        if (column_a.metric, column_a.unit) != (column_b.metric, column_b.unit):
            return f"its metric is {column_a.metric} in {a} and {column_b.metric} in {b}"
        if how := describe_judging_change(curve_a.facts, curve_b.facts):
            return f"{a} and {b} are {how}; judge both alike, with --judge-only or --no-inference"
    return ""


def _sampling_notes(task: str, curves: dict[str, TaskCurve]) -> Iterator[str]:
    for (a, curve_a), (b, curve_b) in combinations(curves.items(), 2):
        if how := describe_sampling_change(curve_a.facts, curve_b.facts):
            yield f"{task}: {a} and {b} were sampled differently ({how}): the difference is also one of that"


def _build_task_matrix(task: str, curves: dict[str, TaskCurve], notes: list[str]) -> CheckpointMatrix | None:
    """Build the matrix of a task's common items over all runs; None, with a note, if there are too few."""
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
    """Average the tasks, as a share of each one's scale, for the checkpoints that are in all of them."""
    if len(tasks) < 2:
        return None
    common = tuple(
        checkpoint
        for checkpoint in tasks[0].checkpoints
        if all(checkpoint in matrix.checkpoints for matrix in tasks[1:])
    )
    if not common:
        return None
    shares = []
    for matrix in tasks:
        columns = [matrix.column_of(checkpoint) for checkpoint in common]
        shares.append(
            scale_of_unit(matrix.unit).to_shares(matrix.scale.to_scores(matrix.strata[0][:, columns]))
        )
    # longer than from 0 to 1 where items of some task score beyond it, as in HealthBench
    least = min(SHARE.least, *(float(part.min()) for part in shares))
    most = max(SHARE.most, *(float(part.max()) for part in shares))
    longer = Scale(least, most)
    strata = tuple(map(longer.to_shares, shares))
    figures = None
    if all(matrix.figures is not None for matrix in tasks):
        figures = tuple(
            mean_over_tasks((matrix.means[matrix.column_of(checkpoint)], matrix.unit) for matrix in tasks)
            for checkpoint in common
        )
    judges = next((matrix.judges for matrix in tasks if matrix.judges is not None), None)
    return CheckpointMatrix(None, "mean over tasks", "share", common, strata, longer, figures, judges)
