"""Vertex AI's batch prediction with Gemini's models: requests and answers are objects in Cloud Storage.

Source: Google's reference of ``projects.locations.batchPredictionJobs`` and its guide to batch inference from
Cloud Storage, November 2026, and what `google-genai` sends. A line has no place for an id of ours; its
request comes back with its answer, so the id travels as a label of the request.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from coeval.core.errors import Unreadable, UsageError
from coeval.core.foreign import decode, decoder
from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import (
    PAGE,
    BatchJob,
    BatchLimits,
    BatchProgress,
    BatchReply,
    DamagedResult,
    answered_reply,
    readable,
    result_lines,
)
from coeval.models.batch.batch_http import MOST_OBJECT_PAGES, BatchHttp, read_answer
from coeval.models.batch.gemini_batches import (
    GoogleError,
    failed_reply,
    int64,
    line_status,
    progress_of,
)
from coeval.models.places import vertex_name
from coeval.models.transport.network import redirected_by

# --- Google Cloud Storage objects, by the JSON API

EMULATOR: Final = "STORAGE_EMULATOR_HOST"
"""The variable by which Google's own clients are led to another address."""
_URL = "https://storage.googleapis.com"
_BUCKET = re.compile(r"(?:gs://)?([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])((?:/[\w.-]+)*)/?", re.ASCII)


class _StoredObject(msgspec.Struct, frozen=True):
    name: str


class _ObjectPage(msgspec.Struct, rename="camel", frozen=True):
    items: list[_StoredObject] = []
    next: str | None = msgspec.field(default=None, name="nextPageToken")


class CloudStorage:
    """One bucket, or a folder in it: ``place`` is ``bucket``, ``bucket/folder`` or ``gs://bucket/folder``.

    It is asked as whoever asks at ``http``. Names of objects are those below the folder.

    Raises UsageError: that is no bucket, or the address in the environment is none.
    """

    def __init__(self, http: BatchHttp, place: str) -> None:
        found = _BUCKET.fullmatch(place.strip())
        if found is None:
            raise UsageError(
                f"batch_gcs_bucket: `{place}` is no bucket of Cloud Storage; it reads like my-bucket, or "
                "my-bucket/folder."
            )
        self._bucket = found[1]
        self._above = found[2].removeprefix("/") + "/" if found[2] else ""
        self._http = http.at(redirected_by(EMULATOR, scheme="http") or _URL, http.signer)

    def uri(self, name: str) -> str:
        return f"gs://{self._bucket}/{self._above}{name}"

    async def put(self, name: str, file: Path, size: int) -> None:
        """Store a file of ``size`` bytes: an address for it is asked for, and the file sent there. What has
        arrived there is passed over if it is sent again."""
        path = f"/upload/storage/v1/b/{self._bucket}/o?uploadType=resumable&name={self._quoted(name)}"
        headers = {"X-Upload-Content-Length": str(size), "X-Upload-Content-Type": "application/jsonl"}
        started = await self._http.send("POST", path, b"{}", headers=headers, repeatable=True)
        session = started.headers.get("location")
        if not session:
            raise Unreadable("Cloud Storage takes an object, and names no address for it")
        await self._http.send("PUT", session, file)

    async def uris(self, uri: str) -> list[str]:
        """The objects whose URI begins so."""
        path = f"/storage/v1/b/{self._bucket}/o?prefix={quote(self._name(uri), safe='')}"
        pages = self._http.pages(path, _ObjectPage, "pageToken", most=MOST_OBJECT_PAGES)
        return [f"gs://{self._bucket}/{each.name}" async for page in pages for each in page.items]

    async def get(self, uri: str, into: Path) -> None:
        path = f"/storage/v1/b/{self._bucket}/o/{quote(self._name(uri), safe='')}?alt=media"
        await self._http.download(path, into)

    def _name(self, uri: str) -> str:
        """The name of an object of this bucket."""
        before = f"gs://{self._bucket}/"
        if not uri.startswith(before):
            raise Unreadable(f"the results are said to be at {uri[:200]}, which is not in {self._bucket}")
        return uri.removeprefix(before)

    def _quoted(self, name: str) -> str:
        return quote(self._above + name, safe="")


LABEL: Final = "coeval_id"
"""The label of a request that holds its custom id."""
_OF_GOOGLE = "publishers/google/models/"


class _CompletionStats(msgspec.Struct, rename="camel", frozen=True):
    """JSON has texts for 64-bit numbers; -1 is not known."""

    successful_count: str | int = 0
    failed_count: str | int = 0
    incomplete_count: str | int = 0

    @property
    def counts(self) -> tuple[int | None, int | None, int | None]:
        done, failed = int64(self.successful_count), int64(self.failed_count)
        counts = (done, failed, int64(self.incomplete_count))
        known = [each for each in counts if each is not None]
        return sum(known) if len(known) == len(counts) else None, done, failed


class _OutputInfo(msgspec.Struct, rename="camel", frozen=True):
    gcs_output_directory: str = ""


class _GcsDestination(msgspec.Struct, rename="camel", frozen=True):
    output_uri_prefix: str = ""


