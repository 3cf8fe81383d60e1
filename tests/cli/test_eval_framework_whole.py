"""`eval-framework` as processes of its own: killed and started again, and all six benchmarks at once."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start, write_prompts
from fakes.openai_chat import Answer, Behaviour, Broken, Server, fake
from pipeline.experiments import Lab, model, quiz, task

from coeval.analysis.intervals import wilson_interval
from coeval.analysis.load import open_reader
from coeval.api import gate, open_run
from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.task_registry import TASKS, benchmark_class
from coeval.core.figures import score_text
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

FITTED = {
    "length_controlled_winrate",
    "win_rate_style_controlled",
    "hard_prompt_style_controlled",
    "creative_writing_style_controlled",
}
"""Metrics that a model of all items gives: no item has a score of its own."""


def means_of_items(output: Path) -> dict[tuple[str, str], float]:
    """The metrics that follow from the items' scores, those of HealthBench clipped to their scale."""
    with open_reader(output) as reader:
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
    names = [name for task in TASKS for name in benchmark_class(task).assets]
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


@pytest.mark.system
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
            reported = await finish(await start(tmp_path, *words, "--estimate-only", "--json"))
            assert reported.code == 0, reported
            process = await start(tmp_path, *words)
            ended = await finish(process)
            assert ended.code == 0, ended
            as_foretold(json.loads(reported.out), tmp_path / name, {name, "judge"})
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
    del headline["ifbench"]  # simulated students heed demands of IFEval alone
    for task, scores in headline.items():
        assert scores["able"] > scores["weak"], (task, scores)
    assert {path.name for path in (tmp_path / "able" / "arena-hard").iterdir()} >= {
        "model_answer",
        "model_judgment",
        "summary.json",
    }


# Ctrl-C in `eval-framework`: what is finished is shown, the rest is counted and goes on where it stood.

ASKED = 7
"""A probe, and one request for each prompt."""


class Host:
    """Answers all but the prompts that ask for patience, until it is released."""

    def __init__(self) -> None:
        self.patient = False

    def reply(self, messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        return Broken.HANG if text.startswith("Slow") and not self.patient else Answer(f"Answer to {text}")


def command(folder: Path, server: Server) -> list[object]:
    quick = write_prompts(folder / "quick.jsonl", "punctuation:no_comma", ["Quick 0.", "Quick 1."])
    mixed = write_prompts(
        folder / "mixed.jsonl", "format:parentheses", ["Quick 2.", "Quick 3.", "Slow 4.", "Slow 5."]
    )
    how: list[object] = ["--model", "m", "--base-url", server.url, "--top-k", "5"]
    return [*how, "--tasks", "ifeval,ifbench", "--ifeval-input", quick, "--ifbench-input", mixed]


@pytest.mark.system
async def test_finished_tasks_are_shown_and_the_rest_goes_on(tmp_path: Path) -> None:
    host = Host()
    async with fake(reply=host.reply, extra_fields=["top_k"]) as server:
        how = command(tmp_path, server)
        process = await start(tmp_path, *how)
        await server.arrived(ASKED)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
        assert ended.code == 130
        assert "prompt_level_strict_accuracy" in ended.out
        assert "ifbench was stopped: 2 of 4 answers are there" in ended.out
        assert "Stopped. The same command continues from here." in ended.err
        assert "Traceback" not in ended.err
        summary = json.loads((tmp_path / "outputs" / "ifeval" / "summary.json").read_text())
        assert (summary["complete"], summary["n_expected"]) == (True, 2)
        assert not (tmp_path / "outputs" / "ifbench" / "summary.json").exists()

        host.patient, requested = True, len(server.requested)
        again = await finish(await start(tmp_path, *how))
        assert again.code == 0
        assert "was stopped" not in again.out
        prompts = [body["messages"][-1]["content"] for body in server.bodies[requested:]]
        assert sorted(text for text in prompts if not text.startswith("Reply")) == ["Slow 4.", "Slow 5."]


@pytest.mark.system
async def test_stopped_results_as_json(tmp_path: Path) -> None:
    async with fake(reply=Host().reply, extra_fields=["top_k"]) as server:
        process = await start(tmp_path, *command(tmp_path, server), "--json")
        await server.arrived(ASKED)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
    assert ended.code == 130
    reported = json.loads(ended.out)
    assert (reported["exit_code"], reported["interrupted"]) == (130, True)
    assert reported["tasks"]["ifeval"]["summary"]["complete"]
    assert reported["tasks"]["ifbench"]["summary"] is None
    assert reported["tasks"]["ifbench"]["left_at"] == {
        "answers": 2, "prompts": 4, "judgments": 0, "judgments_needed": 0,
    }  # fmt: skip


@pytest.mark.process
async def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    async with fake(reply=Host().reply, extra_fields=["top_k"]) as server:
        process = await start(tmp_path, *command(tmp_path, server))
        await server.arrived(ASKED)
        process.send_signal(signal.SIGINT)
        while "stopping" not in process.continue_if_started().err:
            assert process.poll() is None, "it ended at the first"
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
    assert (ended.code, ended.out) == (130, "")
    assert "Stopped at once; finished work is on disk; the same command resumes" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.process
async def test_stopped_before_anything_was_asked(tmp_path: Path) -> None:
    async with fake(Broken.HANG, extra_fields=["top_k"]) as server:
        process = await start(tmp_path, *command(tmp_path, server))
        await server.arrived(1)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
    assert (ended.code, ended.out) == (130, "")
    assert "Stopped before the first request." in ended.err
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["usage.json"], "the probe counts"


# `eval-framework --tasks coeval:RUN`: a benchmark of one's own, put to any model.


@pytest.mark.process
@pytest.mark.parametrize("judge", [[], ["--judge-model", "judge"]])
async def test_a_run_that_has_only_labels_shows_their_accuracy_and_asks_no_judge(
    tmp_path: Path, judge: list[str]
) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=8)])
    await lab.arun()
    how = ["--tasks", f"coeval:{lab.path}", "--model", "m"]
    async with fake(reply=lambda _: Answer("red"), extra_fields={"top_k"}) as host:
        how += ["--base-url", host.url, *judge]
        ended = await finish(await start(tmp_path, *how))
        few = await finish(await start(tmp_path, *how, "--max-examples", 4, "--output-dir", "few"))
    assert (ended.code, few.code) == (0, 0), (ended, few)
    assert {body["model"] for body in host.bodies} == {"m"}
    items = lab.records("data_generation").values()
    share = wilson_interval(sum(item["sampled_target_attributes"]["colour"] == "red" for item in items), 8)
    row = next(line.split() for line in ended.out.splitlines() if "label_accuracy quiz/colour" in line)
    assert re.search(r"^coeval-exp +8 scores +0$", ended.out, re.MULTILINE)
    assert "n: prompts; a task's own line counts what it scores" in ended.out
    assert row[2:] == [*(score_text(share.mean, share.low, share.high) or "").split(), "8"]

    said = " ".join((ended.out + ended.err).split())
    assert "coeval-exp: its answers are compared with labels, without a judge" in said
    assert not re.search(r"judged|published", said)
    summary = json.loads((tmp_path / "outputs" / "coeval-exp" / "summary.json").read_text())
    assert (summary["judge"], summary["comparable"], summary["n_scored"]) == (None, True, 8)
    few_said = " ".join(few.out.split())
    assert "coeval-exp without --max-examples only the first 4 of 8 prompts" in few_said


