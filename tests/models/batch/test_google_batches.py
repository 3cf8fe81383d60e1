"""Google's batches, at the Gemini API and at Vertex AI with Cloud Storage: what they have beyond others.

Google's own client drives the fakes of both as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from batch_at import BUCKET, KEY, TEXTS, At, batching_at, collected, job_of
from fakes.batch_jobs import LOST
from fakes.gemini import Answer, Blocked, Fault, in_camel_case
from fakes.vertex import PROJECT
from google import genai
from google.genai import errors, types
from google.oauth2 import credentials

import coeval.models.batch.gemini_batches as module
from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ConnectionFailed,
    ContentFiltered,
    NotFound,
    RateLimited,
    ServerFault,
    UsageError,
)
from coeval.core.redaction import Redactor
from coeval.models.batch.batch_api import DamagedResult
from coeval.models.batch.gemini_batches import GoogleError, failed_reply, job_error, line_status, state_of
from coeval.models.batch.vertex_batches import EMULATOR, VertexBatches
from coeval.models.dialects.dialect import FieldRejected
from coeval.models.dialects.gemini import GEMINI
from coeval.models.transport.connection import HttpReply

MODEL = "gemini-2.5-flash"
LOCATION = "us-central1"
T = TypeVar("T")


@pytest.fixture(params=["gemini", "vertex"])
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[At]:
    async with batching_at(request.param, tmp_path) as found:
        yield found


of_gemini = pytest.mark.parametrize("at", ["gemini"], indirect=True)
of_vertex = pytest.mark.parametrize("at", ["vertex"], indirect=True)


async def by_client(at: At, drive: Callable[[genai.Client], T]) -> T:
    """What Google's own client makes of it; in a thread, as its other face warns of itself."""

    def driven() -> T:
        make: Any = credentials.Credentials
        options = types.HttpOptions(base_url=at.host.url)
        if at.batching.interface == "gemini":
            client = genai.Client(api_key=KEY, http_options=options)
        else:
            options.api_version = "v1"
            client = genai.Client(
                vertexai=True,
                project=PROJECT,
                location=LOCATION,
                credentials=make("a-token"),
                http_options=options,
            )
        try:
            return drive(client)
        finally:
            client.close()

    if at.batching.interface == "vertex":
        at.host.good.add("a-token")
    return await asyncio.to_thread(driven)


def requested_for(text: str) -> Any:
    """A request as the client is given it: with the parameters that `At.bodies` has."""
    return {
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        "config": {"max_output_tokens": 50},
        "metadata": {"key": f"key-{text}"},
    }


@pytest.fixture
def by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small job's requests are uploaded."""
    monkeypatch.setattr(module, "INLINE_REQUESTS", 1)


# The Gemini API


@pytest.mark.process
@of_gemini
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


@of_gemini
async def test_the_client_drives_a_batch_through_its_life(at: At) -> None:
    at.host.says = at.batching.answering({"two": Fault(400, "Invalid role")})
    await by_client(at, drive)


@of_gemini
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


