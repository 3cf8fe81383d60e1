"""Anthropic's batches at a fake that its own client drives as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import pytest
from aiohttp import web
from batch_at import batches_at, bodies_of, job_of, replies
from fakes.anthropic_batches import BatchServer, Fate, batch_fake
from fakes.anthropic_messages import Error, Spoken
from fakes.scripted import listening

from coeval.core.errors import AccessDenied, BadRequest, ConnectionFailed, NotFound, Unreadable
from coeval.core.model import ModelSpec
from coeval.models.batch.anthropic_batches import MessageBatches
from coeval.models.batch.batch_api import Undecided, cancel_job
from coeval.models.transport.connection import HttpReply

KEY = "sk-ant-test-0123456789abcdef"
ENV = {"ANTHROPIC_API_KEY": KEY}
MODEL = "claude-haiku-4-5"
TEXTS = ("one", "two", "three", "four", "five")


@pytest.fixture
async def server() -> AsyncIterator[BatchServer]:
    async with batch_fake(keys=[KEY], models=[MODEL]) as running:
        yield running


def spec(server: BatchServer, model: str = MODEL) -> ModelSpec:
    return ModelSpec(name="m", interface="anthropic", model=model, base_url=server.url)


def ours(server: BatchServer, env: dict[str, str] = ENV) -> AbstractAsyncContextManager[MessageBatches]:
    return batches_at(MessageBatches, spec(server), env)


def bodies(server: BatchServer, *texts: str, model: str = MODEL) -> dict[str, bytes]:
    return bodies_of(spec(server, model), ENV, texts or TEXTS)


def client(server: BatchServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0)


def theirs(custom_id: str, text: str) -> Any:
    messages = [{"role": "user", "content": text}]
    return {"custom_id": custom_id, "params": {"model": MODEL, "max_tokens": 50, "messages": messages}}


@asynccontextmanager
async def always(said: bytes) -> AsyncIterator[tuple[str, list[str]]]:
    """The URL of a host that says the same to all, and the paths it was asked for."""
    requested: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requested.append(request.path)
        await request.read()
        return web.Response(body=said, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with listening(app) as url:
        yield url, requested


def of_text(fates: dict[str, Fate]) -> Any:
    """What becomes of a request, by its text; those that are not named are answered with it."""

    def fate(params: dict[str, Any]) -> Fate:
        text = params["messages"][0]["content"]
        return fates.get(text, Spoken(text.upper()))

    return fate


async def test_the_client_and_we_submit_equal_jobs(server: BatchServer, tmp_path: Path) -> None:
    requests = [theirs(custom_id, text) for custom_id, text in zip(bodies(server), TEXTS, strict=True)]
    async with client(server) as official:
        await official.messages.batches.create(requests=requests)
    async with ours(server) as api:
        await api.create(job_of(api, tmp_path, bodies(server)))
    first, second = (msgspec.json.decode(body) for body in server.creations)
    assert first == second


async def test_the_client_drives_a_batch_through_its_life(server: BatchServer) -> None:
    fates: dict[str, Fate] = {"two": Error(529, "busy"), "three": "expired"}
    server.fate = of_text(fates)
    async with client(server) as official:
        batches = official.messages.batches
        made = await batches.create(requests=[theirs(f"id-{text}", text) for text in TEXTS])
        assert (made.processing_status, made.request_counts.processing, made.results_url) == (
            "in_progress",
            5,
            None,
        )
        running = await batches.retrieve(made.id)
        ended = await batches.retrieve(made.id)
        assert (running.processing_status, ended.processing_status) == ("in_progress", "ended")
        reported = {line.custom_id: line.result.type async for line in await batches.results(made.id)}
        assert [reported[f"id-{text}"] for text in TEXTS] == [
            *("succeeded", "errored", "expired", "succeeded", "succeeded")
        ]
        assert list(reported) != [f"id-{text}" for text in TEXTS]
        second = await batches.create(requests=[theirs("other", "six")])
        assert (await batches.cancel(second.id)).processing_status == "canceling"
        assert [batch.id async for batch in batches.list(limit=1)] == [second.id, made.id]
        with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
            await batches.delete(second.id)
        await batches.delete(made.id)
        with pytest.raises(anthropic.NotFoundError):
            await batches.retrieve(made.id)


async def test_results_are_told_of_every_request(server: BatchServer, tmp_path: Path) -> None:
    server.fate = of_text({"two": Error(400, "prompt is too long"), "three": "expired", "four": "canceled"})
    async with ours(server) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(server)))
        first, second = await api.check(job_id), await api.check(job_id)
        found = await replies(api, job_id, tmp_path)
    assert (first.state, first.shown, first.total, first.done) == ("running", "in_progress", 5, None)
    assert (second.state, second.shown, second.done, second.failed) == ("cancelled", "ended", 2, 3)
    assert [reply.status for reply in (found[custom_id] for custom_id in bodies(server))] == [
        *(200, 400, None, None, 200)
    ]
    answer = msgspec.json.decode(found[f"{5:032x}"].body)
    assert (answer["content"][0]["text"], answer["usage"]["service_tier"]) == ("FIVE", "batch")
    assert msgspec.json.decode(found[f"{2:032x}"].body)["error"]["message"] == "prompt is too long"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("not_found_error", 404),
        ("overloaded_error", 529),
        ("an_error_of_tomorrow", 500),
    ],
)
async def test_an_error_has_the_status_that_it_has_live(
    server: BatchServer, tmp_path: Path, kind: str, status: int
) -> None:
    server.fate = lambda _: Error(status, kind=kind)
    async with ours(server) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(server, "one")))
        server.end(job_id)
        (reply,) = (await replies(api, job_id, tmp_path)).values()
    assert reply.status == status


async def test_a_job_may_be_as_large_as_the_host_takes_and_no_larger(
    server: BatchServer, tmp_path: Path
) -> None:
    """What we count against the limit is what is sent, to the byte."""
    async with ours(server) as api:
        envelope = 256_000_000 - api.limits.bytes
        job = job_of(api, tmp_path, bodies(server, *("long " * 60_000 for _ in range(3))))
        server.most_bytes = job.bytes + envelope
        await api.create(job)
        server.most_bytes -= envelope + 1
        with pytest.raises(BadRequest, match="maximum size") as refused:
            await api.create(job)
    assert refused.value.status == 413
    assert len(server.creations[0]) <= job.bytes + envelope
    assert len(server.batches) == 1


async def test_refusals_say_why(server: BatchServer, tmp_path: Path) -> None:
    server.most_requests = 4
    async with ours(server) as api:
        with pytest.raises(BadRequest, match="at most 4 items"):
            await api.create(job_of(api, tmp_path, bodies(server)))
    async with ours(server, {"ANTHROPIC_API_KEY": "sk-ant-test-another"}) as api:
        with pytest.raises(AccessDenied) as denied:
            await api.check("msgbatch_1")
    assert "sk-ant-test-another" not in str(denied.value)


async def test_a_job_whose_id_was_lost_is_found_once_it_has_ended(
    server: BatchServer, tmp_path: Path
) -> None:
    server.losses.append("after")
    async with ours(server) as api:
        job = job_of(api, tmp_path, bodies(server))
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        with pytest.raises(Undecided, match="shows when it ends"):
            await api.find(job)
        assert await api.find(job) == "msgbatch_00001"
    assert len(server.batches) == 1
    assert _files(tmp_path) == [job.lines.name]


def _files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_job_that_never_came_is_not_found(server: BatchServer, tmp_path: Path) -> None:
    server.losses.append("before")
    async with ours(server) as api:
        job = job_of(api, tmp_path, bodies(server))
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        assert await api.find(job) is None


@pytest.mark.process
@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
async def test_a_lost_job_is_told_from_others_like_it(
    server: BatchServer, tmp_path: Path, ahead_s: float
) -> None:
    """Full jobs of one run, one of yesterday, another run's of as many requests, smaller ones; more than
    there are in a page of the list."""
    server.clock_ahead_s = ahead_s
    texts = ("eleven", "twelve", "thirteen", "fourteen", "fifteen")
    async with ours(server) as api, client(server) as official:
        needed = bodies(server)
        old = await api.create(job_of(api, tmp_path, needed))
        server.batches[old].created -= 86_400
        ids = [f"{number:032x}" for number in range(50, 55)]
        foreign = [theirs(custom_id, text) for custom_id, text in zip(ids, texts, strict=True)]
        await official.messages.batches.create(requests=foreign)
        full = await api.create(job_of(api, tmp_path, needed, tag="b" * 32))
        job = job_of(api, tmp_path, needed)._replace(others=frozenset([full]))
        lost = await api.create(job)
        for number in range(120):
            await official.messages.batches.create(requests=[theirs(f"id-{number}", "hello")])
        await official.messages.batches.create(requests=foreign)
        for batch in server.batches:
            server.end(batch)
        assert await api.find(job) == lost
    assert len(server.lists) == 2


async def test_what_another_runs_meanwhile_is_waited_for_and_not_adopted(
    server: BatchServer, tmp_path: Path
) -> None:
    server.polls = None
    async with ours(server) as api, client(server) as official:
        job = job_of(api, tmp_path, bodies(server, "one"))
        another = await official.messages.batches.create(requests=[theirs("id", "hello")])
        for _ in range(3):
            with pytest.raises(Undecided):
                await api.find(job)
        server.end(another.id)
        assert await api.find(job) is None


async def test_the_same_requests_in_an_earlier_job_are_not_taken_for_the_lost_one(
    server: BatchServer, tmp_path: Path
) -> None:
    """A job was cancelled, forgotten, and its requests submitted again, all within an hour."""
    async with ours(server) as api:
        earlier = await api.create(job_of(api, tmp_path, bodies(server)))
        server.end(earlier)
        server.polls = None
        job = job_of(api, tmp_path, bodies(server), tag="b" * 32)
        lost = await api.create(job)
        with pytest.raises(Undecided):
            await api.find(job)
        server.end(lost)
        assert await api.find(job) == lost


async def test_a_list_that_lags_shows_a_job_later(server: BatchServer, tmp_path: Path) -> None:
    server.hidden, server.polls = 2, 0
    async with ours(server) as api:
        job = job_of(api, tmp_path, bodies(server))
        job_id = await api.create(job)
        assert [await api.find(job) for _ in range(3)] == [None, None, job_id]


async def test_cancelling_leaves_what_is_done(server: BatchServer, tmp_path: Path) -> None:
    async with ours(server) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(server)))
        await cancel_job(api, job_id)
        progress = await api.check(job_id)
        assert (progress.state, progress.shown) == ("running", "canceling")
        assert (await api.check(job_id)).state == "cancelled"
        await cancel_job(api, job_id)  # it has ended: there is nothing to be done
        found = await replies(api, job_id, tmp_path)
    assert sorted(str(reply.status) for reply in found.values()) == ["200", "200", "200", "None", "None"]


async def test_all_that_expired_is_an_expired_job(server: BatchServer, tmp_path: Path) -> None:
    server.fate = lambda _: "expired"
    async with ours(server) as api:
        job_id = await api.create(job_of(api, tmp_path, bodies(server)))
        server.end(job_id)
        assert (await api.check(job_id)).state == "expired"


async def test_results_that_are_kept_no_more(server: BatchServer, tmp_path: Path) -> None:
    async with ours(server) as api:
        job = job_of(api, tmp_path, bodies(server))
        job_id = await api.create(job)
        server.end(job_id)
        server.archive(job_id)
        with pytest.raises(NotFound, match="no available results"):
            await replies(api, job_id, tmp_path)
        assert await api.find(job) is None


async def test_a_key_is_not_shown_where_results_are_said_to_be(server: BatchServer, tmp_path: Path) -> None:
    """Behind a gateway the host may name an address of its own: results are asked for at the gateway."""
    async with always(b"{}") as (url, requested), ours(server) as api:
        server.results_at = f"{url}/results"
        job_id = await api.create(job_of(api, tmp_path, bodies(server)))
        server.end(job_id)
        assert len(await replies(api, job_id, tmp_path)) == len(TEXTS)
        assert requested == []


@pytest.mark.parametrize("said", [b"{}", b"<html>", b'{"id": 1}'])
async def test_what_is_no_batch_is_an_error(tmp_path: Path, said: bytes) -> None:
    async with always(said) as (url, _):
        model = ModelSpec(name="m", interface="anthropic", model=MODEL, base_url=url)
        async with batches_at(MessageBatches, model, ENV) as api:
            job = job_of(api, tmp_path, bodies_of(model, ENV, TEXTS))
            with pytest.raises(Unreadable):
                await api.create(job)
            with pytest.raises(Unreadable):
                await api.find(job)
            with pytest.raises(Unreadable):
                await replies(api, "some-id", tmp_path)


async def test_a_list_of_batches_that_has_no_end_is_given_up(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*_: Any, **__: Any) -> HttpReply:
        await asyncio.sleep(0)
        return HttpReply(200, {}, b'{"data": [], "has_more": true, "last_id": "msgbatch_1"}')

    async with ours(server) as api:
        job = job_of(api, tmp_path, bodies(server))
        monkeypatch.setattr(api._http, "send", endless)
        assert await asyncio.wait_for(api.find(job), 10) is None
