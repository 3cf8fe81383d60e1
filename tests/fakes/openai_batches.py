"""OpenAI's Batch API, and Azure's of the same shape: files and batches beside chat completions."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
from aiohttp import web

from fakes.batch_jobs import FakeJob
from fakes.file_batches import FakeFile, FileBatchHost
from fakes.openai_hosts import RULES, Reported
from fakes.scripted import Behaviour, Refusal, serving

_WITH_RESULTS = {"completed", "expired", "cancelled"}


@dataclass
class OpenAiBatchHost(FileBatchHost):
    """``azure``: lines name the API without its version and all the same deployment, there are always two
    files of results, and times and states are as Azure's REST interface may have them where ``restful``.
    ``remembers`` says whether the metadata of a batch are kept. ``batches_only``: a live request is refused,
    as by a deployment for batches; ``live`` counts those that came."""

    states: Sequence[str] = ("validating", "in_progress", "finalizing", "completed")
    cancelled: str = "cancelled"
    azure: bool = False
    restful: bool = False
    remembers: bool = True
    batches_only: bool = False
    live: int = 0

    ended: ClassVar[frozenset[str]] = frozenset({"completed", "failed", "expired", "cancelled"})
    form_fields: ClassVar[frozenset[str]] = frozenset({"expires_after[anchor]", "expires_after[seconds]"})

    @property
    def request_url(self) -> str:
        return "/chat/completions" if self.azure else "/v1/chat/completions"

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        self.live += 1
        super().check(request, content, body)
        if self.batches_only:
            raise Refusal(
                Reported(400, "The operation does not work with this deployment.", "OperationNotSupported")
            )

    def job_routes(self) -> list[web.RouteDef]:
        batches = f"{self.below}/batches"
        return [
            web.post(batches, self.create),
            web.get(batches, self.list),
            web.get(f"{batches}/{{id}}", self.get),
            web.post(f"{batches}/{{id}}/cancel", self.cancel),
        ]

    async def create(self, request: web.Request) -> web.StreamResponse:
        return await self.called("create", request, lambda body: self._create(msgspec.json.decode(body)))

    def _create(self, body: dict[str, Any]) -> web.Response:
        known = {"input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after"}
        if (odd := next(iter(body.keys() - known), None)) is not None:
            raise Refusal(Reported(400, f"Unknown parameter: '{odd}'."))
        if body.get("completion_window") != "24h" or body.get("endpoint") != self.request_url:
            raise Refusal(Reported(400, "Invalid value for completion_window or endpoint"))
        if not all(
            isinstance(value, str) and len(value) <= 512 for value in body.get("metadata", {}).values()
        ):
            raise Refusal(Reported(400, "metadata: values are strings of at most 512 characters"))
        file = self.files.get(body["input_file_id"])
        if file is None:
            raise Refusal(Reported(404, f"No such File object: {body['input_file_id']}"))
        if self.unready:
            raise Refusal(Reported(400, f"The file {file.id} is not processed yet."))
        trouble = self._trouble_of(file)
        if trouble is not None:
            number, reported = len(self.jobs) + 1, {**body, "created_at": file.created_at}
            job = FakeJob(f"batch_{number:04d}", file.filename, number, reported)
            self.jobs[job.id] = job
            job.body, job.ended_by = {**job.body, "trouble": trouble}, "failed"
        else:
            job = self.made(body, file)
        return web.json_response(self.reported(job, self.states[0]))

    def _trouble_of(self, file: FakeFile) -> dict[str, Any] | None:
        """Why a file is refused whole, by the first of its lines that is wrong."""
        lines = file.content.splitlines()
        if len(lines) > self.most_requests:
            why = f"There are more than {self.most_requests} requests."
            return {"code": "too_many_tasks", "message": why}
        seen: set[str] = set()
        models: set[str] = set()
        for number, line in enumerate(lines, 1):
            where = {"line": number, "param": None}
            try:
                requested = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError:
                return {"code": "invalid_json_line", "message": "This line is not JSON.", **where}
            if set(requested) != {"custom_id", "method", "url", "body"} or requested["method"] != "POST":
                return {"code": "invalid_request", "message": "Unknown or missing fields.", **where}
            if requested["url"] != self.request_url:
                return {"code": "url_mismatch", "message": "The URL does not match the endpoint.", **where}
            if requested["custom_id"] in seen or not re.fullmatch(r"[\w-]{1,64}", requested["custom_id"]):
                return {"code": "duplicate_custom_id", "message": "custom_id must be unique.", **where}
            seen.add(requested["custom_id"])
            models.add(str(requested["body"].get("model")))
        if len(models) > 1:
            return {"code": "mismatched_model", "message": "All requests are to name one model.", "line": 2}
        return None

    async def list(self, request: web.Request) -> web.StreamResponse:
        def reported(_: bytes) -> web.Response:
            limit = int(request.query.get("limit", "20"))
            if not 1 <= limit <= 100:
                raise Refusal(Reported(400, "limit is from 1 to 100"))
            jobs = self.newest_first()
            ids = [job.id for job in jobs]
            start = ids.index(request.query["after"]) + 1 if "after" in request.query else 0
            shown = jobs[start : start + limit]
            return web.json_response(
                {
                    "object": "list",
                    "data": [self.reported(job, self.shown(job)) for job in shown],
                    "first_id": shown[0].id if shown else None,
                    "last_id": shown[-1].id if shown else None,
                    "has_more": start + len(shown) < len(jobs),
                }
            )

        return await self.called("list", request, reported)

    def over(self, job: FakeJob) -> Behaviour:
        return Reported(409, f"Cannot cancel a batch with status '{self.shown(job)}'.")

    def cancelling(self, job: FakeJob) -> web.Response:
        return self.seen(job, "cancelling")

    def reported_file(self, file: FakeFile, *, ready: bool) -> dict[str, Any]:
        return {
            "id": file.id,
            "object": "file",
            "bytes": len(file.content),
            "created_at": file.created_at,
            "filename": file.filename,
            "purpose": file.purpose,
            "status": "processed" if ready else "pending",
        }

    def reported(self, job: FakeJob, state: str) -> dict[str, Any]:
        ending = self.endings.get(job.id)
        counts = {"total": job.total, "completed": 0, "failed": 0}
        files: dict[str, str | None] = {"output_file_id": None, "error_file_id": None}
        if state in _WITH_RESULTS and ending is not None:
            counts |= {"completed": len(ending.results), "failed": len(ending.errors)}
            if ending.results or self.azure:
                files["output_file_id"] = self.written(job, "output", ending.results)
            if ending.errors or self.azure:
                files["error_file_id"] = self.written(job, "error", ending.errors)
        errors = None
        if state == "failed":
            code, message = self.failed_with
            errors = {"object": "list", "data": [job.body.get("trouble", {"code": code, "message": message})]}
        made = job.body["created_at"]
        reported: dict[str, Any] = {
            "id": job.id,
            "object": "batch",
            "endpoint": job.body["endpoint"],
            "errors": errors,
            "input_file_id": job.body["input_file_id"],
            "completion_window": "24h",
            "status": state,
            **files,
            "created_at": made,
            "expires_at": made + 86_400,
            "request_counts": counts,
            "metadata": job.body.get("metadata") if self.remembers else None,
        }
        return _as_rest(reported) if self.restful else reported


def _as_rest(reported: Mapping[str, Any]) -> dict[str, Any]:
    """As the guide to Azure's REST interface shows one: words with a capital, times as text, counts that are
    null at first."""
    changed = dict(reported)
    changed["created_at"] = datetime.fromtimestamp(reported["created_at"], UTC).isoformat()
    changed["status"] = reported["status"].capitalize()
    if reported["status"] == "validating":
        changed["request_counts"] = dict.fromkeys(("total", "completed", "failed"))
    return changed


@asynccontextmanager
async def openai_batches(
    name: str = "openai", *script: Behaviour, keys: Iterable[str] | None = None
) -> AsyncIterator[OpenAiBatchHost]:
    """Serve one of `RULES` with batches on loopback; its URL is the base URL that its interface is redirected
    to."""
    rules = RULES[name]
    azure = name.startswith("azure")
    host = OpenAiBatchHost(
        deque(script),
        rules=rules,
        keys=None if keys is None else frozenset(keys),
        azure=azure,
        most_requests=100_000 if azure else 50_000,
    )
    async with serving(host, "" if azure else rules.path.removesuffix("/chat/completions")):
        yield host
