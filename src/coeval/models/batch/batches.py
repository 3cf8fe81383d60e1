"""All batch jobs of a folder: submitted as they fill, watched, collected, given up; and the model that waits
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

from coeval.core.errors import (
    Draining,
    Gap,
    ModelError,
    NotFound,
    Pending,
    StoreError,
    Undecodable,
    UsageError,
)
from coeval.core.model import (
    ModelSpec,
    mark_cut_by_window,
    mark_uncounted,
    max_answer_tokens,
    min_answer_limit,
)
from coeval.core.records import CallId, Completion, Purpose, Request
from coeval.models.address import ModelAddress, resolve_address
from coeval.models.batch.batch_api import BatchJob, batch_maker, cancel_job
from coeval.models.batch.batch_index import (
    BatchIndex,
    BatchOutcome,
    BatchQueue,
    ParkedFile,
    Source,
    StoredError,
)
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


# A start that does not wait for jobs ends once each was looked at, of which nothing wakes it.
_LOOK_S = 0.1


class Batches:
    """Made when a session begins; `queue` for each model that is batched, then `take_up` what an earlier
    start has left. `more` is the end of a round, `aclose` of the session: jobs go on at their providers.

    Parameters
    ----------
    folder, jobs:
        where requests and results lie, and the list of jobs: see `BatchIndex`.
    tell:
        told in a sentence what becomes of jobs.

    Raises
    ------
    StoreError
        what an earlier start has left cannot be read.
    """

    def __init__(self, folder: Path, jobs: Path, batching: Batching, tell: Callable[[str], None]) -> None:
        self.index = BatchIndex(folder, jobs)
        self._batching = batching
        self._tell = tell
        self._queues: dict[str, BatchQueue] = {}
        self._runners: dict[asyncio.Task[JobEnd], BatchJobRunner] = {}
        self._woken = asyncio.Event()
        self._news = False
        self._usable: list[str] = []
        self._short: list[PendingJob] = []
        self._failure: BaseException | None = None
        self.when_one_ends: Callable[[], None] = lambda: None
        """Called when a job is looked after no more."""

    def __contains__(self, name: str) -> bool:
        """Whether a model is asked by jobs, or was: what is in them is not asked for twice."""
        return bool(self.parked_phases(name)) or any(job.name == name for job in self.index.jobs)

    def parked_phases(self, name: str) -> frozenset[Purpose]:
        """The phases in which requests of a model are put into jobs from now on."""
        return self._batching.phases.get(name, frozenset())

    @property
    def asks(self) -> bool:
        """Whether anything is asked of models, by jobs or live."""
        return self._batching.mode.asks

    def queue(self, source: Source) -> BatchQueue:
        """Where a model's requests are parked."""
        queue = self._queues[source.name] = BatchQueue(source, self.index, self._submit)
        return queue

    async def take_up(self) -> None:
        """Go on with the jobs that an earlier start has left, of models that are here now."""
        self.begin_round()
        for job in self.index.jobs:
            queue = self._queues.get(job.name)
            if job.state == "collected" or queue is None:
                continue
            # the account may not have it: then nothing was sent
            if job.tag not in queue.source.meter.open_jobs() and job.id is None:
                await self.index.release(job.tag)
                self.index.forget(job.tag)
                continue
            self._carry(queue, job, fresh=False)

    def jobs(self) -> list[PendingJob]:
        """Those that are not collected."""
        return [job for job in self.index.jobs if job.state != "collected"]

    def short(self) -> list[PendingJob]:
        """Jobs collected since this was last called of which results are missing that may have been paid."""
        found, self._short = self._short, []
        return found

    def begin_round(self) -> None:
        """What has been collected by now can be made records of."""
        self._news = False
        self._usable = [job.tag for job in self.index.jobs if job.state == "collected"]
        for queue in self._queues.values():
            queue.begin_round()

    def submit(self, name: str | None = None) -> None:
        """Make jobs of what is parked: of one model, or of all."""
        for queue in self._queues.values():
            if name in (None, queue.source.name):
                queue.close_file()

    def free_money(self) -> Held:
        """Requests wait for money that others hold who are parked: submit these, unless they are few and jobs
        that hold more are under way. What may be waited for."""
        under_way = sum(runner.job.requests for runner in self._runners.values())
        for queue in self._queues.values():
            if under_way < WORTH_A_JOB or queue.parked >= WORTH_A_JOB:
                queue.close_file()
        if any(runner.job.id is None and not runner.looked for runner in self._runners.values()):
            return Held.BRIEFLY
        waits = self._batching.mode is BatchMode.WAIT and bool(self._runners)
        return Held.BY_JOBS if waits else Held.FOR_GOOD

    def clear(self) -> None:
        """All that could be made of what the last round began with is on disk."""
        self.index.clear(self._usable)

    async def more(self) -> bool:
        """Submit what is parked and wait until something has come back; False where nothing will. Where
        nobody wants to wait for it, only until each job is submitted and has been looked at.

        Raises StoreError: the disk refuses.
        """
        wait = self._batching.mode is BatchMode.WAIT
        self.submit()
        while not self._news and self._failure is None and self._runners:
            if not wait and all(runner.looked for runner in self._runners.values()):
                break
            self._woken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), None if wait else _LOOK_S)
        if self._failure is not None:
            raise self._failure
        return self._news

    async def aclose(self) -> None:
        """Look after nothing any more; what is in no job is forgotten."""
        for queue in self._queues.values():
            queue.drop()
        for task in self._runners:
            task.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        with suppress(StoreError):  # when each was looked at last is information only
            self.index.jobs.write()
        self.index.close()

    def _submit(self, queue: BatchQueue, file: ParkedFile) -> None:
        """Write down that a job is about to be submitted, then have it carried."""
        source = queue.source
        job = PendingJob(
            tag=file.tag,
            state="written",
            interface=source.interface,
            name=source.name,
            model=source.model,
            endpoint=source.endpoint,
            phases=dict(file.phases),
            requests=file.requests,
            bytes=file.bytes,
            written_at=time.time(),
            bodies=source.bodies(),
        )
        self.index.jobs.put(job)
        source.meter.submit(file.tag, file.requests, file.usd, file.dearest_usd)
        self._carry(queue, job, fresh=True)

    def _carry(self, queue: BatchQueue, job: PendingJob, *, fresh: bool) -> None:
        def busy() -> bool:
            others = (runner.job for runner in self._runners.values() if runner.queue is queue)
            return any(other is not job and other.state == "submitted" for other in others)

        runner = BatchJobRunner(queue, job, self._batching, self._tell, busy)
        task = asyncio.get_running_loop().create_task(runner.run(fresh=fresh))
        self._runners[task] = runner
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[JobEnd]) -> None:
        job = self._runners.pop(task).job
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._failure = self._failure or error
        elif task.result() is not JobEnd.LEFT:
            self._news = True
            self._short += [job] if job.unknown else []
        self._woken.set()
        self.when_one_ends()


