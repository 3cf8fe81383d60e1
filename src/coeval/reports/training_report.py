"""The report of training runs: what training gained, task by task, and whether that is significant."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.run_results import read_model_costs, sum_costs
from coeval.analysis.training.aggregate import TaskAggregate
from coeval.analysis.training.sweep_comparison import (
    SweepComparison,
    checkpoint_label,
    run_difference_sentence,
    tied_steps_text,
)
from coeval.analysis.training.training_curves import TaskCurve, TrainingRun
from coeval.core.figures import share_of_scale
from coeval.core.plain import escape_line
from coeval.core.shown_names import fit_names
from coeval.core.text import join_names, pluralize, warning_to_sentence
from coeval.reports.charts.chart_spec import (
    Spec,
    add_columns,
    chart_spec,
    encode_column,
    encode_columns,
    fill_opacity,
    filter_rows,
    make_layer,
    measure_tooltip,
    names_legend,
    quote_names,
    scale_to_points,
    short_name_expression,
)
from coeval.reports.charts.plots import baseline_picture
from coeval.reports.content import (
    Cell,
    Picture,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
)
from coeval.reports.difference_table import add_difference_columns
from coeval.reports.measure_table import mean_sem_cells, metric_error_as_share
from coeval.store.output_folder import SWEEP

# --- Which checkpoint to ship
#
# The first sections of a page of training runs: which checkpoint to ship, and run against run.

OVERALL = "overall"
# Characters of a run's name beside a row.
_LONGEST_RUN = 24


def shipping_section(
    comparison: SweepComparison, runs: Sequence[str], with_items: Collection[tuple[str, str]]
) -> ReportSection:
    """Make the section of each task's best checkpoint and those tied with it, with the mean over tasks as a
    curve."""
    pictures, tables = [], [best_by_task_table(comparison, with_items)]
    if comparison.changes:
        tables.append(last_steps_table(comparison))
    if comparison.overall:
        means = _overall_means_table(comparison)
        title = "Mean over tasks, equally weighted, by step. Shaded: 95% interval of each checkpoint."
        plot = curve_plot(means, runs, "mean over tasks, points")
        pictures.append(Picture(OVERALL, title, means.name, plot))
        tables.append(means)
    notes = tuple(Sentence(escape_line(warning_to_sentence(note))) for note in comparison.notes)
    return ReportSection("ship", "Which checkpoint do I ship?", notes, tuple(pictures), tuple(tables))


def best_by_task_table(
    comparison: SweepComparison, with_items: Collection[tuple[str, str]] = ()
) -> ReportTable:
    """Make a row for each task, and one overall; tasks with items link to them."""
    several = len(comparison.folders) > 1
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for choice in comparison.choices:
        if choice.task is not None and any(task == choice.task for task, _ in with_items):
            links[len(rows)] = urlencode({"task": choice.task})
        best = escape_line(checkpoint_label(choice.best, several=several))
        tied = escape_line(tied_steps_text(choice, several=several)) if choice.peers else "none"
        score = share_of_scale(choice.mean, choice.unit)
        rows.append((_task_name(choice.task), best, score, tied, choice.n_items, choice.of))
    columns = (
        ReportColumn("task", "Task"),
        ReportColumn("best", "Best checkpoint"),
        ReportColumn("score", "Score", "points"),
        ReportColumn("tied", "Tied with it", "text", "Paired tests, adjusted for all pairs", "tied"),
        ReportColumn("n", "Items", "count", "That all checkpoints have"),
        ReportColumn("of", "Checkpoints", "count", terminal=""),
    )
    return ReportTable("ship-table", "Best checkpoints", columns, tuple(rows), links=links)


def _task_name(task: str | None) -> str:
    return OVERALL if task is None else escape_line(task)


def last_steps_table(comparison: SweepComparison) -> ReportTable:
    """Compare each run's last step with the one before, by task."""
    names = [
        (escape_line(change.b.run), _task_name(change.task), f"{change.b.step} − {change.a.step}")
        for change in comparison.changes
    ]
    table = ReportTable("last-table", "Last steps", make_columns("Run", "Task", "Steps"), tuple(names))
    adjusted = "Adjusted for all tasks and runs"
    return add_difference_columns(table, comparison.changes, ("difference", "p", "trend"), adjusted)


