"""A sweep under way: workers into slots, their answers to the judging process, every end into the journal.

A slot takes the next checkpoint as soon as it is free, and what is answered is judged while others are
served. A worker or an order that ends short is tried again after a wait that grows, a bounded number of
times without progress; then its jobs are reported as failed, and the others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from coeval.core.errors import GAPS, INTERRUPTED, UNAVAILABLE, CoevalError, UsageError, WindowExceeded
from coeval.core.options import spell
from coeval.core.text import join_names, pluralize
from coeval.sweeps.checkpoints import Checkpoint, CheckpointWatch, why_submitted_not_servable
from coeval.sweeps.engine import SweepEngine, WorkerSlot
from coeval.sweeps.job_table import JobTable, OwedJobs, refuse_or_set_aside_other_answers
from coeval.sweeps.judging_run import Concluded, ConcludeProgress, JudgingProcess, SampleConcluded
from coeval.sweeps.server_command import PRESETS, Merging
from coeval.sweeps.swapping import read_base_model
from coeval.sweeps.sweep import (
    WORKER_ATTEMPTS,
    WORKERS,
    ConclusionDue,
    SweepTask,
    WorkerDue,
    merge_other_shards,
)
from coeval.sweeps.sweep_choice import SweepRequest
from coeval.sweeps.worker_files import Worker, WorkerProgress, WorkerResult, read_progress, read_result

# --- Sweep board


class SweepProblem(NamedTuple):
    """What ended short, and why. What was ``given_up`` is left for the next start."""

    what: str
    why: str
    given_up: bool


class WorkerShown(NamedTuple):
    """A slot and its worker, None if free; ``progress`` is what the worker reports."""

    slot: WorkerSlot
    worker: str | None
    progress: WorkerProgress | None


class SweepBoard:
    """Counts of a sweep, and what runs now. ``workers`` and ``jobs`` are those owed at the start (and since),
    of so many ``checkpoints``; ``jobs_before`` were done then."""

    def __init__(
        self, slots: Sequence[WorkerSlot], judging_progress: Mapping[str, ConcludeProgress] = {}
    ) -> None:
        self.began = time.monotonic()
        self.checkpoints = self.jobs_before = 0
        self.workers = self.workers_ended = self.left = 0
        self.jobs = self.concluded = self.judged = self.failed = 0
        self.unanswered = self.unscored = self.unjudged = self.incomplete = 0
        self.interrupted = self.unavailable = False
        self.problems: list[SweepProblem] = []
        self._slots = tuple(slots)
        self.running: dict[int, Worker] = {}
        self.judging: list[str] = []
        self._judging_progress = judging_progress
        self.costs: dict[str, float] = {}

    def expect_work(self, jobs: int, workers: int, jobs_before: int = 0) -> None:
        """Count a checkpoint's owed work, and what was done before."""
        self.checkpoints += bool(jobs or workers)
        self.jobs_before += jobs_before
        self.workers += workers
        self.jobs += jobs

    @property
    def waiting(self) -> int:
        return max(0, self.workers - self.workers_ended - self.left - len(self.running))

    def list_slots(self) -> Iterator[WorkerShown]:
        running = dict(self.running)
        for slot in self._slots:
            worker = running.get(slot.number)
            name, progress = (None, None) if worker is None else (worker.name, read_progress(worker.folder))
            yield WorkerShown(slot, name, progress)

    def list_judging(self) -> Iterator[tuple[str, ConcludeProgress | None]]:
        for name in list(self.judging):
            yield name, self._judging_progress.get(name)

    def count_concluded(self, sample: SampleConcluded, *, judged: bool) -> None:
        self.concluded += 1
        self.judged += judged
        self.unanswered += sample.unanswered
        self.unscored += sample.unscored
        self.incomplete += bool(sample.unanswered or sample.unscored)

    @property
    def cost_usd(self) -> float | None:
        """Sum what the judging of these tasks has cost; None without any price."""
        return sum(self.costs.values()) if self.costs else None

    @property
    def exit_code(self) -> int:
        """Return 0 if complete, 2 if no server came up, 3 with gaps or failed jobs, 130 if interrupted."""
        if self.interrupted:
            return INTERRUPTED
        if self.unavailable and not self.concluded:
            return UNAVAILABLE
        return GAPS if self.failed or self.left or self.unanswered or self.unscored else 0

    @property
    def gaps(self) -> tuple[str, ...]:
        """List what is missing, in words; each reason for giving up once."""
        alike: dict[str, list[str]] = {}
        for problem in self.problems:
            if problem.given_up:
                alike.setdefault(problem.why, []).append(problem.what)
        gaps = [f"{join_names(names, 4)}: {why}" for why, names in alike.items()]
        if self.unanswered or self.unscored:
            answers, judgments = pluralize(self.unanswered, "answer"), pluralize(self.unscored, "judgment")
            gaps.append(f"missing: {answers}, {judgments}; the same command again asks for them")
        if self.failed:
            gaps.append(f"{pluralize(self.failed, 'job')} failed; the same command retries them")
        return tuple(gaps)

    def describe_counts(self) -> str:
        done = f"{self.concluded:,} of {pluralize(self.jobs, 'job')} done"
        failed = f", {self.failed:,} failed" if self.failed else ""
        return done + failed + (f", {self.waiting:,} waiting for a slot" if self.waiting else "")

    def add_problem(self, what: str, why: str, *, given_up: bool) -> None:
        self.problems.append(SweepProblem(what, why, given_up))


