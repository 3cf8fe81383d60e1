"""Where the workers of a sweep run: slots, how a worker ends, and the engines: processes of this machine,
tasks of Ray, jobs of Slurm by submitit."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from coeval.core.entry_points import extra_pip_command
from coeval.core.errors import UsageError
from coeval.store.jsonl import store_error
from coeval.sweeps.guard import LOOK_S
from coeval.sweeps.worker_files import WORKER_LOG, Worker, WorkerResult, read_result, replace_worker_files

# --- Slots and engines. Results lie on a file system that all of them share, so an engine hands over nothing
# but the worker's end.

_MODULE = "coeval.cli.eval_framework.worker_process"


class WorkerSlot(msgspec.Struct, frozen=True):
    """A place for one worker at a time. ``gpus`` are those that its server sees, as in
    ``CUDA_VISIBLE_DEVICES``; empty if there are none, or the cluster sets them."""

    number: int
    gpus: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of its folder beside those of workers, for the files of a server that stays."""
        return f"slot_{self.number}"


class SweepEngine(ABC):
    """Runs workers, one at a time in each of its ``slots``. ``environment`` is the sweep's."""

    def __init__(self, slots: Sequence[WorkerSlot], environment: Mapping[str, str]) -> None:
        self.slots = tuple(slots)
        self._environment = environment

    @abstractmethod
    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:
        """Run a worker to its end; one whose process dies without a result has ``failed``. Cancelled, have it
        interrupt its requests and end its server, wait for that, and raise CancelledError; cancelled
        again, kill it. Raises StoreError: the worker's folder cannot be written."""

    async def wait_until_lost(self) -> str:
        """Wait until no worker can run here any more, as when a cluster dies, and return why."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def free_slot(self, slot: WorkerSlot) -> None:  # noqa: B027 - of a cluster it holds nothing
        """Release what a slot holds: no further worker comes to it."""

    async def aclose(self) -> None:  # noqa: B027
        """Release what the engine holds. No worker runs any more."""


def make_worker_command(folder: Path | None) -> tuple[str, ...]:
    """Return the command of a worker's process, by this interpreter. None: it runs one worker after another,
    named on its standard input, and ends with that pipe."""
    return (sys.executable, "-m", _MODULE, *([] if folder is None else [str(folder)]))


# --- End of a worker on a cluster

# A worker whose starter was killed interrupts its asking and ends its server; then it tells its result.
LONGEST_END_S = 40.0
# What another machine has written may be seen here so much later, where files are shared by NFS.
SHARED_S = 60.0
# A process on this machine has written its result before it ends; shared disks lag by seconds.
_SOON_S = 5.0


async def wait_for_result(worker: Worker, ending: str, within_s: float = _SOON_S) -> WorkerResult:
    """Wait ``within_s`` for a worker's result file; without one, report the process's ``ending``, as in "was
    ended by SIGKILL"."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while (result := read_result(worker)) is None and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    problem = f"the worker's process {ending} before it reported its result; see {worker.folder / WORKER_LOG}"
    return result or WorkerResult(end="failed", problem=problem)


# --- Worker process on a cluster node
#
# It loads nothing but the standard library, and is called by name, so a cluster's machines need this package
# and no code of the sweep's.

PASSED_ON = (
    "COEVAL_CACHE",
    "COEVAL_KEYS_FILE",
    "EVAL_THROTTLE_STATE_PATH",
    "HF_HOME",
    "MIN_INTERVAL_S",
    "NLTK_DATA",
)
"""Of the sweep's environment, beside the tested model's key: a cluster starts its processes with another."""


def make_run_arguments(
    worker: Worker, environment: Mapping[str, str], key_variable: str = ""
) -> tuple[object, ...]:
    """Return the arguments of `run_worker_command`; ``key_variable`` holds the tested model's key."""
    passed = {name: environment[name] for name in (*PASSED_ON, key_variable) if name in environment}
    folder = worker.folder.resolve()
    return make_worker_command(folder), str(folder / WORKER_LOG), str(Path.cwd()), passed


