"""Servers that do not come up, or are no good: what a worker says of them, and that nothing of them is
left."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from workers import a_worker, left_of, odd, odd_words

from coeval.models.keys import Keys
from coeval.models.transport import endpoint
from coeval.sweeps import server_process
from coeval.sweeps.server_process import RECORD, ServerRecord
from coeval.sweeps.worker_files import WorkerResult
from coeval.sweeps.worker_run import run_worker


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> list[ServerRecord]:
    """The servers that were started; when the test ends, nothing of them may be left."""
    started: list[ServerRecord] = []
    write = ServerRecord.write

    def remembered(record: ServerRecord, folder: Path) -> None:
        started.append(record)
        write(record, folder)

    monkeypatch.setattr(ServerRecord, "write", remembered)
    return started


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
    result = await run_worker(worker, keys, interrupt or asyncio.Event())
    assert not (worker.folder / RECORD).exists()
    return result


async def test_a_server_that_dies_at_once(tmp_path: Path, records: list[ServerRecord]) -> None:
    result = await run(tmp_path, odd("family", "dies"), starts=2)
    assert (result.end, result.starts) == ("server_failed", 2)
    assert (
        "the server ended before it was up (exit code 1). Probably the GPU has too little" in result.problem
    )
    assert "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" in result.problem
    assert [left_of(record) for record in records] == [[]] * 4


async def test_a_server_that_hangs(tmp_path: Path, records: list[ServerRecord]) -> None:
    result = await run(tmp_path, odd("hangs", "noisy"), start_timeout_s=1.0)
    assert (result.end, result.starts) == ("server_failed", 1)
    assert "the server was not up after 1 s" in result.problem
    assert left_of(records[-1]) == []


async def test_a_line_without_end_is_not_told_whole(tmp_path: Path) -> None:
    result = await run(tmp_path, odd("noisy", "dies"), starts=1)
    assert "x" * 150 in result.problem
    assert len(result.problem) < 2_000


async def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    result = await run(tmp_path, "no-such-server {port}")
    assert (result.end, result.starts) == ("server_failed", 1)
    assert "cannot be started: no-such-server: No such file or directory" in result.problem


async def test_a_server_that_gives_only_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "OUTAGE_AFTER_S", 0.1)
    result = await run(tmp_path, odd("sick"), starts=2)
    assert (result.end, result.starts) == ("server_failed", 2)
    assert "the server gives nothing but failures" in result.problem
    assert [(task.answers, task.failed) for task in result.tasks] == [(0, {"server": 3})]


async def test_a_server_of_another_model(tmp_path: Path) -> None:
    result = await run(tmp_path, odd("other"))
    assert (result.end, result.starts) == ("failed", 1)
    assert "the server lists other, and not tiny: nothing was asked" in result.problem
    assert (
        "have --server-command serve it as {name}, or say how it is called: --served-name" in result.problem
    )


async def test_a_server_that_answers_for_any_model_is_not_taken_for_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLED", str(tmp_path / "spilled"))
    result = await run(tmp_path, odd("lenient"))
    assert (result.end, result.tasks[0].answers) == ("failed", 0)
    assert "the server lists other, and not tiny: nothing was asked" in result.problem
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


HOSTILE = (
    "$(touch hacked)",
    "x; touch hacked",
    "x\ntouch hacked",
    "`touch hacked`",
    "' touch hacked '",
    "x && touch hacked",
)


@pytest.mark.parametrize("name", HOSTILE)
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


async def test_a_harmless_name_may_stand_in_a_shells_word(tmp_path: Path) -> None:
    server = shlex.join(odd_words("{port}")).replace("'", "")
    result = await run(tmp_path, f"sh -c 'exec {server} {{checkpoint}}'", checkpoint="/c/lr=1e-5_v2/step_10")
    assert result.end == "done", result.problem


async def test_a_server_without_health_that_does_not_heed_term(
    tmp_path: Path, records: list[ServerRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "GRACE_S", 0.3)
    result = await run(tmp_path, odd("mute", "stubborn", "family"))
    assert (result.end, result.tasks[0].answers) == ("done", 3)
    assert left_of(records[-1]) == []


async def test_where_nothing_is_owed_no_server_is_started(tmp_path: Path) -> None:
    await run(tmp_path, odd())
    result = await run(tmp_path, "no-such-server {port}")
    assert (result.end, result.starts, result.tasks[0].answers) == ("done", 0, 3)


async def test_a_port_that_another_process_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = await run(tmp_path, odd(), port=port, starts=2)
    assert (result.end, result.starts) == ("server_failed", 2)
    assert f"port {port} of 127.0.0.1 is taken by another process" in result.problem


async def test_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "{port}"]
    result = await run(tmp_path, shlex.join(words), starts=2)
    assert "the server ended before it was up (ended by SIGKILL; a machine whose memory" in result.problem
