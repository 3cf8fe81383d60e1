"""Outcome of an evaluation: scored tasks, or their progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from coeval.analysis.run_results import ModelCost, model_costs
from coeval.benchmarks.run.eval_estimate import refuse_too_dear
from coeval.benchmarks.run.runner import EndOfAsking, Prepared, error_file, held, usage_file
from coeval.benchmarks.run.task_run import RecordCounts, TaskRun
from coeval.benchmarks.run.task_summary import TaskSummary, summarise, write
from coeval.core.errors import GAPS, INTERRUPTED
from coeval.core.text import numbered
from coeval.engine.session import logged
from coeval.models.batch.job_list import PendingJob


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """Outcome of a task: its summary, the problem that prevented one, or its progress when the evaluation was
    interrupted."""

    label: str
    folder: Path
    summary: TaskSummary | None
    problem: str | None = None
    left_at: RecordCounts | None = None

    @property
    def gap(self) -> str | None:
        """What it lacks, in words."""
        if self.problem is not None:
            return self.problem
        if self.left_at is not None:
            return f"stopped: {_reached(self.left_at)}"
        return self.summary.gap if self.summary is not None else None


@dataclass(slots=True)
class Outcome:
    """Outcome of an evaluation; ``stopped`` and ``interrupted`` as in `EndOfAsking`.

    Without tasks it was interrupted before the first request. ``errors`` is the file of failures, if any;
    ``costs`` the cost of the folder's models so far; ``batches`` the jobs still running.
    """

    tasks: list[TaskOutcome] = field(default_factory=list)
    stopped: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    errors: Path | None = None
    costs: Sequence[ModelCost] = ()
    batches: Sequence[PendingJob] = ()

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is not there, task by task; models that were given up, and batch jobs that go on."""
        lacking = (f"{task.label}: {gap}" for task in self.tasks if (gap := task.gap) is not None)
        jobs = [f"{numbered(len(self.batches), 'batch job')} at work"] if self.batches else []
        return (*lacking, *self.stopped.values(), *jobs)

    @property
    def exit_code(self) -> int:
        """0 complete, 3 with gaps or a failed task, 130 interrupted."""
        if self.interrupted:
            return INTERRUPTED
        gaps = (task.problem or (task.summary is not None and task.summary.missing) for task in self.tasks)
        return GAPS if any(gaps) or self.batches else 0


@contextmanager
def entered(prepared: Prepared, log_level: str = "INFO") -> Iterator[None]:
    """Create the output folder, write its log and hold its tasks; a new folder that stays empty is removed.

    Raises UsageError: another process is at work in it, or the cost is surely beyond the budget.
    """
    output = prepared.evaluation.output
    made = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(parents=True, exist_ok=True)
    try:
        with logged(output / "run.log", log_level), held(prepared):
            refuse_too_dear(prepared)
            yield
    finally:
        with suppress(OSError):
            for path in made:
                path.rmdir()


def conclude(prepared: Prepared, ended: EndOfAsking) -> Outcome:
    """Score complete tasks, write their files, and count what the others miss, while the folders are `held`.

    Raises StoreError: a file cannot be written; what was recorded stays.
    """
    errors = error_file(prepared.evaluation)
    costs = model_costs(usage_file(prepared.evaluation))
    outcome = Outcome(
        [], ended.stopped, ended.interrupted, errors if errors.exists() else None, costs, ended.batches
    )
    for task_run in prepared.task_runs if ended.begun else ():
        whole = not ended.interrupted or task_run.is_all_there()
        outcome.tasks.append(_scored(task_run, prepared) if whole else _left(task_run))
    return outcome


def _left(task_run: TaskRun) -> TaskOutcome:
    return TaskOutcome(task_run.label, task_run.folder.path, None, left_at=task_run.counts())


def _scored(task_run: TaskRun, prepared: Prepared) -> TaskOutcome:
    evaluation = prepared.evaluation
    waits = evaluation.mode == "inference" and task_run.benchmark.is_judged
    scored = None if waits else task_run.score()
    if scored is None and not waits:
        return TaskOutcome(task_run.label, task_run.folder.path, None, task_run.problem)
    summary = summarise(task_run, scored, evaluation, prepared.assets[task_run.task])
    write(task_run, scored, summary)
    return TaskOutcome(task_run.label, task_run.folder.path, summary)


def _reached(counts: RecordCounts) -> str:
    answers = f"{counts.answers:,} of {counts.prompts:,} answers"
    judgments = f" and {counts.judgments:,} of {counts.judgments_needed:,} judgments"
    return f"{answers}{judgments if counts.judgments_needed else ''} are there"
