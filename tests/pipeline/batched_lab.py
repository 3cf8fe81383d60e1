"""A small experiment whose judge goes by batch jobs, and what is to be seen of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer
from pipeline.experiments import Lab, model, task

__all__ = ["KEY", "VERDICT", "account", "batched", "judging", "lab", "sent"]

KEY = "sk-batches-5512-aa31-9f04"
VERDICT = '{"plot": "High", "style": "Low"}'


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
    return Lab(folder, models, [task(total=total, rationale=False)], usual | settings)


@asynccontextmanager
async def judging(folder: Path, **how: Any) -> AsyncIterator[tuple[OpenAiBatchHost, Lab]]:
    """A host whose judgments all succeed, and an experiment that is judged there."""
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        yield host, lab(folder, host, **how)


def sent(host: OpenAiBatchHost) -> Counter[str]:
    """How often each request was carried out."""
    return Counter(item[0] for job in host.jobs.values() for item in job.items)


def account(exp: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((exp.path / "usage.json").read_text())["models"]["gpt"]
    return found
