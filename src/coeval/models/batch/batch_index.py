"""What is known of every batched request of a folder (parked, submitted, answered, lost), and the queue in
which those of one model wait for a job."""

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
from coeval.core.records import Completion, Purpose, Usage
from coeval.models.batch.batch_api import BatchApi, BatchLimits
from coeval.models.batch.job_list import HostRefusals, JobList
from coeval.models.dialects.dialect import FieldRejected, LimitRenamed, SchemaRejected
from coeval.store.jsonl import (
    Appender,
    cut_torn_tail,
    read_line_at,
    read_torn_tail,
    read_whole_lines,
    store_error,
)
from coeval.store.record_index import OFFSET_BITS

if TYPE_CHECKING:
    from coeval.models.metering.meter import Meter

# --- Outcome of a batched request


class StoredError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ModelError by the name of its class; ``field`` is that of a `FieldRejected`."""

    kind: str
    message: str
    status: int | None = None
    retry_advised: bool = True
    field: str = ""
    usage: Usage | None = None

    @classmethod
    def of(cls, error: ModelError) -> StoredError:
        field = error.field if isinstance(error, FieldRejected) else ""
        return cls(type(error).__name__, str(error), error.status, error.retry_advised, field, error.usage)

    def error(self) -> ModelError:
        """The error itself, to be raised as if it came now."""
        kind = _KINDS.get(self.kind, ModelError)
        if issubclass(kind, FieldRejected):
            return kind(self.message, field=self.field, status=self.status)
        made = kind(self.message, status=self.status, retry_advised=self.retry_advised, usage=self.usage)
        made.status = self.status
        return made


class BatchOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a request, priced and freed of credentials, or the error that it ended in."""

    id: str
    completion: Completion | None = None
    error: StoredError | None = None


def _all(kind: type[ModelError]) -> Iterator[type[ModelError]]:
    yield kind
    for more in kind.__subclasses__():
        yield from _all(more)


_KINDS: dict[str, type[ModelError]] = {
    kind.__name__: kind for kind in (*_all(ModelError), FieldRejected, LimitRenamed, SchemaRejected)
}


# --- Request file of a batch job

# Custom ids are 32 hex digits.
ID_BYTES = 16


def lines_file(folder: Path, tag: str) -> Path:
    """The requests of a job, as its provider takes them."""
    return folder / f"{tag}.jsonl"


def ids_file(folder: Path, tag: str) -> Path:
    """Their ids, 16 bytes each, in the order of the lines."""
    return folder / f"{tag}.ids"


def results_file(folder: Path, tag: str) -> Path:
    """What came of them, an `BatchOutcome` a line, in any order."""
    return folder / f"{tag}.results.jsonl"


class ParkedFile:
    """Requests that wait to be submitted as one job: their lines, and beside them their ids.

    ``usd`` is the money held for them, ``dearest_usd`` the most for one. Nothing of it counts
    before a job is written down for it.
    """

    def __init__(self, folder: Path) -> None:
        self.tag = uuid4().hex
        self.folder = folder
        self.requests = self.bytes = 0
        self.usd = self.dearest_usd = 0.0
        self.phases: Counter[str] = Counter()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lines = lines_file(folder, self.tag).open("xb", buffering=1 << 18)
            self._ids = ids_file(folder, self.tag).open("xb", buffering=1 << 16)
        except OSError as error:
            raise store_error("write to", folder, error) from error

    def add(self, key: bytes, line: bytes, phase: str, usd: float) -> None:
        """Take one more request.

        Raises StoreError: the disk refuses.
        """
        try:
            self._lines.write(line)
            self._ids.write(key)
        except OSError as error:
            raise store_error("write to", self.folder, error) from error
        self.requests += 1
        self.bytes += len(line)
        self.usd += usd
        self.dearest_usd = max(self.dearest_usd, usd)
        self.phases[phase] += 1

    def close(self) -> None:
        """Nothing more comes; all of it is on disk when this returns.

        Raises StoreError: the disk refuses.
        """
        try:
            for file in (self._lines, self._ids):
                file.flush()
                os.fsync(file.fileno())
                file.close()
        except OSError as error:
            raise store_error("write to", self.folder, error) from error

    def drop(self) -> None:
        """It was not to be."""
        self._lines.close()
        self._ids.close()
        lines_file(self.folder, self.tag).unlink(missing_ok=True)
        ids_file(self.folder, self.tag).unlink(missing_ok=True)


_LIVE = "live"
# The event loop has a turn between so many; a turn after each would cost more than the work.
_BREATH = 4_096
_OURS = (".ids", ".jsonl", ".tmp")


