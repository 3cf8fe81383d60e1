"""`eval-framework` as processes of its own: killed and started again, and all six benchmarks at once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start, write_prompts
from fakes.openai_chat import Answer, fake

from coeval.analysis.load import load
from coeval.api import open_run
from coeval.benchmarks.assets import Library, Presence
from coeval.benchmarks.task_registry import TASKS, kind_of
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

pytestmark = pytest.mark.slow

IN_FLIGHT = 8


async def test_killed_and_started_again_nothing_is_lost_or_asked_twice(tmp_path: Path) -> None:
    texts = [f"Prompt {n}." for n in range(120)]
    prompts = write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", texts)
    responses = tmp_path / "outputs" / "ifeval" / "responses.jsonl"

    def reply(messages: list[dict[str, Any]]) -> Answer:
        return Answer(f"Answer to {messages[-1]['content']}", delay_s=0.02)

    async with fake(reply=reply, extra_fields={"top_k"}) as server:
        how = ["--tasks", "ifeval", "--model", "m", "--base-url", server.url, "--ifeval-input", prompts]
        kept: set[bytes] = set()
        for _ in range(3):
            before = len(server.asked)
            process = await start(tmp_path, *how, "--num-threads", IN_FLIGHT)
            await server.arrived(before + 30)
            process.kill()
            await process.output()
            lines = responses.read_bytes().splitlines(keepends=True)
            assert kept <= set(lines)
            kept = {line for line in lines if line.endswith(b"\n")}
        ended = await finish(await start(tmp_path, *how, "--num-threads", IN_FLIGHT))
    assert ended.code == 0, ended
    asked = Counter(body["messages"][-1]["content"] for body in server.bodies)
    twice = sum(asked[text] - 1 for text in texts)
    assert twice <= 3 * IN_FLIGHT
    found = [json.loads(line) for line in responses.read_text().splitlines()]
    assert {line["id"]: line["response"] for line in found} == {
        str(n): f"Answer to Prompt {n}." for n in range(120)
    }
    summary = json.loads((tmp_path / "outputs" / "ifeval" / "summary.json").read_text())
    assert (summary["n_expected"], summary["complete"]) == (120, True)


FITTED = {
    "length_controlled_winrate",
    "win_rate_style_controlled",
    "hard_prompt_style_controlled",
    "creative_writing_style_controlled",
}
"""Metrics that a model of all items gives: no item has a score of its own."""


def means_of_items(output: Path) -> dict[tuple[str, str], float]:
    """The metrics that follow from the items' scores, those of HealthBench clipped to their scale."""
    with load(output) as reader:
        rows = reader.rows(
            "SELECT task, metric, sum(value * weight) / sum(weight) FROM scores WHERE value IS NOT NULL "
            "GROUP BY ALL"
        )
    return {
        (task, metric): max(0.0, min(1.0, mean)) if task == "healthbench" else mean
        for task, metric, mean in rows
    }


def absent() -> list[str]:
    library = Library()
    names = [name for task in TASKS for name in kind_of(task).assets]
    return [name for name in names if library.presence(name)[0] is Presence.ABSENT]


def as_foretold(estimate: dict[str, Any], output: Path, models: set[str]) -> None:
    """As many calls were made as the estimate has, or in its range; no model is probed that is listed."""
    calls, accounts = estimate["calls"]["by_model"], json.loads((output / "usage.json").read_text())["models"]
    assert calls.keys() == accounts.keys() == models
    for name, account in accounts.items():
        assert calls[name]["low"] <= account["requests"] <= calls[name]["high"], (name, calls[name], account)
    tested = next(iter(models - {"judge"}))
    assert calls[tested]["low"] == calls[tested]["high"]
    again = estimate["calls"]["by_phase"]["alpaca-eval judging"]
    assert calls["judge"]["high"] - calls["judge"]["low"] == again["high"] - again["low"]


async def test_all_six_benchmarks_rank_simulated_models_by_their_skill(tmp_path: Path) -> None:
    if missing := absent():
        pytest.skip(f"needs the benchmarks' data: coeval datasets fetch {' '.join(missing)}")
    texts = ["able:skill=0.95", "weak:skill=0.1", "judge:noise=0.05"]
    models = [SimulatedModel(parse_model_option(text, {})) for text in texts]
    async with TestServer(make_app(models)) as server:
        headline: dict[str, dict[str, float]] = {}
        for name in ("able", "weak"):
            how = ["--tasks", ",".join(TASKS), "--max-examples", 40, "--output-dir", name]
            models_at = ["--judge-model", "judge", "--base-url", f"http://127.0.0.1:{server.port}/v1"]
            words = [*how, "--model", name, *models_at]
            told = await finish(await start(tmp_path, *words, "--estimate-only", "--json"))
            assert told.code == 0, told
            process = await start(tmp_path, *words)
            ended = await finish(process)
            assert ended.code == 0, ended
            as_foretold(json.loads(told.out), tmp_path / name, {name, "judge"})
            for task in TASKS:
                summary = json.loads((tmp_path / name / task / "summary.json").read_text())
                figures = [metric["value"] for metric in summary["metrics"].values()]
                headline.setdefault(task, {})[name] = next(value for value in figures if value is not None)
                assert summary["complete"], summary["missing"]
            of_items = means_of_items(tmp_path / name)
            metrics = open_run(tmp_path / name).results().metrics
            official = {(metric.task, metric.metric): metric.value for metric in metrics}
            assert of_items == pytest.approx({key: official[key] for key in of_items}, abs=1e-9)
            fitted = {key for key, value in official.items() if value is not None and key not in of_items}
            assert {metric for _, metric in fitted} <= FITTED
    for task, scores in headline.items():
        assert scores["able"] > scores["weak"], (task, scores)
    assert {path.name for path in (tmp_path / "able" / "arena-hard").iterdir()} >= {
        "model_answer",
        "model_judgment",
        "summary.json",
    }