def run_worker_command(command: Sequence[str], log: str, cwd: str, environment: Mapping[str, str]) -> int:
    """Run a worker's command with this ``environment`` over the cluster's; return its exit code. Its
    standard input is held open: if this process is killed, the worker ends its server and itself; if it
    is interrupted, as Ray cancels a task and Slurm a job, the worker ends first."""
    with Path(log).open("ab") as log_file:
        process = subprocess.Popen(  # noqa: S603  our own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log_file,
            cwd=cwd,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Slurm sends SIGTERM, which would end this process without a word.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
    try:
        while process.poll() is None:
            time.sleep(LOOK_S)
        return process.returncode
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def make_slots(gpus: Sequence[str], per_slot: int, count: int | None = None) -> list[WorkerSlot]:
    """Make as many slots of ``per_slot`` GPUs as there are, at most ``count``; without GPUs ``count`` slots,
    or one."""
    if not gpus:
        return [WorkerSlot(number) for number in range(count or 1)]
    groups = [tuple(gpus[at : at + per_slot]) for at in range(0, len(gpus) - per_slot + 1, per_slot)]
    return [WorkerSlot(number, group) for number, group in enumerate(groups[:count])]


async def start_process(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    stdout: int = PIPE,
    longest_line: int = 1 << 16,
) -> Process:
    """Start a process with a pipe to its standard input, in a session of its own, so that Ctrl-C in a
    terminal reaches the sweep alone. ``log`` takes its standard error. Raises StoreError: that cannot be
    written."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log_file = log.open("ab")
    except OSError as error:
        raise store_error("write", log, error) from error
    with log_file:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=stdout,
            stderr=log_file,
            env=environment,
            limit=longest_line,
            start_new_session=True,
        )


class LocalEngine(SweepEngine):
    """Runs each worker as a process with the sweep's environment. It ends with the pipe to its standard
    input, and so with this process, however that ends. With ``keeps``, a slot's process runs one worker
    after another, and its server may stay."""

    def __init__(
        self, slots: Sequence[WorkerSlot], environment: Mapping[str, str], *, keeps: bool = False
    ) -> None:
        super().__init__(slots, environment)
        self._keeps = keeps
        self._kept: dict[int, Process] = {}

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:
        """Run a worker in the slot's process, started if it has none."""
        replace_worker_files(worker)
        process = self._kept.pop(slot.number, None)
        if process is None or process.returncode is not None:
            command = make_worker_command(None if self._keeps else worker.folder)
            log = worker.folder / WORKER_LOG  # of what is written before the worker has opened it
            stdout = PIPE if self._keeps else DEVNULL
            process = await start_process(command, log, self._environment, stdout=stdout)
        try:
            if self._keeps and await _run_in_process(process, worker.folder):
                self._kept[slot.number] = process
                return await wait_for_result(worker, "ended the worker", 0.0)
            code = await process.wait()
        except asyncio.CancelledError:
            await _interrupt_process_and_wait(process)
            raise
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return await wait_for_result(worker, how, 0.0)

    async def free_slot(self, slot: WorkerSlot) -> None:
        if (process := self._kept.pop(slot.number, None)) is not None:
            await _interrupt_process_and_wait(process)

    async def aclose(self) -> None:
        await asyncio.gather(*map(self.free_slot, self.slots))


async def _run_in_process(process: Process, folder: Path) -> bool:
    """Send a worker's folder to a slot's process and wait until it answers; False if the process ends
    first."""
    if process.stdin is None or process.stdout is None:
        return False
    line = msgspec.json.encode(str(folder)) + b"\n"
    with suppress(ConnectionError):  # it is gone: its silence says so
        process.stdin.write(line)
        await process.stdin.drain()
    while (reply := await process.stdout.readline()) and reply != line:
        pass  # what a library prints is no answer
    return reply == line


async def _interrupt_process_and_wait(process: Process) -> None:
    """Interrupt a process and wait for its end; cancelled meanwhile, kill it."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise


# Each look asks the scheduler, or tries the cluster's ports.
_LOOK_S = 1.0
# Ray reports no dead cluster, and ends this process after 60 s: looks take 40 s at most, leaving Ray 8 s.
_LOOKS = 20

# --- Ray: the cluster there is, or one of this machine


def join_or_start_ray(per_slot: int, count: int | None, environment: Mapping[str, str]) -> RayEngine:
    """Join the cluster that ``RAY_ADDRESS`` names or that runs on this machine, else start one here. A slot
    is ``per_slot`` of its GPUs; there are at most ``count`` slots, and ``count`` or one where no GPU is
    needed or there. Raises UsageError: Ray is not installed, the cluster cannot be reached, or it has too
    few GPUs for one slot."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--engine ray needs Ray: {extra_pip_command('ray')}") from error
    logging.getLogger("ray").setLevel(logging.ERROR)  # it tells of its defaults
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(log_to_driver=False, configure_logging=False, include_dashboard=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"--engine ray: the cluster cannot be joined: {error}") from error
    gpus = int(ray.cluster_resources().get("GPU", 0))
    takes_gpus = bool(gpus and per_slot)
    slots = gpus // per_slot if takes_gpus else (count or 1)
    if not slots:
        if ours:
            ray.shutdown()
        raise UsageError(
            f"--engine ray: the cluster has {gpus} GPUs, and a slot takes {per_slot} (--tp-size)"
        )
    slots = min(slots, count or slots)
    return RayEngine(ray, slots, per_slot if takes_gpus else 0, environment, ours=ours)


