"""`coeval sweep --dry-run`: jobs that are owed, the requests they take, what the judging will cost."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from coeval.cli import streams
from coeval.cli.say import say, warn
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.cli.views.progress.progress_view import Terminal
from coeval.core.text import dollars, listed, numbered
from coeval.pipeline.plan.estimate.in_words import calls, ends, tokens
from coeval.pricing.estimate.span import Span
from coeval.pricing.tariff import sources_told
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.jobs.job_plan import job_plan
from coeval.sweeps.jobs.job_table import JobTable
from coeval.sweeps.jobs.sweep_estimate import SweepEstimate, estimate_sweep
from coeval.sweeps.sweep import Sweep, SweepPhases

_COLUMNS = [Column(name) for name in ("jobs", "answers", "judgments", "judging", "from – to")]


def tell_plan(
    sweep: Sweep, phases: SweepPhases, checkpoints: Sequence[Checkpoint], console: Console, absent: str = ""
) -> int:
    """Show what a start of the sweep would do; 0. ``absent`` is told where servers would be started.

    Raises
    ------
    UsageError
        a task cannot be prepared.
    """
    table = JobTable(sweep.out, job_plan(sweep))
    table.read()
    tell_done_otherwise(table, checkpoints)
    with Terminal(streams.messages()) as terminal:
        estimate = estimate_sweep(sweep, table, checkpoints, phases, terminal)
    if absent and estimate.legs:
        warn(streams.messages(), absent)
    steps = listed([str(checkpoint.step) for checkpoint in checkpoints], 12)
    say(console, f"{numbered(len(checkpoints), 'checkpoint')} (steps {steps}), {_owed(estimate)}")
    rows = [
        NameRow(task, (f"{one.jobs:,}", f"{one.answers:,}", calls(one.judgments), *_money(one.cost_usd)))
        for task, one in estimate.tasks.items()
    ]
    if rows:
        print_table(console, "", "task", _COLUMNS, rows)
    _tell_judging(sweep, estimate, console)
    return 0


def tell_done_otherwise(table: JobTable, checkpoints: Sequence[Checkpoint]) -> None:
    """Say what becomes of earlier answers where settings, or files of checkpoints, have changed since."""
    for checkpoint in table.written_since(checkpoints):
        said = (
            f"{checkpoint.path} has files that are newer than the answers of step {checkpoint.step}, which "
            "count as its own; if it is another checkpoint now, give another --out, or remove "
            f"step_{checkpoint.step} there"
        )
        warn(streams.messages(), said)
    if count := table.done_otherwise(checkpoints):
        jobs = f"{numbered(count, 'job')} {'was' if count == 1 else 'were'}"
        said = (
            f"{jobs} done before with other settings. Answers that do not fit these are set aside in their "
            "folders, and taken up again when the earlier settings return; to have both, give another --out"
        )
        warn(streams.messages(), said)


def _owed(estimate: SweepEstimate) -> str:
    if not estimate.checkpoints:
        return "nothing owed"
    servers = f", {numbered(estimate.legs, 'server start')}" if estimate.legs else ""
    return f"{estimate.checkpoints:,} with something owed{servers}"


def _tell_judging(sweep: Sweep, estimate: SweepEstimate, console: Console) -> None:
    judge = sweep.evaluation.judge
    line = estimate.judge
    if judge is None or line is None:
        return
    taken = f"{tokens(line.input_tokens)} tokens in, {tokens(line.output_tokens)} out"
    if line.cost_usd is None:
        say(console, f"Judging by {judge.model}: {taken}; its price is not known.")
        return
    cost = f"{dollars(line.cost_usd.central)} ({ends(line.cost_usd)})"
    say(console, f"Judging by {judge.model}: {taken}, {cost}.")
    if estimate.prices:
        say(console, f"Prices: {sources_told(estimate.prices)}.", "dim")


def _money(cost: Span | None) -> tuple[str, str]:
    return ("", "") if cost is None else (dollars(cost.central), ends(cost))
