"""Drives one batch job from its file to its results."""

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
from coeval.models.batch import batch_api
from coeval.models.batch.batch_index import (
    BatchOutcome,
    BatchQueue,
    StoredError,
    lines_path,
    results_path,
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
    """Counts a job's results: answered, failed and ``damaged`` (unreadable) ones; ``missing_ids`` have no
    result, ``undone_ids`` were never processed, by the provider's word."""

    missing_ids: set[str]
    undone_ids: set[str]
    answered: int = 0
    failed: int = 0
    damaged: int = 0
    first: batch_api.DamagedResult | None = None

    def count_result(self, result: batch_api.BatchReply) -> bool:
        """Count a result; return whether it is the first outcome of its request."""
        if result.custom_id not in self.missing_ids and result.custom_id not in self.undone_ids:
            return False
        self.missing_ids.discard(result.custom_id)
        if result.status is None:
            self.undone_ids.add(result.custom_id)
            return False
        self.undone_ids.discard(result.custom_id)
        if 200 <= result.status < 300:
            self.answered += 1
        else:
            self.failed += 1
        return True

    def count_perhaps_paid(self, progress: batch_api.BatchProgress) -> int:
        """Count the requests without a result that may have been processed and paid: all that the provider
        does not report as expired, cancelled or failed."""
        left = len(self.missing_ids)
        if progress.state == "ended":
            may_be = left - min(left, max(0, (progress.failed or 0) - self.failed - len(self.undone_ids)))
        else:
            may_be = max(0, (progress.done or 0) - self.answered)
        return min(left, max(may_be, self.damaged))

    def count_results_not_given_yet(self, progress: batch_api.BatchProgress) -> int:
        if progress.state == "ended":
            return len(self.missing_ids)
        errors = max(0, (progress.failed or 0) - self.failed - len(self.undone_ids))
        return min(len(self.missing_ids), self.count_perhaps_paid(progress) + errors)


class JobResults:
    """Writes and books the results of one job of a queue."""

    def __init__(self, queue: BatchQueue, job: PendingJob) -> None:
        self._queue = queue
        self._index = queue.index
        self._job = job

    async def write_all_or_raise(self, progress: batch_api.BatchProgress, *, accept_fewer: bool) -> None:
        """Write the provider's results, whole or not at all, one for each of our requests, decoded as live
        answers are and redacted. Fewer than ``progress`` counts are written only with ``accept_fewer``.
        Raises ModelError: they cannot be had, a retryable one if there are fewer than counted; StoreError:
        the disk refuses."""
        folder, job = self._index.folder, self._job
        into = folder / f"{job.tag}.part"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        tally, count = _Tally(await self._index.list_waiting(job.tag), set()), 0
        try:
            with replace_file(results_path(folder, job.tag)) as file:
                async for reply in self._queue.api.collect(job.id or "", into):
                    count += 1
                    if not count % _BREATH:
                        await asyncio.sleep(0)
                    if isinstance(reply, batch_api.DamagedResult):
                        tally.damaged, tally.first = tally.damaged + 1, tally.first or reply
                    elif tally.count_result(reply):
                        outcome = self._queue.read(reply.custom_id, reply.status or 0, reply.body)
                        file.write(_ENCODE(outcome) + b"\n")
                self._note_unknown_count_or_raise(progress, tally, accept_fewer=accept_fewer)
        finally:
            shutil.rmtree(into, ignore_errors=True)

    def _note_unknown_count_or_raise(
        self, progress: batch_api.BatchProgress, tally: _Tally, *, accept_fewer: bool
    ) -> None:
        """Record how many outcomes are unknown, before the results are written."""
        job = self._job
        if not accept_fewer and (late := tally.count_results_not_given_yet(progress)):
            raise ServerFault(
                f"it is {progress.shown}, and {late:,} of its {job.requests:,} results are missing"
            )
        job.unknown = tally.count_perhaps_paid(progress)
        if job.unknown and tally.first is not None:
            lines = pluralize(tally.damaged, "result")
            where = f"{tally.first.where}: {self._queue.redact(tally.first.why)}"
            job.damage = f"{lines} cannot be read ({where})"
        self._index.jobs.put(job)

    def write_only_outcome(self, outcome: BatchOutcome) -> None:
        with replace_file(results_path(self._index.folder, self._job.tag)) as file:
            file.write(_ENCODE(outcome) + b"\n")

    async def book_and_index(self) -> int:
        """Book and index the written results; return their number. Requests of unknown outcome are booked as
        perhaps spent. Safe to repeat after a crash: a job is booked once. Raises StoreError: results cannot
        be read, or the account not written."""
        meter = self._queue.meter
        bill, count = meter.open_bill(), 0
        account = meter.open_jobs().get(self._job.tag)
        most_usd = account.dearest_usd if account is not None else 0.0
        for outcome in self._index.index_results(self._job.tag):
            count += 1
            usage = outcome.completion.usage if outcome.completion is not None else None
            usage = outcome.error.usage if outcome.error is not None else usage
            if usage is not None:
                bill.add_answer(usage, most_usd)
            else:
                bill.add_failure(most_usd if _has_no_error_status(outcome) else 0.0)
            if not count % _BREATH:
                await asyncio.sleep(0)
        for _ in range(self._job.unknown):
            bill.add_failure(most_usd)
        meter.settle_job(self._job.tag, bill)
        return count

    def book_as_lost(self) -> None:
        """Book all that was held for the job as perhaps spent; StoreError if that cannot be written."""
        meter = self._queue.meter
        bill, account = meter.open_bill(), meter.open_jobs().get(self._job.tag)
        if account is not None:
            for _ in range(account.requests):
                bill.add_failure(account.dearest_usd)
        meter.settle_job(self._job.tag, bill)


def _has_no_error_status(outcome: BatchOutcome) -> bool:
    """Check whether there was an answer, whose usage nobody can read."""
    status = outcome.error.status if outcome.error is not None else None
    return status is None or status < 400


_log = logging.getLogger("coeval")

# Searches for a job whose id was lost, before it is submitted again: lists lag.
LOOKS = 6
# Failed submissions in a row, before the job is left to the next start: a host's bad hours pass.
SUBMISSIONS = 20
# Failed uploads: each has been retried for a minute, and no job exists that could be lost.
UPLOADS = 3
# Attempts to collect while results are fewer than the provider counts, or unavailable: some five minutes at
# the usual pace, more than any list lags.
COLLECTIONS = 10
# Failed status checks in a row before a job is left to the next start: an hour at the usual pace, in case the
# network is down for a while.
LOST_LOOKS = 60
# A job that runs longer is left to the next start. No provider promises more than 96 hours (Vertex AI: 72 of
# waiting, 24 of work); Azure OpenAI promises nothing.
LONGEST_JOB_S = 7 * 86_400.0
# Pauses before a job refused because of others is submitted again, if none of these has ended before.
LONGEST_PUT_OFF = 20


class JobEnd(Enum):
    """How a job's runner ended."""

    COLLECTED = auto()
    RELEASED = auto()
    """it was never made; its requests may be sent otherwise"""
    LOST = auto()
    """it failed; its requests stay owed"""
    LEFT = auto()
    """it cannot be checked now, and stays on the list"""


class BatchJobRunner:
    """Drives one batch job of ``queue`` to its end. ``tell``: user message sink; ``has_other_jobs``: True
    while other jobs of the model are submitted. ``looked``: its provider has been asked for its status."""

    def __init__(
        self,
        queue: BatchQueue,
        job: PendingJob,
        batching: Batching,
        tell: Callable[[str], None],
        has_other_jobs: Callable[[], bool],
    ) -> None:
        self.queue = queue
        self.job = job
        self._pace = batching.pace
        self._mode = batching.mode
        self._tell = tell
        self._has_other_jobs = has_other_jobs
        self.looked = False
        self._has_reported = False
        self._gives_up = batching.mode is BatchMode.CANCEL and bool(job.cancelled)
        self._api = queue.api
        self._index = queue.index
        self._results = JobResults(queue, job)

    async def run(self, *, fresh: bool) -> JobEnd:
        """Drive the job to its end. ``fresh``: its provider has not received it yet. A second request to
        cancel gives up a job that has not ended. Raises StoreError: the disk refuses."""
        if self._mode is BatchMode.CANCEL and not self.job.cancelled:
            self.job.cancelled = "requested"
            self._index.jobs.put(self.job)
        try:
            return await self._drive(fresh=fresh)
        except ModelError as error:
            if self._gives_up:
                return await self._give_up_as_perhaps_spent(error)
            return self._leave_job_on_list(error)

    async def _drive(self, *, fresh: bool) -> JobEnd:
        """Submit, wait and collect. Raises ModelError: its end cannot be known; StoreError."""
        look = not fresh
        while not results_path(self._index.folder, self.job.tag).exists():
            if self.job.id is None and (ended := await self._submit(look=look)) is not None:
                return ended
            if self._mode is BatchMode.CANCEL and (unknown := await self._request_cancel()) is not None:
                return await self._give_up_as_perhaps_spent(unknown)
            progress = await self._wait_until_ended()
            if progress.state != "failed" or progress.done:
                await self._collect_results(progress)
            elif isinstance(progress.error, RateLimited) and self._has_other_jobs():
                await self._postpone_until_others_end(progress.error)
                look = False
            else:
                return await self._split_or_end_refused_job(progress.error)
        return await self._book_results_and_release_rest(fresh=fresh)

    async def _submit(self, *, look: bool) -> JobEnd | None:
        """Submit the job exactly once; return its end if that fails. ``look``: it may exist already."""
        waits = self._pace.pauses()
        counted = 0
        while True:
            if look and (job_id := await self._find_until_listed()) is not None:
                break
            if not self._mode.calls_models:
                return await self._release_or_leave_unsubmitted()
            try:
                job_id = await self._api.create(self._make_batch_job())
                break
            except ModelError as error:
                if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or self._is_too_large_for_queue(error):
                    return await self._halve_limits_and_release(error)
                if not error.retryable:
                    if (made := await self._find_job_despite_refusal()) is None:
                        return await self._split_or_end_refused_job(error)
                    job_id = made
                    break
                # A job refused with 429, or not uploaded, was not made; of others nobody can know.
                look = look or not isinstance(error, RateLimited | batch_api.Unmade)
                waits_for_others = isinstance(error, RateLimited) and self._has_other_jobs()
                counted += not waits_for_others
                if counted >= UPLOADS and isinstance(error, batch_api.Unmade) and not look:
                    return await self._split_or_end_refused_job(error)
                if counted > SUBMISSIONS:
                    raise
                self._report_first_retry(error)
                await asyncio.sleep(max(next(waits), min(error.retry_after_s or 0.0, LONGEST_HOLD_S)))
        if not _stays_in_url_path(job_id):
            return await self._end_without_id(job_id)
        self.job.id, self.job.state, self.job.note = job_id, "submitted", ""
        self.job.submitted_at = time.time()
        self._has_reported = False
        self._index.jobs.put(self.job)
        self._tell(f"{self.job.label} is submitted")
        self.queue.meter.budget_gate.serve_waiting()  # its money will not come back soon
        return None

    async def _find_job_despite_refusal(self) -> str | None:
        """Find a job that was made although its submission was refused; None if the host has no batches."""
        try:
            return await self._find_until_listed()
        except ModelError as error:
            if error.retryable:
                raise
            return None

    async def _release_or_leave_unsubmitted(self) -> JobEnd:
        """End a job that was never made, in a mode that submits nothing."""
        if self._mode is BatchMode.CANCEL:
            self._tell(f"{self.job.label} was never submitted, and will not be")
            return await self._release_requests()
        self.looked = True
        return JobEnd.LEFT

    async def _request_cancel(self) -> NotFound | None:
        try:
            await batch_api.cancel_job(self._api, self.job.id or "")
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

    async def _find_until_listed(self) -> str | None:
        """Find the id of a job that may exist, until it would be listed; ModelError if that fails."""
        looks = failures = 0
        for pause in self._pace.pauses():
            try:
                job_id = await self._api.find(self._make_batch_job())
            except ModelError as error:
                undecided = isinstance(error, batch_api.Undecided)
                failures += not undecided
                if not error.retryable or failures > SUBMISSIONS or self._gives_up:
                    raise
                if undecided:
                    self._raise_if_too_old()
                self._report_first_retry(error)
                if not self.looked and (undecided or not self._mode.calls_models):
                    self.looked = True
                    # Requests may wait for the money it holds.
                    self.queue.meter.budget_gate.serve_waiting()
            else:
                looks += 1
                if job_id is not None or looks == LOOKS:
                    return job_id
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: pauses have no end")

    def _is_too_large_for_queue(self, error: ModelError) -> bool:
        """Check whether a 400 says that this job alone is more than its provider queues at once."""
        alone = (
            isinstance(error, RateLimited)
            and error.status == HTTPStatus.BAD_REQUEST
            and not self._has_other_jobs()
        )
        return alone and self.job.requests > 1

    def _make_batch_job(self) -> batch_api.BatchJob:
        job = self.job
        others = frozenset(other.id for other in self._index.jobs if other.id is not None)
        return batch_api.BatchJob(
            tag=job.tag,
            lines=lines_path(self._index.folder, job.tag),
            requests=job.requests,
            bytes=job.bytes,
            written_at=job.written_at,
            others=others.union(job.refused),
        )

    async def _postpone_until_others_end(self, error: ModelError) -> None:
        """Wait until another job of this model has ended, since too much is running."""
        job = self.job
        if job.id is not None:
            job.refused.append(job.id)
        job.id, job.state = None, "written"
        self._report_first_retry(error)
        self._index.jobs.put(job)
        for pause, _ in zip(self._pace.pauses(), range(LONGEST_PUT_OFF), strict=False):
            await asyncio.sleep(pause)
            if not self._has_other_jobs():
                return

    async def _wait_until_ended(self) -> batch_api.BatchProgress:
        """Check the job until it has ended; ModelError if that fails, or it runs too long."""
        failures = 0
        for pause in self._pace.pauses():
            try:
                progress = await self._api.check(self.job.id or "")
            except ModelError as error:
                failures += 1
                if not error.retryable or failures == LOST_LOOKS or self._gives_up:
                    raise
                self._report_first_retry(error)
            else:
                failures, self._has_reported = 0, False
                self._record_and_tell_progress(progress)
                if progress.state != "running":
                    return progress
                self._raise_if_too_old()
            self.looked = True
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: pauses have no end")

    def _raise_if_too_old(self) -> None:
        """Raise ServerFault if a job that has not ended is not waited for any longer."""
        since = self.job.submitted_at or self.job.written_at
        if self._gives_up:
            raise ServerFault("it was to be cancelled but has not ended")
        if time.time() - since > LONGEST_JOB_S:
            raise ServerFault(
                f"it has not ended in {LONGEST_JOB_S / 86_400:.0f} days; coeval status RUN --cancel-batches "
                "cancels it; repeat it to abandon the job"
            )

    def _record_and_tell_progress(self, progress: batch_api.BatchProgress) -> None:
        job = self.job
        state_word = self.queue.redact(progress.shown)
        if state_word != job.shown:
            done = "" if progress.done is None else f", {progress.done + (progress.failed or 0):,} done"
            self._tell(f"{self.job.label}: {state_word}{done}")
        job.shown, job.total, job.done, job.failed = (
            state_word,
            progress.total,
            progress.done,
            progress.failed,
        )
        job.checked_at, job.note = time.time(), ""
        self._index.jobs.put(job)

    async def _collect_results(self, progress: batch_api.BatchProgress) -> None:
        """Write the results whole; retry while they are fewer than the provider counts."""
        waits = self._pace.pauses()
        for left in reversed(range(COLLECTIONS)):
            try:
                await self._results.write_all_or_raise(progress, accept_fewer=not left)
            except ModelError as error:
                if not error.retryable or not left:
                    raise
                self._report_first_retry(error)
                await asyncio.sleep(next(waits))
            else:
                return

    async def _book_results_and_release_rest(self, *, fresh: bool) -> JobEnd:
        """Book and index the results. What an earlier start's job lacks is sent again in this one."""
        job, count = self.job, await self._results.book_and_index()
        if lacking := job.requests - count:
            undone = lacking - job.unknown
            reasons = [f"{pluralize(undone, 'request')} not processed ({job.shown})"] if undone else []
            job.note = ", ".join(reasons + ([_describe_unknown(job)] if job.unknown else []))
            if fresh:
                await self._index.mark_waiting_lost(
                    job.tag, f"{self.job.label} ended {job.shown} with {job.note}"
                )
            else:
                await self._index.release_waiting(job.tag)
        job.state = "collected"
        self._index.jobs.put(job)
        self._tell(f"{job.label}: {count:,} collected" + (f", {job.note}" if lacking > job.unknown else ""))
        return JobEnd.COLLECTED

    async def _halve_limits_and_release(self, error: ModelError) -> JobEnd:
        """Release the requests for smaller jobs: the host takes less at once than its provider says."""
        job = self.job
        if job.requests == 1:
            for only in await self._index.list_waiting(job.tag):
                self._results.write_only_outcome(BatchOutcome(only, error=StoredError.from_error(error)))
            return await self._book_results_and_release_rest(fresh=True)
        limits = self.queue.limits
        self.queue.limits = limits._replace(
            bytes=min(limits.bytes, max(1, job.bytes // 2)),
            requests=min(limits.requests, max(1, (job.requests + 1) // 2)),
        )
        self._tell(f"{self.job.label} is too large for its host; it is split ({error})")
        return await self._release_requests()

    async def _split_or_end_refused_job(self, error: ModelError | None) -> JobEnd:
        """End a job that the provider refused whole, of which nothing is paid."""
        reason = self.queue.redact(str(error)) if error is not None else "no reason was given"
        if isinstance(error, RateLimited) and self.job.requests > 1:  # it is too much by itself
            return await self._halve_limits_and_release(error)
        message = f"{self.job.label} was refused: {reason}. To send its requests live: {BATCH_OFF}"
        await self._index.mark_waiting_lost(self.job.tag, message)
        if isinstance(error, AccessDenied | NotFound | batch_api.Unmade):
            await self.queue.refuse_parked_and_later(message)
        self._drop_unmade_job()
        self._tell(message)
        return JobEnd.LOST

    async def _end_without_id(self, job_id: str) -> JobEnd:
        """Drop a job whose id is unusable: it exists, but its cost will never be known."""
        named = self.queue.redact(repr(job_id[:80]))
        message = f"{self.job.label} is lost: its host returned {named}, not an id. It may have been paid"
        self._results.book_as_lost()
        await self._index.mark_waiting_lost(self.job.tag, message)
        await self.queue.refuse_parked_and_later(f"{message}. To send requests live: {BATCH_OFF}")
        self._index.remove_job(self.job.tag)
        self._tell(message)
        return JobEnd.LOST

    async def _give_up_as_perhaps_spent(self, error: ModelError) -> JobEnd:
        """Abandon the job, whatever its provider does: its cost will never be known."""
        self._results.book_as_lost()
        await self._index.release_waiting(self.job.tag)
        self._index.remove_job(self.job.tag)
        self._tell(
            f"{self.job.label} is given up ({self.queue.redact(str(error))}): it may have been "
            "paid, and counts as perhaps spent"
        )
        return JobEnd.RELEASED

    async def _release_requests(self) -> JobEnd:
        await self._index.release_waiting(self.job.tag)
        self._drop_unmade_job()
        return JobEnd.RELEASED

    def _drop_unmade_job(self) -> None:
        """Forget a job that never came about; release its permits and money."""
        meter = self.queue.meter
        meter.settle_job(self.job.tag, meter.open_bill())
        self._index.remove_job(self.job.tag)

    def _leave_job_on_list(self, error: ModelError) -> JobEnd:
        self.job.note = self.queue.redact(str(error))
        if self._mode is BatchMode.CANCEL:
            self.job.note += "; coeval status RUN --cancel-batches, repeated, abandons it"
        elif isinstance(error, NotFound):
            self.job.note += "; coeval status RUN --cancel-batches abandons it, if it is gone for good"
        if isinstance(error, AccessDenied) and self.queue.keyless:
            self.job.note += f"; {self.queue.keyless}"
        self._index.jobs.put(self.job)
        self._tell(f"{self.job.label} is left as it is: {self.job.note}")
        return JobEnd.LEFT

    def _report_first_retry(self, error: ModelError) -> None:
        self.job.note = self.queue.redact(str(error))
        _log.info("%s: %s", self.job.label, self.job.note)
        if not self._has_reported:
            self._has_reported = True
            self._tell(f"{self.job.label}: {self.job.note}; trying again")


def _stays_in_url_path(job_id: str) -> bool:
    """Check whether a job's id cannot lead out of its URL path."""
    parts = job_id.split("/")
    return job_id.isprintable() and "\\" not in job_id and not {"", ".", ".."}.intersection(parts)


def _describe_unknown(job: PendingJob) -> str:
    damage = f" ({job.damage})" if job.damage else ""
    return (
        f"{pluralize(job.unknown, 'request')} without a result{damage}: they may have been paid, count as "
        "perhaps spent, and are sent again"
    )
