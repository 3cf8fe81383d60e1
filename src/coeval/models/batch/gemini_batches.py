"""The Gemini API's batches: a few requests in the call that makes the job, more in a file uploaded before.

Source: Google's reference of `batches` and `files` (v1beta) and its guide to the Batch API, November 2026,
and what `google-genai` sends. A job expires after two days, and of an expired one there is nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import AccessDenied, ModelError, StoreError, Undecodable, Unreadable
from coeval.core.foreign import decode, decoder
from coeval.core.model import ModelSpec
from coeval.core.redaction import Redactor
from coeval.models.batch.batch_api import (
    BatchJob,
    BatchLimits,
    BatchProgress,
    BatchReply,
    BatchState,
    DamagedResult,
    answered_reply,
    before_the_job,
    readable,
    result_lines,
)
from coeval.models.batch.batch_http import BatchHttp, read_answer
from coeval.models.dialects.gemini import explain, generate_path
from coeval.models.transport.faults import excerpt, from_status
from coeval.store.jsonl import whole_lines

# --- States and errors of Google's batch interfaces

# Every other word is of a job that goes on.
_STATES: Mapping[str, BatchState] = {
    "UNSPECIFIED": "waiting",
    "PENDING": "waiting",
    "QUEUED": "waiting",
    "SUCCEEDED": "ended",
    "PARTIALLY_SUCCEEDED": "expired",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "EXPIRED": "expired",
}


class _RpcCode(NamedTuple):
    name: str
    status: int


# `google.rpc.Code.CANCELLED`.
_CANCELLED = 1
# google.rpc.Code, and the HTTP status that the API answers with where it is asked live.
_CODES: Mapping[int, _RpcCode] = {
    2: _RpcCode("UNKNOWN", 500),
    3: _RpcCode("INVALID_ARGUMENT", 400),
    4: _RpcCode("DEADLINE_EXCEEDED", 504),
    5: _RpcCode("NOT_FOUND", 404),
    6: _RpcCode("ALREADY_EXISTS", 409),
    7: _RpcCode("PERMISSION_DENIED", 403),
    8: _RpcCode("RESOURCE_EXHAUSTED", 429),
    9: _RpcCode("FAILED_PRECONDITION", 400),
    10: _RpcCode("ABORTED", 409),
    11: _RpcCode("OUT_OF_RANGE", 400),
    12: _RpcCode("UNIMPLEMENTED", 501),
    13: _RpcCode("INTERNAL", 500),
    14: _RpcCode("UNAVAILABLE", 503),
    15: _RpcCode("DATA_LOSS", 500),
    16: _RpcCode("UNAUTHENTICATED", 401),
}


class GoogleError(msgspec.Struct, frozen=True):
    """google.rpc.Status; ``code`` is one of google.rpc.Code, or an HTTP status."""

    code: int = 2
    message: str = ""
    details: list[msgspec.Raw] | None = None


def state_of(word: str) -> BatchState:
    """``JOB_STATE_…`` or ``BATCH_STATE_…``."""
    return _STATES.get(word.partition("_STATE_")[2], "running")


def job_error(error: GoogleError, redactor: Redactor) -> ModelError:
    """Why a job failed; its words without credentials."""
    status = _status(error.code)
    found: ModelError = from_status(status, b"", "", redactor)
    if isinstance(explain(status, _as_live(error), redactor), AccessDenied):
        found = AccessDenied("")
    found.args = (excerpt(error.message, redactor) or "Google gives no reason",)
    found.status = None  # nobody was answered with it
    return found


def progress_of(
    word: str,
    counts: tuple[int | None, int | None, int | None],
    error: GoogleError | None,
    redactor: Redactor,
) -> BatchProgress:
    """How a job stands; ``counts`` are of all requests, those that were answered, and those that failed."""
    state = state_of(word)
    why = job_error(error or GoogleError(), redactor) if state == "failed" else None
    return BatchProgress(state, word, *counts, error=why)


def failed_reply(custom_id: str, error: GoogleError) -> BatchReply:
    """What became of a request that failed, as it would have been answered live. One that was cancelled was
    never carried out."""
    if error.code == _CANCELLED:
        return BatchReply(custom_id, None, msgspec.json.encode(error))
    return BatchReply(custom_id, _status(error.code), _as_live(error))


def _as_live(error: GoogleError) -> bytes:
    """The body that the API answers with where it is asked live."""
    name = _CODES[error.code].name if error.code in _CODES else ""
    reported = {"message": error.message, "status": name, "details": error.details or []}
    return msgspec.json.encode({"error": {"code": _status(error.code), **reported}})


def _status(code: int) -> int:
    if code in _CODES:
        return _CODES[code].status
    return code if 400 <= code < 600 else 500


def int64(reported: str | int) -> int | None:
    """A 64-bit number, for which JSON has a text; None where it is not known."""
    try:
        number = int(reported)
    except ValueError:
        return None
    return number if number >= 0 else None


# Google takes 20 MB in the call itself; what wraps the lines must fit beside them.
INLINE_BYTES: Final = 16_000_000
# Requests travel in the call itself below 20 MB; so few of them that their answers, which come back in one
# piece too, may be as long as they get.
INLINE_REQUESTS: Final = 100
# Jobs are listed with the answers that came back in one piece.
_PAGE = 10
# Levels of a JSON text. Answers have some 20; the decoder gives up between 500 and 1,000.
_DEEPEST = 200
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[][{}]', re.DOTALL)


class _BatchStats(msgspec.Struct, rename="camel", frozen=True):
    """JSON has texts for 64-bit numbers."""

    request_count: str | int = 0
    successful_request_count: str | int = 0
    failed_request_count: str | int = 0

    @property
    def counts(self) -> tuple[int | None, int | None, int | None]:
        return (
            int64(self.request_count),
            int64(self.successful_request_count),
            int64(self.failed_request_count),
        )


class _KeyedMetadata(msgspec.Struct, frozen=True):
    key: str


class _InlinedResponse(msgspec.Struct, frozen=True):
    metadata: _KeyedMetadata
    response: msgspec.Raw = msgspec.Raw()
    error: GoogleError | None = None


class _InlinedResponses(msgspec.Struct, rename="camel", frozen=True):
    inlined_responses: list[msgspec.Raw] = []


class _BatchOutput(msgspec.Struct, rename="camel", frozen=True):
    """``inlined_responses`` are read one by one, and only when they are collected: one that is damaged hides
    neither the state of its job nor the others."""

    inlined_responses: msgspec.Raw = msgspec.Raw(b"null")
    responses_file: str | None = None


class _BatchMetadata(msgspec.Struct, rename="camel", frozen=True):
    display_name: str = ""
    state: str = "BATCH_STATE_UNSPECIFIED"
    batch_stats: _BatchStats | None = None
    output: _BatchOutput | None = None


class _Operation(msgspec.Struct, frozen=True):
    """A batch, as google.longrunning tells of one."""

    name: str
    metadata: _BatchMetadata = _BatchMetadata()
    error: GoogleError | None = None
    response: _BatchOutput | None = None

    @property
    def output(self) -> _BatchOutput:
        return self.metadata.output or self.response or _BatchOutput()


class _OperationPage(msgspec.Struct, rename="camel", frozen=True):
    operations: list[_Operation] = []
    next: str | None = msgspec.field(default=None, name="nextPageToken")


class _StoredFile(msgspec.Struct, frozen=True):
    name: str


class _Uploaded(msgspec.Struct, frozen=True):
    file: _StoredFile


class _ResultLine(msgspec.Struct, frozen=True):
    key: str
    response: msgspec.Raw = msgspec.Raw()
    error: GoogleError | None = None


class _RequestLine(msgspec.Struct, frozen=True):
    key: str
    request: msgspec.Raw


_read_request = decoder(_RequestLine)
_read_line = decoder(_ResultLine)
_read_inlined = decoder(_InlinedResponse)


class GeminiBatches:
    """Batches of one model of the Gemini API."""

    limits = BatchLimits(requests=1_000_000, bytes=2_000_000_000)
    """Google names no number of requests; the tokens that may wait for a model are the account's."""

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        self._http = http
        self._create_path = generate_path(spec.model).replace(":generateContent", ":batchGenerateContent")

    def line(self, custom_id: str, body: bytes) -> bytes:
        return b'{"key":"%b","request":%b}\n' % (custom_id.encode(), body)

    async def create(self, job: BatchJob) -> str:
        if job.bytes <= INLINE_BYTES and job.requests <= INLINE_REQUESTS:
            given: dict[str, Any] = {"requests": {"requests": await asyncio.to_thread(_inlined, job.lines)}}
        else:
            with before_the_job():
                given = {"fileName": await self._uploaded(job)}
        needed = {"batch": {"displayName": job.name, "inputConfig": given}}
        reply = await self._http.send("POST", self._create_path, msgspec.json.encode(needed))
        return read_answer(reply.body, _Operation, "a batch").name

    async def find(self, job: BatchJob) -> str | None:
        """By the name, which is made of the tag."""
        pages = self._http.pages(f"/batches?pageSize={_PAGE}", _OperationPage, "pageToken", _shallow)
        async for page in pages:
            for found in page.operations:
                if found.metadata.display_name == job.name and found.name not in job.others:
                    return found.name
        return None

    async def check(self, job_id: str) -> BatchProgress:
        batch = await self._batch(job_id)
        stats = batch.metadata.batch_stats
        counts = stats.counts if stats is not None else (None, None, None)
        return progress_of(batch.metadata.state, counts, batch.error, self._http.redactor)

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        output = (await self._batch(job_id)).output
        if output.responses_file:
            results = into / "results.jsonl"
            await self._http.download(f"/{quote(output.responses_file)}:download?alt=media", results)
            for reply in readable(result_lines(results), _line_reply):
                yield reply
        elif bytes(output.inlined_responses) != b"null":
            try:
                inlined = decode(output.inlined_responses, _InlinedResponses).inlined_responses
            except Undecodable as error:
                yield DamagedResult("the list of answers", str(error))
                return
            for reply in readable(map(bytes, inlined), _inlined_reply, "answer"):
                yield reply

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", f"/{quote(job_id)}:cancel", b"{}", repeatable=True)

    async def _batch(self, job_id: str) -> _Operation:
        return await self._http.read(f"/{quote(job_id)}", _Operation, "a batch", _shallow)

    async def _uploaded(self, job: BatchJob) -> str:
        """The name of the job's file at Google, where it stays for two days: an address for it is asked for,
        and the file sent there."""
        above, _, version = self._http.url.rpartition("/")
        started = await self._http.send(
            "POST",
            f"{above}/upload/{version}/files",
            msgspec.json.encode({"file": {"displayName": job.name}}),
            headers={
                "X-Goog-Upload-Protocol": "resumable",
                "X-Goog-Upload-Command": "start",
                "X-Goog-Upload-Header-Content-Length": str(job.bytes),
                "X-Goog-Upload-Header-Content-Type": "application/jsonl",
            },
            repeatable=True,
        )
        address = started.headers.get("x-goog-upload-url")
        if not address:
            raise Unreadable("the host takes a file, and names no address for it")
        headers = {"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
        reply = await self._http.send("POST", address, job.lines, headers=headers)
        return read_answer(reply.body, _Uploaded, "an uploaded file").file.name


def _shallow(body: bytes) -> bytes:
    """A JSON text with null for what is nested deeper than any answer: no decoder reads that, and one answer
    of a job would hide the others, and the job's state."""
    depth, kept, begun, dropped = 0, list[bytes](), 0, 0
    for token in _JSON_TOKEN.finditer(body):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _DEEPEST:
                dropped = token.start()
        elif token[0] in (b"]", b"}"):
            if depth == _DEEPEST:
                kept += body[begun:dropped], b"null"
                begun = token.end()
            depth -= 1
    return b"".join((*kept, body[begun:])) if kept else body


def _inlined(lines: Path) -> list[dict[str, Any]]:
    """The requests of a job's file as they stand in the call that makes it."""
    try:
        read = [_read_request(line.text) for line in whole_lines(lines)]
    except Undecodable as error:
        raise StoreError(f"{lines} is damaged: a line of it is no request ({error})") from error
    return [{"request": line.request, "metadata": {"key": line.key}} for line in read]


def _line_reply(line: bytes) -> BatchReply:
    reported = _read_line(line)
    return _reply(reported.key, reported)


def _inlined_reply(answer: bytes) -> BatchReply:
    reported = _read_inlined(answer)
    return _reply(reported.metadata.key, reported)


def _reply(custom_id: str, reported: _ResultLine | _InlinedResponse) -> BatchReply:
    if reported.error is not None:
        return failed_reply(custom_id, reported.error)
    return answered_reply(custom_id, reported.response)
