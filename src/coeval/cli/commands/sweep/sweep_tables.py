"""Tables of sweeps on a terminal of 80 columns: aggregates of checkpoints, and judges compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from coeval.cli import streams
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import pair_columns, pair_headings, show_each
from coeval.core.errors import GAPS
from coeval.core.text import join_names, pluralize
from coeval.reports.content import ReportTable, make_columns
from coeval.reports.measure_table import SAMPLE_COLUMNS, metric_gap_in_points, metric_in_points, sample_cells
from coeval.sweeps.sweep import JobPlan, Sweep

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from coeval.analysis.training.aggregate import Aggregated
    from coeval.analysis.training.judge_comparison import JudgeComparison, TaskJudges
    from coeval.analysis.training.sweep_comparison import SweepComparison
    from coeval.analysis.training.training_curves import TrainingRun


# --- Aggregates of checkpoints as tables

_COLUMNS = (*make_columns("step"), *SAMPLE_COLUMNS, *make_columns("missing", kind="count"))


def print_aggregates(found: Sequence[Aggregated], console: Console) -> None:
    """Every task's headline over the checkpoints."""
    for task in sorted({task for one in found for task in one.tasks}):
        of_task = [(one.checkpoint.step, one.tasks[task]) for one in found if task in one.tasks]
        rows = tuple((str(step), *sample_cells(of, of.ci95), of.missing) for step, of in of_task)
        title = f"{task}: {join_names(dict.fromkeys(of.metric for _, of in of_task))}"
        show_each(console, [ReportTable("", title, _COLUMNS, rows)])


def print_conclusions(
    runs: Sequence[TrainingRun],
    compared: SweepComparison,
    console: Console,
    found: Sequence[Aggregated] = (),
) -> None:
    """Print which checkpoint to ship, as ``coeval compare`` says it, then what follows by task, without what
    `tell_aggregates` says of ``found``."""
    reported = {
        f"step {one.checkpoint.step}: {note}"
        for one in found
        for of in one.tasks.values()
        for note in of.notes
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


def tell_aggregates(
    found: Sequence[Aggregated],
    out: Path,
    tasks: Sequence[str] | None,
    steps: Sequence[int] | None = None,
    pattern: str = "step_{step}",
) -> bool:
    """Print the checkpoints' results; return whether something requested is missing."""
    print_aggregates(found, streams.results())
    absent = sorted(set(steps or ()) - {one.checkpoint.step for one in found})
    everywhere = tasks or sorted({task for one in found for task in (*one.tasks, *one.without)})
    same: dict[tuple[str, str], list[str]] = {}
    gaps = bool(absent)
    for one in found:
        for task in everywhere:
            of = one.tasks.get(task)
            notes = one.without.get(task, ("there are no results",)) if of is None else of.notes
            gaps = gaps or of is None or not of.complete
            for note in notes:
                same.setdefault((task, note), []).append(str(one.checkpoint.step))
    said = [f"{out} holds no results of step {join_names(map(str, absent))}"] if absent else []
    said += [f"{task}, step {join_names(at)}: {note}" for (task, note), at in same.items()]
    for sentence in said:  # what is the same at several steps is told once
        warn(streams.messages(), sentence)
    written = pluralize(sum(len(one.tasks) for one in found), "file")
    say(streams.messages(), f"written: {out}/{pattern}/<task>/summary_agg.json, {written}")
    return gaps


def put_together_and_drawn(sweep: Sweep) -> int:
    """Write and show what all steps in the output folder came to; the exit code of putting them together."""
    from coeval.reports.training_files import put_together  # duckdb, numpy and vl-convert

    plan = JobPlan.read(sweep.own_folder)
    made = put_together(sweep.out, {task.label: task.samples for task in plan.tasks})
    tasks = [task.label for task in plan.tasks]
    if made.run is not None and made.compared is not None:
        print_conclusions([made.run], made.compared, streams.results(), made.found)
    gaps = tell_aggregates(made.found, sweep.out, tasks)
    if made.written:
        pictures = len(made.written) - 1
        say(streams.messages(), f"written: {made.written[-1]} and {pictures} pictures beside it")
    return GAPS if gaps else 0


_LEGEND = "b − a in points; its interval and p are adjusted (Holm) for all rows of the two judges"


def print_judges(compared: JudgeComparison, console: Console) -> None:
    for one in compared.tasks:
        for sentence in one.sentences:
            say(console, f"{one.task}: {sentence}")
    for one in compared.tasks:
        _print_task(one, console)
    console.print()
    say(console, _LEGEND, "dim")
    for note in compared.notes:
        warn(console, note)


def _print_task(one: TaskJudges, console: Console) -> None:
    judges = zip((one.a, one.b), one.judges, strict=True)
    models = [f" ({model})" if model and model != label else "" for label, model in judges]
    title = f"{one.task} {one.metric}, a: {one.a}{models[0]}, b: {one.b}{models[1]}"
    rows = tuple(
        (
            "all" if step.step is None else str(step.step),
            metric_in_points(step.mean_a, None, one.unit),
            metric_in_points(step.mean_b, None, one.unit),
            metric_gap_in_points(step.difference, step.ci95_adjusted, one.unit),
            step.p_adjusted,
            step.n,
        )
        for step in one.steps
    )
    pair = pair_columns(*pair_headings(one.a, one.b))
    figures = (*make_columns("p", kind="probability"), *make_columns("items", kind="count"))
    show_each(console, [ReportTable("", title, (*make_columns("step"), *pair, *figures), rows)])
    for step in one.steps:
        if step.same_answers is not None and step.same_answers < 1:
            where = "" if step.step is None else f" at step {step.step}"
            same = f"only {100 * step.same_answers:.0f}% of the answers{where} are the same in both folders"
            warn(console, f"{same}: part of the difference may be theirs")
