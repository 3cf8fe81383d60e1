"""Small experiments with models that go by batch jobs, at the fakes of their hosts, and what they sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fakes import gemini
from fakes.anthropic_batches import BatchServer, batch_fake
from fakes.anthropic_messages import Spoken
from fakes.batch_jobs import BatchingHost
from fakes.gemini_batches import fake_gemini_batches
from fakes.mistral_batches import mistral_batches
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer, Fault
from pipeline.experiments import Lab, model, task

__all__ = [
    "AZURE",
    "ENVIRONMENT",
    "FILES",
    "GEMINI",
    "KEY",
    "TOTAL",
    "VERDICT",
    "AnyHost",
    "Provider",
    "account",
    "batched",
    "jobs_of",
    "judging",
    "lab",
    "lab_at",
    "sent",
    "serving",
]

KEY = "sk-batches-5512-aa31-9f04"
VERDICT = '{"plot": "High", "style": "Low"}'
TOTAL = 6
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": KEY,
    "AZURE_OPENAI_API_KEY": KEY,
    "AZURE_OPENAI_API_VERSION": "2025-04-01-preview",
    "GEMINI_API_KEY": KEY,
    "MISTRAL_API_KEY": KEY,
    "OPENAI_API_KEY": KEY,
}

AnyHost: TypeAlias = BatchingHost | BatchServer


def batched(name: str, host: OpenAiBatchHost, *roles: str, **parameters: Any) -> dict[str, Any]:
    return {
        "name": name,
        "interface": "openai",
        "roles": list(roles),
        "parameters": {"model": "gpt-4o-mini", "base_url": host.url, "max_tokens": 200, **parameters},
        "batch_enabled": True,
    }


def lab(folder: Path, host: OpenAiBatchHost, *, total: int = TOTAL, **settings: Any) -> Lab:
    models = [model("ann", "teacher"), model("ben", "student"), batched("gpt", host, "judge")]
    usual = {"batch_poll_s": [0.01, 0.05], "probe_mode": "disable"}
    return Lab(folder, models, [task(total=total, rationale=False)], usual | settings)


@asynccontextmanager
async def judging(folder: Path, **how: Any) -> AsyncIterator[tuple[OpenAiBatchHost, Lab]]:
    """A host whose judgments all succeed, and an experiment that is judged there."""
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        yield host, lab(folder, host, **how)


@dataclass(frozen=True)
class Provider:
    """An interface with batch jobs: its fake, a model, a good answer, a refusal with a status."""

    interface: str
    model: str
    host: Callable[..., AbstractAsyncContextManager[Any]]
    says: Callable[[str], Any] = Answer
    refuses: Callable[[int, str], Any] = Fault

    def __repr__(self) -> str:
        return self.interface


AZURE = Provider("azure_openai", "gpt-4o-mini", partial(openai_batches, "azure_openai", keys=[KEY]))
FILES = [
    Provider("openai", "gpt-4o-mini", partial(openai_batches, "openai", keys=[KEY])),
    AZURE,
    Provider("mistral", "mistral-small-latest", partial(mistral_batches, keys=[KEY])),
    Provider("anthropic", "claude-haiku-4-5", partial(batch_fake, keys=[KEY]), Spoken),
]
"""Those whose batches are made of files."""
GEMINI = Provider(
    "gemini",
    "gemini-2.5-flash",
    partial(fake_gemini_batches, keys=frozenset({KEY})),
    gemini.Answer,
    gemini.Fault,
)


@asynccontextmanager
async def serving(place: Provider, **how: Any) -> AsyncIterator[Any]:
    """A host whose judgments all succeed."""
    async with place.host(**how) as host:
        if isinstance(host, BatchServer):
            host.fate = host.reply = lambda _: place.says(VERDICT)
        host.says = lambda _: place.says(VERDICT)
        yield host


def lab_at(place: Provider, host: AnyHost, folder: Path, *roles: str, **settings: Any) -> Lab:
    """An experiment of simulated models, but for those of these roles (the judge, if none is named)."""
    by_batches = [
        {
            "name": role,
            "interface": place.interface,
            "roles": [role],
            "parameters": {"model": place.model, "base_url": host.url, "max_tokens": 200},
            "batch_enabled": True,
        }
        for role in roles or ("judge",)
    ]
    others = [model(r, r) for r in ("teacher", "student", "judge") if r not in (roles or ("judge",))]
    usual = {"batch_poll_s": [0.01, 0.05], "probe_mode": "disable"}
    return Lab(folder, [*others, *by_batches], [task(total=TOTAL)], usual | settings)


def jobs_of(host: AnyHost) -> list[list[str]]:
    """The custom ids of each job that the provider has."""
    if isinstance(host, BatchServer):
        return [[requested["custom_id"] for requested in batch.requests] for batch in host.batches.values()]
    return [[item[0] for item in job.items] for job in host.jobs.values()]


def sent(host: AnyHost) -> Counter[str]:
    """How often each request was carried out in a job."""
    return Counter(custom_id for job in jobs_of(host) for custom_id in job)


def account(exp: Lab, name: str = "gpt") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((exp.path / "usage.json").read_text())["models"][name]
    return found
