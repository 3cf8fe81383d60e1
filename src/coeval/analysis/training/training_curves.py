"""Training runs read from their folders, ready to be drawn, and the scores of their checkpoints on the items
that all of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.comparison.comparison_report import format_difference
from coeval.analysis.comparison.family import FamilyMember, PairDifference, adjust_family
from coeval.analysis.comparison.paired_difference import Difference, PairedScores, paired_difference
from coeval.analysis.intervals import SHARE, Floats, Scale, mean_over_strata, scale_of_unit
from coeval.analysis.training.aggregate import (
    PATTERN,
    CheckpointAggregate,
    TaskAggregate,
    aggregate_checkpoint,
    find_evaluated_steps,
    mean_headline_share,
)
from coeval.analysis.training.checkpoint_scores import (
    CommonItems,
    ItemColumn,
    RunFacts,
    describe_judging_change,
    keep_commonest_metric,
    name_changed_sampling_settings,
    select_common_items,
)
from coeval.core.errors import UsageError
from coeval.core.figures import gap_text, p_value_text
from coeval.core.text import join_names, pluralize

# --- First checkpoint significantly better than the base


class FirstBetter(msgspec.Struct, frozen=True):
    """The first ``step`` after ``base`` that is significantly better (two-sided), None if none is. ``gaps``:
    by step, its paired difference from the base in ``unit``, adjusted for all checkpoints."""

    base: int
    step: int | None
    n_items: int
    gaps: dict[int, PairDifference]
    unit: str
    sentence: str


def find_first_better(common: CommonItems, base: int | None = None) -> FirstBetter | None:
    """Test each checkpoint against ``base``, by default the first; None if there is nothing to test."""
    base = common.steps[0] if base is None and common.steps else base
    if base not in common.steps or len(common.steps) < 2 or len(common.scores) < 2:
        return None
    of_base, weights = common.scores[:, common.steps.index(base)], np.ones(len(common.scores))
    gaps = {
        step: FamilyMember(
            paired_difference([PairedScores(of_base, scores, weights)], len(common.steps) - 1),
            width=common.scale.width,
        )
        for step, scores in zip(common.steps, common.scores.T, strict=True)
        if step != base
    }
    tested = dict(zip(gaps, adjust_family([*gaps.values()]), strict=True))
    better = (step for step, gap in tested.items() if step > base and gap.significant and gap.difference > 0)
    step, items = next(better, None), pluralize(len(common.scores), "paired item")
    if step is None:
        least = float(np.median([gap.minimum_detectable or 0.0 for gap in tested.values()]))
        sentence = (
            f"no checkpoint is significantly better than step {base}, {items}; a true gain of "
            f"{gap_text(least, common.unit)} points would be detected four times in five"
        )
    else:
        by = format_difference(tested[step], common.unit)
        sentence = (
            f"step {step} is the first significantly better than step {base}: by {by} points "
            f"({p_value_text(tested[step].p_adjusted or 0.0)} over all checkpoints), {items}"
        )
    return FirstBetter(base, step, len(common.scores), tested, common.unit, sentence)


# --- Training curves: figures and conclusions by task


@dataclass(frozen=True, slots=True)
class TaskCurve:
    """A task over the checkpoints, ``points`` by step.

    ``alike``: the steps that were made and judged like most, which conclusions count. ``columns``: the items'
    scores behind the conclusions, by step, of ``metric``, or, where that one is fitted to all items at once,
    of the next metric that items have scores in. ``notes`` are what to know of the figures.
    """

    task: str
    metric: str
    unit: str
    points: tuple[TaskAggregate, ...]
    alike: frozenset[int]
    columns: dict[int, ItemColumn]
    first_better: FirstBetter | None
    notes: tuple[str, ...]
    facts: RunFacts
    """How most of its checkpoints were made and judged."""

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(point.step for point in self.points)

    @property
    def conclusions(self) -> tuple[str, ...]:
        return () if self.first_better is None else (self.first_better.sentence,)


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run's ``curves`` by task, and ``folders`` of its checkpoints by step; ``notes``: what is missing."""

    label: str
    folder: Path
    folders: dict[int, Path]
    curves: dict[str, TaskCurve]
    notes: tuple[str, ...]

    @property
    def steps(self) -> list[int]:
        """List the steps that any task has."""
        return sorted({step for curve in self.curves.values() for step in curve.steps})


def read_training_curves(
    runs: Mapping[str, Path],
    tasks: Sequence[str] | None = None,
    steps: Collection[int] | None = None,
    patterns: Mapping[str, str] | None = None,
) -> tuple[TrainingRun, ...]:
    """Read ``runs``, by label the folder that holds the checkpoints' folders, with the curves of their tasks
    in the order of ``tasks``. ``patterns``: by label, the pattern of these folders' names.

    Raises UsageError: a run holds no results of these steps, or of none of these tasks; StoreError: a file
    cannot be read at all.
    """
    training_runs = []
    for label, root in runs.items():
        checkpoints = find_evaluated_steps(root, (patterns or {}).get(label, PATTERN), steps)
        aggregates = [aggregate_checkpoint(step, tasks) for step in checkpoints]
        of_run = build_training_run(label, root, aggregates, tasks)
        if not of_run.curves:
            raise UsageError(f"{root} holds no scores of {join_names(tasks or ()) or 'any task'} yet")
        if absent := sorted(set(steps or ()) - {checkpoint.step for checkpoint in checkpoints}):
            note = f"{root} holds no results of step {join_names(map(str, absent))}"
            of_run = replace(of_run, notes=(note, *of_run.notes))
        training_runs.append(of_run)
    return tuple(training_runs)


