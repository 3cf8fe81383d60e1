"""Legs as processes of this machine."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coeval.store.jsonl import store_error
from coeval.sweeps.engines.engine import LegSlot, leg_command, silent_end
from coeval.sweeps.leg import Leg, LegResult
from coeval.sweeps.leg_files import read_result, write_leg

__all__ = ["LocalEngine", "local_slots"]


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

    async def run(self, leg: Leg, slot: LegSlot) -> LegResult:  # noqa: ARG002  its GPUs are the server's affair
        write_leg(leg)
        process = await self._start(leg.folder)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return read_result(leg) or silent_end(leg, how)

    async def _start(self, folder: Path) -> Process:
        log = folder / "leg.log"
        try:
            said = log.open("ab")
        except OSError as error:
            raise store_error("write", log, error) from error
        with said:  # what is said before the leg has opened it
            return await asyncio.create_subprocess_exec(
                *leg_command(folder),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=said,
                env=self._environment,
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
