"""Bedrock's batches at fakes of it and of Amazon S3, both of which boto3 drives as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from batch_at import batches_at, bodies_of, job_of, replies
from botocore.config import Config
from botocore.exceptions import ClientError
from fakes.batch_jobs import LOST
from fakes.bedrock import Answer, Fault
from fakes.bedrock_batches import BedrockBatchHost, fake_bedrock_batches

import coeval.models.batch.bedrock_batches as module
from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ConnectionFailed,
    NotFound,
    RateLimited,
    ServerFault,
    UsageError,
)
from coeval.core.model import ModelSpec
from coeval.core.redaction import Redactor
from coeval.models.batch.bedrock_batches import BedrockBatches, S3Bucket
from coeval.models.dialects.bedrock import BEDROCK

BUCKET = "results-4711"
ROLE = "arn:aws:iam::123456789012:role/batches"
MODEL = "us.amazon.nova-lite-v1:0"
KEY, SECRET, TOKEN = (
    "AKIAMADEUP0123456789",
    "made/up+secret0123456789abcdefghijklmnopq",
    "made-up-session-token==",
)
ENV = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
TEXTS = ("one", "two", "three", "four", "five")


def of_text(fates: Mapping[str, Any]) -> Any:
    def says(body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"][0]["text"]
        return fates.get(text, Answer(text.upper()))

    return says


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BedrockBatchHost]:
    async with fake_bedrock_batches(
        keys={KEY: SECRET}, session_token=TOKEN, says=of_text({}), least=1
    ) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", running.s3.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK", f"{running.url}/")
        yield running


def spec(**options: Any) -> ModelSpec:
    """Its models are asked at AWS: nothing of a batch is."""
    places = {"region": "us-east-1", "batch_s3_bucket": BUCKET, "batch_role_arn": ROLE}
    return ModelSpec(name="m", interface="bedrock", model=MODEL, options=places | options)


def ours(**options: Any) -> AbstractAsyncContextManager[BedrockBatches]:
    return batches_at(BedrockBatches, spec(**options), ENV)


def bodies(*texts: str) -> dict[str, bytes]:
    return bodies_of(spec(), ENV, texts or TEXTS)


def client(service: str, url: str) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        aws_session_token=TOKEN,
        config=Config(retries={"total_max_attempts": 1}),
    )


# The client


async def test_the_client_drives_storage(host: BedrockBatchHost, tmp_path: Path) -> None:
    def drive() -> None:
        s3 = client("s3", host.s3.url)
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
            boto3.client(
                "s3",
                region_name="us-east-1",
                endpoint_url=host.s3.url,
                aws_access_key_id=KEY,
                aws_secret_access_key="wrong",
                aws_session_token=TOKEN,
            ).list_objects_v2(Bucket=BUCKET)

    await asyncio.to_thread(drive)
    assert not host.s3.uploads


async def test_the_client_drives_a_job_through_its_life(host: BedrockBatchHost) -> None:
    body = msgspec.json.decode(bodies("one")[f"{1:032x}"])
    line = msgspec.json.encode({"recordId": "r1", "modelInput": body})
    host.s3.objects[BUCKET, "in/requests.jsonl"] = line + b"\n"

    def drive() -> None:
        bedrock = client("bedrock", host.url)

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
        written = client("s3", host.s3.url).list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/")
        assert [each["Key"] for each in written["Contents"]] == [
            f"{folder}/manifest.json.out",
            f"{folder}/requests.jsonl.out",
        ]

    await asyncio.to_thread(drive)


async def test_the_client_submits_the_job_that_we_submit(host: BedrockBatchHost, tmp_path: Path) -> None:
    async with ours() as api:
        await api.create(job_of(api, tmp_path, bodies()))
    [mine] = [job.body for job in host.jobs.values()]

    def create() -> None:
        bedrock = client("bedrock", host.url)
        bedrock.create_model_invocation_job(**{**mine, "clientRequestToken": "other"})

    await asyncio.to_thread(create)
    theirs = list(host.jobs.values())[-1].body
    assert {**theirs, "clientRequestToken": mine["clientRequestToken"]} == mine


# Ours


async def test_answers_and_errors_are_those_of_live_requests(host: BedrockBatchHost, tmp_path: Path) -> None:
    host.says = of_text({"two": Fault(400, "Malformed input request"), "three": Fault(429, "Too many")})
    async with ours() as api:
        job_id = await api.create(job_of(api, tmp_path, bodies()))
        seen = [await api.check(job_id) for _ in range(5)]
        assert [progress.state for progress in seen] == ["waiting"] * 3 + ["running", "ended"]
        assert (seen[-1].total, seen[-1].done, seen[-1].failed) == (5, 3, 2)
        told = await replies(api, job_id, tmp_path)
    by_text = dict(zip(TEXTS, (told[custom_id] for custom_id in bodies()), strict=True))
    assert [by_text[text].status for text in TEXTS] == [200, 400, 429, 200, 200]
    assert [BEDROCK.decode(by_text[text].body, Redactor()).text for text in ("one", "four", "five")] == [
        "ONE",
        "FOUR",
        "FIVE",
    ]
    assert msgspec.json.decode(by_text["two"].body) == {"message": "Malformed input request"}
    assert list(told) == [*reversed(bodies())]


async def test_marks_of_the_cache_stay_out_of_a_record(host: BedrockBatchHost) -> None:
    block, mark = {"text": "shared"}, {"cachePoint": {"type": "default"}}
    marked = {"messages": [{"role": "user", "content": [block, mark, {"text": "own"}]}]}
    async with ours() as api:
        record = msgspec.json.decode(api.line("ab", msgspec.json.encode(marked)))
        plain = api.line("ab", b'{"messages": [1.0]}')
    assert record["modelInput"]["messages"][0]["content"] == [block, {"text": "own"}]
    assert plain == b'{"recordId":"ab","modelInput":{"messages": [1.0]}}\n'


@pytest.mark.parametrize(
    ("word", "state"),
    [("Stopped", "cancelled"), ("Expired", "expired"), ("PartiallyCompleted", "expired")],
)
async def test_what_a_job_had_done_is_collected(
    host: BedrockBatchHost, tmp_path: Path, word: str, state: str
) -> None:
    host.states, host.done = (word,), 2
    async with ours() as api:
        job_id = await api.create(job_of(api, tmp_path, bodies()))
        assert (await api.check(job_id)).state == state
        assert set(await replies(api, job_id, tmp_path)) == {f"{1:032x}", f"{2:032x}"}


@pytest.mark.parametrize(
    ("words", "kind"),
    [("Records are malformed", BadRequest), ("An internal error occurred, try again", ServerFault)],
)
async def test_a_failed_job_says_why_without_credentials(
    host: BedrockBatchHost, tmp_path: Path, words: str, kind: type[Exception]
) -> None:
    host.states, host.failed_with = ("Failed",), f"{words} {SECRET}"
    async with ours() as api:
        progress = await api.check(await api.create(job_of(api, tmp_path, bodies())))
    assert progress.state == "failed"
    assert type(progress.error) is kind
    assert words in str(progress.error)
    assert SECRET not in str(progress.error)


async def test_a_job_is_cancelled(host: BedrockBatchHost, tmp_path: Path) -> None:
    async with ours() as api:
        job_id = await api.create(job_of(api, tmp_path, bodies()))
        await api.cancel(job_id)
        assert (await api.check(job_id)).state == "cancelled"
        await api.cancel(job_id)  # it has ended: there is nothing more to do


async def test_a_job_whose_id_was_lost_is_found_by_its_tag(host: BedrockBatchHost, tmp_path: Path) -> None:
    host.troubles.append(("create", LOST))
    async with ours() as api:
        job = job_of(api, tmp_path, bodies())
        other = job_of(api, tmp_path, bodies("six"), "b" * 32)
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        host.lag = 1
        assert await api.find(job) is None  # not listed yet
        found = await api.find(job)
        assert found is not None
        assert (await api.check(found)).state == "waiting"
        assert await api.find(other) is None
        assert await api.find(job._replace(others=frozenset({found}))) is None  # one that was refused
        assert await api.create(job) == found  # the same token makes no second job
        assert len(host.jobs) == 1


async def test_large_files_go_in_parts_each_repeated_by_itself(
    host: BedrockBatchHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    host.s3.lost = 1
    async with ours() as api:
        job = job_of(api, tmp_path, bodies(*("long " * 300_000 + text for text in TEXTS[:4])))
        assert job.bytes > 5 << 20
        await api.create(job)
    key = f"coeval/{job.tag}/requests.jsonl"
    assert host.s3.objects[BUCKET, key] == job.lines.read_bytes()
    assert host.s3.asked.count(f"PUT /{BUCKET}/{key}") == 3  # of two parts, one twice
    assert not host.s3.uploads


async def test_parts_that_come_to_nothing_are_taken_back(
    host: BedrockBatchHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    host.s3.completes = "InternalError"
    async with ours() as api:
        job = job_of(api, tmp_path, bodies(*("long " * 300_000 + text for text in TEXTS[:4])))
        with pytest.raises(ServerFault, match="InternalError"):
            await api.create(job)
    assert not host.s3.uploads
    assert not host.s3.objects
    assert not host.jobs


async def test_a_folder_of_a_bucket_holds_it_all(host: BedrockBatchHost, tmp_path: Path) -> None:
    host.states = ("Completed",)
    async with ours(batch_s3_bucket=f"s3://{BUCKET}/team/blue") as api:
        job_id = await api.create(job_of(api, tmp_path, bodies()))
        await api.check(job_id)
        assert len(await replies(api, job_id, tmp_path)) == 5
    assert all(key.startswith("team/blue/coeval/") for _, key in host.s3.objects)


async def test_what_aws_refuses_is_told(host: BedrockBatchHost, tmp_path: Path) -> None:
    async with ours(batch_s3_bucket="not-there") as api:
        with pytest.raises(NotFound, match="NoSuchBucket"):
            await api.create(job_of(api, tmp_path, bodies()))
    async with ours(batch_role_arn=ROLE + "2") as api:
        with pytest.raises(AccessDenied, match="assume"):
            await api.create(job_of(api, tmp_path, bodies()))
    host.least = 100
    async with ours() as api:
        assert api.limits.least == 100
        with pytest.raises(BadRequest, match="at least 100"):
            await api.create(job_of(api, tmp_path, bodies()))


async def test_jobs_beyond_the_accounts_quota_are_turned_away_as_too_many(
    host: BedrockBatchHost, tmp_path: Path
) -> None:
    words = "Your account has reached its quota of in-progress batch inference jobs for this model."
    host.troubles += [("create", Fault(400, words, "ServiceQuotaExceededException"))] * 20
    async with ours() as api:
        with pytest.raises(RateLimited, match="in-progress"):
            await api.create(job_of(api, tmp_path, bodies()))
        host.troubles.clear()
        await api.create(job_of(api, tmp_path, bodies()))
    assert len(host.jobs) == 1


async def test_a_table_of_addresses() -> None:
    """Where storage is asked, without anything in the environment and with it."""
    async with ours() as api:
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
    async with ours() as api:
        assert (api._http.url, api._bucket._http.url) == (
            "http://127.0.0.1:4566",
            f"http://127.0.0.1:4566/{BUCKET}",
        )


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        ("batch_role_arn", "`providers.bedrock.batch_role_arn` in a key file or parameters.batch_role_arn"),
        (
            "batch_s3_bucket",
            "`providers.bedrock.batch_s3_bucket` in a key file or parameters.batch_s3_bucket",
        ),
    ],
)
async def test_a_missing_setting_is_told_with_its_way_out(left_out: str, words: str) -> None:
    options = {name: value for name, value in spec().options.items() if name != left_out}
    bare = ModelSpec(name="m", interface="bedrock", model=MODEL, options=options)
    with pytest.raises(UsageError) as told:
        async with batches_at(BedrockBatches, bare, ENV):
            pass
    assert words in str(told.value)


async def test_all_settings_that_are_missing_are_told_at_once() -> None:
    bare = ModelSpec(name="m", interface="bedrock", model=MODEL, options={"region": "us-east-1"})
    with pytest.raises(UsageError) as told:
        async with batches_at(BedrockBatches, bare, ENV):
            pass
    assert [line.split(" needs ")[1].split()[0] for line in str(told.value).splitlines()] == [
        "batch_role_arn",
        "batch_s3_bucket",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_s3_bucket": "No Bucket"}, "no bucket of Amazon S3"),
        ({"batch_role_arn": "batches"}, "is no role"),
    ],
)
async def test_a_setting_that_cannot_be_is_told(options: Mapping[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        async with ours(**options):
            pass


async def test_an_address_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "minio:9000")
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL_S3 in the environment"):
        async with ours():
            pass


async def test_an_api_key_of_bedrock_opens_no_storage() -> None:
    with pytest.raises(UsageError, match="takes no API key"):
        async with batches_at(BedrockBatches, spec(), {"AWS_BEARER_TOKEN_BEDROCK": "made-up-key"}):
            pass
