"""Whether each model answers at all, before a run depends on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from coeval.core.errors import AskError, CoevalError, ModelStopped, QuotaExhausted
from coeval.core.model import Model
from coeval.core.records import Failure, Message, Request, SamplingParameters

__all__ = ["ProbeResult", "probe"]

PROBE = Request(
    messages=(Message("user", "Reply with the single word: ok"),),
    # Enough for a model that reasons first; the others stop after a word.
    sampling=SamplingParameters(max_tokens=256),
    purpose="probe",
)


class ProbeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a model answered, in how many seconds, and if not, why."""

    name: str
    ok: bool
    latency_s: float
    error: Failure | None = None


async def probe(
    models: Mapping[str, Model], *, clock: Callable[[], float] = time.perf_counter
) -> list[ProbeResult]:
    """Ask every model one tiny question, all at once; results in the order of ``models``.

    Any answer will do, an empty one included: a model that reasons may have spent its tokens.
    The requests count against the models' quota. A host that takes no connection is not asked, and told in
    seconds: at the start that is a mistake more often than an outage that passes.
    """
    return list(await asyncio.gather(*(_probe_one(name, model, clock) for name, model in models.items())))


async def _probe_one(name: str, model: Model, clock: Callable[[], float]) -> ProbeResult:
    began = clock()
    try:
        await model.reach()
        completion = await model.complete(PROBE)
    except (AskError, ModelStopped, QuotaExhausted) as error:
        return ProbeResult(name, ok=False, latency_s=clock() - began, error=_failure(error))
    return ProbeResult(name, ok=True, latency_s=completion.latency_s)


def _failure(error: CoevalError) -> Failure:
    """The error in one line: a host's words may hold several."""
    return Failure(error.kind, " ".join(str(error).split()))
