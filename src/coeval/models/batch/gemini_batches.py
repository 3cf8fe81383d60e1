"""The Gemini API's batches: requests are uploaded as a file, and a job's results are a file.

Source: Google's reference of `batches` and `files` (v1beta) and its guide to the Batch API, November 2026,
and what `google-genai` sends. A job expires after two days, without any results.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from coeval.core.errors import AccessDenied, ModelError, Unreadable
from coeval.core.foreign import make_decoder
from coeval.core.redaction import Redactor
from coeval.models.batch import batch_api
from coeval.models.batch.batch_http import decode_answer
from coeval.models.dialects.gemini import explain, generate_path
from coeval.models.transport.faults import error_from_status, excerpt

# --- States and errors of Google's batch interfaces

# Any other state is of a running job.
_STATES: Mapping[str, batch_api.BatchState] = {
    "SUCCEEDED": "ended",
    "PARTIALLY_SUCCEEDED": "expired",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "EXPIRED": "expired",
}


# `google.rpc.Code.CANCELLED`.
_CANCELLED = 1
# google.rpc.Code, and the HTTP status of the same error in live replies.
_CODES: Mapping[int, tuple[str, int]] = {
    2: ("UNKNOWN", 500),
    3: ("INVALID_ARGUMENT", 400),
    4: ("DEADLINE_EXCEEDED", 504),
    5: ("NOT_FOUND", 404),
    6: ("ALREADY_EXISTS", 409),
    7: ("PERMISSION_DENIED", 403),
    8: ("RESOURCE_EXHAUSTED", 429),
    9: ("FAILED_PRECONDITION", 400),
    10: ("ABORTED", 409),
    11: ("OUT_OF_RANGE", 400),
    12: ("UNIMPLEMENTED", 501),
    13: ("INTERNAL", 500),
    14: ("UNAVAILABLE", 503),
    15: ("DATA_LOSS", 500),
    16: ("UNAUTHENTICATED", 401),
}


class GoogleError(msgspec.Struct, frozen=True):
    """A google.rpc.Status; ``code`` is a google.rpc.Code or an HTTP status."""

    code: int = 2
    message: str = ""
    details: list[msgspec.Raw] | None = None


def map_state(word: str) -> batch_api.BatchState:
    """Map ``JOB_STATE_…`` or ``BATCH_STATE_…`` to a state."""
    return _STATES.get(word.partition("_STATE_")[2], "running")


def make_job_error(error: GoogleError, redactor: Redactor) -> ModelError:
    """Make the error for why a job failed, redacted."""
    status, body = _encode_as_live(error)
    mapped: ModelError = error_from_status(status, b"", "", redactor)
    if isinstance(explain(status, body, redactor), AccessDenied):
        mapped = AccessDenied("")
    mapped.args = (excerpt(error.message, redactor) or "Google gave no reason",)
    mapped.status = None  # no reply had it
    return mapped


def make_failed_reply(custom_id: str, error: GoogleError) -> batch_api.BatchReply:
    """Make a failed request's reply, as if it had been sent live; a cancelled one was never processed."""
    if error.code == _CANCELLED:
        return batch_api.BatchReply(custom_id, None, msgspec.json.encode(error))
    return batch_api.BatchReply(custom_id, *_encode_as_live(error))


def _encode_as_live(error: GoogleError) -> tuple[int, bytes]:
    """Return the status and body of the same error in live replies."""
    name, status = _CODES.get(error.code, ("", error.code if 400 <= error.code < 600 else 500))
    reported = {"message": error.message, "status": name, "details": error.details or []}
    return status, msgspec.json.encode({"error": {"code": status, **reported}})


# Small, since jobs of other programs may be listed with all their answers.
_PAGE = 10


class _BatchStats(msgspec.Struct, rename="camel", frozen=True):
    """Counts of requests. JSON has 64-bit numbers as text; None: unknown."""

    request_count: str | int | None = 0
    successful_request_count: str | int | None = 0
    failed_request_count: str | int | None = 0


class _BatchOutput(msgspec.Struct, rename="camel", frozen=True):
    responses_file: str | None = None


class _BatchMetadata(msgspec.Struct, rename="camel", frozen=True):
    display_name: str = ""
    state: str = "BATCH_STATE_UNSPECIFIED"
    batch_stats: _BatchStats | None = None
    output: _BatchOutput | None = None


class _Operation(msgspec.Struct, frozen=True):
    """A batch, as a google.longrunning operation."""

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


class _GeminiResult(msgspec.Struct, frozen=True):
    key: str
    response: msgspec.Raw = msgspec.Raw()
    error: GoogleError | None = None


_read_result = make_decoder(_GeminiResult)


class GeminiBatches(batch_api.HttpBatches):
    """Batches of one model of the Gemini API."""

    limits = batch_api.BatchLimits(requests=1_000_000, bytes=2_000_000_000)
    """Google names no number of requests; the tokens that may wait for a model are the account's."""

    def line(self, custom_id: str, body: bytes) -> bytes:
        return b'{"key":"%b","request":%b}\n' % (custom_id.encode(), body)

    async def create(self, job: batch_api.BatchJob) -> str:
        with batch_api.raise_retryable_as_unmade():
            input_config = {"fileName": await self._upload(job)}
        needed = {"batch": {"displayName": job.name, "inputConfig": input_config}}
        path = generate_path(self._model).replace(":generateContent", ":batchGenerateContent")
        reply = await self._http.send("POST", path, msgspec.json.encode(needed))
        return decode_answer(reply.body, _Operation, "a batch").name

    async def find(self, job: batch_api.BatchJob) -> str | None:
        pages = self._http.read_pages(f"/batches?pageSize={_PAGE}", _OperationPage, "pageToken")
        async for page in pages:
            for batch in page.operations:
                if batch.metadata.display_name == job.name and batch.name not in job.others:
                    return batch.name
        return None

    async def check(self, job_id: str) -> batch_api.BatchProgress:
        batch = await self._read_batch(job_id)
        word, stats = batch.metadata.state, batch.metadata.batch_stats or _BatchStats(None, None, None)
        total, done, failed = map(_parse_count, msgspec.structs.astuple(stats))
        state = map_state(word)
        why = make_job_error(batch.error or GoogleError(), self._http.redactor) if state == "failed" else None
        return batch_api.BatchProgress(state, word, total, done, failed, why)

    async def list_results(self, job_id: str) -> list[str]:
        file = (await self._read_batch(job_id)).output.responses_file
        return [f"/{quote(file)}:download?alt=media"] if file else []

    @staticmethod
    def read_result(line: bytes) -> batch_api.BatchReply:
        reported = _read_result(line)
        if not reported.key:
            raise Unreadable("it names no request")
        if reported.error is not None:
            return make_failed_reply(reported.key, reported.error)
        answer = bytes(reported.response)
        if answer in (b"", b"null"):
            raise Unreadable("it holds neither an answer nor an error")
        return batch_api.BatchReply(reported.key, 200, answer)

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", f"/{quote(job_id)}:cancel", b"{}", repeatable=True)

    async def _read_batch(self, job_id: str) -> _Operation:
        return await self._http.read(f"/{quote(job_id)}", _Operation, "a batch")

    async def _upload(self, job: batch_api.BatchJob) -> str:
        """Upload a job's file to the URL that Google returns; return its name, valid for two days."""
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
        return decode_answer(reply.body, _Uploaded, "an uploaded file").file.name


def _parse_count(reported: str | int | None) -> int | None:
    try:
        return number if reported is not None and (number := int(reported)) >= 0 else None
    except ValueError:
        return None
