"""All batch jobs of a folder (submitted as they fill, polled, collected, given up), and the model that waits
for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coeval.core import errors
from coeval.core.model import (
    ModelSpec,
    lowest_answer_limit,
    mark_if_cut_by_window,
    mark_if_uncounted,
    max_tokens_of_all_answers,
)
from coeval.core.records import CallId, Completion, Request
from coeval.models.address import ModelAddress, resolve_address
from coeval.models.batch import batch_index
from coeval.models.batch.batch_api import BatchJob, cancel_job, load_batch_maker
from coeval.models.batch.batch_job_runner import BatchJobRunner, JobEnd
from coeval.models.batch.job_list import BATCH_PHASES, Batching, BatchMode, HostRefusals, PendingJob
from coeval.models.catalog import HOSTS
from coeval.models.hosted import HostedModel, cut_completion
from coeval.models.keys import Keys
from coeval.models.metering.account_file import AccountFile
from coeval.models.metering.budget_gate import WORTH_A_JOB, Held
from coeval.models.metering.meter import Meter
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.call import Answered, Call
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.faults import error_from_garbage, error_from_status
from coeval.store.rundir import RunDir

if TYPE_CHECKING:
    from coeval.models.batch.batch_http import BatchHttp


# Polling interval of a start that ends once each job was checked, which wakes nobody.
_LOOK_S = 0.1


class Batches:
    """The batch jobs of a session: a queue of each batched model in ``queues``, then `resume_jobs` of earlier
    starts. `submit_parked_and_await_results` ends a round, `aclose` the session; jobs go on at their
    providers. ``folder`` and ``jobs`` are those of `BatchIndex`; ``tell`` gets a sentence on each change of a
    job. Raises StoreError: what an earlier start left cannot be read."""

    def __init__(self, folder: Path, jobs: Path, batching: Batching, tell: Callable[[str], None]) -> None:
        self.index = batch_index.BatchIndex(folder, jobs)
        self.batching = batching
        self._tell = tell
        self.queues: dict[str, batch_index.BatchQueue] = {}
        self._runners: dict[asyncio.Task[JobEnd], BatchJobRunner] = {}
        self._woken = asyncio.Event()
        self._has_results = False
        self._usable: list[str] = []
        self._jobs_with_unknown_results: list[PendingJob] = []
        self._failure: BaseException | None = None
        self.when_one_ends: Callable[[], None] = lambda: None
        """Called when a job's runner has ended."""

    def __contains__(self, name: str) -> bool:
        """Check whether a model has batched phases, or had: what is in jobs is not requested twice."""
        return bool(self.batching.phases.get(name)) or any(job.name == name for job in self.index.jobs)

    async def resume_jobs(self) -> None:
        """Resume the jobs of earlier starts whose models are open now."""
        self.begin_round()
        for job in self.index.jobs:
            queue = self.queues.get(job.name)
            if job.state == "collected" or queue is None:
                continue
            # A job missing in the account was never sent.
            if job.tag not in queue.meter.open_jobs() and job.id is None:
                await self.index.release_waiting(job.tag)
                self.index.remove_job(job.tag)
                continue
            self._start_runner(queue, job, fresh=False)

    def list_uncollected(self) -> list[PendingJob]:
        return [job for job in self.index.jobs if job.state != "collected"]

    def pop_jobs_with_unknown_results(self) -> list[PendingJob]:
        """Return, once, the collected jobs that lack results which may have been paid."""
        jobs, self._jobs_with_unknown_results = self._jobs_with_unknown_results, []
        return jobs

    def begin_round(self) -> None:
        """Begin a round, in which records are made of what has been collected."""
        self._has_results = False
        self._usable = [job.tag for job in self.index.jobs if job.state == "collected"]
        for queue in self.queues.values():
            queue.live_left = batch_index.LIVE_AGAIN

    def submit_parked(self, name: str | None = None) -> None:
        for queue in self.queues.values():
            if name in (None, queue.spec.name):
                queue.submit_parked_file()

    def submit_requests_that_hold_money(self) -> Held:
        """Submit parked requests that hold money others wait for, unless they are few and running jobs hold
        more. Return how long the rest stays held."""
        under_way = sum(runner.job.requests for runner in self._runners.values())
        for queue in self.queues.values():
            if under_way < WORTH_A_JOB or queue.parked >= WORTH_A_JOB:
                queue.submit_parked_file()
        if any(runner.job.id is None and not runner.looked for runner in self._runners.values()):
            return Held.BRIEFLY
        waits = self.batching.mode is BatchMode.WAIT and bool(self._runners)
        return Held.BY_JOBS if waits else Held.FOR_GOOD

    def remove_recorded_jobs(self) -> None:
        self.index.remove_jobs_and_empty_folder(self._usable)

    async def submit_parked_and_await_results(self) -> bool:
        """Submit what is parked, and wait for results; False if none will come. In a mode that does not wait,
        return once each job was submitted and checked. Raises StoreError: the disk refuses."""
        wait = self.batching.mode is BatchMode.WAIT
        self.submit_parked()
        while not self._has_results and self._failure is None and self._runners:
            if not wait and all(runner.looked for runner in self._runners.values()):
                break
            self._woken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), None if wait else _LOOK_S)
        if self._failure is not None:
            raise self._failure
        return self._has_results

    async def aclose(self) -> None:
        """Stop polling; forget requests that are in no job."""
        for queue in self.queues.values():
            queue.discard_parked()
        for task in self._runners:
            task.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        with suppress(errors.StoreError):  # the time of the last check is only informative
            self.index.jobs.write_or_delete_if_empty()
        self.index.close()

    def submit_file(self, queue: batch_index.BatchQueue, file: batch_index.ParkedFile) -> None:
        """Record a job before it is submitted, then start its runner."""
        spec = queue.spec
        job = PendingJob(
            tag=file.tag,
            state="written",
            interface=spec.interface,
            name=spec.name,
            model=spec.model,
            endpoint=queue.endpoint,
            phases=dict(file.phases),
            requests=file.requests,
            bytes=file.bytes,
            written_at=time.time(),
            bodies=queue.bodies(),
        )
        self.index.jobs.put(job)
        queue.meter.move_parked_to_job(file.tag, file.requests, file.usd, file.dearest_usd)
        self._start_runner(queue, job, fresh=True)

    def _start_runner(self, queue: batch_index.BatchQueue, job: PendingJob, *, fresh: bool) -> None:
        def has_other_jobs() -> bool:
            others = (runner.job for runner in self._runners.values() if runner.queue is queue)
            return any(other is not job and other.state == "submitted" for other in others)

        runner = BatchJobRunner(queue, job, self.batching, self._tell, has_other_jobs)
        task = asyncio.get_running_loop().create_task(runner.run(fresh=fresh))
        self._runners[task] = runner
        task.add_done_callback(self._finish_runner)

    def _finish_runner(self, task: asyncio.Task[JobEnd]) -> None:
        job = self._runners.pop(task).job
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._failure = self._failure or error
        elif task.result() is not JobEnd.LEFT:
            self._has_results = True
            self._jobs_with_unknown_results += [job] if job.unknown else []
        self._woken.set()
        self.when_one_ends()