_DueT = TypeVar("_DueT", WorkerDue, ConclusionDue)

# Workers given up before any other was answered: then the rest is left.
HOPELESS = 3


class Scheduler:
    """Brings the owed jobs of a sweep to their ends. Its ``board`` shows what it does."""

    def __init__(
        self, request: SweepRequest, table: JobTable, engine: SweepEngine, judge_worker: JudgingProcess
    ) -> None:
        self.board = SweepBoard(engine.slots, judge_worker.progress)
        self._sweep = sweep = request.sweep
        self._table = table
        self._engine = engine
        self._judge_worker = judge_worker
        self._settings = settings = request.settings
        self._tasks = {task.task: task for task in table.plan.tasks}
        self._labels = {task.label: task for task in table.plan.tasks}
        self._workers: deque[WorkerDue] = deque()
        self._open_workers: dict[int, int] = {}
        self._conclusions: deque[ConclusionDue] = deque()
        self._running = 0
        self._given_up = 0
        self._answered = 0
        self._watching = False
        self._stopping = False
        self._judged_now: list[int] = []
        passed = sweep.server.passed if sweep.server is not None else ()
        workers = sweep.own_folder / WORKERS
        merge = settings.merge_command
        self._merging = Merging(merge, workers, passed) if merge else None
        self._news = asyncio.Event()

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Queue what is owed of a checkpoint. Raises StoreError: answers of other shards cannot be merged."""
        owed = self._table.find_owed(checkpoint)
        if owed.answers and self._settings.inference:
            merge_other_shards(self._sweep, checkpoint, self._labels)
        workers = list(owed.answers.items()) if self._settings.inference else []
        for number, samples in workers:
            self._workers.append(WorkerDue(checkpoint, number, samples))
        self._open_workers[checkpoint.step] = len(workers)
        due = self._list_conclusions_to_make(checkpoint, owed)
        before = sum(task.samples for task in self._table.plan.tasks)
        before -= sum(map(len, owed.conclusions.values()))
        self.board.expect_work(sum(len(conclusion.runs) for conclusion in due), len(workers), before)
        if not workers:
            self._queue_conclusions(checkpoint)
        self._notify()

    async def run(self, interrupt: asyncio.Event, source: CheckpointWatch | None = None) -> None:
        """Do all owed work, and what ``source`` adds. Setting ``interrupt`` ends it soon, cancelling at once;
        what is finished stays. Raises WindowExceeded: the settings fit no server; StoreError: the journal
        cannot be written, or a worker's folder."""
        self._watching = source is not None
        async with aclosing(self._judge_worker), asyncio.TaskGroup() as group:
            slots = [group.create_task(self._run_slot(slot)) for slot in self._engine.slots]
            judges = [group.create_task(self._conclude_all_due()) for _ in range(self._settings.judge_jobs)]
            beside = [group.create_task(self._stop_on_interrupt(interrupt, slots))]
            follows = [] if source is None else [group.create_task(self._add_new_checkpoints(source))]
            beside += [*follows, group.create_task(self._leave_when_engine_lost([*slots, *follows]))]
            try:
                await asyncio.wait([*slots, *judges])
            finally:
                for task in beside:
                    task.cancel()

    async def _stop_on_interrupt(self, interrupt: asyncio.Event, slots: Sequence[asyncio.Task[None]]) -> None:
        await interrupt.wait()
        self._stopping = self.board.interrupted = True
        self._notify()
        for slot in slots:
            slot.cancel()
        await self._judge_worker.aclose()

    async def _leave_when_engine_lost(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Leave the workers' work once the engine is lost, and have the rest judged."""
        why = await self._engine.wait_until_lost()
        if not self._no_worker_to_come():
            self._leave_waiting_workers(f"{why}; the same command continues", self._running)
        self._watching = False
        for task in tasks:
            task.cancel()
        self._notify()

    async def _add_new_checkpoints(self, source: CheckpointWatch) -> None:
        while (checkpoints := await source.wait_for_next()) is not None:
            for checkpoint in checkpoints:
                while self._is_busy(checkpoint.step) and not self._stopping:  # its predecessor, overwritten
                    await self._wait_for_news(None)
                self._add_checkpoint_or_report_conflict(checkpoint)
        self._watching = False
        self._notify()

    def _is_busy(self, step: int) -> bool:
        due = (conclusion.checkpoint.step for conclusion in self._conclusions)
        return bool(self._open_workers.get(step)) or step in self._judged_now or step in due

    def _add_checkpoint_or_report_conflict(self, checkpoint: Checkpoint) -> None:
        try:
            refuse_or_set_aside_other_answers(self._sweep, self._table.plan, checkpoint)
        except UsageError as error:
            self.board.add_problem(checkpoint.name, str(error), given_up=True)
            return
        self._table.add_checkpoints_and_write_plan([checkpoint])
        self.add_checkpoint(checkpoint)

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _wait_for_news(self, within_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()

    # Workers

    async def _run_slot(self, slot: WorkerSlot) -> None:
        """Run workers in a slot until there are none; then its GPUs are free, while others are judged."""
        while (due := await self._take_next_due(self._workers, self._no_worker_to_come)) is not None:
            self._running += 1
            try:
                await self._run_worker(due, slot)
            finally:
                self._running -= 1
                self._notify()
        await self._engine.free_slot(slot)

    async def _take_next_due(
        self, waiting: deque[_DueT], nothing_to_come: Callable[[], bool]
    ) -> _DueT | None:
        """Wait for the first of these that may begin, and take it out; None: there will be none."""
        while not self._stopping:
            now = asyncio.get_running_loop().time()
            for due in waiting:
                if due.attempts.not_before <= now:
                    waiting.remove(due)
                    return due
            if nothing_to_come():
                return None
            waits = [due.attempts.not_before - now for due in waiting]
            await self._wait_for_news(min(waits, default=None))
        return None

    def _no_worker_to_come(self) -> bool:
        return not (self._workers or self._running or self._watching)

    async def _run_worker(self, due: WorkerDue, slot: WorkerSlot) -> None:
        """Run a due worker once, record what it answered, and end, retry or give it up."""
        try:
            merged = await self._check_servable_or_merge(due.checkpoint)
        except CoevalError as error:
            self._give_up(due, due.checkpoint.name, str(error))
            return
        worker = self._sweep.make_worker(due.checkpoint, due.number, due.samples, slot, merged)
        self.board.running[slot.number] = worker
        result: WorkerResult | None = None
        try:
            result = await self._engine.run(worker, slot)
        except asyncio.CancelledError:
            result = read_result(worker)
            raise
        finally:
            del self.board.running[slot.number]
            self._record_whole_tasks(due, result)
        if result.end == "done":
            self._answered += 1
            self._count_end_and_queue_conclusions(due)
        elif result.end == "refused" and not self._answered:
            raise WindowExceeded(result.problem)
        elif not self._stopping:
            self._retry_or_give_up(due, worker, result)

    async def _check_servable_or_merge(self, checkpoint: Checkpoint) -> Path | None:
        """Return the folder of a checkpoint that the sweep merges, else None. Raises CoevalError: it is not
        as it was submitted, cannot be merged, or no server of ours loads it."""
        sharded = self._merging is not None
        if checkpoint.content and (
            why := await asyncio.to_thread(why_submitted_not_servable, checkpoint, to_merge=sharded)
        ):
            raise UsageError(why)
        if self._merging is not None:
            return await self._merging.merge(checkpoint)
        server = self._sweep.server
        knows_none = server is not None and not server.serves_adapters and server.template in PRESETS.values()
        if knows_none and read_base_model(checkpoint.path) is not None:
            raise UsageError(
                f"{checkpoint.path} is a LoRA adapter: {spell('swap')} lora serves it on its base model, "
                f"and {spell('merge_command')} merges it first"
            )
        return None

    def _record_whole_tasks(self, due: WorkerDue, result: WorkerResult | None) -> None:
        """Record the tasks that a worker has answered whole; a worker that is done has requested all."""
        if result is None:
            return
        for answered in result.tasks:
            unanswered = answered.prompts - answered.answers
            if result.end == "done" or not unanswered:
                task = self._labels[answered.task]
                self._table.note_answered(due.checkpoint, task, answered.run, due.number, unanswered)

    def _retry_or_give_up(self, due: WorkerDue, worker: Worker, result: WorkerResult) -> None:
        """Queue a worker again, or give it up, and the rest if none of the first was answered."""
        problem = result.problem or "it was interrupted from outside"
        progress = read_progress(worker.folder)
        weight = 2 if result.end == "server_failed" else 1  # the worker has started it several times
        weight = weight if result.again else due.attempts.most
        due.attempts.record_early_end(progress.done if progress is not None else 0, weight)
        if due.attempts.exhausted:
            self.board.unavailable = not self._answered and result.end == "server_failed"
            self._given_up += 1
            self._give_up(due, worker.name, problem)
            if self._given_up >= HOPELESS and not self._answered and self._workers:
                self._leave_waiting_workers("all of the first failed; fix what they report and start again")
            return
        self.board.add_problem(worker.name, problem, given_up=False)
        self._workers.appendleft(due)

    def _give_up(self, due: WorkerDue, name: str, problem: str) -> None:
        for task, runs in due.samples.items():
            for run in runs:
                if not self._table.has_asked_all(due.checkpoint, self._tasks[task], run):
                    self._record_failure(due.checkpoint, self._tasks[task], run, problem)
        self.board.add_problem(name, problem, given_up=True)
        self._count_end_and_queue_conclusions(due)

    def _leave_waiting_workers(self, why: str, also_running: int = 0) -> None:
        count = len(self._workers) + also_running
        work = f"{count:,} more" if count else "later checkpoints"
        self.board.add_problem(work, f"left, since {why}", given_up=True)
        self.board.left += count or 1
        self._workers.clear()

    def _count_end_and_queue_conclusions(self, due: WorkerDue) -> None:
        self.board.workers_ended += 1
        self._open_workers[due.checkpoint.step] -= 1
        if not self._open_workers[due.checkpoint.step]:
            if self._merging is not None:
                self._merging.remove_merged(due.checkpoint)
            self._queue_conclusions(due.checkpoint)

    def _record_failure(self, checkpoint: Checkpoint, task: SweepTask, run: int, problem: str) -> None:
        self._table.note_failed(checkpoint, task, run, problem)
        self.board.failed += 1

    # Judging

    def _queue_conclusions(self, checkpoint: Checkpoint) -> None:
        """Queue the conclusion of every task of a checkpoint that can be judged or scored."""
        owed = self._table.find_owed(checkpoint)
        if not self._settings.judge:
            judged = [self._tasks[name] for name in owed.conclusions if self._tasks[name].judged]
            self.board.unjudged += sum(
                self._table.has_asked_all(checkpoint, task, run)
                for task in judged
                for run in range(task.samples)
            )
        is_there = self._table.has_asked_all if self._settings.inference else self._table.has_answers
        for due in self._list_conclusions_to_make(checkpoint, owed):
            runs = tuple(run for run in due.runs if is_there(checkpoint, due.task, run))
            if runs:
                self._conclusions.append(due.of(runs))
        self._notify()

    def _list_conclusions_to_make(self, checkpoint: Checkpoint, owed: OwedJobs) -> list[ConclusionDue]:
        tasks = ((self._tasks[name], runs) for name, runs in owed.conclusions.items())
        return [
            ConclusionDue(checkpoint, task, runs)
            for task, runs in tasks
            if self._settings.judge or not task.judged
        ]

    async def _conclude_all_due(self) -> None:
        while (due := await self._take_next_due(self._conclusions, self._no_conclusion_to_come)) is not None:
            self._judged_now.append(due.checkpoint.step)
            self.board.judging.append(due.name)
            try:
                evaluation = self._sweep.make_concluding_evaluation(due.checkpoint, due.task.task, due.runs)
                concluded = await self._judge_worker.conclude(due.name, evaluation)
                self._record_concluded_and_retry_rest(due, concluded)
            finally:
                self._judged_now.remove(due.checkpoint.step)
                self.board.judging.remove(due.name)
                self._notify()

    def _no_conclusion_to_come(self) -> bool:
        return self._no_worker_to_come() and not (self._conclusions or self._judged_now)

    def _record_concluded_and_retry_rest(self, due: ConclusionDue, concluded: Concluded) -> None:
        """Record the samples that an order concluded, and retry or give up the others."""
        if concluded.cost_usd is not None:
            self.board.costs[due.name] = concluded.cost_usd
        ended = set[int]()
        for sample in concluded.samples:
            ended.add(sample.run)
            if sample.problem:
                self._record_failure(due.checkpoint, due.task, sample.run, sample.problem)
                self.board.add_problem(due.name, sample.problem, given_up=True)
                continue
            self._table.note_concluded(
                due.checkpoint, due.task, sample.run, sample.unanswered, sample.unscored
            )
            self.board.count_concluded(sample, judged=due.task.judged)
        left = tuple(run for run in due.runs if run not in ended)
        if not left or concluded.interrupted or self._stopping:
            return
        if not self.board.judged:  # a judge that has never answered is waited for no longer than a server
            due.attempts.most = WORKER_ATTEMPTS
        due.attempts.record_early_end(len(ended))
        given_up = due.attempts.exhausted or concluded.refused
        self.board.add_problem(due.name, concluded.problem, given_up=given_up)
        if given_up:
            for run in left:
                self._record_failure(due.checkpoint, due.task, run, concluded.problem)
        else:
            self._conclusions.append(due.of(left))


def find_own_errors(error: BaseException) -> Iterator[CoevalError]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from find_own_errors(member)
    elif isinstance(error, CoevalError):
        yield error
