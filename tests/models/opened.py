"""A model opened at a fake host as a run opens it: from its spec and an environment that holds its key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Request
from coeval.models.keys import Keys
from coeval.models.metering.meter import Ledger
from coeval.models.open import Models
from coeval.models.transport.http import Http

NOWHERE = Path("/nonexistent")


def keys_of(env: Mapping[str, str]) -> Keys:
    return Keys.load(None, env=env, cwd=NOWHERE, home=NOWHERE)


@asynccontextmanager
async def opened(
    spec: ModelSpec, env: Mapping[str, str], waits: list[float] | None = None, ledger: Ledger | None = None
) -> AsyncIterator[Model]:
    """Retries wait for nothing; what they would have waited for, in seconds, goes to ``waits``."""

    async def no_wait(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    async with Models([spec], keys_of(env), ledger=ledger, http=Http(sleep=no_wait)) as models:
        yield models[spec.name]


async def answer(spec: ModelSpec, env: Mapping[str, str], request: Request) -> Completion:
    """One request's answer."""
    async with opened(spec, env) as model:
        return await model.complete(request)
