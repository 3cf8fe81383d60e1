"""`kill -9` at what a provider sees of a batch job, at each interface: each request is sent and booked once.

What differs between interfaces is how a job is found whose id was not stored: by a tag, or, at Anthropic, by
custom ids that are told at its end only.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli.batched_interfaces import BATCHED, TOTAL, Batched, BatchingFake, forget, requests_of_jobs
from cli.eval_process import surroundings
from cli.warm_process import WarmProcess
from fakes.anthropic_batches import BatchServer
from fakes.moments import forks
from fakes.threaded import in_a_thread

pytestmark = pytest.mark.slow

KILLS = 6
LONG = 60
"""Looks at a list: more than a host is asked that fails."""
MOMENTS = {
    "as the job arrives": ("create", False),
    "as the job is made": ("create", True),
    "as it is looked at": ("get", True),
    "as results are asked for": ("download", False),
    "as results have gone out": ("download", True),
}


@pytest.fixture(params=[*BATCHED.values()], ids=[*BATCHED])
def batched(request: pytest.FixtureRequest) -> Batched:
    chosen: Batched = request.param
    return chosen


def _start(folder: Path, batched: Batched, *words: object) -> WarmProcess:
    return WarmProcess(*words, cwd=folder, env={**surroundings(folder), **batched.env}, err_to_out=True)


async def _said(process: WarmProcess) -> str:
    return (await process.output()).out


async def _killed_at(
    host: BatchingFake, folder: Path, batched: Batched, moment: tuple[str, bool], file: Path
) -> None:
    """Run until the provider gets to this moment for the first time; what it answers reaches nobody."""
    reached = asyncio.Event()
    process = _start(folder, batched, "run", "--config", file)

    async def watch(kind: str, done: bool) -> None:
        if (kind, done) == moment and not reached.is_set():
            process.kill()
            reached.set()
            await process.ended()

    host.watch = watch
    said = await _said(process)
    host.watch = None
    assert reached.is_set(), f"the run ended by itself: {said}"


def _usage(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "usage.json").read_text())["models"]
    return found


def _evaluations(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for path in (folder / "phase5_evaluations").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def _check_records(folder: Path) -> None:
    """All that was to be judged is, once; what that took is booked once; nothing waits any more."""
    evaluations = _evaluations(folder)
    assert len({record["id"] for record in evaluations}) == len(evaluations) == TOTAL
    assert all(record["scores"] == {"clear": "High", "short": "Low"} for record in evaluations)
    judge = _usage(folder)["judge"]
    assert (judge["requests"], judge["jobs"]) == (TOTAL, {})
    for count in ("input_tokens", "output_tokens"):
        assert judge[count] == sum(record["usage"][count] for record in evaluations)
    assert not (folder / "pending_batches.json").exists()


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_a_kill_neither_loses_nor_repeats(
    batched: Batched, moment: tuple[str, bool], tmp_path: Path
) -> None:
    async with batched.serve() as host:
        file = batched.file(tmp_path, host, batch=True, probe_mode="disable")
        folder = tmp_path / "runs" / "batched"
        await _killed_at(host, tmp_path, batched, moment, file)
        again = _start(tmp_path, batched, "run", "--config", file, "--continue")
        said = await _said(again)
        assert again.returncode == 0, said
        sent = Counter(custom_id for job in requests_of_jobs(host) for custom_id in job)
    assert len(sent) == 2 * TOTAL
    assert set(sent.values()) == {1}
    _check_records(folder)


@pytest.mark.parametrize("interface", ["anthropic", "mistral"])
def test_kills_at_any_moment_on_disk(interface: str, tmp_path: Path) -> None:
    """Of a run whose student and judge both go by batches; at OpenAI, `test_kill_batches.py` does more."""
    batched = BATCHED[interface]
    draw = random.Random(batched.interface)
    with in_a_thread(batched.serve()) as host, forks(**batched.env) as commands:
        folder = tmp_path / "runs" / "batched"
        file = batched.file(tmp_path, host, batch=True, probe_mode="disable")
        whole = commands.run("coeval", "run", "--config", file, below=folder)
        assert whole.code == 0, whole.said
        for moment in sorted(draw.sample(range(1, whole.moments + 1), KILLS)):
            forget(host)
            shutil.rmtree(folder)
            killed = commands.run("coeval", "run", "--config", file, below=folder, at=moment)
            if killed.code == 0:
                continue  # the last moments differ from run to run
            goes_on = ["--continue"] if (folder / "meta.json").exists() else []
            ended = commands.run("coeval", "run", "--config", file, *goes_on, below=folder)
            assert ended.code == 0, f"moment {moment}: {killed.said}\n{ended.said}"
            sent = Counter(custom_id for job in requests_of_jobs(host) for custom_id in job)
            assert (len(sent), set(sent.values())) == (2 * TOTAL, {1}), f"moment {moment}"
            _check_records(folder)


async def test_a_batch_that_may_be_ours_is_waited_for(tmp_path: Path) -> None:
    """At Anthropic: killed as the job was made, which goes on for long; nothing is sent meanwhile."""
    batched = BATCHED["anthropic"]
    async with batched.serve() as host:
        assert isinstance(host, BatchServer)
        host.polls = None
        file = batched.file(tmp_path, host, batch=True, probe_mode="disable", batch_poll_s=[0.01, 0.02])
        await _killed_at(host, tmp_path, batched, ("create", True), file)
        again = _start(tmp_path, batched, "run", "--config", file, "--continue")
        while len(host.lists) < LONG:
            await asyncio.sleep(0.02)
            assert again.poll() is None
        assert len(host.bodies) == 1
        host.polls = 1
        host.end("msgbatch_00001")
        said = await _said(again)
        assert again.returncode == 0, said
        assert [len(job) for job in requests_of_jobs(host)] == [TOTAL, TOTAL]