# --- Batch jobs cancelled, and given up, by whoever does not know what they are for


async def cancel_jobs(
    jobs: Iterable[PendingJob],
    folder: RunDir,
    keys: Keys,
    tell: Callable[[str], None],
    *,
    gives_up: bool = False,
) -> int:
    """Ask each job's provider to do no more of it; how many could not be cancelled, and stay. What a job has
    done by then is collected by whoever submitted it. One that its provider knows no more, or that was to be
    cancelled before, is given up, as all are that somebody ``gives_up``: it leaves the list of the folder,
    which nobody else writes meanwhile, and counts as perhaps spent. ``tell`` is told what became of each.

    Raises StoreError: the folder cannot be read or written.
    """
    left = 0
    for job in jobs:
        if job.state == "collected":
            continue
        before, job.note = job.cancelled, ""
        gone = gives_up or before == "accepted"
        try:
            await _cancel(job, keys)
        except NotFound:
            gone, job.note = True, "its provider knows it no more"
        except (ModelError, UsageError) as error:
            gone, job.note = gone or bool(before), f"{error}. {keys.places(job.interface)}"
            job.cancelled = "requested"
        else:
            job.cancelled = "accepted"
            tell(f"{job.label} is being cancelled")
        if gone:
            _give_up(job, folder)
            why = f" ({job.note})" if job.note else ""
            tell(f"{job.label} is given up{why}: it may have been paid, and counts as perhaps spent")
            continue
        if job.note:
            tell(f"{job.label} is left as it is: {job.note} --cancel-batches, given once more, gives it up.")
            left += 1
        _index(folder).jobs.put(job)
    return left


