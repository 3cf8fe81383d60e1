"""``coeval probe``: each model is tried, nothing is run, and the exit code says what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.coeval_process import called
from cli.invoked import Command
from fakes.openai_chat import Answer, fake
from pipeline.experiments import Lab, model
from ruamel.yaml import YAML

KEY = "sk-planted-4f8Kq2Zr7Lw9Xb3T"


def experiment(folder: Path, url: str, *ids: str, **settings: Any) -> Path:
    """Models at a host, named a, b, …"""
    config = {
        "models": [
            {
                "name": "abcdef"[n], "interface": "openai", "roles": ["teacher", "student", "judge"],
                "parameters": {"base_url": url, "model": name}, "access_key": KEY,
            }
            for n, name in enumerate(ids)
        ],
        "tasks": [{
            "name": "t", "description": "Say a word.", "output_description": "A word.",
            "target_attributes": {"mood": ["glad", "sad"]}, "sampling": {"total": 2},
            "rubric": {"f": "It is good."},
        }],
        "experiment": {"id": "e", "storage_folder": "runs", **settings},
    }  # fmt: skip
    file = folder / "e.yaml"
    with file.open("w") as text:
        YAML(typ="safe", pure=True).dump(config, text)
    return file


def written(folder: Path) -> dict[str, tuple[bool, bool]]:
    """Of each model in ``probe_results.json``: whether it can be asked, and whether its list said so."""
    found = json.loads((folder / "runs/e/probe_results.json").read_text())
    assert found["at"].endswith("Z")
    return {each["name"]: (each["ok"], each.get("listed", False)) for each in found["models"]}


async def test_what_is_listed_costs_nothing_and_what_is_not_is_asked_for_a_token(tmp_path: Path) -> None:
    listed = [{"id": "gpt-4.1"}, {"id": "gpt-4.1-mini"}]
    async with fake(keys=[KEY], models=["gpt-4.1", "gpt-4.1-mini", "an-alias"], listed=listed) as server:
        file = experiment(tmp_path, server.url, "gpt-4.1", "gpt-4.1-mini", "an-alias")
        done = await called(tmp_path, "probe", "--config", file)
        assert (done.code, len(server.asked), server.lists) == (0, 1, 1)
        assert server.bodies[0]["max_tokens"] == 1
    assert written(tmp_path) == {"a": (True, True), "b": (True, True), "c": (True, False)}
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert rows["a"] == ["a", "openai", "listed", "gpt-4.1"]
    assert rows["c"][:3] == ["c", "openai", "answered"]
    assert rows["c"][-1] == "an-alias"
    used = json.loads((tmp_path / "runs/e/usage.json").read_text())["models"]
    assert {name: row["requests"] for name, row in used.items()} == {"a": 0, "b": 0, "c": 1}
    assert not (tmp_path / "runs/e/meta.json").exists()


@pytest.mark.parametrize(
    ("flags", "code"), [((), 2), (("--on-fail", "abort"), 2), (("--on-fail", "warn"), 0)]
)
async def test_one_that_is_not_there_is_exit_code_2_or_only_told(
    tmp_path: Path, flags: tuple[str, ...], code: int
) -> None:
    async with fake(keys=[KEY], models=["gpt-4.1"], listed=[{"id": "gpt-4.1"}]) as server:
        file = experiment(tmp_path, server.url, "gpt-4.1", "gpt-4.9")
        done = await called(tmp_path, "probe", "--config", file, *flags)
    assert done.code == code
    assert written(tmp_path) == {"a": (True, True), "b": (False, False)}
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert rows["b"] == ["b", "openai", "not", "found", "gpt-4.9"]
    assert "warning: b: POST 127.0.0.1:" in done.err
    assert "The model `gpt-4.9` does not exist." in done.err.replace("\n", " ")
    assert KEY not in done.out + done.err
    if code:
        assert done.err.splitlines()[-1] == "1 of 2 models cannot be asked."


async def test_the_file_says_what_flags_do_not(tmp_path: Path) -> None:
    async with fake(keys=[KEY], models=[], listed=[]) as server:
        file = experiment(tmp_path, server.url, "gpt-4.9", probe_on_fail="warn")
        assert (await called(tmp_path, "probe", "--config", file)).code == 0
        file = experiment(tmp_path, server.url, "gpt-4.9", probe_mode="disable")
        asked = len(server.asked)
        done = await called(tmp_path, "probe", "--config", file)
        assert (done.code, done.err, len(server.asked)) == (0, "no model was probed\n", asked)
        assert (await called(tmp_path, "probe", "--config", file, "--probe", "full")).code == 2


async def test_with_resume_those_are_tried_that_have_work_left(tmp_path: Path) -> None:
    scores = json.dumps({"f": "High"})
    item = json.dumps({"prompt": "Say.", "response": "Word."})

    def reply(messages: list[dict[str, Any]]) -> Answer:
        return Answer(item if "prompt" in messages[-1]["content"].lower() else scores)

    async with fake(reply=reply, listed=[]) as server:
        file = experiment(tmp_path, server.url, "one")
        assert (await called(tmp_path, "run", "--config", file)).code == 0
        done = await called(tmp_path, "probe", "--config", file, "--probe", "resume")
        assert (done.code, done.err) == (0, "no model was probed\n")
        experiment(tmp_path, server.url, "one", "two")
        done = await called(tmp_path, "probe", "--config", file, "--probe", "resume")
        assert (done.code, set(written(tmp_path))) == (0, {"a", "b"})


def test_a_model_without_a_key_is_a_wrong_request(here: Path, coeval: Command) -> None:
    file = experiment(here, "http://127.0.0.1:9/v1", "gpt-4.1")
    text = (
        file.read_text()
        .replace(f"access_key: {KEY}", "")
        .replace("base_url: http://127.0.0.1:9/v1", "top_p: 1.0")
    )
    file.write_text(text)
    done = coeval("probe", "--config", file)
    assert (done.code, done.out) == (1, "")
    assert "needs a key and none was found" in done.err
    assert not (here / "runs").exists()


def test_simulated_models_are_tried_too(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("tea", "teacher"), model("ann", "student", "judge")])
    done = coeval("probe", "--config", lab.file)
    assert done.code == 0
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["tea", "simulated", "answered"],
        ["ann", "simulated", "answered"],
    ]
    assert coeval("run", "--config", lab.file).code == 0, "a folder that holds a probe's results is free"