def _overall_means_table(comparison: SweepComparison) -> ReportTable:
    """Make a row for each checkpoint with its mean over the tasks."""
    rows: list[tuple[Cell, ...]] = []
    for point in comparison.overall:
        mean = Measured(point.mean, *point.ci95, point.n_items, None)
        rows.append((escape_line(point.run), point.step, OVERALL, mean, point.n_items, True))
    columns = (
        *make_columns("Run"),
        *make_columns("Step", kind="count"),
        *make_columns("Task"),
        ReportColumn("mean", "Mean", "points", "Over the tasks, equally weighted"),
        ReportColumn("n_items", "Items", "count"),
        *make_columns("Comparable"),
    )
    return ReportTable("overall-means", "Means over the tasks", columns, tuple(rows))


# --- Run against run


def run_differences_section(comparison: SweepComparison) -> Iterator[ReportSection]:
    """Yield the section of runs' differences at equal steps from a chosen baseline; none for a single run."""
    if not comparison.differences:
        return
    table = runs_by_baseline_table(comparison)
    names = list(_short_run_names(comparison).values())
    better_by_baseline = dict.fromkeys(names, "the row's run")
    if len(names) == 2:
        better_by_baseline = dict(zip(names, reversed(names), strict=True))
    title = (
        "Differences between runs at equal steps, paired by item; p-values and intervals are adjusted for "
        "all steps and tasks. Filled: significant."
    )
    picture = baseline_picture("runs-plot", title, table, better_by_baseline)
    yield ReportSection("runs", "Which run is better, at equal steps?", (), (picture,), (table,))


def _short_run_names(comparison: SweepComparison) -> dict[str, str]:
    """Return the short name of each run that takes part in a difference."""
    runs = dict.fromkeys(run for pair in comparison.differences for run in (pair.a.run, pair.b.run))
    short = fit_names(map(escape_line, runs), _LONGEST_RUN)
    return {run: short[escape_line(run)] for run in runs}


def runs_by_baseline_table(comparison: SweepComparison) -> ReportTable:
    """Make a row for each difference of runs at equal steps and each of the two as the baseline."""
    short = _short_run_names(comparison)
    rows: list[tuple[Cell, ...]] = []
    turned = []
    for base in short:
        for pair in comparison.differences:
            if base in (pair.a.run, pair.b.run):
                other = short[pair.b.run if base == pair.a.run else pair.a.run]
                row = f"step {pair.b.step}" if len(short) == 2 else f"step {pair.b.step} · {other}"
                rows.append((row, short[base], _task_name(pair.task)))
                turned.append(pair if base == pair.a.run else pair.swapped)
    columns = (
        ReportColumn("row", "Step"),
        ReportColumn("baseline", "Baseline", terminal=""),
        ReportColumn("of", "Task"),
    )
    chosen = {"baseline": str(rows[0][1]), "of": str(rows[0][2])} if rows else {}
    names = ReportTable("runs-table", "Run against run", columns, tuple(rows), chosen=chosen)
    fields = ("mean", "mean_baseline", "difference", "p", "sure", "n", "could_be_seen")
    return add_difference_columns(names, turned, fields, "Adjusted for all steps, tasks and pairs of runs")


# --- Training report

_HOLLOW_MARKS = " Hollow: made or judged unlike the others."


ErrorBar: TypeAlias = Literal["ci95", "sem", "std", "none"]
_MEANINGS: dict[ErrorBar, str] = {
    "ci95": "95% interval over items",
    "sem": "standard error of the mean over samples",
    "std": "standard deviation over samples",
    "none": "",
}
_ALL = "all_tasks"
# Sentences above the first picture.
_MOST_SENTENCES = 3


def checkpoint_name(run: str, step: int, runs: Sequence[str]) -> str:
    """Name a checkpoint in the item browser."""
    return f"step {step}" if len(runs) == 1 else escape_line(f"{run} · step {step}")


