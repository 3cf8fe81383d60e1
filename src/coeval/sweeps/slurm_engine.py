"""Workers as jobs of Slurm, by submitit."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coeval.core.errors import UsageError
from coeval.sweeps.engine import (
    LONGEST_END_S,
    WorkerSlot,
    passed_on,
    reported_end,
    wait_for_worker,
    worker_command,
)
from coeval.sweeps.worker_files import Worker, WorkerResult, read_result, write_worker

USUAL: Mapping[str, Any] = {"timeout_min": 24 * 60, "cpus_per_task": 8}
# A start where nobody says how many: jobs queue at the cluster anyway.
_SLOTS = 4
# Each look asks the scheduler.
_LOOK_S = 1.0


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
        raise UsageError(
            '--engine slurm needs submitit; install it with: pip install "coeval[slurm]"'
        ) from error
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


class SlurmEngine:
    """Each worker is a job that waits beside the worker's process; one that waits in the queue has no
    progress yet. The tested model's key reaches it as Slurm hands on the environment that jobs are submitted
    from."""

    def __init__(self, executor: Any, slots: int, environment: Mapping[str, str]) -> None:
        self._executor = executor
        self._slots = tuple(WorkerSlot(number) for number in range(slots))
        self._environment = environment
        self._jobs: list[Any] = []

    @property
    def slots(self) -> Sequence[WorkerSlot]:
        return self._slots

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:  # noqa: ARG002  Slurm finds the place
        write_worker(worker)
        if worker.key_variable in self._environment:  # submitit keeps what a job is given in a file
            os.environ[worker.key_variable] = self._environment[worker.key_variable]
        job = await asyncio.to_thread(
            self._executor.submit,
            wait_for_worker,
            worker_command(worker.folder.resolve()),
            str((worker.folder / "worker.log").resolve()),
            str(Path.cwd()),
            passed_on(self._environment),
        )
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

    async def free(self, slot: WorkerSlot) -> None:
        """A slot holds nothing between workers."""

    async def aclose(self) -> None:
        """Jobs end with their workers, a little later than those tell their results."""
        await asyncio.gather(*map(self._ended, self._jobs))
