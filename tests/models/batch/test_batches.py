"""What holds of the batch jobs of every interface that keeps a tag of ours, at its fake.

Anthropic's keep none: see `test_anthropic_batches`. What one interface alone has is in its own file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from batch_at import BATCHING, TEXTS, At, batching_at
from fakes.batch_jobs import LOST

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    BatchLost,
    ConnectionFailed,
    NotFound,
    Pending,
    ServerFault,
    UsageError,
)
from coeval.models.batch.anthropic_batches import MessageBatches
from coeval.models.batch.batch_api import BATCH_APIS, BatchState, cancel_job, load_batch_maker
from coeval.models.batch.batch_index import ID_BYTES, BatchIndex, ids_path
from coeval.models.catalog import HOSTS, Host


@pytest.fixture(params=BATCHING)
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[At]:
    async with batching_at(request.param, tmp_path) as found:
        yield found


@pytest.mark.process
async def test_a_job_through_its_life(at: At) -> None:
    """Its errors have the status and the body that they have live."""
    faulty = at.batching.says.Fault
    at.host.says = at.batching.answering(
        {"two": faulty(400, "The prompt was filtered."), "four": faulty(429, "Too many")}
    )
    async with at.open() as api:
        job_id = await at.made(api)
        seen = [await api.check(job_id) for _ in at.batching.way]
        assert tuple(progress.state for progress in seen) == at.batching.way
        assert (seen[-1].total, seen[-1].done, seen[-1].failed) == (5, 3, 2)
        reported = await at.replies(api, job_id)
    found = [reported[custom_id] for custom_id in at.bodies()]
    assert [reply.status for reply in found] == [200, 400, 200, 429, 200]
    assert [at.batching.read(reply) for reply in found[::2]] == ["ONE", "THREE", "FIVE"]
    assert b"The prompt was filtered." in found[1].body
    assert sorted(at.batching.text_of(requested.body) for requested in at.host.requested) == sorted(TEXTS)


ENDS = [
    pytest.param(name, end, id=f"{name}-{end}")
    for name, batching in BATCHING.items()
    for end in batching.ends
    if end != "failed"
]


@pytest.mark.process
@pytest.mark.parametrize(("at", "end"), ENDS, indirect=["at"])
async def test_what_a_job_had_done_when_it_ended_is_collected_where_it_is_given_out(at: At, end: str) -> None:
    """The rest was never asked, whether the host says so of each or of none."""
    at.host.states, at.host.done = (at.host.states[0], at.batching.ends[end]), 2
    expected: BatchState = "cancelled" if end == "cancelled" else "expired"
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        assert (await api.check(job_id)).state == expected
        reported = await at.replies(api, job_id)
    first, second, *others = at.bodies()
    answered = [custom_id for custom_id, reply in reported.items() if reply.status == 200]
    assert set(answered) == ({first, second} if end in at.batching.keeps else set())
    assert not {reply.status for custom_id, reply in reported.items() if custom_id in others} - {None}
    assert len(at.host.requested) == 2


async def test_a_cancelled_job_stays_cancelled_and_gives_what_is_done(at: At) -> None:
    at.host.done = 3
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        await cancel_job(api, job_id)
        assert (await api.check(job_id)).state == "cancelled"
        kept = 3 if "cancelled" in at.batching.keeps else 0
        assert len(await at.replies(api, job_id)) == kept
        await cancel_job(api, job_id)  # it has ended: there is nothing to be done


async def test_a_failed_job_says_why_without_credentials(at: At) -> None:
    words = f"nothing works, {at.batching.secret} least"
    files = at.batching.says.__name__ == "fakes.openai_chat"
    at.host.failed_with = ("some_code", words) if files else words
    at.host.states = (at.host.states[0], at.batching.ends["failed"])
    async with at.open() as api:
        job_id = await at.made(api)
        await api.check(job_id)
        progress = await api.check(job_id)
    assert progress.state == "failed"
    assert isinstance(progress.error, BadRequest)
    assert "nothing works" in str(progress.error)
    assert at.batching.secret not in str(progress.error)


@pytest.mark.process
async def test_a_job_whose_id_was_lost_is_found_by_its_tag(at: At) -> None:
    async with at.open() as api:
        others = [await at.made(api, tag=mark * 32) for mark in "bc"]
        at.host.troubles = [("create", LOST)]
        job, never = at.job(api), at.job(api, "six", tag="d" * 32)
        with pytest.raises(ConnectionFailed):
            await api.create(job)
        at.host.lag = 1
        assert await api.find(job) is None  # not listed yet
        lost = await api.find(job)
        assert lost is not None
        assert lost not in others
        assert (await api.check(lost)).state == "running"
        assert await api.find(never) is None
        assert await api.find(job._replace(others=frozenset({lost}))) is None  # one that was refused
    assert len(at.host.jobs) == 3


async def test_a_job_that_never_came_is_not_found(at: At) -> None:
    at.host.troubles = [("create", at.batching.says.Fault(503, "overloaded"))]
    async with at.open() as api:
        job = at.job(api)
        with pytest.raises(ServerFault):
            await api.create(job)
        assert await api.find(job) is None
        await api.create(job)
    assert len(at.host.jobs) == 1


async def test_asking_is_repeated_where_the_host_stumbles(at: At) -> None:
    async with at.open() as api:
        job_id = await at.made(api)
        at.host.troubles += [("get", at.batching.says.Fault(503, "busy")), ("get", LOST)]
        assert (await api.check(job_id)).state == "running"


@pytest.mark.parametrize("at", ["openai", "azure", "azure v1", "mistral"], indirect=True)
async def test_a_wrong_key_is_named_and_not_shown(at: At) -> None:
    env = {name: value.replace(at.batching.secret, "wrong-key-0123456789") for name, value in at.env.items()}
    async with at.open(env) as api:
        with pytest.raises(AccessDenied) as denied:
            await at.made(api)
    assert "wrong-key" not in str(denied.value)


async def test_a_job_that_is_gone_is_not_found(at: At) -> None:
    async with at.open() as api:
        with pytest.raises(NotFound):
            await api.check(at.batching.gone)
        with pytest.raises(NotFound):
            await at.replies(api, at.batching.gone)
    assert at.host.jobs == {}


def test_every_interface_with_batches_is_tried() -> None:
    made: set[object] = {batching.made for batching in BATCHING.values()}
    assert made | {MessageBatches} == {
        load_batch_maker(HOSTS[name]) for name in HOSTS.own if HOSTS[name].batch
    }
    assert {HOSTS[name].batch for name in HOSTS.own} - {""} == BATCH_APIS.keys()


def test_another_packages_host_that_names_nothing_is_told() -> None:
    host = Host(name="theirs", dialect="openai_chat", batch="coeval.models.batch:nothing")
    with pytest.raises(UsageError, match="theirs"):
        load_batch_maker(host)


async def test_others_have_their_turn_while_a_large_job_is_gone_through(tmp_path: Path) -> None:
    """What is parked anew in between is left as it is."""
    index = BatchIndex(tmp_path, tmp_path / "pending_batches.json")
    ids = [os.urandom(ID_BYTES) for _ in range(20_000)]
    for tag, keys in (("a", ids[:10_000]), ("b", ids[10_000:])):
        ids_path(tmp_path, tag).write_bytes(b"".join(keys))
        index.mark_job_waiting(tag)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            with suppress(Pending):
                if index.find_outcome_or_raise_gap(ids[0]) is None:
                    index.mark_waiting(ids[0])
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    assert await index.list_waiting("a") == {key.hex() for key in ids[:10_000]}
    assert turns > 1
    await index.mark_waiting_lost("b", "its job is gone")
    await index.release_waiting("a")
    meanwhile.cancel()
    with pytest.raises(Pending):
        index.find_outcome_or_raise_gap(ids[0])
    assert index.find_outcome_or_raise_gap(ids[9_999]) is None
    with pytest.raises(BatchLost, match="its job is gone"):
        index.find_outcome_or_raise_gap(ids[10_000])
    assert await index.list_waiting("b") == set()