def training_report(
    runs: Sequence[TrainingRun],
    comparison: SweepComparison,
    error_bar: ErrorBar = "ci95",
    with_items: Collection[tuple[str, str]] = (),
) -> Report:
    """Make the report on checkpoints to ship and on runs, with a section for each task; ``with_items``: task
    and name of the checkpoints whose items can be read."""
    labels = [run.label for run in runs]
    tasks = list(dict.fromkeys(task for run in runs for task in run.curves))
    steps = {
        (run.label, point.step) for run in runs for curve in run.curves.values() for point in curve.points
    }
    return Report(
        kind="training",
        title=escape_line(join_names(labels)),
        facts=(
            pluralize(len(labels), "run"),
            pluralize(len(steps), "checkpoint"),
            pluralize(len(tasks), "task"),
            *_describe_cost(runs),
        ),
        lead=tuple(_shipping_and_finding_sentences(comparison))[:_MOST_SENTENCES]
        or (Sentence("No checkpoints can be compared yet."),),
        sections=(
            *([shipping_section(comparison, labels, with_items)] if comparison.choices else []),
            *run_differences_section(comparison),
            *(_task_section(task, runs, labels, error_bar, with_items) for task in tasks),
            *_notes_section(runs),
        ),
    )


def all_tasks_report(runs: Sequence[TrainingRun], error_bar: ErrorBar = "ci95") -> Report:
    """Make a report of one picture of all tasks, for a file."""
    labels = [run.label for run in runs]
    tasks = list(dict.fromkeys(task for run in runs for task in run.curves))
    rows = tuple(row for task in tasks for row in _checkpoint_rows(task, runs, labels, error_bar))
    table = ReportTable(_ALL, "All tasks", _checkpoint_columns(error_bar), rows)
    grid = curve_grid(table, tasks, labels)
    picture = Picture(_ALL, "All tasks over training steps", _ALL, grid)
    section = ReportSection("all", "How did training go?", (), (picture,), (table,))
    return Report(
        kind="training", title=escape_line(join_names(labels)), facts=(), lead=(), sections=(section,)
    )


def _describe_cost(runs: Sequence[TrainingRun]) -> Iterator[str]:
    """Yield the cost of answers and judgments, or nothing if all models are local.

    Raises StoreError: an account cannot be read.
    """
    accounts = (file for run in runs for file in sorted((run.folder / SWEEP).rglob("usage.json")))
    if reported := sum_costs([cost for file in accounts for cost in read_model_costs(file)]):
        yield escape_line(str(reported))


def _shipping_and_finding_sentences(comparison: SweepComparison) -> Iterator[Sentence]:
    """Yield which checkpoint to ship, then the other findings."""
    of_runs = {run_difference_sentence(rows) for rows in comparison.differences_by_runs_and_task()}
    below = "last-table" if comparison.changes else "ship-table"
    for at, text in enumerate(comparison.sentences):
        yield Sentence(escape_line(text), "ship" if at == 0 else "runs" if text in of_runs else below)


def _task_section(
    task: str,
    runs: Sequence[TrainingRun],
    labels: Sequence[str],
    error_bar: ErrorBar,
    with_items: Collection[tuple[str, str]],
) -> ReportSection:
    """Make a task's section: its curve, its findings by run, its checkpoints and their gain over the base."""
    curves = [(run, run.curves[task]) for run in runs if task in run.curves]
    [first, *_] = [curve for _, curve in curves]
    rows, points = _checkpoint_rows(task, runs, labels, error_bar), _task_points(task, runs)
    names = [checkpoint_name(run.label, point.step, labels) for run, point in points]
    links = {
        index: urlencode({"task": task, "student": name})
        for index, name in enumerate(names)
        if (task, name) in with_items
    }
    name = f"points-{task}"
    table = ReportTable(name, "Checkpoints", _checkpoint_columns(error_bar), tuple(rows), links=links)
    several = len(runs) > 1
    sentences = [
        Sentence(escape_line(f"{run.label}: {text}" if several else f"{text[:1].upper()}{text[1:]}"), name)
        for run, curve in curves
        for text in (*curve.conclusions, *curve.notes)
    ]
    shaded = f"; shaded: {_MEANINGS[error_bar]}" if _MEANINGS[error_bar] else ""
    odd = any(not curve.alike.issuperset(curve.steps) for _, curve in curves)
    picture = Picture(
        task,
        f"{first.metric} over training steps{shaded}.{_HOLLOW_MARKS if odd else ''}",
        name,
        curve_plot(table, labels, f"{first.metric}, points"),
    )
    question = f"{escape_line(task)}: how did it change?"
    anchor = f"task-{urlencode({'': task})[1:]}"
    tables = (table, _base_differences_table(task, [(run.label, curve) for run, curve in curves]))
    return ReportSection(anchor, question, tuple(sentences), (picture,), tables)


