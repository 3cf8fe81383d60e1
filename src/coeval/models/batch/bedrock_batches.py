"""Bedrock's batch inference: model invocation jobs, whose requests and answers are objects in Amazon S3.

Written against the service model that botocore carries (`bedrock`, 2023-04-20) and Bedrock's user guide, read
in November 2026. A job says that its records are bodies of Converse, so that a record is what a live request
is; models that have no Converse cannot be asked this way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from coeval.core.errors import BadRequest, ModelError, ServerFault, StoreError, Unreadable, UsageError
from coeval.core.foreign import decode, decoder
from coeval.core.model import ModelSpec
from coeval.core.plain import open_file
from coeval.models.batch.batch_api import (
    PAGE,
    BatchJob,
    BatchLimits,
    BatchProgress,
    BatchReply,
    BatchState,
    DamagedResult,
    answered_reply,
    readable,
    result_lines,
)
from coeval.models.batch.batch_http import MOST_OBJECT_PAGES, BatchHttp, read_answer
from coeval.models.signers import AwsSigner, Signer
from coeval.models.transport.faults import excerpt
from coeval.models.transport.network import redirected_by
from coeval.store.jsonl import store_error

# --- Amazon S3 objects, by REST and signed requests

# A larger object is sent in parts of this size, each signed and repeated by itself. S3 takes 10,000 parts, of
# 5 MiB at least.
PART_BYTES: Final = 16 << 20
_BUCKET = re.compile(r"(?:s3://)?([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w.-]+)*)/?", re.ASCII)


def bucket_and_folder(place: str) -> tuple[str, str]:
    """``bucket``, ``bucket/folder`` or ``s3://bucket/folder``, as a bucket and a prefix of keys.

    Raises UsageError: it is none of them.
    """
    found = _BUCKET.fullmatch(place.strip())
    if found is None:
        raise UsageError(
            f"batch_s3_bucket: `{place}` is no bucket of Amazon S3; it reads like my-bucket, or "
            "my-bucket/folder."
        )
    return found[1], f"{found[2].removeprefix('/')}/" if found[2] else ""


class S3Bucket:
    """One bucket, asked through ``http`` as ``signer`` says; at AWS in ``region``, or at another ``address``,
    where S3 is asked by path."""

    def __init__(self, http: BatchHttp, bucket: str, region: str, signer: Signer, address: str = "") -> None:
        below = f"/{bucket}"
        if not address and "." not in bucket:  # a certificate holds for one label
            address, below = f"https://{bucket}.s3.{region}.amazonaws.com", ""
        self.name = bucket
        self._http = http.at((address or f"https://s3.{region}.amazonaws.com") + below, signer)

    async def put(self, key: str, file: Path, size: int) -> None:
        """Store a file of ``size`` bytes, in parts where it is large."""
        if size <= PART_BYTES:
            await self._http.send("PUT", _path(key), await asyncio.to_thread(_piece, file, 0))
            return
        begun = await self._http.send("POST", f"{_path(key)}?uploads=", b"", repeatable=True)
        started = begun.body.decode()
        upload = _text(started, "UploadId")
        if upload is None:
            raise Unreadable(f"S3 begins an upload without its id: {self._excerpt(started)}")
        path = f"{_path(key)}?uploadId={quote(upload, safe='')}"
        try:
            await self._put_parts(path, file, size)
        except (ModelError, StoreError):
            with suppress(ModelError):  # what went wrong first is told
                await self._http.send("DELETE", path)  # parts that nobody completes are paid for
            raise

    async def _put_parts(self, path: str, file: Path, size: int) -> None:
        parts = ""
        for number, offset in enumerate(range(0, size, PART_BYTES), 1):
            piece = await asyncio.to_thread(_piece, file, offset)
            reply = await self._http.send("PUT", f"{path}&partNumber={number}", piece)
            etag = reply.headers.get("etag", "")
            parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        needed = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        headers = {"Content-Type": "application/xml"}
        reply = await self._http.send("POST", path, needed, headers=headers)
        reported = reply.body.decode(errors="replace")
        if "<Error>" in reported:  # S3 begins to answer before it is done
            raise ServerFault(f"S3 did not put an upload together: {self._excerpt(reported)}")

    async def keys(self, prefix: str) -> list[str]:
        """The objects whose key begins so."""
        token, found = "", list[str]()
        for _ in range(MOST_OBJECT_PAGES):
            query = f"list-type=2&prefix={quote(prefix, safe='')}{token}"
            page = (await self._http.send("GET", f"/?{query}")).body.decode(errors="replace")
            found += [unescape(key) for key in re.findall(r"<Key>([^<]*)</Key>", page)]
            following = _text(page, "NextContinuationToken")
            if following is None:
                break
            token = f"&continuation-token={quote(following, safe='')}"
        return found

    async def get(self, key: str, into: Path) -> None:
        await self._http.download(_path(key), into)

    def _excerpt(self, reported: str) -> str:
        return excerpt(reported, self._http.redactor)


def _path(key: str) -> str:
    return f"/{quote(key)}"


def _text(page: str, name: str) -> str | None:
    """The text of the first element of that name in S3's XML, which is flat where it is read here."""
    found = re.search(rf"<{name}>([^<]+)</{name}>", page)
    return unescape(found[1]) if found else None


