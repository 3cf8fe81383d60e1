"""A task that is answered in parts, by several processes; concluded by one; of checkpoints with one name."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web
from cli.coeval_process import called
from fakes.invented_task import GOOD, JUDGING, Bench, Invented, Onlooker, row_of, spec
from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer, Behaviour, Fault, Server, fake
from test_runner import lines, questions, said, summary

from coeval.benchmarks.benchmark import Item
from coeval.benchmarks.run.eval_spec import EvalSpec, Shard, TaskRequest
from coeval.benchmarks.run.runner import ask_owed, lock_folders_and_merge_shards, prepare_evaluation
from coeval.benchmarks.run.task_folder import TaskFolder
from coeval.benchmarks.run.task_summary import Outcome, conclude
from coeval.benchmarks.task_registry import TASKS
from coeval.core.errors import StoreError, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Purpose, SamplingParameters
from coeval.engine.probing import Probing
from coeval.models.batch.job_list import BatchMode, PollPace
from coeval.models.keys import Keys
from coeval.models.metering.account_file import read_accounts
from coeval.models.transport.http import SharedHosts


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "out", monkeypatch)


async def ask(bench: Bench, server: Server, **changes: Any) -> None:
    """As a worker does: the answers alone, without figures."""
    evaluation = bench.evaluation(server.url, mode="inference", judge=None, **changes)
    prepared = prepare_evaluation(evaluation, bench.onlooker)
    with lock_folders_and_merge_shards(prepared):
        await ask_owed(prepared, Keys.load(None, env={}, cwd=bench.output, home=bench.output), bench.onlooker)


def part(bench: Bench, name: str) -> Path:
    return bench.output / "invented" / "shards" / name


async def test_parts_are_answered_apart_and_concluded_together(bench: Bench) -> None:
    async with fake(reply=said) as server:
        for index in (0, 1):
            account = bench.output / f"part_{index}"
            await ask(bench, server, shard=Shard(index, 2), account=account)
            assert (account / "usage.json").exists()
        assert [len(lines(part(bench, f"{n}_of_2") / "responses.jsonl")) for n in (0, 1)] == [2, 1]
        requested = len(questions(server, "tested"))
        outcome = await bench.run(server.url, mode="conclude")
        assert (requested, len(questions(server, "tested"))) == (3, 3)
    assert outcome.exit_code == 0
    assert not (bench.output / "invented" / "shards").exists()
    assert {line["id"] for line in lines(bench.output / "invented" / "responses.jsonl")} == {"q0", "q1", "q2"}
    assert summary(bench)["metrics"]["share_good"]["value"] == pytest.approx(2 / 3)
    assert summary(bench)["inference"]["parts"]["parameters.max_tokens (student)"] == "99"


async def test_other_parts_ask_only_for_what_no_part_has_answered(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await ask(bench, server, shard=Shard(0, 2))
        await bench.run(server.url, mode="conclude")
        await ask(bench, server, shard=Shard(0, 3))
        assert questions(server, "tested") == ["Prompt 0", "Prompt 2"]
        await ask(bench, server, shard=Shard(1, 3))
        assert questions(server, "tested") == ["Prompt 0", "Prompt 1", "Prompt 2"]


async def test_parts_taken_in_twice_are_there_once(bench: Bench) -> None:
    """A kill between the last answer taken in and the end of the part's folder."""
    async with fake(reply=said) as server:
        await ask(bench, server, shard=Shard(0, 2))
        kept = bench.output.parent / "kept"
        shutil.copytree(part(bench, "0_of_2"), kept)
        await bench.run(server.url, mode="conclude")
        shutil.copytree(kept, part(bench, "0_of_2"))
        await bench.run(server.url, mode="conclude")
    assert [line["id"] for line in lines(bench.output / "invented" / "responses.jsonl")] == ["q0", "q2"]