def _base_differences_table(task: str, curves: Sequence[tuple[str, TaskCurve]]) -> ReportTable:
    better = [(label, gain) for label, curve in curves if (gain := curve.first_better) is not None]
    names = [(escape_line(label), f"{step} − {gain.base}") for label, gain in better for step in gain.gaps]
    table = ReportTable(f"since-{task}", "Since the base", make_columns("Run", "Steps"), tuple(names))
    gaps = [gap for _, gain in better for gap in gain.gaps.values()]
    fields = ("difference", "p", "n", "could_be_seen")
    unit = better[0][1].unit if better else "share"
    return add_difference_columns(table, gaps, fields, "Adjusted for all checkpoints of the run", unit=unit)


def _checkpoint_columns(error_bar: ErrorBar) -> tuple[ReportColumn, ...]:
    return (
        *make_columns("Checkpoint", "Run", "Task"),
        ReportColumn("step", "Step", "count"),
        ReportColumn("mean", "Mean", "points", _MEANINGS[error_bar]),
        ReportColumn("sem", "SEM", "points", _MEANINGS["sem"]),
        ReportColumn("n_runs", "Samples", "count"),
        ReportColumn("n_items", "Items", "count"),
        ReportColumn("std", "Std", "points", _MEANINGS["std"]),
        ReportColumn("missing", "Missing", "count"),
        ReportColumn("judge", "Judge"),
        ReportColumn("comparable", "Comparable", "text", "Made and judged like most checkpoints"),
    )


def _task_points(task: str, runs: Sequence[TrainingRun]) -> list[tuple[TrainingRun, TaskAggregate]]:
    return [(run, point) for run in runs if task in run.curves for point in run.curves[task].points]


def _checkpoint_rows(
    task: str, runs: Sequence[TrainingRun], labels: Sequence[str], error_bar: ErrorBar
) -> list[tuple[Cell, ...]]:
    """Make a row for each checkpoint; scores are shares of the metric's scale."""
    rows: list[tuple[Cell, ...]] = []
    for run, point in _task_points(task, runs):
        figures = (
            *mean_sem_cells(point, _error_interval(point, error_bar)),
            metric_error_as_share(point.std, point.unit),
        )
        name = checkpoint_name(run.label, point.step, labels)
        judge = None if point.judge is None else point.judge.model
        alike = point.step in run.curves[task].alike
        rows.append((name, run.label, task, point.step, *figures, point.missing, judge, alike))
    return rows


def _error_interval(point: TaskAggregate, error_bar: ErrorBar) -> tuple[float, float] | None:
    match error_bar:
        case "ci95":
            return point.ci95
        case "none":
            return None
        case "sem" | "std":
            half = point.sem if error_bar == "sem" else point.std
            return None if half is None else (point.mean - half, point.mean + half)


def _notes_section(runs: Sequence[TrainingRun]) -> Iterator[ReportSection]:
    notes = [f"{run.label}: {note}" if len(runs) > 1 else note for run in runs for note in run.notes]
    if notes:
        yield ReportSection("notes", "Notes", tuple(Sentence(escape_line(note)) for note in notes))


# --- Curves
#
# For each run a line over training steps with its intervals, its name at its end and in a legend. Lines that
# coincide are told apart: later ones are dashed and have smaller marks of another shape, so that those below
# them show.