def _piece(file: Path, offset: int) -> bytes:
    try:
        with open_file(file) as opened:
            opened.seek(offset)
            return opened.read(PART_BYTES)
    except OSError as error:
        raise store_error("read", file, error) from error


_AWS: Final = "https://bedrock.{region}.amazonaws.com"
# The variable by which AWS's own clients are led to another address; one service has its name behind.
_ADDRESS = "AWS_ENDPOINT_URL"
_ROLE = re.compile(r"arn:aws(-[^:]+)?:iam::([0-9]{12})?:role/.+")
_STATES: Mapping[str, BatchState] = {
    "Submitted": "waiting",
    "Validating": "waiting",
    "Scheduled": "waiting",
    "InProgress": "running",
    "Stopping": "running",
    "Completed": "ended",
    "PartiallyCompleted": "expired",
    "Failed": "failed",
    "Stopped": "cancelled",
    "Expired": "expired",
}
_QUOTA = re.compile(rb"quota|concurrent|in.progress|too many", re.IGNORECASE)
# A job that failed so may fare better later.
_NOT_ITS_OWN = re.compile(r"internal|unavailable|throttl|try again|capacity", re.IGNORECASE)


class _CreatedJob(msgspec.Struct, rename="camel", frozen=True):
    job_arn: str


class _S3Place(msgspec.Struct, rename="camel", frozen=True):
    s3_uri: str = ""


class _OutputPlace(msgspec.Struct, rename={"s3": "s3OutputDataConfig"}, frozen=True):
    s3: _S3Place = _S3Place()


class _InvocationJob(msgspec.Struct, rename="camel", frozen=True):
    job_arn: str
    job_name: str = ""
    status: str = ""
    message: str | None = None
    output_data_config: _OutputPlace = _OutputPlace()
    total_record_count: int | None = None
    success_record_count: int | None = None
    error_record_count: int | None = None


class _InvocationJobPage(msgspec.Struct, rename="camel", frozen=True):
    invocation_job_summaries: list[_InvocationJob] = []
    next: str | None = msgspec.field(default=None, name="nextToken")


class _RecordError(msgspec.Struct, rename="camel", frozen=True):
    error_code: int = 500
    error_message: str = ""


class _OutputRecord(msgspec.Struct, rename="camel", frozen=True):
    record_id: str
    model_output: msgspec.Raw = msgspec.Raw()
    error: _RecordError | None = None


_read_line = decoder(_OutputRecord)


