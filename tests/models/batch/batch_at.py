"""Batch interfaces at their fakes, and jobs for them, as whoever runs batches makes them."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fakes import gemini, openai_chat
from fakes.batch_jobs import BatchingHost
from fakes.gemini_batches import fake_gemini_batches
from fakes.mistral_batches import mistral_batches
from fakes.openai_batches import openai_batches

from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.core.redaction import Redactor
from coeval.models.address import ModelAddress, load_dialect, resolve_address
from coeval.models.batch.batch_api import BatchApi, BatchJob, BatchReply, DamagedResult
from coeval.models.batch.batch_http import BatchHttp
from coeval.models.batch.gemini_batches import GeminiBatches
from coeval.models.batch.openai_files import AzureBatches, MistralBatches, OpenAiBatches
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint

NOWHERE = Path("/nonexistent")
TEXTS = ("one", "two", "three", "four", "five")
KEY = "test-key-0123456789abcdef"
DATED = "2025-04-01-preview"

T = TypeVar("T", bound=BatchApi, covariant=True)


class MadeBatches(Protocol[T]):
    """How a provider's class is made."""

    def __call__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str], /) -> T: ...


def _address(spec: ModelSpec, env: Mapping[str, str]) -> ModelAddress:
    keys = Keys.load(None, env=env, cwd=NOWHERE, home=NOWHERE)
    return resolve_address(spec, HOSTS[spec.interface], keys)


@asynccontextmanager
async def batches_at(made: MadeBatches[T], spec: ModelSpec, env: Mapping[str, str]) -> AsyncIterator[T]:
    """A provider's interface for a model, asked where the row of its host says; retries wait for nothing."""

    async def no_wait(_: float) -> None:
        return None

    address = _address(spec, env)
    endpoint = Endpoint(address.url, address.signer, Limiter(), address.secrets, address.host.headers)
    http = BatchHttp(endpoint, sleep=no_wait, rng=random.Random(1))
    try:
        yield made(http, spec, address.settings)
    finally:
        await http.aclose()


def bodies_of(spec: ModelSpec, env: Mapping[str, str], texts: Iterable[str]) -> dict[str, bytes]:
    """The bodies of requests for a model, as they would go out live, by their custom ids."""
    address = _address(spec, env)
    bodies = {}
    for number, text in enumerate(texts, 1):
        sampling = SamplingParameters.of({"max_tokens": 50})
        request = Request((Message("user", text),), sampling=sampling)
        bodies[f"{number:032x}"] = address.dialect.encode(request, spec, address.host)
    return bodies


def job_of(api: BatchApi, folder: Path, bodies: Mapping[str, bytes], tag: str = "a" * 32) -> BatchJob:
    """A job in its file, as it is about to be submitted."""
    lines = folder / f"{tag}.jsonl"
    lines.write_bytes(b"".join(api.line(custom_id, body) for custom_id, body in bodies.items()))
    return BatchJob(
        tag=tag,
        lines=lines,
        requests=len(bodies),
        bytes=lines.stat().st_size,
        written_at=time.time(),
    )


async def collected(api: BatchApi, job_id: str, folder: Path) -> list[BatchReply | DamagedResult]:
    """All that a job brings."""
    into = folder / f"into-{job_id.replace('/', '-')}"
    into.mkdir()
    return [reply async for reply in api.collect(job_id, into)]


async def replies(api: BatchApi, job_id: str, folder: Path) -> dict[str, BatchReply]:
    """What became of each request; each is told once, and all can be read."""
    reported = await collected(api, job_id, folder)
    found = {reply.custom_id: reply for reply in reported if isinstance(reply, BatchReply)}
    assert len(found) == len(reported)
    return found


