"""What a sweep asks for: checkpoints × tasks × samples, how they are served, and who judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec, Shard
from coeval.core.model import ModelSpec, judge_name
from coeval.store.output_folder import SWEEP
from coeval.sweeps.checkpoints import STEP, Checkpoint
from coeval.sweeps.engine import WorkerSlot
from coeval.sweeps.worker_files import Server, Worker

PATH = "{path}"
WORKERS, ACCOUNTS = "workers", "accounts"

Samples = Mapping[str, Sequence[int]]
"""Task as it is asked for → samples by their number."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """``evaluation`` is what every checkpoint is asked: its ``output`` is the sweep's, its ``tested`` model
    is called by the template ``served_name``, and its tasks' ``runs`` are all samples, numbered.

    Each checkpoint is answered by ``shards`` workers, each with its part of the prompts. ``server`` is how
    they are served, but for checkpoint, name and GPUs; without one ``external`` are the base URLs of the
    servers that the user runs, by step, or by None for any. Up to ``judge_jobs`` tasks are judged at a time.
    ``key_variable`` holds the tested model's key, ``logs`` is a folder for all logs. ``vouched``: that a
    server which lists other models serves the checkpoint is the user's word. ``merge`` is the command that
    makes a sharded checkpoint one that can be served; empty where none does.
    """

    evaluation: EvalSpec
    served_name: str
    shards: int = 1
    server: Server | None = None
    external: Mapping[int | None, tuple[str, ...]] = {}
    judge_jobs: int = 4
    key_variable: str = ""
    logs: Path | None = None
    vouched: bool = False
    merge: str = ""

    @property
    def out(self) -> Path:
        return self.evaluation.output

    @property
    def own_folder(self) -> Path:
        return folder_of(self.out)

    def worker(
        self,
        checkpoint: Checkpoint,
        number: int,
        samples: Samples,
        slot: WorkerSlot,
        merged: Path | None = None,
    ) -> Worker:
        """What is owed of a checkpoint's shard, as it is asked in a slot; ``merged`` is served instead."""
        name = ".".join(filter(None, (checkpoint.name, shard_name(number, self.shards))))
        folder = self.own_folder / WORKERS / name
        shaped = self._shaped(checkpoint, samples)
        loaded = checkpoint if merged is None else Checkpoint(step=checkpoint.step, path=str(merged))
        if shaped.tested is not None:
            shaped = msgspec.structs.replace(shaped, tested=self._served(shaped.tested, loaded))
        requested = msgspec.structs.replace(
            shaped,
            mode="inference",
            judge=None,
            tested=self._placed(shaped.tested, checkpoint, number, slot),
            shard=Shard(number, self.shards) if self.shards > 1 else None,
            account=folder / "account",
        )
        server = None
        if self.server is not None:
            called = filled(self.served_name, loaded)
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

    def whole(self, checkpoint: Checkpoint, samples: Samples) -> EvalSpec:
        """All that is asked and judged of a checkpoint, as one evaluation: for telling what it takes."""
        shaped = self._shaped(checkpoint, samples)
        return msgspec.structs.replace(shaped, mode="all" if shaped.judge is not None else "inference")

    def concluding(self, checkpoint: Checkpoint, task: str, runs: Sequence[int]) -> EvalSpec:
        """What is judged and scored of a task of a checkpoint."""
        shaped = self._shaped(checkpoint, {task: runs})
        account = self.own_folder / ACCOUNTS / checkpoint.name / task.replace("/", "_")
        return msgspec.structs.replace(shaped, mode="conclude", account=account)

    def _placed(
        self, tested: ModelSpec | None, checkpoint: Checkpoint, number: int, slot: WorkerSlot
    ) -> ModelSpec | None:
        """The model where the user serves it; where a server is started, the worker puts that in."""
        if tested is None or self.server is not None:
            return tested
        if (urls := self.external.get(checkpoint.step)) is not None:
            url = urls[number % len(urls)]
        else:
            urls = self.external[None]
            url = urls[slot.number % len(urls)]
        return msgspec.structs.replace(tested, base_url=url)

    def _shaped(self, checkpoint: Checkpoint, samples: Samples) -> EvalSpec:
        pattern = self.evaluation
        tasks = tuple(
            msgspec.structs.replace(request, runs=tuple(samples[request.name]))
            for request in pattern.tasks
            if samples.get(request.name)
        )
        tested = None if pattern.tested is None else self._served(pattern.tested, checkpoint)
        return msgspec.structs.replace(
            pattern,
            output=self.out / checkpoint.name,
            tasks=tasks,
            tested=tested,
            judge=_apart(pattern.judge, checkpoint.name),
            checkpoint=checkpoint.identity,
        )

    def _served(self, tested: ModelSpec, checkpoint: Checkpoint) -> ModelSpec:
        model = filled(self.served_name, checkpoint)
        return msgspec.structs.replace(tested, name=checkpoint.name, model=model, access_key=None)


def folder_of(out: Path) -> Path:
    """What is the sweep's own of an output folder."""
    return out / SWEEP


def queue_of(out: Path) -> Path:
    """Where trainers submit snapshots."""
    return folder_of(out) / "queue"


def shard_name(number: int, count: int) -> str:
    """The folder of a part of the prompts; empty where there is one part."""
    return f"{number}_of_{count}" if count > 1 else ""


def filled(template: str, checkpoint: Checkpoint) -> str:
    """A template with the checkpoint's path and step in it."""
    return template.replace(PATH, checkpoint.path).replace(STEP, str(checkpoint.step))


def _apart(judge: ModelSpec | None, name: str) -> ModelSpec | None:
    """Models are known by their names: one that is called as the checkpoint is gets another."""
    if judge is None or judge.name != name:
        return judge
    return msgspec.structs.replace(judge, name=judge_name(judge.name))
