"""The last phase of a sweep: samples put together, and curves drawn."""

from __future__ import annotations

import typer

from coeval.analysis.training.training_curves import training_curves
from coeval.cli import streams
from coeval.cli.commands.sweep.aggregate_command import aggregate
from coeval.cli.streams import say, warn
from coeval.core.errors import UsageError
from coeval.reports.training_files import write_curves
from coeval.sweeps.job_plan import JobPlan
from coeval.sweeps.sweep import Sweep

__all__ = ["put_together_and_drawn"]


def put_together_and_drawn(sweep: Sweep) -> int:
    """Write and show what all steps in the output folder came to; the exit code of putting them together.
    Where nothing is scored yet, that is told.
    """
    plan = JobPlan.read(sweep.own_folder)
    tasks = [task.label for task in plan.tasks]
    samples = ",".join(f"{task.label}={task.samples}" for task in plan.tasks)
    code = 0
    try:
        try:
            aggregate(out=sweep.out, tasks=",".join(tasks), n_samples=samples)
        except typer.Exit as ended:
            code = ended.exit_code
        runs = training_curves({sweep.out.absolute().name or "run": sweep.out}, tasks)
    except UsageError as nothing:  # what the sweep came to has been told, and that is its exit code
        warn(streams.messages(), str(nothing))
        return code
    written = list(write_curves(runs, sweep.out / "plots", "ci95"))
    say(streams.messages(), f"written: {written[-1]} and {len(written) - 1} pictures beside it")
    return code
