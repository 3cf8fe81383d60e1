"""What a batch job has brought: from its provider to a file, from there into the account and the desk."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass

import msgspec

from coeval.core.errors import ServerFault
from coeval.core.text import numbered
from coeval.models.batch.batch_api import BatchProgress, BatchReply, DamagedResult
from coeval.models.batch.waiting.batch_outcome import BatchOutcome
from coeval.models.batch.waiting.batch_queue import BatchQueue
from coeval.models.batch.waiting.job_list import PendingJob
from coeval.models.batch.waiting.parked_file import results_file
from coeval.store.jsonl import replaced_whole

__all__ = ["JobResults"]

_ENCODE = msgspec.json.Encoder().encode
_BREATH = 500


@dataclass(slots=True)
class _Tally:
    """What a provider gives for a job: requests that are answered, that failed, and that it says were never
    carried out; ``left`` are those without a result, ``damaged`` counts the results nobody can read."""

    left: set[str]
    unasked: set[str]
    answered: int = 0
    failed: int = 0
    damaged: int = 0
    first: DamagedResult | None = None

    def skip(self, line: DamagedResult) -> None:
        self.damaged += 1
        self.first = self.first or line

    def takes(self, result: BatchReply) -> bool:
        """Count a result; whether it is the outcome of a request that had none."""
        if result.custom_id not in self.left and result.custom_id not in self.unasked:
            return False
        self.left.discard(result.custom_id)
        if result.status is None:
            self.unasked.add(result.custom_id)
            return False
        self.unasked.discard(result.custom_id)
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
            may_be = left - min(left, max(0, (progress.failed or 0) - self.failed - len(self.unasked)))
        else:
            may_be = max(0, (progress.done or 0) - self.answered)
        return min(left, max(may_be, self.damaged))

    def to_come(self, progress: BatchProgress) -> int:
        """Results that the provider counts and has not given."""
        if progress.state == "ended":
            return len(self.left)
        errors = max(0, (progress.failed or 0) - self.failed - len(self.unasked))
        return min(len(self.left), self.unknown(progress) + errors)


class JobResults:
    """The results of one job of a queue."""

    def __init__(self, queue: BatchQueue, job: PendingJob) -> None:
        self._source = queue.source
        self._desk = queue.desk
        self._job = job

    async def write(self, progress: BatchProgress, *, last: bool) -> None:
        """Write down what the provider has: whole or not at all, each of our requests once, the answers as
        they are read live and without credentials. Fewer results than ``progress`` counts are taken at the
        ``last`` look only.

        Raises
        ------
        ModelError
            it cannot be had; a retryable one where there are fewer results than the provider counts.
        StoreError
            the disk refuses.
        """
        folder, job = self._desk.folder, self._job
        into = folder / f"{job.tag}.part"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        tally, count = _Tally(await self._desk.waiting_of(job.tag), set()), 0
        try:
            with replaced_whole(results_file(folder, job.tag)) as file:
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
            lines = numbered(tally.damaged, "result")
            where = f"{tally.first.where}: {self._source.told(tally.first.why)}"
            job.damage = f"{lines} cannot be read ({where})"
        self._desk.jobs.put(job)

    def write_one(self, outcome: BatchOutcome) -> None:
        """Write down what came of the only request of a job."""
        with replaced_whole(results_file(self._desk.folder, self._job.tag)) as file:
            file.write(_ENCODE(outcome) + b"\n")

    async def take_in(self) -> int:
        """Book what was written, and know it; how many these are. What may have been carried out besides is
        booked as perhaps spent. It may be ended at any place, and is safe to be done anew: a job is booked
        once.

        Raises
        ------
        StoreError
            it cannot be read, or the account not be written.
        """
        meter = self._source.meter
        bill, count = meter.bill(), 0
        account = meter.open_jobs().get(self._job.tag)
        most_usd = account.dearest_usd if account is not None else 0.0
        for outcome in self._desk.take_in(self._job.tag):
            count += 1
            usage = outcome.completion.usage if outcome.completion is not None else None
            usage = outcome.error.usage if outcome.error is not None else usage
            if usage is not None:
                bill.answered(usage, most_usd)
            else:
                bill.failed(most_usd if _may_be_billed(outcome) else 0.0)
            if not count % _BREATH:
                await asyncio.sleep(0)
        for _ in range(self._job.unknown):
            bill.failed(most_usd)
        meter.settle_job(self._job.tag, bill)
        return count

    def give_up(self) -> None:
        """Book the job as carried out and perhaps paid, with all that was held for it.

        Raises
        ------
        StoreError
            the account cannot be written.
        """
        meter = self._source.meter
        bill, account = meter.bill(), meter.open_jobs().get(self._job.tag)
        if account is not None:
            for _ in range(account.requests):
                bill.failed(account.dearest_usd)
        meter.settle_job(self._job.tag, bill)


def _may_be_billed(outcome: BatchOutcome) -> bool:
    """Whether there was an answer, of which nobody can read what it took."""
    status = outcome.error.status if outcome.error is not None else None
    return status is None or status < 400
