"""Gemini's batches: what they have beyond others. Google's own client drives the fake as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from batch_at import KEY, TEXTS, At, batching_at
from fakes.batch_jobs import LOST
from fakes.gemini import Blocked, Fault, in_camel_case
from google import genai
from google.genai import errors, types

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    RateLimited,
    ServerFault,
)
from coeval.core.redaction import Redactor
from coeval.models.batch.batch_api import Unmade
from coeval.models.batch.gemini_batches import GoogleError, make_failed_reply, make_job_error, map_state
from coeval.models.dialects.dialect import FieldRejected
from coeval.models.dialects.gemini import GEMINI
from coeval.models.transport.connection import HttpReply

MODEL = "gemini-2.5-flash"
LOCATION = "us-central1"
T = TypeVar("T")


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[At]:
    async with batching_at("gemini", tmp_path) as found:
        yield found


async def by_client(at: At, drive: Callable[[genai.Client], T]) -> T:
    """What Google's own client makes of it; in a thread, as its other face warns of itself."""

    def driven() -> T:
        client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=at.host.url))
        try:
            return drive(client)
        finally:
            client.close()

    return await asyncio.to_thread(driven)


def requested_for(text: str) -> Any:
    """A request as the client is given it: with the parameters that `At.bodies` has."""
    return {
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        "config": {"max_output_tokens": 50},
        "metadata": {"key": f"key-{text}"},
    }


@pytest.mark.process
async def test_the_client_sends_the_requests_that_we_send(at: At) -> None:
    def create(client: genai.Client) -> None:
        requests = [requested_for(text) for text in TEXTS]
        client.batches.create(model=MODEL, src=requests, config={"display_name": "n"})

    await by_client(at, create)
    witnessed = [requested.body for requested in at.host.requested]
    async with at.open() as api:
        await at.made(api)
    ours = [requested.body for requested in at.host.requested[len(witnessed) :]]
    assert in_camel_case(ours) == in_camel_case(witnessed)


def drive(client: genai.Client) -> None:
    """One that ends, one that is cancelled, as the client sees them."""
    batches = client.batches
    requests = [requested_for(text) for text in TEXTS]
    made = batches.create(model=MODEL, src=requests, config={"display_name": "mine"})
    assert (made.display_name, made.state) == ("mine", types.JobState.JOB_STATE_PENDING)
    assert made.name is not None
    states = [str(batches.get(name=made.name).state).rpartition("_")[2] for _ in range(4)]
    assert states == ["PENDING", "RUNNING", "SUCCEEDED", "SUCCEEDED"]
    ended = batches.get(name=made.name)
    assert ended.dest is not None
    assert ended.dest.inlined_responses is not None
    reported = {
        (each.metadata or {})["key"]: each.response.text if each.response else each.error
        for each in ended.dest.inlined_responses
    }
    assert reported["key-one"] == "ONE"
    assert reported["key-two"] == types.JobError(code=3, message="Invalid role")
    second = batches.create(model=MODEL, src=[requested_for("six")], config={"display_name": "other"})
    assert second.name is not None
    batches.cancel(name=second.name)
    assert batches.get(name=second.name).state == types.JobState.JOB_STATE_CANCELLED
    assert [job.display_name for job in batches.list(config={"page_size": 1})] == ["other", "mine"]
    with pytest.raises(errors.ClientError, match="not found"):
        batches.get(name="batches/none")


async def test_the_client_drives_a_batch_through_its_life(at: At) -> None:
    at.host.says = at.batching.answering({"two": Fault(400, "Invalid role")})
    await by_client(at, drive)


async def test_the_client_uploads_what_we_upload_and_reads_the_results_file(at: At) -> None:
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

    async with at.open() as api:
        job = at.job(api)
        job_id, results = await by_client(at, drive_files)
        assert set(await at.replies(api, job_id)) == set(at.bodies())
    assert (at.folder / f"into-{job_id.replace('/', '-')}" / "results.jsonl").read_bytes() == results


