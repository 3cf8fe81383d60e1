"""`max_calls` over kills and restarts: the host itself counts, and is never sent one request more."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cli.warm_process import WarmProcess
from flaky_host import Asked, error, hosted
from small_runs import experiment, folder_of, good_lines, run

TOTAL = 120
MODEL = "student-1"
CEILING = 100
KILLS = 2
BLOCK = 32
"""Permits that a kill may waste at most."""


def ceiling_of(calls: int) -> dict[str, Any]:
    """The settings of a run that probes all models, and goes on without those that are spent."""
    return {"quota": {MODEL: {"max_calls": calls}}, "probe_mode": "full", "probe_on_fail": "warn"}


def start(file: Path) -> WarmProcess:
    going_on = ["--continue"] if folder_of(file).meta.exists() else []
    return WarmProcess("run", "--config", file, *going_on, err_to_out=True)


@pytest.mark.slow
async def test_kills_and_restarts_never_pass_the_ceiling(tmp_path: Path) -> None:
    draw = random.Random(5)
    quota = ceiling_of(CEILING)
    async with hosted(latency_s=0.002) as host:
        file = experiment(tmp_path, host.url, total=TOTAL, settings=quota)
        for _ in range(KILLS):
            process = start(file)
            await host.arrived(len(host.asked) + draw.randint(60, 200))
            process.kill()
            await process.output()
            assert host.count(MODEL) <= CEILING
        process = start(file)
        shown = (await process.output()).out
        assert process.returncode == 3, shown
        assert f"experiment.quota.{MODEL}.max_calls" in shown
        assert host.count(MODEL) <= CEILING
        assert host.count(MODEL) >= CEILING - KILLS * BLOCK

        file = experiment(tmp_path, host.url, total=TOTAL, settings=ceiling_of(10 * CEILING))
        process = start(file)
        shown = (await process.output()).out
        assert process.returncode == 0, shown
    assert set(good_lines(folder_of(file)).values()) == {1}


async def test_a_host_that_is_not_there_uses_up_nothing(tmp_path: Path) -> None:
    async with hosted() as host:
        port = int(host.url.rpartition(":")[2].removesuffix("/v1"))
        quota = {name: {"max_calls": calls} for name, calls in (("teacher", 10), (MODEL, 10))}
        file = experiment(tmp_path, host.url, settings={"quota": quota})
    summary = await run(file)  # nobody listens there any more
    assert summary.phases["data_generation"].failed == {"connection": 10}
    used = json.loads(folder_of(file).usage.read_text())["models"]["teacher"]
    assert (used["requests"], used["reserved"]) == (0, 0)
    async with hosted(port=port) as host:
        assert (await run(file, continue_run=True)).exit_code == 0
        assert host.count("teacher") == host.count(MODEL) == 10


async def test_probes_and_retries_count_too(tmp_path: Path) -> None:
    async def every_third_fails(asked: Asked) -> web.StreamResponse | None:
        return error(500) if asked.model == MODEL and not asked.n % 3 else None

    quota = ceiling_of(CEILING)
    async with hosted(fault=every_third_fails) as host:
        file = experiment(tmp_path, host.url, total=TOTAL, settings=quota)
        for times in range(3):
            summary = await run(file, continue_run=times > 0)
            assert summary.exit_code == 3
            assert host.count(MODEL) == CEILING, "to the last one, and never one more"
    left = summary.phases["response_collection"].gaps
    answered = sum(key.endswith(f"__{MODEL}") for key in good_lines(folder_of(file)))
    assert left == {"quota": TOTAL - answered}
