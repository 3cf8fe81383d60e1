"""What the report of training runs says: what training gained, task by task, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, TypeAlias
from urllib.parse import urlencode

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.measures.measured import Measured
from coeval.analysis.run_results import bill, model_costs
from coeval.analysis.training.aggregate import TaskAggregate
from coeval.analysis.training.sweep_comparison import (
    CheckpointDifference,
    SweepComparison,
    checkpoint_text,
    peers_text,
    runs_sentence,
)
from coeval.analysis.training.training_curves import TrainingRun
from coeval.core.figures import share_of_scale
from coeval.core.plain import plain
from coeval.core.shown_names import fitted_names
from coeval.core.text import listed, numbered
from coeval.reports.content import (
    Cell,
    Picture,
    PictureToggle,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)
from coeval.reports.curve_plot import curve_grid, curve_plot
from coeval.reports.measure_table import declared_column, error_in_points, gap_in_points, in_points
from coeval.reports.plots import difference_forest
from coeval.store.output_folder import SWEEP

# --- Which checkpoint to ship
#
# The first sections of a page of training runs: which checkpoint to ship, and run against run.

OVERALL = "overall"
# Characters of a run's name beside a row.
_LONGEST_RUN = 24


def shipping_section(
    found: SweepComparison, runs: Sequence[str], held: Collection[tuple[str, str]]
) -> ReportSection:
    """The best checkpoint of each task with those tied with it; over several tasks, their mean as a curve."""
    pictures, tables = [], [choice_table(found, held)]
    if found.changes:
        tables.append(_last_steps(found))
    if found.overall:
        means = _overall(found)
        title = "Mean over tasks, equally weighted, by step. Shaded: 95% interval of each checkpoint."
        plot = curve_plot(means, runs, "mean over tasks, points")
        pictures.append(Picture(OVERALL, title, means.name, plot))
        tables.append(means)
    notes = tuple(Sentence(plain(f"{note[:1].upper()}{note[1:]}.")) for note in found.notes)
    return ReportSection("ship", "Which checkpoint do I ship?", notes, tuple(pictures), tuple(tables))


def choice_table(found: SweepComparison, held: Collection[tuple[str, str]] = ()) -> ReportTable:
    several = len(found.folders) > 1
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for one in found.choices:
        if one.task is not None and any(task == one.task for task, _ in held):
            links[len(rows)] = urlencode({"task": one.task})
        best = plain(checkpoint_text(one.best, several=several))
        tied = plain(peers_text(one, several=several)) if one.peers else "none"
        score = share_of_scale(one.mean, one.unit)
        rows.append((_place(one.task), best, score, tied, one.n_items, one.of))
    return ReportTable(
        "ship-table",
        "Best checkpoints",
        (
            ReportColumn("task", "Task"),
            ReportColumn("best", "Best checkpoint"),
            ReportColumn("score", "Score", "points"),
            ReportColumn("tied", "Tied with it", "text", "Paired tests, adjusted for all pairs", "tied"),
            ReportColumn("n", "Items", "count", "That all checkpoints have"),
            ReportColumn("of", "Checkpoints", "count", terminal=""),
        ),
        tuple(rows),
        links=links,
    )


def _place(task: str | None) -> str:
    return OVERALL if task is None else plain(task)


def _last_steps(found: SweepComparison) -> ReportTable:
    """Each run's last step against the one before, by task."""
    rows: list[tuple[Cell, ...]] = []
    for one in found.changes:
        difference = gap_in_points(one.difference, one.ci95_adjusted, one.unit, one.n)
        steps = f"{one.b.step} − {one.a.step}"
        rows.append((plain(one.b.run), _place(one.task), steps, difference, one.p_adjusted, one.trend))
    return ReportTable(
        "last-table",
        "Last steps",
        (
            ReportColumn("run", "Run"),
            ReportColumn("task", "Task"),
            ReportColumn("steps", "Steps"),
            ReportColumn("difference", "Difference", "gap", "Last step − the one before, paired by item"),
            ReportColumn("p", "p", "probability", "Adjusted for all tasks and runs"),
            ReportColumn("trend", "Trend"),
        ),
        tuple(rows),
    )


def _overall(found: SweepComparison) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for one in found.overall:
        mean = Measured(one.mean, *one.ci95, one.n_items, None)
        rows.append((plain(one.run), one.step, OVERALL, mean, one.n_items, True))
    return ReportTable(
        "overall-means",
        "Means over the tasks",
        (
            ReportColumn("run", "Run"),
            ReportColumn("step", "Step", "count"),
            ReportColumn("task", "Task"),
            ReportColumn(
                "mean", "Mean", "points", "Over the tasks, each counting alike, as shares of scales"
            ),
            ReportColumn("n_items", "Items", "count"),
            ReportColumn("comparable", "Like the others"),
        ),
        tuple(rows),
    )


# --- Run against run


