"""An output folder belongs to one model, and a start that comes to nothing leaves it as it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fakes.invented_task import Bench, spec
from fakes.openai_chat import Answer, Broken, Server, fake

from coeval.benchmarks.run.eval_spec import TaskRequest
from coeval.core.errors import ModelUnavailable, UsageError


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "out", monkeypatch)


def good(_: list[dict[str, Any]]) -> Answer:
    return Answer("good")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below it, and every folder, but for what a probe finds and what it sends."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name not in ("probe_results.json", "usage.json")
    }


async def refused(bench: Bench, server: Server, *tasks: str, **changes: Any) -> str:
    """What is said of another model; nothing may have been asked, made or moved."""
    before, requested = contents(bench.output), len(server.requested)
    with pytest.raises(UsageError) as refusal:
        await bench.run(server.url, *tasks, **{"tested": spec("other", server.url), **changes})
    assert contents(bench.output) == before
    assert len(server.requested) == requested
    return str(refusal.value)


@pytest.mark.parametrize(
    ("tasks", "changes"),
    [
        (["invented"], {}),
        (["broken"], {}),  # another task in the same folder
        (["invented"], {"num_runs": 2}),
        (["invented"], {"mode": "inference"}),
        (["invented"], {"mode": "judge"}),
        (["invented"], {"sampling": {"temperature": 0.1}}),
    ],
)
async def test_another_model_is_refused_before_anything_is_touched(
    bench: Bench, tasks: list[str], changes: dict[str, Any]
) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url)
        said = await refused(bench, server, *tasks, **changes)
    assert "holds answers of tested, not of other" in said
    assert "another --output-dir for other, or --model tested" in said


async def test_samples_claim_the_folder_as_a_single_run_does(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url, num_runs=2)
        assert "run_0/invented/responses.jsonl" in await refused(bench, server)
        assert "not of other" in await refused(bench, server, num_runs=2)


@pytest.mark.parametrize("lost", ["summary.json", "responses.jsonl"])
async def test_either_of_answers_and_summary_says_whose_they_are(bench: Bench, lost: str) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url)
        (bench.output / "invented" / lost).unlink()
        assert "answers of tested" in await refused(bench, server)


async def test_a_folder_whose_answers_were_thrown_away_is_free(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url)
        for path in (bench.output / "invented").iterdir():
            path.unlink()
        outcome = await bench.run(server.url, tested=spec("other", server.url))
    assert outcome.exit_code == 0


async def test_a_model_is_the_same_wherever_it_is_served_and_whoever_judges(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url)
    async with fake(reply=good) as elsewhere:
        assert (await bench.run(elsewhere.url)).exit_code == 0
        assert elsewhere.requested == []
        assert (await bench.run(elsewhere.url, judge=spec("judge-2", elsewhere.url))).exit_code == 0
        assert {body["model"] for body in elsewhere.bodies} == {"judge-2"}


async def test_judging_stored_answers_needs_no_model_and_takes_theirs(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url, mode="inference")
        said = await refused(bench, server, mode="judge")
        assert "or no --model beside --judge-model" in said
        outcome = await bench.run(server.url, mode="judge", tested=None)
    assert outcome.tasks[0].summary is not None
    assert outcome.tasks[0].summary.model == "tested"


async def test_a_summary_without_answers_is_not_judged(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url, mode="inference")
        (bench.output / "invented" / "responses.jsonl").unlink()
        with pytest.raises(UsageError, match=r"holds no responses\.jsonl to judge"):
            await bench.run(server.url, mode="judge", tested=None)


@pytest.mark.parametrize("content", ["", "{", '{"model": 5}', "[]"])
async def test_a_damaged_summary_claims_nothing(bench: Bench, content: str) -> None:
    (bench.output / "invented").mkdir(parents=True)
    (bench.output / "invented" / "summary.json").write_text(content)
    async with fake(reply=good) as server:
        assert (await bench.run(server.url)).exit_code == 0


async def test_answers_are_not_moved_aside_before_the_model_answers(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url)
        before = contents(bench.output)
    async with fake(models={"judge-1"}) as server:
        with pytest.raises(ModelUnavailable, match="tested"):
            await bench.run(server.url, sampling={"temperature": 0.1})
    assert contents(bench.output) == before


async def test_a_start_that_fails_leaves_what_it_found_and_what_it_spent(bench: Bench) -> None:
    folder = bench.output / "invented"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    async with fake(models={"judge-1"}) as server:
        with pytest.raises(ModelUnavailable):
            await bench.run(server.url, "invented", "broken", num_runs=2)
    assert {path.name for path in bench.output.iterdir()} == {
        "invented", "probe_results.json", "usage.json"
    }  # fmt: skip
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


class Files:
    """Given responses to the prompts of IFEval and IFBench."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.folder = folder
        self.prompts = folder / "prompts.jsonl"
        item = {"key": 1, "prompt": "Hi.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        self.prompts.write_text(json.dumps(item) + "\n")

    def request(self, task: str, name: str) -> TaskRequest:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"key": 1, "response": f"from {name}"}) + "\n")
        return TaskRequest(name=task, given={f"{task}/prompts": self.prompts}, responses=path)

    async def score(self, *requests: TaskRequest, **changes: Any) -> None:
        how: dict[str, Any] = {"tested": None, "judge": None, "sampling": {}, **changes}
        await self.bench.run("http://127.0.0.1:9/v1", tasks=requests, **how)


