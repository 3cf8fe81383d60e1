"""Batch jobs made of files, at OpenAI, Azure OpenAI and Mistral: requests are uploaded as a file, and results
are files again.

Source: OpenAI's API reference (Files, Batch) and its guide to batches, November 2026. Hosts that copy it
are called the same way at their own base URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import BadRequest, ModelError, RateLimited, ServerFault, Undecodable, Unreadable
from coeval.core.foreign import decode, make_decoder
from coeval.core.model import ModelSpec
from coeval.core.redaction import Redactor
from coeval.models.address import ConfiguredAddress, locate_azure_openai
from coeval.models.batch import batch_api
from coeval.models.batch.batch_http import MOST_PAGES, BatchHttp, UploadForm, decode_answer
from coeval.models.transport.faults import excerpt

TAG: Final = "coeval_tag"
"""The entry of a batch's metadata that holds our tag."""

_STATUS_OF_CODE: Mapping[str | None, int | None] = {
    "batch_expired": None,
    "batch_cancelled": None,
    "request_timeout": 504,
}
_NOT_READY = frozenset({"pending", "uploading", "running"})
_UNUSABLE = frozenset({"error", "failed", "deleted"})
# With pauses that double up to ten seconds, these take some nine minutes.
_CHECKS: Final = 60
# Short beside a batch's hours, and no load on the host.
_LONGEST_PAUSE_S: Final = 10.0


class BatchPaths(NamedTuple):
    """Paths of an interface below a base URL: a prefix of each path, and the query of each."""

    before: str = ""
    query: str = ""

    def make_path(self, path: str, query: str = "") -> str:
        """Make a path; it and ``query`` are quoted already."""
        whole = "&".join(part for part in (self.query, query) if part)
        return f"{self.before}{path}" + (f"?{whole}" if whole else "")


class UploadedFile(msgspec.Struct, frozen=True):
    id: str
    filename: str = ""
    status: str | None = None


class _Response(msgspec.Struct, frozen=True):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Result(msgspec.Struct, frozen=True):
    custom_id: str
    response: _Response | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Unanswered(msgspec.Struct, frozen=True):
    code: str | None = None


_read_result = make_decoder(_Result)


class FileBatches(batch_api.HttpBatches):
    """What jobs made of files share; ``jobs`` is their path below the base URL."""

    request_url = "/v1/chat/completions"
    """The API that lines and jobs name, whatever the base URL is."""
    jobs = "/batches"

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:
        super().__init__(http, spec, settings)
        self._paths = self.paths(spec, settings)

    def paths(self, spec: ModelSpec, settings: Mapping[str, str]) -> BatchPaths:  # noqa: ARG002
        """Return the paths of files and jobs below the base URL."""
        return BatchPaths()

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", self._job_path(job_id, "/cancel"), b"{}", repeatable=True)

    def _job_path(self, job_id: str, below: str = "") -> str:
        return self._paths.make_path(f"{self.jobs}/{quote(job_id, safe='')}{below}")

    async def _upload_and_await_ready(self, lines: Path) -> str:
        """Upload a file of requests; return its id once the host can make a job of it. An uploaded file that
        is not used costs nothing: it may be sent twice."""
        form = UploadForm({"purpose": "batch"}, lines)
        reply = await self._http.send("POST", self._paths.make_path("/files"), form, repeatable=True)
        file = decode_answer(reply.body, UploadedFile, "an uploaded file")
        pause_s = 0.5
        for _ in range(_CHECKS):
            state = (file.status or "").lower()
            if state in _UNUSABLE:
                raise BadRequest(f"the host cannot use the file of requests {file.id}: its status is {state}")
            if state not in _NOT_READY:
                return file.id
            await self._http.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            file = await self._read_file_info(file.id)
        raise ServerFault(f"the host has not read the file of requests {file.id} yet; its status is {state}")

    async def _read_file_info(self, file_id: str) -> UploadedFile:
        return await self._http.read(self._file_path(file_id), UploadedFile, "a file")

    def _content_paths(self, *file_ids: str | None) -> list[str]:
        return [self._file_path(file_id, "/content") for file_id in file_ids if file_id]

    def _file_path(self, file_id: str, below: str = "") -> str:
        return self._paths.make_path(f"/files/{quote(file_id, safe='')}{below}")

    @staticmethod
    def read_result(line: bytes) -> batch_api.BatchReply:
        """Read a line of a file of results or of errors, as OpenAI writes both."""
        result = _read_result(line)
        if result.response is not None:
            return batch_api.BatchReply(
                result.custom_id, result.response.status_code, bytes(result.response.body)
            )
        error = bytes(result.error)
        if error == b"null":
            raise Unreadable("it holds neither an answer nor an error")
        return batch_api.BatchReply(result.custom_id, _read_live_status(error), b'{"error":%s}' % error)


