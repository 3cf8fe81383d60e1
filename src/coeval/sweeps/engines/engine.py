"""Where the legs of a sweep run: slots, and one coroutine that brings a leg to its end in one of them.

``local`` starts processes on this machine; ``ray`` and ``slurm`` have a cluster start them. Results lie on a
file system that all of them share, so an engine hands over nothing but the leg's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from coeval.sweeps.leg import Leg, LegResult

__all__ = ["LegSlot", "SweepEngine"]


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