async def test_a_part_that_another_works_on_stays_whole(bench: Bench) -> None:
    async with fake(reply=said) as server:
        for index in (0, 1):
            await ask(bench, server, shard=Shard(index, 2))
        busy = TaskFolder(part(bench, "0_of_2"))
        with busy.hold_lock():
            TaskFolder(bench.output / "invented").merge_shards()
            assert len(lines(busy.responses)) == 2
        assert not part(bench, "1_of_2").exists()
        TaskFolder(bench.output / "invented").merge_shards()
    assert not busy.path.parent.exists()
    assert len(lines(bench.output / "invented" / "responses.jsonl")) == 3


async def test_answers_that_cannot_be_taken_in_are_told(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await ask(bench, server, shard=Shard(0, 2))
    (bench.output / "invented" / "responses.jsonl").mkdir()
    with pytest.raises(StoreError, match=r"responses\.jsonl"):
        TaskFolder(bench.output / "invented").merge_shards()
    assert len(lines(part(bench, "0_of_2") / "responses.jsonl")) == 2


async def test_answers_of_other_settings_do_not_mix(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url)
        await ask(bench, server, shard=Shard(0, 1), sampling={"temperature": 0.1})
        await bench.run(server.url, mode="conclude", sampling={"temperature": 0.1})
        folder = bench.output / "invented"
        assert {line["sampling"]["temperature"] for line in lines(folder / "responses.jsonl")} == {0.1}
        assert len(lines(next(folder.glob("responses.tested-*.jsonl")))) == 3


async def test_concluding_asks_for_no_answer_that_failed(bench: Bench) -> None:
    def refuses(messages: list[dict[str, Any]]) -> Behaviour:
        return Fault(400) if messages[-1]["content"].startswith("Prompt") else Answer("ok")

    async with fake(reply=refuses) as server:
        await ask(bench, server)
    async with fake(reply=said) as server:
        outcome = await bench.run(server.url, mode="conclude")
        assert questions(server, "tested") == []
    assert outcome.exit_code == 3
    assert sum(summary(bench)["missing"].values()) == 3


async def test_checkpoints_served_under_one_name_are_two(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url, checkpoint="/ckpt/step_10")
        assert summary(bench)["model"] == "/ckpt/step_10"
        assert {body["model"] for body in server.bodies} == {"tested", "judge-1"}
        with pytest.raises(UsageError, match=r"answers of /ckpt/step_10, not of /ckpt/step_20") as refused:
            await bench.run(server.url, checkpoint="/ckpt/step_20")
    assert "--checkpoint /ckpt/step_10" in str(refused.value)


def test_a_record_says_which_checkpoint_it_is_of(bench: Bench) -> None:
    first, second = (
        prepare_evaluation(
            bench.evaluation("http://127.0.0.1:1/v1", checkpoint=name), bench.onlooker
        ).task_runs[0]
        for name in ("/ckpt/a", "/ckpt/b")
    )
    assert first.tested is not None
    assert second.tested is not None
    assert first.tested.recipe.hash != second.tested.recipe.hash
    assert json.dumps(first.tested.recipe.parts).count("/ckpt/a") == 1


# Several evaluations at a time in one event loop, with one judge: what they share, and what not.

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
    prepared = prepare_evaluation(evaluation_of(folder, url), onlooker)
    keys = Keys.load(None, env={}, cwd=folder, home=folder)
    with lock_folders_and_merge_shards(prepared):
        return conclude(prepared, await ask_owed(prepared, keys, onlooker, interrupt, hosts))


@pytest.fixture
def _many_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS.own, ManyPrompts.name, row_of(ManyPrompts))
    monkeypatch.setattr("coeval.engine.session.DRAIN_S", 0.05)


@pytest.mark.process
@pytest.mark.usefixtures("_many_prompts")
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


@pytest.mark.process
@pytest.mark.usefixtures("_many_prompts")
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


# A benchmark whose answers, judgments or both go by batch jobs.


def says(body: dict[str, Any]) -> Answer:
    text = body["messages"][-1]["content"]
    if text.startswith(JUDGING):
        return Answer("bad" if "Prompt 2" in text else "good")
    return Answer(f"Answer to {text}")


