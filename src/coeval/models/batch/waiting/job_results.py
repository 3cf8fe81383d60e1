"""What a batch job has brought: from its provider to a file, from there into the account and the desk."""

from __future__ import annotations

import asyncio
import shutil

import msgspec

from coeval.models.batch.waiting.batch_outcome import BatchOutcome
from coeval.models.batch.waiting.batch_queue import BatchQueue
from coeval.models.batch.waiting.job_list import PendingJob
from coeval.models.batch.waiting.parked_file import results_file
from coeval.store.jsonl import replaced_whole

__all__ = ["JobResults"]

_ENCODE = msgspec.json.Encoder().encode
_BREATH = 500


class JobResults:
    """The results of one job of a queue."""

    def __init__(self, queue: BatchQueue, job: PendingJob) -> None:
        self._source = queue.source
        self._desk = queue.desk
        self._job = job

    async def write(self) -> None:
        """Write down what the provider has: whole or not at all, each of our requests once, the answers as
        they are read live and without credentials.

        Raises
        ------
        ModelError
            it cannot be had.
        StoreError
            the disk refuses.
        """
        folder, job = self._desk.folder, self._job
        into = folder / f"{job.tag}.part"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        left, count = await self._desk.waiting_of(job.tag), 0
        try:
            with replaced_whole(results_file(folder, job.tag)) as file:
                async for reply in self._source.api.collect(job.id or "", into):
                    count += 1
                    if not count % _BREATH:
                        await asyncio.sleep(0)
                    if reply.custom_id in left and reply.status is not None:
                        left.discard(reply.custom_id)
                        outcome = self._source.read(reply.custom_id, reply.status, reply.body)
                        file.write(_ENCODE(outcome) + b"\n")
        finally:
            shutil.rmtree(into, ignore_errors=True)

    def write_one(self, outcome: BatchOutcome) -> None:
        """Write down what came of the only request of a job."""
        with replaced_whole(results_file(self._desk.folder, self._job.tag)) as file:
            file.write(_ENCODE(outcome) + b"\n")

    async def take_in(self) -> int:
        """Book what was written and know it; how many these are. It may be ended at any place, and is safe to
        be done anew: a job is booked once.

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
        meter.settle_job(self._job.tag, bill)
        return count


def _may_be_billed(outcome: BatchOutcome) -> bool:
    """Whether there was an answer, of which nobody can read what it took."""
    status = outcome.error.status if outcome.error is not None else None
    return status is None or 200 <= status < 300