# Pixels: with its sentences on a laptop's screen at once.
_HEIGHT = 300
_CELL = {"width": 250, "height": 190}
# Three cells and the names beside their lines fill the page's width.
_GRID_COLUMNS = 3
# Pixels between the names at the ends of two lines, and characters of a name.
_APART, _LONGEST, _LONGEST_NARROW = 15, 24, 12
# The first is drawn first, below the others; further runs begin again.
_DASHES = ([1, 0], [7, 5], [2, 4], [12, 4, 2, 4])
_SHAPES = ("circle", "square", "diamond", "triangle-up")
_SIZES = (130, 70, 55, 40)
# Of the range of what is drawn, above and below it.
_MARGIN = 0.05


class _LineEnds(NamedTuple):
    """Where lines and their names end: by task and run, the ``last`` step and the height of the name; by
    task, the ends of the axis; ``shaded``: some mean has an interval."""

    last: Mapping[tuple[str, str], int]
    names: Mapping[tuple[str, str], float]
    ends: Mapping[str, tuple[float, float]]
    steps: list[int]
    shaded: bool


def curve_plot(table: ReportTable, runs: Sequence[str], title: str) -> Spec:
    """Draw the columns ``run``, ``task``, ``step``, ``mean`` (a measure) and ``comparable``, which fills the
    mark. ``title`` is that of the axis."""
    lines = _place_line_ends(table, _HEIGHT)
    layers = _curve_layers(runs, lines, title, next(iter(lines.ends.values()), None))
    return chart_spec(table.name, layers, _HEIGHT, *_POINTS, width=860)


def curve_grid(table: ReportTable, tasks: Sequence[str], runs: Sequence[str]) -> Spec:
    """Draw a small plot for each task, each with its own scale."""
    header = {"labelFontSize": 13, "labelExpr": short_name_expression(tasks, 40), "labelLimit": 0}
    layers = _curve_layers(runs, _place_line_ends(table, _CELL["height"]))
    return {
        "data": {"name": table.name},
        "transform": [*_POINTS],
        "facet": encode_column("task:N", sort=list(tasks), title=None, header=header),
        "columns": min(_GRID_COLUMNS, len(tasks)),
        "resolve": {"scale": {"y": "independent"}, "axis": {"x": "independent"}},
        "spec": {"layer": layers, **_CELL},
    }


def _place_line_ends(table: ReportTable, height: float) -> _LineEnds:
    """Compute where lines end, and where their names go without touching."""
    rows = [row for row in table.to_flat_dicts() if row["mean"] is not None]
    last: dict[tuple[str, str], int] = {}
    at_end: dict[tuple[str, str], float] = {}
    reach: dict[str, list[float]] = {}
    for row in rows:
        key = (row["task"], row["run"])
        figures = (row["mean"], row["mean_low"], row["mean_high"])
        reach.setdefault(row["task"], []).extend(100 * number for number in figures if number is not None)
        if row["step"] >= last.get(key, row["step"]):
            last[key], at_end[key] = row["step"], 100 * row["mean"]
    ends: dict[str, tuple[float, float]] = {}
    names: dict[tuple[str, str], float] = {}
    for task, values in reach.items():
        low, high = min(values), max(values)
        margin = _MARGIN * ((high - low) or 1.0)
        ends[task] = (low - margin, high + margin)
        end_values = {key: value for key, value in at_end.items() if key[0] == task}
        gap = _APART * (ends[task][1] - ends[task][0]) / height
        names |= dict(zip(end_values, spread_apart(list(end_values.values()), gap), strict=True))
    shaded = any(row["mean_low"] is not None for row in rows)
    return _LineEnds(last, names, ends, sorted({row["step"] for row in rows}), shaded)


def spread_apart(values: Sequence[float], gap: float) -> list[float]:
    """Move values as little as possible, in their order, until they are ``gap`` apart."""
    groups: list[list[int]] = []

    def centre(group: Collection[int]) -> float:
        return sum(values[index] for index in group) / len(group)

    for index in sorted(range(len(values)), key=lambda index: values[index]):
        groups.append([index])
        while len(groups) > 1:
            below, above = groups[-2:]
            if centre(above) - centre(below) >= gap * (len(above) + len(below)) / 2:
                break
            groups[-2:] = [below + above]
    spread_values = [0.0] * len(values)
    for group in groups:
        for rank, index in enumerate(group):
            spread_values[index] = centre(group) + (rank - (len(group) - 1) / 2) * gap
    return spread_values


