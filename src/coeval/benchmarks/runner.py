"""One evaluation from its tasks to their summaries: ask, judge, score, write.

All tasks and samples are one flow, so the tested model is kept busy from the first prompt to the
last and judging overlaps with answering. Every record is journalled as it is made, and what is
asked for is always what is not there yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from coeval.benchmarks.asked import AssetUsed, Evaluation, find_assets, jobs_of, used_assets
from coeval.benchmarks.assets import Progress
from coeval.benchmarks.errand import Errand
from coeval.benchmarks.job import Job
from coeval.benchmarks.owner import refuse_another_model
from coeval.benchmarks.summary import Summary, summarise, write
from coeval.core.errors import Draining, UsageError
from coeval.engine.progress import Watcher
from coeval.engine.waiting import telling_waits, unless_interrupted
from coeval.models.base import ModelSpec
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.store.journal import Journal
from coeval.store.rundir import now

__all__ = ["Outcome", "Prepared", "TaskOutcome", "evaluate", "prepare"]

log = logging.getLogger("coeval")


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of a task: its summary, or the problem that left it without one."""

    label: str
    folder: Path
    summary: Summary | None
    problem: str | None = None


@dataclass(slots=True)
class Outcome:
    """An evaluation's end. ``stopped`` says which models were given up, and why."""

    tasks: list[TaskOutcome] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 all there, 3 with gaps or a task that came to nothing, 130 interrupted."""
        if self.interrupted:
            return 130
        gaps = (task.problem or (task.summary is not None and task.summary.missing) for task in self.tasks)
        return 3 if any(gaps) else 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """An evaluation of which every asset is there and every prompt is read."""

    evaluation: Evaluation
    jobs: list[Job]
    assets: Mapping[str, Mapping[str, AssetUsed]]


def prepare(evaluation: Evaluation, watcher: Watcher, progress: Progress | None = None) -> Prepared:
    """Everything that can be wrong before a model is asked.

    Raises
    ------
    UsageError
        the output folder belongs to another model, or there is an unknown task, an asset that cannot
        be had, wrong data, or no stored answers to judge.
    """
    refuse_another_model(evaluation)
    paths = find_assets(evaluation.tasks, progress, watcher.note)
    jobs: list[Job] = []
    assets: dict[str, Mapping[str, AssetUsed]] = {}
    for request, found in zip(evaluation.tasks, paths, strict=True):
        mine = list(jobs_of(evaluation, request, found))
        assets[mine[0].task] = used_assets(found)
        jobs += mine
    if evaluation.mode == "judge":
        for job in jobs:
            if not job.folder.responses.exists():
                raise UsageError(
                    f"{job.folder.path} holds no responses.jsonl to judge; "
                    "ask the model first, without --judge-only"
                )
    return Prepared(evaluation, jobs, assets)


async def evaluate(
    prepared: Prepared, keys: Keys, watcher: Watcher, interrupt: asyncio.Event | None = None
) -> Outcome:
    """Ask for everything that is owed, score every task and write its files.

    Failures and gaps do not raise; they stand in the outcome and in the summaries.

    Raises
    ------
    UsageError
        a model has no address or no key, or a task's folder is in use.
    ModelUnavailable
        a model that is to be asked does not answer.
    StoreError
        a folder cannot be read or written; what was recorded stays.
    """
    outcome = Outcome()
    evaluation, jobs = prepared.evaluation, prepared.jobs
    interrupt = interrupt or asyncio.Event()
    async with (
        Models(_specs(evaluation, jobs), keys) as models,
        telling_waits(models.http, watcher.warn),
    ):
        with ExitStack() as stack:
            for job in jobs:
                stack.enter_context(job.folder.locked())
            async with Journal(evaluation.output / "run_errors.jsonl", _torn_line) as journal:
                errand = Errand(evaluation, jobs, models, journal)
                errand.read_recorded()
                try:
                    await unless_interrupted(errand.meet(watcher.note), interrupt, "nothing was asked")
                except Draining:
                    outcome.interrupted = True
                    return outcome
                errand.take_up_folders(watcher.note)
                watcher.begin(errand.board)
                await errand.carry_out(interrupt)
            outcome.stopped, outcome.interrupted = errand.stopped, errand.interrupted
            if not outcome.interrupted:
                for job in jobs:
                    outcome.tasks.append(_close(job, evaluation, prepared.assets[job.task]))
    return outcome


def _close(job: Job, evaluation: Evaluation, assets: Mapping[str, AssetUsed]) -> TaskOutcome:
    waits = evaluation.mode == "inference" and job.benchmark.needs_judge
    scored = None if waits else job.score()
    if scored is None and not waits:
        return TaskOutcome(job.label, job.folder.path, None, job.problem)
    summary = summarise(job, scored, evaluation, assets)
    write(job, scored, summary)
    return TaskOutcome(job.label, job.folder.path, summary)


def _specs(evaluation: Evaluation, jobs: Iterable[Job]) -> list[ModelSpec]:
    """The models that some job may ask, each once."""
    labels = {party.label for job in jobs for party in (job.tested, job.judge) if party is not None}
    known = {spec.name: spec for spec in (evaluation.tested, evaluation.judge) if spec is not None}
    return [spec for name, spec in known.items() if name in labels]


class TornLine(msgspec.Struct, frozen=True):
    """What a crash left of a file's last line; its record is owed again."""

    at: str
    file: str
    torn: str


def _torn_line(path: Path, torn: bytes) -> TornLine:
    return TornLine(now(), str(path), torn.decode(errors="backslashreplace"))
