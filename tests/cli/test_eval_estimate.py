"""``eval-framework … --estimate-only``: what a benchmark will cost, before anything is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import finish, start, write_prompts
from fakes.openai_chat import Answer, fake

pytestmark = pytest.mark.process


PRICED = "overrides:\n  m: {input_usd_per_mtok: 1.0, output_usd_per_mtok: 4.0}\n"
N = 12


async def test_the_rest_of_a_benchmark_costs_less_and_is_known_better(tmp_path: Path) -> None:
    (tmp_path / "Config").mkdir()
    (tmp_path / "Config" / "provider_pricing.yaml").write_text(PRICED)
    texts = [f"Write about the number {n}, without commas." for n in range(N)]
    prompts = write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", texts)

    def reply(_: list[dict[str, Any]]) -> Answer:
        return Answer("A short answer." * 8, body={"usage": {"prompt_tokens": 16, "completion_tokens": 30}})

    async with fake(reply=reply, extra_fields={"top_k"}) as server:
        how = ["--tasks", "ifeval", "--model", "m", "--base-url", server.url, "--ifeval-input", prompts]
        reported = await finish(await start(tmp_path, *how, "--estimate-only", "--json"))
        assert reported.code == 0, reported
        assert server.bodies == []
        assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["cost_estimate.json"]
        estimate = json.loads(reported.out)
        assert estimate["calls"]["by_phase"] == {"ifeval": {"central": N, "low": N, "high": N}}
        assert estimate["basis"] == {"m": "rules of thumb"}
        ended = await finish(await start(tmp_path, *how, "--max-examples", 8))
        assert ended.code == 0, ended
        left = json.loads((await finish(await start(tmp_path, *how, "--estimate-only", "--json"))).out)
        assert left["calls"]["total"] == {"central": N - 8, "low": N - 8, "high": N - 8}
        assert left["basis"] == {"m": "8 records"}
        short = await finish(await start(tmp_path, *how, "--estimate-only", "--budget-usd", 0.0015))
        assert short.code == 0
        assert "warning: The estimate does not fit into the budget: --budget-usd is $0.0015, " in short.err
        assert "is left" in short.err
        true = (N - 8) * (16 * 1.0 + 30 * 4.0) / 1e6
        assert left["cost_usd"]["low"] <= true <= left["cost_usd"]["high"]
        assert left["cost_usd"]["high"] < 2.5 * left["cost_usd"]["low"]


async def test_the_table_names_tasks_and_the_file(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", ["Say no commas."] * 3)
    how = ["--tasks", "ifeval", "--model", "nobody-knows-it", "--ifeval-input", prompts]
    ended = await finish(
        await start(tmp_path, *how, "--base-url", "https://api.example.com/v1", "--estimate-only")
    )
    assert ended.code == 0, ended
    assert "No price is known for nobody-knows-it" in ended.out
    assert "3 calls" in ended.out
    assert "cost_estimate.json" in ended.err
