"""Mistral's batch API: a file of requests without a model is uploaded, and a job names it and the model.

Source: Mistral's API reference, its guide to batches and its own client, November 2026.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from coeval.core.errors import BadRequest
from coeval.core.foreign import decode
from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import (
    CLOCKS_APART_S,
    MOST_PAGES,
    PAGE,
    BatchJob,
    BatchLimits,
    BatchProgress,
    BatchReply,
    BatchState,
    DamagedResult,
    epoch_s,
    read_answer,
)
from coeval.models.batch.batch_http import BatchHttp
from coeval.models.batch.openai_files import TAG, BatchFiles, BatchPaths
from coeval.models.transport.faults import excerpt

_JOBS = "/batch/jobs"
_STATES: Mapping[str, BatchState] = {
    "QUEUED": "waiting",
    "RUNNING": "running",
    "CANCELLATION_REQUESTED": "running",
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
        state = _STATES.get(self.status, "running")
        return "expired" if state == "failed" and self.output_file else state


class _MistralJobs(msgspec.Struct, frozen=True):
    data: list[_MistralJob] = []


class MistralBatches:
    """Batches of chat completions in one workspace, which has a million requests pending at most."""

    limits = BatchLimits(requests=1_000_000, bytes=500_000_000)
    request_url = "/v1/chat/completions"

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        self._http = http
        self._files = BatchFiles(http, BatchPaths())
        self._model = spec.model

    def line(self, custom_id: str, body: bytes) -> bytes:
        """The job has the model, its requests have none."""
        requested = decode(body, dict[str, msgspec.Raw])
        requested.pop("model", None)
        return b'{"custom_id":"%s","body":%s}\n' % (custom_id.encode(), msgspec.json.encode(requested))

    async def create(self, job: BatchJob) -> str:
        needed = {
            "input_files": [await self._files.upload(job.lines)],
            "endpoint": self.request_url,
            "model": self._model,
            "metadata": {TAG: job.tag},
            "timeout_hours": 24,
        }
        body = await self._http.call("POST", _JOBS, msgspec.json.encode(needed))
        return read_answer(body, _MistralJob, "a batch job").id

    async def find(self, job: BatchJob) -> str | None:
        """By the tag, among all jobs of the workspace since it was written down: they are listed with their
        metadata, the latest first."""
        since = job.written_at - CLOCKS_APART_S
        for number in range(MOST_PAGES):
            path = f"{_JOBS}?page={number}&page_size={PAGE}&order_by=-created"
            page = read_answer(await self._http.call("GET", path), _MistralJobs, "a list of batch jobs").data
            for found in page:
                if (found.metadata or {}).get(TAG) == job.tag and found.id not in job.others:
                    return found.id
            made = epoch_s(page[-1].created_at) if page else None
            if len(page) < PAGE or (made is not None and made < since):
                return None
        return None

    async def check(self, job_id: str) -> BatchProgress:
        job = await self._job(job_id)
        total = job.total_requests
        error = None
        if job.state == "failed":
            why = "; ".join(trouble.message for trouble in job.errors) or "the host gives no reason"
            error = BadRequest(excerpt(why, self._http.redactor))
        return BatchProgress(
            job.state,
            job.status,
            total or None,
            job.succeeded_requests if total else None,
            job.failed_requests if total else None,
            error,
        )

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        job = await self._job(job_id)
        for file_id in (job.output_file, job.error_file):
            if file_id:
                async for reply in self._files.replies(file_id, into):
                    yield reply

    async def cancel(self, job_id: str) -> None:
        await self._http.call("POST", f"{_place(job_id)}/cancel", repeatable=True)

    async def _job(self, job_id: str) -> _MistralJob:
        return read_answer(await self._http.call("GET", _place(job_id)), _MistralJob, "a batch job")


def _place(job_id: str) -> str:
    return f"{_JOBS}/{quote(job_id, safe='')}"
