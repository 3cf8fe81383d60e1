"""Gemini's batches at a fake that Google's own client drives as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from batch_at import batches_at, bodies_of, job_of, replies
from fakes.batch_jobs import LOST
from fakes.gemini import Answer, Blocked, Fault
from fakes.gemini_batches import GeminiBatchHost, fake_gemini_batches
from fakes.gemini_request import in_camel_case
from google import genai
from google.genai import errors, types

import coeval.models.batch.gemini_batches as module
from coeval.core.errors import AccessDenied, BadRequest, ConnectionFailed, ContentFiltered, RateLimited
from coeval.core.model import ModelSpec
from coeval.core.redaction import Redactor
from coeval.models.batch.gemini_batches import GeminiBatches
from coeval.models.dialects.dialect import FieldRejected
from coeval.models.dialects.gemini import GEMINI
from coeval.models.transport.connection import HttpReply

KEY = "AIzaSyMadeUp0123456789abcdefghijklmnop"
ENV = {"GEMINI_API_KEY": KEY}
MODEL = "gemini-2.5-flash"
T = TypeVar("T")
TEXTS = ("one", "two", "three", "four", "five")


def of_text(fates: Mapping[str, Any]) -> Any:
    """What an item is answered with, by its text; those that are not named with it in capitals."""

    def says(body: dict[str, Any]) -> Any:
        text = body["contents"][0]["parts"][0]["text"]
        return fates.get(text, Answer(text.upper()))

    return says


@pytest.fixture
async def host() -> AsyncIterator[GeminiBatchHost]:
    async with fake_gemini_batches(keys=frozenset({KEY}), says=of_text({})) as running:
        yield running


def spec(host: GeminiBatchHost) -> ModelSpec:
    return ModelSpec(name="m", interface="gemini", model=MODEL, base_url=host.url)


def ours(host: GeminiBatchHost) -> AbstractAsyncContextManager[GeminiBatches]:
    return batches_at(GeminiBatches, spec(host), ENV)


def bodies(host: GeminiBatchHost, *texts: str) -> dict[str, bytes]:
    return bodies_of(spec(host), ENV, texts or TEXTS)


async def by_client(host: GeminiBatchHost, drive: Callable[[genai.Client], T]) -> T:
    """What Google's own client makes of it; in a thread, as its other face warns of itself."""

    def driven() -> T:
        client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=host.url))
        try:
            return drive(client)
        finally:
            client.close()

    return await asyncio.to_thread(driven)


def asked_for(text: str) -> Any:
    """A request as the client is given it: with the parameters that `bodies` has."""
    return {
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        "config": {"max_output_tokens": 50},
        "metadata": {"key": f"key-{text}"},
    }


@pytest.fixture
def by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small job's requests are uploaded."""
    monkeypatch.setattr(module, "INLINE_REQUESTS", 1)


# The client


async def test_the_client_sends_the_requests_that_we_send(host: GeminiBatchHost, tmp_path: Path) -> None:
    def create(client: genai.Client) -> None:
        requests = [asked_for(text) for text in TEXTS]
        client.batches.create(model=MODEL, src=requests, config={"display_name": "n"})

    await by_client(host, create)
    witnessed = [asked.body for asked in host.asked]
    async with ours(host) as api:
        await api.create(job_of(api, tmp_path, bodies(host)))
    assert [in_camel_case(asked.body) for asked in host.asked[len(witnessed) :]] == in_camel_case(witnessed)


