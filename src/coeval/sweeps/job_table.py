"""Which jobs of a sweep are done and which are owed: the plan less the journal ``jobs.jsonl``; whose answers
lie in a step's folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from coeval.benchmarks.run.task_folder import TaskFolder, read_first_answer
from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import make_decoder
from coeval.store.jsonl import Appender, cut_torn_tail, read_torn_tail, read_whole_lines, store_error
from coeval.store.output_folder import JUDGMENTS, RESPONSES, SCORES, SHARDS, SUMMARY, list_task_folders
from coeval.store.rundir import utc_now
from coeval.sweeps.checkpoints import Checkpoint, last_write_epoch_s
from coeval.sweeps.sweep import JobPlan, Sweep, SweepTask, shard_name, sweep_folder

# --- Job journal: ``OUT/sweep/jobs.jsonl``

JobState: TypeAlias = Literal["answered", "concluded", "failed"]
Stamps: TypeAlias = dict[str, tuple[int, int]]
"""File, below the output folder → its size, and when it was written, in nanoseconds."""


class Job(NamedTuple):
    """One task (by its label) and sample of the checkpoint at a step."""

    step: int
    label: str
    run: int

    @property
    def folder(self) -> str:
        return f"step_{self.step}/run_{self.run}/{self.label}"


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a job, or of one shard of it. ``settings`` is the hash of all that shapes the answers,
    ``judging`` that of the judge if it was concluded. ``unanswered`` prompts have no good answer,
    ``unscored`` no score. ``problem`` says why it failed."""

    step: int
    label: str
    run: int
    state: JobState
    settings: str
    shard: str = ""
    judging: str = ""
    unanswered: int = 0
    unscored: int = 0
    files: Stamps = {}
    problem: str = ""
    at: str = ""


def _stamp_existing_files(out: Path, files: Iterable[str]) -> Stamps:
    """Stamp those of these files that exist with size and time."""
    stamps = {}
    for file in files:
        with suppress(OSError):
            stat = os.stat(f"{out}/{file}")  # noqa: PTH116  a tenth of a Path's time, and there may be 100,000
            stamps[file] = (stat.st_size, stat.st_mtime_ns)
    return stamps


def _has_files_of_line(out: Path, line: JobLine) -> bool:
    return bool(line.files) and _stamp_existing_files(out, line.files) == line.files


# --- Finished and missing jobs
#
# Nothing but speed hangs on the journal. A job that it knows nothing of is owed, and whoever does it reads
# the records first: what is there is never asked again.

# Lines of the journal tell their time without fractions.
_WHOLE_SECONDS = 1.0


class OwedJobs(NamedTuple):
    """A checkpoint's owed work: ``answers`` by shard, then by task as requested; ``conclusions`` by task.
    Values are the samples' numbers."""

    answers: dict[int, dict[str, tuple[int, ...]]]
    conclusions: dict[str, tuple[int, ...]]


class TaskStatus(NamedTuple):
    """How many samples of a task and checkpoint are answered and concluded, and how many last failed;
    ``missing`` counts answers and scores that whole samples lack; ``problem`` is that of the last failure."""

    samples: int
    answered: int
    concluded: int
    failed: int
    missing: int
    problem: str


