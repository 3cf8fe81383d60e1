"""What a run costs, from three hosts of three dialects to every place that shows it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import genai_prices
import pytest
from cli.coeval_process import called
from cli.eval_process import finish, start, write_price, write_prompts
from cli.invoked import Ended
from fakes import gemini, openai_chat
from fakes.anthropic_messages import Spoken, anthropic_fake
from ruamel.yaml import YAML

KEYS = dict.fromkeys(
    ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
    "sk-planted-4f8Kq2Zr7Lw9Xb3T",
)
ITEM = json.dumps({"prompt": "Tell of a cat.", "response": "A cat sat."})
SCORES = json.dumps({"plot": "High", "style": "Low"})
N = 5
OWN_PRICE = """
overrides:
  openai:
    judge-of-ours: {input_usd_per_mtok: 2.0, output_usd_per_mtok: 10.0, cached_usd_per_mtok: 0.5}
"""


class Hosts(NamedTuple):
    """What each of the three was asked, by the name of its model, in the folder that they are asked from."""

    requested: dict[str, list[Any]]
    folder: Path

    async def call(self, *words: str) -> Ended:
        return await called(self.folder, *words, env=KEYS)


@asynccontextmanager
async def three_hosts(
    folder: Path, judge: str, interface: str = "openai", **reported: float
) -> AsyncIterator[Hosts]:
    """A teacher at Gemini, a student at Anthropic, a judge at OpenAI or the like; each answer takes the same
    tokens. ``reported`` is what the judge's host says besides of what an answer took."""
    usage = {
        **reported,
        "prompt_tokens": 40_000,
        "completion_tokens": 2_000,
        "prompt_tokens_details": {"cached_tokens": 10_000},
    }
    spent = {"input_tokens": 10_000, "cache_read_input_tokens": 30_000, "cache_creation_input_tokens": 5_000}
    judging = openai_chat.Answer(SCORES, body={"usage": usage})
    async with (
        gemini.fake(*[gemini.Answer(ITEM, usage=(300_000, 4_000), thought_tokens=1_000)] * 50) as teacher,
        anthropic_fake(*[Spoken("A cat.", usage={**spent, "output_tokens": 20_000})] * 50) as student,
        openai_chat.fake(reply=lambda _: judging) as grader,
    ):
        models = [
            ("tea", "gemini", "gemini-2.5-pro", teacher.url, "teacher"),
            ("ann", "anthropic", "claude-3-5-haiku-20241022", student.url, "student"),
            ("ivy", interface, judge, grader.url, "judge"),
        ]
        config = {
            "models": [
                {
                    "name": name, "interface": host, "roles": [role],
                    "parameters": {"model": model, "base_url": url},
                }
                for name, host, model, url, role in models
            ],
            "tasks": [{
                "name": "story", "description": "Tell a story.", "output_description": "A story.",
                "target_attributes": {"mood": ["glad", "sad"]}, "sampling": {"target": [1, 1], "total": N},
                "rubric": {"plot": "Things happen for a reason.", "style": "It reads well."},
            }],
            "experiment": {"id": "e", "storage_folder": "runs"},
        }  # fmt: skip
        with (folder / "e.yaml").open("w") as file:
            YAML(typ="safe", pure=True).dump(config, file)
        (folder / "Config").mkdir()
        (folder / "Config" / "provider_pricing.yaml").write_text(OWN_PRICE)
        yield Hosts({"tea": teacher.requested, "ann": student.requested, "ivy": grader.requested}, folder)


def library_usd(provider: str, model: str, **tokens: int) -> float:
    """By the price library's own reckoning."""
    return float(
        genai_prices.calc_price(genai_prices.Usage(**tokens), model, provider_id=provider).total_price
    )


def by_hand() -> dict[str, float]:
    """What one answer of each model costs; Anthropic's input counts what is not cached."""
    return {
        "tea": library_usd("google", "gemini-2.5-pro", input_tokens=300_000, output_tokens=5_000),
        "ann": library_usd(
            "anthropic", "claude-3-5-haiku-20241022",
            input_tokens=45_000, cache_read_tokens=30_000, cache_write_tokens=5_000, output_tokens=20_000,
        ),
        "ivy": (30_000 * 2.0 + 10_000 * 0.5 + 2_000 * 10.0) / 1e6,
    }  # fmt: skip


