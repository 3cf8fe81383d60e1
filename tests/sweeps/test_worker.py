"""A worker from its file to answers on disk, over a real server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.eval_process import surroundings
from workers import (
    WorkerProcess,
    a_worker,
    answers,
    at_least,
    gone,
    good_ids,
    left_of,
    odd,
    odd_words,
    parent_of,
    requested_at,
)

from coeval.core.errors import UsageError
from coeval.core.records import Usage
from coeval.engine.progress import Board, Calls
from coeval.models.keys import Keys
from coeval.models.transport import endpoint
from coeval.sweeps import server_process
from coeval.sweeps import worker_files as worker_count
from coeval.sweeps.server_process import (
    RECORD,
    ServerRecord,
    end_leftover_workers_and_servers,
    find_free_port,
    is_port_free,
)
from coeval.sweeps.worker_files import Worker, WorkerCount, WorkerResult, read_progress, replace_worker_files
from coeval.sweeps.worker_run import run_worker_and_write_result


@pytest.mark.process
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
    assert (progress.state, progress.done, progress.planned) == ("ended", 24, 24)
    assert progress.tasks == {"run_0 ifeval": (12, 12), "run_1 ifeval": (12, 12)}
    assert left_of(record) == []


@pytest.mark.process
@pytest.mark.parametrize("how", ["the starter is gone", "SIGTERM"])
def test_a_worker_is_interrupted(tmp_path: Path, how: str) -> None:
    worker = a_worker(tmp_path, odd("family"), prompts=600)
    process = WorkerProcess(worker)
    record = process.record()
    process.until(lambda: len(answers(worker)) > 5, "some answers are there")
    if how == "the starter is gone":
        process.cut()
    else:
        process.process.send_signal(signal.SIGTERM)
    result = process.result()
    assert result.end == "interrupted"
    assert 5 < result.tasks[0].answers == len(good_ids(worker)) < 600
    assert left_of(record) == []
    assert is_port_free("127.0.0.1", record.port)


@pytest.mark.system
def test_a_worker_is_interrupted_while_its_server_starts(tmp_path: Path) -> None:
    worker = a_worker(tmp_path, odd("hangs", "family"))
    process = WorkerProcess(worker)
    record = process.record()
    process.until(lambda: process.state() == "starting", "it waits for its server")
    process.cut()
    assert process.result().end == "interrupted"
    assert left_of(record) == []


@pytest.mark.process
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
    port = find_free_port("127.0.0.1")
    with subprocess.Popen([*odd_words(port), *faults]) as server:
        try:
            while is_port_free("127.0.0.1", port):
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}/v1"
            assert server.poll() is None
        finally:
            server.kill()


@pytest.mark.process
def test_a_server_of_the_users_own_is_asked_and_left_alone(tmp_path: Path) -> None:
    with users_own() as url:
        result = WorkerProcess(requested_at(a_worker(tmp_path, None), url)).result()
    assert (result.end, result.starts, result.tasks[0].answers) == ("done", 0, 12)


@pytest.mark.process
def test_a_server_of_the_users_own_that_serves_another_model(tmp_path: Path) -> None:
    with users_own("lenient") as url:
        worker = requested_at(a_worker(tmp_path, None), url)
        result = WorkerProcess(worker).result()
        assert (result.end, result.tasks[0].answers) == ("failed", 0)
        assert "the server lists other, and not tiny: no request was sent" in result.problem
        assert "If it is this checkpoint, say how it is called: --served-name" in result.problem
        replace_worker_files(msgspec.structs.replace(worker, vouched=True))
        assert WorkerProcess(worker).result().end == "done"


@pytest.mark.process
def test_what_a_server_serves_is_told_where_it_does_not_know_the_name(tmp_path: Path) -> None:
    with users_own("other") as url:
        worker = msgspec.structs.replace(requested_at(a_worker(tmp_path, None), url), vouched=True)
        replace_worker_files(worker)
        result = WorkerProcess(worker).result()
    assert result.end == "failed"
    assert "The model `tiny` does not exist." in result.problem
    assert "It serves: other; --served-name says how it calls the checkpoint." in result.problem


@pytest.mark.process
def test_a_server_of_the_users_own_that_is_not_there(tmp_path: Path) -> None:
    worker = requested_at(a_worker(tmp_path, None), f"http://127.0.0.1:{find_free_port('127.0.0.1')}/v1")
    result = WorkerProcess(worker).result()
    assert result.end == "failed"
    assert "1 of 1 models does not answer" in result.problem
    assert "start again." in result.problem
    assert "--probe" not in result.problem, "a sweep has no such flag"


@pytest.mark.process
def test_the_workers_files_hold_no_credential_and_the_logs_are_linked(tmp_path: Path) -> None:
    worker = msgspec.structs.replace(a_worker(tmp_path, odd()), key_variable="MY_KEY", logs=tmp_path / "logs")
    replace_worker_files(worker)
    result = WorkerProcess(worker, {"MY_KEY": "sk-abcdefghijklmnop0123456789"}).result()
    assert result.end == "done"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"sk-abcdef" not in file.read_bytes()
    assert "done" in (tmp_path / "logs" / "step_10.worker.log").read_text()
    tested = msgspec.structs.replace(worker.evaluation.tested, access_key="sk-1")  # type: ignore[type-var]
    evaluation = msgspec.structs.replace(worker.evaluation, tested=tested)
    with pytest.raises(ValueError, match="no credential"):
        replace_worker_files(msgspec.structs.replace(worker, evaluation=evaluation))
    with pytest.raises(UsageError, match="holds a password"):
        replace_worker_files(requested_at(worker, "http://me:secret-word-4711@127.0.0.1:8000/v1"))


@pytest.mark.process
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
    assert end_leftover_workers_and_servers(worker.folder.parent) == []
    assert left_of(record) != []
    record.write(worker.folder)
    reported = end_leftover_workers_and_servers(worker.folder.parent)
    assert left_of(record) == []
    assert reported == ["ended a server that an earlier sweep had left (worker, 2 processes)"]


@pytest.mark.process
def test_a_stranger_that_took_the_port_is_not_asked(tmp_path: Path) -> None:
    requested = tmp_path / "asked"
    process = WorkerProcess(a_worker(tmp_path, odd("hangs"), starts=1))
    record = process.record()
    port = record.port
    with subprocess.Popen(
        [*odd_words(port), "tells"], env={**os.environ, "ASKED": str(requested)}
    ) as stranger:
        try:
            result = process.result()
        finally:
            stranger.kill()
    assert result.end == "server_failed"
    assert f"process {stranger.pid} listens on port {port}" in result.problem
    assert not requested.exists()
    assert left_of(record) == []


# Servers that do not come up, or are no good: what a worker says of them, and that nothing of them is left.


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[ServerRecord]:
    """The servers that were started; when the test ends, nothing of them may be left."""
    started: list[ServerRecord] = []
    write = ServerRecord.write

    def remembered(record: ServerRecord, folder: Path) -> None:
        started.append(record)
        write(record, folder)

    monkeypatch.setattr(ServerRecord, "write", remembered)
    return started


@pytest.fixture(autouse=True)
def sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process find the data of IFEval's sentences, and fetch none."""
    monkeypatch.setenv("NLTK_DATA", surroundings(tmp_path)["NLTK_DATA"])


