"""A model in this process: it sends nothing, and is metered and held to limits as a hosted one is."""

from __future__ import annotations

from coeval.core.model import MAX_ANSWER_BYTES, Model
from coeval.core.records import Completion, Request
from coeval.models.bounded import bounded
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.http import draining

__all__ = ["InProcess"]


class InProcess(Model):
    """Asks ``model``, no more at once and no faster than ``limiter`` allows; None: as it comes. Answers are
    cut to ``most`` bytes."""

    def __init__(
        self,
        model: Model,
        admission: Admission,
        limiter: Limiter | None = None,
        most: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.name = model.name
        self.interface = model.interface
        self._model = model
        self._admission = admission
        self._limiter = limiter
        self._most = most

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
        self._admission.permit()
        completion = await self._model.complete(request)
        return bounded(self._admission.settled(completion), self._most)
