"""Hosts whose batches are made of files: a file of requests is uploaded, a job made of it, its results are
files again. What OpenAI, Azure OpenAI and Mistral have in common; each stands in a module of its own.

After the providers' references and guides, and what their clients send and read, November 2026.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, NamedTuple

import msgspec
from aiohttp import BodyPartReader, web

from fakes.batch_jobs import BatchingHost, FakeJob
from fakes.openai_hosts import Reported, ShapedHost
from fakes.scripted import Refusal


class FakeFile(NamedTuple):
    id: str
    filename: str
    purpose: str
    content: bytes
    created_at: int


class Ending(NamedTuple):
    """What is left of a job: the lines of its results and of its errors, each its custom id and the rest."""

    results: list[dict[str, Any]]
    errors: list[dict[str, Any]]


@dataclass
class FileBatchHost(BatchingHost, ShapedHost):
    """A running host. ``most_requests`` and ``most_bytes`` are its limits for one job; ``failed_with`` is why
    a job fails whose state says so; a file is ready when it was looked at ``unready`` times."""

    most_requests: int = 50_000
    most_bytes: int = 200_000_000
    failed_with: tuple[str, str] = ("invalid_json_line", "This line is not parseable as valid JSON.")
    unready: int = 0
    files: dict[str, FakeFile] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    endings: dict[str, Ending] = field(default_factory=dict)
    order: random.Random = field(default_factory=lambda: random.Random(5))

    form_fields: ClassVar[frozenset[str]] = frozenset()
    """What a form for a file may have besides."""

    @property
    def below(self) -> str:
        """What stands before ``/files``."""
        path = self.rules.path.removesuffix("/chat/completions")
        return path.partition("/deployments/")[0]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(f"{self.below}/files", self.upload),
            web.get(f"{self.below}/files/{{id}}", self.file),
            web.get(f"{self.below}/files/{{id}}/content", self.content),
            *self.job_routes(),
            *super().routes(),
        ]

    @abstractmethod
    def job_routes(self) -> list[web.RouteDef]:
        """Where jobs are made, listed, looked at and cancelled."""

    @abstractmethod
    def reported_file(self, file: FakeFile, *, ready: bool) -> dict[str, Any]:
        """A file as the host describes it."""

    def admit(self, request: web.Request, content: bytes) -> None:
        if (fault := self.no_access(request)) is not None:
            raise Refusal(fault)
        if not (self.rules.query or {}).items() <= dict(request.query).items():
            raise Refusal(Reported(404, "Resource not found"))

    async def upload(self, request: web.Request) -> web.StreamResponse:
        fields: dict[str, bytes] = {}
        name = ""
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            fields[part.name or ""] = bytes(await part.read())
            name = part.filename or name

        def uploaded() -> web.Response:
            self.admit(request, b"")
            return self._upload(fields, name)

        return await self.answered("upload", request, uploaded)

    def _upload(self, fields: Mapping[str, bytes], name: str) -> web.Response:
        odd = fields.keys() - {"purpose", "file"} - self.form_fields
        if odd or fields.get("purpose") != b"batch" or not name:
            raise Refusal(Reported(400, f"purpose and file are wanted, and no {', '.join(odd) or 'more'}"))
        if len(fields["file"]) > self.most_bytes:
            raise Refusal(Reported(413, "The file is too large"))
        file = self.keep(name, "batch", fields["file"])
        return web.json_response(self.reported_file(file, ready=not self.unready))

    def keep(self, name: str, purpose: str, content: bytes) -> FakeFile:
        """A file of the host's, ours or its own."""
        file = FakeFile(f"file-{next(self.numbers):04d}", name, purpose, content, int(time.time()))
        self.files[file.id] = file
        return file

    async def file(self, request: web.Request) -> web.StreamResponse:
        def reported(_: bytes) -> web.Response:
            self.unready = max(0, self.unready - 1)
            return web.json_response(self.reported_file(self.found_file(request), ready=not self.unready))

        return await self.called("file", request, reported)

    async def content(self, request: web.Request) -> web.StreamResponse:
        def downloaded(_: bytes) -> web.Response:
            file = self.found_file(request)
            ours = file.purpose == "batch"
            return web.Response(body=file.content) if ours else self.given_file(file.id, file.content)

        return await self.called("download", request, downloaded)

    def found_file(self, request: web.Request) -> FakeFile:
        name = request.match_info["id"]
        if name not in self.files:
            raise Refusal(Reported(404, f"No such File object: {name}"))
        return self.files[name]

    def job_of(self, request: web.Request) -> FakeJob:
        name = request.match_info["id"]
        if name not in self.jobs:
            raise Refusal(Reported(404, f"No batch found with id '{name}'."))
        return self.jobs[name]

    @abstractmethod
    def reported(self, job: FakeJob, state: str) -> dict[str, Any]:
        """A job as the host describes it in a state."""

    def seen(self, job: FakeJob, state: str) -> web.Response:
        return web.json_response(self.reported(job, state))

    def made(self, body: Mapping[str, Any], file: FakeFile) -> FakeJob:
        """A new job, its requests carried out at once; when that shows is another matter."""
        requests = [msgspec.json.decode(line) for line in file.content.splitlines()]
        number = len(self.jobs) + 1
        reported = {**body, "created_at": int(time.time())}
        job = FakeJob(f"batch_{number:04d}", file.filename, number, reported, total=len(requests))
        for requested in requests[: self.done]:
            misfit = self.misfit(requested["body"])
            job.items.append(
                (requested["custom_id"], *self.carry_out(self.rules.path, requested["body"], misfit))
            )
        self.jobs[job.id] = job
        self.endings[job.id] = self._ending(job, requests)
        return job

    def _ending(self, job: FakeJob, requests: Sequence[dict[str, Any]]) -> Ending:
        results: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for number, (custom_id, status, body) in enumerate(job.items):
            response = {"status_code": status, "request_id": f"req_{number}", "body": body}
            line = {"id": f"{job.id}_{number}", "custom_id": custom_id, "response": response, "error": None}
            (results if status < 300 else errors).append(line)
        if self.states[-1] in ("expired", "TIMEOUT_EXCEEDED"):
            why = {"code": "batch_expired", "message": "This request could not be executed in time."}
            errors += [
                {"id": "", "custom_id": requested["custom_id"], "response": None, "error": why}
                for requested in requests[len(job.items) :]
            ]
        self.order.shuffle(results)
        return Ending(results, errors)

    def written(self, job: FakeJob, kind: str, lines: Sequence[Mapping[str, Any]]) -> str:
        """The id of the file that these lines stand in."""
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        name = f"{job.id}_{kind}.jsonl"
        known = next((file.id for file in self.files.values() if file.filename == name), None)
        return known or self.keep(name, "batch_output", content).id