# --- Jobs cancelled or given up without their models


async def cancel_jobs_and_count_left(
    jobs: Iterable[PendingJob],
    folder: RunDir,
    keys: Keys,
    tell: Callable[[str], None],
    *,
    gives_up: bool = False,
) -> int:
    """Ask each job's provider to cancel it; return how many could not be cancelled, and stay. Whoever
    submitted a job collects what it has done.

    A job that its provider does not know, or that was to be cancelled before, is given up, as all are if
    ``gives_up``: it leaves the folder's list, which nobody else writes meanwhile, and counts as perhaps
    spent. ``tell`` gets a sentence on each. Raises StoreError: the folder cannot be read or written.
    """
    left = 0
    for job in jobs:
        if job.state == "collected":
            continue
        before, job.note = job.cancelled, ""
        gone = gives_up or before == "accepted"
        try:
            await _cancel_at_provider(job, keys)
        except errors.NotFound:
            gone, job.note = True, "its provider no longer knows it"
        except (errors.ModelError, errors.UsageError) as error:
            gone, job.note = gone or bool(before), f"{error}. {keys.describe_places(job.interface)}"
            job.cancelled = "requested"
        else:
            job.cancelled = "accepted"
            tell(f"{job.label} is being cancelled")
        if gone:
            _remove_and_book_as_uncertain(job, folder)
            why = f" ({job.note})" if job.note else ""
            tell(f"{job.label} is given up{why}: it may have been paid, and counts as perhaps spent")
            continue
        if job.note:
            tell(f"{job.label} is left as it is: {job.note} --cancel-batches, repeated, abandons it.")
            left += 1
        _open_index(folder).jobs.put(job)
    return left


def _open_index(folder: RunDir) -> batch_index.BatchIndex:
    return batch_index.BatchIndex(folder.batches, folder.pending_batches)


def _remove_and_book_as_uncertain(job: PendingJob, folder: RunDir) -> None:
    accounts = AccountFile(folder.usage)
    accounts.load()
    row = accounts.rows.get(job.name)
    if row is not None and (account := row.jobs.pop(job.tag, None)) is not None:
        row.booked.append(job.tag)
        row.uncertain_usd += account.usd
        accounts.write()
    _open_index(folder).remove_job(job.tag)


