"""Tables of sweeps for a terminal of 80 columns: results of checkpoints, and judges compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from coeval.cli import streams
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import make_pair_and_difference_columns, pair_headings, show_tables
from coeval.core.errors import GAPS
from coeval.core.text import join_names, pluralize
from coeval.reports.content import ReportTable, make_columns
from coeval.reports.measure_table import SAMPLE_COLUMNS, difference_as_share, mean_sem_cells, metric_as_share
from coeval.sweeps.sweep import JobPlan, Sweep

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from coeval.analysis.training.aggregate import CheckpointAggregate
    from coeval.analysis.training.judge_comparison import JudgeComparison, TaskJudges
    from coeval.analysis.training.sweep_comparison import SweepComparison
    from coeval.analysis.training.training_curves import TrainingRun


# --- Aggregates of checkpoints as tables

_COLUMNS = (*make_columns("step"), *SAMPLE_COLUMNS, *make_columns("missing", kind="count"))


def print_conclusions(
    runs: Sequence[TrainingRun],
    compared: SweepComparison,
    console: Console,
    printed_aggregates: Sequence[CheckpointAggregate] = (),
) -> None:
    """Print which checkpoint to ship, as ``coeval compare`` says it, and conclusions by task; skips the notes
    that `print_aggregates_and_check_gaps` prints for ``printed_aggregates``."""
    reported = {
        f"step {row.checkpoint.step}: {note}"
        for row in printed_aggregates
        for task_row in row.tasks.values()
        for note in task_row.notes
    }
    for sentence in compared.sentences:
        say(console, sentence)
    for run in runs:
        label = f"{run.label}, " if len(runs) > 1 else ""
        for task, curve in run.curves.items():
            for sentence in curve.conclusions:
                say(console, f"{label}{task}: {sentence}")
            for note in curve.notes:
                if note not in reported:
                    say(console, f"{label}{task}: {note}", "dim")


def print_aggregates_and_check_gaps(
    aggregated: Sequence[CheckpointAggregate],
    out: Path,
    tasks: Sequence[str] | None,
    steps: Sequence[int] | None = None,
    pattern: str = "step_{step}",
) -> bool:
    """Print each task's headline by checkpoint, and what is missing; return whether something requested is
    missing."""
    for task in sorted({task for checkpoint in aggregated for task in checkpoint.tasks}):
        figures_by_step = {row.checkpoint.step: row.tasks[task] for row in aggregated if task in row.tasks}
        rows = tuple(
            (str(step), *mean_sem_cells(figures, figures.ci95), figures.missing)
            for step, figures in figures_by_step.items()
        )
        title = f"{task}: {join_names(dict.fromkeys(row.metric for row in figures_by_step.values()))}"
        show_tables(streams.results(), [ReportTable("", title, _COLUMNS, rows)])
    absent = sorted(set(steps or ()) - {row.checkpoint.step for row in aggregated})
    everywhere = tasks or sorted({task for row in aggregated for task in (*row.tasks, *row.unscored)})
    steps_by_note: dict[tuple[str, str], list[str]] = {}
    gaps = bool(absent)
    for row in aggregated:
        for task in everywhere:
            figures = row.tasks.get(task)
            notes = row.unscored.get(task, ("no results",)) if figures is None else figures.notes
            gaps = gaps or figures is None or not figures.complete
            for note in notes:
                steps_by_note.setdefault((task, note), []).append(str(row.checkpoint.step))
    sentences = [f"{out} holds no results of step {join_names(map(str, absent))}"] if absent else []
    sentences += [f"{task}, step {join_names(at)}: {note}" for (task, note), at in steps_by_note.items()]
    for sentence in sentences:  # one line for a note of several steps
        warn(streams.messages(), sentence)
    written = pluralize(sum(len(row.tasks) for row in aggregated), "file")
    say(streams.messages(), f"written: {out}/{pattern}/<task>/summary_agg.json, {written}")
    return gaps


def aggregate_draw_and_print(sweep: Sweep) -> int:
    """Aggregate all steps in the output folder, draw curves, print results; return the exit code."""
    from coeval.reports.training_files import aggregate_and_write_sweep  # duckdb, numpy and vl-convert

    samples = JobPlan.read(sweep.own_folder).samples
    made = aggregate_and_write_sweep(sweep.out, samples)
    if made.run is not None and made.comparison is not None:
        print_conclusions([made.run], made.comparison, streams.results(), made.aggregates)
    gaps = print_aggregates_and_check_gaps(made.aggregates, sweep.out, [*samples])
    if made.paths:
        say(streams.messages(), f"written: {made.paths[-1]} and {len(made.paths) - 1} pictures")
    return GAPS if gaps else 0


_LEGEND = "b − a in points; its interval and p are adjusted (Holm) for all rows of the two judges"


def print_judges(compared: JudgeComparison, console: Console) -> None:
    for task in compared.tasks:
        for sentence in task.sentences:
            say(console, f"{task.task}: {sentence}")
    for task in compared.tasks:
        _print_task_judges(task, console)
    console.print()
    say(console, _LEGEND, "dim")
    for note in compared.notes:
        warn(console, note)


def _print_task_judges(task: TaskJudges, console: Console) -> None:
    """Print two judges' means and differences on a task by step, and warn if their answers differ."""
    judges = zip((task.a, task.b), task.judges, strict=True)
    models = [f" ({model})" if model and model != label else "" for label, model in judges]
    title = f"{task.task} {task.metric}, a: {task.a}{models[0]}, b: {task.b}{models[1]}"
    rows = tuple(
        (
            "all" if step.step is None else str(step.step),
            metric_as_share(step.mean_a, None, task.unit),
            metric_as_share(step.mean_b, None, task.unit),
            difference_as_share(step.difference, step.ci95_adjusted, task.unit),
            step.p_adjusted,
            step.n,
        )
        for step in task.steps
    )
    pair = make_pair_and_difference_columns(*pair_headings(task.a, task.b))
    figures = (*make_columns("p", kind="probability"), *make_columns("items", kind="count"))
    show_tables(console, [ReportTable("", title, (*make_columns("step"), *pair, *figures), rows)])
    for step in task.steps:
        if step.same_answers is not None and step.same_answers < 1:
            where = "" if step.step is None else f" at step {step.step}"
            same = f"only {100 * step.same_answers:.0f}% of the answers{where} are the same in both folders"
            warn(console, f"{same}: this may explain part of the difference")
