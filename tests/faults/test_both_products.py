"""The same faults for both programs: what is finished stays, what is missing is told, the same command goes
on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, Fault, fake
from products import KEY, PRODUCTS, N, Product, ended, in_thread

pytestmark = pytest.mark.parametrize("product", PRODUCTS)


def good(_: list[dict[str, Any]]) -> Behaviour:
    return Answer("one")


async def test_it_ends_well(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert (done.code, len(program.answers()), program.errors()) == (0, N, [])
        assert program.sent() == len(server.asked) == N + 1, "the probe counts"
        again = await in_thread(program.run)
        assert (again.code, len(server.asked)) == (0, N + 1), "nothing is owed, nobody is asked"


async def test_a_key_that_is_refused_stops_it_before_anything_is_asked(product: str, tmp_path: Path) -> None:
    async with fake(
        reply=lambda _: Fault(401, f"Incorrect API key provided: {KEY}"), extra_fields=["top_k"]
    ) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
    assert done.code == 2
    assert "401" in done.err
    assert len(server.asked) == 1
    assert program.answers() == {}


@pytest.mark.slow
async def test_a_key_that_is_refused_on_the_way_stops_that_model(product: str, tmp_path: Path) -> None:
    """What was answered stays; the failures are listed; with the key mended the same command goes on."""
    broken, asked = True, 0

    def reply(_: list[dict[str, Any]]) -> Behaviour:
        nonlocal asked
        asked += 1
        return Fault(401, "no longer valid") if broken and asked > 20 else Answer("one")

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 3
        assert "401" in done.err
        assert len(program.answers()) == 19
        assert {error["model"] for error in program.errors()} == {"m"}
        assert "401" in (program.output / "run.log").read_text()
        assert "What failed, and why: " in done.err
        assert len(server.asked) < N, "it was given up"
        broken = False
        again = await in_thread(program.run)
    assert (again.code, len(program.answers())) == (0, N)


@pytest.mark.slow
async def test_a_ceiling_is_never_passed_and_is_told(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, max_calls=25)
        assert done.code == 3
        assert "25 of the 25 requests" in done.out + done.err
        assert "max-calls" in (done.out + done.err).replace("max_calls", "max-calls")
        assert len(server.asked) == program.sent() == 25
        assert len(program.answers()) == 24
        again = await in_thread(program.run, max_calls=25)
        assert (again.code, len(server.asked)) == (3, 25)
        last = await in_thread(program.run, max_calls=2 * N)
        assert (last.code, len(program.answers())) == (0, N)


@pytest.mark.slow
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
        asked = len(server.asked)
        again = await in_thread(program.run)
        assert (again.code, len(program.answers())) == (0, N)
        assert len(server.asked) - asked <= N - kept + 1, "what was finished is not asked again"


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


@pytest.mark.slow
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


async def test_a_log_that_is_no_file_is_named(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        (program.output / "run.log").mkdir(parents=True)
        done = await in_thread(program.run)
        assert done.code == 1
        assert "run.log: it is a folder, not a file" in done.err
        assert server.asked == []