async def run(
    tmp_path: Path,
    template: str | None,
    interrupt: asyncio.Event | None = None,
    *,
    vouched: bool = False,
    **of_server: Any,
) -> WorkerResult:
    worker = a_worker(tmp_path, template, prompts=3, **of_server)
    worker = msgspec.structs.replace(worker, vouched=vouched)
    keys = Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)
    result = await run_worker_and_write_result(worker, keys, interrupt or asyncio.Event())
    assert not (worker.folder / RECORD).exists()
    return result


@pytest.mark.process
async def test_a_server_that_dies_at_once(tmp_path: Path, records: list[ServerRecord]) -> None:
    result = await run(tmp_path, odd("family", "dies"), starts=2)
    assert (result.end, result.starts) == ("server_failed", 2)
    assert (
        "the server ended before it was up (exit code 1). Probably the GPU has too little" in result.problem
    )
    assert "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" in result.problem
    assert [left_of(record) for record in records] == [[]] * 4


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_server_that_ends_twice_with_the_same_words_is_not_started_a_third_time(
    tmp_path: Path,
) -> None:
    """But for its numbers, and for what comes after the error."""
    result = await run(tmp_path, odd("wrong"))
    assert (result.end, result.starts, result.again) == ("server_failed", 2, False)
    assert "RuntimeError: Sleep mode is not supported on current platform" in result.problem
    assert "leaked" not in result.problem


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_restart_is_reported_with_the_errors_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    worker = a_worker(tmp_path, odd("frail"), prompts=600)
    result = await run_worker_and_write_result(
        worker, Keys.load(None, env={}, cwd=tmp_path, home=tmp_path), asyncio.Event()
    )
    assert (result.end, result.starts) == ("done", 2)
    progress = read_progress(worker.folder)
    assert progress is not None
    assert progress.restarted == "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."


