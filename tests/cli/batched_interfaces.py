"""Experiments whose student and judge go by the batch jobs of an interface, at its fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fakes.anthropic_batches import BatchServer, batch_fake
from fakes.anthropic_messages import Spoken
from fakes.file_batches import FileBatchHost
from fakes.mistral_batches import mistral_batches
from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer
from ruamel.yaml import YAML

__all__ = ["BATCHED", "KEY", "TOTAL", "Batched", "BatchingFake", "forget", "requests_of_jobs"]

KEY = "test-key-7742-0123456789abcdef"
VERDICT = '{"clear": "High", "short": "Low"}'
TOTAL = 5

BatchingFake: TypeAlias = BatchServer | FileBatchHost

STUDENTS = {
    "anthropic": "claude-haiku-4-5",
    "openai": "gpt-4o-mini",
    "azure_openai": "gpt-4o-mini",
    "mistral": "mistral-small-latest",
}
JUDGES = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-4o",
    "azure_openai": "gpt-4o",
    "mistral": "mistral-large-latest",
}


@asynccontextmanager
async def _anthropic() -> AsyncIterator[BatchServer]:
    async with batch_fake(keys=[KEY]) as host:

        def says(body: dict[str, Any]) -> Spoken:
            return Spoken(VERDICT if body["model"] == JUDGES["anthropic"] else "A short answer.")

        host.reply = host.fate = says
        yield host


def _files(
    name: str, serve: Callable[[], AbstractAsyncContextManager[FileBatchHost]]
) -> Callable[[], AbstractAsyncContextManager[FileBatchHost]]:
    @asynccontextmanager
    async def serving() -> AsyncIterator[FileBatchHost]:
        async with serve() as host:

            def says(body: dict[str, Any]) -> Answer:
                return Answer(VERDICT if body["model"] == JUDGES[name] else "A short answer.")

            host.says = says
            yield host

    return serving


@dataclass(frozen=True)
class Batched:
    """An interface, its fake, and the variables that lead there."""

    interface: str
    serve: Callable[[], AbstractAsyncContextManager[BatchingFake]]
    env: Mapping[str, str]

    def model(self, host: BatchingFake, role: str, *, batch: bool) -> dict[str, Any]:
        names = STUDENTS if role == "student" else JUDGES
        return {
            "name": role,
            "interface": self.interface,
            "roles": [role],
            "parameters": {"model": names[self.interface], "base_url": host.url, "max_tokens": 100},
            "batch_enabled": batch,
        }

    def file(self, folder: Path, host: BatchingFake, *, batch: bool, **settings: Any) -> Path:
        config = {
            "models": [
                {
                    "name": "writer",
                    "interface": "simulated",
                    "roles": ["teacher"],
                    "parameters": {"model": "sim"},
                },
                self.model(host, "student", batch=batch),
                self.model(host, "judge", batch=batch),
            ],
            "tasks": [
                {
                    "name": "explain",
                    "description": "Explain a concept",
                    "output_description": "a paragraph",
                    "target_attributes": {"level": ["easy", "hard"]},
                    "sampling": {"total": TOTAL},
                    "rubric": {"clear": "Is it clear?", "short": "Is it short?"},
                }
            ],
            "experiment": {
                "id": "batched" if batch else "live",
                "storage_folder": str(folder / "runs"),
                "batch_poll_s": [0.01, 0.05],
                **settings,
            },
        }
        path = folder / f"{batch}.yaml"
        with path.open("w") as file:
            YAML(typ="safe", pure=True).dump(config, file)
        return path


BATCHED = {
    "anthropic": Batched("anthropic", _anthropic, {"ANTHROPIC_API_KEY": KEY}),
    "openai": Batched(
        "openai", _files("openai", lambda: openai_batches("openai", keys=[KEY])), {"OPENAI_API_KEY": KEY}
    ),
    "azure_openai": Batched(
        "azure_openai",
        _files("azure_openai", lambda: openai_batches("azure_openai", keys=[KEY])),
        {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_API_VERSION": "2025-04-01-preview"},
    ),
    "mistral": Batched(
        "mistral", _files("mistral", lambda: mistral_batches(keys=[KEY])), {"MISTRAL_API_KEY": KEY}
    ),
}


def requests_of_jobs(host: BatchingFake) -> list[list[str]]:
    """The custom ids of each job that the provider has."""
    if isinstance(host, BatchServer):
        return [[requested["custom_id"] for requested in batch.requests] for batch in host.batches.values()]
    return [[item[0] for item in job.items] for job in host.jobs.values()]


def forget(host: BatchingFake) -> None:
    """Have the provider know of no job."""
    if isinstance(host, BatchServer):
        host.batches.clear()
    else:
        host.jobs.clear()
        host.endings.clear()