def records(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("runs/e/phase*/*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.process
async def test_costs_are_those_of_a_hand_made_sum_wherever_they_are_shown(tmp_path: Path) -> None:
    async with three_hosts(tmp_path, "judge-of-ours") as hosts:
        done = await hosts.call("run", "--config", "e.yaml")
        status = await hosts.call("status", "--run", "runs/e")
        shown = await hosts.call("results", "--run", "runs/e", "--json")
    assert done.code == 0, done.err
    one = by_hand()
    costs = {name: len(requested) * one[name] for name, requested in hosts.requested.items()}
    total = sum(costs.values())
    used = json.loads((tmp_path / "runs/e/usage.json").read_text())["models"]
    assert {name: used[name]["cost_usd"] for name in used} == pytest.approx(costs, abs=1e-9)
    assert {row["unpriced"] for row in used.values()} == {0}
    assert used["ivy"]["priced_by"] == "Config/provider_pricing.yaml"
    assert used["tea"]["priced_by"].endswith(": google gemini-2.5-pro")

    made = records(tmp_path)
    assert len(made) == 3 * N
    for record in made:
        name = next(
            key for key in ("judge_model_id", "student_model_id", "teacher_model_id") if key in record
        )
        assert record["usage"]["cost_usd"] == pytest.approx(one[record[name]])

    for text in (done.out, status.out):
        rows = {line.split()[0]: line.split()[-1] for line in text.splitlines() if len(line.split()) == 5}
        assert {name: rows[name] for name in costs} == {name: f"${usd:,.2f}" for name, usd in costs.items()}
        assert rows["total"] == f"${total:,.2f}"
        assert "Prices: Config/provider_pricing.yaml" in text or "; Config/provider_pricing.yaml" in text
        assert f"genai-prices {genai_prices.__version__}" in text
    progress = next(line for line in reversed(done.err.splitlines()) if "response_collection:" in line)
    assert f"${N * one['ann']:,.2f} cost" in progress
    reported = {cost["model"]: cost["cost_usd"] for cost in json.loads(shown.out)["costs"]}
    assert reported == pytest.approx(costs)


@pytest.mark.process
async def test_a_price_that_nobody_knows_is_never_made_up(tmp_path: Path) -> None:
    async with three_hosts(tmp_path, "model-of-a-friend") as hosts:
        done = await hosts.call("run", "--config", "e.yaml")
        status = await hosts.call("status", "--run", "runs/e")
    assert done.code == 0, done.err
    used = json.loads((tmp_path / "runs/e/usage.json").read_text())["models"]["ivy"]
    assert (used["cost_usd"], used["unpriced"], used["priced_by"]) == (
        None,
        len(hosts.requested["ivy"]),
        None,
    )
    judged = [record for record in records(tmp_path) if "judge_model_id" in record]
    assert len(judged) == N
    assert all(record["usage"].get("cost_usd") is None for record in judged)
    known = sum(len(hosts.requested[name]) * usd for name, usd in by_hand().items() if name != "ivy")
    for text in (done.out, status.out):
        rows = {line.split()[0]: line.split()[-1] for line in text.splitlines() if len(line.split()) == 5}
        assert rows["ivy"] == "unknown"
        assert rows["total"] == f"${known:,.2f}+"
        assert "price unknown for ivy" in text


@pytest.mark.process
async def test_where_a_host_tells_no_tokens_the_price_is_not_called_unknown(tmp_path: Path) -> None:
    write_price(tmp_path, "rented", 1000, 2000)
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", ["Say 1.", "Say 2."])
    silent = openai_chat.Answer("one", body={"usage": None})
    async with openai_chat.fake(reply=lambda _: silent, extra_fields=["top_k"]) as server:
        how = ["--tasks", "ifeval", "--ifeval-input", prompts, "--model", "rented", "--base-url", server.url]
        done = await finish(await start(tmp_path, *how))
    assert done.code == 0, done.err
    assert "cost unknown of some answers of rented: the host reported no tokens for them" in done.out
    assert "price unknown" not in done.out
    assert "overrides" not in done.out


@pytest.mark.process
async def test_what_a_host_says_that_an_answer_cost_goes_before_all_other_prices(tmp_path: Path) -> None:
    """OpenRouter tells; the model has a price in the library as well."""
    async with three_hosts(tmp_path, "openai/gpt-4o", "openrouter", cost=0.03125) as hosts:
        done = await hosts.call("run", "--config", "e.yaml")
    assert done.code == 0, done.err
    used = json.loads((tmp_path / "runs/e/usage.json").read_text())["models"]["ivy"]
    assert used["cost_usd"] == len(hosts.requested["ivy"]) * 0.03125
    assert "; what the host says an answer cost." in done.out
    judged = [record for record in records(tmp_path) if "judge_model_id" in record]
    assert [record["usage"]["cost_usd"] for record in judged] == [0.03125] * N


@pytest.mark.process
async def test_eval_framework_shows_what_was_paid(tmp_path: Path) -> None:
    write_price(tmp_path, "rented", 1000, 2000)
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", ["Say 1.", "Say 2."])
    async with openai_chat.fake(extra_fields=["top_k"]) as server:
        how = ["--tasks", "ifeval", "--ifeval-input", prompts, "--model", "rented", "--base-url", server.url]
        done = await finish(await start(tmp_path, *how))
        reported = await finish(await start(tmp_path, *how, "--json"))
        requested = len(server.requested)
    assert done.code == reported.code == 0, done.err
    one = (11 * 1000 + 3 * 2000) / 1e6
    summary = json.loads((tmp_path / "outputs" / "ifeval" / "summary.json").read_text())
    assert summary["inference"]["cost_usd"] == pytest.approx(2 * one)
    row = next(line.split() for line in done.out.splitlines() if line.startswith("rented"))
    assert row[-1] == f"${requested * one:.2g}", "the probe was paid for, too"
    assert "Prices: Config/provider_pricing.yaml." in done.out
    [cost] = json.loads(reported.out)["costs"]
    assert cost["cost_usd"] == pytest.approx(requested * one)
