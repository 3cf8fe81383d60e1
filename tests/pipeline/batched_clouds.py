"""Interfaces of batch jobs, each at its fake: an experiment of which one model goes by them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes import gemini
from fakes.anthropic_batches import BatchServer, batch_fake
from fakes.anthropic_messages import Spoken
from fakes.batch_jobs import BatchingHost
from fakes.gemini_batches import fake_gemini_batches
from fakes.mistral_batches import mistral_batches
from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer, Fault
from pipeline.experiments import Lab, model, task

__all__ = [
    "FILES",
    "GEMINI",
    "SECRET",
    "VERDICT",
    "Cloud",
    "GeminiCloud",
    "lab",
    "requested",
    "sent",
]

VERDICT = '{"plot": "High", "style": "Low"}'
SECRET = "made-up/secret+0123456789abcdefghijklmnop"


@dataclass(frozen=True)
class Cloud(ABC):
    """An interface, its model, and how many requests make a job there."""

    name: str
    model: str
    least: int = 6

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def serve(self, **how: Any) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    def says(self, text: str) -> Any:
        """A good answer."""

    def fault(self, status: int) -> Any:
        """A refusal."""
        return gemini.Fault(status, "It cannot be made.")

    def environment(self, host: Any, folder: Path) -> Mapping[str, str]:
        return {"GEMINI_API_KEY": SECRET}


class GeminiCloud(Cloud):
    def serve(self, **how: Any) -> AbstractAsyncContextManager[Any]:
        return fake_gemini_batches(keys=frozenset({SECRET}), **how)

    def says(self, text: str) -> Any:
        return gemini.Answer(text)


GEMINI = GeminiCloud("gemini", "gemini-2.5-flash")


class FilesCloud(Cloud):
    """One whose batches are made of files, at a host of OpenAI's shape."""

    def serve(self, **how: Any) -> AbstractAsyncContextManager[Any]:
        return openai_batches(self.name, keys=[SECRET])

    def says(self, text: str) -> Any:
        return Answer(text)

    def fault(self, status: int) -> Any:
        return Fault(status, "It cannot be made.")

    def environment(self, host: Any, folder: Path) -> Mapping[str, str]:
        return {
            "OPENAI_API_KEY": SECRET,
            "AZURE_OPENAI_API_KEY": SECRET,
            "AZURE_OPENAI_API_VERSION": "2025-04-01-preview",
            "MISTRAL_API_KEY": SECRET,
            "ANTHROPIC_API_KEY": SECRET,
        }


class MistralCloud(FilesCloud):
    def serve(self, **how: Any) -> AbstractAsyncContextManager[Any]:
        return mistral_batches(keys=[SECRET])


class AnthropicCloud(FilesCloud):
    def serve(self, **how: Any) -> AbstractAsyncContextManager[Any]:
        return batch_fake(keys=[SECRET])

    def says(self, text: str) -> Any:
        return Spoken(text)


FILES = [
    FilesCloud("openai", "gpt-4o-mini"),
    FilesCloud("azure_openai", "gpt-4o-mini"),
    MistralCloud("mistral", "mistral-small-latest"),
    AnthropicCloud("anthropic", "claude-haiku-4-5"),
]
"""Those whose batches are made of files."""


def lab(cloud: Cloud, host: BatchingHost, folder: Path, role: str = "judge", **settings: Any) -> Lab:
    """An experiment of simulated models, but for one role; so large that its requests make a job."""
    parameters = {"model": cloud.model, "base_url": host.url, "max_tokens": 200}
    batched = {
        "name": "cloud",
        "interface": cloud.name,
        "roles": [role],
        "parameters": parameters,
        "batch_enabled": True,
    }
    others = [model(name, name) for name in ("teacher", "student", "judge") if name != role]
    usual = {"batch_poll_s": [0.01, 0.05], "probe_mode": "disable"}
    return Lab(folder, [*others, batched], [task(total=cloud.least)], usual | settings)


def requested(host: BatchingHost) -> Counter[str]:
    """How often the provider saw each request, by what was asked."""
    return Counter(json.dumps(each.body.get("messages") or each.body["contents"]) for each in host.requested)


def sent(host: BatchingHost | BatchServer) -> Counter[str]:
    """How often each request was carried out in a job."""
    if isinstance(host, BatchServer):
        return Counter(
            requested["custom_id"] for batch in host.batches.values() for requested in batch.requests
        )
    return Counter(item[0] for job in host.jobs.values() for item in job.items)
