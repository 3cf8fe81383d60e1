"""Bedrock's model invocation jobs: requests from S3, answers to S3, under a role.

What a request may hold is read from the service model that botocore carries (`bedrock`), what a record may be
from Bedrock's user guide. The same client request token makes no second job.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar
from urllib.parse import unquote

import botocore.session
from aiohttp import web
from botocore.validate import ParamValidator

from fakes.batch_jobs import BatchingHost, FakeJob
from fakes.bedrock import BedrockHost, Fault, misfits_of
from fakes.s3 import S3Host, fake_s3
from fakes.scripted import Behaviour, Refusal, serving

__all__ = ["BedrockBatchHost", "fake_bedrock_batches"]

_ACCOUNT = "123456789012"
_URI = re.compile(r"s3://([a-z0-9.-]+)/(.*)")


@cache
def _shape(operation: str) -> Any:
    service = botocore.session.Session().get_service_model("bedrock")
    return service.operation_model(operation).input_shape


@dataclass
class BedrockBatchHost(BatchingHost, BedrockHost):
    """The control plane beside the models, and the S3 that jobs read from and write to, ``s3``. ``least``
    records make a job, and ``most``; ``roles`` are those that there are."""

    states: Sequence[str] = ("Submitted", "Validating", "Scheduled", "InProgress", "Completed")
    least: int = 100
    most: int = 50_000
    roles: frozenset[str] = frozenset({f"arn:aws:iam::{_ACCOUNT}:role/batches"})
    failed_with: str = "The service role may not read the input."
    tokens: dict[str, str] = field(default_factory=dict)
    s3: S3Host = field(default_factory=lambda: S3Host({}))
    cancelled: str = "Stopped"

    ended: ClassVar[frozenset[str]] = frozenset(
        {"Completed", "PartiallyCompleted", "Failed", "Stopped", "Expired"}
    )

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/model-invocation-job", self.create),
            web.get("/model-invocation-jobs", self.list),
            web.get("/model-invocation-job/{id:.+}", self.get),
            web.post("/model-invocation-job/{id:.+}/stop", self.cancel),
            *super().routes(),
        ]

    def admit(self, request: web.Request, content: bytes) -> None:
        if (why := self._stranger(request, content)) is not None:
            raise Refusal(why)

    async def create(self, request: web.Request) -> web.StreamResponse:
        return await self.called("create", request, self._create)

    def _create(self, content: bytes) -> web.Response:
        asked = json.loads(content)
        report = ParamValidator().validate(asked, _shape("CreateModelInvocationJob"))
        if report.has_errors():
            raise Refusal(Fault(400, report.generate_report()))
        patterns = _shape("CreateModelInvocationJob").members
        for name in ("jobName", "roleArn", "clientRequestToken", "modelId"):
            pattern = patterns[name].metadata["pattern"]
            if name in asked and re.fullmatch(pattern, asked[name]) is None:
                raise Refusal(Fault(400, f"Value at '{name}' failed to satisfy constraint: {pattern}"))
        token = asked.get("clientRequestToken", "")
        if token in self.tokens:
            return web.json_response({"jobArn": self.tokens[token]})
        if asked["roleArn"] not in self.roles:
            raise Refusal(Fault(403, "Could not assume the provided IAM role.", "AccessDeniedException"))
        number = len(self.jobs) + 1
        job = FakeJob(f"{number:012d}", asked["jobName"], number, asked)
        self._carry_out(job)
        self.jobs[job.id] = job
        arn = self._arn(job)
        self.tokens[token] = arn
        return web.json_response({"jobArn": arn})

    def _carry_out(self, job: FakeJob) -> None:
        uri = job.body["inputDataConfig"]["s3InputDataConfig"]["s3Uri"]
        place = _URI.fullmatch(uri)
        found = self.s3.objects.get((place[1], place[2])) if place else None
        if found is None or not uri.endswith(".jsonl"):
            raise Refusal(Fault(400, f"No JSONL file was found at {uri}."))
        records = [json.loads(line) for line in found.splitlines()]
        if not self.least <= len(records) <= self.most:
            raise Refusal(
                Fault(400, f"Your job has {len(records)} records; at least {self.least} are needed.")
            )
        if job.body.get("modelInvocationType") != "Converse":
            raise Refusal(Fault(400, "This fake knows the bodies of Converse alone."))
        job.total = len(records)
        for record in records[: self.done]:
            body, model = record["modelInput"], job.body["modelId"]
            misfit = next(misfits_of(body, model), None)
            fault = None if misfit is None else Fault(400, misfit)
            job.items.append(
                (json.dumps([record["recordId"], body]), *self.carry_out(f"/{model}", body, fault))
            )

    def seen(self, job: FakeJob, state: str) -> web.Response:
        if state in self.ended and state != "Failed":
            self._write(job)
        return web.json_response(self._summary(job, state))

    async def list(self, request: web.Request) -> web.StreamResponse:
        def page(_: bytes) -> web.Response:
            query = request.query
            known = {"nameContains", "submitTimeAfter", "maxResults", "nextToken", "sortBy", "sortOrder"}
            if set(query) - known:
                raise Refusal(Fault(400, "1 validation error detected"))
            jobs: Sequence[FakeJob] = [
                job for job in self.newest_first() if query.get("nameContains", "") in job.name
            ]
            jobs, told = self.page(jobs, query, 10, ("nextToken", "maxResults"))
            told["invocationJobSummaries"] = [self._summary(job, self.shown(job)) for job in jobs]
            return web.json_response(told)

        return await self.called("list", request, page)

    def over(self, job: FakeJob) -> Behaviour:
        return Fault(409, "The job cannot be stopped now.", "ConflictException")

    def job_of(self, request: web.Request) -> FakeJob:
        """By the id or the ARN, which is quoted."""
        named = unquote(request.raw_path.removeprefix("/model-invocation-job/").removesuffix("/stop"))
        job = self.jobs.get(named.rpartition("/")[2])
        if job is None or named not in (job.id, self._arn(job)):
            raise Refusal(
                Fault(404, "The provided job identifier was not found.", "ResourceNotFoundException")
            )
        return job

    def _arn(self, job: FakeJob) -> str:
        return f"arn:aws:bedrock:{self.region}:{_ACCOUNT}:model-invocation-job/{job.id}"

    def _summary(self, job: FakeJob, state: str) -> dict[str, Any]:
        told = {
            "jobArn": self._arn(job),
            "status": state,
            "submitTime": f"2026-11-22T16:00:{job.made % 60:02d}.123Z",
            **{name: value for name, value in job.body.items() if name != "tags"},
        }
        if state in self.ended:
            failed = sum(status != 200 for _, status, _ in job.items)
            told |= {
                "totalRecordCount": job.total,
                "processedRecordCount": len(job.items),
                "successRecordCount": len(job.items) - failed,
                "errorRecordCount": failed,
            }
        if state == "Failed":
            told["message"] = self.failed_with
        return told

    def _write(self, job: FakeJob) -> None:
        source = _URI.fullmatch(job.body["inputDataConfig"]["s3InputDataConfig"]["s3Uri"])
        target = _URI.fullmatch(job.body["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"])
        assert source is not None
        assert target is not None
        folder = f"{target[2].removesuffix('/')}/{job.id}"
        lines = self.given(job.id, [json.dumps(_outcome(*item)).encode() for item in reversed(job.items)])
        name = source[2].rpartition("/")[2]
        if lines is not None:
            content = b"".join(line + b"\n" for line in lines)
            self.s3.objects[target[1], f"{folder}/{name}.out"] = content
        counts = self._summary(job, "Completed")
        manifest = {name: counts[name] for name in counts if name.endswith("RecordCount")}
        self.s3.objects[target[1], f"{folder}/manifest.json.out"] = json.dumps(manifest).encode()


def _outcome(record: str, status: int, body: Mapping[str, Any]) -> dict[str, Any]:
    record_id, asked = json.loads(record)
    told = {"recordId": record_id, "modelInput": asked}
    if status == 200:
        return {**told, "modelOutput": body}
    return {**told, "error": {"errorCode": status, "errorMessage": body["message"]}}


@asynccontextmanager
async def fake_bedrock_batches(
    *script: Behaviour, keys: Mapping[str, str], session_token: str | None = None, **how: Any
) -> AsyncIterator[BedrockBatchHost]:
    """Serve on loopback, with an S3 of its own; ``how`` are fields of the host."""
    async with fake_s3(keys, session_token=session_token) as s3:
        host = BedrockBatchHost(script=deque(script), keys=keys, session_token=session_token, s3=s3, **how)
        async with serving(host):
            yield host