@pytest.mark.process
def test_a_server_that_is_killed_has_no_error_of_its_own(tmp_path: Path) -> None:
    worker = a_worker(tmp_path, odd("family"), prompts=600)
    process = WorkerProcess(worker)
    os.killpg(process.record().group, signal.SIGKILL)
    process.until(lambda: bool(restarts(worker)), "the restart is reported")
    assert re.match(r"the server ended (?:while it was asked|before it was up) \(", restarts(worker))
    process.cut()
    process.result()


def restarts(worker: Worker) -> str:
    progress = read_progress(worker.folder)
    return "" if progress is None else progress.restarted


@pytest.mark.process
async def test_a_server_that_hangs(tmp_path: Path, records: list[ServerRecord]) -> None:
    result = await run(tmp_path, odd("hangs", "noisy"), start_timeout_s=1.0)
    assert (result.end, result.starts) == ("server_failed", 1)
    assert "the server was not up after 1 s" in result.problem
    assert left_of(records[-1]) == []


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_line_without_end_is_not_told_whole(tmp_path: Path) -> None:
    result = await run(tmp_path, odd("noisy", "dies"), starts=1)
    assert "x" * 150 in result.problem
    assert len(result.problem) < 2_000


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    result = await run(tmp_path, "no-such-server {port}")
    assert (result.end, result.starts) == ("server_failed", 1)
    assert "cannot be started: no-such-server: No such file or directory" in result.problem


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_server_that_gives_only_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "OUTAGE_AFTER_S", 0.1)
    result = await run(tmp_path, odd("sick"), starts=2)
    assert (result.end, result.starts) == ("server_failed", 2)
    assert "every request to the server failed" in result.problem
    assert [task.answers for task in result.tasks] == [0]


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_server_that_answers_for_any_model_is_not_taken_for_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLED", str(tmp_path / "spilled"))
    result = await run(tmp_path, odd("lenient"))
    assert (result.end, result.starts, result.tasks[0].answers) == ("failed", 1, 0)
    assert "the server lists other, and not tiny: no request was sent" in result.problem
    way = "have --server-command serve it as {name}, or say how it is called: --served-name"
    assert way in result.problem
    result = await run(tmp_path, odd("lenient"), vouched=True)
    assert (result.end, result.tasks[0].answers) == ("done", 3)


KEYS = {
    "OPENAI_API_KEY": "kept-apart-1",
    "ANTHROPIC_API_KEY": "kept-apart-2",
    "AWS_SECRET_ACCESS_KEY": "kept-apart-3",
    "GOOGLE_APPLICATION_CREDENTIALS": "/kept/apart-4.json",
    "COEVAL_SWEEP_API_KEY": "kept-apart-5",
    "MINE": "sk-proj-kept-apart-6",
    "PIP_INDEX_URL": "https://user:kept-apart-7@pypi.example/simple",
}
PASSED = {
    "HF_TOKEN": "hf_for_the_server_1",
    "OTHERS_TOKEN": "for-the-server-2",
    "VLLM_API_KEY": "the-servers-own-3",
    "HTTPS_PROXY": "http://user:pass@proxy.example:3128",
    "TOKENIZERS_PARALLELISM": "false",
    "LANG": "C.UTF-8",
}


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_server_gets_no_credential_but_those_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KEYS, **PASSED, "SPILLED": str(tmp_path / "spilled")}.items():
        monkeypatch.setenv(name, value)
    template = f"""sh -c 'OTHERS_TOKEN="$OTHERS_TOKEN" exec "$@"' sh {odd("spills")}"""
    result = await run(tmp_path, template, passed=("HF_TOKEN",))
    assert result.end == "done", result.problem
    got = json.loads((tmp_path / "spilled").read_text())
    assert [name for name in KEYS if name in got] == []
    assert "kept-apart" not in (tmp_path / "spilled").read_text()
    assert {name: got.get(name) for name in PASSED} == PASSED


@pytest.mark.process
@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("name", ["x\n$(touch hacked)", "' touch hacked '"])
async def test_a_checkpoints_name_is_never_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = shlex.join(odd_words("{port}")).replace("'", "")
    result = await run(tmp_path, f"sh -c 'exec {server} {{checkpoint}}'", checkpoint=name)
    assert (result.end, result.starts) == ("failed", 1)
    assert "{checkpoint} stands inside a word that a shell or another program reads" in result.problem
    result = await run(tmp_path, f"""sh -c 'exec "$@"' sh {server} {{checkpoint}}""", checkpoint=name)
    assert result.end == "done", result.problem
    assert not (tmp_path / "hacked").exists()


