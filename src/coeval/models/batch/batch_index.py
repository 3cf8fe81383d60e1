"""The index of a folder's batched requests (parked, submitted, answered, lost), and the queue in which those
of one model wait for a job."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from coeval.core.errors import BatchLost, Gap, ModelError, Pending, StoreError, Undecodable
from coeval.core.foreign import decode, make_decoder
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Purpose, Usage
from coeval.models.batch.batch_api import BatchApi, BatchLimits
from coeval.models.batch.job_list import HostRefusals, JobList
from coeval.models.dialects.dialect import FieldRejected
from coeval.store import jsonl
from coeval.store.record_index import OFFSET_BITS

if TYPE_CHECKING:
    from coeval.models.metering.meter import Meter

# --- Outcome of a batched request


class StoredError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ModelError by its class name; ``field`` is that of a `FieldRejected`."""

    kind: str
    message: str
    status: int | None = None
    retry_advised: bool = True
    field: str = ""
    usage: Usage | None = None

    @classmethod
    def from_error(cls, error: ModelError) -> StoredError:
        field = error.field if isinstance(error, FieldRejected) else ""
        return cls(type(error).__name__, str(error), error.status, error.retry_advised, field, error.usage)

    def make_error(self) -> ModelError:
        """Make the error again, as if it came now."""
        kind = _KINDS.get(self.kind, ModelError)
        if issubclass(kind, FieldRejected):
            return kind(self.message, field=self.field, status=self.status)
        made = kind(self.message, status=self.status, retry_advised=self.retry_advised, usage=self.usage)
        made.status = self.status
        return made


class BatchOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request's answer, priced and redacted, or the error that it ended in."""

    id: str
    completion: Completion | None = None
    error: StoredError | None = None


def _iterate_subclasses(kind: type[ModelError]) -> Iterator[type[ModelError]]:
    yield kind
    for more in kind.__subclasses__():
        yield from _iterate_subclasses(more)


_KINDS = {kind.__name__: kind for kind in _iterate_subclasses(ModelError)}


# --- Request file of a batch job

# Custom ids are 32 hex digits.
ID_BYTES = 16


def lines_path(folder: Path, tag: str) -> Path:
    """Return the path of a job's requests, as its provider takes them."""
    return folder / f"{tag}.jsonl"


def ids_path(folder: Path, tag: str) -> Path:
    """Return the path of their ids, 16 bytes each, in the order of the lines."""
    return folder / f"{tag}.ids"


def results_path(folder: Path, tag: str) -> Path:
    """Return the path of a job's results, a `BatchOutcome` a line, in any order."""
    return folder / f"{tag}.results.jsonl"


