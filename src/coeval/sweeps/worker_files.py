"""The files by which a worker and whoever starts it speak: ``worker.json``, ``progress.json``,
``result.json``."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.errors import UsageError
from coeval.core.plain import cut_middle
from coeval.core.records import is_good
from coeval.core.shown_url import find_url_secrets
from coeval.engine.progress import PACE_S, Board, seconds_left
from coeval.store.jsonl import read_json, read_json_if_whole, store_error, write_json_atomic
from coeval.sweeps.checkpoints import Checkpoint

# --- Worker: one checkpoint on one slot. It is a process that an engine starts: it reads ``worker.json``,
# starts the server, asks for what is owed, and ends the server.

WorkerState: TypeAlias = Literal["reading", "starting", "asking", "restarting", "stopping", "ended"]
WorkerEnd: TypeAlias = Literal["done", "interrupted", "server_failed", "failed", "refused"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a worker starts: ``template`` is its command (see `server_command`), filled with the
    other fields. It serves the checkpoint as ``name``, on ``gpus``, or all that the worker sees, and gets
    those of the worker's credentials whose variables are ``passed`` or named in the command. It may be
    started ``starts`` times, the second time after ``wait_s``, then after longer waits. One that
    ``serves_adapters`` goes on to the next worker of its slot, and its files lie in the slot's ``folder``."""

    template: str
    checkpoint: str
    name: str
    gpus: tuple[str, ...] = ()
    tp_size: int = 1
    passed: tuple[str, ...] = ()
    start_timeout_s: float = 1800.0
    starts: int = 4
    wait_s: float = 5.0
    serves_adapters: bool = False
    folder: Path | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker does. ``folder`` holds its files; ``server`` is None where the user runs one.
    ``evaluation`` is of mode ``inference``, with the owed tasks and samples, the checkpoint's identity,
    and an ``account`` below ``folder``; the worker adds the address of the server that it starts. It names
    no credential: ``key_variable`` is the variable that holds the tested model's. ``logs`` is a folder
    that gets both logs too. ``start`` tells this attempt's files from those of a late earlier worker. A
    server that lists its models and not the tested one is refused, unless its name is ``vouched`` for.
    ``loaded`` is what its server reads."""

    name: str
    folder: Path
    evaluation: EvalSpec
    server: Server | None = None
    key_variable: str = ""
    logs: Path | None = None
    start: str = ""
    vouched: bool = False
    loaded: Checkpoint | None = None

    @property
    def server_folder(self) -> Path:
        """Return the folder with the log and the record of its server."""
        return self.server.folder if self.server is not None and self.server.folder else self.folder

    def read_api_key(self, environment: Mapping[str, str]) -> str | None:
        """Return the tested model's credential; raise UsageError if it cannot be sent."""
        key = environment.get(self.key_variable, "").strip() if self.key_variable else ""
        if not key.isprintable():
            raise UsageError(f"{self.key_variable} holds a line break or the like; check the key in it")
        return key or None


class TaskAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A task and sample: good answers of so many prompts (of the shard)."""

    task: str
    run: int
    prompts: int
    answers: int


class WorkerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``progress.json``, replaced about once a second: ``done`` of ``planned`` answers are recorded, also by
    task and sample (``tasks``). ``output_tokens_per_s`` is the pace of the last minute, ``remaining_s``
    the time left at it, ``restarted`` why the server was last restarted, ``at`` seconds since 1970."""

    at: float
    state: WorkerState
    done: int = 0
    planned: int = 0
    output_tokens_per_s: float | None = None
    remaining_s: float | None = None
    tasks: dict[str, tuple[int, int]] = {}
    restarted: str = ""


class WorkerResult(msgspec.Struct, frozen=True, kw_only=True):
    """``result.json``, written once, at the end. ``done``: each prompt was requested, and has an answer or a
    failure; else ``problem`` says why, and the way out. ``refused``: the settings fit no checkpoint's
    server. ``start`` is the worker's. ``again``: another attempt may fare better."""

    end: WorkerEnd
    start: str = ""
    tasks: tuple[TaskAnswered, ...] = ()
    problem: str = ""
    starts: int = 0
    again: bool = True


WORKER_LOG = "worker.log"
"""What a worker has to say, beside its files."""
WORKER, PROGRESS, RESULT = "worker.json", "progress.json", "result.json"