class BatchIndex:
    """The folder ``batches/`` and the list of jobs beside it, for the only process that writes them.

    Of each request it keeps where its answer stands, some 150 bytes; texts are read from disk when a record
    is made of them. A result that was collected is kept until `clear`.
    """

    def __init__(self, folder: Path, jobs: Path) -> None:
        self.folder = folder
        self.jobs = JobList(jobs)
        # The place of the answer; None: it waits; a text: why it will not be answered in this run.
        self._table: dict[bytes, int | str | None] = {}
        self._files: list[Path] = []
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
            if read_torn_tail(live):
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

        Raises Pending: it waits; BatchLost: the job that it was in ended without it.
        """
        if key not in self._table:
            return None
        match self._table[key]:
            case None:
                raise Pending("it waits for a batch job")
            case str(reason):
                raise BatchLost(reason)
            case int(place):
                return self._read(place)

    def _read(self, place: int) -> BatchOutcome:
        path = self._files[place >> OFFSET_BITS]
        try:
            return decode(read_line_at(path, place & ((1 << OFFSET_BITS) - 1)), BatchOutcome)
        except Undecodable as error:
            raise StoreError(f"{path} is damaged ({error}); what it held will be asked for again") from error

    def park(self, key: bytes) -> None:
        """A request waits from now on."""
        self._table[key] = None

    def wait_for(self, tag: str) -> None:
        """All requests of a job wait."""
        for key in self._ids(tag):
            self._table[key] = None

    async def release(self, tag: str) -> None:
        """Those requests of a job that still wait may be asked anew."""
        async for key in self._waiting(tag):
            del self._table[key]

    async def lose(self, tag: str, reason: str) -> None:
        """Those requests of a job that still wait will not be answered in this run."""
        async for key in self._waiting(tag):
            self._table[key] = reason

    async def waiting_of(self, tag: str) -> set[str]:
        """The ids of a job's requests that wait, as its provider knows them."""
        return {key.hex() async for key in self._waiting(tag)}

    async def _waiting(self, tag: str) -> AsyncIterator[bytes]:
        """A job's requests that wait: of a million, others have their turn between some and the next."""
        for count, key in enumerate(self._ids(tag), 1):
            if not count % _BREATH:
                await asyncio.sleep(0)
            if self._table.get(key, "") is None:
                yield key

    def take_in(self, tag: str) -> Iterator[BatchOutcome]:
        """Know the collected results of a job from now on; yields each."""
        return self._index(results_file(self.folder, tag))

    def _index(self, path: Path) -> Iterator[BatchOutcome]:
        place = len(self._files) << OFFSET_BITS
        self._files.append(path)
        read = make_decoder(BatchOutcome)
        for line in read_whole_lines(path):
            try:
                outcome = read(line.text)
            except Undecodable as error:
                raise StoreError(f"{path} is damaged ({error}); move it away to collect it again") from error
            self._note_answer(outcome, place | line.offset)
            yield outcome

    def _note_answer(self, outcome: BatchOutcome, position: int) -> None:
        self._table[bytes.fromhex(outcome.id)] = position

    def keep_live(self, outcome: BatchOutcome) -> None:
        """Keep the answer to a batched request that was asked live after all: other parts of its record may
        wait, and it is not to be paid for twice."""
        path = self._live_file
        if self._live is None:
            self._live = Appender(path)
            self._files.append(path)
            self._live_place = len(self._files) - 1 << OFFSET_BITS
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


# --- Requests of one model that go by batch jobs

# Replies that were refused, or could not be read, of which so many a round are asked for again live: fewer
# are not worth another job.
LIVE_AGAIN = 20


@dataclass(frozen=True, slots=True)
class Source:
    """Whose requests these are: the model by its name and its provider's, where it is asked, and through
    what. ``read`` makes a `BatchOutcome` of an id, a status and a body, ``reported`` what may be shown of
    what a host said; ``bodies`` are the refusals of the host under which bodies are made; ``keyless`` says
    where a key is looked for, if none was found."""

    name: str
    interface: str
    model: str
    endpoint: str
    api: BatchApi
    meter: Meter
    read: Callable[[str, int, bytes], BatchOutcome]
    bodies: Callable[[], list[HostRefusals]]
    reported: Callable[[str], str]
    keyless: str = ""


@dataclass(slots=True)
class BatchQueue:
    """``full`` is called with each file that holds all that a job may; ``live_left`` requests may be asked
    live in this round; ``refusal`` says why no more jobs are made of this model, ``limits`` how large they
    may be."""

    source: Source
    index: BatchIndex
    full: Callable[[BatchQueue, ParkedFile], None]
    limits: BatchLimits = field(init=False)
    live_left: int = LIVE_AGAIN
    refusal: Gap | None = None
    _filling: ParkedFile | None = None

    def __post_init__(self) -> None:
        self.limits = self.source.api.limits

    @property
    def parked(self) -> int:
        """Requests that are in no job yet."""
        return 0 if self._filling is None else self._filling.requests

    def begin_round(self) -> None:
        self.live_left = LIVE_AGAIN

    def may_be_live(self) -> bool:
        """Whether a request that is asked again is asked live after all: there are few of these."""
        if self.limits.batches_only or not self.live_left:
            return False
        self.live_left -= 1
        return True

    def park(self, key: bytes, body: bytes, phase: Purpose, usd: float) -> None:
        """Write a request down for the next job; its permit and its ``usd`` are held by now.

        Raises StoreError: the disk refuses.
        """
        line = self.source.api.line(key.hex(), body)
        file = self._filling
        if file is not None and (
            file.requests >= self.limits.requests or file.bytes + len(line) > self.limits.bytes
        ):
            self.close_file()
            file = None
        if file is None:
            file = self._filling = ParkedFile(self.index.folder)
        file.add(key, line, phase, usd)
        self.index.park(key)

    def close_file(self) -> None:
        """Make a job of what is parked."""
        if (file := self._filling) is not None:
            self._filling = None
            file.close()
            self.full(self, file)

    def heed_refusal(self) -> None:
        """Raise why no more jobs are made of this model, if that is so."""
        if self.refusal is not None:
            raise self.refusal

    async def refuse(self, reason: str) -> None:
        """Make no more jobs of this model, for that reason; what is parked for one is lost."""
        self.refusal = BatchLost(reason)
        if (file := self._filling) is not None:
            self._filling = None
            file.close()
            await self.index.lose(file.tag, reason)
            self._unpark(file)

    def drop(self) -> None:
        """Nothing is sent any more: what is parked in no job was never asked."""
        if (file := self._filling) is not None:
            self._filling = None
            self._unpark(file)

    def _unpark(self, file: ParkedFile) -> None:
        each = file.usd / file.requests
        for _ in range(file.requests):
            self.source.meter.unpark(each)
        file.drop()