def runs_sections(found: SweepComparison) -> Iterator[ReportSection]:
    """The differences of runs at equal steps, from the one that a reader chooses; none of a single run."""
    if not found.differences:
        return
    table = run_table(found)
    runs = dict.fromkeys(run for one in found.differences for run in (one.a.run, one.b.run))
    short = fitted_names(map(plain, runs), _LONGEST_RUN)
    others = dict.fromkeys(short.values(), "the run of the row")
    if len(others) == 2:
        one, other = others
        others = {one: other, other: one}
    plot = difference_forest(table, others)
    title = (
        "Run against run at equal steps: differences, paired by item; p-values and intervals are adjusted "
        "for all steps and tasks. Filled: significant."
    )
    places = tuple(dict.fromkeys(str(row[2]) for row in table.rows))
    toggles = [PictureToggle("baseline", tuple(others))]
    if len(places) > 1:
        toggles.append(PictureToggle("of", places))
    picture = Picture("runs-plot", title, table.name, plot, tuple(toggles))
    yield ReportSection("runs", "Which run is better, at equal steps?", (), (picture,), (table,))


def run_table(found: SweepComparison) -> ReportTable:
    """Run against run at equal steps, from either side."""
    runs = dict.fromkeys(run for one in found.differences for run in (one.a.run, one.b.run))
    short = fitted_names(map(plain, runs), _LONGEST_RUN)
    rows: list[tuple[Cell, ...]] = []
    for base in runs:
        for one in found.differences:
            if base in (one.a.run, one.b.run):
                side = short[plain(one.b.run if base == one.a.run else one.a.run)]
                row = f"step {one.b.step}" if len(runs) == 2 else f"step {one.b.step} · {side}"
                rows.append((row, short[plain(base)], _place(one.task), *_figures(one, base)))
    return ReportTable(
        "runs-table",
        "Run against run",
        (
            ReportColumn("row", "Of"),
            ReportColumn("baseline", "Baseline", terminal=""),
            ReportColumn("of", "Task"),
            ReportColumn("mean", "Score", "points"),
            ReportColumn("mean_baseline", "Baseline's", "points"),
            ReportColumn("difference", "Difference", "gap", "Less the baseline, paired by item"),
            ReportColumn("p", "p", "probability", "Adjusted for all steps, tasks and pairs of runs"),
            ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment", ""),
            ReportColumn("n", "Items", "count", terminal="n"),
            declared_column(PairDifference, "minimum_detectable", "could_be_seen"),
        ),
        tuple(rows),
        chosen={"baseline": str(rows[0][1]), "of": str(rows[0][2])} if rows else {},
    )


def _figures(one: CheckpointDifference, base: str) -> tuple[Cell, ...]:
    sign = 1 if base == one.a.run else -1
    means = (one.mean_b, one.mean_a) if sign > 0 else (one.mean_a, one.mean_b)
    low, high = sorted(sign * bound for bound in one.ci95_adjusted)
    difference = gap_in_points(sign * one.difference, (low, high), one.unit, one.n)
    counts = (one.p_adjusted, one.significant, one.n, error_in_points(one.minimum_detectable, one.unit))
    return (*(share_of_scale(mean, one.unit) for mean in means), difference, *counts)


# --- Training report

_HOLLOW = " Hollow: not made or judged as the others."


ErrorBar: TypeAlias = Literal["ci95", "sem", "std", "none"]
_MEANINGS: dict[ErrorBar, str] = {
    "ci95": "95% interval over items",
    "sem": "standard error of the mean over samples",
    "std": "standard deviation over samples",
    "none": "",
}
_ALL = "all_tasks"
# Sentences above the first picture.
_MOST_TOLD = 3


def checkpoint_name(run: str, step: int, runs: Sequence[str]) -> str:
    """What a checkpoint is called among the items."""
    return f"step {step}" if len(runs) == 1 else plain(f"{run} · step {step}")


def training_report(
    runs: Sequence[TrainingRun],
    found: SweepComparison,
    error_bar: ErrorBar = "ci95",
    held: Collection[tuple[str, str]] = (),
) -> Report:
    """Which checkpoint to ship and which run is better, then a section for each task. ``held``: task and
    name of the checkpoints whose items can be read."""
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
            *_spent(runs),
        ),
        lead=tuple(_lead(found))[:_MOST_TOLD] or (Sentence("No checkpoints can be compared yet."),),
        sections=(
            *([shipping_section(found, labels, held)] if found.choices else []),
            *runs_sections(found),
            *(_of_task(task, runs, labels, error_bar, held) for task in tasks),
            *_notes(runs),
        ),
    )


def overview_report(runs: Sequence[TrainingRun], error_bar: ErrorBar = "ci95") -> Report:
    """One picture of all tasks, as a file takes it."""
    labels = [run.label for run in runs]
    tasks = list(dict.fromkeys(task for run in runs for task in run.curves))
    rows = tuple(row for task in tasks for row in _rows(task, runs, labels, error_bar))
    table = ReportTable(_ALL, "All tasks", _columns(error_bar), rows)
    grid = curve_grid(table, tasks, labels)
    picture = Picture(_ALL, "All tasks over training steps", _ALL, grid)
    section = ReportSection("all", "How did training go?", (), (picture,), (table,))
    return Report(kind="training", title=plain(listed(labels)), facts=(), lead=(), sections=(section,))