# Of all layers.
_POINTS = (*scale_to_points("mean"), filter_rows("isValid(datum.mean)"))


def _curve_layers(
    runs: Sequence[str],
    lines: _LineEnds,
    title: str | None = None,
    ends: tuple[float, float] | None = None,
) -> list[Spec]:
    """Return the layers of curves; ``title``, ``ends``: of the axis of means, by default from the rows."""
    legend = names_legend(runs, symbolOpacity=1, symbolStrokeWidth=0) if len(runs) > 1 else None
    colour = encode_column("run:N", scale={"domain": list(runs)}, legend=legend)
    dashed, marked = _line_and_mark_channels(runs, legend)
    ticks = {"values": lines.steps, "format": "d", "labelOverlap": "greedy", "labelFlush": False}
    fitted = {"zero": False, "nice": False}
    x = encode_column("step:Q", title="step", scale=fitted | {"padding": 10}, axis=ticks | {"grid": False})
    scale = fitted | ({"domain": list(ends)} if ends else {"padding": 8})
    y = encode_column("mean:Q", title=title, scale=scale, axis={"tickCount": 6})
    items = encode_column("n_items:Q", title="items")
    tooltip = [*encode_columns("run:N", "step:Q"), *measure_tooltip("mean"), items]
    low = encode_column("mean_low:Q", title=title, scale=scale)
    interval = {"x": x, "y": low, "y2": {"field": "mean_high"}, "color": colour}
    point = {"x": x, "y": y, "color": colour, **marked, "tooltip": tooltip}
    shaded = [make_layer("area", interval, filter_rows("isValid(datum.mean_low)"), opacity=0.13)]
    layers = [
        *(shaded if lines.shaded else []),  # Vega warns of an empty layer
        make_layer("line", {"x": x, "y": y, "color": colour, **dashed}, strokeWidth=2),
        make_layer("point", point, strokeWidth=2, fill="white"),
        make_layer("point", point | {"opacity": fill_opacity("datum.comparable")}, filled=True),
    ]
    if len(runs) > 1:
        step, name_position = _line_end_expressions(lines, runs)
        name_text = short_name_expression(runs, _LONGEST, name_expression="datum.run", narrow=_LONGEST_NARROW)
        ended = (
            *add_columns(end=step, name_at=name_position),
            filter_rows("datum.step === datum.end"),
            *add_columns(name_text=name_text),
        )
        beside = {"x": x, "y": encode_column("name_at:Q", scale=scale, title=title), "color": colour}
        layers.append(
            make_layer("text", beside | {"text": encode_column("called:N")}, *ended, align="left", dx=10)
        )
    return layers


def _line_and_mark_channels(runs: Sequence[str], legend: Spec | None) -> tuple[Spec, Spec]:
    """Return channels that tell runs apart: of lines, and of the marks on them."""
    if legend is None:
        return {}, {"size": {"value": _SIZES[1]}}

    def by_run(kind: str, looks: Sequence[Any]) -> Spec:
        scale = {"domain": list(runs), "range": [*islice(cycle(looks), len(runs))]}
        # One legend: Vega warns of others of the same field.
        return encode_column(f"run:{kind}", scale=scale, legend=legend)

    marked = {"shape": by_run("N", _SHAPES), "size": by_run("O", _SIZES)}
    return {"strokeDash": by_run("N", _DASHES)}, marked


def _line_end_expressions(lines: _LineEnds, runs: Sequence[str]) -> tuple[str, str]:
    """Return expressions of a row's line: its last step, and the height of its name."""
    tasks = list(lines.ends)
    keys = [(task, escape_line(run)) for task in tasks for run in runs]
    index_expression = (
        f"[indexof({quote_names(tasks)}, datum.task) * {len(runs)} + indexof({quote_names(runs)}, datum.run)]"
    )
    steps, places = ([by_key.get(key) for key in keys] for by_key in (lines.last, lines.names))
    return f"{json.dumps(steps)}{index_expression}", f"{json.dumps(places)}{index_expression}"
