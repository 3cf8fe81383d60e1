"""Training runs read from their folders, ready to be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.comparison.family import FamilyMember, adjust_family
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.aggregate import (
    PATTERN,
    EvaluatedStep,
    TaskAggregate,
    evaluated_steps,
    read_aggregate,
    task_names,
)
from coeval.analysis.training.checkpoint_scores import (
    ChosenRuns,
    CommonItems,
    ItemColumn,
    RunFacts,
    choose_runs,
    common_items,
    of_one_metric,
    read_items,
)
from coeval.core.errors import UsageError
from coeval.core.figures import gap_text, signed_points
from coeval.core.text import listed, numbered, p_text

# --- First checkpoint significantly better than the base


class FirstBetter(msgspec.Struct, frozen=True):
    """``step`` is the first after ``base`` that is better at 5% (two-sided), None: none is. ``p_values``:
    by step, of its paired difference from the base, by Holm over the checkpoints."""

    base: int
    step: int | None
    n_items: int
    p_values: dict[int, float]
    sentence: str


def first_better(found: CommonItems, base: int | None = None) -> FirstBetter | None:
    """Test each checkpoint against ``base``, by default the first; None where there is nothing to test."""
    base = found.steps[0] if base is None and found.steps else base
    if base not in found.steps or len(found.steps) < 2 or len(found.scores) < 2:
        return None
    of_base, once = found.scores[:, found.steps.index(base)], np.ones(len(found.scores))
    gaps = {
        step: paired_difference([PairedScores(of_base, scores, once)], len(found.steps) - 1)
        for step, scores in zip(found.steps, found.scores.T, strict=True)
        if step != base
    }
    verdicts = dict(zip(gaps, adjust_family([FamilyMember(gap) for gap in gaps.values()]), strict=True))
    p_values = {step: 1.0 if verdict.p is None else verdict.p for step, verdict in verdicts.items()}
    better = (step for step, p in p_values.items() if step > base and p < ALPHA)
    step = next((step for step in better if gaps[step].difference > 0), None)
    width, items = found.scale.width, numbered(len(found.scores), "paired item")
    if step is None:
        least = float(np.median([gap.minimum_detectable or 0.0 for gap in gaps.values()])) * width
        sentence = (
            f"no checkpoint is significantly better than step {base}, {items}; a true gain of "
            f"{gap_text(least, found.unit)} points would be detected four times in five"
        )
    else:
        gap = gaps[step]
        low, high = (width * bound for bound in verdicts[step].bounds)
        by = signed_points(width * gap.difference, low, high, found.unit)
        sentence = (
            f"step {step} is the first significantly better than step {base}: by {by} points "
            f"({p_text(p_values[step])} over all checkpoints), {items}"
        )
    return FirstBetter(base, step, len(found.scores), p_values, sentence)


# --- Training curves: figures and conclusions by task


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A task's headline at one checkpoint, in the metric's unit.

    ``mean``, ``std``, ``sem``, ``ci95`` as in ``summary_agg.json``; without that file the mean of the samples
    there are, and no errors. ``folder`` is the checkpoint's output folder, ``judge`` None where rules score;
    ``comparable``: made and judged like most checkpoints of the task, so that conclusions count it.
    """

    step: int
    folder: Path
    mean: float
    std: float | None
    sem: float | None
    ci95: tuple[float, float] | None
    n_items: int
    n_runs: int
    missing: int
    judge: str | None
    comparable: bool


@dataclass(frozen=True, slots=True)
class TaskCurve:
    """A task over the checkpoints, ``points`` by step.

    ``columns`` are the items' scores behind the conclusions, by step: of ``metric``, or, where that one is
    fitted to all items at once, of the next metric that items have scores in. ``notes`` are what to know of
    the figures.
    """

    task: str
    metric: str
    unit: str
    points: tuple[CurvePoint, ...]
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
    """A run's ``curves`` by task; ``notes`` are what is not there."""

    label: str
    folder: Path
    curves: dict[str, TaskCurve]
    notes: tuple[str, ...]

    @property
    def steps(self) -> list[int]:
        """All that some task has."""
        return sorted({step for curve in self.curves.values() for step in curve.steps})


def training_curves(
    runs: Mapping[str, Path],
    tasks: Sequence[str] | None = None,
    steps: Collection[int] | None = None,
    patterns: Mapping[str, str] | None = None,
    base: int | None = None,
) -> tuple[TrainingRun, ...]:
    """Every run by its label, with the curves of its tasks in the order of ``tasks``.

    Parameters
    ----------
    runs : by label, the folder that holds the checkpoints' folders
    tasks, steps : of these only; None: of all there are
    patterns : by label, how the checkpoints' folders are called; ``step_{step}`` without one
    base : the step that others are held against; without it, the first one

    Raises
    ------
    UsageError
        a run holds no results of these steps, or of none of these tasks.
    StoreError
        a file cannot be read at all.
    """
    found = []
    for label, root in runs.items():
        checkpoints = evaluated_steps(root, (patterns or {}).get(label, PATTERN), steps, base)
        stops, notes = _read(checkpoints, tasks)
        if not any(stops.values()):
            raise UsageError(f"{root} holds no scores of {listed(tasks or ()) or 'any task'} yet")
        if absent := sorted(set(steps or ()) - {checkpoint.step for checkpoint in checkpoints}):
            notes.append(f"{root} holds no results of step {listed(map(str, absent))}")
        notes += [f"{root} holds no scores of {task}" for task, at in stops.items() if not at]
        curves = {task: _curve(task, at, base) for task, at in stops.items() if at}
        found.append(TrainingRun(label, root, curves, tuple(notes)))
    return tuple(found)