@pytest.mark.process
async def test_a_server_without_health_that_does_not_heed_term(
    tmp_path: Path, records: list[ServerRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "GRACE_S", 0.3)
    result = await run(tmp_path, odd("mute", "stubborn", "family"))
    assert (result.end, result.tasks[0].answers) == ("done", 3)
    assert left_of(records[-1]) == []


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_where_nothing_is_owed_no_server_is_started(tmp_path: Path) -> None:
    await run(tmp_path, odd())
    result = await run(tmp_path, "no-such-server {port}")
    assert (result.end, result.starts, result.tasks[0].answers) == ("done", 0, 3)


@pytest.mark.process
@pytest.mark.usefixtures("records")
async def test_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "{port}"]
    result = await run(tmp_path, shlex.join(words), starts=2)
    assert "the server ended before it was up (ended by SIGKILL; a machine whose memory" in result.problem


# Counts of a worker over the starts of its server: pace, what is left, what a probe must not forget.


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_count, "time", clock)
    return clock


def answered(board: Board, count: int, tokens: int = 10) -> None:
    for _ in range(count):
        board.count_outcome("ifeval", 1, Usage(input_tokens=3, output_tokens=tokens), None)


def a_board(owed: int) -> Board:
    board = Board(["ifeval"], {})
    board.expect("ifeval", recorded=0, owed=owed, calls=Calls(owed, owed))
    return board


def test_tokens_are_counted_over_all_starts(clock: Clock) -> None:
    count = WorkerCount()
    first, second = a_board(100), a_board(80)
    count.begin(first)
    assert count.mark_pace_and_measure_progress().output_tokens_per_s is None
    answered(first, 20)
    first.count_outcome("ifeval", 1, None, "server")
    clock.now = 10.0
    assert count.mark_pace_and_measure_progress().output_tokens_per_s == pytest.approx(20.0)
    count.begin(second)
    count.mark_pace_and_measure_progress()
    answered(second, 30)
    clock.now = 25.0
    progress = count.mark_pace_and_measure_progress()
    assert progress.output_tokens_per_s == pytest.approx(20.0)
    assert count.count_good_and_failed_of_last_round() == (30, {})


def test_the_pace_is_that_of_the_last_minute(clock: Clock) -> None:
    count, board = WorkerCount(), a_board(1_000)
    count.begin(board)
    for second in range(200):
        clock.now = float(second)
        answered(board, 1, tokens=100 if second < 100 else 1)
        progress = count.mark_pace_and_measure_progress()
    assert progress.output_tokens_per_s == pytest.approx(1.0)


# `kill -9` at seeded moments: of a worker's server, its guard, the worker, and worker and guard at once.

PROMPTS = 400
KILLS = ("server", "guard", "worker", "worker and guard") * 5


def kill(victim: str, process: WorkerProcess, record: ServerRecord) -> None:
    guard = parent_of(record.group)
    assert b"coeval.sweeps.guard" in Path(f"/proc/{guard}/cmdline").read_bytes()
    pids = {
        "server": [record.group],
        "guard": [guard],
        "worker": [record.worker],
        "worker and guard": [guard, record.worker],
    }
    for pid in pids[victim]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.system
def test_twenty_kills_cost_no_answer_and_leave_no_process(tmp_path: Path) -> None:
    draw = random.Random(15)
    kills = list(KILLS)
    draw.shuffle(kills)
    worker = a_worker(tmp_path, odd("family"), prompts=PROMPTS, starts=99, wait_s=0.01)
    process = WorkerProcess(worker)
    killed: list[ServerRecord] = []
    for number, victim in enumerate(kills):
        record = process.record([earlier.mark for earlier in killed])
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.3))
        else:
            most = (PROMPTS - len(answers(worker))) // (len(kills) - number + 1)
            needed = len(answers(worker)) + draw.randint(1, max(1, most))
            process.until(partial(at_least, worker, needed), f"{needed} answers")
        kill(victim, process, record)
        killed.append(record)
        if victim in ("server", "guard"):
            process.until(partial(gone, record), "its server was gone")
        else:
            assert process.end() == -signal.SIGKILL
            if victim == "worker":
                assert gone(record)
            process = WorkerProcess(worker)
    assert process.result().end == "done"
    assert end_leftover_workers_and_servers(worker.folder.parent) == []
    assert good_ids(worker) == sorted(str(n) for n in range(PROMPTS))
    assert len(answers(worker)) == PROMPTS
    assert all(gone(record) for record in killed)
