"""Bedrock's model invocation jobs: requests from S3, answers to S3, under a role.

What a request may hold is read from the service model that botocore carries (`bedrock`), what a record may be
from Bedrock's user guide. The same client request token makes no second job.
Amazon S3 stands beside them, as far as batches use it; `boto3` drives both in a test.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import md5, sha256
from itertools import count
from typing import Any, ClassVar
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import botocore.session
from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.validate import ParamValidator

from fakes.batch_jobs import BatchingHost, FakeJob
from fakes.bedrock import BedrockHost, Fault, misfits_of
from fakes.scripted import Behaviour, Refusal, listening, serving

_LEAST_PART = 5 << 20
_PAGE = 2
_XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass
class S3Host:
    """``keys`` are access key ids with their secrets. ``objects`` by bucket and key; ``uploads`` are those in
    parts that are not completed. ``lost`` answers are those to the next parts, which are kept. What the next
    completion comes to stands in ``completes``: S3 may say 200 and then an error. Lists are pages of two."""

    keys: Mapping[str, str]
    session_token: str | None = None
    region: str = "us-east-1"
    url: str = ""
    buckets: set[str] = field(default_factory=lambda: {"results-4711"})
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    most_bytes: int = 5 << 30
    lost: int = 0
    completes: str = ""
    requested: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def handle(self, request: web.Request) -> web.Response:
        content = await request.read()
        bucket, key = request.match_info["bucket"], request.match_info.get("key", "")
        self.requested.append(f"{request.method} {request.rel_url.path}")
        why = self._stranger(request, content)
        if why is not None:
            return _s3_error(403, *why)
        if bucket not in self.buckets:
            return _s3_error(404, "NoSuchBucket", "The specified bucket does not exist")
        if len(content) > self.most_bytes:
            return _s3_error(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        query = request.query
        match request.method:
            case "GET" if not key:
                return self._list(bucket, query)
            case "GET" | "HEAD":
                found = self.objects.get((bucket, key))
                missing = _s3_error(404, "NoSuchKey", "The specified key does not exist.")
                return missing if found is None else web.Response(body=found)
            case "PUT" if "uploadId" in query:
                return self._part(request, int(query["partNumber"]), query["uploadId"], content)
            case "PUT":
                self.objects[bucket, key] = content
                return web.Response(headers={"ETag": _etag(content)})
            case "POST" if "uploads" in query:
                upload = f"upload-{next(self.numbers)}"
                self.uploads[upload] = {}
                reported = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
                return _xml("InitiateMultipartUploadResult", reported)
            case "POST" if "uploadId" in query:
                return self._complete(bucket, key, query["uploadId"], content)
            case "DELETE" if "uploadId" in query:
                self.uploads.pop(query["uploadId"], None)
                return web.Response(status=204)
            case _:
                return _s3_error(405, "MethodNotAllowed", "The specified method is not allowed.")

    def _part(self, request: web.Request, number: int, upload: str, content: bytes) -> web.Response:
        if upload not in self.uploads:
            return _s3_error(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        self.uploads[upload][number] = content
        if self.lost:
            self.lost -= 1
            assert request.transport is not None
            request.transport.close()
        return web.Response(headers={"ETag": _etag(content)})

    def _complete(self, bucket: str, key: str, upload: str, content: bytes) -> web.Response:
        if self.completes:
            words, self.completes = self.completes, ""
            said = f"<Error><Code>{words}</Code><Message>We encountered an internal error.</Message></Error>"
            return web.Response(text=said, content_type="application/xml")
        if upload not in self.uploads:
            return _s3_error(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        parts = self.uploads[upload]
        listed: list[tuple[int, str]] = []
        for part in ElementTree.fromstring(content):  # noqa: S314  from the client under test
            named = {child.tag.rpartition("}")[2]: child.text or "" for child in part}
            listed.append((int(named["PartNumber"]), named["ETag"].strip('"')))
        if [number for number, _ in listed] != sorted(parts):
            return _s3_error(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
        if any(_etag(parts[number]).strip('"') != etag for number, etag in listed):
            return _s3_error(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if any(len(parts[number]) < _LEAST_PART for number, _ in listed[:-1]):
            return _s3_error(
                400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed"
            )
        self.objects[bucket, key] = b"".join(parts[number] for number, _ in listed)
        del self.uploads[upload]
        return _xml("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key><ETag>&quot;e&quot;</ETag>")

    def _list(self, bucket: str, query: Mapping[str, str]) -> web.Response:
        if query.get("list-type") != "2":
            return _s3_error(400, "InvalidArgument", "Only lists of the second kind are served.")
        prefix = query.get("prefix", "")
        keys = sorted(key for place, key in self.objects if place == bucket and key.startswith(prefix))
        start = int(query.get("continuation-token", 0))
        shown = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[bucket, key])}</Size></Contents>"
            for key in keys[start : start + _PAGE]
        )
        more = start + _PAGE < len(keys)
        token = f"<NextContinuationToken>{start + _PAGE}</NextContinuationToken>" if more else ""
        reported = f"<Name>{bucket}</Name><IsTruncated>{str(more).lower()}</IsTruncated>{token}{shown}"
        return _xml("ListBucketResult", reported)

    def _stranger(self, request: web.Request, content: bytes) -> tuple[str, str] | None:
        """Why whoever signed may not ask."""
        headers = request.headers
        signed = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request, "
            r"SignedHeaders=([\w;-]+), Signature=([0-9a-f]{64})",
            headers.get("Authorization", ""),
        )
        if signed is None:
            return "AccessDenied", "Access Denied"
        key, _, region, names, signature = signed.groups()
        if key not in self.keys or headers.get("X-Amz-Security-Token") != self.session_token:
            return "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
        if region != self.region:
            return (
                "AuthorizationHeaderMalformed",
                f"the region '{region}' is wrong; expecting '{self.region}'",
            )
        said = headers.get("X-Amz-Content-SHA256", "")
        if said not in (sha256(content).hexdigest(), "UNSIGNED-PAYLOAD"):
            return "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match."
        if self._signature(request, key, names.split(";")) != signature:
            return "SignatureDoesNotMatch", "The request signature we calculated does not match."
        return None

    def _signature(self, request: web.Request, key: str, names: list[str]) -> str:
        url = f"http://{request.headers['Host']}{request.raw_path}"
        headers = {name: request.headers[name] for name in names}
        arrived = AWSRequest(method=request.method, url=url, headers=headers)
        arrived.context["timestamp"] = request.headers["X-Amz-Date"]
        auth = S3SigV4Auth(Credentials(key, self.keys[key]), "s3", self.region)
        reported: Any = auth.signature(auth.string_to_sign(arrived, auth.canonical_request(arrived)), arrived)
        return str(reported)


def _etag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'  # noqa: S324  as S3 makes them


def _xml(root: str, reported: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} {_XMLNS}>{reported}</{root}>'
    return web.Response(text=text, content_type="application/xml")


def _s3_error(status: int, code: str, message: str) -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return web.Response(text=text, status=status, content_type="application/xml")


@asynccontextmanager
async def fake_s3(keys: Mapping[str, str], **how: Any) -> AsyncIterator[S3Host]:
    """Serve on loopback; ``how`` are fields of the host."""
    host = S3Host(keys, **how)
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{bucket}", host.handle)
    app.router.add_route("*", "/{bucket}/", host.handle)
    app.router.add_route("*", "/{bucket}/{key:.+}", host.handle)
    async with listening(app) as url:
        host.url = url
        yield host


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
        requested = json.loads(content)
        report = ParamValidator().validate(requested, _shape("CreateModelInvocationJob"))
        if report.has_errors():
            raise Refusal(Fault(400, report.generate_report()))
        patterns = _shape("CreateModelInvocationJob").members
        for name in ("jobName", "roleArn", "clientRequestToken", "modelId"):
            pattern = patterns[name].metadata["pattern"]
            if name in requested and re.fullmatch(pattern, requested[name]) is None:
                raise Refusal(Fault(400, f"Value at '{name}' failed to satisfy constraint: {pattern}"))
        token = requested.get("clientRequestToken", "")
        if token in self.tokens:
            return web.json_response({"jobArn": self.tokens[token]})
        if requested["roleArn"] not in self.roles:
            raise Refusal(Fault(403, "Could not assume the provided IAM role.", "AccessDeniedException"))
        number = len(self.jobs) + 1
        job = FakeJob(f"{number:012d}", requested["jobName"], number, requested)
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
            jobs, reported = self.page(jobs, query, 10, ("nextToken", "maxResults"))
            reported["invocationJobSummaries"] = [self._summary(job, self.shown(job)) for job in jobs]
            return web.json_response(reported)

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
        reported = {
            "jobArn": self._arn(job),
            "status": state,
            "submitTime": f"2026-11-22T16:00:{job.made % 60:02d}.123Z",
            **{name: value for name, value in job.body.items() if name != "tags"},
        }
        if state in self.ended:
            failed = sum(status != 200 for _, status, _ in job.items)
            reported |= {
                "totalRecordCount": job.total,
                "processedRecordCount": len(job.items),
                "successRecordCount": len(job.items) - failed,
                "errorRecordCount": failed,
            }
        if state == "Failed":
            reported["message"] = self.failed_with
        return reported

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
    record_id, requested = json.loads(record)
    reported = {"recordId": record_id, "modelInput": requested}
    if status == 200:
        return {**reported, "modelOutput": body}
    return {**reported, "error": {"errorCode": status, "errorMessage": body["message"]}}


@asynccontextmanager
async def fake_bedrock_batches(
    *script: Behaviour, keys: Mapping[str, str], session_token: str | None = None, **how: Any
) -> AsyncIterator[BedrockBatchHost]:
    """Serve on loopback, with an S3 of its own; ``how`` are fields of the host."""
    async with fake_s3(keys, session_token=session_token) as s3:
        host = BedrockBatchHost(script=deque(script), keys=keys, session_token=session_token, s3=s3, **how)
        async with serving(host):
            yield host
