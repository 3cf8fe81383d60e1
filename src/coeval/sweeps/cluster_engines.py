"""Workers on clusters: tasks of Ray, and jobs of Slurm by submitit."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coeval.core.entry_points import install_command
from coeval.core.errors import UsageError
from coeval.sweeps.engine import (
    LONGEST_END_S,
    SHARED_S,
    SweepEngine,
    WorkerSlot,
    local_slots,
    reported_end,
    wait_for_worker,
    waiting_for,
)
from coeval.sweeps.worker_files import Worker, WorkerResult, read_result, write_worker

# Each look asks the scheduler, or tries the cluster's ports.
_LOOK_S = 1.0
# Ray reports no dead cluster, and ends this process after 60 s: looks take 40 s at most, leaving Ray 8 s.
_LOOKS = 20

# --- Ray: the cluster there is, or one of this machine


def open_ray(per_slot: int, count: int | None, environment: Mapping[str, str]) -> RayEngine:
    """Join the cluster that ``RAY_ADDRESS`` names or that runs on this machine, else start one here.

    A slot is ``per_slot`` GPUs of the cluster, as many as there are, at most ``count``; where there are none,
    or a slot needs none, there are ``count`` slots, or one.

    Raises UsageError: Ray is not installed, the cluster cannot be reached, or it has too few GPUs for one
    slot.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--engine ray needs Ray: {install_command('ray')}") from error
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
    """Each worker is a task that waits beside the worker's process. Ray gives it its GPUs, and never runs it
    again by itself: whether a worker is owed once more is the sweep's affair."""

    def __init__(
        self, ray: Any, slots: int, gpus_each: int, environment: Mapping[str, str], *, ours: bool
    ) -> None:
        super().__init__(local_slots((), 1, slots), environment)
        self._ray = ray
        self._ours = ours
        self._lost = ""
        self._task = ray.remote(num_cpus=0, num_gpus=gpus_each, max_retries=0)(wait_for_worker)

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:  # noqa: ARG002  Ray finds the place
        write_worker(worker)
        if not self._lost:  # Ray would start another cluster
            try:
                reference = self._task.remote(*waiting_for(worker, self._environment, worker.key_variable))
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                self._lost = f"the Ray cluster takes no more tasks ({type(error).__name__}: {error})"
        if self._lost:
            return WorkerResult(end="failed", problem=self._lost, again=False)
        try:
            code = await asyncio.shield(asyncio.wrap_future(reference.future()))
        except asyncio.CancelledError:
            if not self._lost:
                await self._end(reference, worker)
            raise
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            why = f"was left by its Ray task ({type(error).__name__})"
            return await reported_end(worker, why, LONGEST_END_S)
        return await reported_end(worker, f"ended with exit code {code}", *([] if code else [SHARED_S]))

    async def _end(self, reference: Any, worker: Worker) -> None:
        self._ray.cancel(reference)
        try:
            await reported_end(worker, "was cancelled", LONGEST_END_S)
        except asyncio.CancelledError:
            self._ray.cancel(reference, force=True)
            raise

    async def lost(self) -> str:
        addresses = [address for address in cluster_addresses(self._ray) if await _is_open(address)]
        looks = 0
        while not self._lost:
            await asyncio.sleep(_LOOK_S)
            closed = [address for address in addresses if not await _is_open(address)]
            looks = looks + 1 if closed else 0
            if looks == _LOOKS:
                self._lost = f"the Ray cluster does not answer any more at {closed[0]}"
        logging.getLogger("coeval").warning("%s: no more servers are started", self._lost)
        await self.aclose()
        return self._lost

    async def aclose(self) -> None:
        if self._ours:
            await asyncio.to_thread(self._ray.shutdown)


def cluster_addresses(ray: Any) -> list[str]:
    """Return where the cluster's head listens, and Ray's process of this machine, which takes the tasks."""
    context = ray.get_runtime_context()
    own = [node for node in ray.nodes() if node["NodeID"] == context.get_node_id()]
    return [context.gcs_address, *(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in own)]


async def _is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError):  # a time-out is one
        async with asyncio.timeout(_LOOK_S):
            (await asyncio.open_connection(host.strip("[]"), int(port)))[1].close()
        return True
    return False


# --- Slurm

USUAL: Mapping[str, Any] = {"timeout_min": 24 * 60, "cpus_per_task": 8}
# A start where nobody says how many: jobs queue at the cluster anyway.
_SLOTS = 4


def open_slurm(
    per_slot: int,
    count: int | None,
    environment: Mapping[str, str],
    folder: Path,
    settings: Mapping[str, Any],
) -> SlurmEngine:
    """Jobs of ``per_slot`` GPUs each, at most ``count`` (or four) at a time; submitit's files go to
    ``folder``.

    ``settings`` are submitit's (``slurm_partition``, ``timeout_min``, ``slurm_account``); ``cluster: local``
    among them runs the jobs as processes of this machine.

    Raises UsageError: submitit is not installed, there is no Slurm here, or it knows a setting otherwise.
    """
    try:
        import submitit
    except ImportError as error:
        raise UsageError(f"--engine slurm needs submitit: {install_command('slurm')}") from error
    wished = {**USUAL, **settings}
    cluster = wished.pop("cluster", "slurm")
    gpus = {} if cluster == "local" else {"gpus_per_node": per_slot}
    try:
        executor = submitit.AutoExecutor(folder, cluster=cluster)
        executor.update_parameters(nodes=1, tasks_per_node=1, **gpus, **wished)
    except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"--engine slurm: {error}") from error
    if cluster == "slurm":
        cancel_earlier(folder)
    return SlurmEngine(executor, count or _SLOTS, environment)


def cancel_earlier(folder: Path) -> None:
    """Cancel the jobs of a sweep that was killed: they would hold their GPUs to their own end. The sweep's
    lock is held, so nobody waits for them any more."""
    program = shutil.which("scancel")
    for submitted in folder.glob("*_submitted.pkl"):
        job, _, _ = submitted.name.partition("_")
        if program is not None and job.isdigit() and not any(folder.glob(f"{job}_*_result.pkl")):
            subprocess.run([program, job], check=False, capture_output=True)  # noqa: S603  of one that has ended nothing comes
        submitted.unlink()


class SlurmEngine(SweepEngine):
    """Each worker is a job that waits beside the worker's process; one that waits in the queue has no
    progress yet. The tested model's key reaches it as Slurm hands on the environment that jobs are submitted
    from."""

    def __init__(self, executor: Any, slots: int, environment: Mapping[str, str]) -> None:
        super().__init__(local_slots((), 1, slots), environment)
        self._executor = executor
        self._jobs: list[Any] = []

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:  # noqa: ARG002  Slurm finds the place
        write_worker(worker)
        if worker.key_variable in self._environment:  # submitit keeps what a job is given in a file
            os.environ[worker.key_variable] = self._environment[worker.key_variable]
        call = waiting_for(worker, self._environment)
        job = await asyncio.to_thread(self._executor.submit, wait_for_worker, *call)
        self._jobs.append(job)
        try:
            while read_result(worker) is None and not await asyncio.to_thread(job.done):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        except asyncio.CancelledError:
            await asyncio.to_thread(job.cancel)
            await self._ended(job)
            raise
        return await reported_end(worker, f"was job {job.job_id} of Slurm, which ended as {job.state},")

    async def _ended(self, job: Any) -> None:
        """A job that was begun has its worker end first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_END_S):
                while not await asyncio.to_thread(job.done):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    async def aclose(self) -> None:
        """Jobs end with their workers, a little later than those tell their results."""
        await asyncio.gather(*map(self._ended, self._jobs))
