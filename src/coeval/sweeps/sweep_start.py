"""A start of a sweep: checked before anything begins, its folder held, its workers and judging under way; and
what it would cost."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from coeval.benchmarks.run.eval_estimate import estimate_evaluation
from coeval.benchmarks.run.runner import locate_accounts, prepare_evaluation
from coeval.core.errors import Draining, ModelUnavailable, UsageError
from coeval.core.options import NO_JUDGE, spell
from coeval.core.plain import escape_line
from coeval.core.text import pluralize
from coeval.engine.probing import Probing, explain_silent_models, probe_and_write_results
from coeval.engine.progress import Board, Unwatched, Watcher
from coeval.engine.session import SessionContext, open_session
from coeval.engine.terms import make_terms
from coeval.models.pacing.throttle import read_throttle
from coeval.pricing.estimate import EstimateLine, sum_known_costs
from coeval.pricing.lengths import Span, exact
from coeval.pricing.price_book import PriceBook
from coeval.store.rundir import RunDir
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.job_table import JobTable, OwedJobs, refuse_or_set_aside_other_answers
from coeval.sweeps.judging_run import JUDGING_MODULE, JudgingProcess
from coeval.sweeps.scheduler import Scheduler, SweepBoard, find_own_errors
from coeval.sweeps.server_process import end_leftover_workers_and_servers
from coeval.sweeps.sweep import ACCOUNTS, WORKERS, JobPlan, Sweep, queue_folder
from coeval.sweeps.sweep_choice import (
    KEY_VARIABLE,
    SweepRequest,
    explain_absent_program,
    open_engine,
    refuse_unclear_servers,
)


class SweepWatcher(Protocol):
    """Takes a sweep's messages; ``begin`` hands over the board that fills while it runs."""

    def note(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...

    def begin(self, board: SweepBoard) -> None: ...


class SweepUnderWay(NamedTuple):
    """``run`` brings the owed jobs to their ends; setting its event has everything end soon."""

    board: SweepBoard
    run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]


def require_checkpoints(request: SweepRequest, warn: Callable[[str], None]) -> list[Checkpoint]:
    """Find the whole checkpoints of a sweep; none yet if it watches for them. Raises UsageError: there is
    none, or it is unclear which of the user's servers has which."""
    read_throttle(os.environ)  # wrong variables are told before anything begins
    if request.watch is not None:
        refuse_unclear_servers(request.sweep, [], watched=True)
        return []
    checkpoints, places = request.places.find_all(), request.places
    for path, why in places.explain_skipped().items():
        warn(f"{path} is passed over: {why}; {spell('watch')} waits for such ones")
    refuse_unclear_servers(request.sweep, checkpoints)
    if not checkpoints:
        pattern = spell("name_pattern")
        raise UsageError(f"{places.folder} holds no whole checkpoint; say where they lie below it: {pattern}")
    return checkpoints


@contextmanager
def open_sweep(
    request: SweepRequest, checkpoints: Sequence[Checkpoint], watcher: SweepWatcher
) -> Iterator[SweepUnderWay]:
    """Lock the sweep's folder, and prepare all that is owed. Raises UsageError: another process is at work in
    the folder, or it holds other checkpoints, or the program that is to start servers is absent; StoreError:
    a file cannot be read or written."""
    sweep, settings = request.sweep, request.settings
    with RunDir(sweep.own_folder).hold_lock():
        plan = request.plan.with_earlier_checkpoints(sweep.own_folder)
        checkpoints = [c for c in checkpoints if _check_step_is_free(sweep, plan, c, watcher)]
        table = JobTable(sweep.out, plan)
        for sentence in end_leftover_workers_and_servers(sweep.own_folder / WORKERS):
            watcher.note(sentence)
        environment = dict(os.environ)
        if settings.api_key:
            environment[KEY_VARIABLE] = settings.api_key
        log = sweep.own_folder / "judging.log"
        keys = [] if settings.keys is None else [str(settings.keys)]
        command = (sys.executable, "-m", JUDGING_MODULE, str(log), *keys)
        judge_worker = JudgingProcess(command, log, environment)
        engine = open_engine(request, environment)
        scheduler = Scheduler(request, table, engine, judge_worker)
        board = scheduler.board

        async def run(interrupt: asyncio.Event) -> None:
            try:
                if board.workers or request.watch is not None:
                    await _probe_needed_judge(request, watcher, interrupt)
                await scheduler.run(interrupt, request.watch)
            except BaseExceptionGroup as group:
                raise next(find_own_errors(group), group) from None
            finally:
                await engine.aclose()

        with closing(table):
            table.add_checkpoints_and_write_plan(checkpoints)
            for sentence in describe_changes(table, checkpoints):
                watcher.warn(sentence)
            for checkpoint in checkpoints:
                scheduler.add_checkpoint(checkpoint)
            if (board.workers or request.watch is not None) and (absent := explain_absent_program(request)):
                raise UsageError(absent)
            owed = f"{pluralize(board.jobs, 'job')} to do for {pluralize(board.checkpoints, 'checkpoint')}"
            watched = request.places.folder or queue_folder(sweep.out)
            watcher.note(owed if request.watch is None else f"watching {watched}")
            watcher.begin(board)
            yield SweepUnderWay(board, run)


def _check_step_is_free(sweep: Sweep, plan: JobPlan, checkpoint: Checkpoint, watcher: SweepWatcher) -> bool:
    """Check whether the step is free of another checkpoint's answers; else raise UsageError, or only warn if
    it was submitted."""
    try:
        refuse_or_set_aside_other_answers(sweep, plan, checkpoint)
    except UsageError as error:
        if not checkpoint.content:
            raise
        watcher.warn(f"{checkpoint.name} is left out: {error}")
        return False
    return True


