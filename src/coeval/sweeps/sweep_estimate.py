"""What a sweep that starts now will ask, and what its judging will cost: nothing is asked or written.

Checkpoints of which the same is owed are alike, and one of them is looked into for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coeval.benchmarks.run.eval_estimate import estimate_evaluation
from coeval.benchmarks.run.runner import prepare
from coeval.engine.progress import Watcher
from coeval.pricing.estimate import EstimateLine
from coeval.pricing.price_book import PriceBook
from coeval.pricing.unknowns import Span, exact
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.job_table import JobTable, OwedJobs
from coeval.sweeps.sweep import Sweep, SweepPhases


class TaskEstimate(NamedTuple):
    """Of a task over all checkpoints: jobs owed, requests to the checkpoints, requests to the judge, and what
    those cost; None where no price is known."""

    jobs: int
    answers: int
    judgments: Span
    cost_usd: Span | None


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
    Raises
    ------
    UsageError
        a task cannot be prepared: an asset is not there, a file has wrong data.
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
        found = _of_checkpoint(sweep, checkpoint, owed, phases, watcher)
        for name, one in found.tasks.items():
            tasks[name] = _added(tasks.get(name), one, alike[key])
        if found.judge is not None:
            judged.append(_times(found.judge, alike[key]))
        prices.update(found.prices)
    return SweepEstimate(alike.total(), workers, tasks, _sum(judged), tuple(sorted(prices)))


def _of_checkpoint(
    sweep: Sweep, checkpoint: Checkpoint, owed: OwedJobs, phases: SweepPhases, watcher: Watcher
) -> SweepEstimate:
    evaluation = sweep.whole(checkpoint, owed.conclusions)
    prepared = prepare(evaluation, watcher)
    estimate = estimate_evaluation(prepared, PriceBook())
    tasks: dict[str, TaskEstimate] = {}
    for run in prepared.task_runs:
        asked = estimate.by_phase.get(run.label)
        judging = estimate.by_phase.get(run.judging)
        one = TaskEstimate(
            1,
            round(asked.calls.central) if asked is not None and phases.inference else 0,
            exact(0) if judging is None or not phases.judge else judging.calls,
            None if judging is None or not phases.judge else judging.cost_usd,
        )
        tasks[run.task] = _added(tasks.get(run.task), one, 1)
    name = evaluation.judge.name if evaluation.judge is not None else ""
    judge = estimate.by_model.get(name) if phases.judge else None
    prices = (estimate.prices[name],) if name in estimate.prices else ()
    return SweepEstimate(1, 0, tasks, judge, prices)


def _added(before: TaskEstimate | None, one: TaskEstimate, times: int) -> TaskEstimate:
    cost = None if one.cost_usd is None else _scaled(one.cost_usd, times)
    found = TaskEstimate(one.jobs * times, one.answers * times, _scaled(one.judgments, times), cost)
    if before is None:
        return found
    return TaskEstimate(
        before.jobs + found.jobs,
        before.answers + found.answers,
        before.judgments + found.judgments,
        _both(before.cost_usd, found.cost_usd),
    )


def _both(one: Span | None, other: Span | None) -> Span | None:
    return one + other if one is not None and other is not None else one or other


def _scaled(span: Span, times: int) -> Span:
    """What is not known is the same of all that are alike: the ends of the range grow with it."""
    return Span(span.central * times, span.low * times, span.high * times)


def _times(line: EstimateLine, times: int) -> EstimateLine:
    cost = None if line.cost_usd is None else _scaled(line.cost_usd, times)
    return EstimateLine(
        _scaled(line.calls, times),
        _scaled(line.input_tokens, times),
        _scaled(line.output_tokens, times),
        cost,
    )


def _sum(lines: Iterable[EstimateLine]) -> EstimateLine | None:
    total: EstimateLine | None = None
    for line in lines:
        if total is None:
            total = line
            continue
        total = EstimateLine(
            total.calls + line.calls,
            total.input_tokens + line.input_tokens,
            total.output_tokens + line.output_tokens,
            _both(total.cost_usd, line.cost_usd),
        )
    return total