def build_training_run(
    label: str,
    root: Path,
    aggregates: Sequence[CheckpointAggregate],
    tasks: Sequence[str] | None = None,
    base: int | None = None,
) -> TrainingRun:
    """Build the curves of aggregated checkpoints; none if no checkpoint has a score. ``base``: the step that
    others are compared with; None: the first one."""
    named = tasks or sorted(
        {task for aggregate in aggregates for task in (*aggregate.tasks, *aggregate.unscored)}
    )
    stops = {task: [aggregate for aggregate in aggregates if task in aggregate.tasks] for task in named}
    notes = [
        f"step {aggregate.checkpoint.step} {task}: {note}"
        for aggregate in aggregates
        for task, why in aggregate.unscored.items()
        for note in why
    ]
    notes += [f"{root} holds no scores of {task}" for task, at in stops.items() if not at]
    curves = {task: _build_task_curve(task, at, base) for task, at in stops.items() if at}
    folders = {aggregate.checkpoint.step: aggregate.checkpoint.folder for aggregate in aggregates}
    return TrainingRun(label, root, folders, curves, tuple(notes))


def _build_task_curve(task: str, aggregates: Sequence[CheckpointAggregate], base: int | None) -> TaskCurve:
    """Build a task's curve from the checkpoints that have it, with notes on those not in conclusions."""
    points = [aggregate.tasks[task] for aggregate in aggregates]
    [((metric, unit), _)] = Counter((point.metric, point.unit) for point in points).most_common(1)
    notes = [
        f"step {point.step} is left out: its first metric is {point.metric}, not {metric}"
        for point in points
        if point.metric != metric
    ]
    points = [point for point in points if (point.metric, point.unit) == (metric, unit)]
    [(usual, _)] = Counter(point.how for point in points).most_common(1)
    notes += [note for point in points for note in _point_notes(point, usual)]
    drawn = {point.step for point in points}
    items = {
        aggregate.checkpoint.step: aggregate.items[task]
        for aggregate in aggregates
        if task in aggregate.items
    }
    columns = keep_commonest_metric({step: column for step, column in items.items() if step in drawn})
    alike = frozenset(point.step for point in points if point.how == usual)
    better = None
    if compared := {step: column for step, column in columns.items() if step in alike}:
        common = select_common_items(compared)
        better = find_first_better(common, base)
        notes += common.notes
        if base is not None and base not in common.steps:
            notes.append(f"nothing is compared with step {base}, which no conclusion counts")
        if common.metric != metric:
            notes.append(f"conclusions use {common.metric}: {metric} is fitted and has no scores per item")
    return TaskCurve(
        task=task,
        metric=metric,
        unit=unit,
        points=tuple(points),
        alike=alike,
        columns=columns,
        first_better=better,
        notes=tuple(notes),
        facts=next(aggregate.facts[task] for aggregate in aggregates if aggregate.checkpoint.step in alike),
    )


def _point_notes(point: TaskAggregate, usual: tuple[str, str]) -> Iterator[str]:
    yield from (f"step {point.step}: {note}" for note in point.notes)
    if point.how != usual:
        unlike = "made with other sampling"
        if point.how[1] != usual[1]:
            unlike = f"judged by {'rules' if point.judge is None else point.judge.model} otherwise"
        yield f"step {point.step} is {unlike} than most checkpoints: no conclusion counts it"


# --- Scores of checkpoints, of one or several runs, on the items that all of them share


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
        at_a, at_b = self.column_of(a), self.column_of(b)
        pairs = [PairedScores(part[:, at_a], part[:, at_b], np.ones(len(part))) for part in self.strata]
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
        notes += [
            f"{task}: {a} and {b} were sampled differently ({how}): the difference also reflects that"
            for (a, curve_a), (b, curve_b) in combinations(curves.items(), 2)
            if (how := name_changed_sampling_settings(curve_a.facts, curve_b.facts))
        ]
        if (shared := _build_task_matrix(task, curves, notes)) is not None:
            matrices.append(shared)
    over = [mean] if (mean := _average_over_tasks(matrices)) is not None else []
    compared = {checkpoint for matrix in over or matrices for checkpoint in matrix.checkpoints}
    notes += [
        f"step {checkpoint.step} of {checkpoint.run} lacks a task, so it is in no mean over tasks"
        for matrix in matrices
        for checkpoint in matrix.checkpoints
        if checkpoint not in compared
    ]
    checkpoints = [TrainedCheckpoint(run.label, step) for run in runs for step in run.steps]
    left_out = [checkpoint for checkpoint in checkpoints if matrices and checkpoint not in compared]
    return MatchedRuns((*over, *matrices), tuple(dict.fromkeys(notes)), tuple(left_out))


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
    in_all = set.intersection(*(set(matrix.checkpoints) for matrix in tasks))
    common = tuple(checkpoint for checkpoint in tasks[0].checkpoints if checkpoint in in_all)
    if not common:
        return None
    shares = []
    for matrix in tasks:
        scores = matrix.strata[0][:, [matrix.column_of(checkpoint) for checkpoint in common]]
        shares.append(scale_of_unit(matrix.unit).to_shares(matrix.scale.to_scores(scores)))
    # longer than from 0 to 1 where items of some task score beyond it, as in HealthBench
    scores = np.concatenate(shares)
    longer = Scale(float(scores.min(initial=SHARE.least)), float(scores.max(initial=SHARE.most)))
    strata = tuple(map(longer.to_shares, shares))
    figures = None
    if all(matrix.figures is not None for matrix in tasks):
        figures = tuple(
            mean_headline_share((matrix.means[matrix.column_of(checkpoint)], matrix.unit) for matrix in tasks)
            for checkpoint in common
        )
    judges = next((matrix.judges for matrix in tasks if matrix.judges is not None), None)
    return CheckpointMatrix(None, "mean over tasks", "share", common, strata, longer, figures, judges)
