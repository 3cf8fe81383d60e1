"""How a leg that a cluster ran came to its end: its own word counts, which may come after the cluster's."""

from __future__ import annotations

import asyncio

from coeval.sweeps.engines.engine import silent_end
from coeval.sweeps.leg import Leg, LegResult
from coeval.sweeps.leg_files import read_result

__all__ = ["LONGEST_END_S", "SHARED_S", "told_end"]

LONGEST_END_S = 40.0
"""A leg whose starter was killed interrupts its asking and ends its server; then it tells its result."""
SHARED_S = 60.0
"""What another machine has written may be seen here so much later, where files are shared by NFS."""
_SOON_S = 5.0
_LOOK_S = 0.2


async def told_end(leg: Leg, how: str, within_s: float = _SOON_S) -> LegResult:
    """The leg's result as soon as it is there; after ``within_s`` that it told none, and ``how`` it ended."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while (result := read_result(leg)) is None and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    return result or silent_end(leg, how)