@of_gemini
@pytest.mark.parametrize("way", ["inline", "file"])
async def test_what_went_wrong_is_what_it_is_live(at: At, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the requests went; one that was cancelled was never carried out."""
    if way == "file":
        monkeypatch.setattr(module, "INLINE_BYTES", 10)
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
    assert len(at.host.files) == {"inline": 0, "file": 2}[way]
    with pytest.raises(ContentFiltered):
        GEMINI.decode(four.body, Redactor())
    refused = GEMINI.explain(HttpReply(400, {}, two.body), at.host.url, Redactor())
    assert isinstance(refused, FieldRejected)
    assert refused.field == "temperature"


@of_gemini
async def test_results_may_stand_in_the_response_alone(at: At) -> None:
    at.host.in_metadata, at.host.states = False, ("SUCCEEDED",)
    async with at.open() as api:
        assert len(await at.replies(api, await at.made(api))) == 5


@of_gemini
async def test_a_job_is_found_on_a_later_page(at: At) -> None:
    async with at.open() as api:
        first = at.job(api, "one")
        needed = await api.create(first)
        for number in range(11):
            await at.made(api, "two", tag=f"{number:032x}")
        at.host.heard.clear()
        assert await api.find(first) == needed
        assert at.host.heard == ["list", "list"]


@of_gemini
async def test_a_lost_upload_makes_no_job(at: At, by_file: None) -> None:
    at.host.troubles.append(("upload", LOST))
    async with at.open() as api:
        job = at.job(api)
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        assert at.host.jobs == {}
        assert await api.find(job) is None
        await api.create(job)
        assert len(at.host.requested) == 5


@of_gemini
async def test_what_is_too_large_or_not_allowed_is_refused_as_live(at: At, by_file: None) -> None:
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


# Vertex AI


@of_vertex
async def test_the_client_drives_a_job_through_its_life(at: At) -> None:
    at.host.storage.objects[BUCKET, "in.jsonl"] = b'{"request":{"contents":[{"parts":[{"text":"one"}]}]}}\n'

    def drive(client: genai.Client) -> None:
        batches, source = client.batches, f"gs://{BUCKET}/in.jsonl"
        config: Any = {"display_name": "mine", "dest": f"gs://{BUCKET}/out"}
        made = batches.create(model=MODEL, src=source, config=config)
        assert (made.display_name, made.state) == ("mine", types.JobState.JOB_STATE_PENDING)
        assert made.name is not None
        states = [str(batches.get(name=made.name).state).rpartition("_")[2] for _ in range(4)]
        assert states == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]
        ended = batches.get(name=made.name)
        assert ended.completion_stats is not None
        assert ended.completion_stats.successful_count == 1
        assert ended.output_info is not None
        folder = ended.output_info.gcs_output_directory
        assert folder is not None
        assert folder.startswith(f"gs://{BUCKET}/out/prediction-model-")
        other = batches.create(model=MODEL, src=source, config=config | {"display_name": "other"})
        assert other.name is not None
        batches.cancel(name=other.name)
        assert batches.get(name=other.name).state == types.JobState.JOB_STATE_CANCELLED
        assert [job.display_name for job in batches.list(config={"page_size": 1})] == ["other", "mine"]
        only: Any = {"filter": 'display_name="mine"'}
        assert [job.display_name for job in batches.list(config=only)] == ["mine"]
        with pytest.raises(errors.ClientError, match="does not exist"):
            batches.get(name="4711")

    await by_client(at, drive)


@pytest.mark.process
@of_vertex
async def test_the_client_submits_the_job_that_we_submit(at: At) -> None:
    async with at.open() as api:
        job_id = await at.made(api)
    mine = at.host.jobs[job_id.rpartition("/")[2]].body
    source, target = mine["inputConfig"]["gcsSource"]["uris"], mine["outputConfig"]["gcsDestination"]

    def create(client: genai.Client) -> str:
        config: Any = {"display_name": mine["displayName"], "dest": target["outputUriPrefix"]}
        return str(client.batches.create(model=MODEL, src=source[0], config=config).name)

    theirs = await by_client(at, create)
    assert at.host.jobs[theirs.rpartition("/")[2]].body == mine


@of_vertex
async def test_equal_requests_and_labels_of_the_user_are_told_apart(at: At) -> None:
    same = at.bodies("one", "one", "one")
    last = msgspec.json.decode(same[f"{3:032x}"])
    same[f"{3:032x}"] = msgspec.json.encode(last | {"labels": {"team": "blue"}})
    at.host.script.extend([Answer("first"), Answer("second"), Answer("third")])
    at.host.states = ("SUCCEEDED",)
    async with at.open() as api:
        job_id = await api.create(job_of(api, at.folder, same))
        reported = await at.replies(api, job_id)
    texts = [GEMINI.decode(reported[custom_id].body, Redactor()).text for custom_id in same]
    assert texts == ["first", "second", "third"]
    assert at.host.requested[2].body["labels"]["team"] == "blue"


@of_vertex
async def test_what_was_written_twice_is_told_once(at: At) -> None:
    at.host.states = ("SUCCEEDED",)
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        [(bucket, name)] = [
            place for place in at.host.storage.objects if place[1].endswith("predictions.jsonl")
        ]
        written = at.host.storage.objects[bucket, name]
        folder = name.removesuffix("predictions.jsonl")
        for more in ("incremental_predictions.jsonl", "other.jsonl", "notes.txt"):
            at.host.storage.objects[bucket, folder + more] = written
        assert len(await at.replies(api, job_id)) == 5  # over two pages of objects


@of_vertex
async def test_a_job_that_names_no_folder_has_its_results_below_its_prefix(at: At) -> None:
    at.host.states = ("SUCCEEDED",)
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        at.host.written = dict.fromkeys(at.host.written, "")
        assert len(await at.replies(api, job_id)) == 5


@of_vertex
async def test_results_that_say_not_whose_they_are_cannot_be_read(at: At) -> None:
    at.host.states = ("SUCCEEDED",)
    at.host.gives = lambda _, lines: [line.replace(b"coeval_id", b"other_id") for line in lines]
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        reported = await collected(api, job_id, at.folder)
    assert len(reported) == 5
    assert all(isinstance(line, DamagedResult) and "coeval_id" in line.why for line in reported)


@pytest.mark.process
@of_vertex
async def test_an_upload_that_breaks_is_sent_again(at: At) -> None:
    at.host.storage.torn = 100
    async with at.open() as api:
        job = at.job(api, *(f"text {n}" for n in range(200)))
        await api.create(job)
    assert at.host.storage.objects[BUCKET, f"coeval/{job.tag}/requests.jsonl"] == job.lines.read_bytes()
    assert len(at.host.requested) == 200


@pytest.mark.process
@of_vertex
async def test_what_storage_refuses_is_told(at: At) -> None:
    async with at.open(batch_gcs_bucket="not-there") as api:
        with pytest.raises(NotFound, match="bucket does not exist"):
            await at.made(api)
    at.host.storage.most_bytes = 10
    async with at.open() as api:
        with pytest.raises(BadRequest, match="too large"):
            await at.made(api)
        at.host.storage.most_bytes = 1 << 30
        at.host.troubles.append(
            ("create", Fault(403, "Permission aiplatform.batchPredictionJobs.create denied"))
        )
        with pytest.raises(AccessDenied, match="create denied"):
            await at.made(api)


@of_vertex
@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (MODEL, {"batch_gcs_bucket": "No Bucket"}, "no bucket of Cloud Storage"),
        ("anthropic/claude-haiku-4-5", {}, "batch_enabled: false"),
        ("endpoints/4711", {}, "batch_enabled: false"),
    ],
)
async def test_what_cannot_be_batched_is_told_before_anything_is_sent(
    at: At, model: str, options: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        async with at.open(model=model, **options):
            pass
    assert at.host.heard == []
    assert at.host.token_requested == 0


@of_vertex
async def test_a_missing_bucket_is_told_with_its_way_out(at: At) -> None:
    with pytest.raises(UsageError) as reported:
        async with at.open(batch_gcs_bucket=None):
            pass
    assert "`providers.vertex.batch_gcs_bucket` in a key file or parameters.batch_gcs_bucket" in str(
        reported.value
    )


@of_vertex
async def test_a_tuned_model_is_named_in_full(at: At) -> None:
    name = f"projects/{PROJECT}/locations/{LOCATION}/models/4711"
    async with at.open(model=name) as api:
        await at.made(api)
    assert [job.body["model"] for job in at.host.jobs.values()] == [name]


@of_vertex
@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("", "https://storage.googleapis.com"),
        ("127.0.0.1:4443", "http://127.0.0.1:4443"),
        ("https://127.0.0.1:4443/gcs/", "https://127.0.0.1:4443/gcs"),
        ("ftp://127.0.0.1", None),
        ("http://me:secret@127.0.0.1", None),
    ],
)
async def test_where_storage_is(at: At, monkeypatch: pytest.MonkeyPatch, said: str, url: str | None) -> None:
    monkeypatch.setenv(EMULATOR, said)
    if url is not None:
        async with at.open() as api:
            assert isinstance(api, VertexBatches)
            assert api._storage._http.url == url
        return
    with pytest.raises(UsageError, match="STORAGE_EMULATOR_HOST in the environment") as reported:
        async with at.open():
            pass
    assert "secret" not in str(reported.value)


# What both say of errors and states, in numbers and in words


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ('Bad Request: {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}', 400),
        ('Too Many Requests: {"error": {"code": 429, "message": "no"}}', 429),
        ("Too Many Requests: {not json", 429),
        ("Bad Request", 400),
        ("generic::RESOURCE_EXHAUSTED: out of quota", 429),
        ("error 503 while asking", 503),
        ("Internal Server Error: ", 500),
        ("nobody knows", 500),
    ],
)
def test_the_status_of_a_line_is_that_of_a_live_answer(words: str, status: int) -> None:
    reply = failed_reply("id", line_status(words))
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"]) == (status, status)
    assert error["message"] == ("no" if '"no"' in words else words)


def test_a_request_that_was_cancelled_was_never_carried_out() -> None:
    assert failed_reply("id", GoogleError(1, "The operation was cancelled.")).status is None


def test_details_are_kept_as_the_dialect_reads_them() -> None:
    reported = b'{"code": 8, "message": "busy", "details": [{"retryDelay": "7s"}]}'
    reply = failed_reply("id", msgspec.json.decode(reported, type=GoogleError))
    assert msgspec.json.decode(reply.body)["error"]["details"] == [{"retryDelay": "7s"}]


@pytest.mark.parametrize(
    ("code", "kind"), [(3, BadRequest), (8, RateLimited), (13, ServerFault), (99, ServerFault)]
)
def test_why_a_job_failed_is_in_the_one_tree(code: int, kind: type[Exception]) -> None:
    error = job_error(GoogleError(code, "because"), Redactor())
    assert type(error) is kind
    assert str(error) == "because"


def test_a_job_that_failed_for_its_key_was_denied_access() -> None:
    reported = b'{"code": 3, "message": "bad key", "details": [{"reason": "API_KEY_INVALID"}]}'
    error = job_error(msgspec.json.decode(reported, type=GoogleError), Redactor())
    assert (type(error), str(error), error.status) == (AccessDenied, "bad key", None)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("JOB_STATE_QUEUED", "waiting"),
        ("BATCH_STATE_PENDING", "waiting"),
        ("JOB_STATE_CANCELLING", "running"),
        ("JOB_STATE_PAUSED", "running"),
        ("JOB_STATE_PARTIALLY_SUCCEEDED", "expired"),
        ("something new", "running"),
    ],
)
def test_states_have_one_word(word: str, state: str) -> None:
    assert state_of(word) == state