async def test_what_went_wrong_is_what_it_is_live(at: At) -> None:
    """One that was cancelled was never carried out."""
    at.host.states = ("SUCCEEDED",)
    faults = {"two": Fault(400, "Invalid value at 'temperature'"), "four": Blocked()}
    faults["five"] = Fault(499, "The operation was cancelled.")
    at.host.says = at.batching.answering(faults)
    async with at.open() as api:
        job_id = await at.made(api)
        assert (await api.check(job_id)).shown == "BATCH_STATE_SUCCEEDED"
        reported = await at.replies(api, job_id)
    one, two, _, four, five = (reported[custom_id] for custom_id in at.bodies())
    assert [reply.status for reply in (one, two, four, five)] == [200, 400, 200, None]
    with pytest.raises(ContentFiltered):
        GEMINI.decode(four.body, Redactor())
    refused = GEMINI.explain(HttpReply(400, {}, two.body), at.host.url, Redactor())
    assert isinstance(refused, FieldRejected)
    assert refused.field == "temperature"


async def test_results_may_stand_in_the_response_alone(at: At) -> None:
    at.host.in_metadata, at.host.states = False, ("SUCCEEDED",)
    async with at.open() as api:
        assert len(await at.replies(api, await at.made(api))) == 5


async def test_a_job_is_found_on_a_later_page(at: At) -> None:
    async with at.open() as api:
        first = at.job(api, "one")
        needed = await api.create(first)
        for number in range(11):
            await at.made(api, "two", tag=f"{number:032x}")
        at.host.heard.clear()
        assert await api.find(first) == needed
        assert at.host.heard == ["list", "list"]


async def test_a_lost_upload_makes_no_job(at: At) -> None:
    at.host.troubles.append(("upload", LOST))
    async with at.open() as api:
        job = at.job(api)
        with pytest.raises(Unmade):
            await api.create(job)
        assert at.host.jobs == {}
        assert await api.find(job) is None
        await api.create(job)
        assert len(at.host.requested) == 5


async def test_what_is_too_large_or_not_allowed_is_refused_as_live(at: At) -> None:
    at.host.most_bytes = 10
    async with at.open() as api:
        job = at.job(api)
        with pytest.raises(BadRequest, match="exceeds the limit"):
            await api.create(job)
        at.host.most_bytes = 1 << 30
        at.host.troubles.append(("create", Fault(403, "Batches are not enabled")))
        with pytest.raises(AccessDenied, match="not enabled"):
            await api.create(job)
        at.host.troubles += [("create", Fault(429, "Too many batches"))] * 2
        await api.create(job)  # turned away, and asked again
        at.host.troubles += [("create", Fault(429, "Too many batches"))] * 20
        with pytest.raises(RateLimited, match="Too many batches"):
            await api.create(job)


# What it says of errors and states, in numbers and in words


def test_a_request_that_was_cancelled_was_never_carried_out() -> None:
    assert make_failed_reply("id", GoogleError(1, "The operation was cancelled.")).status is None


def test_details_are_kept_as_the_dialect_reads_them() -> None:
    reported = b'{"code": 8, "message": "busy", "details": [{"retryDelay": "7s"}]}'
    reply = make_failed_reply("id", msgspec.json.decode(reported, type=GoogleError))
    assert msgspec.json.decode(reply.body)["error"]["details"] == [{"retryDelay": "7s"}]


@pytest.mark.parametrize(
    ("code", "kind"), [(3, BadRequest), (8, RateLimited), (13, ServerFault), (99, ServerFault)]
)
def test_why_a_job_failed_is_in_the_one_tree(code: int, kind: type[Exception]) -> None:
    error = make_job_error(GoogleError(code, "because"), Redactor())
    assert type(error) is kind
    assert str(error) == "because"


def test_a_job_that_failed_for_its_key_was_denied_access() -> None:
    reported = b'{"code": 3, "message": "bad key", "details": [{"reason": "API_KEY_INVALID"}]}'
    error = make_job_error(msgspec.json.decode(reported, type=GoogleError), Redactor())
    assert (type(error), str(error), error.status) == (AccessDenied, "bad key", None)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("JOB_STATE_QUEUED", "running"),
        ("BATCH_STATE_PENDING", "running"),
        ("JOB_STATE_CANCELLING", "running"),
        ("JOB_STATE_PAUSED", "running"),
        ("JOB_STATE_PARTIALLY_SUCCEEDED", "expired"),
        ("something new", "running"),
    ],
)
def test_states_have_one_word(word: str, state: str) -> None:
    assert map_state(word) == state
