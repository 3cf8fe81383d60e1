"""The judging process of a sweep, as the sweep starts and ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.sweeps.judge_worker import JudgingProcess

LISTENS = (sys.executable, "-c", "import sys; sys.stdin.read()")


async def test_closed_while_it_is_started_it_is_given_nothing(tmp_path: Path) -> None:
    judge_worker = JudgingProcess(LISTENS, tmp_path / "judging.log", os.environ)
    order = asyncio.create_task(judge_worker.conclude("step_1 ifeval", EvalSpec(output=tmp_path, tasks=())))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await judge_worker.aclose()
        assert (await order).interrupted
    assert (await judge_worker.conclude("step_2 ifeval", EvalSpec(output=tmp_path, tasks=()))).interrupted
