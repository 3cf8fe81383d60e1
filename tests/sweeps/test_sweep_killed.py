"""Kills and interruptions of a sweep and of its processes: what is finished stays, each job is done once, and
nothing is left running."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from left_behind import MARK, marked, none_left
from sweeping import JUDGE, Sweeping, judge_host, needs

pytestmark = pytest.mark.slow

STEPS = (30, 50, 70)


class Marked(Sweeping):
    """Of which all processes can be told."""

    mark: str = ""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), MARK: self.mark}

    def of(self, what: str) -> list[int]:
        return [pid for pid, command in marked(self.mark).items() if what in command]


@pytest.fixture
def sweeping(tmp_path: Path) -> Marked:
    made = Marked(tmp_path, prompts=24)
    made.mark = uuid.uuid4().hex
    made.trained(*STEPS)
    made.words = ["--slots", "2", "--num-threads", "4", "--no-plot"]
    made.server_options = "latency_s=0.1"
    return made


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def done_once(sweeping: Sweeping, tasks: dict[str, int]) -> None:
    """Every job is concluded, by one line of the journal; no prompt is answered twice."""
    wanted = sorted((step, task, run) for step in STEPS for task, n in tasks.items() for run in range(n))
    assert sweeping.concluded() == wanted
    for step, task, run in wanted:
        answered = Counter(line["id"] for line in sweeping.answers(step, task, run) if line["response"])
        assert set(answered.values()) == {1}, (step, task, run)


async def test_killed_at_random_moments_a_sweep_does_each_job_once(sweeping: Marked) -> None:
    needs("alpaca-eval/judge", "alpaca-eval/baseline")
    chance = random.Random(5)
    tasks = ("--tasks", "ifeval,alpaca-eval", "--n-samples", "ifeval=2", "--max-examples", "24")
    early = ["worker_process"] * 5 + ["sweep"] * 4
    chance.shuffle(early)
    struck: Counter[str] = Counter()
    async with judge_host([f"{JUDGE}:latency_s=1"]) as judge:
        process = sweeping.start(*tasks, *judge.flags)
        for target in (*early, "judging_process", "sweep", "judging_process", "judging_process"):
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            while not (pids := [process.pid] if target == "sweep" else sweeping.of(target)):
                assert process.poll() is None, (target, process.so_far())
                await asyncio.sleep(0.05)
            kill(chance.choice(pids))
            struck[target] += 1
            if target == "sweep":
                await process.output()
                process = sweeping.start(*tasks, *judge.flags)
        await process.output()
        ended = await sweeping.run(*tasks, *judge.flags)
    assert ended.code == 0, ended
    assert struck == {"worker_process": 5, "sweep": 5, "judging_process": 3}
    done_once(sweeping, {"ifeval": 2, "alpaca-eval": 1})
    none_left(sweeping.mark)
    assert not list(sweeping.out.rglob("server.json"))


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_ends_workers_and_keeps_what_is_finished(sweeping: Marked, times: int) -> None:
    if times == 2:
        sweeping.served_otherwise("latency_s=3")  # so that the first one is still waiting for answers
    process = sweeping.start()
    while not sweeping.answers(30, "ifeval"):
        assert process.poll() is None, process.so_far()
        await asyncio.sleep(0.05)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.3)
    err = (await process.output()).err
    assert process.wait() == 130, err
    assert ("Interrupted; what" if times == 1 else "Stopped at once; what") in err, err
    assert "was finished is on disk, and the same command goes on from there" in err
    none_left(sweeping.mark)
    kept = sweeping.answers(30, "ifeval")
    assert kept
    sweeping.served_otherwise("")
    ended = await sweeping.run()
    assert ended.code == 0, ended
    assert sweeping.answers(30, "ifeval")[: len(kept)] == kept, "nothing is asked again"
    done_once(sweeping, {"ifeval": 2})


async def test_a_second_sweep_is_told_who_is_at_work(sweeping: Marked) -> None:
    first = sweeping.start()
    while not sweeping.of("worker_process"):
        assert first.poll() is None, first.so_far()
        await asyncio.sleep(0.05)
    second = await sweeping.run()
    assert second.code == 1
    assert f"is in use by process {first.pid} on" in second.err
    status = await sweeping.run("--status")
    assert f"process {first.pid} is at work on it" in status.out
    kill(first.pid)
    await first.output()
    none_left(sweeping.mark)
