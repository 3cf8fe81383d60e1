"""What the report of training runs says: what training gained, task by task, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, TypeAlias
from urllib.parse import urlencode

from coeval.analysis.measures.measured import Measured
from coeval.analysis.training.best_checkpoint import points_per
from coeval.analysis.training.training_curves import CurvePoint, TaskCurve, TrainingRun
from coeval.core.figures import FigureKind
from coeval.core.plain import plain
from coeval.core.text import listed, numbered
from coeval.reports.content import (
    Cell,
    Picture,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)
from coeval.reports.curve_plot import ErrorsShown, curve_grid, curve_plot

_UNITS = {"points": " (of 10)"}
# Of the width of a plot.
_APART = 0.012
_HOLLOW = " Hollow: not made or judged as the others."


ErrorBar: TypeAlias = Literal["ci95", "sem", "std", "none"]
_MEANINGS: dict[ErrorBar, str] = {
    "ci95": "95% interval over items",
    "sem": "standard error of the mean over samples",
    "std": "standard deviation over samples",
    "none": "",
}
_ALL = "all_tasks"


def checkpoint_name(run: str, step: int, runs: Sequence[str]) -> str:
    """What a checkpoint is called among the items."""
    return f"step {step}" if len(runs) == 1 else plain(f"{run} · step {step}")


def training_report(
    runs: Sequence[TrainingRun], error_bar: ErrorBar = "ci95", held: Collection[tuple[str, str]] = ()
) -> Report:
    """A section for each task, after one that shows all at a glance. ``held``: task and name of the
    checkpoints whose items can be read."""
    labels = [run.label for run in runs]
    tasks = list(dict.fromkeys(task for run in runs for task in run.curves))
    steps = {
        (run.label, point.step) for run in runs for curve in run.curves.values() for point in curve.points
    }
    return Report(
        kind="training",
        title=plain(listed(labels)),
        facts=(
            numbered(len(labels), "run"),
            numbered(len(steps), "checkpoint"),
            numbered(len(tasks), "task"),
        ),
        lead=tuple(_lead(runs)) or (Sentence("No checkpoints can be compared yet.", "glance"),),
        sections=(
            _glance(runs, held),
            *(_of_task(task, runs, labels, error_bar, held) for task in tasks),
            *_notes(runs),
        ),
    )


def overview_report(runs: Sequence[TrainingRun], error_bar: ErrorBar = "ci95") -> Report:
    """One picture of all tasks, as a file takes it."""
    labels = [run.label for run in runs]
    tasks = list(dict.fromkeys(task for run in runs for task in run.curves))
    rows = tuple(row for task in tasks for row in _rows(task, runs, labels, error_bar))
    table = ReportTable(_ALL, "All tasks", _columns("points", error_bar), rows)
    picture = Picture(
        _ALL, "All tasks over training steps", _ALL, curve_grid(_ALL, tasks, labels, _drawn(runs, error_bar))
    )
    section = ReportSection("all", "How did training go?", (), (picture,), (table,))
    return Report(kind="training", title=plain(listed(labels)), facts=(), lead=(), sections=(section,))


def _lead(runs: Sequence[TrainingRun]) -> Iterator[Sentence]:
    """What each task says first, the rest of which stands in its section; then alarms."""
    several = len(runs) > 1
    for run in runs:
        of = f"{run.label}: " if several else ""
        for task, curve in run.curves.items():
            for said in curve.conclusions[:1]:
                yield Sentence(plain(f"{of}{task}: {said}"), _anchor(task))
        for alarm in run.alarms:
            yield Sentence(plain(f"{of}{alarm}"), "glance")


def _anchor(task: str) -> str:
    return f"task-{urlencode({'': task})[1:]}"


def _glance(runs: Sequence[TrainingRun], held: Collection[tuple[str, str]]) -> ReportSection:
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    several = len(runs) > 1
    for run in runs:
        for task, curve in run.curves.items():
            first, last = curve.points[0], curve.points[-1]
            best = _highest(curve)
            if any(of == task for of, _ in held):
                links[len(rows)] = urlencode({"task": task})
            rows.append(
                (
                    *([run.label] if several else ()),
                    task,
                    f"{curve.metric}{_UNITS.get(curve.unit, '')}",
                    first.step,
                    _measured(first, first.ci95, curve.unit),
                    last.step,
                    _measured(last, last.ci95, curve.unit),
                    best.step,
                    _measured(best, best.ci95, curve.unit),
                    "judge" if curve.judged else "rules",
                )
            )
    table = ReportTable(
        "glance",
        "First, last and highest",
        (
            *([ReportColumn("run", "Run")] if several else ()),
            ReportColumn("task", "Task"),
            ReportColumn("metric", "Metric"),
            ReportColumn("first_step", "First step", "count"),
            ReportColumn("first", "First", "points", "With its 95% interval over items"),
            ReportColumn("last_step", "Last step", "count"),
            ReportColumn("last", "Last", "points", "Likewise"),
            ReportColumn("best_step", "Highest at", "count"),
            ReportColumn("best", "Highest", "points", "Not corrected for having been chosen as the highest"),
            ReportColumn("scored_by", "Scored by"),
        ),
        tuple(rows),
        note="The highest of several is too high by luck; the sentences correct for it.",
        links=links,
    )
    return ReportSection("glance", "What did training gain?", (), (), (table,))


def _highest(curve: TaskCurve) -> CurvePoint:
    """The one that the sentences speak of, where they speak of this metric."""
    if curve.best is not None and curve.items is not None and curve.items.metric == curve.metric:
        return next(point for point in curve.points if point.step == curve.best.step)
    return max(curve.points, key=lambda point: point.mean)


def _of_task(
    task: str,
    runs: Sequence[TrainingRun],
    labels: Sequence[str],
    error_bar: ErrorBar,
    held: Collection[tuple[str, str]],
) -> ReportSection:
    curves = [(run, run.curves[task]) for run in runs if task in run.curves]
    [first, *_] = [curve for _, curve in curves]
    rows, points = _rows(task, runs, labels, error_bar, own=first.unit == "points"), _points(task, runs)
    names = [checkpoint_name(run.label, point.step, labels) for run, point in points]
    links = {
        place: urlencode({"task": task, "student": name})
        for place, name in enumerate(names)
        if (task, name) in held
    }
    name = f"points-{task}"
    of_ten = first.unit == "points"  # one decimal is too coarse for a scale from 1 to 10
    kind: FigureKind = "coefficient" if of_ten else "points"
    table = ReportTable(name, "Checkpoints", _columns(kind, error_bar), tuple(rows), links=links)
    several = len(runs) > 1
    sentences = [
        Sentence(plain(f"{run.label}: {said}" if several else f"{said[:1].upper()}{said[1:]}"), name)
        for run, curve in curves
        for said in (*curve.conclusions, *curve.notes)
    ]
    bars = f"; bars: {_MEANINGS[error_bar]}" if _MEANINGS[error_bar] else ""
    drawn = _drawn([run for run, _ in curves], error_bar, task)
    band = "; band: 95% over all checkpoints together" if drawn.band else ""
    odd = any(not point.comparable for _, curve in curves for point in curve.points)
    unit = _UNITS.get(first.unit, ", points")
    few = "" if first.fewest is None else f" No estimate: it rests on {first.fewest} prompts."
    picture = Picture(
        task,
        f"{first.metric} over training steps{bars}{band}.{few}{_HOLLOW if odd else ''}",
        name,
        curve_plot(name, labels, f"{first.metric}{unit}", drawn._replace(own=of_ten)),
    )
    question = f"{plain(task)}: how did it change?"
    return ReportSection(_anchor(task), question, tuple(sentences), (picture,), (table,))


def _columns(kind: FigureKind, error_bar: ErrorBar) -> tuple[ReportColumn, ...]:
    return (
        ReportColumn("checkpoint", "Checkpoint"),
        ReportColumn("run", "Run"),
        ReportColumn("task", "Task"),
        ReportColumn("step", "Step", "count"),
        ReportColumn("mean", "Mean", kind, _MEANINGS[error_bar]),
        ReportColumn("band", "Band", kind, "95% simultaneously over all checkpoints"),
        ReportColumn("sem", "SEM", kind, _MEANINGS["sem"]),
        ReportColumn("std", "Std", kind, _MEANINGS["std"]),
        ReportColumn("n_runs", "Samples", "count"),
        ReportColumn("n_items", "Items", "count"),
        ReportColumn("missing", "Missing", "count"),
        ReportColumn("judge", "Judge"),
        ReportColumn("comparable", "Like the others", "text", "Made and judged like most checkpoints"),
    )


def _points(task: str, runs: Sequence[TrainingRun]) -> list[tuple[TrainingRun, CurvePoint]]:
    return [(run, point) for run in runs if task in run.curves for point in run.curves[task].points]


def _drawn(runs: Sequence[TrainingRun], error_bar: ErrorBar, task: str | None = None) -> ErrorsShown:
    points = [
        point
        for run in runs
        for of, curve in run.curves.items()
        if task in (None, of)
        for point in curve.points
    ]
    bars = any(_bar(point, error_bar) is not None for point in points)
    steps = [point.step for point in points]
    apart = _APART * (max(steps) - min(steps)) if len(runs) > 1 else 0.0
    return ErrorsShown(bars, any(point.band is not None for point in points), apart)


def _rows(
    task: str, runs: Sequence[TrainingRun], labels: Sequence[str], error_bar: ErrorBar, *, own: bool = False
) -> list[tuple[Cell, ...]]:
    """A row for each checkpoint; scores are hundredths of points, or in the metric's ``own`` unit."""
    rows: list[tuple[Cell, ...]] = []
    for run, point in _points(task, runs):
        unit = "" if own else run.curves[task].unit
        mean = _measured(point, _bar(point, error_bar), unit)
        band = _measured(point, point.band, unit) if point.band else None
        errors = (_scaled(point.sem, unit), _scaled(point.std, unit))
        counts = (point.n_runs, point.n_items, point.missing)
        name = checkpoint_name(run.label, point.step, labels)
        rows.append(
            (name, run.label, task, point.step, mean, band, *errors, *counts, point.judge, point.comparable)
        )
    return rows


def _bar(point: CurvePoint, error_bar: ErrorBar) -> tuple[float, float] | None:
    match error_bar:
        case "ci95":
            return point.ci95
        case "none":
            return None
        case "sem" | "std":
            half = point.sem if error_bar == "sem" else point.std
            return None if half is None else (point.mean - half, point.mean + half)


def _measured(point: CurvePoint, bounds: tuple[float, float] | None, unit: str) -> Measured:
    mean, low, high = (_scaled(each, unit) for each in (point.mean, *(bounds or (None, None))))
    return Measured(mean, low, high, point.n_items, point.missing)


def _scaled(value: float | None, unit: str) -> float | None:
    """From the metric's unit to hundredths of points; of no unit as it is."""
    return value if value is None or not unit else value * points_per(unit) / 100


def _notes(runs: Sequence[TrainingRun]) -> Iterator[ReportSection]:
    notes = [f"{run.label}: {note}" if len(runs) > 1 else note for run in runs for note in run.notes]
    if notes:
        yield ReportSection(
            "notes", "What else is to be known?", tuple(Sentence(plain(note)) for note in notes)
        )
