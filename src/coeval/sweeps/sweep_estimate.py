"""What a sweep that starts now will ask, and what its judging will cost: nothing is asked or written.

Checkpoints of which the same is owed are alike, and one of them is looked into for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from coeval.benchmarks.run.eval_estimate import estimate_evaluation
from coeval.benchmarks.run.runner import prepare
from coeval.engine.progress import Watcher
from coeval.pricing.estimate import EstimateLine, total_cost
from coeval.pricing.lengths import Span, exact
from coeval.pricing.price_book import PriceBook
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.job_table import JobTable, OwedJobs
from coeval.sweeps.sweep import Sweep, SweepPhases


class TaskEstimate(NamedTuple):
    """Of a task over all checkpoints: jobs owed, requests to the checkpoints, requests to the judge, and what
    those cost; None where no price is known."""

    jobs: int = 0
    answers: int = 0
    judgments: Span = exact(0)
    cost_usd: Span | None = None


class SweepEstimate(NamedTuple):
    """``checkpoints`` are those of which something is owed, ``workers`` the servers that will be started."""

    checkpoints: int
    workers: int
    tasks: dict[str, TaskEstimate]
    judge: EstimateLine | None
    prices: tuple[str, ...]


def estimate_sweep(
    sweep: Sweep,
    table: JobTable,
    checkpoints: Sequence[Checkpoint],
    phases: SweepPhases,
    watcher: Watcher,
) -> SweepEstimate:
    """
    Raises UsageError: a task cannot be prepared: an asset is not there, a file has wrong data.
    """
    alike: Counter[str] = Counter()
    first: dict[str, tuple[Checkpoint, OwedJobs]] = {}
    workers = 0
    for checkpoint in checkpoints:
        owed = table.owed(checkpoint)
        if owed.nothing:
            continue
        workers += len(owed.answers) if phases.inference else 0
        alike[repr(owed)] += 1
        first.setdefault(repr(owed), (checkpoint, owed))
    tasks: dict[str, TaskEstimate] = {}
    judged: list[EstimateLine] = []
    prices: set[str] = set()
    for key, (checkpoint, owed) in first.items():
        evaluation, times = sweep.whole(checkpoint, owed.conclusions), alike[key]
        prepared = prepare(evaluation, watcher)
        estimate = estimate_evaluation(prepared, PriceBook())
        for run in prepared.task_runs:
            requested = estimate.by_phase.get(run.label) if phases.inference else None
            judging = estimate.by_phase.get(run.judging) if phases.judge else None
            tasks[run.task] = _added(tasks.get(run.task, TaskEstimate()), requested, judging, times)
        name = evaluation.judge.name if evaluation.judge is not None else ""
        if phases.judge and name in estimate.by_model:
            judged.append(estimate.by_model[name] * times)
        prices.update([estimate.prices[name]] if name in estimate.prices else [])
    judge = sum(judged[1:], judged[0]) if judged else None
    return SweepEstimate(alike.total(), workers, tasks, judge, tuple(sorted(prices)))


def _added(
    before: TaskEstimate, requested: EstimateLine | None, judging: EstimateLine | None, times: int
) -> TaskEstimate:
    """Add one job at each of ``times`` checkpoints. What is not known is the same of all that are alike: the
    ends of the range grow with their number."""
    answers = round(requested.calls.central) if requested is not None else 0
    jobs, asks = before.jobs + times, before.answers + answers * times
    if judging is None:
        return before._replace(jobs=jobs, answers=asks)
    line = judging * times
    cost = total_cost((before.cost_usd, line.cost_usd))
    return TaskEstimate(jobs, asks, before.judgments + line.calls, cost)