def _spent(runs: Sequence[TrainingRun]) -> Iterator[str]:
    """What answers and judgments have cost; nothing where all models are local.

    Raises StoreError: an account cannot be read.
    """
    accounts = (file for run in runs for file in sorted((run.folder / SWEEP).rglob("usage.json")))
    if reported := bill([cost for file in accounts for cost in model_costs(file)]):
        yield plain(str(reported))


def _lead(found: SweepComparison) -> Iterator[Sentence]:
    """What to ship, then what else was found."""
    of_runs = {runs_sentence(rows) for rows in found.by_task()}
    below = "last-table" if found.changes else "ship-table"
    for at, said in enumerate(found.sentences):
        yield Sentence(plain(said), "ship" if at == 0 else "runs" if said in of_runs else below)


def _of_task(
    task: str,
    runs: Sequence[TrainingRun],
    labels: Sequence[str],
    error_bar: ErrorBar,
    held: Collection[tuple[str, str]],
) -> ReportSection:
    curves = [(run, run.curves[task]) for run in runs if task in run.curves]
    [first, *_] = [curve for _, curve in curves]
    rows, points = _rows(task, runs, labels, error_bar), _points(task, runs)
    names = [checkpoint_name(run.label, point.step, labels) for run, point in points]
    links = {
        place: urlencode({"task": task, "student": name})
        for place, name in enumerate(names)
        if (task, name) in held
    }
    name = f"points-{task}"
    table = ReportTable(name, "Checkpoints", _columns(error_bar), tuple(rows), links=links)
    several = len(runs) > 1
    sentences = [
        Sentence(plain(f"{run.label}: {said}" if several else f"{said[:1].upper()}{said[1:]}"), name)
        for run, curve in curves
        for said in (*curve.conclusions, *curve.notes)
    ]
    shaded = f"; shaded: {_MEANINGS[error_bar]}" if _MEANINGS[error_bar] else ""
    odd = any(not curve.alike.issuperset(curve.steps) for _, curve in curves)
    picture = Picture(
        task,
        f"{first.metric} over training steps{shaded}.{_HOLLOW if odd else ''}",
        name,
        curve_plot(table, labels, f"{first.metric}, points"),
    )
    question = f"{plain(task)}: how did it change?"
    anchor = f"task-{urlencode({'': task})[1:]}"
    return ReportSection(anchor, question, tuple(sentences), (picture,), (table,))


def _columns(error_bar: ErrorBar) -> tuple[ReportColumn, ...]:
    return (
        ReportColumn("checkpoint", "Checkpoint"),
        ReportColumn("run", "Run"),
        ReportColumn("task", "Task"),
        ReportColumn("step", "Step", "count"),
        ReportColumn("mean", "Mean", "points", _MEANINGS[error_bar]),
        ReportColumn("sem", "SEM", "points", _MEANINGS["sem"]),
        ReportColumn("std", "Std", "points", _MEANINGS["std"]),
        ReportColumn("n_runs", "Samples", "count"),
        ReportColumn("n_items", "Items", "count"),
        ReportColumn("missing", "Missing", "count"),
        ReportColumn("judge", "Judge"),
        ReportColumn("comparable", "Like the others", "text", "Made and judged like most checkpoints"),
    )


def _points(task: str, runs: Sequence[TrainingRun]) -> list[tuple[TrainingRun, TaskAggregate]]:
    return [(run, point) for run in runs if task in run.curves for point in run.curves[task].points]


def _rows(
    task: str, runs: Sequence[TrainingRun], labels: Sequence[str], error_bar: ErrorBar
) -> list[tuple[Cell, ...]]:
    """A row for each checkpoint; scores are shares of the metric's scale."""
    rows: list[tuple[Cell, ...]] = []
    for run, point in _points(task, runs):
        unit = run.curves[task].unit
        mean = in_points((point.mean, *(_bar(point, error_bar) or (None, None))), unit, point.n_items)
        errors = (error_in_points(each, unit) for each in (point.sem, point.std))
        counts = (point.n_runs, point.n_items, point.missing)
        name = checkpoint_name(run.label, point.step, labels)
        judge = None if point.judge is None else point.judge.model
        alike = point.step in run.curves[task].alike
        rows.append((name, run.label, task, point.step, mean, *errors, *counts, judge, alike))
    return rows


def _bar(point: TaskAggregate, error_bar: ErrorBar) -> tuple[float, float] | None:
    match error_bar:
        case "ci95":
            return point.ci95
        case "none":
            return None
        case "sem" | "std":
            half = point.sem if error_bar == "sem" else point.std
            return None if half is None else (point.mean - half, point.mean + half)


def _notes(runs: Sequence[TrainingRun]) -> Iterator[ReportSection]:
    notes = [f"{run.label}: {note}" if len(runs) > 1 else note for run in runs for note in run.notes]
    if notes:
        yield ReportSection(
            "notes", "What else is to be known?", tuple(Sentence(plain(note)) for note in notes)
        )