def _read_live_status(error: bytes) -> int | None:
    """Return the status that an error would have live; None if the request was never processed."""
    try:
        return _STATUS_OF_CODE.get(decode(error, _Unanswered).code, batch_api.UNKNOWN_ERROR)
    except Undecodable:
        return batch_api.UNKNOWN_ERROR


# --- OpenAI's jobs

# Any other status is of a running job.
_STATES: Mapping[str, batch_api.BatchState] = {
    "completed": "ended",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
# Codes of a batch refused because too much else is running.
_NOT_NOW = ("token_limit_exceeded", "rate_limit_exceeded", "batch_limit_exceeded")


class _JobCounts(msgspec.Struct, frozen=True):
    """Counts of requests. Azure sends null while it validates a job."""

    total: int | None = None
    completed: int | None = None
    failed: int | None = None


class _JobError(msgspec.Struct, frozen=True):
    code: str | None = None
    message: str | None = None
    line: int | None = None


class _JobErrors(msgspec.Struct, frozen=True):
    data: list[_JobError] | None = None


class _Batch(msgspec.Struct, frozen=True):
    id: str
    status: str
    created_at: float | str | None = None
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: dict[str, Any] | None = None
    request_counts: _JobCounts | None = None
    errors: _JobErrors | None = None


class _BatchPage(msgspec.Struct, frozen=True):
    data: list[_Batch]
    has_more: bool = False

    @property
    def next(self) -> str | None:
        return self.data[-1].id if self.has_more and self.data else None


class _RefusedBatch(msgspec.Struct, frozen=True):
    error: _JobError


class OpenAiBatches(FileBatches):
    """Batches of chat completions at one OpenAI-like host."""

    limits = batch_api.BatchLimits(requests=50_000, bytes=200_000_000)

    def line(self, custom_id: str, body: bytes) -> bytes:
        head = f'{{"custom_id":"{custom_id}","method":"POST","url":"{self.request_url}","body":'
        return b"%b%b}\n" % (head.encode(), body)

    async def create(self, job: batch_api.BatchJob) -> str:
        with batch_api.raise_retryable_as_unmade():
            file_id = await self._upload_and_await_ready(job.lines)
        needed = {
            "input_file_id": file_id,
            "endpoint": self.request_url,
            "completion_window": "24h",
            "metadata": {TAG: job.tag},
        }
        path = self._paths.make_path(self.jobs)
        reply = await self._http.send("POST", path, msgspec.json.encode(needed), is_busy=_is_busy)
        return decode_answer(reply.body, _Batch, "a batch").id

    async def find(self, job: batch_api.BatchJob) -> str | None:
        """Find a batch by its tag, or at hosts without metadata by the name of its file."""
        since = job.written_at - batch_api.CLOCKS_APART_S
        path = self._paths.make_path(self.jobs, f"limit={batch_api.PAGE}")
        async for page in self._http.read_pages(path, _BatchPage, "after"):
            for batch in page.data:
                if await self._is_batch_of_job(batch, job, since):
                    return batch.id
            if page.data and batch_api.is_made_before(page.data[-1].created_at, since):
                return None
        return None

    async def check(self, job_id: str) -> batch_api.BatchProgress:
        batch = await self._read_batch(job_id)
        counts = batch.request_counts or _JobCounts()
        state = _STATES.get(batch.status.lower(), "running")  # "Failed" at Azure
        error = _make_failed_batch_error(batch, self._http.redactor) if state == "failed" else None
        return _make_progress(state, batch.status, counts, error)

    async def list_results(self, job_id: str) -> list[str]:
        batch = await self._read_batch(job_id)
        return self._content_paths(batch.output_file_id, batch.error_file_id)

    async def _read_batch(self, job_id: str) -> _Batch:
        return await self._http.read(self._job_path(job_id), _Batch, "a batch")

    async def _is_batch_of_job(self, batch: _Batch, job: batch_api.BatchJob, since: float) -> bool:
        if batch.id in job.others:
            return False
        if batch.metadata:
            return batch.metadata.get(TAG) == job.tag
        if batch.input_file_id is None or batch_api.is_made_before(batch.created_at, since):
            return False
        return (await self._read_file_info(batch.input_file_id)).filename == job.lines.name


def _make_progress(
    state: batch_api.BatchState, shown: str, counts: _JobCounts, error: ModelError | None
) -> batch_api.BatchProgress:
    """Make the progress of a batch; counts are valid once the host has read the file."""
    if not counts.total:
        return batch_api.BatchProgress(state, shown, error=error)
    return batch_api.BatchProgress(state, shown, counts.total, counts.completed, counts.failed, error)


def _make_failed_batch_error(batch: _Batch, redactor: Redactor) -> ModelError:
    if batch.errors is None or not batch.errors.data:
        return BadRequest("the host gave no reason")
    first = batch.errors.data[0]
    where = f"line {first.line}: " if first.line is not None else ""
    message = excerpt(f"{where}{first.message or first.code or 'the host gave no reason'}", redactor)
    return RateLimited(message) if first.code in _NOT_NOW else BadRequest(message)


def _is_busy(refusal: bytes) -> bool:
    """Check whether a batch was refused because too much else is running; Azure says so by a 400."""
    try:
        code = decode(refusal, _RefusedBatch).error.code
    except Undecodable:
        return False
    return code in _NOT_NOW


# --- Azure OpenAI's Batch API. Source: its guide, REST reference and OpenAI's client for it, November 2026.


class AzureBatches(OpenAiBatches):
    """Batches of one deployment, which each line names as its model; such deployments serve only batches."""

    limits = batch_api.BatchLimits(requests=100_000, bytes=200_000_000, batches_only=True)
    request_url = "/chat/completions"

    def paths(self, spec: ModelSpec, settings: Mapping[str, str]) -> BatchPaths:
        """Return the paths: beside the deployments for a dated API version, else at the base URL."""
        url = spec.base_url if spec.base_url is not None else settings["endpoint"]
        path, _, query = locate_azure_openai(ConfiguredAddress(url, settings, spec.model)).path.partition("?")
        return BatchPaths("/openai" if path.startswith("/openai/") else "", query)


# --- Mistral's batch API. Source: its API reference, guide to batches and own client, November 2026.

_MISTRAL_STATES: Mapping[str, batch_api.BatchState] = {
    "SUCCESS": "ended",
    "FAILED": "failed",
    "TIMEOUT_EXCEEDED": "expired",
    "CANCELLED": "cancelled",
}


class _MistralError(msgspec.Struct, frozen=True):
    message: str
    count: int = 1


class _MistralJob(msgspec.Struct, frozen=True):
    """A job; ``total_requests`` is 0 until the host has read the file."""

    id: str
    status: str
    created_at: float | str | None = None
    metadata: dict[str, Any] | None = None
    output_file: str | None = None
    error_file: str | None = None
    errors: list[_MistralError] = []
    total_requests: int = 0
    succeeded_requests: int = 0
    failed_requests: int = 0

    @property
    def state(self) -> batch_api.BatchState:
        """Return the job's state. One that failed midway has paid results; the rest was not processed."""
        state = _MISTRAL_STATES.get(self.status, "running")
        return "expired" if state == "failed" and self.output_file else state


class _MistralJobs(msgspec.Struct, frozen=True):
    data: list[_MistralJob] = []


class MistralBatches(FileBatches):
    """Batches of chat completions in one workspace, with a million pending requests at most."""

    limits = batch_api.BatchLimits(requests=1_000_000, bytes=500_000_000)
    jobs = "/batch/jobs"

    def line(self, custom_id: str, body: bytes) -> bytes:
        """Encode a request without its model, which the job names."""
        requested = decode(body, dict[str, msgspec.Raw])
        requested.pop("model", None)
        return b'{"custom_id":"%s","body":%s}\n' % (custom_id.encode(), msgspec.json.encode(requested))

    async def create(self, job: batch_api.BatchJob) -> str:
        with batch_api.raise_retryable_as_unmade():
            file_id = await self._upload_and_await_ready(job.lines)
        needed = {
            "input_files": [file_id],
            "endpoint": self.request_url,
            "model": self._model,
            "metadata": {TAG: job.tag},
            "timeout_hours": 24,
        }
        reply = await self._http.send("POST", self.jobs, msgspec.json.encode(needed))
        return decode_answer(reply.body, _MistralJob, "a batch job").id

    async def find(self, job: batch_api.BatchJob) -> str | None:
        """Find a job by its tag, among the workspace's jobs since it was written, latest first."""
        since = job.written_at - batch_api.CLOCKS_APART_S
        for number in range(MOST_PAGES):
            path = f"{self.jobs}?page={number}&page_size={batch_api.PAGE}&order_by=-created"
            page = (await self._http.read(path, _MistralJobs, "a list of batch jobs")).data
            for batch in page:
                if (batch.metadata or {}).get(TAG) == job.tag and batch.id not in job.others:
                    return batch.id
            if len(page) < batch_api.PAGE or batch_api.is_made_before(page[-1].created_at, since):
                return None
        return None

    async def check(self, job_id: str) -> batch_api.BatchProgress:
        job = await self._read_job(job_id)
        error = None
        if job.state == "failed":
            why = "; ".join(problem.message for problem in job.errors) or "the host gave no reason"
            error = BadRequest(excerpt(why, self._http.redactor))
        counts = _JobCounts(job.total_requests, job.succeeded_requests, job.failed_requests)
        return _make_progress(job.state, job.status, counts, error)

    async def list_results(self, job_id: str) -> list[str]:
        job = await self._read_job(job_id)
        return self._content_paths(job.output_file, job.error_file)

    async def _read_job(self, job_id: str) -> _MistralJob:
        return await self._http.read(self._job_path(job_id), _MistralJob, "a batch job")