@pytest.mark.process
async def test_answers_of_another_model_are_not_the_tested_models(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=8)])
    await lab.arun()
    how = ["--tasks", f"coeval:{lab.path}", "--model", "large"]
    async with fake(reply=lambda _: Answer("red"), extra_fields={"top_k"}) as host:
        how += ["--base-url", host.url]
        assert (await finish(await start(tmp_path, *how, "--output-dir", "base"))).code == 0
        host.reply = lambda _: Answer("red", body={"model": "tiny"})
        ended = await finish(await start(tmp_path, *how, "--output-dir", "new"))
    assert ended.code == 0
    row = next(" ".join(line.split()) for line in ended.out.splitlines() if "came from" in line)
    assert row.startswith("coeval-exp the gateway's fallbacks turned off")
    assert "8 of 8 answers came from tiny" in row
    gated = gate(tmp_path / "base", tmp_path / "new", policy={"max_drop": 5})
    assert gated.verdict == "INCONCLUSIVE"
    assert [task.fits for task in gated.candidates[0].tasks if task.task == "coeval-exp"] == [False]


@pytest.mark.process
async def test_labels_stand_beside_what_is_judged(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=2), task(total=2)])
    await lab.arun()

    def reply(messages: list[dict[str, Any]]) -> Answer:
        judging = "plot" in messages[-1]["content"]
        return Answer('{"plot": "High", "style": "Low"}' if judging else "green")

    async with fake(reply=reply, extra_fields={"top_k"}) as host:
        ended = await finish(
            await start(tmp_path, "--tasks", f"coeval:{lab.path}", "--model", "m", "--base-url", host.url)
        )
    assert ended.code == 0, ended
    summary = json.loads((tmp_path / "outputs" / "coeval-exp" / "summary.json").read_text())
    assert list(summary["metrics"]) == ["mean_score", "label_accuracy quiz/colour"]
    assert (summary["n_expected"], summary["n_scored"]) == (6, 6), "4 factors and 2 labels"
    assert "published" not in ended.out
