"""Batches of Gemini in a run where they are odd: unreadable states, lost uploads."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from fakes.batch_jobs import LOST, BatchingHost
from fakes.scripted import Raw
from pipeline.batched_lab import GEMINI, KEY, lab_at, serving
from pipeline.experiments import Notes

from coeval.models.batch.batch_job_runner import LOST_LOOKS


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


def requested(host: BatchingHost) -> Counter[str]:
    """How often the provider saw each request, by what was asked."""
    return Counter(json.dumps(each.body["contents"]) for each in host.requested)


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
    tmp_path: Path, body: bytes
) -> None:
    notes = Notes()
    async with serving(GEMINI) as host:
        exp = lab_at(GEMINI, host, tmp_path)
        host.troubles = [("get", Raw(body)) for _ in range(200)]
        run = await exp.arun(watcher=notes)
        assert host.heard.count("get") == LOST_LOOKS
        assert (run.exit_code, len(host.jobs)) == (3, 1)
        told = [note for note in notes.said if "trying again" in note]
        assert len(told) == 1
        assert "answered" in told[0] or "is no" in told[0]
        assert "is left as it is" in notes.said[-1]
        host.troubles = []
        assert (await exp.arun(continue_run=True)).exit_code == 0
    assert set(requested(host).values()) == {1}


@pytest.mark.process
async def test_a_job_goes_as_a_file_and_a_lost_upload_is_sent_again(tmp_path: Path) -> None:
    async with serving(GEMINI) as host:
        exp = lab_at(GEMINI, host, tmp_path)
        host.troubles += [("upload", LOST), ("create", LOST), ("download", LOST)]
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert [job.body.get("fileName") is not None for job in host.jobs.values()] == [True]
    assert set(requested(host).values()) == {1}
    assert host.heard.count("upload") == 2
