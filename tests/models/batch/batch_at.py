"""A batch interface at a fake, and jobs for it, as whoever runs batches makes them."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.models.batch.batch_api import BatchApi, BatchJob, BatchReply, DamagedResult
from coeval.models.batch.batch_http import BatchHttp
from coeval.models.catalog import HOSTS
from coeval.models.hosts.address import ModelAddress, address_of
from coeval.models.keys import Keys
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint

__all__ = ["MadeBatches", "batches_at", "bodies_of", "collected", "job_of", "replies"]

NOWHERE = Path("/nonexistent")

T = TypeVar("T", bound=BatchApi, covariant=True)


class MadeBatches(Protocol[T]):
    """How a provider's class is made."""

    def __call__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str], /) -> T: ...


def _address(spec: ModelSpec, env: Mapping[str, str]) -> ModelAddress:
    keys = Keys.load(None, env=env, cwd=NOWHERE, home=NOWHERE)
    return address_of(spec, HOSTS[spec.interface], keys)


@asynccontextmanager
async def batches_at(made: MadeBatches[T], spec: ModelSpec, env: Mapping[str, str]) -> AsyncIterator[T]:
    """A provider's interface for a model, asked where the row of its host says; retries wait for nothing."""

    async def no_wait(_: float) -> None:
        return None

    address = _address(spec, env)
    endpoint = Endpoint(address.url, address.signer, Limiter(1), address.secrets, address.host.headers)
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
        model="some-model",
        lines=lines,
        requests=len(bodies),
        bytes=lines.stat().st_size,
        written_at=time.time(),
        first_id=next(iter(bodies)),
    )


async def collected(api: BatchApi, job_id: str, folder: Path) -> list[BatchReply | DamagedResult]:
    """All that a job brings."""
    into = folder / f"into-{job_id.replace('/', '-')}"
    into.mkdir()
    return [reply async for reply in api.collect(job_id, into)]


async def replies(api: BatchApi, job_id: str, folder: Path) -> dict[str, BatchReply]:
    """What became of each request; each is told once, and all can be read."""
    told = await collected(api, job_id, folder)
    found = {reply.custom_id: reply for reply in told if isinstance(reply, BatchReply)}
    assert len(found) == len(told)
    return found
