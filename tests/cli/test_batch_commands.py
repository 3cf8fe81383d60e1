"""Batch jobs from the command line: a mixed run, how it stands, jobs collected or cancelled later."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer
from pipeline.batched_lab import KEY, VERDICT, account, lab, sent

from coeval.store.rundir import RunDir


class Said(NamedTuple):
    code: int
    text: str


async def started(*words: object, cwd: Path | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "coeval",
        *map(str, words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        env={**os.environ, "OPENAI_API_KEY": KEY, "COLUMNS": "200"},
    )


async def ended(process: asyncio.subprocess.Process) -> Said:
    async with asyncio.timeout(120):
        text = (await process.communicate())[0].decode()
    assert process.returncode is not None
    return Said(process.returncode, text)


async def coeval(*words: object, cwd: Path | None = None) -> Said:
    return await ended(await started(*words, cwd=cwd))


async def test_status_tells_how_a_mixed_run_stands(tmp_path: Path) -> None:
    """A free teacher, a live student, a batched judge: while the job runs, when it has ended, at the end."""
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        host.states = ("in_progress",)
        exp = lab(tmp_path, host)
        exp.models[1] = {
            "name": "live",
            "interface": "openai",
            "roles": ["student"],
            "parameters": {"model": "gpt-4o", "base_url": host.url},
        }
        first = await coeval("run", "--config", exp.file, "--no-wait")
        assert first.code == 3, first.text
        assert "6 wait for batch jobs" in first.text
        assert "--continue" in first.text
        running = await coeval("status", "--run", exp.path)
        assert "batch_0001" in running.text
        assert "in_progress" in running.text
        unchanged = await coeval("status", "--run", exp.path, "--fetch-batches")
        assert "0 records made" in unchanged.text
        host.states = ("completed",)
        fetched = await coeval("status", "--run", exp.path.name, "--fetch-batches", cwd=exp.path.parent)
        assert "6 records made" in fetched.text, fetched.text
        assert "batch_0001" not in fetched.text.partition("records made")[2]
        last = await coeval("run", "--config", exp.file, "--continue")
    assert last.code == 0, last.text
    assert exp.counts() == (6, 6, 6)
    assert set(sent(host).values()) == {1}
    assert len(host.asked) == 12


async def test_cancelled_jobs_keep_what_they_have_done(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        host.states, host.done = ("in_progress",), 2
        exp = lab(tmp_path, host)
        assert (await coeval("run", "--config", exp.file, "--no-wait")).code == 3
        cancelled = await coeval("status", "--run", exp.path, "--cancel-batches")
        assert "is being cancelled" in cancelled.text
        await coeval("status", "--run", exp.path, "--fetch-batches")
        assert len(exp.records("evaluation")) == 2
        assert account(exp)["requests"] == 2
        host.states, host.done = ("completed",), None
        whole = await coeval("run", "--config", exp.file, "--continue")
    assert whole.code == 0, whole.text
    assert set(sent(host).values()) == {1}


async def test_ctrl_c_says_that_jobs_go_on_and_how_to_collect_them(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        host.states = ("in_progress",)
        exp = lab(tmp_path, host)
        process = await started("run", "--config", exp.file)
        async with asyncio.timeout(60):
            await host.arrived(6)
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        said = await ended(process)
    assert said.code == 130, said.text
    assert "batch_0001" in said.text
    assert "go on at their providers" in said.text
    assert f"coeval run --config {exp.file} --continue" in said.text


async def test_there_may_be_nothing_to_fetch(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        exp = lab(tmp_path, host)
        assert (await coeval("run", "--config", exp.file)).code == 0
    assert not RunDir(exp.path).pending_batches.exists()
    said = await coeval("status", "--run", exp.path, "--fetch-batches")
    assert said.code == 0
    assert "There are no batch jobs." in said.text
