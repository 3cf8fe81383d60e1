"""``interface: auto`` from the command line: the cheapest host is taken, told, and kept by `--continue`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.coeval_process import called
from fakes.openai_chat import Answer, fake
from ruamel.yaml import YAML

KEYS = {"GROQ_API_KEY": "gsk-planted-4f8Kq2Zr7Lw9Xb3T", "OPENROUTER_API_KEY": "sk-or-planted-9Zt5Rm1Qc6Yh3"}


def prices(folder: Path, groq: float, openrouter: float) -> None:
    """The routes of a model, and what each of its hosts asks."""
    table = {
        "auto_routing": {
            "llama": [
                {"interface": "mistral", "model": "never"},
                {"interface": "openrouter", "model": "meta/llama"},
                {"interface": "groq", "model": "llama-instant"},
            ]
        },
        "overrides": {
            "meta/llama": {"input_usd_per_mtok": openrouter, "output_usd_per_mtok": openrouter},
            "groq": {"llama-instant": {"input_usd_per_mtok": groq, "output_usd_per_mtok": groq}},
        },
    }
    (folder / "Config").mkdir(exist_ok=True)
    with (folder / "Config" / "provider_pricing.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(table, file)


def experiment(folder: Path, url: str, total: int) -> Path:
    config = {
        "models": [
            {
                "name": "m", "interface": "auto", "roles": ["teacher", "student", "judge"],
                "parameters": {"model": "llama", "base_url": url},
            }
        ],
        "tasks": [{
            "name": "t", "description": "Say a word.", "output_description": "A word.",
            "target_attributes": {"mood": ["glad", "sad"]}, "sampling": {"total": total},
            "rubric": {"f": "It is good."},
        }],
        "experiment": {"id": "e", "storage_folder": "runs"},
    }  # fmt: skip
    file = folder / "e.yaml"
    with file.open("w") as text:
        YAML(typ="safe", pure=True).dump(config, text)
    return file


def reply(messages: list[dict[str, Any]]) -> Answer:
    asks_for_item = "prompt" in messages[-1]["content"].lower()
    return Answer(json.dumps({"prompt": "Say.", "response": "Word."} if asks_for_item else {"f": "High"}))


@pytest.mark.process
async def test_the_cheapest_host_is_taken_told_and_kept(tmp_path: Path) -> None:
    async with fake(reply=reply) as server:
        prices(tmp_path, groq=0.05, openrouter=0.08)
        file = experiment(tmp_path, server.url, 2)
        reported = await called(tmp_path, "run", "--config", file, "--dry-run", env=KEYS)
        choice = (
            "model m: interface auto is groq, as llama-instant ($0.05 in, $0.05 out per million tokens; "
            "openrouter: $0.08 in, $0.08 out per million tokens; no credential for mistral)"
        )
        assert (reported.code, choice in reported.out.splitlines()) == (0, True)
        assert server.requested == []
        assert (await called(tmp_path, "run", "--config", file, env=KEYS)).code == 0
        assert {body["model"] for body in server.bodies} == {"llama-instant"}
        assert choice in (tmp_path / "runs/e/run.log").read_text()
        assert json.loads((tmp_path / "runs/e/usage.json").read_text())["models"]["m"]["cost_usd"] > 0

        prices(tmp_path, groq=0.05, openrouter=0.01)
        experiment(tmp_path, server.url, 4)
        server.requested.clear()
        stays = await called(tmp_path, "run", "--config", file, "--continue", env=KEYS)
        assert (stays.code, {body["model"] for body in server.bodies}) == (0, {"llama-instant"}), stays.err
        assert "groq, as llama-instant (as before)" in (tmp_path / "runs/e/run.log").read_text()
        anew = await called(tmp_path, "run", "--config", file, "--dry-run", "--overwrite", env=KEYS)
        assert "interface auto is openrouter, as meta/llama ($0.01 in" in anew.out
        assert not any(key in reported.out + stays.err + anew.out for key in KEYS.values())


@pytest.mark.process
async def test_hosts_are_compared_by_the_price_of_the_tier_that_is_asked_for(tmp_path: Path) -> None:
    """The library has GPT-5 at OpenAI for half the price in the tier `flex`."""
    prices(tmp_path, groq=0.05, openrouter=0.08)
    table = tmp_path / "Config" / "provider_pricing.yaml"
    table.write_text(
        "auto_routing:\n  gpt-5:\n    - {interface: openrouter, model: openai/gpt-5}\n"
        "    - {interface: openai, model: gpt-5}\n"
        "overrides:\n  openrouter:\n"
        "    openai/gpt-5: {input_usd_per_mtok: 1.0, output_usd_per_mtok: 8.0}\n"
    )
    file = experiment(tmp_path, "http://127.0.0.1:9/v1", 2)
    env = {**KEYS, "OPENAI_API_KEY": "sk-planted-4f8Kq2Zr7Lw9Xb3T"}
    text = file.read_text().replace("model: llama", "model: gpt-5")
    file.write_text(text)
    dear = await called(tmp_path, "run", "--config", file, "--dry-run", env=env)
    file.write_text(text.replace("model: gpt-5", "model: gpt-5, service_tier: flex"))
    flex = await called(tmp_path, "run", "--config", file, "--dry-run", env=env)
    assert "interface auto is openrouter, as openai/gpt-5" in dear.out, dear.err
    assert "interface auto is openai, as gpt-5 ($0.625 in, $5.00 out" in flex.out, flex.err


@pytest.mark.process
async def test_without_a_credential_for_any_host_the_variables_are_named(tmp_path: Path) -> None:
    prices(tmp_path, groq=0.05, openrouter=0.08)
    done = await called(tmp_path, "run", "--config", experiment(tmp_path, "http://127.0.0.1:9/v1", 2))
    assert (done.code, done.out) == (1, "")
    assert "no credential for any host of 'llama'" in done.err
    assert "groq (GROQ_API_KEY)" in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.process
async def test_a_dry_run_says_what_the_run_would_end_with(tmp_path: Path) -> None:
    """A credential may come later; what is wrong in a file is wrong at once."""
    prices(tmp_path, groq=0.05, openrouter=0.08)
    file = experiment(tmp_path, "http://127.0.0.1:9/v1", 2)
    keyless = await called(tmp_path, "run", "--config", file, "--dry-run")
    assert (keyless.code, "calls, excluding probes and retries" in keyless.out) == (0, True)
    assert "and a run would not start (exit code 1): model 'm': no credential for any host" in keyless.err

    file.write_text(file.read_text().replace("model: llama", "model: nobodys-model"))
    for flags in ((), ("--dry-run",)):
        unknown = await called(tmp_path, "run", "--config", file, *flags, env=KEYS)
        assert (unknown.code, unknown.out) == (1, "")
        assert "no host is known for 'nobodys-model'" in unknown.err

    file.write_text(file.read_text().replace("interface: auto", "interface: vllm"))
    (tmp_path / "Config" / "provider_pricing.yaml").write_text("overrides: {groq: [")
    for flags in ((), ("--dry-run",)):
        broken = await called(tmp_path, "run", "--config", file, *flags, env=KEYS)
        assert (broken.code, broken.out) == (1, "")
        assert "provider_pricing.yaml cannot be read" in broken.err


@pytest.mark.process
async def test_a_project_alone_is_no_credential_of_google_cloud(tmp_path: Path) -> None:
    config = experiment(tmp_path, "http://127.0.0.1:9/v1", 2)
    config.write_text(config.read_text().replace("model: llama", "model: gemini-2.5-flash"))
    env = {
        "GOOGLE_CLOUD_PROJECT": "p", "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true",
        "OPENROUTER_API_KEY": KEYS["OPENROUTER_API_KEY"],
    }  # fmt: skip
    reported = await called(tmp_path, "run", "--config", config, "--dry-run", env=env)
    found = await called(tmp_path, "models", "--providers", "--interface", "vertex", "--json", env=env)
    assert "interface auto is openrouter, as google/gemini-2.5-flash" in reported.out, reported.err
    assert "no credential for gemini, vertex" in reported.out
    assert [each["usable"] for each in json.loads(found.out)["providers"]] == [False]

    (tmp_path / "application_default_credentials.json").write_text("{}")
    reported = await called(tmp_path, "run", "--config", config, "--dry-run", env=env)
    assert "interface auto is vertex, as gemini-2.5-flash" in reported.out