def drive(client: genai.Client) -> None:
    """One that ends, one that is cancelled, as the client sees them."""
    batches = client.batches
    requests = [asked_for(text) for text in TEXTS]
    made = batches.create(model=MODEL, src=requests, config={"display_name": "mine"})
    assert (made.display_name, made.state) == ("mine", types.JobState.JOB_STATE_PENDING)
    assert made.name is not None
    states = [str(batches.get(name=made.name).state).rpartition("_")[2] for _ in range(4)]
    assert states == ["PENDING", "RUNNING", "SUCCEEDED", "SUCCEEDED"]
    ended = batches.get(name=made.name)
    assert ended.dest is not None
    assert ended.dest.inlined_responses is not None
    told = {
        (each.metadata or {})["key"]: each.response.text if each.response else each.error
        for each in ended.dest.inlined_responses
    }
    assert told["key-one"] == "ONE"
    assert told["key-two"] == types.JobError(code=3, message="Invalid role")
    second = batches.create(model=MODEL, src=[asked_for("six")], config={"display_name": "other"})
    assert second.name is not None
    batches.cancel(name=second.name)
    assert batches.get(name=second.name).state == types.JobState.JOB_STATE_CANCELLED
    assert [job.display_name for job in batches.list(config={"page_size": 1})] == ["other", "mine"]
    with pytest.raises(errors.ClientError, match="not found"):
        batches.get(name="batches/none")


async def test_the_client_drives_a_batch_through_its_life(host: GeminiBatchHost) -> None:
    host.says = of_text({"two": Fault(400, "Invalid role")})
    await by_client(host, drive)


async def test_the_client_uploads_what_we_upload_and_reads_the_results_file(
    host: GeminiBatchHost, tmp_path: Path
) -> None:
    def drive_files(official: genai.Client) -> tuple[str, bytes]:
        stored = official.files.upload(file=str(job.lines), config={"mime_type": "jsonl"})
        assert stored.name is not None
        made = official.batches.create(model=MODEL, src=stored.name, config={"display_name": "mine"})
        assert made.name is not None
        found = [official.batches.get(name=made.name) for _ in range(3)][-1]
        assert found.dest is not None
        assert found.dest.file_name is not None
        results = official.files.download(file=found.dest.file_name)
        assert isinstance(results, bytes)
        return made.name, results

    async with ours(host) as api:
        job = job_of(api, tmp_path, bodies(host))
        job_id, results = await by_client(host, drive_files)
        assert set(await replies(api, job_id, tmp_path)) == set(bodies(host))
    assert (tmp_path / f"into-{job_id.replace('/', '-')}" / "results.jsonl").read_bytes() == results


# Ours


@pytest.mark.parametrize("way", ["inline", "file"])
async def test_answers_and_errors_are_those_of_live_requests(
    host: GeminiBatchHost, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "file":
        monkeypatch.setattr(module, "INLINE_BYTES", 10)
    host.says = of_text(
        {
            "two": Fault(400, "Invalid value at 'temperature'"),
            "three": Fault(429, "Resource has been exhausted"),
            "four": Blocked(),
            "five": Fault(499, "The operation was cancelled."),
        }
    )
    async with ours(host) as api:
        job = job_of(api, tmp_path, bodies(host))
        job_id = await api.create(job)
        seen = [await api.check(job_id) for _ in range(3)]
        assert [progress.state for progress in seen] == ["waiting", "running", "ended"]
        assert (seen[-1].total, seen[-1].done, seen[-1].failed) == (5, 2, 3)
        assert seen[-1].shown == "BATCH_STATE_SUCCEEDED"
        told = await replies(api, job_id, tmp_path)
    by_text = dict(zip(TEXTS, (told[custom_id] for custom_id in bodies(host)), strict=True))
    assert [by_text[text].status for text in TEXTS] == [200, 400, 429, 200, None]
    assert host.files == {} if way == "inline" else len(host.files) == 2
    assert GEMINI.decode(by_text["one"].body, Redactor()).text == "ONE"
    with pytest.raises(ContentFiltered):
        GEMINI.decode(by_text["four"].body, Redactor())
    refused = GEMINI.explain(HttpReply(400, {}, by_text["two"].body), host.url, Redactor())
    assert isinstance(refused, FieldRejected)
    assert refused.field == "temperature"


async def test_results_may_stand_in_the_response_alone(host: GeminiBatchHost, tmp_path: Path) -> None:
    host.in_metadata, host.states = False, ("SUCCEEDED",)
    async with ours(host) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host)))
        assert len(await replies(api, job_id, tmp_path)) == 5