class BedrockBatches:
    """Batches of one model of Bedrock in a region."""

    limits = BatchLimits(requests=50_000, bytes=1_000_000_000, least=100)
    """Quotas of an account as it begins; some are raised on request."""

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:
        signer = http.signer
        if not isinstance(signer, AwsSigner):
            raise UsageError(
                f"model {spec.name}: Bedrock's batches are kept in Amazon S3, which takes no API key of "
                "Bedrock's: set IAM credentials (`providers.bedrock.access_key_id` and `secret_access_key` "
                "in a key file, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment), or "
                "batch_enabled: false."
            )
        region, self._role, place = _needed(settings, "region", "batch_role_arn", "batch_s3_bucket")
        if _ROLE.fullmatch(self._role) is None:
            raise UsageError(
                f"batch_role_arn: `{self._role}` is no role; it reads like "
                "arn:aws:iam::123456789012:role/NAME."
            )
        bucket, self._above = bucket_and_folder(place)
        address = _redirected("BEDROCK") or spec.base_url or _AWS.format(region=region)
        self._http = http.at(address, signer)
        self._bucket = S3Bucket(http, bucket, region, signer.for_s3(region), _redirected("S3"))
        self._model = spec.model

    def line(self, custom_id: str, body: bytes) -> bytes:
        return b'{"recordId":"%b","modelInput":%b}\n' % (custom_id.encode(), _uncached(body))

    async def create(self, job: BatchJob) -> str:
        folder = f"{self._above}coeval/{job.tag}"
        requests = f"{folder}/requests.jsonl"
        await self._bucket.put(requests, job.lines, job.bytes)
        needed = {
            "jobName": job.name,
            "clientRequestToken": job.tag,  # the same one makes no second job
            "roleArn": self._role,
            "modelId": self._model,
            "modelInvocationType": "Converse",
            "inputDataConfig": {
                "s3InputDataConfig": {"s3Uri": self._uri(requests), "s3InputFormat": "JSONL"},
            },
            "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": self._uri(f"{folder}/results/")}},
        }
        body = msgspec.json.encode(needed)
        reply = await self._http.send("POST", "/model-invocation-job", body, is_busy=_is_busy)
        return read_answer(reply.body, _CreatedJob, "a model invocation job").job_arn

    async def find(self, job: BatchJob) -> str | None:
        """By the name, which is made of the tag."""
        path = f"/model-invocation-jobs?maxResults={PAGE}&nameContains={job.tag}"
        async for page in self._http.pages(path, _InvocationJobPage, "nextToken"):
            for found in page.invocation_job_summaries:
                if found.job_name == job.name and found.job_arn not in job.others:
                    return found.job_arn
        return None

    async def check(self, job_id: str) -> BatchProgress:
        job = await self._job(job_id)
        state = _STATES.get(job.status, "running")
        return BatchProgress(
            state,
            job.status,
            job.total_record_count,
            job.success_record_count,
            job.error_record_count,
            self._failure(job) if state == "failed" else None,
        )

    async def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        job = await self._job(job_id)
        folder = job.output_data_config.s3.s3_uri.removeprefix(f"s3://{self._bucket.name}/").rstrip("/")
        for key in await self._bucket.keys(f"{folder}/"):
            if not key.endswith(".jsonl.out"):
                continue
            results = into / "results.jsonl"
            await self._bucket.get(key, results)
            for reply in readable(result_lines(results), _reply):
                yield reply

    async def cancel(self, job_id: str) -> None:
        await self._http.send("POST", f"{_job_path(job_id)}/stop", b"{}")

    async def _job(self, job_id: str) -> _InvocationJob:
        return await self._http.read(_job_path(job_id), _InvocationJob, "a model invocation job")

    def _uri(self, key: str) -> str:
        return f"s3://{self._bucket.name}/{key}"

    def _failure(self, job: _InvocationJob) -> ModelError:
        words = excerpt(job.message or "", self._http.redactor) or "Bedrock gives no reason"
        return ServerFault(words) if _NOT_ITS_OWN.search(words) else BadRequest(words)


def _needed(settings: Mapping[str, str], *names: str) -> list[str]:
    """The settings of these names; UsageError says of all that are missing where to set them."""
    found, problems = list[str](), list[str]()
    for name in names:
        try:
            found.append(settings[name])
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(problems))
    return found


def _uncached(body: bytes) -> bytes:
    """A request without our marks of what the host's cache is to keep: the records of a job are asked in no
    order, and Bedrock names no price of its cache for them."""
    if b'"cachePoint"' not in body:
        return body
    requested = decode(body, dict[str, Any])
    for message in requested["messages"]:
        message["content"] = [block for block in message["content"] if "cachePoint" not in block]
    return msgspec.json.encode(requested)


def _is_busy(body: bytes) -> bool:
    """Whether a 400 is a ServiceQuotaExceededException: more jobs are under way than the account may have."""
    return _QUOTA.search(body) is not None


def _job_path(job_id: str) -> str:
    return f"/model-invocation-job/{quote(job_id, safe='')}"


def _redirected(service: str) -> str:
    """Where a service is asked by what the environment says; "" is where AWS has it."""
    return redirected_by(f"{_ADDRESS}_{service}", _ADDRESS)


def _reply(line: bytes) -> BatchReply:
    reported = _read_line(line)
    if reported.error is None:
        return answered_reply(reported.record_id, reported.model_output)
    code = reported.error.error_code
    message = msgspec.json.encode({"message": reported.error.error_message})
    return BatchReply(reported.record_id, code if 400 <= code < 600 else 500, message)
