"""Anthropic's Message Batches: one JSON body makes a job, and its results are a file of lines.

Source: the API reference, the guide on batch processing and Anthropic's own client, read in November 2026.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from shutil import rmtree
from urllib.parse import quote

import msgspec
from yarl import URL

from coeval.core import foreign
from coeval.core.errors import Unreadable
from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import (
    CLOCKS_APART_S,
    PAGE,
    UNKNOWN_ERROR,
    BatchJob,
    BatchLimits,
    BatchProgress,
    BatchReply,
    BatchState,
    DamagedResult,
    Undecided,
    download_results,
    made_before,
)
from coeval.models.batch.batch_http import BatchHttp, read_answer
from coeval.models.dialects.anthropic_messages import status_of_error
from coeval.store.jsonl import read_whole_lines

_PATH = "/v1/messages/batches"
_BEGIN, _END = b'{"requests":[', b"]}"
# Bytes per piece of an upload: large enough for the wire, small beside many jobs at once.
_CHUNK = 1 << 18


class _MessageCounts(msgspec.Struct):
    """Of requests. Their sum is the size of the batch; all stand at ``processing`` until the batch ends."""

    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0

    @property
    def total(self) -> int:
        return self.processing + self.ended

    @property
    def ended(self) -> int:
        return self.succeeded + self.errored + self.canceled + self.expired


class _MessageBatch(msgspec.Struct):
    id: str
    processing_status: str
    request_counts: _MessageCounts
    created_at: str | None = None
    results_url: str | None = None

    @property
    def state(self) -> BatchState:
        if self.processing_status != "ended":
            return "running"
        counts = self.request_counts
        return "cancelled" if counts.canceled else "expired" if counts.expired else "ended"


class _MessageBatchPage(msgspec.Struct):
    data: list[_MessageBatch]
    has_more: bool = False
    last_id: str | None = None

    @property
    def next(self) -> str | None:
        return self.last_id if self.has_more else None


class _MessageResult(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _MessageResultLine(msgspec.Struct):
    custom_id: str
    result: _MessageResult


class _SubmittedLine(msgspec.Struct):
    custom_id: str


_read_line = foreign.make_decoder(_MessageResultLine)
_read_custom_id = foreign.make_decoder(_SubmittedLine)


class MessageBatches:
    """The batches of a workspace.

    Anthropic stores nothing that would tell one batch from another but the custom ids, and tells these with
    the results, when all has ended. So a batch whose id was lost is known by its size and time at first,
    which makes it a candidate and no more, and for certain only once it has ended.
    """

    limits = BatchLimits(requests=100_000, bytes=256_000_000 - len(_BEGIN) - len(_END))

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        self._http = http

    def line(self, custom_id: str, body: bytes) -> bytes:
        return b'{"custom_id":"%s","params":%s}\n' % (custom_id.encode(), body)

    async def create(self, job: BatchJob) -> str:
        size = len(_BEGIN) + job.lines.stat().st_size - 1 + len(_END)
        headers = {"Content-Type": "application/json", "Content-Length": str(size)}
        reply = await self._http.send("POST", _PATH, _OneBody(job.lines), headers=headers)
        return read_answer(reply.body, _MessageBatch, "a message batch").id

    async def find(self, job: BatchJob) -> str | None:
        undecided: _MessageBatch | None = None
        async for batch in self._made_since(job.written_at - CLOCKS_APART_S):
            if batch.id in job.others or batch.request_counts.total != job.requests:
                continue
            latest = await self._retrieve(batch.id)
            if latest.state == "running":
                undecided = latest
            elif undecided is None and await self._holds(latest, job):
                return latest.id  # an earlier job may have held the same requests: the latest is this one
        if undecided is not None:
            raise Undecided(
                f"whether the batch {undecided.id} is the one that was submitted shows when it ends: it was "
                f"made at {undecided.created_at}, has as many requests, and Anthropic tells which only then"
            )
        return None

    async def check(self, job_id: str) -> BatchProgress:
        batch = await self._retrieve(job_id)
        counts = batch.request_counts
        reported = counts.ended > 0  # nothing is, while it runs
        return BatchProgress(
            batch.state,
            batch.processing_status,
            total=counts.total,
            done=counts.succeeded if reported else None,
            failed=counts.ended - counts.succeeded if reported else None,
        )

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        async for reply in download_results(
            self._http, self._results_of(await self._retrieve(job_id)), into, _reply
        ):
            yield reply

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", f"{_place(job_id)}/cancel", repeatable=True)

    async def _retrieve(self, job_id: str) -> _MessageBatch:
        return await self._http.read(_place(job_id), _MessageBatch, "a message batch")

    async def _made_since(self, at: float) -> AsyncIterator[_MessageBatch]:
        """The batches of the workspace, the latest first."""
        async for page in self._http.pages(f"{_PATH}?limit={PAGE}", _MessageBatchPage, "after_id"):
            for batch in page.data:
                if made_before(batch.created_at, at):
                    return
                yield batch

    async def _holds(self, batch: _MessageBatch, job: BatchJob) -> bool:
        """Whether a batch that has ended is that job, by its custom ids: they are told for every request. One
        of which no result can be read may be it: then what it cost is not known, either."""
        if batch.results_url is None:
            return False  # they are not kept for ever, and without them there is nothing to adopt
        into = job.lines.with_suffix(".part")
        into.mkdir(exist_ok=True)
        try:
            found = download_results(self._http, self._results_of(batch), into, _reply)
            reported = {line.custom_id async for line in found if isinstance(line, BatchReply)}
            sent = (_read_custom_id(line.text).custom_id for line in read_whole_lines(job.lines))
            return not reported or not reported.isdisjoint(sent)
        finally:
            rmtree(into)

    def _results_of(self, batch: _MessageBatch) -> str:
        """Where the host says that the results are; where the reference says if that is another host, as
        behind a gateway, which is shown no key of this one."""
        said = batch.results_url
        is_there = said is not None and _leads_to(said, self._http.url)
        return said if said is not None and is_there else f"{_place(batch.id)}/results"


class _OneBody:
    """A file of lines as one JSON body, piece by piece; a line feed stands nowhere but at a line's end."""

    def __init__(self, lines: Path) -> None:
        self._lines = lines

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._lines.open("rb") as lines:
            yield _BEGIN
            piece = lines.read(_CHUNK)
            while piece:
                following = lines.read(_CHUNK)
                yield (piece if following else piece[:-1]).replace(b"\n", b",")
                piece = following
            yield _END


def _place(job_id: str) -> str:
    return f"{_PATH}/{quote(job_id, safe='')}"


def _leads_to(url: str, base: str) -> bool:
    try:
        return URL(url).origin() == URL(base).origin()
    except ValueError:
        return False


def _reply(line: bytes) -> BatchReply:
    reported = _read_line(line)
    match reported.result.type:
        case "succeeded":
            return BatchReply(reported.custom_id, 200, bytes(reported.result.message))
        case "errored":
            body = bytes(reported.result.error)
            return BatchReply(reported.custom_id, status_of_error(body, UNKNOWN_ERROR), body)
        case "canceled" | "expired":
            return BatchReply(reported.custom_id, None, b"")
        case kind:
            raise Unreadable(f"what a result of the type {kind[:40]!r} means is not known")