class RayEngine(SweepEngine):
    """Runs each worker beside a task of Ray, which gives it its GPUs and never retries it: whether a worker
    is owed once more is the sweep's decision."""

    def __init__(
        self, ray: Any, slots: int, gpus_each: int, environment: Mapping[str, str], *, ours: bool
    ) -> None:
        super().__init__(make_slots((), 1, slots), environment)
        self._ray = ray
        self._ours = ours
        self._lost = ""
        self._task = ray.remote(num_cpus=0, num_gpus=gpus_each, max_retries=0)(run_worker_command)

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:  # noqa: ARG002  Ray finds the place
        """Run a worker as a Ray task. A refused task is a failure that no attempt mends: Ray would start
        another cluster."""
        replace_worker_files(worker)
        if not self._lost:  # Ray would start another cluster
            try:
                reference = self._task.remote(
                    *make_run_arguments(worker, self._environment, worker.key_variable)
                )
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                self._lost = f"the Ray cluster accepts no more tasks ({type(error).__name__}: {error})"
        if self._lost:
            return WorkerResult(end="failed", problem=self._lost, again=False)
        try:
            code = await asyncio.shield(asyncio.wrap_future(reference.future()))
        except asyncio.CancelledError:
            if not self._lost:
                await self._cancel_task_and_wait(reference, worker)
            raise
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            why = f"was left by its Ray task ({type(error).__name__})"
            return await wait_for_result(worker, why, LONGEST_END_S)
        return await wait_for_result(worker, f"ended with exit code {code}", *([] if code else [SHARED_S]))

    async def _cancel_task_and_wait(self, reference: Any, worker: Worker) -> None:
        self._ray.cancel(reference)
        try:
            await wait_for_result(worker, "was cancelled", LONGEST_END_S)
        except asyncio.CancelledError:
            self._ray.cancel(reference, force=True)
            raise

    async def wait_until_lost(self) -> str:
        """Wait until the cluster's head, or Ray's process on this machine, has refused `_LOOKS` looks in a
        row."""
        context, nodes = self._ray.get_runtime_context(), self._ray.nodes()
        own = [node for node in nodes if node["NodeID"] == context.get_node_id()]
        there = [f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in own]
        addresses = [at for at in (context.gcs_address, *there) if await _accepts_connections(at)]
        looks = 0
        while not self._lost:
            await asyncio.sleep(_LOOK_S)
            closed = [address for address in addresses if not await _accepts_connections(address)]
            looks = looks + 1 if closed else 0
            if looks == _LOOKS:
                self._lost = f"the Ray cluster no longer answers at {closed[0]}"
        logging.getLogger("coeval").warning("%s: no more servers are started", self._lost)
        await self.aclose()
        return self._lost

    async def aclose(self) -> None:
        if self._ours:
            await asyncio.to_thread(self._ray.shutdown)


