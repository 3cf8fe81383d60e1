"""Legs as processes of this machine."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coeval.sweeps.engines.engine import LegSlot
from coeval.sweeps.leg import Leg, LegResult
from coeval.sweeps.leg_folder import LegFolder, leg_command

__all__ = ["LocalEngine", "local_slots"]

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def local_slots(gpus: Sequence[str], per_slot: int, count: int | None = None) -> list[LegSlot]:
    """As many slots of ``per_slot`` GPUs each as there are, at most ``count``; without GPUs ``count`` slots,
    or one."""
    if not gpus:
        return [LegSlot(number) for number in range(count or 1)]
    groups = [tuple(gpus[at : at + per_slot]) for at in range(0, len(gpus) - per_slot + 1, per_slot)]
    return [LegSlot(number, group) for number, group in enumerate(groups[:count])]


class LocalEngine:
    """Each leg is a process in a session of its own, so that Ctrl-C in a terminal is the sweep's affair.

    ``environment`` is that of the legs. A leg ends with the pipe to its standard input, and so with this
    process, however that ends.
    """

    def __init__(self, slots: Sequence[LegSlot], environment: Mapping[str, str]) -> None:
        self._slots = tuple(slots)
        self._environment = environment

    @property
    def slots(self) -> Sequence[LegSlot]:
        return self._slots

    async def run(self, leg: Leg, slot: LegSlot) -> LegResult:
        folder = LegFolder(leg.folder)
        folder.write(leg)
        process = await self._start(leg.folder, slot)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        return folder.result() or LegResult(end="failed", problem=_silent(code, folder.log))

    async def _start(self, folder: Path, slot: LegSlot) -> Process:
        environment = dict(self._environment)
        if slot.gpus:
            environment[VISIBLE_GPUS] = ",".join(slot.gpus)
        with LegFolder(folder).log.open("ab") as log:  # what is said before the leg has opened it
            return await asyncio.create_subprocess_exec(
                *leg_command(folder),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    async def aclose(self) -> None:
        """It holds nothing."""


async def _end(process: Process) -> None:
    """Have a process interrupt what it does and wait for it; cancelled meanwhile, kill it."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise


def _silent(code: int, log: Path) -> str:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the leg's process {how} before it told its result; see {log}"