def replace_worker_files(worker: Worker) -> None:
    """Write ``worker.json`` into the worker's folder, and remove an earlier worker's progress and result.
    Raises UsageError: an address holds a credential; ValueError: a model's ``access_key`` is set, instead of
    the variable that holds it."""
    for model in (worker.evaluation.tested, worker.evaluation.judge):
        if model is not None and model.access_key is not None:
            raise ValueError(f"the worker {worker.name} must hold no credential")
        if model is not None and any(find_url_secrets(model.base_url or "")):
            raise UsageError(
                f"the address of {model.name} holds a password, and workers are kept in files; "
                "give it as --api-key"
            )
    for name in (PROGRESS, RESULT):
        try:
            (worker.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise store_error("remove", worker.folder / name, error) from error
    write_json_atomic(worker.folder / WORKER, worker)


def read_worker(folder: Path) -> Worker:
    """Read ``worker.json``. Raises FileNotFoundError: there is none; StoreError: it is damaged."""
    return read_json(folder / WORKER, Worker)


def write_progress(folder: Path, progress: WorkerProgress) -> None:
    write_json_atomic(folder / PROGRESS, progress)


def write_result(worker: Worker, result: WorkerResult) -> None:
    write_json_atomic(worker.folder / RESULT, msgspec.structs.replace(result, start=worker.start))


def read_progress(folder: Path) -> WorkerProgress | None:
    """Read ``progress.json``; None if absent or damaged."""
    return read_json_if_whole(folder / PROGRESS, WorkerProgress)


def read_result(worker: Worker) -> WorkerResult | None:
    """Read this attempt's ``result.json``; None until the worker ends, or if it was killed."""
    result = read_json_if_whole(worker.folder / RESULT, WorkerResult)
    return result if result is not None and result.start == worker.start else None


# --- Worker progress: ``progress.json``

log = logging.getLogger("coeval")

# A line of the sweep's table.
_LONGEST_MESSAGE = 300


class WorkerCount:
    """Counts of a worker, and the watcher of its requests: each round has a board of its own."""

    def __init__(self) -> None:
        self.state: WorkerState = "reading"
        self.starts = 0
        self.restarted = ""
        self.task_runs: Sequence[TaskRun] = ()
        self._boards: list[Board] = []
        self._marks: deque[tuple[float, int, int]] = deque()  # time, answers that ended, output tokens

    def note(self, message: str) -> None:
        log.info("%s", message)

    def warn(self, message: str) -> None:
        log.warning("%s", message)

    def begin(self, board: Board) -> None:
        self._boards.append(board)
        self._marks.clear()
        self.state = "asking"

    def count_good_and_failed_of_last_round(self) -> tuple[int, Counter[str]]:
        """Count good answers of the last round of requests, and failed ones by kind."""
        counts = [count for board in self._boards[-1:] for count in board.phases.values()]
        failed: Counter[str] = sum((count.failed for count in counts), Counter())
        return sum(count.done for count in counts), failed

    def mark_pace_and_measure_progress(self) -> WorkerProgress:
        """Return the current progress; to be called about once a second."""
        tasks = {run.label: self._count_done_and_planned(run) for run in self.task_runs}
        done, planned = sum(n for n, _ in tasks.values()), sum(n for _, n in tasks.values())
        tokens_per_s, remaining_s = self._measure_pace_and_seconds_left(planned - done)
        return WorkerProgress(
            at=time.time(),
            state=self.state,
            done=done,
            planned=planned,
            output_tokens_per_s=tokens_per_s,
            remaining_s=remaining_s,
            tasks=tasks,
            restarted=cut_middle(self.restarted, _LONGEST_MESSAGE),
        )

    def _count_done_and_planned(self, task_run: TaskRun) -> tuple[int, int]:
        if not self._boards:
            return sum(map(is_good, task_run.answers.values())), len(task_run.items)
        count = self._boards[-1].phases[task_run.label]
        return count.recorded + count.done, len(task_run.items)

    def _measure_pace_and_seconds_left(self, left: int) -> tuple[float | None, float | None]:
        """Return output tokens per second and the seconds left, by the last minute; None if unknown."""
        now, counts = time.monotonic(), [count for board in self._boards for count in board.phases.values()]
        ended = sum(count.done + count.failed.total() for count in counts)
        output_tokens = sum(count.output_tokens for count in counts)
        self._marks.append((now, ended, output_tokens))
        while now - self._marks[0][0] > PACE_S:
            self._marks.popleft()
        since, before, tokens = self._marks[0]
        if self.state != "asking" or now - since < 1.0:
            return None, None
        return (output_tokens - tokens) / (now - since), seconds_left(left, ended - before, now - since)

    def count_answered_by_task(self) -> tuple[TaskAnswered, ...]:
        answered = []
        for run in self.task_runs:
            counts = {"prompts": len(run.items), "answers": sum(map(is_good, run.answers.values()))}
            answered.append(TaskAnswered(task=run.task, run=run.run or 0, **counts))
        return tuple(answered)
