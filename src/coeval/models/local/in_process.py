"""A model in this process: it sends nothing, and is metered and held to limits as a hosted one is."""

from __future__ import annotations

import msgspec

from coeval.core.errors import ModelError
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Request
from coeval.models.bounded import bounded
from coeval.models.metering.answer_bound import counted, most_answer_tokens, prompt_bytes
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.http import draining

__all__ = ["InProcess"]


class InProcess(Model):
    """Asks ``model``, which is the one of ``spec``, no more at once and no faster than ``limiter`` allows;
    None: as it comes."""

    def __init__(
        self, model: Model, spec: ModelSpec, admission: Admission, limiter: Limiter | None = None
    ) -> None:
        self.name = model.name
        self.interface = model.interface
        self._model = model
        self._spec = spec
        self._admission = admission
        self._priced = admission.priced
        self._limiter = limiter
        self._most = spec.max_answer_bytes

    async def complete(self, request: Request) -> Completion:
        limiter = self._limiter
        if limiter is None:
            return await self._ask(request)
        await limiter.acquire(request.rank, refusal=self._admission.refusal)
        try:
            completion = await self._ask(request)
            limiter.succeeded(request.rank, completion.latency_s, completion.usage.tokens)
            return completion
        finally:
            limiter.release()

    def drain(self) -> None:
        """Who waits for a slot gets Draining."""
        if self._limiter is not None:
            self._limiter.close(draining())

    async def _ask(self, request: Request) -> Completion:
        if self._priced:
            return await self._ask_at_a_stake(request)
        self._admission.permit()
        completion = counted(await self._model.complete(request))
        return bounded(self._admission.settled(completion), self._most)

    async def _ask_at_a_stake(self, request: Request) -> Completion:
        """Ask once the money is there that it may cost; an error costs nothing, unless it says so."""
        admission = self._admission
        tokens = most_answer_tokens(request.sampling, self._spec)
        stake = admission.stake(prompt_bytes(request), tokens, request.rank)
        try:
            while (money := admission.permit_at(stake)) is not None:
                await money
            completion = counted(await self._model.complete(request))
            usage = stake.settle(completion.usage)
        except ModelError as error:
            if error.usage is None:
                stake.unspent()
            else:
                error.usage = stake.settle(error.usage)
            raise
        finally:
            stake.close()
        return bounded(msgspec.structs.replace(completion, usage=usage), self._most)
