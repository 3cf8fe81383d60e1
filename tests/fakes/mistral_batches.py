"""Mistral's batches: files of requests without a model, and jobs that name it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from aiohttp import web

from fakes.batch_jobs import FakeJob
from fakes.file_batches import FakeFile, FileBatchHost
from fakes.openai_hosts import RULES, Reported
from fakes.scripted import Behaviour, Refusal, serving

_FIELDS = {"input_files", "requests", "endpoint", "model", "agent_id", "metadata", "timeout_hours"}
_FILTERS = {"page", "page_size", "model", "created_after", "created_by_me", "status", "order_by"}


@dataclass
class MistralBatchHost(FileBatchHost):
    """It has ``most_requests`` pending in all. Until a job runs it does not tell how many requests it has. In
    lists, what is no parameter of the interface is looked for in the metadata, as its guide has it. Jobs that
    ``failed_on_the_way`` have results."""

    states: Sequence[str] = ("QUEUED", "RUNNING", "SUCCESS")
    cancelled: str = "CANCELLED"
    most_requests: int = 1_000_000
    failed_on_the_way: bool = False

    ended: ClassVar[frozenset[str]] = frozenset({"SUCCESS", "FAILED", "TIMEOUT_EXCEEDED", "CANCELLED"})
    form_fields: ClassVar[frozenset[str]] = frozenset({"expiry", "visibility"})

    def job_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/batch/jobs", self.create),
            web.get("/v1/batch/jobs", self.list),
            web.get("/v1/batch/jobs/{id}", self.get),
            web.post("/v1/batch/jobs/{id}/cancel", self.cancel),
        ]

    async def create(self, request: web.Request) -> web.StreamResponse:
        return await self.called("create", request, lambda body: self._create(msgspec.json.decode(body)))

    def _create(self, body: dict[str, Any]) -> web.Response:
        if (odd := next(iter(body.keys() - _FIELDS), None)) is not None:
            raise Refusal(Reported(422, "Extra inputs are not permitted", param=odd))
        if body.get("endpoint") != "/v1/chat/completions" or not isinstance(body.get("model"), str):
            raise Refusal(Reported(422, "Input should be an endpoint and a model", param="endpoint"))
        if not all(isinstance(value, str) for value in (body.get("metadata") or {}).values()):
            raise Refusal(Reported(422, "Input should be a valid string", param="metadata"))
        if not 1 <= body.get("timeout_hours", 24) <= 168:
            raise Refusal(Reported(422, "timeout_hours is from 1 to 168", param="timeout_hours"))
        (name,) = body["input_files"]
        if name not in self.files:
            raise Refusal(Reported(404, f"No file matches the given query: {name}"))
        file = self.files[name]
        pending = sum(job.total for job in self.jobs.values() if self.shown(job) not in self.ended)
        if pending + len(file.content.splitlines()) > self.most_requests:
            raise Refusal(Reported(400, f"More than {self.most_requests} requests would be pending."))
        job = self.made({**body, "created_at": int(time.time())}, self._with_model(file, body["model"]))
        return web.json_response(self.reported(job, self.states[0]))

    def _with_model(self, file: FakeFile, model: str) -> FakeFile:
        """The file as if each line were a request: the model of the job belongs to each."""
        lines = []
        for number, line in enumerate(file.content.splitlines(), 1):
            requested = msgspec.json.decode(line)
            if not {"custom_id", "body"} >= set(requested) or "model" in requested["body"]:
                raise Refusal(Reported(422, f"line {number}: custom_id and a body without model are wanted"))
            lines.append(msgspec.json.encode({**requested, "body": {**requested["body"], "model": model}}))
        return file._replace(content=b"\n".join(lines))

    async def list(self, request: web.Request) -> web.StreamResponse:
        def reported(_: bytes) -> web.Response:
            query = dict(request.query)
            needed = {name: query.pop(name) for name in list(query) if name not in _FILTERS}
            since = query.get("created_after")
            from_s = datetime.fromisoformat(since).timestamp() if since is not None else 0.0
            jobs = [
                job
                for job in self.newest_first()
                if needed.items() <= (job.body.get("metadata") or {}).items()
                and job.body["created_at"] >= from_s
            ]
            size, page = int(query.get("page_size", "100")), int(query.get("page", "0"))
            shown = jobs[page * size : (page + 1) * size]
            data = [self.reported(job, self.shown(job)) for job in shown]
            return web.json_response({"object": "list", "total": len(jobs), "data": data})

        return await self.called("list", request, reported)

    def over(self, job: FakeJob) -> Behaviour:
        return Reported(400, f"Job {job.id} is not running.")

    def cancelling(self, job: FakeJob) -> web.Response:
        return self.seen(job, "CANCELLATION_REQUESTED")

    def reported_file(self, file: FakeFile, *, ready: bool) -> dict[str, Any]:
        return {
            "id": file.id,
            "object": "file",
            "bytes": len(file.content),
            "created_at": file.created_at,
            "filename": file.filename,
            "purpose": "batch",
            "sample_type": "batch_request",
            "source": "upload",
            "num_lines": file.content.count(b"\n"),
        }

    def reported(self, job: FakeJob, state: str) -> dict[str, Any]:
        ending = self.endings[job.id]
        ended = state in self.ended and (state != "FAILED" or self.failed_on_the_way)
        results, errors = ending if ended else ([], [])
        return {
            "id": job.id,
            "object": "batch",
            "input_files": job.body["input_files"],
            "metadata": job.body.get("metadata"),
            "endpoint": job.body["endpoint"],
            "model": job.body["model"],
            "agent_id": None,
            "output_file": self.written(job, "output", results) if results else None,
            "error_file": self.written(job, "error", errors) if errors else None,
            "errors": [{"message": self.failed_with[1], "count": 1}] if state == "FAILED" else [],
            "outputs": None,
            "status": state,
            "created_at": job.body["created_at"],
            "started_at": None,
            "completed_at": None,
            "total_requests": 0 if state == "QUEUED" else job.total,
            "completed_requests": len(results) + len(errors),
            "succeeded_requests": len(results),
            "failed_requests": len(errors),
        }


@asynccontextmanager
async def mistral_batches(
    *script: Behaviour, keys: Iterable[str] | None = None
) -> AsyncIterator[MistralBatchHost]:
    """Serve on loopback; its URL is the base URL that the interface is redirected to."""
    host = MistralBatchHost(
        deque(script), rules=RULES["mistral"], keys=None if keys is None else frozenset(keys)
    )
    async with serving(host, "/v1"):
        yield host
