"""What is to be done next of a sweep: legs that wait for a slot, tasks that wait for the judging process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coeval.benchmarks.run.task_folder import TaskFolder
from coeval.store.output_folder import SHARDS
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.jobs.job_plan import TaskJobs
from coeval.sweeps.sweep import Sweep, SweepPhases

__all__ = ["Attempts", "ConclusionDue", "LegDue", "due_of", "foreign_shards_taken_in"]

LEG_ATTEMPTS, JUDGING_ATTEMPTS = 4, 10
"""Judging waits some eight minutes in all: a judge may be started anew."""
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 120.0


@dataclass(slots=True)
class Attempts:
    """Those since the last one that made progress; when there were ``most``, no further one is made."""

    most: int
    fruitless: int = 0
    reached: int = 0
    not_before: float = 0.0

    def end_short(self, reached: int, weight: int = 1) -> None:
        """One more ended before its end; it had come as far as ``reached``, and counts as ``weight``."""
        if reached > self.reached:
            self.fruitless = 0
        self.reached = max(self.reached, reached)
        self.fruitless += weight
        wait = min(FIRST_WAIT_S * 2 ** (self.fruitless - 1), LONGEST_WAIT_S)
        self.not_before = asyncio.get_running_loop().time() + wait

    @property
    def exhausted(self) -> bool:
        return self.fruitless >= self.most


@dataclass(slots=True, eq=False)
class LegDue:
    """The samples that a shard of a checkpoint is to be asked for."""

    checkpoint: Checkpoint
    number: int
    samples: Mapping[str, tuple[int, ...]]
    attempts: Attempts = field(default_factory=lambda: Attempts(LEG_ATTEMPTS))


@dataclass(slots=True, eq=False)
class ConclusionDue:
    """The samples of a task of a checkpoint that are to be judged and scored."""

    checkpoint: Checkpoint
    task: TaskJobs
    runs: tuple[int, ...]
    attempts: Attempts = field(default_factory=lambda: Attempts(JUDGING_ATTEMPTS))

    @property
    def name(self) -> str:
        return f"{self.checkpoint.name} {self.task.label}"

    def of(self, runs: tuple[int, ...]) -> ConclusionDue:
        """As often tried, of these samples."""
        return ConclusionDue(self.checkpoint, self.task, runs, self.attempts)


def due_of(
    checkpoint: Checkpoint,
    conclusions: Mapping[str, tuple[int, ...]],
    tasks: Mapping[str, TaskJobs],
    phases: SweepPhases,
) -> Iterator[ConclusionDue]:
    """The conclusions that this start of the sweep makes."""
    for name, runs in conclusions.items():
        if phases.judge or not tasks[name].judged:
            yield ConclusionDue(checkpoint, tasks[name], runs)


def foreign_shards_taken_in(sweep: Sweep, checkpoint: Checkpoint, labels: Mapping[str, TaskJobs]) -> None:
    """Take in what was answered in another number of shards, so that nobody asks for it again.

    Raises
    ------
    StoreError
        a file cannot be read or written.
    """
    output = sweep.out / checkpoint.name
    if not output.is_dir():
        return
    ours = f"_of_{sweep.shards}"
    for label, task in labels.items():
        for run in range(task.samples):
            shards = output / f"run_{run}" / label / SHARDS
            if shards.is_dir() and any(not part.name.endswith(ours) for part in shards.iterdir()):
                folder = TaskFolder(shards.parent)
                with folder.locked():
                    folder.take_in_shards()
