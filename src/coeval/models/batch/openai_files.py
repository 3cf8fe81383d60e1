"""Jobs made of files, at OpenAI, Azure OpenAI and Mistral: a file of requests is uploaded, a batch made of
it, and its results are files again.

Source: OpenAI's API reference (Files, Batch) and its guide to batches, November 2026. Hosts that copy it are
asked the same at their own base URL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import BadRequest, ModelError, RateLimited, ServerFault, Undecodable, Unreadable
from coeval.core.foreign import decode, make_decoder
from coeval.core.model import ModelSpec
from coeval.core.redaction import Redactor
from coeval.models.address import ConfiguredAddress, locate_azure_openai
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
    before_the_job,
    download_results,
    made_before,
)
from coeval.models.batch.batch_http import MOST_PAGES, BatchHttp, UploadForm, read_answer
from coeval.models.transport.faults import excerpt

# --- Files of a job
#
# The requests go up as one, the results come down as others, in OpenAI's form.

TAG: Final = "coeval_tag"
"""The entry of a batch's metadata that holds our tag."""

_STATUS_OF_CODE: Mapping[str | None, int | None] = {
    "batch_expired": None,
    "batch_cancelled": None,
    "request_timeout": 504,
}
_NOT_READY = frozenset({"pending", "uploading", "running"})
_UNUSABLE = frozenset({"error", "failed", "deleted"})
# With pauses that double up to ten seconds, a file may take some nine minutes to be ready.
_LOOKS: Final = 60
# Small beside a batch's hours, and no burden on the host.
_LONGEST_PAUSE_S: Final = 10.0


class BatchPaths(NamedTuple):
    """Where an interface stands below a base URL: what comes before each path, and what each query has."""

    before: str = ""
    query: str = ""

    def to(self, path: str, query: str = "") -> str:
        """The path to ask at; it and ``query`` are quoted already."""
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


class FileBatches:
    """What the jobs of an account have in common that are made of files; ``jobs`` is where they are below the
    base URL."""

    request_url = "/v1/chat/completions"
    """What lines and jobs name as the API that is asked, wherever the base URL leads to."""
    jobs = "/batches"

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:
        self._http = http
        self._model = spec.model
        self._paths = self.paths(spec, settings)

    def paths(self, spec: ModelSpec, settings: Mapping[str, str]) -> BatchPaths:  # noqa: ARG002
        """Where files and jobs are, below the base URL."""
        return BatchPaths()

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", self._place(job_id, "/cancel"), b"{}", repeatable=True)

    def _place(self, job_id: str, below: str = "") -> str:
        return self._paths.to(f"{self.jobs}/{quote(job_id, safe='')}{below}")

    async def _upload(self, lines: Path) -> str:
        """The id of a file of requests, once the host can make a job of it.

        A file that is uploaded and not used costs nothing: it may be sent twice.
        """
        form = UploadForm({"purpose": "batch"}, lines)
        reply = await self._http.send("POST", self._paths.to("/files"), form, repeatable=True)
        file = read_answer(reply.body, UploadedFile, "an uploaded file")
        pause_s = 0.5
        for _ in range(_LOOKS):
            state = (file.status or "").lower()
            if state in _UNUSABLE:
                raise BadRequest(f"the host cannot use the file of requests {file.id}: its status is {state}")
            if state not in _NOT_READY:
                return file.id
            await self._http.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            file = await self._about(file.id)
        raise ServerFault(f"the host has not read the file of requests {file.id} yet; its status is {state}")

    async def _about(self, file_id: str) -> UploadedFile:
        """What the host says of a file."""
        return await self._http.read(self._file(file_id), UploadedFile, "a file")

    async def _replies(self, into: Path, *file_ids: str | None) -> AsyncIterator[BatchReply | DamagedResult]:
        """The lines of the files of results and of errors that there are; ``into`` is the folder that they
        are put in."""
        for file_id in filter(None, file_ids):
            async for reply in download_results(
                self._http, self._file(file_id, "/content"), into, read_result
            ):
                yield reply

    def _file(self, file_id: str, below: str = "") -> str:
        return self._paths.to(f"/files/{quote(file_id, safe='')}{below}")


def read_result(line: bytes) -> BatchReply:
    """Read a line of a file of results or of errors, as OpenAI writes both."""
    result = _read_result(line)
    if result.response is not None:
        return BatchReply(result.custom_id, result.response.status_code, bytes(result.response.body))
    if bytes(result.error) == b"null":
        raise Unreadable("it holds neither an answer nor an error")
    return BatchReply(result.custom_id, _status(result.error), b'{"error":%s}' % bytes(result.error))


