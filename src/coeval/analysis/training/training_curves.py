"""Training runs read from their folders, ready to be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.aggregate import (
    PATTERN,
    EvaluatedStep,
    TaskAggregate,
    evaluated_steps,
    read_aggregate,
    require_base,
    task_names,
)
from coeval.analysis.training.checkpoint_scores import (
    CheckpointScores,
    ChosenRuns,
    ItemColumn,
    RunFacts,
    choose_runs,
    common_items,
    read_items,
    side_by_side,
)
from coeval.analysis.training.curve_conclusions import (
    NOTHING_FOLLOWS,
    FirstBetter,
    conclude_curve,
)
from coeval.analysis.training.drift_alarms import DriftAlarm, WatchedTask, drift_alarms
from coeval.core.errors import UsageError
from coeval.core.text import listed

# --- Training curves: figures and conclusions by task


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A task's headline at one checkpoint, in the metric's unit.

    ``mean``, ``std``, ``sem``, ``ci95``, ``per_run`` as in ``summary_agg.json``; without that file
    (``aggregated`` False) the mean of the samples there are, and no errors. ``band``: its part of the
    simultaneous 95% band over all checkpoints, None where the items' scores are not there. ``folder`` is the
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
    at once, of the next metric that items have scores in; then no point has a band. ``notes`` are what to
    know of the figures.
    """

    task: str
    metric: str
    unit: str
    judged: bool
    points: tuple[CurvePoint, ...]
    items: CheckpointScores | None
    first_better: FirstBetter | None
    notes: tuple[str, ...]
    facts: RunFacts
    """How most of its checkpoints were made and judged."""

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(point.step for point in self.points)

    @property
    def conclusions(self) -> tuple[str, ...]:
        """The sentence of ``first_better``, if there is one."""
        return () if self.first_better is None else (self.first_better.sentence,)


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
    def steps(self) -> list[int]:
        """All that some task has."""
        return sorted({step for curve in self.curves.values() for step in curve.steps})

    @property
    def alarms(self) -> tuple[str, ...]:
        return tuple(one.sentence for one in self.drift)


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
        checkpoints = evaluated_steps(root, (patterns or {}).get(label, PATTERN), steps)
        require_base(base, checkpoints, root)
        stops, notes = _read(checkpoints, tasks)
        if not any(stops.values()):
            raise UsageError(f"{root} holds no scores of {listed(tasks or ()) or 'any task'} yet")
        if absent := sorted(set(steps or ()) - {checkpoint.step for checkpoint in checkpoints}):
            notes.append(f"{root} holds no results of step {listed(map(str, absent))}")
        notes += [f"{root} holds no scores of {task}" for task, at in stops.items() if not at]
        drawn = {task: _curve(task, at, base) for task, at in stops.items() if at}
        curves = {task: curve for task, (curve, _) in drawn.items()}
        watched = [one for _, one in drawn.values() if one is not None]
        found.append(TrainingRun(label, root, curves, drift_alarms(watched), tuple(notes)))
    return tuple(found)


class _Stop(NamedTuple):
    """The results of a task at a checkpoint."""

    checkpoint: EvaluatedStep
    chosen: ChosenRuns
    written: TaskAggregate | None
    items: ItemColumn | None
    values: tuple[str, str, dict[int, float]]
    """The headline metric, its unit, and its value in each sample that counts."""
    n_items: int


def _read(
    checkpoints: Sequence[EvaluatedStep], tasks: Sequence[str] | None
) -> tuple[dict[str, list[_Stop]], list[str]]:
    """What there is of each task, in the order of ``tasks`` or by name, and notes on what there is not."""
    stops: dict[str, list[_Stop]] = {task: [] for task in tasks or task_names(checkpoints)}
    notes: list[str] = []
    for checkpoint in checkpoints:
        for stop in _stops(checkpoint, tasks, notes):
            stops[stop.chosen.task].append(stop)
    return stops, notes


def _stops(checkpoint: EvaluatedStep, tasks: Sequence[str] | None, notes: list[str]) -> list[_Stop]:
    written = {
        task: one
        for task in tasks or task_names([checkpoint])
        if (one := read_aggregate(checkpoint, task)) is not None
    }
    expected = {task: one.expected_runs for task, one in written.items() if one.expected_runs is not None}
    chosen = choose_runs(checkpoint.folder, tasks, expected)
    notes += [
        f"step {checkpoint.step} {runs.task}: {note}"
        for runs in chosen
        if not runs.runs
        for note in runs.notes
    ]
    chosen = [runs for runs in chosen if runs.runs]
    if not chosen:
        return []
    found = []
    with OutputReader(checkpoint.folder) as reader:
        for runs in chosen:
            mine = [one for one in reader.metrics if one.task == runs.task and one.sample in runs.runs]
            first = next(one for one in mine if one.value is not None)
            values = {
                one.sample: one.value for one in mine if one.metric == first.metric and one.value is not None
            }
            found.append(
                _Stop(
                    checkpoint,
                    runs,
                    written.get(runs.task),
                    read_items(reader, runs),
                    (first.metric, first.unit, values),
                    first.n,
                )
            )
    return found


