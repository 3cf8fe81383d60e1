"""What a sweep asks for: checkpoints × tasks × samples, how they are served, and who judges; its jobs as
``sweep.json`` lists them, and what is due next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from coeval import __version__
from coeval.benchmarks.benchmark import TaskSettings
from coeval.benchmarks.run.eval_spec import EvalSpec, Shard, TaskRequest
from coeval.benchmarks.run.task_folder import TaskFolder
from coeval.benchmarks.task_registry import PREFIX, benchmark_class
from coeval.core.errors import StoreError
from coeval.core.model import ModelSpec, judge_name
from coeval.core.text import canonical_json, digest
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.output_folder import SHARDS, SWEEP
from coeval.sweeps.checkpoints import STEP, Checkpoint
from coeval.sweeps.engine import WorkerSlot
from coeval.sweeps.worker_files import Server, Worker

PATH = "{path}"
WORKERS, ACCOUNTS = "workers", "accounts"
_PLAN = "sweep.json"

Samples = Mapping[str, Sequence[int]]
"""Task as it is asked for → samples by their number."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """``evaluation`` is what every checkpoint is asked: its ``output`` is the sweep's, its ``tested`` model
    is called by the template ``served_name``, and its tasks' ``runs`` are all samples, numbered.
    ``shards`` workers answer for each checkpoint, each a part of the prompts. ``server`` is how they are
    served, but for checkpoint, name and GPUs; without one ``external`` are the URLs of the user's servers,
    by step, or by None for any. ``key_variable`` holds the tested model's key, ``logs`` is a folder for
    all logs. ``vouched``: the user says that a server which lists other models serves the checkpoint."""

    evaluation: EvalSpec
    served_name: str
    shards: int = 1
    server: Server | None = None
    external: Mapping[int | None, tuple[str, ...]] = {}
    key_variable: str = ""
    logs: Path | None = None
    vouched: bool = False

    @property
    def out(self) -> Path:
        return self.evaluation.output

    @property
    def own_folder(self) -> Path:
        return sweep_folder(self.out)

    def make_worker(
        self,
        checkpoint: Checkpoint,
        number: int,
        samples: Samples,
        slot: WorkerSlot,
        merged: Path | None = None,
    ) -> Worker:
        """Make the worker that requests, in a slot, what a checkpoint's shard owes; ``merged`` is served
        instead."""
        name = ".".join(filter(None, (checkpoint.name, shard_name(number, self.shards))))
        folder = self.own_folder / WORKERS / name
        loaded = checkpoint if merged is None else Checkpoint(step=checkpoint.step, path=str(merged))
        called = fill_checkpoint(self.served_name, loaded)
        tested = self._make_tested_spec(called, checkpoint)
        if tested is not None and self.server is None:  # else the worker adds that of the server it starts
            urls, at = self.external.get(checkpoint.step), number
            if urls is None:
                urls, at = self.external[None], slot.number
            tested = msgspec.structs.replace(tested, base_url=urls[at % len(urls)])
        requested = msgspec.structs.replace(
            self._make_checkpoint_evaluation(checkpoint, samples),
            mode="inference",
            judge=None,
            tested=tested,
            shard=Shard(number, self.shards) if self.shards > 1 else None,
            account=folder / "account",
        )
        server = None
        if self.server is not None:
            server = msgspec.structs.replace(
                self.server,
                checkpoint=loaded.path,
                name=called,
                gpus=slot.gpus,
                folder=self.own_folder / WORKERS / slot.name if self.server.serves_adapters else None,
            )
        return Worker(
            name=name,
            folder=folder,
            evaluation=requested,
            server=server,
            key_variable=self.key_variable,
            logs=self.logs,
            start=uuid4().hex[:12],
            vouched=self.vouched,
            loaded=loaded,
        )

    def make_whole_evaluation(self, checkpoint: Checkpoint, samples: Samples) -> EvalSpec:
        """Make one evaluation of all that a checkpoint is asked and judged on, for estimates."""
        shaped = self._make_checkpoint_evaluation(checkpoint, samples)
        return msgspec.structs.replace(shaped, mode="all" if shaped.judge is not None else "inference")

    def make_concluding_evaluation(self, checkpoint: Checkpoint, task: str, runs: Sequence[int]) -> EvalSpec:
        shaped = self._make_checkpoint_evaluation(checkpoint, {task: runs})
        account = self.own_folder / ACCOUNTS / checkpoint.name / task.replace("/", "_")
        return msgspec.structs.replace(shaped, mode="conclude", account=account)

    def _make_checkpoint_evaluation(self, checkpoint: Checkpoint, samples: Samples) -> EvalSpec:
        """Make a checkpoint's evaluation from the sweep's, with these samples only."""
        pattern = self.evaluation
        tasks = tuple(
            msgspec.structs.replace(request, runs=tuple(samples[request.name]))
            for request in pattern.tasks
            if samples.get(request.name)
        )
        judge = pattern.judge
        if judge is not None and judge.name == checkpoint.name:  # models are known by their names
            judge = msgspec.structs.replace(judge, name=judge_name(judge.name))
        return msgspec.structs.replace(
            pattern,
            output=self.out / checkpoint.name,
            tasks=tasks,
            tested=self._make_tested_spec(fill_checkpoint(self.served_name, checkpoint), checkpoint),
            judge=judge,
            checkpoint=checkpoint.identity,
        )

    def _make_tested_spec(self, model: str, checkpoint: Checkpoint) -> ModelSpec | None:
        tested = self.evaluation.tested
        if tested is None:
            return None
        return msgspec.structs.replace(tested, name=checkpoint.name, model=model, access_key=None)


def sweep_folder(out: Path) -> Path:
    return out / SWEEP


def queue_folder(out: Path) -> Path:
    """Return the folder in which trainers submit snapshots."""
    return sweep_folder(out) / "queue"


def shard_name(number: int, count: int) -> str:
    """Return the folder of a part of the prompts; empty if there is one part."""
    return f"{number}_of_{count}" if count > 1 else ""


def fill_checkpoint(template: str, checkpoint: Checkpoint) -> str:
    return template.replace(PATH, checkpoint.path).replace(STEP, str(checkpoint.step))


# --- Job plan: ``OUT/sweep/sweep.json``
#
# A job is one task and sample of a checkpoint, answered shard by shard, and then concluded (judged and
# scored). What it was answered and judged with is a hash, so that a job that was done with other settings is
# owed again.


class SweepTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the sweep: ``task`` as requested, ``label`` as its folders are called. ``requested_with`` and
    ``judged_with`` are hashes of all that shapes its answers and its judgments, except the checkpoint. What
    is ``judged`` needs a judge; the rest is scored by rules."""

    task: str
    label: str
    samples: int
    judged: bool
    requested_with: str
    judged_with: str


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of a sweep, with its checkpoints in order of their steps. Unless it ``judges``, judged tasks
    are answered only."""

    checkpoints: tuple[Checkpoint, ...]
    tasks: tuple[SweepTask, ...]
    shards: int = 1
    served_name: str = ""
    judges: bool = True

    @property
    def samples(self) -> dict[str, int]:
        """Return the planned samples of each prompt, by task."""
        return {task.label: task.samples for task in self.tasks}

    def hash_settings(self, checkpoint: Checkpoint, task: SweepTask) -> str:
        """Hash all that shapes the answers of a job."""
        return digest(
            f"{task.requested_with}\0{checkpoint.identity}\0{fill_checkpoint(self.served_name, checkpoint)}"
        )[:12]

    def write(self, own_folder: Path) -> None:
        """Write ``sweep.json``; raise StoreError if it cannot be written."""
        write_json_atomic(own_folder / _PLAN, self)

    def with_earlier_checkpoints(self, own_folder: Path) -> JobPlan:
        """Copy it with the checkpoints that were swept into the folder before."""
        try:
            return msgspec.structs.replace(self, checkpoints=JobPlan.read(own_folder).checkpoints)
        except (FileNotFoundError, StoreError):  # what is damaged is written anew
            return self

    @classmethod
    def read(cls, own_folder: Path) -> JobPlan:
        """Read ``sweep.json``. Raises FileNotFoundError: there is no sweep; StoreError: it is damaged."""
        return read_json(own_folder / _PLAN, cls)


def make_plan_without_checkpoints(sweep: Sweep, *, judges: bool) -> JobPlan:
    """Make the plan of a sweep's jobs, without its checkpoints. Raises UsageError: there is no such task, or
    a run that is to be one cannot be read."""
    evaluation = sweep.evaluation
    return JobPlan(
        checkpoints=(),
        tasks=tuple(_make_task_with_recipe_hashes(evaluation, request) for request in evaluation.tasks),
        shards=sweep.shards,
        served_name=sweep.served_name,
        judges=judges,
    )


def _make_task_with_recipe_hashes(evaluation: EvalSpec, request: TaskRequest) -> SweepTask:
    """Make a task of the sweep, with the hashes of what shapes its answers and judgments."""
    kind = benchmark_class(request.name)
    label, judged = request.name, kind.needs_judge
    if request.name.startswith(PREFIX):
        options = {**request.options, "task": request.name}
        own_run = kind(TaskSettings(model="", assets={}, options=options, seed=0, judge=None))
        label, judged = own_run.label, own_run.is_judged
    requested = {
        "coeval": __version__,
        "model": _select_fields_shaping_output(evaluation.tested),
        "sampling": evaluation.sampling.to_dict(),
        "droppable": evaluation.droppable,
        "seed": evaluation.seed,
        "task": request.name,
        "max_examples": request.max_examples,
        "options": {name: str(value) for name, value in request.options.items()},
        "files": _stamp_user_files(request),
    }
    judging = {
        "model": _select_fields_shaping_output(evaluation.judge),
        "name": evaluation.judge and evaluation.judge.model,
        "sampling": evaluation.judge_sampling.to_dict(),
    }
    return SweepTask(
        task=request.name,
        label=label,
        samples=len(request.runs),
        judged=judged,
        requested_with=digest(canonical_json(requested))[:12],
        judged_with=digest(canonical_json(judging))[:12] if judged else "",
    )


def _select_fields_shaping_output(spec: ModelSpec | None) -> Mapping[str, Any] | None:
    """Return what shapes a model's words; its name goes with the checkpoint, its address with the slot."""
    if spec is None:
        return None
    return {"interface": spec.interface, "options": spec.options, "extra_body": spec.extra_body}


