"""A task that is answered in parts, by several processes; concluded by one; of checkpoints with one name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fakes.invented_task import Bench
from fakes.openai_chat import Answer, Behaviour, Fault, Server, fake
from test_runner import lines, questions, said, summary

from coeval.benchmarks.run.eval_spec import Shard
from coeval.benchmarks.run.runner import ask_owed, held, prepare
from coeval.benchmarks.run.task_folder import TaskFolder
from coeval.core.errors import StoreError, UsageError
from coeval.models.keys import Keys


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "out", monkeypatch)


async def ask(bench: Bench, server: Server, **changes: Any) -> None:
    """As a worker does: the answers alone, without figures."""
    evaluation = bench.evaluation(server.url, mode="inference", judge=None, **changes)
    prepared = prepare(evaluation, bench.onlooker)
    with held(prepared):
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
        asked = len(questions(server, "tested"))
        outcome = await bench.run(server.url, mode="conclude")
        assert (asked, len(questions(server, "tested"))) == (3, 3)
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
        with busy.locked():
            TaskFolder(bench.output / "invented").take_in_shards()
            assert len(lines(busy.responses)) == 2
        assert not part(bench, "1_of_2").exists()
        TaskFolder(bench.output / "invented").take_in_shards()
    assert not busy.path.parent.exists()
    assert len(lines(bench.output / "invented" / "responses.jsonl")) == 3


async def test_answers_that_cannot_be_taken_in_are_told(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await ask(bench, server, shard=Shard(0, 2))
    (bench.output / "invented" / "responses.jsonl").mkdir()
    with pytest.raises(StoreError, match=r"responses\.jsonl"):
        TaskFolder(bench.output / "invented").take_in_shards()
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
        prepare(bench.evaluation("http://127.0.0.1:1/v1", checkpoint=name), bench.onlooker).task_runs[0]
        for name in ("/ckpt/a", "/ckpt/b")
    )
    assert first.tested is not None
    assert second.tested is not None
    assert first.tested.recipe.hash != second.tested.recipe.hash
    assert json.dumps(first.tested.recipe.parts).count("/ckpt/a") == 1
