"""The last phase of a sweep: samples put together, curves drawn, as the commands of these names do it."""

from __future__ import annotations

import typer

from coeval.cli.commands.sweep.aggregate_command import aggregate
from coeval.cli.commands.sweep.plot_command import plot
from coeval.sweeps.jobs.job_plan import JobPlan
from coeval.sweeps.sweep import Sweep

__all__ = ["has_results", "put_together_and_drawn"]


def has_results(sweep: Sweep) -> bool:
    """Whether anything is scored."""
    return any(sweep.out.glob("step_*/run_*/*/summary.json"))


def put_together_and_drawn(sweep: Sweep) -> int:
    """Write and show what all steps in the output folder came to; the exit code of putting them together.

    Raises
    ------
    UsageError
        there is nothing yet that could be drawn.
    """
    plan = JobPlan.read(sweep.own_folder)
    tasks = ",".join(task.label for task in plan.tasks)
    samples = ",".join(f"{task.label}={task.samples}" for task in plan.tasks)
    code = 0
    try:
        aggregate(out=sweep.out, tasks=tasks, n_samples=samples)
    except typer.Exit as ended:
        code = ended.exit_code
    name = sweep.out.absolute().name.replace("=", "_") or "run"
    plot(runs=[f"{name}={sweep.out}"], plot_dir=sweep.out / "plots", tasks=tasks)
    return code