@dataclass(frozen=True)
class Batching:
    """One interface: its class, its fake, and what leads there. ``way`` are the states that a job is seen in
    if nothing goes wrong, ``ends`` by our words the hosts' for other ends, and ``keeps`` those of them after
    which what was done is given out. ``says`` is the module of the fake's answers and faults, ``gone`` the id
    of a job that there is not."""

    interface: str
    made: MadeBatches[Any]
    serve: Callable[..., AbstractAsyncContextManager[Any]]
    env: Mapping[str, str]
    model: str = "some-model"
    way: tuple[str, ...] = ("running", "running", "running", "ended")
    ends: Mapping[str, str] = field(default_factory=lambda: {"failed": "failed", "expired": "expired"})
    keeps: frozenset[str] = frozenset({"expired", "cancelled"})
    says: Any = openai_chat
    gone: str = "batch/../gone"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def secret(self) -> str:
        return KEY

    def text_of(self, body: Mapping[str, Any]) -> str:
        """What is asked in a request."""
        if "contents" in body:
            return str(body["contents"][0]["parts"][0]["text"])
        content = body["messages"][0]["content"]
        return str(content if isinstance(content, str) else content[0]["text"])

    def answering(self, fates: Mapping[str, Any]) -> Callable[[dict[str, Any]], Any]:
        """What an item is answered with, by its text; those that are not named with it in capitals."""

        def says(body: dict[str, Any]) -> Any:
            text = self.text_of(body)
            return fates.get(text) or self.says.Answer(text.upper())

        return says

    def read(self, reply: BatchReply) -> str:
        """The text of an answer, as the dialect reads it."""
        return load_dialect(HOSTS[self.interface]).decode(reply.body, Redactor()).text


GOOGLE_ENDS = {"failed": "FAILED", "expired": "EXPIRED", "cancelled": "CANCELLED"}
BATCHING = {
    "openai": Batching(
        "openai", OpenAiBatches, lambda: openai_batches("openai", keys=[KEY]), {"OPENAI_API_KEY": KEY}
    ),
    "azure": Batching(
        "azure_openai",
        AzureBatches,
        lambda: openai_batches("azure_openai", keys=[KEY]),
        {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_API_VERSION": DATED},
    ),
    "azure v1": Batching(
        "azure_openai",
        AzureBatches,
        lambda: openai_batches("azure_openai v1", keys=[KEY]),
        {"AZURE_OPENAI_API_KEY": KEY},
    ),
    "mistral": Batching(
        "mistral",
        MistralBatches,
        lambda: mistral_batches(keys=[KEY]),
        {"MISTRAL_API_KEY": KEY},
        way=("running", "running", "ended"),
        ends={"failed": "FAILED", "expired": "TIMEOUT_EXCEEDED"},
    ),
    "gemini": Batching(
        "gemini",
        GeminiBatches,
        lambda: fake_gemini_batches(keys=frozenset({KEY})),
        {"GEMINI_API_KEY": KEY},
        model="gemini-2.5-flash",
        way=("running", "running", "ended"),
        ends=GOOGLE_ENDS,
        keeps=frozenset(),
        says=gemini,
        gone="batches/none",
    ),
}


@dataclass
class At:
    """An interface at its running fake, whose jobs' files are in ``folder``."""

    batching: Batching
    host: Any
    folder: Path
    env: Mapping[str, str]

    def spec(self, model: str = "", **options: Any) -> ModelSpec:
        """``options`` go before those that the interface needs; None leaves one out."""
        of = self.batching
        given = {name: value for name, value in {**of.options, **options}.items() if value is not None}
        return ModelSpec(
            name="m", interface=of.interface, model=model or of.model, base_url=self.host.url, options=given
        )

    def open(
        self, env: Mapping[str, str] | None = None, model: str = "", **options: Any
    ) -> AbstractAsyncContextManager[BatchApi]:
        opened: AbstractAsyncContextManager[BatchApi] = batches_at(
            self.batching.made, self.spec(model, **options), self.env if env is None else env
        )
        return opened

    def bodies(self, *texts: str) -> dict[str, bytes]:
        return bodies_of(self.spec(), self.env, texts or TEXTS)

    def job(self, api: BatchApi, *texts: str, tag: str = "a" * 32) -> BatchJob:
        return job_of(api, self.folder, self.bodies(*texts), tag)

    async def made(self, api: BatchApi, *texts: str, tag: str = "a" * 32) -> str:
        """The id of a new job."""
        return await api.create(self.job(api, *texts, tag=tag))

    async def replies(self, api: BatchApi, job_id: str) -> dict[str, BatchReply]:
        return await replies(api, job_id, self.folder)


@asynccontextmanager
async def batching_at(name: str, folder: Path) -> AsyncIterator[At]:
    """An interface of `BATCHING` at its fake, which answers each item with its text in capitals."""
    batching = BATCHING[name]
    async with batching.serve() as host:
        assert isinstance(host, BatchingHost)
        host.says = batching.answering({})
        yield At(batching, host, folder, batching.env)