class _Stop(NamedTuple):
    """The results of a task at a checkpoint: the first ``metric`` with its unit, and its value by sample."""

    checkpoint: EvaluatedStep
    chosen: ChosenRuns
    written: TaskAggregate | None
    items: ItemColumn | None
    metric: tuple[str, str]
    values: dict[int, float]
    n_items: int


def _read(
    checkpoints: Sequence[EvaluatedStep], tasks: Sequence[str] | None
) -> tuple[dict[str, list[_Stop]], list[str]]:
    """What there is of each task, in the order of ``tasks`` or by name, and notes on what there is not."""
    stops: dict[str, list[_Stop]] = {task: [] for task in tasks or task_names(checkpoints)}
    notes: list[str] = []
    for checkpoint in checkpoints:
        found = {task: read_aggregate(checkpoint, task) for task in stops}
        written = {task: one for task, one in found.items() if one is not None}
        expected = {task: one.expected_runs for task, one in written.items() if one.expected_runs is not None}
        every = choose_runs(checkpoint.folder, tasks, expected)
        notes += [
            f"step {checkpoint.step} {runs.task}: {note}"
            for runs in every
            if not runs.runs
            for note in runs.notes
        ]
        if chosen := [runs for runs in every if runs.runs]:
            with OutputReader(checkpoint.folder) as reader:
                for runs in chosen:
                    stop = _stop(checkpoint, runs, written.get(runs.task), reader)
                    stops[runs.task].append(stop)
    return stops, notes


def _stop(
    checkpoint: EvaluatedStep, runs: ChosenRuns, written: TaskAggregate | None, reader: OutputReader
) -> _Stop:
    known = {
        one: one.value
        for one in reader.metrics
        if one.task == runs.task and one.sample in runs.runs and one.value is not None
    }
    first = next(iter(known))
    values = {one.sample: value for one, value in known.items() if one.metric == first.metric}
    items, metric = read_items(reader, runs), (first.metric, first.unit)
    return _Stop(checkpoint, runs, written, items, metric, values, first.n)


def _curve(task: str, stops: Sequence[_Stop], base: int | None) -> TaskCurve:
    [((metric, unit), _)] = Counter(stop.metric for stop in stops).most_common(1)
    notes = [
        f"step {stop.checkpoint.step} is left out: its first metric is {stop.metric[0]}, not {metric}"
        for stop in stops
        if stop.metric[0] != metric
    ]
    stops = [stop for stop in stops if stop.metric == (metric, unit)]
    [(usual, _)] = Counter(stop.chosen.how for stop in stops).most_common(1)
    notes += [note for stop in stops for note in _notes(stop, usual)]
    if stale := [str(stop.checkpoint.step) for stop in stops if stop.written and not _is_current(stop)]:
        steps = f"{'step' if len(stale) == 1 else 'steps'} {listed(stale)}"
        notes.append(
            f"summary_agg.json of {steps} does not match the current samples; "
            "regenerate it with coeval sweep aggregate"
        )
    columns = of_one_metric({stop.checkpoint.step: stop.items for stop in stops if stop.items is not None})
    alike = {stop.checkpoint.step for stop in stops if stop.chosen.how == usual}
    better = None
    if compared := {step: column for step, column in columns.items() if step in alike}:
        common = common_items(compared)
        better = first_better(common, base)
        notes += common.notes
        if base is not None and base not in common.steps:
            notes.append(f"nothing is held against step {base}, which no conclusion counts")
        if common.metric != metric:
            notes.append(f"conclusions use {common.metric}: {metric} is fitted and has no scores per item")
    return TaskCurve(
        task=task,
        metric=metric,
        unit=unit,
        points=tuple(_point(stop, usual) for stop in stops),
        columns=columns,
        first_better=better,
        notes=tuple(notes),
        facts=next(stop.chosen.facts[0] for stop in stops if stop.chosen.how == usual),
    )


def _notes(stop: _Stop, usual: tuple[str, str]) -> Iterator[str]:
    yield from (f"step {stop.checkpoint.step}: {note}" for note in stop.chosen.notes)
    if stop.chosen.how != usual:
        yield f"step {stop.checkpoint.step} is {_otherwise(stop, usual)}: no conclusion counts it"


def _otherwise(stop: _Stop, usual: tuple[str, str]) -> str:
    judged = stop.chosen.how[1]
    judge = stop.chosen.judge
    if judged != usual[1]:
        who = "rules" if judge is None else judge.model
        return f"judged by {who} otherwise than most checkpoints"
    return "made with other sampling than most checkpoints"


def _is_current(stop: _Stop) -> bool:
    """Whether what was written is of the samples that count now."""
    written = stop.written
    if written is None or (written.metric, written.runs) != (stop.metric[0], stop.chosen.runs):
        return False
    return list(written.per_run) == list(stop.values.values())


def _point(stop: _Stop, usual: tuple[str, str]) -> CurvePoint:
    """As it was written, if that is of the samples there are; else a plain point."""
    written = stop.written if _is_current(stop) else None
    judge = stop.chosen.judge
    return CurvePoint(
        step=stop.checkpoint.step,
        folder=stop.checkpoint.folder,
        mean=fmean(stop.values.values()) if written is None else written.mean,
        std=None if written is None else written.std,
        sem=None if written is None else written.sem,
        ci95=None if written is None else written.ci95,
        n_items=stop.n_items if written is None else written.n_items,
        n_runs=len(stop.values),
        missing=stop.chosen.missing,
        judge=None if judge is None else judge.model,
        comparable=stop.chosen.how == usual,
    )