class JobTable:
    """The jobs of a plan, compared with ``OUT/sweep/jobs.jsonl`` and the files below ``OUT``. Only the holder
    of the sweep's lock may record what was done. Constructing it reads the journal; a damaged line is
    skipped, and its job owed again. Raises StoreError: the journal cannot be read."""

    def __init__(self, out: Path, plan: JobPlan) -> None:
        self._out = out
        self.plan = plan
        self._path = sweep_folder(out) / "jobs.jsonl"
        self._appender: Appender | None = None
        self._answered: dict[Job, dict[str, JobLine]] = {}
        self._concluded: dict[Job, JobLine] = {}
        self._failed: dict[Job, JobLine] = {}
        read = make_decoder(JobLine)
        for _, line in read_whole_lines(self._path):
            with suppress(Undecodable):
                self._apply_line(read(line))

    def add_checkpoints_and_write_plan(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Sweep these checkpoints too, in place of others of the same steps, and record it. Raises
        StoreError: it cannot be written."""
        by_step = {checkpoint.step: checkpoint for checkpoint in (*self.plan.checkpoints, *checkpoints)}
        self.plan = replace(self.plan, checkpoints=tuple(by_step[step] for step in sorted(by_step)))
        self.plan.write(sweep_folder(self._out))

    def _apply_line(self, line: JobLine) -> None:
        job = Job(line.step, line.label, line.run)
        if line.state == "failed":
            self._failed[job] = line
            return
        self._failed.pop(job, None)
        if line.state == "concluded":
            self._concluded[job] = line
            self._answered.pop(job, None)  # its shards were taken in
        else:
            self._answered.setdefault(job, {})[line.shard] = line

    def find_owed(self, checkpoint: Checkpoint) -> OwedJobs:
        answers: dict[int, dict[str, tuple[int, ...]]] = {}
        conclusions: dict[str, tuple[int, ...]] = {}
        for task, job, settings in self._list_jobs(checkpoint):
            if self._is_concluded_without_gaps(job, task, settings):
                continue
            conclusions[task.task] = (*conclusions.get(task.task, ()), job.run)
            for shard in self._find_owed_shards(job, settings):
                of_shard = answers.setdefault(shard, {})
                of_shard[task.task] = (*of_shard.get(task.task, ()), job.run)
        return OwedJobs(answers, conclusions)

    def _list_jobs(self, checkpoint: Checkpoint) -> Iterator[tuple[SweepTask, Job, str]]:
        """List all jobs of a checkpoint, each with its task and the hash of its settings."""
        for task in self.plan.tasks:
            settings = self.plan.hash_settings(checkpoint, task)
            for run in range(task.samples):
                yield task, Job(checkpoint.step, task.label, run), settings

    def count_done_with_other_settings(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Count jobs that were done with other settings than the plan's, and so are owed."""
        n_jobs = 0
        for checkpoint in checkpoints:
            for _, job, settings in self._list_jobs(checkpoint):
                lines = [*self._answered.get(job, {}).values()]
                lines += [line] if (line := self._concluded.get(job)) is not None else []
                n_jobs += bool(lines) and all(line.settings != settings for line in lines)
        return n_jobs

    def find_newer_than_first_job(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Find checkpoints with files newer than their first job: they may not be the ones that answered."""
        first: dict[int, str] = {}
        answered = (line for lines in self._answered.values() for line in lines.values())
        for line in (*self._concluded.values(), *answered):
            first[line.step] = min(line.at, first.get(line.step, line.at))
        return [
            checkpoint
            for checkpoint in checkpoints
            if (at := first.get(checkpoint.step)) is not None
            and last_write_epoch_s(Path(checkpoint.path))
            > datetime.fromisoformat(at).timestamp() + _WHOLE_SECONDS
        ]

    def _is_concluded_without_gaps(self, job: Job, task: SweepTask, settings: str) -> bool:
        line = self._concluded.get(job)
        return (
            line is not None
            and (line.settings, line.judging) == (settings, task.judged_with)
            and not (line.unanswered or line.unscored)
            and _has_files_of_line(self._out, line)
        )

    def _find_owed_shards(self, job: Job, settings: str) -> Collection[int]:
        """Find the shards that lack answers."""
        concluded = self._concluded.get(job)
        if concluded is not None and concluded.settings == settings and not concluded.unanswered:
            answers = f"{job.folder}/{RESPONSES}"
            held = _stamp_existing_files(self._out, [answers])
            if held and held[answers] == concluded.files.get(answers):
                return ()
        lines = self._answered.get(job, {})
        return [
            number
            for number in range(self.plan.shards)
            if (line := lines.get(shard_name(number, self.plan.shards))) is None
            or line.settings != settings
            or line.unanswered
            or not _has_files_of_line(self._out, line)
        ]

    def summarise_task(self, checkpoint: Checkpoint, task: SweepTask) -> TaskStatus:
        """Count how far a task of a checkpoint is."""
        settings = self.plan.hash_settings(checkpoint, task)
        answered = concluded = failed = missing = 0
        problem = ""
        for run in range(task.samples):
            job = Job(checkpoint.step, task.label, run)
            line = self._concluded.get(job)
            whole = self._is_concluded_without_gaps(job, task, settings)
            concluded += whole
            answered += whole or not self._find_owed_shards(job, settings)
            if line is not None and not whole and line.settings == settings:
                missing += line.unanswered + line.unscored
            if (failure := self._failed.get(job)) is not None and not whole:
                failed += 1
                problem = failure.problem
        return TaskStatus(task.samples, answered, concluded, failed, missing, problem)

    def is_whole_or_ended_since(self, checkpoint: Checkpoint, epoch_s: float) -> bool:
        """Check whether every job of a checkpoint is whole, or has failed or ended with gaps ``since``
        (seconds since 1970)."""
        for task, job, settings in self._list_jobs(checkpoint):
            answers_only = task.judged and not self.plan.judges
            lines = [self._failed.get(job), self._concluded.get(job)]
            if answers_only and self.has_asked_all(checkpoint, task, job.run):
                lines += self._answered.get(job, {}).values()
            times = [
                datetime.fromisoformat(line.at).timestamp()
                for line in lines
                if line is not None and line.settings == settings  # of this content, not of a former one
            ]
            whole = self._is_concluded_without_gaps(job, task, settings)
            whole = whole or (answers_only and not self._find_owed_shards(job, settings))
            if not whole and max(times, default=-1.0) < epoch_s:
                return False
        return True

    def has_asked_all(self, checkpoint: Checkpoint, task: SweepTask, run: int) -> bool:
        """Check whether all prompts of a job were requested, answered or not."""
        settings = self.plan.hash_settings(checkpoint, task)
        job = Job(checkpoint.step, task.label, run)
        if not self._find_owed_shards(job, settings):
            return True
        lines = self._answered.get(job, {})
        names = (shard_name(number, self.plan.shards) for number in range(self.plan.shards))
        return all((line := lines.get(name)) is not None and line.settings == settings for name in names)

    def has_answers(self, checkpoint: Checkpoint, task: SweepTask, run: int) -> bool:
        """Check whether a job has any answers, whoever requested them."""
        return TaskFolder(self._out / Job(checkpoint.step, task.label, run).folder).has_answers()

    def note_answered(
        self, checkpoint: Checkpoint, task: SweepTask, run: int, shard: int, unanswered: int
    ) -> None:
        """Record that all prompts of a shard were requested; ``unanswered`` of them have no good answer."""
        name = shard_name(shard, self.plan.shards)
        folder = Job(checkpoint.step, task.label, run).folder
        files = _stamp_existing_files(self._out, [f"{folder}/{SHARDS}/{name}/{RESPONSES}"]) if name else {}
        # One without a name, or an earlier one, is in the whole.
        files = files or _stamp_existing_files(self._out, [f"{folder}/{RESPONSES}"])
        self._append_line(checkpoint, task, run, "answered", shard=name, unanswered=unanswered, files=files)

    def note_concluded(
        self, checkpoint: Checkpoint, task: SweepTask, run: int, unanswered: int, unscored: int
    ) -> None:
        """Record that a job was scored; so many prompts have no answer, or no score."""
        folder = Job(checkpoint.step, task.label, run).folder
        judged = (path.name for path in (self._out / folder).glob(JUDGMENTS))
        names = (RESPONSES, SUMMARY, SCORES, *sorted(judged))
        files = _stamp_existing_files(self._out, [f"{folder}/{name}" for name in names])
        more = {"judging": task.judged_with, "unanswered": unanswered, "unscored": unscored, "files": files}
        self._append_line(checkpoint, task, run, "concluded", **more)

    def note_failed(self, checkpoint: Checkpoint, task: SweepTask, run: int, problem: str) -> None:
        self._append_line(checkpoint, task, run, "failed", problem=problem)

    def _append_line(
        self, checkpoint: Checkpoint, task: SweepTask, run: int, state: JobState, **more: Any
    ) -> None:
        """Append a line to the journal; raise StoreError if the disk refuses."""
        settings = self.plan.hash_settings(checkpoint, task)
        job = Job(checkpoint.step, task.label, run)._asdict()
        line = JobLine(**job, state=state, settings=settings, at=utc_now(), **more)
        if self._appender is None:
            if read_torn_tail(self._path):
                cut_torn_tail(self._path)
            self._appender = Appender(self._path)
        self._appender.append(line)
        self._apply_line(line)

    def close(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None


def refuse_or_set_aside_other_answers(sweep: Sweep, plan: JobPlan, checkpoint: Checkpoint) -> None:
    """Raise UsageError if a step's folder has answers of another checkpoint, or the step was submitted with
    another path: nothing is relabelled. Answers of the same path with other content, from before it was
    overwritten, are set aside. Raises StoreError: they cannot be."""
    output = sweep.out / checkpoint.name
    for other in plan.checkpoints if checkpoint.content else ():
        if other.step == checkpoint.step and other.path != checkpoint.path:
            raise UsageError(
                f"step {other.step} is {other.path} already, and {checkpoint.path} was submitted"
            )
    folders = list_task_folders(output)[:1] if output.is_dir() else []
    first = read_first_answer(folders[0] / RESPONSES) if folders else None
    if first is None or first.model in ("", checkpoint.identity):
        return
    before, sign, content = first.model.rpartition("#")
    if checkpoint.content and checkpoint.path_and_step in (first.model, before if sign else ""):
        aside = sweep.own_folder / "overwritten" / f"{checkpoint.name}-{content if sign else 'unknown'}"
        aside = next(path for n in count() if not (path := aside.with_name(f"{aside.name}.{n}")).exists())
        try:
            aside.parent.mkdir(exist_ok=True)
            output.rename(aside)
        except OSError as error:
            raise store_error("move", output, error) from error
        return
    raise UsageError(
        f"{folders[0]} holds answers of {first.model}, not of {checkpoint.identity}; sweep into "
        "another folder (--out), or give the checkpoint that path"
    )
