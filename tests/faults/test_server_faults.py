"""A host that fails in every way it can: what can succeed has succeeded, the rest says why, and is filled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from fakes.flaky_host import Fault, Requested, cut, error, hosted, said, torn
from small_runs import PHASES, content, errors, experiment, folder_of, good_lines, records, run

from coeval.pipeline.run_session import RunSummary

TOTAL = 10
CALLS = {"data_generation": TOTAL, "response_collection": 2 * TOTAL, "evaluation": 4 * TOTAL}
RECORDS = {**CALLS, "evaluation": 6 * TOTAL}  # labels are compared without a call


def every(n: int, fault: Fault) -> Fault:
    """Each n-th request meets with ``fault``."""

    async def faulty(requested: Requested) -> web.StreamResponse | None:
        return await fault(requested) if not requested.n % n else None

    return faulty


async def rate_limited(_: Requested) -> web.StreamResponse:
    return error(429, "slow down", retry_after="0")


async def broken_down(_: Requested) -> web.StreamResponse:
    return error(500)


async def reset(requested: Requested) -> web.StreamResponse:
    return cut(requested)


async def hung(_: Requested) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits so long")


async def half_a_body(_: Requested) -> web.StreamResponse:
    return web.Response(body=b'{"choices": [{"mess', content_type="application/json")


async def a_web_page(_: Requested) -> web.StreamResponse:
    return web.Response(text="<html>Welcome to the captive portal</html>", content_type="text/html")


def once(fault: Fault) -> Fault:
    """``fault``, unless the very same was asked before: what cannot be read is asked for only once more."""

    async def faulty(requested: Requested) -> web.StreamResponse | None:
        return await fault(requested) if requested.times == 1 else None

    return faulty


async def all_at_once(requested: Requested) -> web.StreamResponse | None:
    ways: tuple[Fault, ...] = (
        rate_limited,
        broken_down,
        reset,
        torn,
        once(half_a_body),
    )
    return await ways[requested.n // 3 % len(ways)](requested) if not requested.n % 3 else None


def assert_whole(summary: RunSummary, file: Path) -> None:
    assert summary.exit_code == 0
    folder = folder_of(file)
    assert {phase: len(records(folder, phase)) for phase in PHASES} == RECORDS
    assert set(good_lines(folder).values()) == {1}, "an id was recorded as good twice, or never"
    assert summary.missing == 0


PASSING = {
    "10 % 429 with Retry-After": every(10, rate_limited),
    "25 % 500": every(4, broken_down),
    "connections reset": every(7, reset),
    "truncated bodies": every(7, torn),
    "half a body that claims to be whole": every(7, once(half_a_body)),
    "a page of somebody else": every(7, once(a_web_page)),
    "one in a hundred hangs": every(30, hung),
    "all at once": all_at_once,
}


@pytest.mark.process
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
async def test_faults_that_pass_cost_attempts_and_nothing_else(tmp_path: Path, fault: Fault) -> None:
    async with hosted(fault=fault) as host:
        file = experiment(tmp_path, host.url, total=TOTAL, parameters={"timeout_s": 0.3})
        assert_whole(await run(file), file)
        assert len(host.requested) > sum(CALLS.values()), "no fault was met with"
    assert errors(folder_of(file)) == []


@pytest.mark.process
async def test_what_passing_faults_leave_is_what_a_healthy_host_leaves(tmp_path: Path) -> None:
    (tmp_path / "healthy").mkdir()
    (tmp_path / "faulty").mkdir()
    async with hosted() as host:
        healthy = experiment(tmp_path / "healthy", host.url, total=TOTAL)
        faulty = experiment(tmp_path / "faulty", host.url, total=TOTAL)
        await run(healthy)
        host.fault = all_at_once
        await run(faulty)
    assert content(folder_of(faulty)) == content(folder_of(healthy))


async def test_one_prompt_that_is_always_400_fails_alone(tmp_path: Path) -> None:
    doomed = ""

    async def refuses_one(requested: Requested) -> web.StreamResponse | None:
        nonlocal doomed
        if requested.model == "student-1" and not doomed:
            doomed = requested.text
        return error(400, "this prompt is not accepted") if requested.text == doomed else None

    async with hosted(fault=refuses_one) as host:
        file = experiment(tmp_path, host.url, total=TOTAL)
        summary = await run(file)
        folder = folder_of(file)
        assert summary.exit_code == 3
        failed = [r for r in records(folder, "response_collection").values() if r.get("status") == "failed"]
        assert len(failed) == 2, "both students are asked the same"
        for record in failed:
            assert record["error"]["kind"] == "bad_request"
            assert "this prompt is not accepted" in record["error"]["message"]
            assert "response" not in record
            assert record["attempts"] == 1, "what can only fail again is not asked again"
        assert {line.id for line in errors(folder)} == {record["id"] for record in failed}
        assert summary.phases["response_collection"].failed == {"bad_request": 2}
        assert len(records(folder, "evaluation")) == RECORDS["evaluation"] - 6
        assert summary.phases["evaluation"].blocked == 6
        requested_before = len(host.requested)
        host.fault = None
        assert_whole(await run(file, continue_run=True), file)
        assert len(host.requested) - requested_before == 2 + 4, "only what was owed is asked for"


async def test_a_host_of_web_pages_costs_two_requests_a_record(tmp_path: Path) -> None:
    async with hosted() as host, hosted(fault=a_web_page) as portal:
        file = experiment(tmp_path, host.url, total=TOTAL, urls={"student-2": portal.url})
        summary = await run(file)
        assert summary.phases["response_collection"].failed == {"unreadable": TOTAL}
        assert len(portal.requested) == 2 * TOTAL
        failed = [r for r in records(folder_of(file), "response_collection").values() if r.get("status")]
        assert all("captive portal" in record["error"]["message"] for record in failed)


@pytest.mark.process
@pytest.mark.parametrize("barriers", [False, True])
async def test_an_outage_of_one_model_leaves_the_others_whole(tmp_path: Path, barriers: bool) -> None:
    async with hosted() as host, hosted(fault=broken_down) as down:
        file = experiment(tmp_path, host.url, total=TOTAL, urls={"student-2": down.url})
        summary = await run(file, phase_barriers=barriers)
        folder = folder_of(file)
        assert summary.exit_code == 3
        responses = records(folder, "response_collection")
        for key, record in responses.items():
            failed = record["student_model_id"] == "student-2"
            assert (record.get("status") == "failed") == failed, key
        assert summary.phases["response_collection"].failed == {"server": TOTAL}
        assert len(records(folder, "evaluation")) == RECORDS["evaluation"] // 2
        assert not any(r.get("status") for r in records(folder, "evaluation").values())
        assert len(down.requested) <= TOTAL * 8 * 3, "no more than all attempts of all askings"
        down.fault = None
        assert_whole(await run(file, continue_run=True), file)


@pytest.mark.process
async def test_an_outage_ends_soon_for_what_is_left(tmp_path: Path) -> None:
    """After 30 s of nothing but errors the remaining requests get one attempt each."""
    async with hosted(fault=broken_down) as host:
        file = experiment(tmp_path, host.url, total=40)
        summary = await run(file)
        assert summary.phases["data_generation"].failed == {"server": 40}
        first, last = records(folder_of(file), "data_generation").values(), errors(folder_of(file))
        assert any("only errors for" in record["error"]["message"] for record in first)
        assert len(last) == 40
        assert len(host.requested) < 40 * 8
        host.fault = None
        assert (await run(file, continue_run=True)).exit_code == 0


@pytest.mark.process
async def test_a_host_that_is_not_there_fails_each_item_with_its_reason_and_uses_up_nothing(
    tmp_path: Path,
) -> None:
    async with hosted() as host:
        port = int(host.url.rpartition(":")[2].removesuffix("/v1"))
        quota = {name: {"max_calls": TOTAL} for name in ("teacher", "student-1")}
        file = experiment(tmp_path, host.url, total=TOTAL, settings={"quota": quota})
    summary = await run(file)  # nobody listens there any more
    assert summary.exit_code == 3
    assert summary.phases["data_generation"].failed == {"connection": TOTAL}
    assert all("no connection" in line.message for line in errors(folder_of(file)))
    used = json.loads(folder_of(file).usage.read_text())["models"]["teacher"]
    assert (used["requests"], used["reserved"]) == (0, 0)
    async with hosted(port=port) as host:
        assert_whole(await run(file, continue_run=True), file)
        assert host.count("teacher") == host.count("student-1") == TOTAL


@pytest.mark.process
async def test_probes_and_retries_count_against_max_calls(tmp_path: Path) -> None:
    async def every_third_fails(requested: Requested) -> web.StreamResponse | None:
        return error(500) if requested.model == "student-1" and not requested.n % 3 else None

    settings = {
        "quota": {"student-1": {"max_calls": TOTAL}}, "probe_mode": "full", "probe_on_fail": "warn"
    }  # fmt: skip
    async with hosted(fault=every_third_fails) as host:
        file = experiment(tmp_path, host.url, total=12, settings=settings)
        for times in range(3):
            summary = await run(file, continue_run=times > 0)
            assert summary.exit_code == 3
            assert host.count("student-1") == TOTAL, "to the last one, and never one more"
    answered = sum(key.endswith("__student-1") for key in good_lines(folder_of(file)))
    assert summary.phases["response_collection"].gaps == {"quota": 12 - answered}


async def test_verdicts_that_cannot_be_read_are_failures_never_scores(tmp_path: Path) -> None:
    async def talks(requested: Requested) -> web.StreamResponse | None:
        return (
            said(requested, "Much depends on what one looks for.") if requested.model == "judge-1" else None
        )

    async with hosted(fault=talks) as host:
        file = experiment(tmp_path, host.url, total=TOTAL)
        summary = await run(file)
        assert summary.exit_code == 3
        for record in records(folder_of(file), "evaluation").values():
            if record["judge_model_id"] == "judge-1":
                assert (record["status"], record["scores"]) == ("failed", {})
                assert record["error"]["kind"] == "unparsable"
                assert record["attempts"] == 3, "asked once, and twice anew"
            else:
                assert "status" not in record
        assert summary.phases["evaluation"].failed == {"unparsable": 2 * TOTAL}
        assert host.count("judge-1") == 3 * 2 * TOTAL
        host.fault = None
        assert_whole(await run(file, continue_run=True), file)