def _stamp_user_files(request: TaskRequest) -> list[tuple[str, int, int]]:
    options = [value for value in request.options.values() if isinstance(value, Path)]
    paths = [*request.given.values(), *options]
    if request.name.startswith(PREFIX):
        paths.append(Path(request.name.removeprefix(PREFIX)))
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    stamps = ((file, file.stat()) for file in files if file.is_file())
    return [(str(file), stat.st_size, stat.st_mtime_ns) for file, stat in stamps]


# Judging waits some eight minutes in all: a judge may be started anew.
WORKER_ATTEMPTS, JUDGING_ATTEMPTS = 4, 10
# From a hiccup to a server that is being restarted; doubled in between.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 120.0


@dataclass(slots=True)
class Attempts:
    """Attempts since the last one that made progress; after ``most`` no further one is made."""

    most: int
    fruitless: int = 0
    reached: int = 0
    not_before: float = 0.0

    def record_early_end(self, reached: int, weight: int = 1) -> None:
        """Record an attempt that ended early at ``reached``; it counts as ``weight``."""
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
class WorkerDue:
    """Samples that a checkpoint's shard has yet to answer."""

    checkpoint: Checkpoint
    number: int
    samples: Mapping[str, tuple[int, ...]]
    attempts: Attempts = field(default_factory=lambda: Attempts(WORKER_ATTEMPTS))