def _index(folder: RunDir) -> BatchIndex:
    return BatchIndex(folder.batches, folder.pending_batches)


def _give_up(job: PendingJob, folder: RunDir) -> None:
    """Take it off the list; all that was held for it is perhaps spent."""
    accounts = AccountFile(folder.usage)
    accounts.load()
    row = accounts.rows.get(job.name)
    if row is not None and (account := row.jobs.pop(job.tag, None)) is not None:
        row.booked.append(job.tag)
        row.uncertain_usd += account.usd
        accounts.write()
    _index(folder).forget(job.tag)


async def _cancel(job: PendingJob, keys: Keys) -> None:
    """
    Raises ModelError: its provider does not cancel it; UsageError: it cannot be asked: there is no key, or
    nobody knows whether it was submitted.
    """
    if job.id is None:
        raise UsageError("whether it was submitted is not known")
    if job.interface not in HOSTS:
        raise UsageError(f"there is no interface {job.interface} any more")
    host = HOSTS[job.interface]
    base_url = None if job.endpoint == host.url else job.endpoint
    spec = ModelSpec(name=job.name, interface=job.interface, model=job.model, base_url=base_url)
    address = resolve_address(spec, host, keys)
    endpoint = Endpoint(address.url, address.signer, Limiter(), address.secrets, host.headers)
    from coeval.models.batch.batch_http import BatchHttp

    http = BatchHttp(endpoint, explain=address.dialect.explain)
    try:
        await cancel_job(batch_maker(host)(http, spec, address.settings), job.id)
    finally:
        await http.aclose()


# --- A hosted model of which some phases are asked by batch jobs, and the others live


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
                reported=lambda text: http.redactor.redact_message(text),
                keyless=_keyless(address),
            )
        )
        return http

    async def is_listed(self) -> bool:
        """As a `HostedModel`; one that is served in batches only is taken for listed where jobs can be."""
        api = self._queue.source.api
        if not (self._parked and api.limits.batches_only) or self._admission.refusal() is not None:
            return await super().is_listed()
        await api.find(BatchJob("", Path("none.jsonl"), 0, 0, time.time()))
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
            self._host = self._plain_host.with_other_limit_field(self._spec.model)

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
        renamed = self._plain_host.with_other_limit_field(self._spec.model)
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
        completion = mark_cut_by_window(outcome.completion, min_answer_limit(sent.sampling, self._spec))
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
        if request.purpose not in self._parked or (about.attempt > 0 and queue.may_be_live()):
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
            tokens = max_answer_tokens(request.sampling, self._spec)
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
                completion = mark_uncounted(self._read_body(HttpReply(status, {}, body), redactor))
                usage = self._meter.add_batch_price(completion.usage)
                completion = cut_completion(msgspec.structs.replace(completion, usage=usage), self._most)
                return BatchOutcome(custom_id, completion)
            error = self._explain(HttpReply(status, {}, body), redactor)
            if error is None:
                error = error_from_status(status, body, where, redactor)
            error.status = status
        except Undecodable as undecodable:
            error = error_from_garbage(status, body, undecodable, where, redactor)
        except ModelError as reported:
            error = reported
            if error.usage is not None:
                error.usage = self._meter.add_batch_price(error.usage)
        error.args = (self._endpoint.redact_message(str(error)),)
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
