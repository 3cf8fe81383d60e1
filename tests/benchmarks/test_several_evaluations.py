"""Several evaluations at a time in one event loop, with one judge: what they share, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web
from fakes.invented_task import GOOD, JUDGING, Invented, Onlooker, row_of, spec

from coeval.benchmarks.benchmark import Item
from coeval.benchmarks.run.conclusion import Outcome, conclude
from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.benchmarks.run.runner import ask_owed, held, prepare
from coeval.benchmarks.task_registry import TASKS
from coeval.core.records import Message, SamplingParameters
from coeval.models.keys import Keys
from coeval.models.transport.shared_hosts import SharedHosts

PROMPTS, MOST, ANSWER_S = 100, 16, 0.02


class ManyPrompts(Invented):
    name: ClassVar[str] = "many-prompts"

    def items(self) -> Sequence[Item]:
        return [Item(f"q{n}", (Message("user", f"Prompt {n}"),)) for n in range(PROMPTS)]


@dataclass
class CrowdedHost:
    """It refuses what comes while it serves ``MOST`` requests; ``ends`` are its status codes in order."""

    url: str = ""
    serving: int = 0
    ends: list[int] = field(default_factory=list)
    judging: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        judges = body["messages"][-1]["content"].startswith(JUDGING)
        if self.serving >= MOST:
            self.ends.append(429)
            return web.json_response({"error": {"message": "too many requests"}}, status=429)
        self.serving += 1
        try:
            await asyncio.sleep(ANSWER_S)
        finally:
            self.serving -= 1
        self.ends.append(200)
        if judges:
            self.judging.set()
        text = GOOD if judges else "An answer"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})


@asynccontextmanager
async def crowded_host() -> AsyncIterator[CrowdedHost]:
    host, app = CrowdedHost(), web.Application()
    app.router.add_post("/v1/chat/completions", host.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield host
    finally:
        await runner.cleanup()


def evaluation_of(output: Path, url: str) -> EvalSpec:
    """Its folder is made."""
    output.mkdir()
    return EvalSpec(
        output=output,
        tasks=(TaskRequest(name=ManyPrompts.name),),
        tested=spec("tested", url),
        judge=spec("judge-1", url),
        sampling=SamplingParameters(temperature=0.7, max_tokens=99),
    )


async def evaluate(
    folder: Path, url: str, hosts: SharedHosts | None, interrupt: asyncio.Event | None = None
) -> Outcome:
    """Ask and judge in a folder of its own."""
    onlooker = Onlooker()
    prepared = prepare(evaluation_of(folder, url), onlooker)
    keys = Keys.load(None, env={}, cwd=folder, home=folder)
    with held(prepared):
        return conclude(prepared, await ask_owed(prepared, keys, onlooker, interrupt, hosts))


@pytest.fixture(autouse=True)
def _many_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS.own, ManyPrompts.name, row_of(ManyPrompts))
    monkeypatch.setattr("coeval.engine.session.DRAIN_S", 0.05)


async def test_evaluations_that_share_hosts_settle_at_the_one_window_that_the_host_takes(
    tmp_path: Path,
) -> None:
    async with crowded_host() as host, SharedHosts() as hosts, asyncio.TaskGroup() as group:
        tasks = [group.create_task(evaluate(tmp_path / f"{n}", host.url, hosts)) for n in range(5)]
    assert [task.result().exit_code for task in tasks] == [0] * 5
    assert host.ends.count(200) == 5 * (2 * PROMPTS + 2), "each is asked and judged once, and probed"
    assert host.ends.count(429) < len(host.ends) / 20, "a fifth of them where each has limits of its own"
    second_half = host.ends[len(host.ends) // 2 :]
    assert second_half.count(429) < len(second_half) / 50


async def test_one_that_is_interrupted_or_ends_leaves_the_others_their_hosts(tmp_path: Path) -> None:
    interrupt = asyncio.Event()
    async with asyncio.timeout(60), crowded_host() as host, SharedHosts() as hosts:
        stopped = asyncio.create_task(evaluate(tmp_path / "stopped", host.url, hosts, interrupt))
        going_on = [asyncio.create_task(evaluate(tmp_path / f"{n}", host.url, hosts)) for n in range(2)]
        await host.judging.wait()
        interrupt.set()
        assert (await stopped).exit_code == 130
        assert [(await task).exit_code for task in going_on] == [0, 0]
        assert (await evaluate(tmp_path / "later", host.url, hosts)).exit_code == 0