def models(url: str) -> dict[str, Any]:
    return {
        "tested": spec("tested", url, access_key="k"),
        "judge": spec("judge-1", url, access_key="k"),
        "probing": Probing("disable"),
    }


@pytest.fixture
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PollPace, "pauses", lambda _: repeat(0.01))


@pytest.mark.process
@pytest.mark.usefixtures("looked_at_often")
@pytest.mark.parametrize("batched", [{"evaluation"}, {"response_collection", "evaluation"}])
async def test_answers_and_judgments_by_batches_score_alike(bench: Bench, batched: set[Purpose]) -> None:
    async with openai_batches() as host:
        host.says = says
        outcome = await bench.run(host.url, batched=frozenset(batched), **models(host.url))
    assert outcome.exit_code == 0
    assert len(host.jobs) == len(batched)
    found = json.loads((bench.output / "invented" / "summary.json").read_text())
    assert found["n_scored"] == 3
    assert set(Counter(item[0] for job in host.jobs.values() for item in job.items).values()) == {1}
    assert not (bench.output / "batches").exists()


@pytest.mark.process
@pytest.mark.usefixtures("looked_at_often")
async def test_judging_is_submitted_now_and_collected_later(bench: Bench) -> None:
    async with openai_batches() as host:
        host.says = says
        host.states = ("in_progress",)
        needed = frozenset[Purpose]({"evaluation"})
        outcome = await bench.run(host.url, batched=needed, batch_mode=BatchMode.SUBMIT, **models(host.url))
        assert outcome.exit_code == 3
        assert [job.requests for job in outcome.batches] == [3]
        host.states = ("completed",)
        outcome = await bench.run(host.url, batched=needed, **models(host.url))
    assert outcome.exit_code == 0
    assert len(host.jobs) == 1


async def test_a_host_without_batches_is_refused_before_anything_is_asked(bench: Bench) -> None:
    judge = ModelSpec(name="j", interface="groq", model="j", access_key="k")
    with pytest.raises(UsageError, match="the interface groq has no Batch API here"):
        await bench.run("http://127.0.0.1:9/v1", batched=frozenset({"evaluation"}), judge=judge)


# The account of an evaluation over its starts: what was asked once is paid once.

PRICES = {"overrides": {"m": {"input_usd_per_mtok": 100.0, "output_usd_per_mtok": 100.0}}}


@pytest.fixture
def priced_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "Config").mkdir()
    (tmp_path / "Config" / "provider_pricing.yaml").write_text(json.dumps(PRICES))
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path / "out", monkeypatch)


@pytest.mark.process
@pytest.mark.parametrize("checkpoint", [None, "step-100"])
@pytest.mark.parametrize("apart", [True, False])
async def test_no_start_and_no_settling_books_what_is_booked_already(
    priced_bench: Bench, apart: bool, checkpoint: str | None
) -> None:
    """A judge of the same model elsewhere has an account of its own, and a checkpoint has none."""
    async with fake(reply=said) as server, fake(reply=said) as elsewhere:
        judge = spec("m", elsewhere.url, name="m (judge)") if apart else None
        given: dict[str, Any] = {"tested": spec("m", server.url), "judge": judge, "checkpoint": checkpoint}
        assert (await priced_bench.run(server.url, **given)).exit_code == 0
        usage = priced_bench.output / "usage.json"
        first = {name: row.spent_usd for name, row in read_accounts(usage).items()}
        assert all(first.values())
        assert len(first) == 1 + apart
        await priced_bench.run(server.url, **given)
        assert {name: row.spent_usd for name, row in read_accounts(usage).items()} == pytest.approx(first)
    bill = f"m={first['m']}"
    settled = await called(
        priced_bench.output.parent, "status", "--run", priced_bench.output, "--settle", bill
    )
    assert settled.code == 0, settled.err
    assert {name: row.spent_usd for name, row in read_accounts(usage).items()} == pytest.approx(first)
