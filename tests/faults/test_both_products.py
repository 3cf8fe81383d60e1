"""The same faults for both programs: what is finished stays, what is missing is told, the same command goes
on."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, Broken, Fault, Server, fake
from products import KEY, PRODUCTS, N, Product, ended, in_thread

pytestmark = pytest.mark.parametrize("product", PRODUCTS)


def good(_: list[dict[str, Any]]) -> Behaviour:
    return Answer("one")


@pytest.mark.process
async def test_a_key_that_is_refused_on_the_way_stops_that_model(product: str, tmp_path: Path) -> None:
    """What was answered stays; the failures are listed; with the key mended the same command goes on."""
    broken, requested = True, 0

    def reply(_: list[dict[str, Any]]) -> Behaviour:
        nonlocal requested
        requested += 1
        return Fault(401, "no longer valid") if broken and requested > 20 else Answer("one")

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 3
        assert "401" in done.err
        assert len(program.answers()) == 19
        assert {error["model"] for error in program.errors()} == {"m"}
        assert "401" in (program.output / "run.log").read_text()
        assert "What failed, and why: " in done.err
        assert len(server.requested) < N, "it was given up"
        broken = False
        again = await in_thread(program.run)
    assert (again.code, len(program.answers())) == (0, N)


@pytest.mark.process
async def test_a_ceiling_is_never_passed_and_is_told(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, max_calls=25)
        assert done.code == 3
        assert "25 of the 25 requests" in done.out + done.err
        assert "max-calls" in (done.out + done.err).replace("max_calls", "max-calls")
        assert len(server.requested) == program.sent() == 25
        assert len(program.answers()) == 24
        again = await in_thread(program.run, max_calls=25)
        assert (again.code, len(server.requested)) == (3, 25)
        last = await in_thread(program.run, max_calls=2 * N)
        assert (last.code, len(program.answers())) == (0, N)


@pytest.mark.process
async def test_ctrl_c_keeps_what_is_finished(product: str, tmp_path: Path) -> None:
    def reply(_: list[dict[str, Any]]) -> Behaviour:
        time.sleep(0.02)
        return Answer("one")

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        process = program.start()
        await server.arrived(15)
        process.send_signal(signal.SIGINT)
        done = await in_thread(ended, process)
        assert done.code == 130
        kept = len(program.answers())
        assert 10 <= kept < N
        requested = len(server.requested)
        again = await in_thread(program.run)
        assert (again.code, len(program.answers())) == (0, N)
        assert len(server.requested) - requested <= N - kept + 1, "what was finished is not asked again"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    how = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if sys.platform != "linux" or subprocess.run(how, check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)


@pytest.mark.process
async def test_a_full_disk_ends_it_with_one_message(product: str, small_disk: Path) -> None:
    async with fake(reply=lambda _: Answer("one " * 800), extra_fields=["top_k"]) as server:
        program = Product(product, small_disk, server.url)
        done = await in_thread(program.run)
        assert done.code == 1
        assert "is full" in done.err
        kept = set(program.answers())
        assert kept
        remount(small_disk)
        again = await in_thread(program.run)
    assert again.code == 0
    assert kept < set(program.answers())
    assert len(program.answers()) == N


@pytest.mark.process
async def test_a_log_that_is_no_file_is_named(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        (program.output / "run.log").mkdir(parents=True)
        done = await in_thread(program.run)
        assert done.code == 1
        assert "run.log: it is a folder, not a file" in done.err
        assert server.requested == []


# Models are tried before anything is asked of them, in both programs by the same flags, to the same end.


def refusing(_: list[dict[str, Any]]) -> Behaviour:
    return Fault(401, f"Incorrect API key provided: {KEY}")


def probes(server: Server) -> int:
    """Requests that are no work: they ask for a single word."""
    return sum("single word" in body["messages"][-1]["content"] for body in server.bodies)


def found(program: Product) -> list[tuple[str, bool]]:
    """What `probe_results.json` says of each model."""
    written = json.loads((program.output / "probe_results.json").read_text())
    assert written["at"].endswith("Z")
    assert KEY not in json.dumps(written)
    return [(model["name"], model["ok"]) for model in written["models"]]


@pytest.mark.process
@pytest.mark.parametrize("mode", ["full", "resume"])
async def test_who_has_work_is_asked_once_and_every_answer_is_kept_and_booked(
    product: str, mode: str, tmp_path: Path
) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, "--probe", mode)
        assert (done.code, len(program.answers()), program.errors()) == (0, N, [])
        assert "probing 1 model" in done.err
        assert found(program) == [("m", True)]
        for _ in range(2):
            assert (probes(server), len(server.requested), program.sent()) == (1, N + 1, N + 1)
            assert taken(program) == of(N + 1), "the probe counts"
            assert program.used()["cost_usd"] == 0.0, "a server of one's own costs nothing"
            assert (await in_thread(program.run, "--probe", mode)).code == 0, "nothing is owed"


@pytest.mark.process
async def test_nobody_is_asked_where_that_is_turned_off(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, "--probe", "disable")
        assert (done.code, probes(server), len(server.requested)) == (0, 0, N)
        assert not (program.output / "probe_results.json").exists()


@pytest.mark.process
async def test_one_that_does_not_answer_ends_the_start(product: str, tmp_path: Path) -> None:
    """Nothing is asked, the message names the way out, and the same command can be repeated."""
    async with fake(reply=refusing, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 2
        assert "1 of 1 models does not answer:\n  m: " in done.err
        assert "401" in done.err
        assert "or continue anyway with --probe-on-fail warn." in done.err
        assert (len(server.requested), program.sent(), found(program)) == (1, 1, [("m", False)])
        assert program.answers() == {}
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        mended = Product(product, tmp_path, server.url)
        assert (await in_thread(mended.run)).code == 0
        assert (found(mended), len(mended.answers())) == ([("m", True)], N)


@pytest.mark.process
async def test_one_that_does_not_answer_is_only_told_where_that_is_wanted(
    product: str, tmp_path: Path
) -> None:
    """A host that refuses the first request alone is used all the same."""
    async with fake(Fault(403, "not yet"), reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, "--probe-on-fail", "warn")
        assert done.code == 0
        assert "warning: 1 of 1 models does not answer: m: " in done.err
        assert (found(program), len(program.answers())) == ([("m", False)], N)


@pytest.mark.process
async def test_other_words_are_refused_with_those_that_there_are(product: str, tmp_path: Path) -> None:
    program = Product(product, tmp_path, "http://127.0.0.1:9/v1")
    done = await in_thread(program.run, "--probe", "sometimes")
    assert done.code == 1
    assert all(word in done.err for word in ("full", "resume", "disable"))


# `usage.json` holds what every answer took, the moment it came: probes, failures and what was broken off.

TOLD = (11, 3)
"""Tokens that the fake host counts for each answer."""
AT_ONCE = {"Retry-After": "0"}


def taken(program: Product) -> tuple[int, int]:
    used = program.used()
    return used["input_tokens"], used["output_tokens"]


def of(answers: int) -> tuple[int, int]:
    return answers * TOLD[0], answers * TOLD[1]


@pytest.mark.process
async def test_answers_that_cannot_be_used_are_booked_with_what_they_took(
    product: str, tmp_path: Path
) -> None:
    """A filtered one fails its record, one that is broken off is asked for again; an error costs nothing."""
    answered = 0
    special = {5: "content_filter", 6: "error", 7: "content_filter", 8: "error"}

    def reply(_: list[dict[str, Any]]) -> Behaviour:
        nonlocal answered
        if len(server.requested) == 10:
            return Fault(503, headers=AT_ONCE)
        answered += 1
        return Answer("one", finish_reason=special.get(len(server.requested), "stop"), headers=AT_ONCE)

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 3
        assert {error["kind"] for error in program.errors()} == {"content_filter"}
        assert [record["usage"]["input_tokens"] for record in program.failures()] == [TOLD[0]] * 2
        assert (taken(program), program.sent()) == (of(answered), len(server.requested))


@pytest.mark.system
async def test_what_was_answered_before_a_record_was_given_up_is_booked(product: str, tmp_path: Path) -> None:
    """The first answer to each request is broken off; then nothing comes, and the run is interrupted."""
    replies = iter([Answer("one"), *[Answer(finish_reason="error", headers=AT_ONCE)] * 8])
    async with fake(reply=lambda _: next(replies, Broken.HANG), extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        process = program.start()
        await server.arrived(1 + 8 + 8)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        done = await in_thread(ended, process)
    assert done.code == 130
    assert program.answers() == {}
    assert (taken(program), program.sent()) == (of(9), len(server.requested))


@pytest.mark.process
async def test_no_kill_lets_a_ceiling_be_passed(product: str, tmp_path: Path) -> None:
    """Killed again and again in mid-air: what may have been sent counts, and no token twice."""
    ceiling = 50
    async with fake(reply=lambda _: Answer("one", delay_s=0.02), extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        for more in (1, 9, 5, 2, 14):
            process = program.start(max_calls=ceiling)
            await server.arrived(min(len(server.requested) + more, ceiling))
            process.kill()
            await asyncio.to_thread(process.communicate)
            used = program.used()
            assert len(server.requested) <= used["requests"] + used["reserved"] <= ceiling
            if used["requests"] + used["reserved"] == ceiling:
                break
        done = await in_thread(program.run, max_calls=ceiling)
        assert len(server.requested) <= program.sent() <= ceiling
        assert taken(program) <= of(len(server.requested))
        assert done.code == 3
        done = await in_thread(program.run, max_calls=3 * N)
    assert (done.code, len(program.answers())) == (0, N)
    assert program.used()["reserved"] == 0
