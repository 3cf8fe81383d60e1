"""Training runs read from their folders, ready to be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from coeval.analysis.comparison.comparison_report import format_difference
from coeval.analysis.comparison.family import FamilyMember, PairDifference, adjust_family
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.training.aggregate import (
    PATTERN,
    CheckpointAggregate,
    TaskAggregate,
    aggregate_checkpoint,
    find_evaluated_steps,
)
from coeval.analysis.training.checkpoint_scores import (
    CommonItems,
    ItemColumn,
    RunFacts,
    keep_columns_of_main_metric,
    select_common_items,
)
from coeval.core.errors import UsageError
from coeval.core.figures import gap_text
from coeval.core.text import join_names, p_value_text, pluralize

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
        """Return the sentence of ``first_better``, or None."""
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
    base: int | None = None,
) -> tuple[TrainingRun, ...]:
    """Read every run by its label, with the curves of its tasks in the order of ``tasks``.

    Parameters
    ----------
    runs : by label, the folder that holds the checkpoints' folders
    tasks, steps : only these; None: all
    patterns : by label, the pattern of the checkpoints' folder names; ``step_{step}`` by default
    base : the step that others are compared with; by default the first one

    Raises
    ------
    UsageError
        a run holds no results of these steps, or of none of these tasks.
    StoreError
        a file cannot be read at all.
    """
    training_runs = []
    for label, root in runs.items():
        checkpoints = find_evaluated_steps(root, (patterns or {}).get(label, PATTERN), steps, base)
        of_run = build_training_run(
            label, root, [aggregate_checkpoint(step, tasks) for step in checkpoints], tasks, base
        )
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
    """Build the curves of aggregated checkpoints, as `read_training_curves` does; none if no checkpoint has a
    score."""
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
    columns = keep_columns_of_main_metric({step: column for step, column in items.items() if step in drawn})
    alike = frozenset(point.step for point in points if point.how == usual)
    better = None
    if compared := {step: column for step, column in columns.items() if step in alike}:
        common = select_common_items(compared)
        better = find_first_better(common, base)
        notes += common.notes
        if base is not None and base not in common.steps:
            notes.append(f"nothing is held against step {base}, which no conclusion counts")
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
        yield f"step {point.step} is {_describe_unlike_point(point, usual)}: no conclusion counts it"


def _describe_unlike_point(point: TaskAggregate, usual: tuple[str, str]) -> str:
    if point.how[1] != usual[1]:
        who = "rules" if point.judge is None else point.judge.model
        return f"judged by {who} otherwise than most checkpoints"
    return "made with other sampling than most checkpoints"
