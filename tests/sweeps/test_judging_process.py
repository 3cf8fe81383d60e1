"""The judging process of a sweep, as the sweep starts and ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.sweeps.judging_run import JudgingProcess

pytestmark = pytest.mark.process


LISTENS = (sys.executable, "-c", "import sys; sys.stdin.read()")


async def test_closed_while_it_is_started_it_is_given_nothing(tmp_path: Path) -> None:
    judge_worker = JudgingProcess(LISTENS, tmp_path / "judging.log", os.environ)
    order = asyncio.create_task(judge_worker.conclude("step_1 ifeval", EvalSpec(output=tmp_path, tasks=())))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await judge_worker.aclose()
        assert (await order).interrupted
    assert (await judge_worker.conclude("step_2 ifeval", EvalSpec(output=tmp_path, tasks=()))).interrupted


# The judging process as the sweep sees it: what dies with it is told, and takes others along but once.

STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    name = json.loads(line)["name"]
    with open(sys.argv[1], "a") as told:
        told.write(name + "\\n")
    if name == "deadly":
        time.sleep(0.3)
        os.kill(os.getpid(), 9)
    if name != "slow" or os.path.exists("again"):
        print("a warning of some package", flush=True)
        print(json.dumps({"type": "concluded", "name": name, "samples": [{"run": 0}]}), flush=True)
    else:
        open("again", "w").close()
"""


async def test_orders_that_died_together_go_one_by_one(tmp_path: Path) -> None:
    reported = tmp_path / "told"
    environment = {**os.environ, "PWD": str(tmp_path)}
    script = f"import os; os.chdir({str(tmp_path)!r}){STAND_IN}"
    command = (sys.executable, "-c", script, str(reported))
    judging = JudgingProcess(command, tmp_path / "judging.log", environment)
    evaluation = EvalSpec(output=tmp_path, tasks=())

    def order(name: str) -> asyncio.Task[str]:
        async def concluded() -> str:
            return (await judging.conclude(name, evaluation)).problem

        return asyncio.create_task(concluded())

    slow = order("slow")
    await asyncio.sleep(0.2)
    deadly = order("deadly")
    problems = [await slow, await deadly]
    assert all("ended before it had concluded this" in problem for problem in problems)
    again = [order("deadly"), order("slow"), order("other")]
    assert [bool(await each) for each in again] == [True, False, False], "only the one that is deadly"
    await judging.aclose()
    assert (await judging.conclude("late", evaluation)).interrupted
