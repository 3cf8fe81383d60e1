"""Batches made of files, at OpenAI, Azure OpenAI and Mistral; their own clients drive the same fakes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from batch_at import MadeBatches, batches_at, bodies_of, collected, job_of, replies
from fakes.batch_jobs import LOST
from fakes.file_batches import FileBatchHost
from fakes.mistral_batches import MistralBatchHost, mistral_batches
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer, Fault
from mistralai.client import Mistral

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ConnectionFailed,
    NotFound,
    RateLimited,
    ServerFault,
)
from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import BatchApi, BatchReply, BatchState, DamagedResult
from coeval.models.batch.batch_files import TAG, file_replies
from coeval.models.batch.mistral_batches import MistralBatches
from coeval.models.batch.openai_files import AzureBatches, OpenAiBatches

KEY = "test-key-0123456789abcdef"
MODEL = "some-model"
TEXTS = ("one", "two", "three", "four", "five")
DATED = "2025-04-01-preview"

Submit = Callable[[FileBatchHost, bytes, dict[str, str]], Awaitable[str]]


def of_openai(host: FileBatchHost) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=host.url, api_key=KEY, max_retries=0)


def of_azure(host: FileBatchHost) -> openai.AsyncOpenAI:
    return openai.AsyncAzureOpenAI(azure_endpoint=host.url, api_key=KEY, api_version=DATED, max_retries=0)


def of_azure_v1(host: FileBatchHost) -> openai.AsyncOpenAI:
    headers = {"api-key": KEY}
    return openai.AsyncOpenAI(
        base_url=f"{host.url}/openai/v1", api_key=KEY, max_retries=0, default_headers=headers
    )


def of_mistral(host: FileBatchHost) -> Mistral:
    return Mistral(api_key=KEY, server_url=host.url.removesuffix("/v1"))


@dataclass(frozen=True)
class Files:
    """One interface: its class, its fake, the environment that leads there."""

    interface: str
    made: MadeBatches[Any]
    serve: Callable[[], AbstractAsyncContextManager[FileBatchHost]]
    env: Mapping[str, str]
    ended: str = "completed"
    expired: str = "expired"
    client: Callable[[FileBatchHost], openai.AsyncOpenAI] | None = None

    def spec(self, host: FileBatchHost) -> ModelSpec:
        return ModelSpec(name="m", interface=self.interface, model=MODEL, base_url=host.url)

    def at(
        self, host: FileBatchHost, env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[BatchApi]:
        opened: AbstractAsyncContextManager[BatchApi] = batches_at(
            self.made, self.spec(host), env if env is not None else self.env
        )
        return opened

    def bodies(self, host: FileBatchHost, *texts: str) -> dict[str, bytes]:
        return bodies_of(self.spec(host), self.env, texts or TEXTS)


INTERFACES = {
    "openai": Files(
        "openai",
        OpenAiBatches,
        lambda: openai_batches("openai", keys=[KEY]),
        {"OPENAI_API_KEY": KEY},
        client=of_openai,
    ),
    "azure": Files(
        "azure_openai",
        AzureBatches,
        lambda: openai_batches("azure_openai", keys=[KEY]),
        {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_API_VERSION": DATED},
        client=of_azure,
    ),
    "azure v1": Files(
        "azure_openai",
        AzureBatches,
        lambda: openai_batches("azure_openai v1", keys=[KEY]),
        {"AZURE_OPENAI_API_KEY": KEY},
        client=of_azure_v1,
    ),
    "mistral": Files(
        "mistral",
        MistralBatches,
        lambda: mistral_batches(keys=[KEY]),
        {"MISTRAL_API_KEY": KEY},
        ended="SUCCESS",
        expired="TIMEOUT_EXCEEDED",
    ),
}


@pytest.fixture(params=[*INTERFACES.values()], ids=[*INTERFACES])
def files(request: pytest.FixtureRequest) -> Files:
    chosen: Files = request.param
    return chosen


@pytest.fixture
async def host(files: Files) -> AsyncIterator[FileBatchHost]:
    async with files.serve() as running:
        yield running


def text_of(body: Mapping[str, Any]) -> str:
    return str(body["messages"][0]["content"])


def in_capitals(body: dict[str, Any]) -> Answer:
    return Answer(text_of(body).upper())


def submitted(host: FileBatchHost) -> list[tuple[list[Any], dict[str, Any]]]:
    """The requests of each job as they came, and what the job was made with beside the file."""
    told = []
    for job in host.jobs.values():
        (name,) = job.body.get("input_files", [job.body.get("input_file_id")])
        lines = [json.loads(line) for line in host.files[name].content.splitlines()]
        rest = {
            key: job.body[key] for key in job.body.keys() - {"input_file_id", "input_files", "created_at"}
        }
        told.append((lines, rest))
    return told


def openai_lines(url: str) -> bytes:
    """Requests as whoever uses the client writes them."""
    return b"\n".join(
        json.dumps(
            {
                "custom_id": f"{number:032x}",
                "method": "POST",
                "url": url,
                "body": {
                    "model": MODEL,
                    "messages": [{"role": "user", "content": text}],
                    "max_tokens": 50,
                },
            }
        ).encode()
        for number, text in enumerate(TEXTS, 1)
    )


@pytest.mark.parametrize("name", ["openai", "azure", "azure v1"])
async def test_openais_client_and_we_submit_equal_jobs(name: str, tmp_path: Path) -> None:
    files = INTERFACES[name]
    async with files.serve() as host:
        assert isinstance(host, OpenAiBatchHost)
        assert files.client is not None
        async with files.client(host) as official:
            lines = openai_lines(host.request_url)
            file = await official.files.create(file=("requests.jsonl", lines), purpose="batch")
            endpoint: Any = host.request_url
            await official.batches.create(
                input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={TAG: "a" * 32}
            )
        async with files.at(host) as api:
            await api.create(job_of(api, tmp_path, files.bodies(host)))
        theirs, ours = submitted(host)
        assert ours == theirs


async def test_mistrals_client_and_we_submit_equal_jobs(tmp_path: Path) -> None:
    files = INTERFACES["mistral"]
    lines = b"\n".join(
        json.dumps(
            {
                "custom_id": f"{number:032x}",
                "body": {"messages": [{"role": "user", "content": text}], "max_tokens": 50},
            }
        ).encode()
        for number, text in enumerate(TEXTS, 1)
    )
    async with files.serve() as host:
        async with of_mistral(host) as official:
            file = await official.files.upload_async(
                file={"file_name": "requests.jsonl", "content": lines}, purpose="batch"
            )
            await official.batch.jobs.create_async(
                input_files=[file.id],
                model=MODEL,
                endpoint="/v1/chat/completions",
                metadata={TAG: "a" * 32},
            )
        async with files.at(host) as api:
            await api.create(job_of(api, tmp_path, files.bodies(host)))
        theirs, ours = submitted(host)
        assert ours == theirs


@pytest.mark.parametrize("name", ["openai", "azure", "azure v1"])
async def test_openais_client_drives_a_batch_through_its_life(name: str) -> None:
    files = INTERFACES[name]
    async with files.serve() as host:
        assert isinstance(host, OpenAiBatchHost)
        assert files.client is not None
        host.says = in_capitals
        async with files.client(host) as official:
            endpoint: Any = host.request_url
            file = await official.files.create(
                file=("requests.jsonl", openai_lines(endpoint)), purpose="batch"
            )
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
            told = [json.loads(line) for line in content.text.splitlines()]
            texts = {
                line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
                for line in told
            }
            assert [texts[f"{number:032x}"] for number in range(1, 6)] == [text.upper() for text in TEXTS]
            assert list(texts) != sorted(texts)
            with pytest.raises(openai.ConflictError):
                await official.batches.cancel(batch.id)
            assert [found.id async for found in official.batches.list(limit=1)] == [batch.id]


async def test_mistrals_client_drives_a_job_through_its_life() -> None:
    async with mistral_batches(keys=[KEY]) as host, of_mistral(host) as official:
        host.says = in_capitals
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
        told = json.loads(await content.aread())
        assert told["response"]["body"]["choices"][0]["message"]["content"] == "ONE"
        listed = await jobs.list_async(page_size=10)
        assert [found.id for found in listed.data or []] == [job.id]


async def test_a_job_through_its_life(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    host.says = in_capitals
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        seen: list[BatchState] = []
        for _ in host.states:
            progress = await api.check(job_id)
            seen.append(progress.state)
        assert (seen[0], seen[1], seen[-1]) == ("waiting", "running", "ended")
        assert (progress.shown, progress.total, progress.done, progress.failed) == (files.ended, 5, 5, 0)
        found = await replies(api, job_id, tmp_path)
    for (custom_id, _), text in zip(files.bodies(host).items(), TEXTS, strict=True):
        answer = msgspec.json.decode(found[custom_id].body)
        assert (found[custom_id].status, answer["choices"][0]["message"]["content"]) == (200, text.upper())
    assert [text_of(asked.body) for asked in host.asked] == list(TEXTS)


async def test_a_failed_request_has_the_status_and_body_that_it_has_live(
    files: Files, host: FileBatchHost, tmp_path: Path
) -> None:
    filtered = Fault(400, "The prompt was filtered.", code="content_filter", param="prompt")

    def says(body: dict[str, Any]) -> Answer | Fault:
        return {"two": filtered, "four": Fault(500, "oh")}.get(text_of(body)) or Answer("ok")

    host.says = says
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        for _ in host.states:
            progress = await api.check(job_id)
        found = await replies(api, job_id, tmp_path)
    assert (progress.state, progress.done, progress.failed) == ("ended", 3, 2)
    assert [found[custom_id].status for custom_id in files.bodies(host)] == [200, 400, 200, 500, 200]
    assert b"The prompt was filtered." in found[f"{2:032x}"].body


async def test_what_expired_was_never_asked(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    host.states, host.done = (host.states[0], files.expired), 2
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        await api.check(job_id)
        assert (await api.check(job_id)).state == "expired"
        found = await replies(api, job_id, tmp_path)
    assert [found[custom_id].status for custom_id in files.bodies(host)] == [200, 200, None, None, None]
    assert len(host.asked) == 2


async def test_a_cancelled_job_gives_what_is_done(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    host.done = 3
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        await api.check(job_id)
        await api.cancel(job_id)
        assert (await api.check(job_id)).state == "cancelled"
        assert len(await replies(api, job_id, tmp_path)) == 3
        await api.cancel(job_id)  # it has ended: there is nothing to be done


async def test_a_failed_job_says_why(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    host.states, host.failed_with = (host.states[0], "failed"), ("some_code", f"nothing works, {KEY} least")
    if isinstance(host, MistralBatchHost):
        host.states = ("QUEUED", "FAILED")
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        await api.check(job_id)
        progress = await api.check(job_id)
    assert progress.state == "failed"
    assert isinstance(progress.error, BadRequest)
    assert "nothing works" in str(progress.error)
    assert KEY not in str(progress.error)


async def test_a_job_whose_id_was_lost_is_found_by_its_tag(
    files: Files, host: FileBatchHost, tmp_path: Path
) -> None:
    async with files.at(host) as api:
        others = [await api.create(job_of(api, tmp_path, files.bodies(host), tag=mark * 32)) for mark in "bc"]
        host.troubles = [("create", LOST)]
        job = job_of(api, tmp_path, files.bodies(host))
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        lost = await api.find(job)
    assert lost is not None
    assert lost not in others
    assert len(host.jobs) == 3


async def test_a_job_that_never_came_is_not_found(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    host.troubles = [("create", Fault(503, "overloaded"))]
    async with files.at(host) as api:
        job = job_of(api, tmp_path, files.bodies(host))
        with pytest.raises(ServerFault):
            await api.create(job)
        assert await api.find(job) is None
        await api.create(job)
    assert len(host.jobs) == 1


@pytest.mark.slow
async def test_a_lost_job_is_found_on_a_later_page(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    async with files.at(host) as api:
        job = job_of(api, tmp_path, files.bodies(host, "one"))
        job_id = await api.create(job)
        for number in range(130):
            await api.create(job_of(api, tmp_path, files.bodies(host, "one"), tag=f"{number:032x}"))
        assert await api.find(job) == job_id
        assert host.heard.count("list") == 2


async def test_a_file_that_is_too_large_is_refused(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    async with files.at(host) as api:
        job = job_of(api, tmp_path, files.bodies(host))
        host.most_bytes = job.bytes
        await api.create(job)
        host.most_bytes -= 1
        with pytest.raises(BadRequest, match="too large") as refused:
            await api.create(job)
    assert refused.value.status == 413
    assert len(host.jobs) == 1


async def test_a_wrong_key_is_named_and_not_shown(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    env = {name: value.replace(KEY, "wrong-key-0123456789") for name, value in files.env.items()}
    async with files.at(host, env) as api:
        with pytest.raises(AccessDenied) as denied:
            await api.create(job_of(api, tmp_path, files.bodies(host)))
    assert "wrong-key" not in str(denied.value)


async def test_a_job_that_is_gone_is_not_found(files: Files, host: FileBatchHost, tmp_path: Path) -> None:
    async with files.at(host) as api:
        with pytest.raises(NotFound):
            await api.check("batch/../gone")
        with pytest.raises(NotFound):
            await replies(api, "gone", tmp_path)
    assert host.jobs == {}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": "batch_expired", "message": "m"}, None),
        ({"code": "batch_cancelled", "message": "m"}, None),
        ({"code": "request_timeout", "message": "m"}, 504),
        ({"code": "another", "message": "m"}, 500),
        ("words", 500),
    ],
)
def test_what_has_no_answer_was_not_asked_or_failed(tmp_path: Path, error: Any, status: int | None) -> None:
    results = tmp_path / "results.jsonl"
    results.write_bytes(json.dumps({"custom_id": "a", "response": None, "error": error}).encode())
    (reply,) = file_replies(results)
    assert isinstance(reply, BatchReply)
    assert reply.status == status
    assert json.loads(reply.body) == {"error": error}


def test_a_line_without_an_answer_or_an_error_says_nothing(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_bytes(json.dumps({"custom_id": "a", "response": None, "error": None}).encode())
    (line,) = file_replies(results)
    assert isinstance(line, DamagedResult)


@pytest.mark.parametrize("feed", [b"\n", b"", b"\n\n"])
async def test_the_last_result_counts_without_a_line_feed(
    files: Files, host: FileBatchHost, tmp_path: Path, feed: bytes
) -> None:
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        for _ in host.states:
            await api.check(job_id)
        for name, file in host.files.items():
            if file.purpose == "batch_output":
                host.files[name] = file._replace(content=file.content.rstrip() + feed)
        assert len(await replies(api, job_id, tmp_path)) == len(TEXTS)


async def test_a_line_that_cannot_be_read_is_told_and_the_others_follow(
    files: Files, host: FileBatchHost, tmp_path: Path
) -> None:
    async with files.at(host) as api:
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        for _ in host.states:
            await api.check(job_id)
        for name, file in host.files.items():
            if file.purpose == "batch_output":
                host.files[name] = file._replace(content=file.content[:-40])
        told = await collected(api, job_id, tmp_path)
    assert [line.where for line in told if isinstance(line, DamagedResult)] == ["line 5"]
    assert len(told) == len(TEXTS)


@pytest.mark.parametrize("name", ["openai", "azure", "azure v1"])
async def test_what_is_wrong_with_a_file_fails_the_job(name: str, tmp_path: Path) -> None:
    files = INTERFACES[name]
    async with files.serve() as host, files.at(host) as api:
        host.most_requests = 4
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        progress = await api.check(job_id)
    assert progress.state == "failed"
    assert isinstance(progress.error, BadRequest)
    assert "more than 4 requests" in str(progress.error)


async def test_what_a_job_did_before_it_failed_is_collected(tmp_path: Path) -> None:
    files = INTERFACES["mistral"]
    async with files.serve() as host, files.at(host) as api:
        assert isinstance(host, MistralBatchHost)
        host.states, host.failed_on_the_way, host.done = ("RUNNING", "FAILED"), True, 2
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        await api.check(job_id)
        progress = await api.check(job_id)
        assert (progress.state, progress.shown, progress.done) == ("expired", "FAILED", 2)
        assert len(await replies(api, job_id, tmp_path)) == 2


async def test_a_batch_without_metadata_is_found_by_its_file(tmp_path: Path) -> None:
    files = INTERFACES["azure"]
    async with files.serve() as host, files.at(host) as api:
        assert isinstance(host, OpenAiBatchHost)
        host.remembers = False
        await api.create(job_of(api, tmp_path, files.bodies(host), tag="b" * 32))
        job = job_of(api, tmp_path, files.bodies(host))
        assert await api.find(job) is None
        assert await api.find(job._replace(written_at=0)) is None
        job_id = await api.create(job)
        assert await api.find(job) == job_id


async def test_azures_rest_interface_is_read(tmp_path: Path) -> None:
    """States with a capital, times as text, counts that are null while the file is looked at."""
    files = INTERFACES["azure"]
    async with files.serve() as host, files.at(host) as api:
        assert isinstance(host, OpenAiBatchHost)
        host.restful = True
        job = job_of(api, tmp_path, files.bodies(host))
        job_id = await api.create(job)
        seen = [await api.check(job_id) for _ in host.states]
        assert [progress.state for progress in seen] == ["waiting", "running", "running", "ended"]
        assert (seen[0].shown, seen[0].total, seen[-1].done) == ("Validating", None, 5)
        assert await api.find(job) == job_id
        assert len(await replies(api, job_id, tmp_path)) == len(TEXTS)


async def test_a_file_is_waited_for_until_it_can_be_used(tmp_path: Path) -> None:
    files = INTERFACES["azure"]
    async with files.serve() as host, files.at(host) as api:
        host.unready = 3
        await api.create(job_of(api, tmp_path, files.bodies(host)))
        assert host.heard == ["upload", "file", "file", "file", "create"]
        host.unready = 1000
        with pytest.raises(ServerFault, match="its status is pending"):
            await api.create(job_of(api, tmp_path, files.bodies(host)))
    assert len(host.jobs) == 1


async def test_a_queue_that_is_full_may_have_room_later(tmp_path: Path) -> None:
    """Azure refuses a batch by 400 where what is enqueued already leaves no room for its tokens."""
    files = INTERFACES["azure"]
    full = Fault(400, "The number of enqueued tokens has surpassed the limit.", code="token_limit_exceeded")
    async with files.serve() as host, files.at(host) as api:
        host.troubles = [("create", full)]
        with pytest.raises(RateLimited, match="enqueued tokens"):
            await api.create(job_of(api, tmp_path, files.bodies(host)))
        host.troubles = [("create", Fault(400, "no", code="other"))]
        with pytest.raises(BadRequest):
            await api.create(job_of(api, tmp_path, files.bodies(host)))
        host.failed_with = ("token_limit_exceeded", "The limit of 30K is reached.")
        host.states = ("validating", "failed")
        job_id = await api.create(job_of(api, tmp_path, files.bodies(host)))
        await api.check(job_id)
        assert isinstance((await api.check(job_id)).error, RateLimited)


@pytest.mark.parametrize(
    ("version", "below"),
    [
        ("2025-04-01-preview", "/openai/batches?api-version=2025-04-01-preview&limit=1"),
        ("preview", "/batches?api-version=preview&limit=1"),
        ("v1", "/batches?limit=1"),
        ("", "/batches?limit=1"),
    ],
)
def test_azures_paths_follow_the_version(version: str, below: str) -> None:
    spec = ModelSpec(name="m", interface="azure_openai", model=MODEL, base_url="https://r.openai.azure.com")
    paths = AzureBatches.paths(AzureBatches.__new__(AzureBatches), spec, {"api_version": version})
    assert paths.to("/batches", "limit=1") == below


def test_a_version_in_the_endpoint_counts_for_batches_too() -> None:
    endpoint = "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"
    spec = ModelSpec(name="m", interface="azure_openai", model=MODEL)
    paths = AzureBatches.paths(AzureBatches.__new__(AzureBatches), spec, {"endpoint": endpoint})
    assert paths.to("/files") == "/openai/files?api-version=2024-10-21"
