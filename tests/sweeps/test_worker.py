"""A worker from its file to answers on disk, over a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from workers import (
    WorkerProcess,
    a_worker,
    answers,
    asked_at,
    gone,
    good_ids,
    left_of,
    odd,
    odd_words,
    parent_of,
)

from coeval.core.errors import UsageError
from coeval.sweeps.health import free_port, is_free
from coeval.sweeps.server_process import end_leftovers
from coeval.sweeps.worker_files import Worker, read_progress, write_worker

pytestmark = pytest.mark.slow


def test_a_worker_asks_its_server_and_leaves_nothing(tmp_path: Path) -> None:
    worker = a_worker(tmp_path, runs=2)
    process = WorkerProcess(worker)
    record = process.record()
    result = process.result()
    assert (result.end, result.starts) == ("done", 1)
    assert [(t.task, t.run, t.prompts, t.answers) for t in result.tasks] == [
        ("ifeval", 0, 12, 12),
        ("ifeval", 1, 12, 12),
    ]
    assert good_ids(worker) == sorted(str(n) for n in range(12))
    assert {line["model"] for line in answers(worker)} == {"/ckpt/step_10@10"}
    progress = read_progress(worker.folder)
    assert progress is not None
    assert (progress.state, progress.done, progress.planned, progress.failed) == ("ended", 24, 24, 0)
    assert progress.tasks == {"run_0 ifeval": (12, 12), "run_1 ifeval": (12, 12)}
    tokens = sum(line["usage"]["output_tokens"] for run in (0, 1) for line in answers(worker, run))
    assert progress.output_tokens == result.output_tokens == tokens
    assert left_of(record) == []


def says(worker: Worker, what: str) -> bool:
    progress = read_progress(worker.folder)
    return progress is not None and what in progress.message


@pytest.mark.parametrize("how", ["the starter is gone", "SIGTERM", "SIGINT"])
def test_a_worker_is_interrupted(tmp_path: Path, how: str) -> None:
    worker = a_worker(tmp_path, odd("family"), prompts=600)
    process = WorkerProcess(worker)
    record = process.record()
    process.until(lambda: len(answers(worker)) > 5, "some answers are there")
    if how == "the starter is gone":
        process.cut()
    else:
        process.process.send_signal(getattr(signal, how))
    result = process.result()
    assert result.end == "interrupted"
    assert 5 < result.tasks[0].answers == len(good_ids(worker)) < 600
    assert left_of(record) == []
    assert is_free("127.0.0.1", record.port)


def test_a_worker_is_interrupted_while_its_server_starts(tmp_path: Path) -> None:
    worker = a_worker(tmp_path, odd("hangs", "family"))
    process = WorkerProcess(worker)
    record = process.record()
    waits = partial(says, worker, "waiting for the server for ")
    process.until(waits, "it says what it waits for")
    process.cut()
    assert process.result().end == "interrupted"
    assert left_of(record) == []


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    worker = a_worker(tmp_path, odd("stubborn", "hangs"))
    process = WorkerProcess(worker)
    record = process.record()
    process.until(lambda: process.state() == "starting", "it waits for its server")
    process.process.send_signal(signal.SIGTERM)
    process.until(lambda: "stopping" in process.log(), "it was told")
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 130
    assert gone(record)


@contextmanager
def users_own(*faults: str) -> Iterator[str]:
    """The address of a server that no worker has started; it is there in the end as well."""
    port = free_port("127.0.0.1")
    with subprocess.Popen([*odd_words(port), *faults]) as server:
        try:
            while is_free("127.0.0.1", port):
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}/v1"
            assert server.poll() is None
        finally:
            server.kill()


def test_a_server_of_the_users_own_is_asked_and_left_alone(tmp_path: Path) -> None:
    with users_own() as url:
        result = WorkerProcess(asked_at(a_worker(tmp_path, None), url)).result()
    assert (result.end, result.starts, result.tasks[0].answers) == ("done", 0, 12)


def test_a_server_of_the_users_own_that_serves_another_model(tmp_path: Path) -> None:
    with users_own("lenient") as url:
        worker = asked_at(a_worker(tmp_path, None), url)
        result = WorkerProcess(worker).result()
        assert (result.end, result.tasks[0].answers) == ("failed", 0)
        assert "the server lists other, and not tiny: nothing was asked" in result.problem
        assert "If it is this checkpoint, say how it is called: --served-name" in result.problem
        write_worker(msgspec.structs.replace(worker, vouched=True))
        assert WorkerProcess(worker).result().end == "done"


def test_what_a_server_serves_is_told_where_it_does_not_know_the_name(tmp_path: Path) -> None:
    with users_own("other") as url:
        worker = msgspec.structs.replace(asked_at(a_worker(tmp_path, None), url), vouched=True)
        write_worker(worker)
        result = WorkerProcess(worker).result()
    assert result.end == "failed"
    assert "The model `tiny` does not exist." in result.problem
    assert "It serves: other; --served-name says how it calls the checkpoint." in result.problem


def test_a_server_of_the_users_own_that_is_not_there(tmp_path: Path) -> None:
    worker = asked_at(a_worker(tmp_path, None), f"http://127.0.0.1:{free_port('127.0.0.1')}/v1")
    result = WorkerProcess(worker).result()
    assert result.end == "failed"
    assert "1 of 1 models does not answer" in result.problem
    assert "start again." in result.problem
    assert "--probe" not in result.problem, "a sweep has no such flag"


def test_the_workers_files_hold_no_credential_and_the_logs_are_linked(tmp_path: Path) -> None:
    worker = msgspec.structs.replace(a_worker(tmp_path, odd()), key_variable="MY_KEY", logs=tmp_path / "logs")
    write_worker(worker)
    result = WorkerProcess(worker, {"MY_KEY": "sk-abcdefghijklmnop0123456789"}).result()
    assert result.end == "done"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"sk-abcdef" not in file.read_bytes()
    assert "done" in (tmp_path / "logs" / "step_10.worker.log").read_text()
    tested = msgspec.structs.replace(worker.evaluation.tested, access_key="sk-1")  # type: ignore[type-var]
    evaluation = msgspec.structs.replace(worker.evaluation, tested=tested)
    with pytest.raises(ValueError, match="no credential"):
        write_worker(msgspec.structs.replace(worker, evaluation=evaluation))
    with pytest.raises(UsageError, match="holds a password"):
        write_worker(asked_at(worker, "http://me:secret-word-4711@127.0.0.1:8000/v1"))


def test_what_is_left_of_a_server_is_ended_by_whoever_comes_next(tmp_path: Path) -> None:
    """Guard, worker and the server's first process are gone; what it started is known by mark or pipe."""
    worker = a_worker(tmp_path, odd("family"), prompts=600)
    process = WorkerProcess(worker)
    record = process.record()
    process.until(lambda: len(answers(worker)) > 5, "some answers are there")
    for pid in (parent_of(record.group), record.worker, record.group):
        os.kill(pid, signal.SIGKILL)
    process.end()
    other = msgspec.structs.replace(record, host="another-machine")
    other.write(worker.folder)
    assert end_leftovers(worker.folder.parent) == []
    assert left_of(record) != []
    record.write(worker.folder)
    told = end_leftovers(worker.folder.parent)
    assert left_of(record) == []
    assert told == ["ended a server that an earlier sweep had left (worker, 2 processes)"]


def test_a_stranger_that_took_the_port_is_not_asked(tmp_path: Path) -> None:
    port, asked = free_port("127.0.0.1"), tmp_path / "asked"
    process = WorkerProcess(a_worker(tmp_path, odd("hangs"), port=port, starts=1))
    record = process.record()
    with subprocess.Popen([*odd_words(port), "tells"], env={**os.environ, "ASKED": str(asked)}) as stranger:
        try:
            result = process.result()
        finally:
            stranger.kill()
    assert result.end == "server_failed"
    assert f"process {stranger.pid} listens on port {port}" in result.problem
    assert not asked.exists()
    assert left_of(record) == []
