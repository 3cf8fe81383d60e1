"""Where the legs of a sweep run: slots, and one coroutine that brings a leg to its end in one of them.

``local`` starts processes on this machine; ``ray`` and ``slurm`` have a cluster start them. Results lie on a
file system that all of them share, so an engine hands over nothing but the leg's end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from coeval.sweeps.leg import Leg, LegResult

__all__ = ["LegSlot", "SweepEngine", "leg_command", "silent_end"]

_MODULE = "coeval.cli.sweep.leg_process"


class LegSlot(msgspec.Struct, frozen=True):
    """Where one leg at a time runs. ``gpus`` are those that its server sees, as ``CUDA_VISIBLE_DEVICES``
    names them; empty where there are none, or where the cluster sets them."""

    number: int
    gpus: tuple[str, ...] = ()


class SweepEngine(Protocol):
    """Runs legs, one at a time in each of its ``slots``."""

    @property
    def slots(self) -> Sequence[LegSlot]: ...

    async def run(self, leg: Leg, slot: LegSlot) -> LegResult:
        """Run a leg to its end, whatever that is: one that ends without a word has ``failed``.

        Cancelled, it has the leg interrupt its asking and end its server, waits for that, and raises
        CancelledError; cancelled a second time it ends the leg at once.

        Raises
        ------
        StoreError
            the leg's folder cannot be written.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the engine holds. No leg runs any more."""
        ...


def leg_command(folder: Path) -> tuple[str, ...]:
    """What runs the leg of a folder, as this interpreter. Its standard input is a pipe that is to be held
    open: the leg ends with it."""
    return (sys.executable, "-m", _MODULE, str(folder))


def silent_end(leg: Leg, how: str) -> LegResult:
    """Of a leg whose process told no result: ``how`` it ended, as in "was ended by SIGKILL"."""
    problem = f"the leg's process {how} before it told its result; see {leg.folder / 'leg.log'}"
    return LegResult(end="failed", problem=problem)
