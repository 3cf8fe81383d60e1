"""Whether each model answers at all, before a run depends on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from coeval.core.errors import AskError, BadRequest, CoevalError, ModelStopped, QuotaExhausted
from coeval.core.model import Model
from coeval.core.records import Failure, Message, Request, SamplingParameters

_QUESTION = (Message("user", "Reply with the single word: ok"),)
# Tokens of an answer. One is enough to know that a model is there; some that reason first refuse so few.
_LIMITS = (1, 256)


class ProbeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a model may be asked, in how many seconds that was known, and if not, why. ``listed``: its host
    names it among its models, and it was not asked itself."""

    name: str
    ok: bool
    latency_s: float
    error: Failure | None = None
    listed: bool = False


async def probe(
    models: Mapping[str, Model], *, by_list: bool = True, clock: Callable[[], float] = time.perf_counter
) -> list[ProbeResult]:
    """Find out of every model whether it can be asked, all at once; results in the order of ``models``.

    One that its host lists is, if ``by_list``. Any other is asked for a single token: many are served under
    names that stand in no list. Any answer will do, an empty one included. These requests count against the
    model's quota, those for lists do not: they ask no model. A host that takes no connection is not asked,
    and told in seconds: at the start that is a mistake more often than an outage that passes.
    """
    probes = (_probe_one(name, model, clock, by_list=by_list) for name, model in models.items())
    return list(await asyncio.gather(*probes))


async def _probe_one(name: str, model: Model, clock: Callable[[], float], *, by_list: bool) -> ProbeResult:
    began = clock()
    try:
        await model.reach()
        listed = by_list and await model.is_listed()
        if not listed:
            await _ask(model)
    except (AskError, ModelStopped, QuotaExhausted) as error:
        return ProbeResult(name, ok=False, latency_s=clock() - began, error=_failure(error))
    return ProbeResult(name, ok=True, latency_s=clock() - began, listed=listed)


async def _ask(model: Model) -> None:
    few, more = (
        Request(_QUESTION, SamplingParameters(max_tokens=limit), purpose="probe") for limit in _LIMITS
    )
    try:
        await model.complete(few)
    except BadRequest:
        await model.complete(more)


def _failure(error: CoevalError) -> Failure:
    """The error in one line: a host's words may hold several."""
    return Failure(error.kind, " ".join(str(error).split()))
