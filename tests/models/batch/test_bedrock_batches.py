"""Bedrock's batches at fakes of it and of Amazon S3, both of which boto3 drives as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from batch_at import AWS, BATCHING, BUCKET, ROLE, TEXTS, At, batching_at
from botocore.config import Config
from botocore.exceptions import ClientError
from fakes.bedrock import Fault

import coeval.models.batch.bedrock_batches as module
from coeval.core.errors import AccessDenied, BadRequest, NotFound, RateLimited, ServerFault, UsageError
from coeval.models.batch.bedrock_batches import BedrockBatches, S3Bucket

MODEL = "us.amazon.nova-lite-v1:0"


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[At]:
    async with batching_at("bedrock", tmp_path) as found:
        yield found


@asynccontextmanager
async def unserved(env: Mapping[str, str] = AWS, **options: Any) -> AsyncIterator[BedrockBatches]:
    """The interface where nothing is asked of a at.host."""
    at = At(BATCHING["bedrock"], None, Path(), env)
    async with at.open(**options) as api:
        assert isinstance(api, BedrockBatches)
        yield api


def client(service: str, url: str, secret: str = AWS["AWS_SECRET_ACCESS_KEY"]) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id=AWS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=secret,
        aws_session_token=AWS["AWS_SESSION_TOKEN"],
        config=Config(retries={"total_max_attempts": 1}),
    )


# The client


@pytest.mark.process
async def test_the_client_drives_storage(at: At, tmp_path: Path) -> None:
    def drive() -> None:
        s3 = client("s3", at.host.s3.url)
        s3.put_object(Bucket=BUCKET, Key="a b/small.jsonl", Body=b"small\n")
        large = tmp_path / "large.jsonl"
        large.write_bytes(bytes(range(256)) * 50_000)
        s3.upload_file(str(large), BUCKET, "large.jsonl")  # in parts, as it has more than 8 MiB
        s3.put_object(Bucket=BUCKET, Key="a b/other.jsonl", Body=b"")
        assert s3.get_object(Bucket=BUCKET, Key="large.jsonl")["Body"].read() == large.read_bytes()
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        keys = [each["Key"] for page in pages for each in page["Contents"]]
        assert keys == ["a b/other.jsonl", "a b/small.jsonl", "large.jsonl"]
        with pytest.raises(ClientError, match="NoSuchBucket"):
            s3.put_object(Bucket="elsewhere", Key="x", Body=b"")
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            client("s3", at.host.s3.url, "wrong").list_objects_v2(Bucket=BUCKET)

    await asyncio.to_thread(drive)
    assert not at.host.s3.uploads


async def test_the_client_drives_a_job_through_its_life(at: At) -> None:
    body = msgspec.json.decode(at.bodies("one")[f"{1:032x}"])
    line = msgspec.json.encode({"recordId": "r1", "modelInput": body})
    at.host.s3.objects[BUCKET, "in/requests.jsonl"] = line + b"\n"

    def drive() -> None:
        bedrock = client("bedrock", at.host.url)

        def create(name: str) -> str:
            made = bedrock.create_model_invocation_job(
                jobName=name,
                roleArn=ROLE,
                modelId=MODEL,
                modelInvocationType="Converse",
                inputDataConfig={"s3InputDataConfig": {"s3Uri": f"s3://{BUCKET}/in/requests.jsonl"}},
                outputDataConfig={"s3OutputDataConfig": {"s3Uri": f"s3://{BUCKET}/out/"}},
            )
            return str(made["jobArn"])

        arn = create("mine")
        states = [bedrock.get_model_invocation_job(jobIdentifier=arn)["status"] for _ in range(6)]
        assert states == ["Submitted", "Validating", "Scheduled", "InProgress", "Completed", "Completed"]
        ended = bedrock.get_model_invocation_job(jobIdentifier=arn)
        assert (ended["totalRecordCount"], ended["successRecordCount"]) == (1, 1)
        other = create("other")
        bedrock.stop_model_invocation_job(jobIdentifier=other)
        assert bedrock.get_model_invocation_job(jobIdentifier=other)["status"] == "Stopped"
        with pytest.raises(ClientError, match="ConflictException"):
            bedrock.stop_model_invocation_job(jobIdentifier=other)
        listed = bedrock.list_model_invocation_jobs(nameContains="min")["invocationJobSummaries"]
        assert [job["jobName"] for job in listed] == ["mine"]
        pages = bedrock.get_paginator("list_model_invocation_jobs").paginate(maxResults=1)
        assert [job["jobName"] for page in pages for job in page["invocationJobSummaries"]] == [
            "other",
            "mine",
        ]
        with pytest.raises(ClientError, match="ResourceNotFound"):
            bedrock.get_model_invocation_job(jobIdentifier="zzzzzzzzzzzz")
        folder = f"out/{arn.rpartition('/')[2]}"
        written = client("s3", at.host.s3.url).list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/")
        assert [each["Key"] for each in written["Contents"]] == [
            f"{folder}/manifest.json.out",
            f"{folder}/requests.jsonl.out",
        ]

    await asyncio.to_thread(drive)


@pytest.mark.process
async def test_the_client_submits_the_job_that_we_submit(at: At) -> None:
    async with at.open() as api:
        await at.made(api)
    [mine] = [job.body for job in at.host.jobs.values()]

    def create() -> None:
        bedrock = client("bedrock", at.host.url)
        bedrock.create_model_invocation_job(**{**mine, "clientRequestToken": "other"})

    await asyncio.to_thread(create)
    theirs = list(at.host.jobs.values())[-1].body
    assert {**theirs, "clientRequestToken": mine["clientRequestToken"]} == mine


# Ours


async def test_marks_of_the_cache_stay_out_of_a_record(at: At) -> None:
    block, mark = {"text": "shared"}, {"cachePoint": {"type": "default"}}
    marked = {"messages": [{"role": "user", "content": [block, mark, {"text": "own"}]}]}
    async with at.open() as api:
        record = msgspec.json.decode(api.line("ab", msgspec.json.encode(marked)))
        plain = api.line("ab", b'{"messages": [1.0]}')
    assert record["modelInput"]["messages"][0]["content"] == [block, {"text": "own"}]
    assert plain == b'{"recordId":"ab","modelInput":{"messages": [1.0]}}\n'


async def test_a_job_that_failed_inside_the_host_may_be_tried_again(at: At) -> None:
    at.host.states, at.host.failed_with = ("Failed",), "An internal error occurred, try again"
    async with at.open() as api:
        progress = await api.check(await at.made(api))
    assert type(progress.error) is ServerFault


async def test_the_same_token_makes_no_second_job(at: At) -> None:
    async with at.open() as api:
        job = at.job(api)
        assert await api.create(job) == await api.create(job)
    assert len(at.host.jobs) == 1


@pytest.mark.process
async def test_large_files_go_in_parts_each_repeated_by_itself(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    at.host.s3.lost = 1
    async with at.open() as api:
        job = at.job(api, *("long " * 300_000 + text for text in TEXTS[:4]))
        assert job.bytes > 5 << 20
        await api.create(job)
    key = f"coeval/{job.tag}/requests.jsonl"
    assert at.host.s3.objects[BUCKET, key] == job.lines.read_bytes()
    assert at.host.s3.requested.count(f"PUT /{BUCKET}/{key}") == 3  # of two parts, one twice
    assert not at.host.s3.uploads


async def test_parts_that_come_to_nothing_are_taken_back(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    at.host.s3.completes = "InternalError"
    async with at.open() as api:
        job = at.job(api, *("long " * 300_000 + text for text in TEXTS[:4]))
        with pytest.raises(ServerFault, match="InternalError"):
            await api.create(job)
    assert not at.host.s3.uploads
    assert not at.host.s3.objects
    assert not at.host.jobs


@pytest.mark.process
async def test_what_aws_refuses_is_told(at: At) -> None:
    async with at.open(batch_s3_bucket="not-there") as api:
        with pytest.raises(NotFound, match="NoSuchBucket"):
            await at.made(api)
    async with at.open(batch_role_arn=ROLE + "2") as api:
        with pytest.raises(AccessDenied, match="assume"):
            await at.made(api)
    at.host.least = 100
    async with at.open() as api:
        assert api.limits.least == 100
        with pytest.raises(BadRequest, match="at least 100"):
            await at.made(api)


async def test_jobs_beyond_the_accounts_quota_are_turned_away_as_too_many(at: At) -> None:
    words = "Your account has reached its quota of in-progress batch inference jobs for this model."
    at.host.troubles += [("create", Fault(400, words, "ServiceQuotaExceededException"))] * 20
    async with at.open() as api:
        with pytest.raises(RateLimited, match="in-progress"):
            await at.made(api)
        at.host.troubles.clear()
        await at.made(api)
    assert len(at.host.jobs) == 1


async def test_a_table_of_addresses() -> None:
    """Where storage is asked, without anything in the environment and with it."""
    async with unserved() as api:
        http, signer = api._http, api._http.signer
        assert signer is not None
        assert api._http.url == "https://bedrock.us-east-1.amazonaws.com"
        assert (
            S3Bucket(http, "one", "us-east-1", signer)._http.url == "https://one.s3.us-east-1.amazonaws.com"
        )
        assert (
            S3Bucket(http, "one.two", "us-east-1", signer)._http.url
            == "https://s3.us-east-1.amazonaws.com/one.two"
        )
        assert S3Bucket(http, "one", "r", signer, "http://here:9")._http.url == "http://here:9/one"


async def test_one_address_may_serve_all_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    async with unserved() as api:
        assert (api._http.url, api._bucket._http.url) == (
            "http://127.0.0.1:4566",
            f"http://127.0.0.1:4566/{BUCKET}",
        )


async def test_all_settings_that_are_missing_are_told_at_once_with_their_way_out() -> None:
    with pytest.raises(UsageError) as reported:
        async with unserved(batch_role_arn=None, batch_s3_bucket=None):
            pass
    lines = str(reported.value).splitlines()
    assert len(lines) == 2
    for line, name in zip(lines, ("batch_role_arn", "batch_s3_bucket"), strict=True):
        assert f" needs {name} " in line
        assert f"`providers.bedrock.{name}` in a key file or parameters.{name}" in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_s3_bucket": "No Bucket"}, "no bucket of Amazon S3"),
        ({"batch_role_arn": "batches"}, "is no role"),
    ],
)
async def test_a_setting_that_cannot_be_is_told(options: Mapping[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        async with unserved(**options):
            pass


async def test_an_address_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "minio:9000")
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL_S3 in the environment"):
        async with unserved():
            pass


async def test_an_api_key_of_bedrock_opens_no_storage() -> None:
    with pytest.raises(UsageError, match="takes no API key"):
        async with unserved({"AWS_BEARER_TOKEN_BEDROCK": "made-up-key"}):
            pass
