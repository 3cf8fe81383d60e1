"""What holds no key stays as it is: real answers, code, whatever key a user has, and the scores with them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.coeval_process import called
from fakes.openai_chat import Answer, fake
from pipeline.experiments import Lab, content, model, over_http, quiz, served, task
from test_redaction import KINDS

from coeval.benchmarks.assets import Library, Presence, read_records
from coeval.core.redaction import REDACTED, Redactor

ROOT = Path(__file__).parents[2]
PLAIN = (
    "test", "sk-test", "EMPTY", "none", "ollama", "lm-studio", "not-needed", "local", "high", "medium",
    "plot", "red", "12345678", "xxxxxxxxxxxx", "sk-no-key-required",
)  # fmt: skip
"""Keys that people give to servers which want none."""


def strong_secrets() -> list[str]:
    """Six keys of each kind."""
    return [kind(random.Random(f"{name} {number}")) for name, kind in KINDS.items() for number in range(6)]


def sources() -> Iterator[Path]:
    for pattern in ("src/**/*.py", "docs/**/*.md", "examples/*", "benchmark/*.yaml", "*.lock", "*.md"):
        yield from (path for path in ROOT.glob(pattern) if path.is_file())


def test_code_prose_hashes_and_addresses_are_answers_as_they_are() -> None:
    redactor = Redactor(strong_secrets())
    paths = list(sources())
    assert len(paths) > 300
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert redactor.answer(text) == text, path


@pytest.mark.slow
@pytest.mark.parametrize(
    "asset", ["arena-hard/baseline_o3_mini", "arena-hard/baseline_gemini", "alpaca-eval/baseline"]
)
def test_real_answers_of_models_stay_as_they_are(asset: str) -> None:
    presence, path = Library().presence(asset)
    if presence is not Presence.READY:
        pytest.skip(f"needs the benchmark's data: coeval datasets fetch {asset}")
    redactor = Redactor(strong_secrets())
    read = 0
    for record in read_records(path):
        for text in _texts(record):
            read += 1
            assert redactor.answer(text) == text
    assert read > 1000


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)


@pytest.mark.slow
async def test_a_key_that_is_a_plain_word_changes_no_record_and_no_score(tmp_path: Path) -> None:
    """The words stand in prompts, labels and verdicts, and one run has each of them for a key."""
    models = [model("ann"), model("ben")]
    async with served(models) as host:

        async def run(name: str, key: str | None) -> Lab:
            entries = [over_http(entry, host) | ({"access_key": key} if key else {}) for entry in models]
            said = f"Use the words {', '.join(PLAIN)}."
            tasks = [task(description=said), quiz(description=said)]
            lab = Lab(tmp_path / name, models=entries, tasks=tasks)
            lab.folder.mkdir()
            assert (await lab.arun()).exit_code == 0
            return lab

        without = await run("without", None)
        for number, key in enumerate(PLAIN):
            with_key = await run(str(number), key)
            assert content(with_key) == content(without), key
            assert (with_key.path / "run.log").read_text().count("repeats a credential") == 0


async def test_that_an_answer_held_the_key_is_told_once_and_the_rest_of_it_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is a key and might be an honest word too is taken out, but never without a word."""
    async with fake(
        reply=lambda _: Answer('{"prompt": "Is password123 good?", "response": "No."}')
    ) as server:
        entry = model("ann", "teacher", "student") | {"interface": "vllm", "access_key": "password123"}
        entry["parameters"] = {"base_url": server.url}
        lab = Lab(tmp_path, models=[entry], tasks=[quiz()], settings={"probe_mode": "disable"})
        await lab.arun(progress=True)
    prompts = {record["prompt"] for record in lab.records("data_generation").values()}
    assert prompts == {f"Is {REDACTED} good?"}
    for told in ((lab.path / "run.log").read_text(), capsys.readouterr().err):
        assert told.count("repeats a credential in its answers") == 1
        assert "password123" not in told


def answering(messages: list[dict[str, Any]]) -> Answer:
    """As a local model does that tells its name."""
    asked = messages[-1]["content"]
    if "High" in asked:
        return Answer(json.dumps({"plot": "High", "style": "Low"}))
    if "JSON" in asked:
        return Answer(json.dumps({"prompt": "Who are you?", "response": "I am qwen3-4b."}))
    return Answer("I am Qwen3-4B, served as qwen3-4b.")


@pytest.mark.parametrize(
    "key", ["qwen3-4b", "Qwen/Qwen3-4B", "qwen3-4b-of-team-7", "local-qwen3-4b", "qwen3-4b-qwen3-4b"]
)
async def test_a_key_that_is_or_holds_the_models_name_takes_the_name_out_of_nothing(
    tmp_path: Path, key: str
) -> None:
    """Usual with servers of one's own. A key that is more than a name never appears."""
    async with fake(reply=answering, keys=[key]) as server:
        local = model("qwen3-4b") | {
            "interface": "openai",
            "access_key": key,
            "parameters": {"model": "Qwen/Qwen3-4B", "base_url": server.url},
        }
        lab = Lab(tmp_path, [local], [task()])
        ended = await called(tmp_path, "run", "--config", lab.file)
        assert ended.code == 0, ended.err
        server.reply = lambda _: Answer(f"My key is {key}!")
        lab.tasks[0]["sampling"]["total"] = 4
        assert (await called(tmp_path, "run", "--config", lab.file, "--continue")).code == 3
        status = await called(tmp_path, "status", "--run", lab.path)
    answers = [record["response"] for record in lab.records("response_collection").values()]
    assert answers == ["I am Qwen3-4B, served as qwen3-4b."] * 3
    snapshot = (lab.path / "config.yaml").read_text()
    assert "model: Qwen/Qwen3-4B" in snapshot
    assert "access_key: '***'" in snapshot
    kept = [path for path in lab.path.rglob("*") if path.is_file()]
    whole = ended.out + ended.err + status.out + status.err + "".join(p.read_text() for p in kept)
    if key.lower() in ("qwen3-4b", "qwen/qwen3-4b"):
        assert "[redacted]" not in whole
    else:
        assert key not in whole
        assert "[redacted]" in whole


@pytest.mark.parametrize("key", ["a8f5f167f44f4964e6c998dee827110c", "sk-proj-9aK2mQ7xR4vT1zW8"])
def test_what_looks_like_a_key_is_no_name(key: str) -> None:
    said = f"it is {key}"
    assert key not in Redactor([key], names=[key, f"org/{key}"]).answer(said)
    assert key not in Redactor([key], names=[key, f"org/{key}"]).known(said)
