"""`coeval sweep --status`: how far a sweep is, from its files alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from coeval.cli.commands.sweep.sweep_view import doing, done
from coeval.cli.say import say, warn_at_length
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.errors import UsageError
from coeval.core.text import numbered
from coeval.store.rundir import RunDir
from coeval.sweeps.jobs.job_plan import JobPlan
from coeval.sweeps.jobs.job_table import JobTable, TaskStanding
from coeval.sweeps.leg_files import read_progress
from coeval.sweeps.sweep import LEGS, folder_of
from coeval.sweeps.sweep_settings import SweepSettings

_MOST_ROWS = 60
_RECENT_S = 15.0


def tell_standing(settings: SweepSettings, console: Console) -> int:
    """Show a table of checkpoints and tasks, and what runs now; 0.

    Raises
    ------
    UsageError
        there is no sweep in the folder.
    """
    if settings.out is None:
        raise UsageError("--out is missing: the folder whose sweep is to be shown")
    own = folder_of(settings.out)
    try:
        plan = JobPlan.read(own)
    except FileNotFoundError:
        raise UsageError(f"{settings.out} holds no sweep; begin one with coeval sweep") from None
    table = JobTable(settings.out, plan)
    table.read()
    whole = _tell_table(table, console)
    say(console, f"{whole:,} of {numbered(len(plan.checkpoints), 'checkpoint')} complete")
    writer = RunDir(own).writer()
    say(
        console,
        f"process {writer} is at work on it" if writer is not None else "no sweep runs here now",
        "dim",
    )
    for line in _legs(own / LEGS):
        say(console, line)
    return 0


def _tell_table(table: JobTable, console: Console) -> int:
    """Checkpoints and tasks, and what is wrong with them; how many checkpoints are complete."""
    plan = table.plan
    rows: list[NameRow] = []
    problems: dict[str, str] = {}
    whole = missing = 0
    for checkpoint in plan.checkpoints:
        standing = [table.standing(checkpoint, task) for task in plan.tasks]
        complete = all(each.concluded == each.samples for each in standing)
        whole += complete
        missing += sum(each.missing for each in standing)
        for task, each in zip(plan.tasks, standing, strict=True):
            if each.problem:
                problems[f"{checkpoint.name} {task.label}"] = each.problem
        if not complete or len(plan.checkpoints) <= _MOST_ROWS:
            rows.append(NameRow(str(checkpoint.step), [_cell(each) for each in standing]))
    title = "Scored samples of each checkpoint and task (+ answered, not scored yet; ! failed)"
    print_table(console, title, "step", [Column(task.label) for task in plan.tasks], rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        say(console, f"… {len(rows) - _MOST_ROWS:,} more that are not complete", "dim")
    if missing:
        say(console, f"scored samples lack {numbered(missing, 'record')}")
    for what, why in problems.items():
        warn_at_length(console, f"{what} failed: {why}")
    return whole


def _cell(standing: TaskStanding) -> str:
    """``1 of 2 +1``: one sample is scored, another one answered."""
    waiting = standing.answered - standing.concluded
    more = f" +{waiting}" if waiting > 0 else ""
    return f"{standing.concluded} of {standing.samples}{more}" + (
        f" !{standing.failed}" if standing.failed else ""
    )


def _legs(legs: Path) -> Iterator[str]:
    """The legs that are under way, and those that were left before their end, with what they have on disk."""
    for folder in sorted(legs.glob("*/")):
        progress = read_progress(folder)
        if progress is None or (progress.planned and progress.done >= progress.planned):
            continue
        if progress.state != "ended" and time.time() - progress.at < _RECENT_S:
            yield " ".join(filter(None, (folder.name, doing(progress), done(progress))))
        elif progress.done:
            yield f"{folder.name} was left at {done(progress)} answers"
