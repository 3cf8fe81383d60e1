"""The Gemini API's batches and files: jobs with their requests in them or in a file that was uploaded before.

After Google's reference of `batches` and `files` (v1beta) and its guide, and what `google-genai` sends and
reads. A job is submitted again by whoever sends the same twice, as the guide warns.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from aiohttp import web

from fakes.batch_jobs import BatchingHost, FakeJob, Item
from fakes.gemini import Fault, GeminiHost, in_camel_case, misfit_of
from fakes.scripted import Behaviour, Refusal, serving

RPC_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 429: 8, 499: 1, 500: 13, 503: 14, 504: 4}
_LARGEST_BODY = 20 << 20
_INLINED = b'"(the answers)"'


@dataclass
class GeminiBatchHost(BatchingHost, GeminiHost):
    """``most_bytes`` is how large a file may be. ``failed_with`` is why a job fails whose state says so.
    What a cancelled job had done is not given out, nor is anything of an expired one."""

    states: Sequence[str] = ("PENDING", "RUNNING", "SUCCEEDED")
    most_bytes: int = 2 << 30
    failed_with: str = "the input file could not be read"
    files: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, int] = field(default_factory=dict)
    in_metadata: bool = True
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    cancelled: str = "CANCELLED"

    ended: ClassVar[frozenset[str]] = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"})

    def routes(self) -> list[web.RouteDef]:
        version = "/{version:v1|v1beta}"
        return [
            web.post(version + r"/{model:models/[\w.-]+}:batchGenerateContent", self.create),
            web.get(version + "/batches", self.list),
            web.get(version + "/batches/{id}", self.get),
            web.post(version + r"/batches/{id:[^:]+}:cancel", self.cancel),
            web.post(f"/upload{version}/files", self.start_upload),
            web.post(f"/upload{version}/files/{{id}}", self.upload),
            web.get(version + r"/files/{id:[^:]+}:download", self.download),
            *super().routes(),
        ]

    def admit(self, request: web.Request, content: bytes) -> None:
        self.check_caller(request)

    async def create(self, request: web.Request) -> web.StreamResponse:
        model = request.match_info["model"]
        return await self.called("create", request, lambda content: self._create(model, content))

    def _create(self, model: str, content: bytes) -> web.Response:
        if len(content) > _LARGEST_BODY:
            raise Refusal(Fault(400, f"Request payload size exceeds the limit: {_LARGEST_BODY} bytes."))
        requested: Any = in_camel_case(json.loads(content))
        batch = _only(requested, {"batch"}, "").get("batch", {})
        _only(batch, {"displayName", "inputConfig", "priority", "model"}, "batch")
        if not batch.get("displayName"):
            raise Refusal(Fault(400, "* BatchGenerateContentRequest.batch.display_name: required"))
        given = _only(batch.get("inputConfig", {}), {"fileName", "requests"}, "batch.input_config")
        if len(given) != 1:
            raise Refusal(Fault(400, "* batch.input_config: exactly one source is to be set"))
        job = FakeJob(
            f"b{next(self.numbers):04d}", batch["displayName"], len(self.jobs) + 1, {**given, "model": model}
        )
        if "fileName" in given:
            found = self.files.get(given["fileName"])
            if found is None:
                raise Refusal(Fault(404, f"File {given['fileName']} does not exist."))
            lines = [json.loads(line) for line in found.splitlines()]
            self._carry_out(job, model, [(line["key"], line["request"]) for line in lines])
        else:
            inlined = given["requests"]["requests"]
            keyed = [(each.get("metadata", {}).get("key", ""), each["request"]) for each in inlined]
            self._carry_out(job, model, keyed)
        self.jobs[job.id] = job
        return web.json_response(self._operation(job, "PENDING"))

    def _carry_out(self, job: FakeJob, model: str, keyed: Sequence[tuple[str, dict[str, Any]]]) -> None:
        job.total = len(keyed)
        name = model.removeprefix("models/")
        for key, body in keyed[: self.done]:
            misfit = misfit_of({field: value for field, value in body.items() if field != "model"}, name)
            fault = None if misfit is None else Fault(400, misfit)
            job.items.append((key, *self.carry_out(f"/{model}", body, fault)))

    def seen(self, job: FakeJob, state: str) -> web.Response:
        """An operation, the answers in it as they go out this time."""
        whole = json.dumps(self._operation(job, state)).encode()
        if _INLINED not in whole:
            return web.Response(body=whole, content_type="application/json")
        inlined = [{**_outcome(item), "metadata": {"key": item[0]}} for item in job.items]
        given = self.given(job.id, [json.dumps(each).encode() for each in inlined])
        there = b"null" if given is None else b"[" + b",".join(given) + b"]"
        return web.Response(body=whole.replace(_INLINED, there), content_type="application/json")

    async def list(self, request: web.Request) -> web.StreamResponse:
        def page(_: bytes) -> web.Response:
            jobs, reported = self.page(self.newest_first(), request.query, 50, ("pageToken", "pageSize"))
            if jobs:
                reported["operations"] = [self._operation(job, self.shown(job)) for job in jobs]
            return web.Response(
                body=json.dumps(reported).encode().replace(_INLINED, b"[]"), content_type="application/json"
            )

        return await self.called("list", request, page)

    def over(self, job: FakeJob) -> Behaviour:
        return Fault(400, "The job has ended.", "FAILED_PRECONDITION")

    def job_of(self, request: web.Request) -> FakeJob:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            raise Refusal(Fault(404, "Requested entity was not found."))
        return job

    def _operation(self, job: FakeJob, state: str) -> dict[str, Any]:
        """Of google.longrunning, as this API fills it: what is known of the batch is its metadata."""
        failed = sum(status != 200 for _, status, _ in job.items)
        done = len(job.items) if state in self.ended else 0
        stats = {
            "requestCount": job.total,
            "successfulRequestCount": done and len(job.items) - failed,
            "failedRequestCount": done and failed,
            "pendingRequestCount": job.total - done,
        }
        metadata: dict[str, Any] = {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "model": job.body["model"],
            "displayName": job.name,
            "createTime": f"2026-11-22T16:00:{job.made % 60:02d}.123456789Z",
            "updateTime": "2026-11-22T16:05:00Z",
            "batchStats": {name: str(value) for name, value in stats.items() if value},
            "state": f"BATCH_STATE_{state}",
            "name": f"batches/{job.id}",
        }
        operation: dict[str, Any] = {"name": f"batches/{job.id}", "metadata": metadata}
        if state in self.ended:
            operation["done"] = True
        if state == "SUCCEEDED":
            output = self._output(job)
            operation["response"] = {
                "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatchOutput",
                **output,
            }
            if self.in_metadata:
                metadata["output"] = output
        if state == "CANCELLED":
            operation["error"] = {"code": 1, "message": "The operation was cancelled."}
        if state == "FAILED":
            operation["error"] = {"code": 3, "message": self.failed_with}
        return operation

    def _output(self, job: FakeJob) -> dict[str, Any]:
        if "fileName" not in job.body:
            return {"inlinedResponses": {"inlinedResponses": _INLINED.decode().strip('"')}}
        name = f"files/batch-{job.id}"
        lines = [json.dumps({"key": item[0], **_outcome(item)}) for item in reversed(job.items)]
        self.files[name] = "".join(f"{line}\n" for line in lines).encode()
        return {"responsesFile": name}

    async def start_upload(self, request: web.Request) -> web.StreamResponse:
        def started(content: bytes) -> web.Response:
            headers = request.headers
            if (headers.get("X-Goog-Upload-Protocol"), headers.get("X-Goog-Upload-Command")) != (
                "resumable",
                "start",
            ):
                raise Refusal(Fault(400, "Invalid request. Unsupported upload protocol."))
            about = _only(in_camel_case(json.loads(content)), {"file"}, "")["file"]
            _only(about, {"displayName", "mimeType", "name", "sizeBytes"}, "file")
            size = int(headers["X-Goog-Upload-Header-Content-Length"])
            if size > self.most_bytes:
                raise Refusal(Fault(413, f"File size exceeds the limit of {self.most_bytes} bytes."))
            upload = f"u{next(self.numbers)}"
            self.uploads[upload] = size
            url = f"{self.url}/upload/v1beta/files/{upload}?upload_id={upload}&upload_protocol=resumable"
            return web.json_response({}, headers={"X-Goog-Upload-URL": url, "X-Goog-Upload-Status": "active"})

        return await self.called("start upload", request, started)

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """One piece of a file, or all of it."""
        content = await request.read()

        def uploaded() -> web.Response:
            name = request.match_info["id"]
            held = self.files.setdefault(name, b"")
            commands = re.split(r", *", request.headers.get("X-Goog-Upload-Command", ""))
            if name not in self.uploads or request.headers.get("X-Goog-Upload-Offset") != str(len(held)):
                raise Refusal(Fault(400, "Upload has already been finalized or the offset is not its end."))
            self.files[name] = held + content
            if "finalize" not in commands:
                return web.json_response({}, headers={"X-Goog-Upload-Status": "active"})
            whole = self.files.pop(name)
            if len(whole) != self.uploads.pop(name):
                raise Refusal(Fault(400, "The file is not as long as was said."))
            stored = f"files/{name}in"
            self.files[stored] = whole
            file = {
                "name": stored,
                "uri": f"{self.url}/v1beta/{stored}",
                "sizeBytes": str(len(whole)),
                "state": "ACTIVE",
            }
            return web.json_response({"file": file}, headers={"X-Goog-Upload-Status": "final"})

        # The address of an upload is its own credential.
        return await self.answered("upload", request, uploaded)

    async def download(self, request: web.Request) -> web.StreamResponse:
        def downloaded(_: bytes) -> web.Response:
            name = f"files/{request.match_info['id']}"
            if request.query.get("alt") != "media" or not name.startswith("files/batch-"):
                raise Refusal(Fault(400, "Only generated files can be downloaded."))
            return self.given_file(name, self.files[name])

        return await self.called("download", request, downloaded)


def _only(value: dict[str, Any], known: set[str], at: str) -> dict[str, Any]:
    unknown = set(value) - known
    if unknown:
        raise Refusal(Fault(400, f"Invalid JSON payload received. Unknown name \"{min(unknown)}\" at '{at}'"))
    return value


def _outcome(item: Item) -> dict[str, Any]:
    _, status, body = item
    if status == 200:
        return {"response": body}
    error = body["error"]
    reported = {"code": RPC_CODES[status], "message": error["message"]}
    return {"error": reported | ({"details": error["details"]} if "details" in error else {})}


@asynccontextmanager
async def fake_gemini_batches(*script: Behaviour, **how: Any) -> AsyncIterator[GeminiBatchHost]:
    """Serve on loopback; ``how`` are fields of the host."""
    host = GeminiBatchHost(script=deque(script), **how)
    async with serving(host):
        yield host