def _curve(task: str, stops: Sequence[_Stop], base: int | None) -> tuple[TaskCurve, WatchedTask | None]:
    """The curve, and what is watched for alarms."""
    names = [stop.values[:2] for stop in stops]
    metric, unit = max(dict.fromkeys(names), key=names.count)
    notes = [
        f"step {stop.checkpoint.step} is left out: its first figure is {stop.values[0]}, not {metric}"
        for stop in stops
        if stop.values[0] != metric
    ]
    stops = [stop for stop in stops if stop.values[:2] == (metric, unit)]
    [(usual, _)] = Counter(stop.chosen.how for stop in stops).most_common(1)
    notes += [note for stop in stops for note in _notes(stop, usual)]
    columns = {stop.checkpoint.step: stop.items for stop in stops if stop.items is not None}
    items = side_by_side(columns) if columns else None
    common, concluded = None, NOTHING_FOLLOWS
    if items is not None:
        alike = [stop.checkpoint.step for stop in stops if stop.chosen.how == usual]
        common = common_items(items, alike)
        concluded = conclude_curve(common, items.unit, base)
        notes += common.notes
        if base is not None and base not in common.steps:
            notes.append(f"nothing is held against step {base}, which no conclusion counts")
        if items.metric != metric:
            notes.append(
                f"conclusions are by {items.metric}: {metric} is fitted, and no item has a score in it"
            )
    bands = concluded.bands if items is not None and items.metric == metric else {}
    curve = TaskCurve(
        task=task,
        metric=metric,
        unit=unit,
        judged=bool(usual[1]),
        points=tuple(_point(stop, usual, bands.get(stop.checkpoint.step)) for stop in stops),
        items=items,
        first_better=concluded.first_better,
        notes=tuple(notes),
        facts=next(stop.chosen.facts[0] for stop in stops if stop.chosen.how == usual),
    )
    if items is None or common is None:
        return curve, None
    return curve, WatchedTask(task, items.unit, curve.judged, common)


def _notes(stop: _Stop, usual: tuple[str, str]) -> Iterator[str]:
    yield from (f"step {stop.checkpoint.step}: {note}" for note in stop.chosen.notes)
    if stop.chosen.how != usual:
        yield f"step {stop.checkpoint.step} is {_otherwise(stop, usual)}: no conclusion counts it"
    if stop.written is not None and not _is_current(stop):
        yield (
            f"step {stop.checkpoint.step}: summary_agg.json is not of the samples there are now; make it "
            "anew with coeval sweep aggregate"
        )


def _otherwise(stop: _Stop, usual: tuple[str, str]) -> str:
    judged = stop.chosen.how[1]
    judge = stop.chosen.judge
    if judged != usual[1]:
        who = "rules" if judge is None else judge.model
        return f"judged by {who} otherwise than most checkpoints"
    return "made with other sampling than most checkpoints"


def _is_current(stop: _Stop) -> bool:
    """Whether what was written is of the samples that count now."""
    written, (metric, _, values) = stop.written, stop.values
    if written is None or (written.metric, written.runs) != (metric, stop.chosen.runs):
        return False
    return list(written.per_run) == list(values.values())


def _point(stop: _Stop, usual: tuple[str, str], band: tuple[float, float] | None) -> CurvePoint:
    """As it was written, if that is of the samples there are; else a plain point."""
    written = stop.written if _is_current(stop) else None
    values = tuple(stop.values[2].values()) if written is None else written.per_run
    judge, mean = stop.chosen.judge, fmean(values) if written is None else written.mean
    return CurvePoint(
        step=stop.checkpoint.step,
        folder=stop.checkpoint.folder,
        mean=mean,
        std=None if written is None or written.n_runs < 2 else written.std,
        sem=None if written is None or written.n_runs < 2 else written.sem,
        ci95=None if written is None else written.ci95,
        band=None if band is None else (min(band[0], mean), max(band[1], mean)),
        per_run=values,
        n_items=stop.n_items if written is None else written.n_items,
        n_runs=len(values),
        missing=stop.chosen.missing,
        model=stop.chosen.facts[0].model,
        judge=None if judge is None else judge.model,
        aggregated=written is not None,
        comparable=stop.chosen.how == usual,
    )
