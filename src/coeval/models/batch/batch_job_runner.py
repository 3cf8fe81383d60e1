"""One batch job from its file to its results, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus

import msgspec

from coeval.core.errors import AccessDenied, ModelError, NotFound, RateLimited, ServerFault
from coeval.core.options import BATCH_OFF
from coeval.core.text import pluralize
from coeval.models.batch.batch_api import (
    BatchJob,
    BatchProgress,
    BatchReply,
    DamagedResult,
    Undecided,
    Unmade,
    cancel_job,
)
from coeval.models.batch.batch_index import (
    BatchOutcome,
    BatchQueue,
    StoredError,
    lines_file,
    results_file,
)
from coeval.models.batch.job_list import Batching, BatchMode, PendingJob
from coeval.models.pacing.limits import LONGEST_HOLD_S
from coeval.store.jsonl import replace_file

# --- Results of a batch job

_ENCODE = msgspec.json.Encoder().encode
# Fewer than in `batch_index`: each reply is a whole answer to parse and to write.
_BREATH = 500


@dataclass(slots=True)
class _Tally:
    """What a provider gives for a job: requests that are answered, that failed, and that it says were never
    carried out; ``left`` are those without a result, ``damaged`` counts the results nobody can read."""

    left: set[str]
    unrequested: set[str]
    answered: int = 0
    failed: int = 0
    damaged: int = 0
    first: DamagedResult | None = None

    def skip(self, line: DamagedResult) -> None:
        self.damaged += 1
        self.first = self.first or line

    def takes(self, result: BatchReply) -> bool:
        """Count a result; whether it is the outcome of a request that had none."""
        if result.custom_id not in self.left and result.custom_id not in self.unrequested:
            return False
        self.left.discard(result.custom_id)
        if result.status is None:
            self.unrequested.add(result.custom_id)
            return False
        self.unrequested.discard(result.custom_id)
        if 200 <= result.status < 300:
            self.answered += 1
        else:
            self.failed += 1
        return True

    def unknown(self, progress: BatchProgress) -> int:
        """Requests without a result that may have been carried out, and paid: all but those that the provider
        says expired, were cancelled or failed."""
        left = len(self.left)
        if progress.state == "ended":
            may_be = left - min(left, max(0, (progress.failed or 0) - self.failed - len(self.unrequested)))
        else:
            may_be = max(0, (progress.done or 0) - self.answered)
        return min(left, max(may_be, self.damaged))

    def to_come(self, progress: BatchProgress) -> int:
        """Results that the provider counts and has not given."""
        if progress.state == "ended":
            return len(self.left)
        errors = max(0, (progress.failed or 0) - self.failed - len(self.unrequested))
        return min(len(self.left), self.unknown(progress) + errors)


class JobResults:
    """The results of one job of a queue."""

    def __init__(self, queue: BatchQueue, job: PendingJob) -> None:
        self._source = queue.source
        self._index = queue.index
        self._job = job

    async def write(self, progress: BatchProgress, *, last: bool) -> None:
        """Write down what the provider has: whole or not at all, each of our requests once, the answers as
        they are read live and without credentials. Fewer results than ``progress`` counts are taken at the
        ``last`` look only.

        Raises ModelError: it cannot be had; a retryable one where there are fewer results than the provider
        counts; StoreError: the disk refuses.
        """
        folder, job = self._index.folder, self._job
        into = folder / f"{job.tag}.part"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        tally, count = _Tally(await self._index.waiting_of(job.tag), set()), 0
        try:
            with replace_file(results_file(folder, job.tag)) as file:
                async for reply in self._source.api.collect(job.id or "", into):
                    count += 1
                    if not count % _BREATH:
                        await asyncio.sleep(0)
                    if isinstance(reply, DamagedResult):
                        tally.skip(reply)
                    elif tally.takes(reply):
                        outcome = self._source.read(reply.custom_id, reply.status or 0, reply.body)
                        file.write(_ENCODE(outcome) + b"\n")
                self._hold_against(progress, tally, last=last)
        finally:
            shutil.rmtree(into, ignore_errors=True)

    def _hold_against(self, progress: BatchProgress, tally: _Tally, *, last: bool) -> None:
        """Write down of how many requests nobody knows what became, before the results are."""
        job = self._job
        if not last and (late := tally.to_come(progress)):
            raise ServerFault(
                f"it is {progress.shown}, and {late:,} of its {job.requests:,} results are not there yet"
            )
        job.unknown = tally.unknown(progress)
        if job.unknown and tally.first is not None:
            lines = pluralize(tally.damaged, "result")
            where = f"{tally.first.where}: {self._source.reported(tally.first.why)}"
            job.damage = f"{lines} cannot be read ({where})"
        self._index.jobs.put(job)

    def write_one(self, outcome: BatchOutcome) -> None:
        """Write down what came of the only request of a job."""
        with replace_file(results_file(self._index.folder, self._job.tag)) as file:
            file.write(_ENCODE(outcome) + b"\n")

    async def take_in(self) -> int:
        """Book what was written, and know it; how many these are. What may have been carried out besides is
        booked as perhaps spent. It may be ended at any place, and is safe to be done anew: a job is booked
        once.

        Raises StoreError: it cannot be read, or the account not be written.
        """
        meter = self._source.meter
        bill, count = meter.open_bill(), 0
        account = meter.open_jobs().get(self._job.tag)
        most_usd = account.dearest_usd if account is not None else 0.0
        for outcome in self._index.take_in(self._job.tag):
            count += 1
            usage = outcome.completion.usage if outcome.completion is not None else None
            usage = outcome.error.usage if outcome.error is not None else usage
            if usage is not None:
                bill.add_answer(usage, most_usd)
            else:
                bill.add_failure(most_usd if _may_be_billed(outcome) else 0.0)
            if not count % _BREATH:
                await asyncio.sleep(0)
        for _ in range(self._job.unknown):
            bill.add_failure(most_usd)
        meter.settle_job(self._job.tag, bill)
        return count

    def give_up(self) -> None:
        """Book the job as carried out and perhaps paid, with all that was held for it.

        Raises StoreError: the account cannot be written.
        """
        meter = self._source.meter
        bill, account = meter.open_bill(), meter.open_jobs().get(self._job.tag)
        if account is not None:
            for _ in range(account.requests):
                bill.add_failure(account.dearest_usd)
        meter.settle_job(self._job.tag, bill)


def _may_be_billed(outcome: BatchOutcome) -> bool:
    """Whether there was an answer, of which nobody can read what it took."""
    status = outcome.error.status if outcome.error is not None else None
    return status is None or status < 400


_log = logging.getLogger("coeval")

# Times that a job is looked for whose id was lost, before it is submitted anew: lists lag.
LOOKS = 6
# Failures in a row: a host's bad hours pass, and a refusal for good is left to the next start.
SUBMISSIONS = 20
# Of those that come before there is a job: each has been tried for a minute, and nothing is lost by an end.
UPLOADS = 3
# Looks at results that are fewer than their provider counts, or cannot be had: some five minutes at the usual
# pace, which is more than any list lags behind.
COLLECTIONS = 10
# Looks in a row that may fail before a job is left to the next start: an hour at the usual pace, so that a
# network may be away for a while.
LOST_LOOKS = 60
# A job that has not ended so long after it was submitted is left to the next start. No provider promises more
# than 96 hours (Vertex AI: 72 of waiting, 24 of work); Azure OpenAI promises nothing.
LONGEST_JOB_S = 7 * 86_400.0
# Pauses after which a job that was turned away for others is tried again, if these have not ended before.
LONGEST_PUT_OFF = 20


class JobEnd(Enum):
    """How it ended."""

    COLLECTED = auto()
    RELEASED = auto()
    """it never came about, and its requests are to be asked otherwise"""
    LOST = auto()
    """it came to nothing: its requests stay owed"""
    LEFT = auto()
    """it cannot be looked at now; it stays on the list"""


class BatchJobRunner:
    """Carries ``job``, of ``queue``; ``tell`` is told what a user should know, ``busy`` says whether other
    jobs of the model are under way. ``looked``: its provider has been asked how it stands."""

    def __init__(
        self,
        queue: BatchQueue,
        job: PendingJob,
        batching: Batching,
        tell: Callable[[str], None],
        busy: Callable[[], bool],
    ) -> None:
        self.queue = queue
        self.job = job
        self._pace = batching.pace
        self._mode = batching.mode
        self._tell = tell
        self._busy = busy
        self.looked = False
        self._is_troubled = False
        self._gives_up = batching.mode is BatchMode.CANCEL and bool(job.cancelled)
        self._api = queue.source.api
        self._index = queue.index
        self._results = JobResults(queue, job)

    async def run(self, *, fresh: bool) -> JobEnd:
        """Bring the job to its end. ``fresh``: its provider has not been told of it yet. Whoever wants a job
        cancelled that was to be cancelled before gives it up, unless it has ended by now.

        Raises StoreError: the disk refuses.
        """
        if self._mode is BatchMode.CANCEL and not self.job.cancelled:
            self.job.cancelled = "requested"
            self._index.jobs.put(self.job)
        try:
            return await self._to_its_end(fresh=fresh)
        except ModelError as error:
            return await self._give_up(error) if self._gives_up else self._left(error)

    async def _to_its_end(self, *, fresh: bool) -> JobEnd:
        """
        Raises ModelError: it cannot be known how it ends; StoreError: the disk refuses.
        """
        look = not fresh
        while not results_file(self._index.folder, self.job.tag).exists():
            if self.job.id is None and (ended := await self._submit(look=look)) is not None:
                return ended
            if self._mode is BatchMode.CANCEL and (unknown := await self._cancel()) is not None:
                return await self._give_up(unknown)
            progress = await self._wait()
            if progress.state != "failed" or progress.done:
                await self._collect(progress)
            elif isinstance(progress.error, RateLimited) and self._busy():
                await self._put_off(progress.error)
                look = False
            else:
                return await self._failed(progress.error)
        return await self._take_in(fresh=fresh)

    # --- to the provider ---------------------------------------------------------------------

    async def _submit(self, *, look: bool) -> JobEnd | None:
        """Have the job made, once; its end where it does not come about. ``look``: it may have been made."""
        waits = self._pace.pauses()
        counted = 0
        while True:
            if look and (job_id := await self._found()) is not None:
                break
            if not self._mode.asks:
                return await self._unsubmitted()
            try:
                job_id = await self._api.create(self._as_submitted())
                break
            except ModelError as error:
                if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or self._fills_the_queue(error):
                    return await self._too_large(error)
                if not error.retryable:
                    if (made := await self._made_after_all()) is None:
                        return await self._failed(error)
                    job_id = made
                    break
                # What was turned away was not made; of the rest nobody can know.
                look = look or not isinstance(error, RateLimited | Unmade)
                waits_for_others = isinstance(error, RateLimited) and self._busy()
                counted += not waits_for_others
                if counted >= UPLOADS and isinstance(error, Unmade) and not look:
                    return await self._failed(error)
                if counted > SUBMISSIONS:
                    raise
                self._note(error)
                await asyncio.sleep(max(next(waits), min(error.retry_after_s or 0.0, LONGEST_HOLD_S)))
        if not _is_id(job_id):
            return await self._nameless(job_id)
        self.job.id, self.job.state, self.job.note = job_id, "submitted", ""
        self.job.submitted_at = time.time()
        self._is_troubled = False
        self._index.jobs.put(self.job)
        self._tell(f"{self.job.label} is submitted")
        self.queue.source.meter.budget_gate.serve_waiting()  # what it holds will not come back soon
        return None

    async def _made_after_all(self) -> str | None:
        """The id of a job that was refused, and made all the same: it is looked for as one whose id was lost.
        A host that refuses that, too, has no batches, or none for this key."""
        try:
            return await self._found()
        except ModelError as error:
            if error.retryable:
                raise
            return None

    async def _unsubmitted(self) -> JobEnd:
        """It was never made, and nobody wants it made now."""
        if self._mode is BatchMode.CANCEL:
            self._tell(f"{self.job.label} was never submitted, and will not be")
            return await self._release()
        self.looked = True
        return JobEnd.LEFT

    async def _cancel(self) -> NotFound | None:
        """Have the job cancelled; what its provider says where it knows of none."""
        try:
            await cancel_job(self._api, self.job.id or "")
        except NotFound as unknown:
            return unknown
        except ModelError:
            if not self._gives_up:
                raise
        else:
            if self.job.cancelled != "accepted":  # what it has done by then can be collected
                self._gives_up, self.job.cancelled = False, "accepted"
                self._index.jobs.put(self.job)
            self._tell(f"{self.job.label} is being cancelled")
        return None

    async def _found(self) -> str | None:
        """The id of a job that may have been made, looked for until it would be listed.

        Raises ModelError: it cannot be looked for, and so not be submitted either.
        """
        looks = failures = 0
        for pause in self._pace.pauses():
            try:
                found = await self._api.find(self._as_submitted())
            except ModelError as error:
                undecided = isinstance(error, Undecided)
                failures += not undecided
                if not error.retryable or failures > SUBMISSIONS or self._gives_up:
                    raise
                if undecided:
                    self._heed_age()
                self._note(error)
                if not self.looked and (undecided or not self._mode.asks):
                    self.looked = True
                    # Others may wait for what it holds, or not.
                    self.queue.source.meter.budget_gate.serve_waiting()
            else:
                looks += 1
                if found is not None or looks == LOOKS:
                    return found
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: pauses have no end")

    def _fills_the_queue(self, error: ModelError) -> bool:
        """Whether a job alone is more than its provider takes at once, by a 400 that says so."""
        alone = isinstance(error, RateLimited) and error.status == HTTPStatus.BAD_REQUEST and not self._busy()
        return alone and self.job.requests > 1

    def _as_submitted(self) -> BatchJob:
        others = (job.id for job in self._index.jobs if job.id is not None)
        lines = lines_file(self._index.folder, self.job.tag)
        return self.job.as_submitted(lines, (*others, *self.job.refused))

    async def _put_off(self, error: ModelError) -> None:
        """Too much of this model is under way: it is submitted again when something of it has ended."""
        job = self.job
        if job.id is not None:
            job.refused.append(job.id)
        job.id, job.state = None, "written"
        self._note(error)
        self._index.jobs.put(job)
        for pause, _ in zip(self._pace.pauses(), range(LONGEST_PUT_OFF), strict=False):
            await asyncio.sleep(pause)
            if not self._busy():
                return

    async def _wait(self) -> BatchProgress:
        """Look at the job until it has ended.

        Raises ModelError: it cannot be looked at, or goes on for too long.
        """
        failures = 0
        for pause in self._pace.pauses():
            try:
                progress = await self._api.check(self.job.id or "")
            except ModelError as error:
                failures += 1
                if not error.retryable or failures == LOST_LOOKS or self._gives_up:
                    raise
                self._note(error)
            else:
                failures, self._is_troubled = 0, False
                self._show(progress)
                if progress.state != "running":
                    return progress
                self._heed_age()
            self.looked = True
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: pauses have no end")

    def _heed_age(self) -> None:
        """Raise ServerFault where a job that has not ended is not waited for any longer."""
        since = self.job.submitted_at or self.job.written_at
        if self._gives_up:
            raise ServerFault("it has not ended since it was to be cancelled")
        if time.time() - since > LONGEST_JOB_S:
            raise ServerFault(
                f"it has not ended in {LONGEST_JOB_S / 86_400:.0f} days; coeval status RUN --cancel-batches "
                "cancels it, and given once more gives it up"
            )

    def _show(self, progress: BatchProgress) -> None:
        job = self.job
        shown = self.queue.source.reported(progress.shown)
        if shown != job.shown:
            done = "" if progress.done is None else f", {progress.done + (progress.failed or 0):,} done"
            self._tell(f"{self.job.label}: {shown}{done}")
        job.shown, job.total, job.done, job.failed = shown, progress.total, progress.done, progress.failed
        job.checked_at, job.note = time.time(), ""
        self._index.jobs.put(job)

    # --- and back ----------------------------------------------------------------------------

    async def _collect(self, progress: BatchProgress) -> None:
        """Write the results down, whole or not at all. Where they are fewer than their provider counts, they
        are looked at again, and the last time taken as they are."""
        waits = self._pace.pauses()
        for left in reversed(range(COLLECTIONS)):
            try:
                await self._results.write(progress, last=not left)
            except ModelError as error:
                if not error.retryable or not left:
                    raise
                self._note(error)
                await asyncio.sleep(next(waits))
            else:
                return

    async def _take_in(self, *, fresh: bool) -> JobEnd:
        """Know what was collected. What a job of an earlier start lacks is asked again in this one."""
        job, count = self.job, await self._results.take_in()
        if lacking := job.requests - count:
            undone = lacking - job.unknown
            said = [f"{pluralize(undone, 'request')} not carried out ({job.shown})"] if undone else []
            job.note = ", ".join(said + ([_unknown(job)] if job.unknown else []))
            if fresh:
                await self._index.lose(job.tag, f"{self.job.label} ended {job.shown} with {job.note}")
            else:
                await self._index.release(job.tag)
        job.state = "collected"
        self._index.jobs.put(job)
        self._tell(f"{job.label}: {count:,} collected" + (f", {job.note}" if lacking > job.unknown else ""))
        return JobEnd.COLLECTED

    # --- ends that were not meant ------------------------------------------------------------

    async def _too_large(self, error: ModelError) -> JobEnd:
        """A host takes less at once than its provider says: smaller jobs are made of the same requests."""
        job = self.job
        if job.requests == 1:
            for only in await self._index.waiting_of(job.tag):
                self._results.write_one(BatchOutcome(only, error=StoredError.of(error)))
            return await self._take_in(fresh=True)
        limits = self.queue.limits
        self.queue.limits = limits._replace(
            bytes=min(limits.bytes, max(1, job.bytes // 2)),
            requests=min(limits.requests, max(1, (job.requests + 1) // 2)),
        )
        self._tell(f"{self.job.label} is too large for its host; it is split ({error})")
        return await self._release()

    async def _failed(self, error: ModelError | None) -> JobEnd:
        """The provider refused it whole: nothing of it is paid."""
        said = self.queue.source.reported(str(error)) if error is not None else "no reason was given"
        if isinstance(error, RateLimited) and self.job.requests > 1:  # it is too much by itself
            return await self._too_large(error)
        message = f"{self.job.label} was refused: {said}. To send its requests live: {BATCH_OFF}"
        await self._index.lose(self.job.tag, message)
        if isinstance(error, AccessDenied | NotFound | Unmade):
            await self.queue.refuse(message)
        self._end()
        self._tell(message)
        return JobEnd.LOST

    async def _nameless(self, job_id: str) -> JobEnd:
        """Drop a job whose id is unusable: it exists, but its cost will never be known."""
        named = self.queue.source.reported(repr(job_id[:80]))
        message = f"{self.job.label} is lost: its host returned {named}, not an id. It may have been paid"
        self._results.give_up()
        await self._index.lose(self.job.tag, message)
        await self.queue.refuse(f"{message}. To send requests live: {BATCH_OFF}")
        self._index.forget(self.job.tag)
        self._tell(message)
        return JobEnd.LOST

    async def _give_up(self, error: ModelError) -> JobEnd:
        """Abandon the job, whatever its provider does: its cost will never be known."""
        self._results.give_up()
        await self._index.release(self.job.tag)
        self._index.forget(self.job.tag)
        self._tell(
            f"{self.job.label} is given up ({self.queue.source.reported(str(error))}): it may have been "
            "paid, and counts as perhaps spent"
        )
        return JobEnd.RELEASED

    async def _release(self) -> JobEnd:
        await self._index.release(self.job.tag)
        self._end()
        return JobEnd.RELEASED

    def _end(self) -> None:
        """Forget a job that never came about; release its permits and money."""
        meter = self.queue.source.meter
        meter.settle_job(self.job.tag, meter.open_bill())
        self._index.forget(self.job.tag)

    def _left(self, error: ModelError) -> JobEnd:
        self.job.note = self.queue.source.reported(str(error))
        if self._mode is BatchMode.CANCEL:
            self.job.note += "; coeval status RUN --cancel-batches, given once more, gives it up"
        elif isinstance(error, NotFound):
            self.job.note += "; coeval status RUN --cancel-batches gives it up, if it is gone for good"
        if isinstance(error, AccessDenied) and self.queue.source.keyless:
            self.job.note += f"; {self.queue.source.keyless}"
        self._index.jobs.put(self.job)
        self._tell(f"{self.job.label} is left as it is: {self.job.note}")
        return JobEnd.LEFT

    def _note(self, error: ModelError) -> None:
        """Report a failure that is retried, once until something succeeds."""
        self.job.note = self.queue.source.reported(str(error))
        _log.info("%s: %s", self.job.label, self.job.note)
        if not self._is_troubled:
            self._is_troubled = True
            self._tell(f"{self.job.label}: {self.job.note}; trying again")


def _is_id(job_id: str) -> bool:
    """Check that a job's id is a plain name, which cannot leave its URL path."""
    parts = job_id.split("/")
    return job_id.isprintable() and "\\" not in job_id and not {"", ".", ".."}.intersection(parts)


def _unknown(job: PendingJob) -> str:
    """Results that are missing though their requests may have been carried out, in words."""
    damage = f" ({job.damage})" if job.damage else ""
    return (
        f"{pluralize(job.unknown, 'request')} without a result{damage}: they may have been paid, count as "
        "perhaps spent, and are asked again"
    )
