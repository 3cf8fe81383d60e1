"""The simulated server's files and batches, for OpenAI's client, for ours, and for whoever means harm."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import openai
import pytest
from aiohttp import ClientSession, FormData
from aiohttp.test_utils import TestServer
from batch_at import batches_at, bodies_of, job_of, replies
from fakes.simulated_host import simulated_host
from pipeline.experiments import Lab, model, task

from coeval.core.model import ModelSpec
from coeval.models.batch.openai_files import OpenAiBatches
from coeval.simulation.server import served_batches
from coeval.simulation.server.app import make_app
from coeval.simulation.server.served_batches import BatchFates
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

KEY = "test-key"
CHAT: Final = "/v1/chat/completions"
TEXTS = [f"Question {number}" for number in range(10)]


@asynccontextmanager
async def served(*fates: Any, models: tuple[str, ...] = ("sim",)) -> AsyncIterator[str]:
    made = [SimulatedModel(parse_model_option(text)) for text in models]
    async with TestServer(make_app(made, api_key=KEY, batches=BatchFates(*fates))) as server:
        yield str(server.make_url("/v1"))


def client_at(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)


def line(number: int, text: str, **changes: Any) -> dict[str, Any]:
    body = {"model": "sim", "messages": [{"role": "user", "content": text}], "seed": 3}
    return {"custom_id": f"id-{number}", "method": "POST", "url": CHAT, "body": body, **changes}


def lines(*changed: dict[str, Any]) -> bytes:
    """A file of requests, the last of them changed."""
    rows = [line(number, text) for number, text in enumerate(TEXTS)]
    return "\n".join(json.dumps(row) for row in [*rows, *changed]).encode()


def stored(folder: Path, name: str = "file-*") -> list[Path]:
    return [*folder.rglob(name)]


async def submitted(client: openai.AsyncOpenAI, content: bytes) -> Any:
    file = await client.files.create(file=("requests.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"mine": "yes"}
    )


async def results(client: openai.AsyncOpenAI, file_id: str | None) -> dict[str, Any]:
    if file_id is None:
        return {}
    content = await client.files.content(file_id)
    return {row["custom_id"]: row for row in map(json.loads, content.text.splitlines())}


async def test_openais_client_drives_a_batch_through_its_life_and_gets_the_live_texts() -> None:
    async with served(0.3) as url, client_at(url) as client:
        batch = await submitted(client, lines())
        seen = [batch.status]
        while batch.status != "completed":
            await asyncio.sleep(0.05)
            batch = await client.batches.retrieve(batch.id)
            seen.append(batch.status)
        assert list(dict.fromkeys(seen)) == ["validating", "in_progress", "completed"]
        assert (batch.request_counts.total, batch.request_counts.completed) == (10, 10)
        assert (batch.error_file_id, batch.metadata) == (None, {"mine": "yes"})
        assert batch.completed_at >= batch.created_at
        found = await results(client, batch.output_file_id)
        live = [
            await client.chat.completions.create(
                model="sim", messages=[{"role": "user", "content": text}], seed=3
            )
            for text in TEXTS
        ]
        bodies = [found[f"id-{number}"]["response"]["body"] for number in range(10)]
        assert [body["choices"][0]["message"]["content"] for body in bodies] == [
            one.choices[0].message.content for one in live
        ]
        assert all(one.usage and one.usage.model_dump().items() >= body["usage"].items()
                   for one, body in zip(live, bodies, strict=True))  # fmt: skip
        second = await submitted(client, lines())
        assert [one.id async for one in client.batches.list(limit=1)] == [second.id, batch.id]
        stored = await client.files.retrieve(batch.input_file_id)
        assert (stored.filename, stored.bytes, stored.purpose) == ("requests.jsonl", len(lines()), "batch")
        with pytest.raises(openai.ConflictError, match="completed"):
            await client.batches.cancel(batch.id)
        for call in (client.batches.retrieve, client.files.retrieve):
            with pytest.raises(openai.NotFoundError):
                await call("none")
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as stranger:
        with pytest.raises((openai.AuthenticationError, openai.APIConnectionError)):
            await stranger.batches.list()


async def test_a_stranger_gets_neither_files_nor_batches() -> None:
    async with served() as url, ClientSession() as session:
        for method, path in (
            ("POST", "files"),
            ("GET", "files/x/content"),
            ("POST", "batches"),
            ("GET", "batches"),
        ):
            async with session.request(method, f"{url}/{path}") as response:
                assert response.status == 401, path


async def test_each_second_job_expires_half_done_and_each_third_fails_whole() -> None:
    async with served(0.0, 3, 2) as url, client_at(url) as client:
        jobs = [await submitted(client, lines()) for _ in range(4)]
        ended = [await client.batches.retrieve(job.id) for job in jobs]
        assert [job.status for job in ended] == ["completed", "expired", "failed", "expired"]
        done, left = [
            await results(client, file) for file in (ended[1].output_file_id, ended[1].error_file_id)
        ]
        assert list(done) == [f"id-{number}" for number in range(5)]
        assert list(left) == [f"id-{number}" for number in range(5, 10)]
        assert {row["error"]["code"] for row in left.values()} == {"batch_expired"}
        assert ended[2].errors is not None
        assert [trouble.code for trouble in ended[2].errors.data or []] == ["simulated_failure"]


async def test_a_cancelled_job_keeps_what_it_had_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(served_batches, "time", SimpleNamespace(time=lambda: now))
    async with served(100.0) as url, client_at(url) as client:
        job = await submitted(client, lines())
        now += 35
        looked_at = await client.batches.retrieve(job.id)
        assert looked_at.request_counts is not None
        assert looked_at.request_counts.completed == 3
        assert (await client.batches.cancel(job.id)).status == "cancelling"
        now += 1000
        [listed] = (await client.batches.list()).data
        assert (listed.status, listed.output_file_id) == ("finalizing", None)
        ended = await client.batches.retrieve(job.id)
        assert ended.status == "cancelled"
        assert len(await results(client, ended.output_file_id)) == 3
        left = await results(client, ended.error_file_id)
        assert {row["error"]["code"] for row in left.values()} == {"batch_cancelled"}


async def test_single_requests_fail_as_they_would_live() -> None:
    async with served(models=("sim:failure_rate=0.5",)) as url, client_at(url) as client:
        wrong = line(10, "x")
        wrong["body"] = {**wrong["body"], "n": 0}
        other = line(11, "x")
        other["body"] = {**other["body"], "model": "other"}
        job = await client.batches.retrieve((await submitted(client, lines(wrong, other))).id)
        good, bad = [await results(client, file) for file in (job.output_file_id, job.error_file_id)]
        assert job.request_counts is not None
        assert (job.request_counts.completed, job.request_counts.failed) == (len(good), len(bad))
        assert 0 < len(good) < 10
        statuses = {name: row["response"]["status_code"] for name, row in bad.items()}
        assert (statuses.pop("id-10"), statuses.pop("id-11")) == (400, 404)
        assert set(statuses.values()) == {500}
        assert bad["id-10"]["response"]["body"]["error"]["param"] == "n"


@pytest.mark.parametrize(
    ("content", "code", "number"),
    [
        (b"", "empty_file", None),
        (b"\n \n", "empty_file", None),
        (lines(line(3, "x")), "duplicate_custom_id", 11),
        (lines({"custom_id": "a"}), "invalid_json_line", 11),
        (lines(line(11, "x", url="/v1/embeddings")), "invalid_json_line", 11),
        (lines() + b"\n\xff\xfe", "invalid_json_line", 11),
        (lines() + b"\n" + b"[" * 200_000, "invalid_json_line", 11),
        (lines() + b"\n" + b"x" * 9_000_000, "invalid_json_line", 11),
        (b"\n".join(json.dumps(line(n, "x")).encode() for n in range(50_001)), "too_many_tasks", 50_001),
    ],
    ids=["empty", "blank", "twice", "fields", "url", "bytes", "deep", "long", "many"],
)  # fmt: skip
async def test_a_file_that_is_wrong_fails_whole_and_names_the_line(
    content: bytes, code: str, number: int | None
) -> None:
    async with served() as url, client_at(url) as client:
        job = await client.batches.retrieve((await submitted(client, content)).id)
        assert (job.status, job.output_file_id) == ("failed", None)
        assert job.errors is not None
        [trouble] = job.errors.data or []
        assert (trouble.code, trouble.line) == (code, number)


async def test_no_more_is_stored_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_batches, "_MOST_STORED_BYTES", len(lines()) + 3_000)
    async with served() as url, client_at(url) as client:
        job = await client.batches.retrieve((await submitted(client, lines())).id)
        assert (job.status, job.output_file_id) == ("failed", None)
        assert job.errors is not None
        assert [trouble.code for trouble in job.errors.data or []] == ["storage_full"]
        with pytest.raises(openai.APIStatusError, match="stores no more"):
            await client.files.create(file=("a.jsonl", b"x" * 3_001), purpose="batch")
        await client.files.create(file=("a.jsonl", b"x" * 3_000), purpose="batch")  # what was cut off is gone
        monkeypatch.setattr(served_batches, "_LARGEST_FILE_BYTES", 10)
        with pytest.raises(openai.APIStatusError, match="may have 10 bytes"):
            await client.files.create(file=("a.jsonl", b"x" * 11), purpose="batch")


async def test_nothing_is_left_on_disk_when_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with served() as url, client_at(url) as client:
        await submitted(client, lines())
        assert len(stored(tmp_path)) == 1
    assert stored(tmp_path, "*") == []


def _forms() -> Iterator[tuple[bytes, bytes]]:
    """Bodies with their content types, most of them wrong."""
    part = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    purpose, file = part % (b"purpose", b"", b"batch"), part % (b"file", b'; filename="a"', b"{}")
    form = b"multipart/form-data; boundary=b"
    yield from ((purpose + file, b"application/json"), (b"", b"multipart/form-data"), (b"", form))
    yield from ((purpose + file[:20], form), (b"no form", form), (purpose, form), (file, form))
    yield from ((b"", b"multipart/form-data; boundary=" + b"b" * 100), (b"--b\r\n" + b"A: b\r\n" * 500, form))
    odd = b'; filename="\xed\xa0\x80\xff/../../etc/passwd"'
    yield from ((purpose + part % (b"file", odd, b"{}") + b"--b--\r\n", form),)
    for more in (b"Content-Length: -1", b"Content-Length: x", b"Content-Transfer-Encoding: odd",
                 b"Content-Encoding: gzip", b"Content-Type: multipart/mixed; boundary=c"):  # fmt: skip
        headers = b'; filename="a"\r\n' + more
        yield (purpose + part % (b"file", headers, b"{}") + b"--b--\r\n", form)
    rng, whole = random.Random(7), purpose + file + b"--b--\r\n"
    for _ in range(300):
        at = rng.randrange(len(whole))
        yield (whole[:at] + rng.randbytes(rng.randint(0, 4)) + whole[at + rng.randint(0, 9) :], form)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionHeader")
@pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionParam")
async def test_odd_forms_are_answered_or_refused_in_openais_shape(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as url, ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        statuses = []
        for body, kind in _forms():
            async with session.post(
                f"{url}/files", data=body, headers={"Content-Type": kind.decode()}
            ) as response:
                statuses.append(response.status)
                said = await response.json()
                assert response.status in (200, 400, 413), (body, said)
                assert ("error" in said) == (response.status != 200), body
        assert (statuses.count(200) > 5, statuses.count(400) > 50) == (True, True)
        for content in (
            b"",
            b"[]",
            b"{}",
            b'{"input_file_id": 1}',
            b"[" * 100_000,
            b'{"metadata": {"a": 5}}',
        ):
            async with session.post(f"{url}/batches", data=content) as response:
                assert response.status == 400, content
        for query in ("limit=0", "limit=101", "limit=-1", "limit=%C2%B2", "limit=" + "9" * 5000):
            async with session.get(f"{url}/batches?{query}") as response:
                assert response.status == 400, query
    assert not caplog.records


@pytest.mark.process
async def test_a_client_that_leaves_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with served() as url:
        port = url.split(":")[2].split("/")[0]
        _, writer = await asyncio.open_connection("127.0.0.1", int(port))
        head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        head += "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n\r\n"
        part = '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        writer.write((head + part).encode() + b"x" * 300_000)
        await writer.drain()
        while not stored(tmp_path):  # noqa: ASYNC110  the server's doing
            await asyncio.sleep(0.01)
        writer.transport.abort()
        async with asyncio.timeout(10):
            while stored(tmp_path):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert not caplog.records


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_pieces(whole: Path) -> Iterator[bytes]:
    with whole.open("rb") as file:
        while piece := file.read(1 << 16):
            yield piece


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """150 MB of requests."""
    whole, padding = tmp_path / "requests.jsonl", "x" * 3_000_000
    with whole.open("w") as file:
        for number in range(50):
            file.write(json.dumps(line(number, "a question", mine=padding)) + "\n")
    return whole


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read as Linux shows it")
async def test_a_large_file_is_never_in_memory(large: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in in_pieces(large):
            yield piece

    before = resident_mb()
    async with served() as url, ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        form = FormData({"purpose": "batch"})
        form.add_field("file", pieces(), filename="requests.jsonl", content_type="application/jsonl")
        async with session.post(f"{url}/files", data=form) as response:
            file = await response.json()
        needed = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
        async with session.post(f"{url}/batches", json=needed) as response:
            made = await response.json()
        async with session.get(f"{url}/batches/{made['id']}") as response:
            ended = await response.json()
    assert (ended["status"], ended["request_counts"]["completed"]) == ("completed", 50)
    assert resident_mb() - before < 60


async def test_our_own_client_reads_what_it_writes(tmp_path: Path) -> None:
    """Submitted, found by its tag, checked and collected; an expired job lacks what was not asked."""
    async with served(0.0, None, 2) as url:
        spec = ModelSpec(name="mine", interface="openai", model="sim", base_url=url)
        env = {"OPENAI_API_KEY": KEY}
        bodies = bodies_of(spec, env, TEXTS)
        async with batches_at(OpenAiBatches, spec, env) as api:
            for tag, end, count in (("a", "ended", 10), ("b", "expired", 5)):
                job = job_of(api, tmp_path, bodies, tag * 32)
                job_id = await api.create(job)
                assert await api.find(job) == job_id
                progress = await api.check(job_id)
                assert (progress.state, progress.done, progress.total) == (end, count, 10)
                reported = await replies(api, job_id, tmp_path)
                assert [reply.status for reply in reported.values()].count(200) == count
                assert set(reported) == set(bodies)
                assert {reply.status for reply in reported.values()} <= {200, None}


def student(name: str, url: str, *, batched: bool) -> dict[str, Any]:
    """A model at the server, priced as a known one."""
    parameters = {"model": "sim", "base_model": "gpt-4o-mini", "base_url": url, "max_tokens": 500}
    made = {"name": name, "interface": "openai", "roles": ["student"], "parameters": parameters}
    return {**made, "batch_enabled": batched}


@pytest.mark.process
def test_expired_and_failed_jobs_are_made_up_for_and_answers_of_jobs_cost_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second job expires, the third is refused; single requests fail besides."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    shares, codes = {}, {}
    for batched in (True, False):
        with simulated_host("sim", batches=BatchFates(0.0, 3, 2, 10)) as url:
            models = [student(name, url, batched=batched) for name in ("one", "two")]
            settings = {"batch_poll_s": [0.05, 0.1]}
            lab = Lab(
                tmp_path,
                [model("ann", "teacher", "judge"), *models],
                [task(total=40)],
                settings,
                id=f"exp-{batched}",
            )
            codes[batched] = [lab.run().exit_code]
            while codes[batched][-1] == 3 and len(codes[batched]) < 9:
                codes[batched].append(lab.run(continue_run=True).exit_code)
        assert codes[batched][-1] == 0
        usages = [row["usage"] for row in lab.records("response_collection").values()]
        shares[batched] = Counter(
            round(use["cost_usd"] / (use["input_tokens"] * 0.15e-6 + use["output_tokens"] * 0.6e-6), 3)
            for use in usages
        )
    assert len(codes[True]) > len(codes[False])
    assert shares[False] == {1.0: 80}
    assert shares[True] == {0.5: 80 - shares[True][1.0], 1.0: shares[True][1.0]}
    assert 0 < shares[True][1.0] <= 10, "a request that failed in a job is asked again live"