async def test_a_failed_job_says_why_without_credentials(host: GeminiBatchHost, tmp_path: Path) -> None:
    host.states, host.failed_with = ("FAILED",), f"no access with {KEY}"
    async with ours(host) as api:
        progress = await api.check(await api.create(job_of(api, tmp_path, bodies(host))))
    assert progress.state == "failed"
    assert isinstance(progress.error, BadRequest)
    assert "no access with" in str(progress.error)
    assert KEY not in str(progress.error)


@pytest.mark.parametrize(("word", "state"), [("EXPIRED", "expired"), ("CANCELLED", "cancelled")])
async def test_of_a_job_that_did_not_end_there_is_nothing(
    host: GeminiBatchHost, tmp_path: Path, word: str, state: str
) -> None:
    host.states, host.done = (word,), 2
    async with ours(host) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host)))
        assert (await api.check(job_id)).state == state
        assert await replies(api, job_id, tmp_path) == {}


async def test_a_cancelled_job_stays_cancelled(host: GeminiBatchHost, tmp_path: Path) -> None:
    async with ours(host) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host)))
        await api.cancel(job_id)
        assert (await api.check(job_id)).state == "cancelled"
        await api.cancel(job_id)  # it has ended: there is nothing more to do


async def test_a_job_whose_id_was_lost_is_found_by_its_tag(host: GeminiBatchHost, tmp_path: Path) -> None:
    host.troubles.append(("create", LOST))
    async with ours(host) as api:
        job = job_of(api, tmp_path, bodies(host))
        other = job_of(api, tmp_path, bodies(host, "six"), "b" * 32)
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        host.lag = 1
        assert await api.find(job) is None  # not listed yet
        found = await api.find(job)
        assert found is not None
        assert found.removeprefix("batches/") in host.jobs
        assert await api.find(other) is None
        assert await api.find(job._replace(others=frozenset({found}))) is None  # one that was refused
        assert len(host.jobs) == 1


async def test_a_job_is_found_on_a_later_page(host: GeminiBatchHost, tmp_path: Path) -> None:
    async with ours(host) as api:
        first = job_of(api, tmp_path, bodies(host, "one"))
        wanted = await api.create(first)
        for number in range(11):
            await api.create(job_of(api, tmp_path, bodies(host, "two"), f"{number:032x}"))
        host.heard.clear()
        assert await api.find(first) == wanted
        assert host.heard == ["list", "list"]


async def test_a_lost_upload_makes_no_job(host: GeminiBatchHost, tmp_path: Path, by_file: None) -> None:
    host.troubles.append(("upload", LOST))
    async with ours(host) as api:
        job = job_of(api, tmp_path, bodies(host))
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        assert host.jobs == {}
        assert await api.find(job) is None
        await api.create(job)
        assert len(host.asked) == 5


async def test_what_is_too_large_or_not_allowed_is_refused_as_live(
    host: GeminiBatchHost, tmp_path: Path, by_file: None
) -> None:
    host.most_bytes = 10
    async with ours(host) as api:
        job = job_of(api, tmp_path, bodies(host))
        with pytest.raises(BadRequest, match="exceeds the limit"):
            await api.create(job)
        host.most_bytes = 1 << 30
        host.troubles.append(("create", Fault(403, "Batches are not enabled")))
        with pytest.raises(AccessDenied, match="not enabled"):
            await api.create(job)
        host.troubles += [("create", Fault(429, "Too many batches"))] * 2
        await api.create(job)  # turned away, and asked again
        host.troubles += [("create", Fault(429, "Too many batches"))] * 20
        with pytest.raises(RateLimited, match="Too many batches"):
            await api.create(job)


async def test_asking_is_repeated_where_the_host_stumbles(host: GeminiBatchHost, tmp_path: Path) -> None:
    host.states = ("SUCCEEDED",)
    async with ours(host) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host)))
        host.troubles += [("get", Fault(503, "busy")), ("get", LOST)]
        assert (await api.check(job_id)).state == "ended"