async def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError):  # a time-out is one
        async with asyncio.timeout(_LOOK_S):
            (await asyncio.open_connection(host.strip("[]"), int(port)))[1].close()
        return True
    return False


# --- Slurm

USUAL: Mapping[str, object] = {"timeout_min": 24 * 60, "cpus_per_task": 8}
# A start where nobody says how many: jobs queue at the cluster anyway.
_SLOTS = 4


def open_slurm(
    per_slot: int,
    count: int | None,
    environment: Mapping[str, str],
    folder: Path,
    settings: Mapping[str, object],
) -> SlurmEngine:
    """Open an engine of jobs with ``per_slot`` GPUs each, at most ``count`` (or four) at a time. ``settings``
    are submitit's, whose files go to ``folder``; ``cluster: local`` among them runs the jobs as processes
    of this machine. Raises UsageError: submitit is not installed, there is no Slurm here, or it refuses a
    setting."""
    try:
        import submitit
    except ImportError as error:
        raise UsageError(f"--engine slurm needs submitit: {extra_pip_command('slurm')}") from error
    wished = {**USUAL, **settings}
    cluster = wished.pop("cluster", "slurm")
    gpus = {} if cluster == "local" else {"gpus_per_node": per_slot}
    try:
        executor = submitit.AutoExecutor(folder, cluster=cluster)
        executor.update_parameters(nodes=1, tasks_per_node=1, **gpus, **wished)
    except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"--engine slurm: {error}") from error
    if cluster == "slurm":
        cancel_leftover_jobs(folder)
    return SlurmEngine(executor, count or _SLOTS, environment)


def cancel_leftover_jobs(folder: Path) -> None:
    """Cancel the jobs of a killed sweep, which would hold their GPUs to their own end. The sweep's lock is
    held, so nobody waits for them any more."""
    program = shutil.which("scancel")
    for submitted in folder.glob("*_submitted.pkl"):
        job, _, _ = submitted.name.partition("_")
        if program is not None and job.isdigit() and not any(folder.glob(f"{job}_*_result.pkl")):
            subprocess.run([program, job], check=False, capture_output=True)  # noqa: S603  of one that has ended nothing comes
        submitted.unlink()


class SlurmEngine(SweepEngine):
    """Runs each worker beside a Slurm job; one in the queue has no progress yet. Slurm passes the tested
    model's key on with the submitter's environment."""

    def __init__(self, executor: Any, slots: int, environment: Mapping[str, str]) -> None:
        super().__init__(make_slots((), 1, slots), environment)
        self._executor = executor
        self._jobs: list[Any] = []

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:  # noqa: ARG002  Slurm finds the place
        """Submit a worker as a job and wait for its result."""
        replace_worker_files(worker)
        if worker.key_variable in self._environment:  # submitit keeps what a job is given in a file
            os.environ[worker.key_variable] = self._environment[worker.key_variable]
        call = make_run_arguments(worker, self._environment)
        job = await asyncio.to_thread(self._executor.submit, run_worker_command, *call)
        self._jobs.append(job)
        try:
            while read_result(worker) is None and not await asyncio.to_thread(job.done):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        except asyncio.CancelledError:
            await asyncio.to_thread(job.cancel)
            await self._wait_for_job_end(job)
            raise
        return await wait_for_result(worker, f"was job {job.job_id} of Slurm, which ended as {job.state},")

    async def _wait_for_job_end(self, job: Any) -> None:
        """Wait for a job's end: one that has begun has its worker end first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_END_S):
                while not await asyncio.to_thread(job.done):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    async def aclose(self) -> None:
        """Wait for the jobs, which end a little later than their workers report."""
        await asyncio.gather(*map(self._wait_for_job_end, self._jobs))
