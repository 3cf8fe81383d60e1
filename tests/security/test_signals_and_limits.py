"""Signals and limits that end a run leave what one can go on from; those that do not end it do no harm."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import command

SLOW = """\
models:
  - name: m
    interface: simulated
    roles: [teacher, student, judge]
    parameters: {latency_s: 0.05, max_concurrency: 4}
tasks:
  - {name: t, description: d, target_attributes: {a: [x, y]}, sampling: {total: 40}, rubric: {good: It is.}}
experiment: {id: e, storage_folder: runs, probe_mode: disable}
"""
OF_THE_MOMENT = ("generated_at", "evaluated_at", "latency_s")
GO_ON = ("run", "--config", "e.yaml", "--continue")


def content(place: Path) -> dict[str, dict[str, Any]]:
    """The records of a run by id, without times."""
    found = {}
    for path in sorted((place / "runs" / "e").glob("phase[345]*/*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            assert record["id"] not in found, "nothing is made twice"
            found[record["id"]] = {k: v for k, v in record.items() if k not in OF_THE_MOMENT}
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "e.yaml").write_text(SLOW)
    assert command(folder, "run", "--config", "e.yaml").code == 0
    assert len(content(folder)) == 120
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "e.yaml").write_text(SLOW)
    return tmp_path


@pytest.fixture
def begun(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that has kept its first answers."""
    words = [sys.executable, "-m", "coeval", "run", "--config", "e.yaml"]
    with subprocess.Popen(
        words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        answers = place / "runs" / "e" / "phase4_responses" / "t.m.responses.jsonl"
        until = time.monotonic() + 60
        while not (answers.exists() and answers.stat().st_size):
            assert process.poll() is None, "the run ended by itself"
            assert time.monotonic() < until
            time.sleep(0.01)
        yield process
        process.kill()


def goes_on_as_undisturbed(place: Path, undisturbed: Path) -> None:
    assert 0 < len(content(place)) < 120, "it was stopped on its way"
    assert command(place, *GO_ON).code == 0
    assert content(place) == content(undisturbed)


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_a_signal_to_end_finishes_what_was_asked(
    place: Path, begun: subprocess.Popen[str], undisturbed: Path, number: signal.Signals
) -> None:
    begun.send_signal(number)
    _, err = begun.communicate(timeout=60)
    assert begun.returncode == 130, err
    assert "Traceback" not in err
    assert "not begun when the run was stopped" in err
    assert "Continue with: coeval run --config e.yaml --continue" in err or "Fill the gaps with" in err
    goes_on_as_undisturbed(place, undisturbed)


@pytest.mark.system
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGHUP)])
def test_a_second_one_ends_it_at_once(
    place: Path,
    begun: subprocess.Popen[str],
    undisturbed: Path,
    numbers: tuple[signal.Signals, signal.Signals],
) -> None:
    os.kill(begun.pid, signal.SIGSTOP)  # both are there when it looks
    for number in numbers:
        begun.send_signal(number)
        if numbers[0] == numbers[1]:
            os.kill(begun.pid, signal.SIGCONT)
            time.sleep(0.02)
    os.kill(begun.pid, signal.SIGCONT)
    _, err = begun.communicate(timeout=60)
    assert begun.returncode == 130, err
    assert "Traceback" not in err
    goes_on_as_undisturbed(place, undisturbed)


@pytest.mark.system
def test_a_run_that_is_suspended_goes_on(
    place: Path, begun: subprocess.Popen[str], undisturbed: Path
) -> None:
    begun.send_signal(signal.SIGTSTP)
    time.sleep(0.5)
    assert begun.poll() is None
    begun.send_signal(signal.SIGCONT)
    _, err = begun.communicate(timeout=60)
    assert begun.returncode == 0, err
    assert content(place) == content(undisturbed)


@pytest.mark.system
def test_a_limit_of_cpu_time_ends_a_run_that_goes_on_without_it(place: Path, undisturbed: Path) -> None:
    (place / "e.yaml").write_text(SLOW.replace("total: 40", "total: 60000").replace("latency_s: 0.05, ", ""))

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (2, 60))

    ended = command(place, "run", "--config", "e.yaml", before=limited)
    assert ended.code == 130, ended.err
    assert content(place)


def closed_output(place: Path, stream: str, *words: str) -> tuple[int, str]:
    """What comes of a command whose reader has gone; the other stream is read."""
    reading, writing = os.pipe()
    os.close(reading)
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    streams: dict[str, Any] = {stream: writing, other: subprocess.PIPE}
    program = [sys.executable, "-m", "coeval", *words]
    with subprocess.Popen(program, cwd=place, text=True, **streams) as process:
        os.close(writing)
        out, err = process.communicate(timeout=100)
    return process.returncode, out or err or ""


@pytest.mark.process
@pytest.mark.parametrize(
    ("stream", "words"),
    [
        *(("stdout", f"{name} --run runs/e") for name in ("results", "status", "show")),
        *(("stdout", words) for words in ("show --run runs/e --json", "datasets list", "--help")),
        *(("stderr", words) for words in ("status --run runs/e", "--help")),
    ],
)
def test_a_reader_that_has_gone_is_no_error(place: Path, undisturbed: Path, stream: str, words: str) -> None:
    """As `coeval … | head -1` in a shell with `set -o pipefail`."""
    shutil.copytree(undisturbed / "runs", place / "runs")
    code, reported = closed_output(place, stream, *words.split())
    assert code == 0 or (stream, code) == ("stderr", 1)
    assert not any(word in reported for word in ("Traceback", "Exception ignored", "Broken pipe"))


@pytest.mark.system
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_run_nobody_looks_at_is_carried_out(place: Path, undisturbed: Path, stream: str) -> None:
    _, reported = closed_output(place, stream, "run", "--config", "e.yaml")
    assert "Traceback" not in reported
    assert content(place) == content(undisturbed)