class _Told(Unwatched):
    """Passes on what is said of a judge; the board of one probe is nobody's."""

    def __init__(self, watcher: SweepWatcher) -> None:
        self.note = watcher.note  # type: ignore[method-assign]
        self.warn = watcher.warn  # type: ignore[method-assign]


async def _probe_needed_judge(request: SweepRequest, watcher: SweepWatcher, interrupt: asyncio.Event) -> None:
    """Probe the judge before a server starts: GPUs must not be kept busy with what nobody can judge. Raises
    ModelUnavailable: it does not answer."""
    sweep, judge = request.sweep, request.sweep.evaluation.judge
    judged = any(task.judged for task in request.plan.tasks)
    if judge is None or not judged or not (request.settings.inference and request.settings.judge):
        return
    account = msgspec.structs.replace(sweep.evaluation, account=sweep.own_folder / ACCOUNTS / "probe")
    accounts = locate_accounts(account, {})
    context = SessionContext(request.keys, _Told(watcher), interrupt)
    terms = make_terms([judge], {}, PriceBook())
    try:
        async with open_session(accounts, [judge], Board((), {}), context, terms) as session:
            results = await probe_and_write_results(session, Probing(), None)
            reasons = list(explain_silent_models(results, watcher.warn))
    except Draining:
        return
    if reasons:
        raise ModelUnavailable(
            f"the judge does not answer: {escape_line('; '.join(reasons))}\nNo server was started. Correct "
            f"this and start again, or collect the answers now and judge them later: {NO_JUDGE}"
        )


def should_draw_results(request: SweepRequest, board: SweepBoard) -> bool:
    """Check whether there are results to draw and log: a watching sweep ends by Ctrl-C."""
    ends = not board.interrupted or request.watch is not None
    return ends and any(request.sweep.out.glob("step_*/run_*/*/summary.json"))


def describe_changes(table: JobTable, checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """Explain what becomes of earlier answers if settings, or files of checkpoints, have changed since."""
    for checkpoint in table.find_newer_than_first_job(checkpoints):
        yield (
            f"{checkpoint.path} has files that are newer than the answers of step {checkpoint.step}, which "
            f"count as its own; if it is another checkpoint now, give another {spell('out')}, or remove "
            f"{checkpoint.name} there"
        )
    if count := table.count_done_with_other_settings(checkpoints):
        jobs = f"{pluralize(count, 'job')} {'was' if count == 1 else 'were'}"
        yield (
            f"{jobs} done before with other settings. Answers that do not fit these are set aside in their "
            "folders, and taken up again when the earlier settings return; to have both, give another "
            f"{spell('out')}"
        )


# --- What a start will request, and what its judging will cost: nothing is asked or written
#
# Checkpoints of which the same is owed are alike, and one of them is looked into for all.


class TaskEstimate(NamedTuple):
    """A task over all checkpoints: owed jobs, requests to the checkpoints, requests to the judge, and the
    cost of those; None without a price."""

    jobs: int = 0
    answers: int = 0
    judgments: Span = exact(0)
    cost_usd: Span | None = None


class SweepEstimate(NamedTuple):
    """``checkpoints`` are those with owed jobs, ``workers`` the servers that will start."""

    checkpoints: int
    workers: int
    tasks: dict[str, TaskEstimate]
    judge: EstimateLine | None
    prices: tuple[str, ...]


def estimate_sweep(
    request: SweepRequest, table: JobTable, checkpoints: Sequence[Checkpoint], watcher: Watcher
) -> SweepEstimate:
    """Estimate the requests and the cost of what is owed. Raises UsageError: a task cannot be prepared."""
    settings, alike = request.settings, Counter[str]()
    first: dict[str, tuple[Checkpoint, OwedJobs]] = {}
    workers = 0
    for checkpoint in checkpoints:
        owed = table.find_owed(checkpoint)
        if not any(owed):
            continue
        workers += len(owed.answers) if settings.inference else 0
        alike[repr(owed)] += 1
        first.setdefault(repr(owed), (checkpoint, owed))
    tasks: dict[str, TaskEstimate] = {}
    judged: list[EstimateLine] = []
    prices: set[str] = set()
    for key, (checkpoint, owed) in first.items():
        evaluation, times = request.sweep.make_whole_evaluation(checkpoint, owed.conclusions), alike[key]
        prepared = prepare_evaluation(evaluation, watcher)
        estimate = estimate_evaluation(prepared, PriceBook())
        for run in prepared.task_runs:
            requested = estimate.by_phase.get(run.label) if settings.inference else None
            judging = estimate.by_phase.get(run.judging) if settings.judge else None
            tasks[run.task] = _add_jobs(tasks.get(run.task, TaskEstimate()), requested, judging, times)
        name = evaluation.judge.name if evaluation.judge is not None else ""
        if settings.judge and name in estimate.by_model:
            judged.append(estimate.by_model[name] * times)
        prices.update([estimate.prices[name]] if name in estimate.prices else [])
    judge = sum(judged[1:], judged[0]) if judged else None
    return SweepEstimate(alike.total(), workers, tasks, judge, tuple(sorted(prices)))


def _add_jobs(
    before: TaskEstimate, requested: EstimateLine | None, judging: EstimateLine | None, times: int
) -> TaskEstimate:
    """Add one job at each of ``times`` checkpoints. What is uncertain is the same for all that are alike, so
    the ends of the range grow with their number."""
    answers = round(requested.calls.central) if requested is not None else 0
    jobs, asks = before.jobs + times, before.answers + answers * times
    if judging is None:
        return before._replace(jobs=jobs, answers=asks)
    line = judging * times
    cost = sum_known_costs((before.cost_usd, line.cost_usd))
    return TaskEstimate(jobs, asks, before.judgments + line.calls, cost)
