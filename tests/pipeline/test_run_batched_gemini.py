"""Runs with a model that goes by the batches of Gemini: from the file to the table."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.warm_process import WarmProcess
from fakes.batch_jobs import LOST
from fakes.scripted import Raw
from pipeline.batched_clouds import GEMINI, VERDICT, lab, requested
from pipeline.experiments import Lab, Notes

from coeval.models.batch import gemini_batches
from coeval.models.batch.batch_job_runner import LOST_LOOKS
from coeval.models.batch.gemini_batches import GeminiBatches


@asynccontextmanager
async def judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Any, Lab]]:
    """A host of Gemini's, whose judgments all succeed, and an experiment that is judged there."""
    async with GEMINI.serve(says=lambda _: GEMINI.says(VERDICT)) as host:
        for name, value in GEMINI.environment(host, folder).items():
            monkeypatch.setenv(name, value)
        yield host, lab(GEMINI, host, folder)


async def command(*words: object, **environment: str) -> tuple[int, str]:
    """``coeval`` as a user calls it: its exit code and what it said."""
    process = WarmProcess(*words, env={"COLUMNS": "200", **environment}, err_to_out=True)
    written = await process.output()
    return process.wait(), written.out


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "batches/b0001", "metadata": {"state": ',
        b'{"name": "batches/b0001\xff", "metadata": {}}',
        b"[" * 5000 + b"]" * 5000,
        b'{"metadata": {"state": "BATCH_STATE_RUNNING"}}',
        b"<html>busy</html>",
    ],
    ids=["torn", "not UTF-8", "deep", "nameless", "a page"],
)
async def test_a_state_that_cannot_be_read_is_told_and_not_asked_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    notes = Notes()
    async with judged(tmp_path, monkeypatch) as (host, exp):
        host.troubles = [("get", Raw(body)) for _ in range(200)]
        run = await exp.arun(watcher=notes)
        assert host.heard.count("get") == LOST_LOOKS
        assert (run.exit_code, len(host.jobs)) == (3, 1)
        told = [note for note in notes.said if "it is tried again" in note]
        assert len(told) == 1
        assert "answered" in told[0] or "is no" in told[0]
        assert "is left as it is" in notes.said[-1]
        host.troubles = []
        assert (await exp.arun(continue_run=True)).exit_code == 0
    assert set(requested(host).values()) == {1}


@pytest.mark.process
async def test_a_student_by_batches_pays_the_price_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for batched in (True, False):
        folder = tmp_path / str(batched)
        folder.mkdir()
        async with GEMINI.serve(says=lambda _: GEMINI.says("Once upon a time.")) as host:
            for name, value in GEMINI.environment(host, folder).items():
                monkeypatch.setenv(name, value)
            exp = lab(GEMINI, host, folder, "student")
            exp.models[-1]["batch_enabled"] = batched
            run = await exp.arun()
            assert run.exit_code == 0, run.summary
            assert bool(host.jobs) is batched
        records = exp.records("response_collection").values()
        assert {record["response"] for record in records} == {"Once upon a time."}
        costs.append(sum(record["usage"]["cost_usd"] for record in records))
    assert costs[0] == pytest.approx(costs[1] / 2)
    assert costs[0] > 0


@pytest.mark.process
@pytest.mark.parametrize("kind", ["create", "get"])
async def test_a_run_that_is_killed_goes_on_with_the_job_that_it_made(kind: str, tmp_path: Path) -> None:
    """When a job has been made and its id is not known yet, and while it is looked at."""
    processes: list[WarmProcess] = []
    async with GEMINI.serve(says=lambda _: GEMINI.says(VERDICT)) as host:

        async def kill(what: str, carried_out: bool) -> None:
            if what == kind and carried_out and processes:
                processes.pop().kill()

        host.watch = kill
        exp = lab(GEMINI, host, tmp_path)
        environment = GEMINI.environment(host, tmp_path)
        killed = WarmProcess("run", "--config", exp.file, env=environment)
        processes.append(killed)
        await killed.output()
        assert killed.returncode == -signal.SIGKILL
        host.watch = None
        again = await command("run", "--config", exp.file, "--continue", **environment)
        assert again[0] == 0, again[1]
    assert len(host.jobs) == 1
    assert set(requested(host).values()) == {1}
    assert len(exp.records("evaluation")) == GEMINI.least


@pytest.mark.process
async def test_a_large_job_goes_as_a_file_and_a_lost_upload_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemini_batches, "INLINE_REQUESTS", 1)
    async with judged(tmp_path, monkeypatch) as (host, exp):
        host.troubles += [("upload", LOST), ("create", LOST), ("download", LOST)]
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert [job.body.get("fileName") is not None for job in host.jobs.values()] == [True]
    assert set(requested(host).values()) == {1}
    assert host.heard.count("upload") == 2


async def test_too_few_requests_for_a_job_are_asked_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GeminiBatches, "limits", GeminiBatches.limits._replace(least=100))
    async with judged(tmp_path, monkeypatch) as (host, exp):
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert not host.jobs
    assert len(host.requested) == 6
