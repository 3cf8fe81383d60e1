"""Workers as tasks of a Ray cluster: the one there is, or one of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coeval.core.errors import UsageError
from coeval.sweeps.engine import (
    LONGEST_END_S,
    SHARED_S,
    WorkerSlot,
    passed_on,
    reported_end,
    wait_for_worker,
    worker_command,
)
from coeval.sweeps.worker_files import Worker, WorkerResult, write_worker


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
        raise UsageError('--engine ray needs Ray; install it with: pip install "coeval[ray]"') from error
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


class RayEngine:
    """Each worker is a task that waits beside the worker's process. Ray gives it its GPUs, and never runs it
    again by itself: whether a worker is owed once more is the sweep's affair."""

    def __init__(
        self, ray: Any, slots: int, gpus_each: int, environment: Mapping[str, str], *, ours: bool
    ) -> None:
        self._ray = ray
        self._slots = tuple(WorkerSlot(number) for number in range(slots))
        self._environment = environment
        self._ours = ours
        self._task = ray.remote(num_cpus=0, num_gpus=gpus_each, max_retries=0)(wait_for_worker)

    @property
    def slots(self) -> Sequence[WorkerSlot]:
        return self._slots

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:  # noqa: ARG002  Ray finds the place
        write_worker(worker)
        reference = self._task.remote(
            worker_command(worker.folder.resolve()),
            str((worker.folder / "worker.log").resolve()),
            str(Path.cwd()),
            passed_on(self._environment, worker.key_variable),
        )
        try:
            code = await asyncio.shield(asyncio.wrap_future(reference.future()))
        except asyncio.CancelledError:
            await self._end(reference, worker)
            raise
        except self._ray.exceptions.RayError as error:
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

    async def free(self, slot: WorkerSlot) -> None:
        """A slot holds nothing between workers."""

    async def aclose(self) -> None:
        if self._ours:
            await asyncio.to_thread(self._ray.shutdown)