class _OutputConfig(msgspec.Struct, rename="camel", frozen=True):
    gcs_destination: _GcsDestination = _GcsDestination()


class _PredictionJob(msgspec.Struct, rename="camel", frozen=True):
    name: str
    display_name: str = ""
    state: str = "JOB_STATE_UNSPECIFIED"
    error: GoogleError | None = None
    completion_stats: _CompletionStats | None = None
    output_config: _OutputConfig = _OutputConfig()
    output_info: _OutputInfo | None = None

    @property
    def output_folder(self) -> str:
        """Where its answers are; nobody else writes there."""
        found = self.output_info.gcs_output_directory if self.output_info is not None else ""
        return (found or self.output_config.gcs_destination.output_uri_prefix).rstrip("/")


class _PredictionJobPage(msgspec.Struct, rename="camel", frozen=True):
    batch_prediction_jobs: list[_PredictionJob] = []
    next: str | None = msgspec.field(default=None, name="nextPageToken")


class _LabelledRequest(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None


class _PredictionLine(msgspec.Struct, frozen=True):
    request: _LabelledRequest
    response: msgspec.Raw = msgspec.Raw()
    status: str | None = None


_read_line = decoder(_PredictionLine)


class VertexBatches:
    """Batches of one of Gemini's models in a project and a location."""

    limits = BatchLimits(requests=200_000, bytes=1_000_000_000)

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:
        name = vertex_name(settings, spec.model)
        project, location, below = name.split("/")[1], name.split("/")[3], "/".join(name.split("/")[4:])
        if below.startswith("models/"):
            self._model = name
        elif below.startswith(_OF_GOOGLE):
            self._model = below
        else:
            raise UsageError(
                f"model {spec.name}: Vertex AI does no batches of {below} that are asked as Gemini is; leave "
                "its batch out (batch_enabled: false), or name Google's model, or the tuned one as "
                "projects/…/locations/…/models/…"
            )
        self._http = http
        self._jobs = f"/projects/{project}/locations/{location}/batchPredictionJobs"
        self._storage = CloudStorage(http, settings["batch_gcs_bucket"])

    def line(self, custom_id: str, body: bytes) -> bytes:
        request: dict[str, Any] = decode(body, dict[str, msgspec.Raw])
        labels = decode(request["labels"], dict[str, str]) if "labels" in request else {}
        request["labels"] = labels | {LABEL: custom_id}
        return msgspec.json.encode({"request": request}) + b"\n"

    async def create(self, job: BatchJob) -> str:
        folder = f"coeval/{job.tag}"
        requests = f"{folder}/requests.jsonl"
        await self._storage.put(requests, job.lines, job.bytes)
        needed = {
            "displayName": job.name,
            "model": self._model,
            "inputConfig": {
                "instancesFormat": "jsonl",
                "gcsSource": {"uris": [self._storage.uri(requests)]},
            },
            "outputConfig": {
                "predictionsFormat": "jsonl",
                "gcsDestination": {"outputUriPrefix": self._storage.uri(f"{folder}/results")},
            },
        }
        reply = await self._http.send("POST", self._jobs, msgspec.json.encode(needed))
        return read_answer(reply.body, _PredictionJob, "a batch prediction job").name

    async def find(self, job: BatchJob) -> str | None:
        """By the name, which is made of the tag."""
        only = quote(f'display_name="{job.name}"', safe="")
        path = f"{self._jobs}?pageSize={PAGE}&filter={only}"
        async for page in self._http.pages(path, _PredictionJobPage, "pageToken"):
            for found in page.batch_prediction_jobs:
                if found.display_name == job.name and found.name not in job.others:
                    return found.name
        return None

    async def check(self, job_id: str) -> BatchProgress:
        job = await self._job(job_id)
        counts = job.completion_stats.counts if job.completion_stats is not None else (None, None, None)
        return progress_of(job.state, counts, job.error, self._http.redactor)

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        job, seen = await self._job(job_id), set[str]()
        for uri in _of_results(await self._storage.uris(f"{job.output_folder}/")):
            results = into / "results.jsonl"
            await self._storage.get(uri, results)
            for reply in readable(result_lines(results), _reply):
                if isinstance(reply, DamagedResult):
                    yield reply
                elif reply.custom_id not in seen:
                    seen.add(reply.custom_id)
                    yield reply

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", f"/{quote(job_id)}:cancel", b"{}", repeatable=True)

    async def _job(self, job_id: str) -> _PredictionJob:
        return await self._http.read(f"/{quote(job_id)}", _PredictionJob, "a batch prediction job")


def _of_results(uris: list[str]) -> list[str]:
    """Those that hold answers, that which holds all of them first: what is written while a job runs may stay
    beside it."""
    lines = [uri for uri in uris if uri.endswith(".jsonl")]
    return sorted(lines, key=lambda uri: not uri.endswith("/predictions.jsonl"))


def _reply(line: bytes) -> BatchReply:
    reported = _read_line(line)
    custom_id = (reported.request.labels or {}).get(LABEL)
    if custom_id is None:
        raise Unreadable(f"it does not say by the label {LABEL} whose it is")
    if reported.status:
        return failed_reply(custom_id, line_status(reported.status))
    return answered_reply(custom_id, reported.response)
