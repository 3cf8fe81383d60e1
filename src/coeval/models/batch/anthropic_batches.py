"""Anthropic's Message Batches: one JSON body makes a job, and its results are a file of lines.

Source: the API reference, the guide on batch processing and Anthropic's own client, read in November 2026.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree
from urllib.parse import quote

import msgspec
from yarl import URL

from coeval.core import foreign
from coeval.core.errors import Unreadable
from coeval.models.batch import batch_api
from coeval.models.batch.batch_http import decode_answer
from coeval.models.dialects.anthropic_messages import read_error_status
from coeval.store.jsonl import read_whole_lines

_PATH = "/v1/messages/batches"
_BEGIN, _END = b'{"requests":[', b"]}"
# Bytes per piece of an upload: large enough for the wire, small enough for many jobs at once.
_CHUNK = 1 << 18


class _MessageCounts(msgspec.Struct):
    """Counts of requests. Their sum is the size of the batch; all are ``processing`` until the batch ends."""

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
    def state(self) -> batch_api.BatchState:
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


class MessageBatches(batch_api.HttpBatches):
    """The batches of a workspace. Anthropic stores nothing that distinguishes batches but the custom ids, and
    discloses these with the results, at the end. So a batch whose id was lost is at first only a candidate,
    by its size and time, and certain once it has ended."""

    limits = batch_api.BatchLimits(requests=100_000, bytes=256_000_000 - len(_BEGIN) - len(_END))

    def line(self, custom_id: str, body: bytes) -> bytes:
        return b'{"custom_id":"%s","params":%s}\n' % (custom_id.encode(), body)

    async def create(self, job: batch_api.BatchJob) -> str:
        size = len(_BEGIN) + job.lines.stat().st_size - 1 + len(_END)
        headers = {"Content-Type": "application/json", "Content-Length": str(size)}
        reply = await self._http.send("POST", _PATH, _OneBody(job.lines), headers=headers)
        return decode_answer(reply.body, _MessageBatch, "a message batch").id

    async def find(self, job: batch_api.BatchJob) -> str | None:
        """Find the batch by size and time, then by custom ids; see `BatchApi.find`."""
        undecided: _MessageBatch | None = None
        async for batch in self._list_since(job.written_at - batch_api.CLOCKS_APART_S):
            if batch.id in job.others or batch.request_counts.total != job.requests:
                continue
            latest = await self._retrieve(batch.id)
            if latest.state == "running":
                undecided = latest
            elif undecided is None and await self._may_hold_job(latest, job):
                return latest.id  # an earlier job may have held the same requests: this one is the latest
        if undecided is not None:
            raise batch_api.Undecided(
                f"whether the batch {undecided.id} is the one that was submitted shows when it ends: it was "
                f"made at {undecided.created_at}, has as many requests, and Anthropic tells which only then"
            )
        return None

    async def check(self, job_id: str) -> batch_api.BatchProgress:
        batch = await self._retrieve(job_id)
        counts = batch.request_counts
        reported = counts.ended > 0  # no counts while it runs
        return batch_api.BatchProgress(
            batch.state,
            batch.processing_status,
            total=counts.total,
            done=counts.succeeded if reported else None,
            failed=counts.ended - counts.succeeded if reported else None,
        )

    async def list_results(self, job_id: str) -> list[str]:
        return [self._results_url_or_path(await self._retrieve(job_id))]

    @staticmethod
    def read_result(line: bytes) -> batch_api.BatchReply:
        reported = _read_line(line)
        match reported.result.type:
            case "succeeded":
                return batch_api.BatchReply(reported.custom_id, 200, bytes(reported.result.message))
            case "errored":
                body = bytes(reported.result.error)
                return batch_api.BatchReply(
                    reported.custom_id, read_error_status(body, batch_api.UNKNOWN_ERROR), body
                )
            case "canceled" | "expired":
                return batch_api.BatchReply(reported.custom_id, None, b"")
            case kind:
                raise Unreadable(f"what a result of the type {kind[:40]!r} means is not known")

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", f"{_job_path(job_id)}/cancel", repeatable=True)

    async def _retrieve(self, job_id: str) -> _MessageBatch:
        return await self._http.read(_job_path(job_id), _MessageBatch, "a message batch")

    async def _list_since(self, since_s: float) -> AsyncIterator[_MessageBatch]:
        """Yield the workspace's batches since a time, the latest first."""
        async for page in self._http.read_pages(
            f"{_PATH}?limit={batch_api.PAGE}", _MessageBatchPage, "after_id"
        ):
            for batch in page.data:
                if batch_api.is_made_before(batch.created_at, since_s):
                    return
                yield batch

    async def _may_hold_job(self, batch: _MessageBatch, job: batch_api.BatchJob) -> bool:
        """Check by custom ids whether an ended batch is that job; without readable results, it may be."""
        if batch.results_url is None:
            return False  # results expire, and without them there is nothing to adopt
        into = job.lines.with_suffix(".part")
        into.mkdir(exist_ok=True)
        try:
            replies = self._download_results(self._results_url_or_path(batch), into)
            reported = {line.custom_id async for line in replies if isinstance(line, batch_api.BatchReply)}
            sent = (_read_custom_id(line.text).custom_id for line in read_whole_lines(job.lines))
            return not reported or not reported.isdisjoint(sent)
        finally:
            rmtree(into)

    def _results_url_or_path(self, batch: _MessageBatch) -> str:
        """Return the results' URL from the host, or the documented path if that is another host's, as behind
        a gateway, which must not get this key."""
        url = batch.results_url
        if url is not None and _has_same_origin(url, self._http.url):
            return url
        return f"{_job_path(batch.id)}/results"


class _OneBody:
    """Streams a file of lines as one JSON body; line feeds occur only at the ends of lines."""

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


def _job_path(job_id: str) -> str:
    return f"{_PATH}/{quote(job_id, safe='')}"


def _has_same_origin(url: str, base: str) -> bool:
    try:
        return URL(url).origin() == URL(base).origin()
    except ValueError:
        return False