def _status(error: msgspec.Raw) -> int | None:
    """The status that an error without an answer would have had live; None where nothing was asked."""
    try:
        return _STATUS_OF_CODE.get(decode(error, _Unanswered).code, UNKNOWN_ERROR)
    except Undecodable:
        return UNKNOWN_ERROR


# --- OpenAI's jobs

# Every other word is of a job that goes on.
_STATES: Mapping[str, BatchState] = {
    "completed": "ended",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
# Codes of a batch that was refused for what else is under way.
_NOT_NOW = ("token_limit_exceeded", "rate_limit_exceeded", "batch_limit_exceeded")


class _JobCounts(msgspec.Struct, frozen=True):
    """Azure tells none, by null, of a job that is being looked at."""

    total: int | None = None
    completed: int | None = None
    failed: int | None = None


class _Trouble(msgspec.Struct, frozen=True):
    code: str | None = None
    message: str | None = None
    line: int | None = None


class _Troubles(msgspec.Struct, frozen=True):
    data: list[_Trouble] | None = None


class _Batch(msgspec.Struct, frozen=True):
    id: str
    status: str
    created_at: float | str | None = None
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: dict[str, Any] | None = None
    request_counts: _JobCounts | None = None
    errors: _Troubles | None = None


class _BatchPage(msgspec.Struct, frozen=True):
    data: list[_Batch]
    has_more: bool = False

    @property
    def next(self) -> str | None:
        return self.data[-1].id if self.has_more and self.data else None


class _RefusedBatch(msgspec.Struct, frozen=True):
    error: _Trouble


class OpenAiBatches(FileBatches):
    """Batches of chat completions at one OpenAI-shaped host."""

    limits = BatchLimits(requests=50_000, bytes=200_000_000)

    def line(self, custom_id: str, body: bytes) -> bytes:
        head = f'{{"custom_id":"{custom_id}","method":"POST","url":"{self.request_url}","body":'
        return b"%b%b}\n" % (head.encode(), body)

    async def create(self, job: BatchJob) -> str:
        with before_the_job():
            file_id = await self._upload(job.lines)
        needed = {
            "input_file_id": file_id,
            "endpoint": self.request_url,
            "completion_window": "24h",
            "metadata": {TAG: job.tag},
        }
        path = self._paths.to(self.jobs)
        reply = await self._http.send("POST", path, msgspec.json.encode(needed), is_busy=_is_busy)
        return read_answer(reply.body, _Batch, "a batch").id

    async def find(self, job: BatchJob) -> str | None:
        """By the tag; where a host keeps no metadata, by the name of the file that the batch was made of."""
        since = job.written_at - CLOCKS_APART_S
        path = self._paths.to(self.jobs, f"limit={PAGE}")
        async for page in self._http.pages(path, _BatchPage, "after"):
            for batch in page.data:
                if await self._is_of(batch, job, since):
                    return batch.id
            if page.data and made_before(page.data[-1].created_at, since):
                return None
        return None

    async def check(self, job_id: str) -> BatchProgress:
        batch = await self._batch(job_id)
        counts = batch.request_counts or _JobCounts()
        state = _STATES.get(batch.status.lower(), "running")  # "Failed" at Azure
        error = _refusal(batch, self._http.redactor) if state == "failed" else None
        return _progress(state, batch.status, counts, error)

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        batch = await self._batch(job_id)
        async for reply in self._replies(into, batch.output_file_id, batch.error_file_id):
            yield reply

    async def _batch(self, job_id: str) -> _Batch:
        return await self._http.read(self._place(job_id), _Batch, "a batch")

    async def _is_of(self, batch: _Batch, job: BatchJob, since: float) -> bool:
        if batch.id in job.others:
            return False
        if batch.metadata:
            return batch.metadata.get(TAG) == job.tag
        if batch.input_file_id is None or made_before(batch.created_at, since):
            return False
        return (await self._about(batch.input_file_id)).filename == job.lines.name


def _progress(state: BatchState, shown: str, counts: _JobCounts, error: ModelError | None) -> BatchProgress:
    """Counts are told once the host has looked at the file."""
    if not counts.total:
        return BatchProgress(state, shown, error=error)
    return BatchProgress(state, shown, counts.total, counts.completed, counts.failed, error)


def _refusal(batch: _Batch, redactor: Redactor) -> ModelError:
    """Why a batch failed: the first of its errors."""
    troubles = batch.errors.data if batch.errors is not None and batch.errors.data else []
    if not troubles:
        return BadRequest("the host gives no reason")
    first = troubles[0]
    where = f"line {first.line}: " if first.line is not None else ""
    message = excerpt(f"{where}{first.message or first.code or 'the host gives no reason'}", redactor)
    return RateLimited(message) if first.code in _NOT_NOW else BadRequest(message)


def _is_busy(refusal: bytes) -> bool:
    """Whether a batch was refused for what else is under way, and may be taken later: Azure's word is 400."""
    try:
        code = decode(refusal, _RefusedBatch).error.code
    except Undecodable:
        return False
    return code in _NOT_NOW


# --- Azure OpenAI's Batch API
#
# Source: Azure's guide and its REST reference, and OpenAI's own client for Azure, November 2026.


class AzureBatches(OpenAiBatches):
    """Batches of one deployment, whose name is the model of each line; it is of a kind for batches alone."""

    limits = BatchLimits(requests=100_000, bytes=200_000_000, batches_only=True)
    request_url = "/chat/completions"

    def paths(self, spec: ModelSpec, settings: Mapping[str, str]) -> BatchPaths:
        """Beside the deployments at a dated version of the API, at the base URL itself at the undated one."""
        url = spec.base_url if spec.base_url is not None else settings["endpoint"]
        path, _, query = locate_azure_openai(ConfiguredAddress(url, settings, spec.model)).path.partition("?")
        return BatchPaths("/openai" if path.startswith("/openai/") else "", query)


# --- Mistral's batch API: a job names a file of requests without a model, and the model
#
# Source: Mistral's API reference, its guide to batches and its own client, November 2026.

_MISTRAL_STATES: Mapping[str, BatchState] = {
    "SUCCESS": "ended",
    "FAILED": "failed",
    "TIMEOUT_EXCEEDED": "expired",
    "CANCELLED": "cancelled",
}


class _JobTrouble(msgspec.Struct, frozen=True):
    message: str
    count: int = 1


class _MistralJob(msgspec.Struct, frozen=True):
    """``total_requests`` is 0 until the host has looked at the file."""

    id: str
    status: str
    created_at: float | str | None = None
    metadata: dict[str, Any] | None = None
    output_file: str | None = None
    error_file: str | None = None
    errors: list[_JobTrouble] = []
    total_requests: int = 0
    succeeded_requests: int = 0
    failed_requests: int = 0

    @property
    def state(self) -> BatchState:
        """One that failed on the way has results, and they are paid; the rest was never carried out."""
        state = _MISTRAL_STATES.get(self.status, "running")
        return "expired" if state == "failed" and self.output_file else state


class _MistralJobs(msgspec.Struct, frozen=True):
    data: list[_MistralJob] = []


class MistralBatches(FileBatches):
    """Batches of chat completions in one workspace, which has a million requests pending at most."""

    limits = BatchLimits(requests=1_000_000, bytes=500_000_000)
    jobs = "/batch/jobs"

    def line(self, custom_id: str, body: bytes) -> bytes:
        """The job has the model, its requests have none."""
        requested = decode(body, dict[str, msgspec.Raw])
        requested.pop("model", None)
        return b'{"custom_id":"%s","body":%s}\n' % (custom_id.encode(), msgspec.json.encode(requested))

    async def create(self, job: BatchJob) -> str:
        with before_the_job():
            file_id = await self._upload(job.lines)
        needed = {
            "input_files": [file_id],
            "endpoint": self.request_url,
            "model": self._model,
            "metadata": {TAG: job.tag},
            "timeout_hours": 24,
        }
        reply = await self._http.send("POST", self.jobs, msgspec.json.encode(needed))
        return read_answer(reply.body, _MistralJob, "a batch job").id

    async def find(self, job: BatchJob) -> str | None:
        """By the tag, among all jobs of the workspace since it was written down: they are listed with their
        metadata, the latest first."""
        since = job.written_at - CLOCKS_APART_S
        for number in range(MOST_PAGES):
            path = f"{self.jobs}?page={number}&page_size={PAGE}&order_by=-created"
            page = (await self._http.read(path, _MistralJobs, "a list of batch jobs")).data
            for found in page:
                if (found.metadata or {}).get(TAG) == job.tag and found.id not in job.others:
                    return found.id
            if len(page) < PAGE or made_before(page[-1].created_at, since):
                return None
        return None

    async def check(self, job_id: str) -> BatchProgress:
        job = await self._job(job_id)
        error = None
        if job.state == "failed":
            why = "; ".join(trouble.message for trouble in job.errors) or "the host gives no reason"
            error = BadRequest(excerpt(why, self._http.redactor))
        counts = _JobCounts(job.total_requests, job.succeeded_requests, job.failed_requests)
        return _progress(job.state, job.status, counts, error)

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        job = await self._job(job_id)
        async for reply in self._replies(into, job.output_file, job.error_file):
            yield reply

    async def _job(self, job_id: str) -> _MistralJob:
        return await self._http.read(self._place(job_id), _MistralJob, "a batch job")
