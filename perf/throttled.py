"""What the throttle across processes takes of the CPU for a call, where it lets every call pass.

python -m perf.run throttle
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.models.pacing.throttle import Throttle
from coeval.models.transport.http import Http, SharedHosts
from perf.measure import run, serving
from perf.scenarios import Figures

__all__ = ["throttle"]

CALLS, IN_FLIGHT, LATENCY_S = 20_000, 128, 0.02
INTERVAL_S = 2e-5
"""50,000 calls a second: more than are made, so what is measured is looking after it, not waiting."""


async def cpu_per_call(url: str, throttle: Throttle | None) -> float:
    """Seconds of this process's CPU for one call, connections made."""
    spec = ModelSpec(
        name="m", interface="vllm", model="m", base_url=url,
        max_concurrency=IN_FLIGHT, start_concurrency=IN_FLIGHT,
    )  # fmt: skip
    keys = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))
    request = Request(messages=(Message("user", "Why do trees grow tall? " * 20),))
    async with (
        SharedHosts(throttle=throttle) as hosts,
        Models([spec], keys, http=Http(hosts=hosts)) as models,
    ):
        left = IN_FLIGHT

        async def ask() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await models["m"].complete(request)

        await asyncio.gather(*(ask() for _ in range(IN_FLIGHT)))
        left, began = CALLS, time.process_time()
        await asyncio.gather(*(ask() for _ in range(IN_FLIGHT)))
        return (time.process_time() - began) / CALLS


def throttle(folder: Path) -> Figures:
    """Five pairs, with and without it, each in a process of its own."""
    with serving(LATENCY_S) as url:
        found: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(5):
            for how, costs in found.items():
                run([sys.executable, "-m", "perf.throttled", url, how], folder)
                costs.append(float((folder / "output.txt").read_text()))
    ratio = median(with_it / plain for plain, with_it in zip(*found.values(), strict=True))
    plain, with_it = (median(costs) * 1e6 for costs in found.values())
    return Figures(
        ratio, f"{with_it:.1f} µs of CPU a call, {plain:.1f} without it (median ratio {ratio:.2f})"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as state:
        shared = Throttle(INTERVAL_S, Path(state, "state")) if sys.argv[2] == "with" else None
        print(uvloop.run(cpu_per_call(sys.argv[1], shared)))
