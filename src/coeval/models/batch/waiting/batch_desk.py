"""What is known of every batched request of a folder: parked, submitted, answered, lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

from coeval.core.errors import BatchLost, Pending, StoreError, Undecodable
from coeval.core.foreign import decode, decoder
from coeval.models.batch.waiting.batch_outcome import BatchOutcome
from coeval.models.batch.waiting.id_table import IdTable
from coeval.models.batch.waiting.job_list import JobList
from coeval.models.batch.waiting.parked_file import ID_BYTES, ids_file, lines_file, results_file
from coeval.store.jsonl import Appender, cut_torn_tail, line_at, store_error, torn_tail, whole_lines

__all__ = ["BatchDesk"]

_FREE, _WAITING, _LOST, _ANSWERED = range(4)
_KIND_BITS = 2
_OFFSET_BITS = 44
_LIVE = "live"
_BREATH = 4_096
_OURS = (".ids", ".jsonl", ".tmp")


class BatchDesk:
    """The folder ``batches/`` and the list of jobs beside it, for the only process that writes them.

    Of each request it keeps 16 bytes and where its answer stands; texts are read from disk when a record is
    made of them. A result that was collected is kept until `clear`.
    """

    def __init__(self, folder: Path, jobs: Path) -> None:
        self.folder = folder
        self.jobs = JobList(jobs)
        self._table = IdTable()
        self._files: list[Path] = []
        self._reasons: list[str] = []
        self._live: Appender | None = None
        self._live_place = 0
        self._load()

    def _load(self) -> None:
        """Take in what an earlier process left; what it had not written down as a job was never sent."""
        known = set[Path]()
        for job in self.jobs:
            paths = [of(self.folder, job.tag) for of in (lines_file, ids_file, results_file)]
            known.update(paths)
            if job.state == "collected":
                for _ in self.take_in(job.tag):
                    pass
            else:
                self.wait_for(job.tag)
        live = self._live_file
        known.add(live)
        if live.exists():
            if torn_tail(live):
                cut_torn_tail(live)
            for _ in self._index(live):
                pass
        for path in self.folder.glob("*"):
            if path not in known and path.suffix in _OURS and path.is_file():
                path.unlink()

    @property
    def _live_file(self) -> Path:
        return results_file(self.folder, _LIVE)

    def outcome(self, key: bytes) -> BatchOutcome | None:
        """What came of a request; None where it was never asked, or is to be asked again.

        Raises
        ------
        Pending
            it waits.
        BatchLost
            the job that it was in ended without it.
        """
        number = self._table.get(key)
        if number is None:
            return None
        kind, number = number & ((1 << _KIND_BITS) - 1), number >> _KIND_BITS
        if kind == _WAITING:
            raise Pending("it waits for a batch job")
        if kind == _LOST:
            raise BatchLost(self._reasons[number])
        return self._read(number) if kind == _ANSWERED else None

    def _read(self, number: int) -> BatchOutcome:
        path = self._files[number >> _OFFSET_BITS]
        try:
            return decode(line_at(path, number & ((1 << _OFFSET_BITS) - 1)), BatchOutcome)
        except Undecodable as error:
            raise StoreError(f"{path} is damaged ({error}); what it held will be asked for again") from error

    def park(self, key: bytes) -> None:
        """A request waits from now on."""
        self._table.set(key, _WAITING)

    def wait_for(self, tag: str) -> None:
        """All requests of a job wait."""
        for key in self._ids(tag):
            self._table.set(key, _WAITING)

    async def release(self, tag: str) -> None:
        """Those requests of a job that still wait may be asked anew."""
        await self._mark(tag, _FREE)

    def release_now(self, tag: str) -> None:
        """`release` where few requests wait, or nobody else does."""
        for key in self._ids(tag):
            if self._table.get(key) == _WAITING:
                self._table.set(key, _FREE)

    async def lose(self, tag: str, reason: str) -> None:
        """Those requests of a job that still wait will not be answered in this run."""
        self._reasons.append(reason)
        await self._mark(tag, len(self._reasons) - 1 << _KIND_BITS | _LOST)

    async def waiting_of(self, tag: str) -> set[str]:
        """The ids of a job's requests that wait, as its provider knows them."""
        return {key.hex() async for key in self._waiting(tag)}

    async def _mark(self, tag: str, number: int) -> None:
        async for key in self._waiting(tag):
            self._table.set(key, number)

    async def _waiting(self, tag: str) -> AsyncIterator[bytes]:
        """A job's requests that wait: of a million, others have their turn between some and the next."""
        for count, key in enumerate(self._ids(tag), 1):
            if not count % _BREATH:
                await asyncio.sleep(0)
            if self._table.get(key) == _WAITING:
                yield key

    def take_in(self, tag: str) -> Iterator[BatchOutcome]:
        """Know the collected results of a job from now on; yields each."""
        return self._index(results_file(self.folder, tag))

    def _index(self, path: Path) -> Iterator[BatchOutcome]:
        place = len(self._files) << _OFFSET_BITS
        self._files.append(path)
        read = decoder(BatchOutcome)
        for line in whole_lines(path):
            try:
                outcome = read(line.text)
            except Undecodable as error:
                raise StoreError(f"{path} is damaged ({error}); move it away to collect it again") from error
            self._note_answer(outcome, place | line.offset)
            yield outcome

    def _note_answer(self, outcome: BatchOutcome, position: int) -> None:
        self._table.set(bytes.fromhex(outcome.id), position << _KIND_BITS | _ANSWERED)

    def keep_live(self, outcome: BatchOutcome) -> None:
        """Keep the answer to a batched request that was asked live after all: other parts of its record may
        wait, and it is not to be paid for twice."""
        path = self._live_file
        if self._live is None:
            self._live = Appender(path)
            self._files.append(path)
            self._live_place = len(self._files) - 1 << _OFFSET_BITS
        offset = path.stat().st_size
        # what is not on disk before a crash is asked again, as any live request would be
        self._live.append(outcome)
        self._note_answer(outcome, self._live_place | offset)

    def _ids(self, tag: str) -> Iterator[bytes]:
        path = ids_file(self.folder, tag)
        try:
            with path.open("rb", buffering=1 << 18) as file:
                while key := file.read(ID_BYTES):
                    yield key
        except OSError as error:
            raise store_error("read", path, error) from error

    def forget(self, tag: str) -> None:
        """Take a job off the list, and its files from disk."""
        self.jobs.take_out(tag)
        for of in (lines_file, ids_file, results_file):
            of(self.folder, tag).unlink(missing_ok=True)

    def clear(self, tags: Iterable[str]) -> None:
        """Every record that could be made of what these jobs brought is on disk: keep it no longer."""
        for tag in tags:
            self.forget(tag)
        if not len(self.jobs):
            self._live_file.unlink(missing_ok=True)
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()

    def close(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None