async def _cancel_at_provider(job: PendingJob, keys: Keys) -> None:
    """Ask a job's provider to cancel it. Raises ModelError: it refuses; UsageError: no key or job id."""
    if job.id is None:
        raise errors.UsageError("whether it was submitted is unknown")
    if job.interface not in HOSTS:
        raise errors.UsageError(f"the interface {job.interface} no longer exists")
    host = HOSTS[job.interface]
    base_url = None if job.endpoint == host.url else job.endpoint
    spec = ModelSpec(name=job.name, interface=job.interface, model=job.model, base_url=base_url)
    address = resolve_address(spec, host, keys)
    endpoint = Endpoint(address.url, address.signer, Limiter(), address.secrets, host.headers)
    from coeval.models.batch.batch_http import BatchHttp

    http = BatchHttp(endpoint, explain=address.dialect.explain)
    try:
        await cancel_job(load_batch_maker(host)(http, spec, address.settings), job.id)
    finally:
        await http.aclose()


# --- A hosted model with some phases in batch jobs, the others live


class BatchedModel(HostedModel):
    """A hosted model some of whose phases go by batch jobs. Their requests are parked for the next job, which
    raises Pending, and answered from collected results when they are made again. Bodies and errors are those
    of live requests. A request's id hashes its `CallId` and body: no answer can be taken for another
    request's."""

    def join_batches(self, batches: Batches, address: ModelAddress, meter: Meter) -> BatchHttp:
        """Park requests with ``batches``; return the HTTP client to close in the end. Raises UsageError: the
        host's batches need a setting that is missing."""
        from coeval.models.batch.batch_http import BatchHttp

        spec, endpoint = address.spec, self._endpoint
        http = BatchHttp(endpoint, explain=address.dialect.explain)
        self._meter = meter
        self._calls_models = batches.batching.mode.calls_models
        self._parked = batches.batching.phases.get(spec.name, frozenset())
        self._plain_host = address.host
        self._bodies = [HostRefusals()]
        self._restore_refusals(
            bodies for job in batches.index.jobs if job.name == spec.name for bodies in job.bodies
        )
        self._queue = batches.queues[spec.name] = batch_index.BatchQueue(
            spec=spec,
            endpoint=endpoint.url,
            api=load_batch_maker(address.host)(http, spec, address.settings),
            meter=meter,
            read=self._decode_outcome,
            bodies=lambda: list(self._bodies),
            redact=lambda text: http.redactor.redact_message(text),
            keyless=_describe_missing_key(address),
            index=batches.index,
            submit_file=batches.submit_file,
        )
        return http

    async def is_listed(self) -> bool:
        """Check the list as `HostedModel`; one served in batches only is listed if jobs can be made."""
        api = self._queue.api
        if not (self._parked and api.limits.batches_only) or self._admission.refusal() is not None:
            return await super().is_listed()
        await api.find(BatchJob("", Path("none.jsonl"), 0, 0, time.time()))
        return True

    def complete(self, request: Request) -> Coroutine[Any, Any, Completion]:
        if request.purpose not in BATCH_PHASES or request.call is None:
            return super().complete(request)
        return self._complete_adapting_to_refusals(
            request
        )  # a job has no order in which one request could go first

    def _bypass_cache(self, request: Request) -> Request:
        """Leave the body alone: its answer is found by it."""
        return request

    def _restore_refusals(self, earlier: Iterable[HostRefusals]) -> None:
        for refusals in earlier:
            if refusals not in self._bodies:
                self._bodies.append(refusals)
        self._refused_schemas.update(name for refusals in self._bodies for name in refusals.schemas)
        self._refused_fields.update(name for refusals in self._bodies for name in refusals.fields)
        if any(refusals.limit_renamed for refusals in self._bodies):
            self._limit_renamed = True
            self._host = self._plain_host.with_other_limit_field(self._spec.model)

    async def _complete_adapting_to_refusals(self, request: Request) -> Completion:
        """Complete as `HostedModel`, but prefer what a job brought, whatever the host has refused since."""
        if request.purpose in BATCH_PHASES and request.call is not None:
            now = HostRefusals(
                tuple(sorted(self._refused_schemas)), tuple(sorted(self._refused_fields)), self._limit_renamed
            )
            if now not in self._bodies:
                self._bodies.append(now)
            for refusals in self._bodies if len(self._bodies) > 1 else ():
                completion = self._find_answer_under(refusals, request.call, request)
                if completion is not None:
                    return completion
        return await super()._complete_adapting_to_refusals(request)

    def _find_answer_under(
        self, refusals: HostRefusals, call_id: CallId, request: Request
    ) -> Completion | None:
        """Find the answer to a request as encoded under earlier refusals; Gap if it waits or is lost."""
        refused = self._refused_schemas, self._refused_fields, self._host
        self._refused_schemas, self._refused_fields = set(refusals.schemas), set(refusals.fields)
        renamed = self._plain_host.with_other_limit_field(self._spec.model)
        self._host = renamed if refusals.limit_renamed else self._plain_host
        try:
            sent, dropped = self._drop_refused(request)
            structured = request.schema is not None and request.schema.name not in self._refused_schemas
            body = self._dialect.encode(sent, self._spec, self._host, structured=structured)
        except errors.ModelError:
            return None  # no such body could be made
        finally:
            self._refused_schemas, self._refused_fields, self._host = refused
        outcome = self._queue.index.find_outcome_or_raise_gap(_hash_call_and_body(call_id, body))
        if outcome is None or outcome.completion is None:
            return None
        completion = mark_if_cut_by_window(outcome.completion, lowest_answer_limit(sent.sampling, self._spec))
        return msgspec.structs.replace(completion, attempts=1, dropped=dropped)

    def _answers_soon(self, request: Request) -> bool:
        return request.purpose not in self._parked

    async def _send(self, request: Request, body: bytes, call: Call[Completion]) -> Answered[Completion]:
        """Return a job's answer, send the request live if it is not batched, or park it and raise Pending."""
        call_id = request.call
        if call_id is None or request.purpose not in BATCH_PHASES:
            return await super()._send(request, body, call)
        key = _hash_call_and_body(call_id, body)
        queue = self._queue
        outcome = queue.index.find_outcome_or_raise_gap(key)
        if outcome is not None:
            if outcome.completion is not None:
                return Answered(outcome.completion, outcome.completion.latency_s, 1)
            raise (
                outcome.error.make_error()
                if outcome.error is not None
                else errors.ModelError("it has no results")
            )
        if not self._calls_models:
            raise errors.Draining("only finished batch jobs become records")
        if request.purpose not in self._parked or (call_id.attempt > 0 and queue.take_live_slot()):
            answered = await super()._send(request, body, call)
            queue.index.store_live_outcome(batch_index.BatchOutcome(key.hex(), answered.value))
            return answered
        await self._reserve_money_and_park(key, request, body)
        raise errors.Pending(f"{call_id} waits for a batch job")

    async def _reserve_money_and_park(self, key: bytes, request: Request, body: bytes) -> None:
        """Hold a request's permit and money, and write it to the file of the next job. Raises Gap: a quota or
        budget does not allow it, or no more jobs are made of this model."""
        queue = self._queue
        queue.raise_if_refused()
        usd = 0.0
        if self._priced:
            tokens = max_tokens_of_all_answers(request.sampling, self._spec)
            usd = self._admission.most_usd(len(body), tokens, batched=True)
        waiting = self._meter.reserve_for_batch(usd, request.priority)
        if waiting is not None:
            await waiting
            try:
                queue.raise_if_refused()
            except errors.Gap:
                self._meter.release_unsent_batch_request(usd)
                raise
        queue.park_submitting_if_full(key, body, request.purpose, usd)

    def _decode_outcome(self, custom_id: str, status: int, body: bytes) -> batch_index.BatchOutcome:
        """Decode the outcome of a request in a job as live replies are, priced and redacted."""
        redactor = self._endpoint.redactor
        where = f"a batch of {self.name}"
        try:
            if 200 <= status < 300:
                completion = mark_if_uncounted(
                    self._decode_with_gateway_headers(HttpReply(status, {}, body), redactor)
                )
                usage = self._meter.add_batch_price(completion.usage)
                completion = cut_completion(msgspec.structs.replace(completion, usage=usage), self._max_bytes)
                return batch_index.BatchOutcome(custom_id, completion)
            error = self._explain(HttpReply(status, {}, body), redactor)
            if error is None:
                error = error_from_status(status, body, where, redactor)
            error.status = status
        except errors.Undecodable as undecodable:
            error = error_from_garbage(status, body, undecodable, where, redactor)
        except errors.ModelError as reported:
            error = reported
            if error.usage is not None:
                error.usage = self._meter.add_batch_price(error.usage)
        error.args = (self._endpoint.redact_own_message(str(error)),)
        return batch_index.BatchOutcome(custom_id, error=batch_index.StoredError.from_error(error))


def _describe_missing_key(address: ModelAddress) -> str:
    """Say where a key is looked for, if none was found and one is expected; else ''."""
    if address.signer is not None or not address.host.key_env:
        return ""
    variables = " or ".join(address.host.key_env)
    return f"no key was sent, as there is no {variables} in the environment and none in a key file"


def _hash_call_and_body(call_id: CallId, body: bytes) -> bytes:
    """Return a request's unique id of 16 bytes: another body is another request."""
    return blake2b(call_id.custom_id.encode() + body, digest_size=16).digest()
