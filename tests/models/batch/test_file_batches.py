"""Batches made of files, at OpenAI, Azure OpenAI and Mistral; their own clients drive the same fakes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest
from batch_at import DATED, KEY, TEXTS, At, batching_at, collected
from fakes.file_batches import FileBatchHost
from fakes.mistral_batches import MistralBatchHost
from fakes.openai_batches import OpenAiBatchHost
from fakes.openai_chat import Fault
from mistralai.client import Mistral

from coeval.core.errors import BadRequest, RateLimited, ServerFault, Unreadable
from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import DamagedResult
from coeval.models.batch.openai_files import TAG, AzureBatches, OpenAiBatches

MODEL = "some-model"


@pytest.fixture(params=["openai", "azure", "azure v1", "mistral"])
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[At]:
    async with batching_at(request.param, tmp_path) as found:
        yield found


of_openai = pytest.mark.parametrize("at", ["openai", "azure", "azure v1"], indirect=True)
of_azure = pytest.mark.parametrize("at", ["azure"], indirect=True)
of_mistral = pytest.mark.parametrize("at", ["mistral"], indirect=True)


def openais_client(at: At) -> openai.AsyncOpenAI:
    url: str = at.host.url
    known: Any = {"api_key": KEY, "max_retries": 0}
    if at.batching.interface == "openai":
        return openai.AsyncOpenAI(base_url=url, **known)
    if "AZURE_OPENAI_API_VERSION" in at.env:
        return openai.AsyncAzureOpenAI(azure_endpoint=url, api_version=DATED, **known)
    return openai.AsyncOpenAI(base_url=f"{url}/openai/v1", default_headers={"api-key": KEY}, **known)


def mistrals_client(at: At) -> Mistral:
    return Mistral(api_key=KEY, server_url=at.host.url.removesuffix("/v1"))


def submitted(host: FileBatchHost) -> list[tuple[list[Any], dict[str, Any]]]:
    """The requests of each job as they came, and what the job was made with beside the file."""
    reported = []
    for job in host.jobs.values():
        (name,) = job.body.get("input_files", [job.body.get("input_file_id")])
        lines = [json.loads(line) for line in host.files[name].content.splitlines()]
        beside = job.body.keys() - {"input_file_id", "input_files", "created_at"}
        reported.append((lines, {key: job.body[key] for key in beside}))
    return reported


def written(**beside: Any) -> bytes:
    """Requests as whoever uses a client writes them; ``beside`` the id, and a model in the body or none."""
    model = {"model": MODEL} if beside else {}
    lines = []
    for number, text in enumerate(TEXTS, 1):
        body = {**model, "messages": [{"role": "user", "content": text}], "max_tokens": 50}
        lines.append(json.dumps({"custom_id": f"{number:032x}", **beside, "body": body}))
    return "\n".join(lines).encode()


def openai_lines(host: OpenAiBatchHost) -> bytes:
    return written(method="POST", url=host.request_url)


@of_openai
async def test_openais_client_and_we_submit_equal_jobs(at: At) -> None:
    async with openais_client(at) as official:
        file = await official.files.create(file=("requests.jsonl", openai_lines(at.host)), purpose="batch")
        await official.batches.create(
            input_file_id=file.id,
            endpoint=at.host.request_url,
            completion_window="24h",
            metadata={TAG: "a" * 32},
        )
    async with at.open() as api:
        await at.made(api)
    theirs, ours = submitted(at.host)
    assert ours == theirs


@of_mistral
async def test_mistrals_client_and_we_submit_equal_jobs(at: At) -> None:
    async with mistrals_client(at) as official:
        file = await official.files.upload_async(
            file={"file_name": "requests.jsonl", "content": written()}, purpose="batch"
        )
        await official.batch.jobs.create_async(
            input_files=[file.id], model=MODEL, endpoint="/v1/chat/completions", metadata={TAG: "a" * 32}
        )
    async with at.open() as api:
        await at.made(api)
    theirs, ours = submitted(at.host)
    assert ours == theirs


@of_openai
async def test_openais_client_drives_a_batch_through_its_life(at: At) -> None:
    async with openais_client(at) as official:
        endpoint: Any = at.host.request_url
        file = await official.files.create(file=("requests.jsonl", openai_lines(at.host)), purpose="batch")
        batch = await official.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h"
        )
        seen = [batch.status]
        while batch.status != "completed":
            batch = await official.batches.retrieve(batch.id)
            seen.append(batch.status)
        assert seen == ["validating", "validating", "in_progress", "finalizing", "completed"]
        assert batch.request_counts is not None
        assert batch.request_counts.completed == len(TEXTS)
        assert batch.output_file_id is not None
        content = await official.files.content(batch.output_file_id)
        texts = {
            line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
            for line in map(json.loads, content.text.splitlines())
        }
        assert [texts[f"{number:032x}"] for number in range(1, 6)] == [text.upper() for text in TEXTS]
        assert list(texts) != sorted(texts)
        with pytest.raises(openai.ConflictError):
            await official.batches.cancel(batch.id)
        assert [found.id async for found in official.batches.list(limit=1)] == [batch.id]


@of_mistral
async def test_mistrals_client_drives_a_job_through_its_life(at: At) -> None:
    async with mistrals_client(at) as official:
        line = {"custom_id": "0", "body": {"messages": [{"role": "user", "content": "one"}]}}
        file = await official.files.upload_async(
            file={"file_name": "requests.jsonl", "content": json.dumps(line).encode()}, purpose="batch"
        )
        jobs = official.batch.jobs
        job = await jobs.create_async(input_files=[file.id], model=MODEL, endpoint="/v1/chat/completions")
        seen = [(job.status, job.total_requests)]
        while job.status != "SUCCESS":
            job = await jobs.get_async(job_id=job.id)
            seen.append((job.status, job.total_requests))
        assert seen == [("QUEUED", 0), ("QUEUED", 0), ("RUNNING", 1), ("SUCCESS", 1)]
        assert isinstance(job.output_file, str)
        content = await official.files.download_async(file_id=job.output_file)
        reported = json.loads(await content.aread())
        assert reported["response"]["body"]["choices"][0]["message"]["content"] == "ONE"
        listed = await jobs.list_async(page_size=10)
        assert [found.id for found in listed.data or []] == [job.id]


async def test_a_lost_job_is_found_on_a_later_page(at: At) -> None:
    async with at.open() as api:
        job = at.job(api, "one")
        job_id = await api.create(job)
        first = at.host.jobs[job_id]
        for number in range(2, 132):
            name, body = f"batch_{number:04d}", {**first.body, "metadata": {TAG: f"{number:032x}"}}
            at.host.jobs[name] = dataclasses.replace(first, id=name, made=number, body=body)
            at.host.endings[name] = at.host.endings[job_id]
        assert await api.find(job) == job_id
        assert at.host.heard.count("list") == 2


async def test_a_file_that_is_too_large_is_refused(at: At) -> None:
    async with at.open() as api:
        job = at.job(api)
        at.host.most_bytes = job.bytes
        await api.create(job)
        at.host.most_bytes -= 1
        with pytest.raises(BadRequest, match="too large") as refused:
            await api.create(job)
    assert refused.value.status == 413
    assert len(at.host.jobs) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": "batch_expired", "message": "m"}, None),
        ({"code": "batch_cancelled", "message": "m"}, None),
        ({"code": "request_timeout", "message": "m"}, 504),
        ({"code": "another", "message": "m"}, 500),
        ("words", 500),
        (None, "damaged"),
    ],
)
def test_what_has_no_answer_was_not_asked_or_failed_or_says_nothing(
    error: Any, status: int | str | None
) -> None:
    text = json.dumps({"custom_id": "a", "response": None, "error": error}).encode()
    if status == "damaged":
        with pytest.raises(Unreadable):
            OpenAiBatches.read_result(text)
        return
    line = OpenAiBatches.read_result(text)
    assert line.status == status
    assert json.loads(line.body) == {"error": error}


@pytest.mark.parametrize(
    ("change", "damaged"),
    [
        (lambda content: content.rstrip() + b"\n", []),
        (lambda content: content.rstrip(), []),
        (lambda content: content.rstrip() + b"\n\n", []),
        (lambda content: content[:-40], ["line 5"]),
    ],
    ids=["a feed at the end", "none", "two", "the last cut"],
)
async def test_every_line_is_read_and_one_that_cannot_be_is_told(
    at: At, change: Callable[[bytes], bytes], damaged: list[str]
) -> None:
    async with at.open() as api:
        job_id = await at.made(api)
        for _ in at.host.states:
            await api.check(job_id)
        for name, file in at.host.files.items():
            if file.purpose == "batch_output":
                at.host.files[name] = file._replace(content=change(file.content))
        reported = await collected(api, job_id, at.folder)
    assert [line.where for line in reported if isinstance(line, DamagedResult)] == damaged
    assert len(reported) == len(TEXTS)


@of_openai
async def test_what_is_wrong_with_a_file_fails_the_job(at: At) -> None:
    at.host.most_requests = 4
    async with at.open() as api:
        progress = await api.check(await at.made(api))
    assert progress.state == "failed"
    assert isinstance(progress.error, BadRequest)
    assert "more than 4 requests" in str(progress.error)


@of_mistral
async def test_what_a_job_did_before_it_failed_is_collected(at: At) -> None:
    assert isinstance(at.host, MistralBatchHost)
    at.host.states, at.host.failed_on_the_way, at.host.done = ("RUNNING", "FAILED"), True, 2
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        progress = await api.check(job_id)
        assert (progress.state, progress.shown, progress.done) == ("expired", "FAILED", 2)
        assert len(await at.replies(api, job_id)) == 2


# Azure


@of_azure
async def test_a_batch_without_metadata_is_found_by_its_file(at: At) -> None:
    at.host.remembers = False
    async with at.open() as api:
        await at.made(api, tag="b" * 32)
        job = at.job(api)
        assert await api.find(job) is None
        assert await api.find(job._replace(written_at=0)) is None
        job_id = await api.create(job)
        assert await api.find(job) == job_id


@of_azure
async def test_azures_rest_interface_is_read(at: At) -> None:
    """States with a capital, times as text, counts that are null while the file is looked at."""
    at.host.restful = True
    async with at.open() as api:
        job = at.job(api)
        job_id = await api.create(job)
        seen = [await api.check(job_id) for _ in at.host.states]
        assert [progress.state for progress in seen] == ["running", "running", "running", "ended"]
        assert (seen[0].shown, seen[0].total, seen[-1].done) == ("Validating", None, 5)
        assert await api.find(job) == job_id
        assert len(await at.replies(api, job_id)) == len(TEXTS)


@of_azure
async def test_a_file_is_waited_for_until_it_can_be_used(at: At) -> None:
    async with at.open() as api:
        at.host.unready = 3
        await at.made(api)
        assert at.host.heard == ["upload", "file", "file", "file", "create"]
        at.host.unready = 1000
        with pytest.raises(ServerFault, match="its status is pending"):
            await at.made(api)
    assert len(at.host.jobs) == 1


@of_azure
async def test_a_queue_that_is_full_may_have_room_later(at: At) -> None:
    """Azure refuses a batch by 400 where what is enqueued already leaves no room for its tokens."""
    full = Fault(400, "The number of enqueued tokens has surpassed the limit.", code="token_limit_exceeded")
    async with at.open() as api:
        at.host.troubles = [("create", full)]
        with pytest.raises(RateLimited, match="enqueued tokens"):
            await at.made(api)
        at.host.troubles = [("create", Fault(400, "no", code="other"))]
        with pytest.raises(BadRequest):
            await at.made(api)
        at.host.failed_with = ("token_limit_exceeded", "The limit of 30K is reached.")
        at.host.states = ("validating", "failed")
        job_id = await at.made(api)
        await api.check(job_id)
        assert isinstance((await api.check(job_id)).error, RateLimited)


ENDPOINT = "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("settings", "below"),
    [
        ({"api_version": DATED}, "/openai/batches?api-version=2025-04-01-preview&limit=1"),
        ({"api_version": "preview"}, "/batches?api-version=preview&limit=1"),
        ({"api_version": "v1"}, "/batches?limit=1"),
        ({"api_version": ""}, "/batches?limit=1"),
        ({"endpoint": ENDPOINT}, "/openai/batches?api-version=2024-10-21&limit=1"),
    ],
)
def test_azures_paths_follow_the_version(settings: Mapping[str, str], below: str) -> None:
    url = None if "endpoint" in settings else "https://r.openai.azure.com"
    spec = ModelSpec(name="m", interface="azure_openai", model=MODEL, base_url=url)
    paths = AzureBatches.paths(AzureBatches.__new__(AzureBatches), spec, settings)
    assert paths.make_path("/batches", "limit=1") == below
