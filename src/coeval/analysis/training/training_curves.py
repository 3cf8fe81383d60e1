"""Training runs read from their folders, ready to be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.aggregate import TaskAggregate, read_aggregate
from coeval.analysis.training.checkpoint_folders import PATTERN, EvaluatedStep, find_checkpoints
from coeval.analysis.training.checkpoint_scores import ItemColumn, read_items, side_by_side
from coeval.analysis.training.run_choice import ChosenRuns, choose_runs
from coeval.analysis.training.training_run import CurvePoint, TaskCurve, TrainingRun
from coeval.core.errors import UsageError
from coeval.core.text import listed

__all__ = ["training_curves"]


def training_curves(
    runs: Mapping[str, Path],
    tasks: Sequence[str] | None = None,
    steps: Collection[int] | None = None,
    patterns: Mapping[str, str] | None = None,
) -> tuple[TrainingRun, ...]:
    """Every run by its label, with the curves of its tasks in the order of ``tasks``.

    Parameters
    ----------
    runs : by label, the folder that holds the checkpoints' folders
    tasks, steps : of these only; None: of all there are
    patterns : by label, how the checkpoints' folders are called; ``step_{step}`` without one

    Raises
    ------
    UsageError
        a run holds no results of these steps, or of none of these tasks.
    StoreError
        a file cannot be read at all.
    """
    found = []
    for label, root in runs.items():
        checkpoints = find_checkpoints(root, (patterns or {}).get(label, PATTERN), steps)
        found.append(_training_run(label, root, checkpoints, tasks, steps))
    return tuple(found)


class _Stop(NamedTuple):
    """A task at a checkpoint, as far as it is there."""

    checkpoint: EvaluatedStep
    chosen: ChosenRuns
    written: TaskAggregate | None
    items: ItemColumn | None
    values: tuple[str, str, dict[int, float]]
    """The headline metric, its unit, and its value in each sample that counts."""
    n_items: int


def _training_run(
    label: str,
    root: Path,
    checkpoints: Sequence[EvaluatedStep],
    tasks: Sequence[str] | None,
    steps: Collection[int] | None,
) -> TrainingRun:
    stops: dict[str, list[_Stop]] = {task: [] for task in tasks or ()}
    notes: list[str] = []
    for checkpoint in checkpoints:
        for stop in _stops(checkpoint, tasks, notes):
            stops.setdefault(stop.chosen.task, []).append(stop)
    if not any(stops.values()):
        raise UsageError(f"{root} holds no scores of {listed(tasks or ()) or 'any task'} yet")
    if absent := sorted(set(steps or ()) - {checkpoint.step for checkpoint in checkpoints}):
        notes.append(f"{root} holds no results of step {listed(map(str, absent))}")
    notes += [f"{root} holds no scores of {task}" for task, found in stops.items() if not found]
    order = list(tasks) if tasks is not None else sorted(stops)
    curves = {task: _curve(task, stops[task]) for task in order if stops[task]}
    return TrainingRun(label, root, curves, (), tuple(notes))


def _stops(checkpoint: EvaluatedStep, tasks: Sequence[str] | None, notes: list[str]) -> list[_Stop]:
    chosen = choose_runs(checkpoint.folder, tasks)
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
                    read_aggregate(checkpoint, runs.task),
                    read_items(reader, runs),
                    (first.metric, first.unit, values),
                    first.n,
                )
            )
    return found


def _curve(task: str, stops: Sequence[_Stop]) -> TaskCurve:
    names = [stop.values[:2] for stop in stops]
    metric, unit = max(dict.fromkeys(names), key=names.count)
    notes = [
        f"step {stop.checkpoint.step} is left out: its first figure is {stop.values[0]}, not {metric}"
        for stop in stops
        if stop.values[0] != metric
    ]
    stops = [stop for stop in stops if stop.values[:2] == (metric, unit)]
    [(usual, _)] = Counter(stop.chosen.how for stop in stops).most_common(1)
    for stop in stops:
        notes += [f"step {stop.checkpoint.step}: {note}" for note in stop.chosen.notes]
        if stop.chosen.how != usual:
            notes.append(f"step {stop.checkpoint.step} is {_otherwise(stop, usual)}: no conclusion counts it")
        if stop.written is not None and not _is_current(stop):
            notes.append(
                f"step {stop.checkpoint.step}: summary_agg.json is not of the samples there are now; make it "
                "anew with coeval sweep aggregate"
            )
    columns = {stop.checkpoint.step: stop.items for stop in stops if stop.items is not None}
    return TaskCurve(
        task=task,
        metric=metric,
        unit=unit,
        judged=bool(usual[1]),
        points=tuple(_point(stop, usual) for stop in stops),
        items=side_by_side(columns) if columns else None,
        conclusions=(),
        notes=tuple(notes),
    )


def _otherwise(stop: _Stop, usual: tuple[str, str]) -> str:
    judged = stop.chosen.how[1]
    judge = stop.chosen.judge
    if judged != usual[1]:
        who = "rules" if judge is None else judge.model
        return f"judged by {who} otherwise than most checkpoints"
    return "made with other sampling than most checkpoints"


def _is_current(stop: _Stop) -> bool:
    if stop.written is None or stop.written.metric != stop.values[0]:
        return False
    values = [stop.values[2][run] for run in stop.written.runs if run in stop.values[2]]
    return len(values) == len(stop.written.runs) and list(stop.written.per_run) == values


def _point(stop: _Stop, usual: tuple[str, str]) -> CurvePoint:
    """As it was written, if that is of the samples there are; else a plain point."""
    written = stop.written if _is_current(stop) else None
    values = tuple(stop.values[2].values()) if written is None else written.per_run
    judge = stop.chosen.judge
    return CurvePoint(
        step=stop.checkpoint.step,
        folder=stop.checkpoint.folder,
        mean=fmean(values),
        std=None if written is None else written.std,
        sem=None if written is None else written.sem,
        ci95=None if written is None else written.ci95,
        band=None,
        per_run=values,
        n_items=stop.n_items if written is None else written.n_items,
        n_runs=len(values),
        missing=stop.chosen.missing,
        model=stop.chosen.facts[0].model,
        judge=None if judge is None else judge.model,
        aggregated=written is not None,
        comparable=stop.chosen.how == usual,
    )
