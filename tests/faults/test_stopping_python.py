"""Ctrl-C, cancellation and other ends of `coeval.run` and `coeval.arun` in plain Python."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from fakes.flaky_host import Requested, hosted
from pipeline.experiments import Lab, model, task
from pipeline.test_run_documents import about, handbook

import coeval

LONG_S = 120


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Half of the items come at once, and the answers to them never within a test."""
    lab = Lab(
        tmp_path, [model("tea", "teacher"), model("ann", "student", latency_s=600), model("jud", "judge")]
    )
    lab.tasks = [task(total=5)]
    lab.settings["probe_mode"] = "disable"
    return lab


def wait_for_items(lab: Lab, process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + LONG_S
    items = lab.path / "phase3_datapoints" / "story.tea.datapoints.jsonl"
    while not (items.exists() and items.read_bytes().count(b"\n") == 5):
        assert time.monotonic() < end
        assert process is None or process.poll() is None
        time.sleep(0.02)


@contextmanager
def script(lab: Lab, code: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-c", f"import coeval, signal; FILE = {str(lab.file)!r}\n{code}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for_items(lab, process)
            yield process
        finally:
            process.kill()


@pytest.mark.system
def test_ctrl_c_in_a_script_returns_the_run(lab: Lab) -> None:
    code = "run = coeval.run(FILE)\nprint(run.exit_code, len(run.records('data_generation')), run)"
    with script(lab, code) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_S)
    assert (process.returncode, err) == (0, "")
    assert out == f"130 5 Run({str(lab.path)!r}, Summary(interrupted, 5 of 15 records there))\n"
    assert lab.meta()["status"] == "interrupted"
    lab.models[1]["parameters"]["latency_s"] = 0
    assert lab.run(continue_run=True).exit_code == 0


@pytest.mark.process
def test_a_second_ctrl_c_in_a_script_ends_it_at_once(lab: Lab) -> None:
    code = "try:\n    coeval.run(FILE, progress=True)\nexcept KeyboardInterrupt:\n    print('ended')"
    with script(lab, code) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_S)
    assert (process.returncode, out) == (0, "ended\n")
    assert "stopping: waiting a few seconds" in err
    assert "Traceback" not in err
    assert lab.meta()["status"] == "interrupted"


@pytest.mark.system
def test_a_handler_of_the_scripts_own_is_called_too(lab: Lab) -> None:
    code = (
        "signal.signal(signal.SIGINT, lambda *_: print('mine'))\n"
        "print(coeval.run(FILE).exit_code)\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    with script(lab, code) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_S)
    assert (out, err) == ("mine\n130\nmine\n", "")


class Enough(Exception):
    """What somebody's own alarm raises."""


@pytest.mark.system
def test_an_exception_that_comes_into_the_waiting_ends_the_run_and_goes_on(lab: Lab) -> None:
    def alarm(_: int, __: FrameType | None) -> None:
        raise Enough

    before = signal.signal(signal.SIGUSR1, alarm)

    def ring() -> None:
        wait_for_items(lab)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    bell = threading.Thread(target=ring)
    file = lab.file
    bell.start()
    try:
        with pytest.raises(Enough):
            coeval.run(file)
    finally:
        signal.signal(signal.SIGUSR1, before)
        bell.join()
    assert lab.meta()["status"] == "interrupted"
    assert lab.counts() == (5, 0, 0)


def test_a_run_in_another_thread_leaves_ctrl_c_alone(lab: Lab) -> None:
    lab.models[1]["parameters"]["latency_s"] = 0
    handlers = []

    def work() -> None:
        lab.run()
        handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
    assert lab.counts() == (5, 5, 5)


async def test_a_cancelled_run_ends_at_once_and_can_be_continued(lab: Lab) -> None:
    run = asyncio.create_task(lab.arun())
    await asyncio.to_thread(wait_for_items, lab)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert lab.meta()["status"] == "interrupted"
    lab.models[1]["parameters"]["latency_s"] = 0
    assert (await lab.arun(continue_run=True)).exit_code == 0
    assert lab.counts() == (5, 5, 5)
    assert lab.meta()["status"] == "completed"


@pytest.mark.process
@pytest.mark.parametrize("after", [5, 13, 22])
async def test_an_interruption_drops_no_reply_that_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """An item takes three calls: those of a chain that has begun are all made, and are on record."""
    monkeypatch.chdir(tmp_path)
    file, interrupt = "runs/exp/phase3_datapoints/handbook.tea.datapoints.jsonl", asyncio.Event()

    async def reply(_: Requested) -> None:
        if len(host.requested) == after:
            interrupt.set()
        await asyncio.sleep(0.02)

    async with hosted(("tea",), fault=reply) as host:
        limits = {"max_concurrency": 4, "max_tokens": 400, "base_url": host.url}
        teacher = {
            **model("tea", "teacher"),
            "interface": "openai",
            "access_key": "sk-x",
            "parameters": limits,
        }
        config = {
            "models": [teacher, model("ann", "student"), model("joe", "judge")],
            "tasks": [about(handbook(tmp_path, files=8), total=40)],
            "experiment": {"id": "exp", "storage_folder": "runs", "probe_mode": "disable"},
        }
        await coeval.arun(config, interrupt=interrupt)
        made = [json.loads(line) for line in (tmp_path / file).read_text().splitlines()]
        assert 0 < len(made) < 40
        assert sum(item["attempts"] for item in made) == len(host.requested) >= after
