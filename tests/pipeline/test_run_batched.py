"""Runs whose judge, or any other model, goes by batch jobs: from the file to the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer
from pipeline.experiments import Lab, model, task

KEY = "sk-batches-5512-aa31-9f04"
VERDICT = '{"plot": "High", "style": "Low"}'


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def batched(name: str, host: OpenAiBatchHost, *roles: str, **parameters: Any) -> dict[str, Any]:
    return {
        "name": name,
        "interface": "openai",
        "roles": list(roles),
        "parameters": {"model": "gpt-4o-mini", "base_url": host.url, "max_tokens": 200, **parameters},
        "batch_enabled": True,
    }


def lab(folder: Path, host: OpenAiBatchHost, *, total: int = 6, **settings: Any) -> Lab:
    models = [model("ann", "teacher"), model("ben", "student"), batched("gpt", host, "judge")]
    usual = {"batch_poll_s": [0.01, 0.05], "probe_mode": "disable"}
    return Lab(folder, models, [task(total=total)], usual | settings)


async def test_a_judge_by_batches_scores_as_a_live_one_would(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        exp = lab(tmp_path, host)
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert len(host.jobs) == 1
    assert exp.counts() == (6, 6, 6)
    assert {tuple(record["scores"].items()) for record in exp.records("evaluation").values()} == {
        (("plot", "High"), ("style", "Low"))
    }
    assert not (exp.path / "batches").exists()
    assert not (exp.path / "pending_batches.json").exists()
