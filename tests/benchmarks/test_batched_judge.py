"""A benchmark whose answers, judgments or both go by batch jobs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from fakes.invented_task import JUDGING, Bench, spec
from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Purpose
from coeval.engine.probing import Probing
from coeval.models.batch.waiting.job_list import BatchMode


@pytest.fixture
def bench(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "out", monkeypatch)


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


async def test_judging_is_submitted_now_and_collected_later(bench: Bench) -> None:
    async with openai_batches() as host:
        host.says = says
        host.states = ("in_progress",)
        wanted = frozenset[Purpose]({"evaluation"})
        outcome = await bench.run(host.url, batched=wanted, batch_mode=BatchMode.SUBMIT, **models(host.url))
        assert outcome.exit_code == 3
        assert [job.requests for job in outcome.batches] == [3]
        host.states = ("completed",)
        outcome = await bench.run(host.url, batched=wanted, **models(host.url))
    assert outcome.exit_code == 0
    assert len(host.jobs) == 1


async def test_a_host_without_batches_is_refused_before_anything_is_asked(bench: Bench) -> None:
    judge = ModelSpec(name="j", interface="groq", model="j", access_key="k")
    with pytest.raises(UsageError, match="the interface groq has no Batch API here"):
        await bench.run("http://127.0.0.1:9/v1", batched=frozenset({"evaluation"}), judge=judge)
