"""Vertex AI's batches at a fake of it and of Cloud Storage; Google's own client drives the former as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from batch_at import batches_at, bodies_of, collected, job_of, replies
from fakes.batch_jobs import LOST
from fakes.gemini import Answer, Fault
from fakes.vertex import PROJECT, key_file
from fakes.vertex_batches import VertexBatchHost, fake_vertex_batches
from google import genai
from google.genai import errors, types
from google.oauth2 import credentials

from coeval.core.errors import AccessDenied, BadRequest, ConnectionFailed, NotFound, UsageError
from coeval.core.model import ModelSpec
from coeval.core.redaction import Redactor
from coeval.models.batch.batch_api import DamagedResult
from coeval.models.batch.vertex_batches import EMULATOR, VertexBatches
from coeval.models.dialects.gemini import GEMINI

BUCKET = "results-4711"
LOCATION = "us-central1"
MODEL = "gemini-2.5-flash"
TEXTS = ("one", "two", "three", "four", "five")
T = TypeVar("T")


def of_text(fates: Mapping[str, Any]) -> Any:
    def says(body: dict[str, Any]) -> Any:
        text = body["contents"][0]["parts"][0]["text"]
        return fates.get(text, Answer(text.upper()))

    return says


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VertexBatchHost]:
    async with fake_vertex_batches(says=of_text({})) as running:
        monkeypatch.setenv(EMULATOR, running.url)
        yield running


def spec(host: VertexBatchHost, model: str = MODEL, **options: Any) -> ModelSpec:
    return ModelSpec(
        name="m",
        interface="vertex",
        model=model,
        base_url=host.url,
        options={"location": LOCATION, "batch_gcs_bucket": BUCKET} | options,
    )


def env(host: VertexBatchHost, folder: Path) -> dict[str, str]:
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file(folder, host.token_url))}


def ours(host: VertexBatchHost, folder: Path, **options: Any) -> AbstractAsyncContextManager[VertexBatches]:
    return batches_at(VertexBatches, spec(host, **options), env(host, folder))


def bodies(host: VertexBatchHost, folder: Path, *texts: str) -> dict[str, bytes]:
    return bodies_of(spec(host), env(host, folder), texts or TEXTS)


async def by_client(host: VertexBatchHost, drive: Callable[[genai.Client], T]) -> T:
    def driven() -> T:
        make: Any = credentials.Credentials
        client = genai.Client(
            vertexai=True,
            project=PROJECT,
            location=LOCATION,
            credentials=make("a-token"),
            http_options=types.HttpOptions(base_url=host.url, api_version="v1"),
        )
        try:
            return drive(client)
        finally:
            client.close()

    host.good.add("a-token")
    return await asyncio.to_thread(driven)


async def test_the_client_drives_a_job_through_its_life(host: VertexBatchHost) -> None:
    host.storage.objects[BUCKET, "in.jsonl"] = b'{"request":{"contents":[{"parts":[{"text":"one"}]}]}}\n'

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

    await by_client(host, drive)


async def test_the_client_submits_the_job_that_we_submit(host: VertexBatchHost, tmp_path: Path) -> None:
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
    mine = host.jobs[job_id.rpartition("/")[2]].body
    source, target = mine["inputConfig"]["gcsSource"]["uris"], mine["outputConfig"]["gcsDestination"]

    def create(client: genai.Client) -> str:
        config: Any = {"display_name": mine["displayName"], "dest": target["outputUriPrefix"]}
        return str(client.batches.create(model=MODEL, src=source[0], config=config).name)

    theirs = await by_client(host, create)
    assert host.jobs[theirs.rpartition("/")[2]].body == mine


async def test_answers_and_errors_are_those_of_live_requests(host: VertexBatchHost, tmp_path: Path) -> None:
    host.says = of_text({"two": Fault(400, "Invalid role"), "three": Fault(429, "Resource exhausted")})
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        seen = [await api.check(job_id) for _ in range(4)]
        assert [progress.state for progress in seen] == ["waiting", "waiting", "running", "ended"]
        assert (seen[-1].total, seen[-1].done, seen[-1].failed) == (5, 3, 2)
        told = await replies(api, job_id, tmp_path)
    by_text = dict(zip(TEXTS, (told[each] for each in bodies(host, tmp_path)), strict=True))
    assert [by_text[text].status for text in TEXTS] == [200, 400, 429, 200, 200]
    assert [GEMINI.decode(by_text[text].body, Redactor()).text for text in ("one", "four", "five")] == [
        "ONE",
        "FOUR",
        "FIVE",
    ]
    assert msgspec.json.decode(by_text["two"].body)["error"]["message"] == "Invalid role"


async def test_equal_requests_and_labels_of_the_user_are_told_apart(
    host: VertexBatchHost, tmp_path: Path
) -> None:
    same = bodies(host, tmp_path, "one", "one", "one")
    last = msgspec.json.decode(same[f"{3:032x}"])
    same[f"{3:032x}"] = msgspec.json.encode(last | {"labels": {"team": "blue"}})
    host.script.extend([Answer("first"), Answer("second"), Answer("third")])
    host.states = ("SUCCEEDED",)
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, same))
        told = await replies(api, job_id, tmp_path)
    texts = [GEMINI.decode(told[custom_id].body, Redactor()).text for custom_id in same]
    assert texts == ["first", "second", "third"]
    assert host.asked[2].body["labels"]["team"] == "blue"


@pytest.mark.parametrize("word", ["EXPIRED", "CANCELLED", "PARTIALLY_SUCCEEDED"])
async def test_what_a_job_had_done_is_collected(host: VertexBatchHost, tmp_path: Path, word: str) -> None:
    host.states, host.done = (word,), 2
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        progress = await api.check(job_id)
        assert progress.state == {"PARTIALLY_SUCCEEDED": "expired"}.get(word, word.lower())
        assert (progress.total, progress.done) == (5, 2)
        told = await replies(api, job_id, tmp_path)
    assert list(told) == [f"{2:032x}", f"{1:032x}"]


async def test_what_was_written_twice_is_told_once(host: VertexBatchHost, tmp_path: Path) -> None:
    host.states = ("SUCCEEDED",)
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        await api.check(job_id)
        [(bucket, name)] = [place for place in host.storage.objects if place[1].endswith("predictions.jsonl")]
        written = host.storage.objects[bucket, name]
        folder = name.removesuffix("predictions.jsonl")
        for more in ("incremental_predictions.jsonl", "other.jsonl", "notes.txt"):
            host.storage.objects[bucket, folder + more] = written
        assert len(await replies(api, job_id, tmp_path)) == 5  # over two pages of objects


async def test_a_job_that_names_no_folder_has_its_results_below_its_prefix(
    host: VertexBatchHost, tmp_path: Path
) -> None:
    host.states = ("SUCCEEDED",)
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        await api.check(job_id)
        host.written = dict.fromkeys(host.written, "")
        assert len(await replies(api, job_id, tmp_path)) == 5


async def test_results_that_say_not_whose_they_are_cannot_be_read(
    host: VertexBatchHost, tmp_path: Path
) -> None:
    host.states = ("SUCCEEDED",)
    host.gives = lambda _, lines: [line.replace(b"coeval_id", b"other_id") for line in lines]
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        await api.check(job_id)
        told = await collected(api, job_id, tmp_path)
    assert len(told) == 5
    assert all(isinstance(line, DamagedResult) and "coeval_id" in line.why for line in told)


async def test_a_failed_job_says_why(host: VertexBatchHost, tmp_path: Path) -> None:
    host.states = ("FAILED",)
    async with ours(host, tmp_path) as api:
        progress = await api.check(await api.create(job_of(api, tmp_path, bodies(host, tmp_path))))
    assert progress.state == "failed"
    assert isinstance(progress.error, BadRequest)
    assert "service agent may not read" in str(progress.error)


async def test_a_job_is_cancelled(host: VertexBatchHost, tmp_path: Path) -> None:
    async with ours(host, tmp_path) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        await api.cancel(job_id)
        assert (await api.check(job_id)).state == "cancelled"
        await api.cancel(job_id)  # it has ended: there is nothing more to do


async def test_a_job_whose_id_was_lost_is_found_by_its_tag(host: VertexBatchHost, tmp_path: Path) -> None:
    host.troubles.append(("create", LOST))
    async with ours(host, tmp_path) as api:
        job = job_of(api, tmp_path, bodies(host, tmp_path))
        other = job_of(api, tmp_path, bodies(host, tmp_path, "six"), "b" * 32)
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        host.lag = 1
        assert await api.find(job) is None  # not listed yet
        found = await api.find(job)
        assert found is not None
        assert (await api.check(found)).state == "waiting"
        assert await api.find(other) is None
        assert await api.find(job._replace(others=frozenset({found}))) is None  # one that was refused
        assert len(host.jobs) == 1


async def test_an_upload_that_breaks_is_sent_again(host: VertexBatchHost, tmp_path: Path) -> None:
    host.storage.torn = 100
    async with ours(host, tmp_path) as api:
        job = job_of(api, tmp_path, bodies(host, tmp_path, *(f"text {n}" for n in range(200))))
        await api.create(job)
    assert host.storage.objects[BUCKET, f"coeval/{job.tag}/requests.jsonl"] == job.lines.read_bytes()
    assert len(host.asked) == 200


async def test_a_folder_of_a_bucket_holds_it_all(host: VertexBatchHost, tmp_path: Path) -> None:
    host.states = ("SUCCEEDED",)
    async with ours(host, tmp_path, batch_gcs_bucket=f"gs://{BUCKET}/team/blue/") as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        assert len(await replies(api, job_id, tmp_path)) == 5
    assert all(name.startswith("team/blue/coeval/") for _, name in host.storage.objects)


async def test_what_storage_refuses_is_told(host: VertexBatchHost, tmp_path: Path) -> None:
    async with ours(host, tmp_path, batch_gcs_bucket="not-there") as api:
        with pytest.raises(NotFound, match="bucket does not exist"):
            await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
    host.storage.most_bytes = 10
    async with ours(host, tmp_path) as api:
        with pytest.raises(BadRequest, match="too large"):
            await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
        host.storage.most_bytes = 1 << 30
        host.troubles.append(
            ("create", Fault(403, "Permission aiplatform.batchPredictionJobs.create denied"))
        )
        with pytest.raises(AccessDenied, match="create denied"):
            await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (MODEL, {"batch_gcs_bucket": "No Bucket"}, "no bucket of Cloud Storage"),
        ("anthropic/claude-haiku-4-5", {}, "batch_enabled: false"),
        ("endpoints/4711", {}, "batch_enabled: false"),
    ],
)
async def test_what_cannot_be_batched_is_told_before_anything_is_sent(
    host: VertexBatchHost, tmp_path: Path, model: str, options: Mapping[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        async with batches_at(VertexBatches, spec(host, model, **options), env(host, tmp_path)):
            pass
    assert host.heard == []
    assert host.token_asked == 0


async def test_a_missing_bucket_is_told_with_its_way_out(host: VertexBatchHost, tmp_path: Path) -> None:
    bare = ModelSpec(name="m", interface="vertex", model=MODEL, base_url=host.url)
    with pytest.raises(UsageError) as told:
        async with batches_at(VertexBatches, bare, env(host, tmp_path)):
            pass
    assert "`providers.vertex.batch_gcs_bucket` in a key file or parameters.batch_gcs_bucket" in str(
        told.value
    )


async def test_a_tuned_model_is_named_in_full(host: VertexBatchHost, tmp_path: Path) -> None:
    name = f"projects/{PROJECT}/locations/{LOCATION}/models/4711"
    async with batches_at(VertexBatches, spec(host, name), env(host, tmp_path)) as api:
        await api.create(job_of(api, tmp_path, bodies(host, tmp_path)))
    assert [job.body["model"] for job in host.jobs.values()] == [name]


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
async def test_where_storage_is(
    host: VertexBatchHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, url: str | None
) -> None:
    monkeypatch.setenv(EMULATOR, said)
    if url is not None:
        async with ours(host, tmp_path) as api:
            assert api._storage._http.url == url
        return
    with pytest.raises(UsageError, match="STORAGE_EMULATOR_HOST in the environment") as told:
        async with ours(host, tmp_path):
            pass
    assert "secret" not in str(told.value)
