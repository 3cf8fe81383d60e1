"""Vertex AI's batch prediction: jobs that read their requests from Cloud Storage and write there.

After Google's reference of `projects.locations.batchPredictionJobs` and its guide to batches of Gemini's, and
what `google-genai` sends and reads. A line of the output repeats the request as it was understood; what is no
part of a request is not repeated.

Cloud Storage's JSON API stands beside it, as far as batches use it; no official client of that is among the
tests' packages.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any, ClassVar
from urllib.parse import unquote

from aiohttp import web

from fakes.batch_jobs import BatchingHost, FakeJob
from fakes.gemini import Fault, misfit_of
from fakes.gemini_batches import RPC_CODES
from fakes.scripted import Behaviour, Refusal, serving
from fakes.vertex import VertexHost

_PAGE = 2
_PIECE = 256 << 10


@dataclass
class GoogleStorage:
    """``buckets`` are those that there are; ``objects`` by bucket and name. Of an upload, the first ``torn``
    bytes arrive when it is next sent, and the connection breaks. Lists come in pages of two."""

    knows: Callable[[web.Request], bool]
    url: Callable[[], str]
    buckets: set[str] = field(default_factory=lambda: {"results-4711"})
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    sessions: dict[str, tuple[str, str, bytes]] = field(default_factory=dict)
    torn: int | None = None
    most_bytes: int = 5 << 40
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/upload/storage/v1/b/{bucket}/o", self.start),
            web.put("/upload/storage/v1/b/{bucket}/o", self.send),
            web.get("/storage/v1/b/{bucket}/o", self.list),
            web.get("/storage/v1/b/{bucket}/o/{name:.+}", self.get),
        ]

    async def start(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if request.query.get("uploadType") != "resumable" or not request.query.get("name"):
            return _storage_error(400, "Bad Request: uploadType and name are required")
        if int(request.headers.get("X-Upload-Content-Length", 0)) > self.most_bytes:
            return _storage_error(413, "Your client issued a request that was too large.")
        bucket, name = request.match_info["bucket"], request.query["name"]
        session = f"s{next(self.numbers)}"
        self.sessions[session] = bucket, name, b""
        address = f"{self.url()}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={session}"
        return web.Response(headers={"Location": address})

    async def send(self, request: web.Request) -> web.Response:
        """All that is left of an object, or a piece of it. What is there already is passed over."""
        session = request.query.get("upload_id", "")
        if session not in self.sessions:
            return _storage_error(404, "No such upload.")
        bucket, name, held = self.sessions[session]
        if self.torn is not None:
            torn, self.torn = self.torn, None
            self.sessions[session] = bucket, name, await request.content.readexactly(torn)
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        content = await request.read()
        said = request.headers.get("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
        found = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", said)
        if found is None:
            return _storage_error(400, "Invalid Content-Range.")
        if found[1] is not None:
            first = int(found[1])
            if first > len(held) or int(found[2]) - first + 1 != len(content):
                return _storage_error(400, "The range does not follow what is there.")
            held = held[:first] + content
        if found[3] == "*" or len(held) < int(found[3]):
            if len(held) % _PIECE:
                return _storage_error(400, "A piece that is not the last is a multiple of 256 KiB.")
            self.sessions[session] = bucket, name, held
            return web.Response(status=308, headers={"Range": f"bytes=0-{len(held) - 1}"} if held else {})
        self.objects[bucket, name] = held
        del self.sessions[session]
        return web.json_response({"kind": "storage#object", "name": name, "size": str(len(held))})

    async def list(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        bucket, prefix = request.match_info["bucket"], request.query.get("prefix", "")
        names = sorted(name for place, name in self.objects if place == bucket and name.startswith(prefix))
        start = int(request.query.get("pageToken", 0))
        page: dict[str, object] = {"kind": "storage#objects"}
        if names:
            page["items"] = [
                {"name": name, "size": str(len(self.objects[bucket, name]))}
                for name in names[start : start + _PAGE]
            ]
        if start + _PAGE < len(names):
            page["nextPageToken"] = str(start + _PAGE)
        return web.json_response(page)

    async def get(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        raw = re.search(r"/o/([^/?]+)(\?|$)", request.raw_path)
        found = self.objects.get((request.match_info["bucket"], unquote(raw[1]))) if raw else None
        if found is None:
            return _storage_error(404, "No such object.")
        if request.query.get("alt") != "media":
            return web.json_response({"size": str(len(found))})
        return web.Response(body=found, content_type="application/octet-stream")

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self.knows(request):
            return _storage_error(401, "Invalid Credentials")
        if request.match_info["bucket"] not in self.buckets:
            return _storage_error(404, "The specified bucket does not exist.")
        return None


def _storage_error(status: int, message: str) -> web.Response:
    error = {"code": status, "message": message, "errors": [{"message": message, "domain": "global"}]}
    return web.json_response({"error": error}, status=status)


_PLACE = r"/{version:v1|v1beta1}/projects/{project:[\w-]+}/locations/{location:[\w-]+}/batchPredictionJobs"
_MODEL = re.compile(r"publishers/google/models/([\w.-]+)|projects/[\w-]+/locations/[\w-]+/models/([\w.-]+)")
_GCS = re.compile(r"gs://([a-z0-9][a-z0-9._-]*)/(.+)")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_FIELDS = {"displayName", "model", "inputConfig", "outputConfig", "labels", "modelParameters"}


@dataclass
class VertexBatchHost(BatchingHost, VertexHost):
    """What a job had done when it ended is written out, however it ended, unless it failed."""

    states: Sequence[str] = ("QUEUED", "PENDING", "RUNNING", "SUCCEEDED")
    failed_with: str = "the service agent may not read the input"
    written: dict[str, str] = field(default_factory=dict)
    cancelled: str = "CANCELLED"

    ended: ClassVar[frozenset[str]] = frozenset(
        {"SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"}
    )

    def __post_init__(self) -> None:
        self.storage = GoogleStorage(self._knows, lambda: self.url)

    def _knows(self, request: web.Request) -> bool:
        return request.headers.get("Authorization", "").removeprefix("Bearer ") in self.good

    def routes(self) -> list[web.RouteDef]:
        token, *others = super().routes()
        return [
            token,
            *self.storage.routes(),
            web.post(_PLACE, self.create),
            web.get(_PLACE, self.list),
            web.get(_PLACE + "/{id}", self.get),
            web.post(_PLACE + "/{id:[^:]+}:cancel", self.cancel),
            *others,
        ]

    def admit(self, request: web.Request, content: bytes) -> None:
        self.check_caller(request)

    async def create(self, request: web.Request) -> web.StreamResponse:
        return await self.called(
            "create", request, lambda content: self._create(request, json.loads(content))
        )

    def _create(self, request: web.Request, requested: dict[str, Any]) -> web.Response:
        unknown = set(requested) - _FIELDS
        if unknown:
            raise Refusal(Fault(400, f'Invalid JSON payload received. Unknown name "{min(unknown)}"'))
        if not requested.get("displayName"):
            raise Refusal(Fault(400, "Required field is not set: batch_prediction_job.display_name"))
        model = _MODEL.fullmatch(requested.get("model", ""))
        if model is None:
            raise Refusal(
                Fault(400, f"The model {requested.get('model')} cannot be used for batch prediction.")
            )
        source, target = requested.get("inputConfig", {}), requested.get("outputConfig", {})
        if (source.get("instancesFormat"), target.get("predictionsFormat")) != ("jsonl", "jsonl"):
            raise Refusal(Fault(400, "Required field is not set: instances_format, predictions_format"))
        if any(_LABEL.fullmatch(value) is None for value in requested.get("labels", {}).values()):
            raise Refusal(Fault(400, "A label's value holds what it cannot."))
        [uri] = source["gcsSource"]["uris"]
        place, target_place = _GCS.fullmatch(uri), _GCS.fullmatch(target["gcsDestination"]["outputUriPrefix"])
        if place is None or target_place is None:
            raise Refusal(Fault(400, "A URI of Cloud Storage is gs://bucket/name."))
        found = self.storage.objects.get((place[1], place[2]))
        if found is None:
            raise Refusal(Fault(400, f"There are no files under {uri}."))
        number = len(self.jobs) + 1
        at = request.match_info
        job = FakeJob(
            str(800 + number), requested["displayName"], number, {**requested, "at": at["location"]}
        )
        lines = [json.loads(line) for line in found.splitlines()]
        job.total = len(lines)
        for line in lines[: self.done]:
            self._carry_out(job, line["request"], model[1] or model[2])
        self.jobs[job.id] = job
        return web.json_response(self._resource(job, "PENDING"))

    def _carry_out(self, job: FakeJob, body: dict[str, Any], model: str) -> None:
        misfit = misfit_of(body, model)
        if misfit is None and any(
            _LABEL.fullmatch(value) is None for value in body.get("labels", {}).values()
        ):
            misfit = "Invalid value at 'labels'"
        fault = None if misfit is None else Fault(400, misfit)
        reported = self.carry_out(f"/{job.body['model']}", body, fault)
        job.items.append((json.dumps(body, sort_keys=True), *reported))

    def seen(self, job: FakeJob, state: str) -> web.Response:
        if state in self.ended and state != "FAILED":
            self._write(job)
        return web.json_response(self._resource(job, state))

    async def list(self, request: web.Request) -> web.StreamResponse:
        def page(_: bytes) -> web.Response:
            needed = re.fullmatch(r'display_name="([^"]*)"', request.query.get("filter", 'display_name=""'))
            if needed is None:
                raise Refusal(Fault(400, "Invalid filter."))
            jobs: Sequence[FakeJob] = [job for job in self.newest_first() if needed[1] in ("", job.name)]
            jobs, reported = self.page(jobs, request.query, 100, ("pageToken", "pageSize"))
            if jobs:
                reported["batchPredictionJobs"] = [self._resource(job, self.shown(job)) for job in jobs]
            return web.json_response(reported)

        return await self.called("list", request, page)

    def over(self, job: FakeJob) -> Behaviour:
        return Fault(400, "The job has ended.", "FAILED_PRECONDITION")

    def job_of(self, request: web.Request) -> FakeJob:
        job = self.jobs.get(request.match_info["id"])
        if job is None or job.body["at"] != request.match_info["location"]:
            raise Refusal(Fault(404, "The BatchPredictionJob does not exist."))
        return job

    def _resource(self, job: FakeJob, state: str) -> dict[str, Any]:
        """By the project's number, as Google's answers name it."""
        reported: dict[str, Any] = {
            "name": f"projects/417000417/locations/{job.body['at']}/batchPredictionJobs/{job.id}",
            "displayName": job.name,
            "model": job.body["model"],
            "inputConfig": job.body["inputConfig"],
            "outputConfig": job.body["outputConfig"],
            "state": f"JOB_STATE_{state}",
            "createTime": f"2026-11-22T16:00:{job.made % 60:02d}.123456Z",
            "updateTime": "2026-11-22T16:05:00.123456Z",
        }
        if state in self.ended:
            failed = sum(status != 200 for _, status, _ in job.items)
            reported["completionStats"] = {
                "successfulCount": str(len(job.items) - failed),
                "failedCount": str(failed),
                "incompleteCount": str(job.total - len(job.items)),
            }
        if state == "FAILED":
            reported["error"] = {"code": RPC_CODES[400], "message": self.failed_with}
        if job.id in self.written:
            reported["outputInfo"] = {"gcsOutputDirectory": self.written[job.id]}
        return reported

    def _write(self, job: FakeJob) -> None:
        place = _GCS.fullmatch(job.body["outputConfig"]["gcsDestination"]["outputUriPrefix"])
        assert place is not None
        folder = f"{place[2]}/prediction-model-2026-11-22T16:04:{job.made:02d}.123456Z"
        lines = self.given(job.id, [json.dumps(_outcome(*item)).encode() for item in reversed(job.items)])
        if lines is not None:
            content = b"".join(line + b"\n" for line in lines)
            self.storage.objects[place[1], f"{folder}/predictions.jsonl"] = content
        self.written[job.id] = f"gs://{place[1]}/{folder}"


def _outcome(request: str, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """A line of the output; why there is no answer stands in its status, in words and as JSON."""
    reported = "" if status == 200 else f"{HTTPStatus(status).phrase}: {json.dumps(body)}"
    return {
        "status": reported,
        "processed_time": "2026-11-22T16:04:00.123+00:00",
        "request": json.loads(request),
        "response": body if status == 200 else {},
    }


@asynccontextmanager
async def fake_vertex_batches(*script: Behaviour, **how: Any) -> AsyncIterator[VertexBatchHost]:
    """Serve on loopback; ``how`` are fields of the host."""
    host = VertexBatchHost(script=deque(script), **how)
    host.token_gate.set()
    async with serving(host):
        yield host
