"""A hosted model of which some phases are asked by batch jobs, and the others live."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coeval.core.errors import Draining, Gap, ModelError, Pending, Undecodable
from coeval.core.model import at_window, counted, least_limit, most_answer_tokens
from coeval.core.records import CallId, Completion, Request
from coeval.models.address import ModelAddress
from coeval.models.batch.batch_api import BatchJob, batch_maker
from coeval.models.batch.batch_index import BatchOutcome, Source, StoredError
from coeval.models.batch.batches import Batches
from coeval.models.batch.job_list import BATCH_PHASES, HostRefusals
from coeval.models.hosted import HostedModel, bounded
from coeval.models.metering.meter import Meter
from coeval.models.transport.call import Answered, Call
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import from_garbage, from_status

if TYPE_CHECKING:
    from coeval.models.batch.batch_http import BatchHttp


class BatchedModel(HostedModel):
    """Asks as a `HostedModel` does: the same bodies, what the host refuses left out of them, errors by the
    same names. But a request of a phase that is batched is parked for the next job, which raises Pending,
    and answered from what jobs have brought when it is asked again.

    Its id holds what it is about and its body: an answer is never taken for that to another question.
    """

    def join(self, batches: Batches, address: ModelAddress, meter: Meter) -> BatchHttp:
        """Park requests with ``batches``, by what is to be closed in the end.

        Raises UsageError: the host's batches need a setting that is not there.
        """
        from coeval.models.batch.batch_http import BatchHttp

        spec, endpoint = address.spec, self._endpoint
        http = BatchHttp(endpoint, explain=address.dialect.explain)
        self._meter = meter
        self._asks = batches.asks
        self._parked = batches.parked_phases(spec.name)
        self._plain_host = address.host
        self._bodies = [HostRefusals()]
        self._remember(bodies for job in batches.index.jobs if job.name == spec.name for bodies in job.bodies)
        self._queue = batches.queue(
            Source(
                name=spec.name,
                interface=spec.interface,
                model=spec.model,
                endpoint=endpoint.url,
                api=batch_maker(address.host)(http, spec, address.settings),
                meter=meter,
                read=self._read,
                bodies=lambda: list(self._bodies),
                reported=lambda text: http.redactor.message(text),
                keyless=_keyless(address),
            )
        )
        return http

    async def is_listed(self) -> bool:
        """As a `HostedModel`; one that is served in batches only is taken for listed where jobs can be."""
        api = self._queue.source.api
        if not (self._parked and api.limits.batches_only) or self._admission.refusal() is not None:
            return await super().is_listed()
        await api.find(BatchJob("", "", Path("none.jsonl"), 0, 0, time.time(), ""))
        return True

    def complete(self, request: Request) -> Coroutine[Any, Any, Completion]:
        if request.purpose not in BATCH_PHASES or request.call is None:
            return super().complete(request)
        return self._ask(request)  # what jobs hold is asked in no order: none goes ahead

    def _uncached(self, request: Request) -> Request:
        """As it is: the body is what its answer is found by."""
        return request

    def _remember(self, earlier: Iterable[HostRefusals]) -> None:
        """Take over what the host had refused when earlier starts wrote requests down."""
        for refusals in earlier:
            if refusals not in self._bodies:
                self._bodies.append(refusals)
        self._rejected.update(name for refusals in self._bodies for name in refusals.schemas)
        self._unknown.update(name for refusals in self._bodies for name in refusals.fields)
        if any(refusals.limit_renamed for refusals in self._bodies):
            self._limit_renamed = True
            self._host = self._plain_host.with_other_limit(self._spec.model)

    async def _ask(self, request: Request) -> Completion:
        """As a `HostedModel`; what a job brought, or holds, counts whatever the host has refused since."""
        if request.purpose in BATCH_PHASES and request.call is not None:
            now = HostRefusals(
                tuple(sorted(self._rejected)), tuple(sorted(self._unknown)), self._limit_renamed
            )
            if now not in self._bodies:
                self._bodies.append(now)
            for refusals in self._bodies if len(self._bodies) > 1 else ():
                found = self._answered_under(refusals, request.call, request)
                if found is not None:
                    return found
        return await super()._ask(request)

    def _answered_under(self, refusals: HostRefusals, about: CallId, request: Request) -> Completion | None:
        """The answer that jobs have brought to a request as it was made while that was refused.

        Raises Gap: it waits, or its job ended without it.
        """
        held = self._rejected, self._unknown, self._host
        self._rejected, self._unknown = set(refusals.schemas), set(refusals.fields)
        renamed = self._plain_host.with_other_limit(self._spec.model)
        self._host = renamed if refusals.limit_renamed else self._plain_host
        try:
            sent, dropped = self._without_unknown(request)
            structured = request.schema is not None and request.schema.name not in self._rejected
            body = self._dialect.encode(sent, self._spec, self._host, structured=structured)
        except ModelError:
            return None  # no such body could be made
        finally:
            self._rejected, self._unknown, self._host = held
        outcome = self._queue.index.outcome(_identity(about, body))
        if outcome is None or outcome.completion is None:
            return None
        completion = at_window(outcome.completion, least_limit(sent.sampling, self._spec))
        return msgspec.structs.replace(completion, attempts=1, dropped=dropped)

    def _tries_at_once(self, request: Request) -> bool:
        return request.purpose not in self._parked

    async def _send(self, request: Request, body: bytes, call: Call[Completion]) -> Answered[Completion]:
        about = request.call
        if about is None or request.purpose not in BATCH_PHASES:
            return await super()._send(request, body, call)
        key = _identity(about, body)
        queue = self._queue
        outcome = queue.index.outcome(key)
        if outcome is not None:
            if outcome.completion is not None:
                return Answered(outcome.completion, outcome.completion.latency_s, 1)
            raise outcome.error.error() if outcome.error is not None else ModelError("nothing came of it")
        if not self._asks:
            raise Draining("only what batch jobs have brought is made records of")
        if request.purpose not in self._parked or queue.may_be_live(again=about.attempt > 0):
            answered = await super()._send(request, body, call)
            queue.index.keep_live(BatchOutcome(key.hex(), answered.value))
            return answered
        await self._park(key, request, body)
        raise Pending(f"{about} waits for a batch job")

    async def _park(self, key: bytes, request: Request, body: bytes) -> None:
        """Hold what the request takes of ceilings and budgets, and write it down for the next job.

        Raises Gap: that is not allowed, or no more jobs are made of this model.
        """
        queue = self._queue
        queue.heed_refusal()
        usd = 0.0
        if self._priced:
            tokens = most_answer_tokens(request.sampling, self._spec)
            usd = self._admission.most_usd(len(body), tokens, batched=True)
        waiting = self._meter.park(usd, request.rank)
        if waiting is not None:
            await waiting
            try:
                queue.heed_refusal()
            except Gap:
                self._meter.unpark(usd)
                raise
        queue.park(key, body, request.purpose, usd)

    def _read(self, custom_id: str, status: int, body: bytes) -> BatchOutcome:
        """What came of a request of a job, as it would be read live; priced and freed of credentials."""
        redactor = self._endpoint.redactor
        where = f"a batch of {self.name}"
        try:
            if 200 <= status < 300:
                completion = counted(self._read_body(HttpReply(status, {}, body), redactor))
                usage = self._meter.priced_in_batch(completion.usage)
                completion = bounded(msgspec.structs.replace(completion, usage=usage), self._most)
                return BatchOutcome(custom_id, completion)
            error = self._explain(HttpReply(status, {}, body), redactor)
            if error is None:
                error = from_status(status, body, where, redactor)
            error.status = status
        except Undecodable as undecodable:
            error = from_garbage(status, body, undecodable, where, redactor)
        except ModelError as reported:
            error = reported
            if error.usage is not None:
                error.usage = self._meter.priced_in_batch(error.usage)
        error.args = (self._endpoint.reported(str(error)),)
        return BatchOutcome(custom_id, error=StoredError.of(error))


def _keyless(address: ModelAddress) -> str:
    """Where a key may stand, for one who has none; empty where there is one, or none is meant to be."""
    if address.signer is not None or not address.host.key_env:
        return ""
    variables = " or ".join(address.host.key_env)
    return f"no key was sent, as there is no {variables} in the environment and none in a key file"


def _identity(about: CallId, body: bytes) -> bytes:
    """16 bytes that no other request has: another body is another question."""
    return blake2b(about.custom_id.encode() + body, digest_size=16).digest()