@pytest.fixture
def files(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    for name in ("HF_ENDPOINT", "COEVAL_GITHUB_MIRROR", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    return Files(bench, tmp_path)


@pytest.mark.process
async def test_a_second_file_of_answers_does_not_replace_the_first(files: Files) -> None:
    await files.score(files.request("ifeval", "a/out.jsonl"))
    before = contents(files.bench.output)
    with pytest.raises(UsageError, match=r"a/out\.jsonl, not of .*b/out\.jsonl.*another --output-dir"):
        await files.score(files.request("ifeval", "b/out.jsonl"))
    with pytest.raises(UsageError, match="not of qwen"):
        await files.score(
            files.request("ifeval", "b/out.jsonl"), tested=spec("qwen", "http://127.0.0.1:9/v1")
        )
    assert contents(files.bench.output) == before


@pytest.mark.process
async def test_a_file_may_be_changed_and_scored_again(files: Files) -> None:
    request = files.request("ifeval", "out.jsonl")
    await files.score(request)
    assert request.responses is not None
    request.responses.write_text(json.dumps({"key": 1, "response": "better"}) + "\n")
    await files.score(request)
    [line] = (files.bench.output / "ifeval" / "responses.jsonl").read_text().splitlines()
    assert json.loads(line)["response"] == "better"


@pytest.mark.process
async def test_one_models_answers_may_come_from_several_files(files: Files) -> None:
    await files.score(files.request("ifeval", "m_ifeval.jsonl"), files.request("ifbench", "m_ifbench.jsonl"))
    named = spec("m", "http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match=r"not of m,"):  # which of the files are m's was not said then
        await files.score(files.request("ifbench", "m_ifbench.jsonl"), tested=named)


@pytest.mark.process
async def test_files_of_a_named_model_claim_the_whole_folder(files: Files) -> None:
    qwen, other = (spec(name, "http://127.0.0.1:9/v1") for name in ("qwen", "other"))
    await files.score(files.request("ifeval", "out.jsonl"), tested=qwen)
    await files.score(files.request("ifbench", "out.jsonl"), tested=qwen)
    with pytest.raises(UsageError, match="answers of qwen, not of other"):
        await files.score(files.request("ifbench", "other.jsonl"), tested=other)
    with pytest.raises(UsageError, match="answers of qwen, not of other"):
        await files.bench.run("http://127.0.0.1:9/v1", "invented", tested=other)


async def test_stopped_while_the_model_is_probed_nothing_was_moved(bench: Bench) -> None:
    async with fake(reply=good) as server:
        await bench.run(server.url)
        before = contents(bench.output)
    interrupt = asyncio.Event()
    async with fake(Broken.HANG, reply=good) as server:
        waiting = asyncio.create_task(
            bench.run(server.url, sampling={"temperature": 0.1}, interrupt=interrupt)
        )
        await server.arrived(1)
        interrupt.set()
        assert (await waiting).exit_code == 130
    assert contents(bench.output) == before
