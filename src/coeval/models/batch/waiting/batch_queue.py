"""The requests of one model that go by batch jobs: parked, split into jobs, and what there is of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coeval.core.errors import BatchLost, Gap
from coeval.core.records import Purpose
from coeval.models.batch.batch_api import BatchApi, BatchLimits
from coeval.models.batch.waiting.batch_index import BatchIndex, BatchOutcome, ParkedFile
from coeval.models.batch.waiting.job_list import HostRefusals

if TYPE_CHECKING:
    from coeval.models.metering.meter import Meter

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
    put_off: int = 0
    _filling: ParkedFile | None = None

    def __post_init__(self) -> None:
        self.limits = self.source.api.limits

    @property
    def parked(self) -> int:
        """Requests that are in no job yet."""
        return 0 if self._filling is None else self._filling.requests

    def begin_round(self) -> None:
        self.live_left, self.put_off = max(self.live_left, LIVE_AGAIN), 0

    def may_be_live(self, *, again: bool) -> bool:
        """Whether a request is asked live after all: it is asked ``again``, and there are few of these, or
        there were too few for a job."""
        if self.limits.batches_only or self.live_left <= (0 if again else LIVE_AGAIN):
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

    def ask_live(self, file: ParkedFile) -> None:
        """Let the requests of a closed file be asked live in the next round."""
        self.live_left = LIVE_AGAIN + file.requests
        self.index.release_now(file.tag)
        self._unpark(file)

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