class ParkedFile:
    """Parked requests that will be submitted as one job: a file of lines, and one of ids. ``usd`` is the
    money held for them, ``dearest_usd`` the most for one. The files count only once a job is recorded for
    them."""

    def __init__(self, folder: Path) -> None:
        self.tag = uuid4().hex
        self.folder = folder
        self.requests = self.bytes = 0
        self.usd = self.dearest_usd = 0.0
        self.phases: Counter[str] = Counter()
        with jsonl.raise_store_errors("write to", folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lines = lines_path(folder, self.tag).open("xb", buffering=1 << 18)
            self._ids = ids_path(folder, self.tag).open("xb", buffering=1 << 16)

    def add(self, key: bytes, line: bytes, phase: str, usd: float) -> None:
        """Add a request; StoreError if the disk refuses."""
        with jsonl.raise_store_errors("write to", self.folder):
            self._lines.write(line)
            self._ids.write(key)
        self.requests += 1
        self.bytes += len(line)
        self.usd += usd
        self.dearest_usd = max(self.dearest_usd, usd)
        self.phases[phase] += 1

    def close(self) -> None:
        """Flush both files to disk and close them; StoreError if the disk refuses."""
        with jsonl.raise_store_errors("write to", self.folder):
            for file in (self._lines, self._ids):
                file.flush()
                os.fsync(file.fileno())
                file.close()

    def discard(self) -> None:
        self._lines.close()
        self._ids.close()
        lines_path(self.folder, self.tag).unlink(missing_ok=True)
        ids_path(self.folder, self.tag).unlink(missing_ok=True)


_LIVE = "live"
# Keys between turns of the event loop: a turn after each would cost more than the work.
_BREATH = 4_096
_OURS = (".ids", ".jsonl", ".tmp")


class BatchIndex:
    """The folder ``batches/`` and its list of jobs, for the only process that writes them. For each request
    it keeps the position of its answer, some 150 bytes; texts are read from disk when a record is made. A
    collected result is kept until `remove_jobs_and_empty_folder`."""

    def __init__(self, folder: Path, jobs: Path) -> None:
        self.folder = folder
        self.jobs = JobList(jobs)
        # The position of the answer; None: it waits; a text: why it will not be answered in this run.
        self._table: dict[bytes, int | str | None] = {}
        self._files: list[Path] = []
        self._live: jsonl.Appender | None = None
        self._live_place = 0
        self._load_results_and_delete_strays()

    def _load_results_and_delete_strays(self) -> None:
        """Load what an earlier process left; delete files without a recorded job, which were never sent."""
        known_paths = set[Path]()
        for job in self.jobs:
            paths = [make_path(self.folder, job.tag) for make_path in (lines_path, ids_path, results_path)]
            known_paths.update(paths)
            if job.state == "collected":
                for _ in self.index_results(job.tag):
                    pass
            else:
                self.mark_job_waiting(job.tag)
        live = self._live_results_path
        known_paths.add(live)
        if live.exists():
            if jsonl.read_torn_tail(live):
                jsonl.cut_torn_tail(live)
            for _ in self._index_file(live):
                pass
        for path in self.folder.glob("*"):
            if path not in known_paths and path.suffix in _OURS and path.is_file():
                path.unlink()

    @property
    def _live_results_path(self) -> Path:
        return results_path(self.folder, _LIVE)

    def find_outcome_or_raise_gap(self, key: bytes) -> BatchOutcome | None:
        """Find a request's outcome; None if it must be sent. Raises Pending or BatchLost."""
        if key not in self._table:
            return None
        match self._table[key]:
            case None:
                raise Pending("it waits for a batch job")
            case str(reason):
                raise BatchLost(reason)
            case int(position):
                return self._read_outcome(position)

    def _read_outcome(self, position: int) -> BatchOutcome:
        path = self._files[position >> OFFSET_BITS]
        try:
            return decode(jsonl.read_line_or_block(path, position & ((1 << OFFSET_BITS) - 1)), BatchOutcome)
        except Undecodable as error:
            raise StoreError(f"{path} is damaged ({error}); its contents will be requested again") from error

    def mark_waiting(self, key: bytes) -> None:
        self._table[key] = None

    def mark_job_waiting(self, tag: str) -> None:
        for key in self._read_ids(tag):
            self._table[key] = None

    async def release_waiting(self, tag: str) -> None:
        async for key in self._iterate_waiting(tag):
            del self._table[key]

    async def mark_waiting_lost(self, tag: str, reason: str) -> None:
        async for key in self._iterate_waiting(tag):
            self._table[key] = reason

    async def list_waiting(self, tag: str) -> set[str]:
        """List the ids of a job's waiting requests, as its provider knows them."""
        return {key.hex() async for key in self._iterate_waiting(tag)}

    async def _iterate_waiting(self, tag: str) -> AsyncIterator[bytes]:
        """Iterate over a job's waiting requests, of up to a million, and let other tasks run in between."""
        for count, key in enumerate(self._read_ids(tag), 1):
            if not count % _BREATH:
                await asyncio.sleep(0)
            if self._table.get(key, "") is None:
                yield key

    def index_results(self, tag: str) -> Iterator[BatchOutcome]:
        return self._index_file(results_path(self.folder, tag))

    def _index_file(self, path: Path) -> Iterator[BatchOutcome]:
        file_base = len(self._files) << OFFSET_BITS
        self._files.append(path)
        read = make_decoder(BatchOutcome)
        for line in jsonl.read_whole_lines(path):
            try:
                outcome = read(line.text)
            except Undecodable as error:
                raise StoreError(f"{path} is damaged ({error}); move it away to collect it again") from error
            self._record_position(outcome, file_base | line.offset)
            yield outcome

    def _record_position(self, outcome: BatchOutcome, position: int) -> None:
        self._table[bytes.fromhex(outcome.id)] = position

    def store_live_outcome(self, outcome: BatchOutcome) -> None:
        """Store the answer to a batched request that was sent live: it must not be paid twice."""
        path = self._live_results_path
        if self._live is None:
            self._live = jsonl.Appender(path)
            self._files.append(path)
            self._live_place = len(self._files) - 1 << OFFSET_BITS
        offset = path.stat().st_size
        # Lost in a crash before it is on disk, it is sent again, as any live request would be.
        self._live.append(outcome)
        self._record_position(outcome, self._live_place | offset)

    def _read_ids(self, tag: str) -> Iterator[bytes]:
        path = ids_path(self.folder, tag)
        with jsonl.raise_store_errors("read", path), path.open("rb", buffering=1 << 18) as file:
            while key := file.read(ID_BYTES):
                yield key

    def remove_job(self, tag: str) -> None:
        self.jobs.remove(tag)
        for make_path in (lines_path, ids_path, results_path):
            make_path(self.folder, tag).unlink(missing_ok=True)

    def remove_jobs_and_empty_folder(self, tags: Iterable[str]) -> None:
        """Remove jobs of which every possible record is on disk."""
        for tag in tags:
            self.remove_job(tag)
        if not len(self.jobs):
            self._live_results_path.unlink(missing_ok=True)
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()

    def close(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None


# --- Requests of one model that go by batch jobs

# Unusable replies that are requested again live in a round: so few are not worth another job.
LIVE_AGAIN = 20


@dataclass(slots=True, kw_only=True)
class BatchQueue:
    """One model's requests that go by batch jobs of its ``api``; ``endpoint`` is its base URL.

    ``read`` makes a `BatchOutcome` of an id, a status and a body, ``redact`` what may be shown of a host's
    text; ``bodies`` are the host's refusals under which bodies are made; ``keyless`` says where a key is
    looked for, if none was found. ``submit_file`` is called with each file that becomes a job; ``live_left``
    requests may be sent live in this round; ``refusal`` is why no more jobs are made of this model,
    ``limits`` how large they may be.
    """

    spec: ModelSpec
    endpoint: str
    api: BatchApi
    meter: Meter
    read: Callable[[str, int, bytes], BatchOutcome]
    bodies: Callable[[], list[HostRefusals]]
    redact: Callable[[str], str]
    keyless: str
    index: BatchIndex
    submit_file: Callable[[BatchQueue, ParkedFile], None]
    limits: BatchLimits = field(init=False)
    live_left: int = LIVE_AGAIN
    refusal: Gap | None = None
    _filling: ParkedFile | None = None

    def __post_init__(self) -> None:
        self.limits = self.api.limits

    @property
    def parked(self) -> int:
        """Return the number of requests that are in no job yet."""
        return 0 if self._filling is None else self._filling.requests

    def take_live_slot(self) -> bool:
        """Take one of the round's few live retries; return whether there was one."""
        if self.limits.batches_only or not self.live_left:
            return False
        self.live_left -= 1
        return True

    def park_submitting_if_full(self, key: bytes, body: bytes, phase: Purpose, usd: float) -> None:
        """Write a request, with permit and ``usd`` held, to the next job's file; StoreError if that fails."""
        line = self.api.line(key.hex(), body)
        file = self._filling
        if file is not None and (
            file.requests >= self.limits.requests or file.bytes + len(line) > self.limits.bytes
        ):
            self.submit_parked_file()
            file = None
        if file is None:
            file = self._filling = ParkedFile(self.index.folder)
        file.add(key, line, phase, usd)
        self.index.mark_waiting(key)

    def submit_parked_file(self) -> None:
        if (file := self._filling) is not None:
            self._filling = None
            file.close()
            self.submit_file(self, file)

    def raise_if_refused(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def refuse_parked_and_later(self, reason: str) -> None:
        self.refusal = BatchLost(reason)
        if (file := self._filling) is not None:
            self._filling = None
            file.close()
            await self.index.mark_waiting_lost(file.tag, reason)
            self._discard_file(file)

    def discard_parked(self) -> None:
        if (file := self._filling) is not None:
            self._filling = None
            self._discard_file(file)

    def _discard_file(self, file: ParkedFile) -> None:
        usd_each = file.usd / file.requests
        for _ in range(file.requests):
            self.meter.release_unsent_batch_request(usd_each)
        file.discard()