@dataclass(slots=True, eq=False)
class ConclusionDue:
    """Samples of a checkpoint's task that are to be judged and scored."""

    checkpoint: Checkpoint
    task: SweepTask
    runs: tuple[int, ...]
    attempts: Attempts = field(default_factory=lambda: Attempts(JUDGING_ATTEMPTS))

    @property
    def name(self) -> str:
        return f"{self.checkpoint.name} {self.task.label}"

    def of(self, runs: tuple[int, ...]) -> ConclusionDue:
        """Copy it for these samples, with the same attempts."""
        return ConclusionDue(self.checkpoint, self.task, runs, self.attempts)


def merge_other_shards(sweep: Sweep, checkpoint: Checkpoint, tasks_by_label: Mapping[str, SweepTask]) -> None:
    """Merge answers made in another number of shards, so that nobody requests them again. Raises StoreError:
    a file cannot be read or written."""
    for label, task in tasks_by_label.items():
        for run in range(task.samples):
            folder = sweep.out / checkpoint.name / f"run_{run}" / label
            shards = [path.name for path in folder.glob(f"{SHARDS}/*")]
            if any(not name.endswith(f"_of_{sweep.shards}") for name in shards):
                task_folder = TaskFolder(folder)
                with task_folder.hold_lock():
                    task_folder.merge_shards()
