"""Providers of batches that are in the way: nothing is paid twice for it, and what can be had is had."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli.warm_process import WarmProcess
from fakes.batch_jobs import LOST
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer, Fault, Raw
from fakes.openai_rules import Told
from fakes.scripted import Refusal
from pipeline.experiments import Lab, model, task

from coeval.core.errors import ModelUnavailable
from coeval.engine.progress import Unwatched
from coeval.models.batch.waiting import batch_job_runner
from coeval.models.keys import Keys
from coeval.pipeline.upkeep.batch_jobs import fetch_batches
from coeval.store.rundir import RunDir

KEY = "sk-batches-5512-aa31-9f04"
TOTAL = 6


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2025-04-01-preview")


def lab(folder: Path, host: OpenAiBatchHost) -> Lab:
    host.says = lambda _: Answer('{"plot": "High", "style": "Low"}')
    judge = {
        "name": "gpt",
        "interface": "azure_openai",
        "roles": ["judge"],
        "parameters": {"model": "gpt-4o-mini", "base_url": host.url, "max_tokens": 200},
        "batch_enabled": True,
    }
    settings = {"batch_poll_s": [0.01, 0.02], "probe_mode": "disable"}
    return Lab(
        folder, [model("ann", "teacher"), model("ben", "student"), judge], [task(total=TOTAL)], settings
    )


def sent(host: OpenAiBatchHost) -> Counter[str]:
    return Counter(item[0] for job in host.jobs.values() for item in job.items)


async def test_a_job_that_may_have_been_made_and_cannot_be_looked_for_is_not_made_again(
    tmp_path: Path,
) -> None:
    """The answer to its creation is lost, and the key may not list: it stays on the list of pending jobs."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = lab(tmp_path, host)
        host.troubles = [("create", LOST), ("list", Fault(403, "this key may not list"))]
        run = await exp.arun()
        assert run.exit_code == 3
        assert (len(host.jobs), exp.counts()[2]) == (1, 0)
        assert "may not list" in (exp.path / "pending_batches.json").read_text()
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0, again.summary
        assert (len(host.jobs), exp.counts()[2]) == (1, TOTAL)
    assert set(sent(host).values()) == {1}


async def test_a_job_that_fills_the_providers_queue_by_itself_is_split(tmp_path: Path) -> None:
    """Azure refuses by 400 what has more tokens than may be enqueued."""

    async with openai_batches("azure_openai", keys=[KEY]) as host:

        async def watch(kind: str, done: bool) -> None:
            newest = list(host.files.values())[-1] if host.files else None
            if kind == "create" and not done and newest is not None and newest.content.count(b"\n") > 2:
                raise Refusal(
                    Told(400, "The number of enqueued tokens is too large.", "token_limit_exceeded")
                )

        host.watch = watch
        exp = lab(tmp_path, host)
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL
        assert all(job.total <= 2 for job in host.jobs.values())
    assert set(sent(host).values()) == {1}


async def test_a_deployment_for_batches_is_asked_nothing_live(tmp_path: Path) -> None:
    """Neither to be probed, nor where a reply could not be read: it goes into a following job."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = lab(tmp_path, host)
        host.batches_only = True
        host.script.append(Answer("nothing that could be read"))
        exp.settings["probe_mode"] = "full"
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert (host.live, exp.counts()[2]) == (0, TOTAL)
        assert [job.total for job in host.jobs.values()] == [TOTAL, 1]


async def test_a_wrong_key_ends_the_start_where_only_batches_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = lab(tmp_path, host)
        exp.settings["probe_mode"] = "full"
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-batches-another-one-0001")
        with pytest.raises(ModelUnavailable, match="Incorrect API key"):
            await exp.arun()
    assert (host.jobs, host.live) == ({}, 0)


def _renamed(body: dict[str, Any]) -> Answer | Fault:
    """A deployment of a model that calls its limit otherwise, which its name does not tell."""
    if "max_tokens" in body:
        message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return Fault(400, message, code="unsupported_parameter", param="max_tokens")
    return Answer('{"plot": "High", "style": "Low"}')


async def test_what_a_host_refuses_is_remembered_with_the_jobs_that_run(tmp_path: Path) -> None:
    """Each start ends when its jobs are submitted: what one learned, the next has to know, or it would ask in
    vain, or twice."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = lab(tmp_path, host)
        host.says = _renamed
        run = await exp.arun(wait=False)
        for _ in range(12):
            if run.exit_code == 0:
                break
            run = await exp.arun(continue_run=True, wait=False)
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL
    assert [job.total for job in host.jobs.values()] == [TOTAL, TOTAL]
    assert set(sent(host).values()) == {1}


async def test_one_request_whose_schema_is_refused_does_not_ask_the_others_anew(tmp_path: Path) -> None:
    refusal = Fault(400, "Invalid schema for response_format 'scores'.", param="response_format")
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = lab(tmp_path, host)
        host.script.extend([Answer('{"plot": "High", "style": "Low"}'), refusal])
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL
    assert [job.total for job in host.jobs.values()] == [TOTAL, 1]


async def test_a_job_that_its_provider_has_forgotten_is_given_up_only_when_asked_to(tmp_path: Path) -> None:
    """Nobody knows what it has cost: it is not submitted again by itself."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        usual, host.states = host.states, ("in_progress",)
        exp = lab(tmp_path, host)
        await exp.arun(wait=False)
        forgotten = dict(host.jobs)
        host.jobs.clear()
        host.states = usual
        run = await exp.arun(continue_run=True)
        assert (run.exit_code, host.jobs) == (3, {})
        assert "--cancel-batches" in (exp.path / "pending_batches.json").read_text()
        keys = Keys.load(None, env={**os.environ}, cwd=tmp_path, home=tmp_path)
        await fetch_batches(RunDir(exp.path), keys, Unwatched(), asyncio.Event(), cancel=True)
        assert not (exp.path / "pending_batches.json").exists()
        run = await exp.arun(continue_run=True)
        assert run.exit_code == 0, run.summary
        assert (len(forgotten), len(host.jobs), exp.counts()[2]) == (1, 1, TOTAL)


async def _status(exp: Lab, *words: str) -> tuple[int, str]:
    process = WarmProcess(
        "status", "--run", exp.path, *words, env={**os.environ, "COLUMNS": "200"}, err_to_out=True
    )
    written = await process.output()
    return process.wait(), written.out


def _uncertain_usd(exp: Lab) -> float:
    accounts = json.loads((exp.path / "usage.json").read_text())["models"]
    assert accounts["gpt"]["jobs"] == {}
    found: float = accounts["gpt"]["uncertain_usd"]
    return found


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [("get", Raw(b"<html>", 200)), ("get", Fault(401, "no")), ("download", Fault(404, "gone"))],
)
async def test_a_wait_for_what_never_comes_ends(
    kind: str, trouble: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stays on the list, and `--cancel-batches`, given twice, gives it up: as perhaps spent."""
    monkeypatch.setattr(batch_job_runner, "LOST_LOOKS", 5)
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = lab(tmp_path, host)
        exp.settings["budget_usd"] = 10
        host.troubles = [(kind, trouble)] * 10_000
        run = await exp.arun()
        assert run.exit_code == 3
        assert len(host.jobs) == 1
        first, second = [await _status(exp, "--cancel-batches") for _ in range(2)]
        assert "is given up" not in first[1], first
        assert "is given up" in second[1], second
        assert (first[0], second[0]) == (1, 0)
        assert not (exp.path / "pending_batches.json").exists()
        assert _uncertain_usd(exp) > 0
        host.troubles.clear()
        run = await exp.arun(continue_run=True)
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL


async def test_a_job_that_never_ends_is_not_waited_for_and_can_be_given_up(tmp_path: Path) -> None:
    """It was submitted long ago, and its provider says that it runs, whatever it is told."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        host.states, host.cancelled = ("in_progress",), "cancelling"
        exp = lab(tmp_path, host)
        exp.settings["budget_usd"] = 10
        await exp.arun(wait=False)
        pending = exp.path / "pending_batches.json"
        jobs = json.loads(pending.read_text())
        jobs["jobs"][0]["submitted_at"] -= 8 * 86_400
        pending.write_text(json.dumps(jobs))
        run = await exp.arun(continue_run=True)
        assert run.exit_code == 3
        assert "has not ended in 7 days" in pending.read_text()
        first, second = [await _status(exp, "--cancel-batches") for _ in range(2)]
    assert "is being cancelled" in first[1], first
    assert "is given up" in second[1], second
    assert not pending.exists()
    assert _uncertain_usd(exp) > 0


async def test_a_job_of_a_model_that_is_there_no_more_can_be_given_up(tmp_path: Path) -> None:
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        host.states = ("in_progress",)
        exp = lab(tmp_path, host)
        exp.settings["budget_usd"] = 10
        await exp.arun(wait=False)
        exp.models[2] = model("jim", "judge")
        assert (await exp.arun(continue_run=True)).exit_code in (0, 3)
        code, said = await _status(exp, "--cancel-batches")
    assert code == 0, said
    assert "is given up" in said
    assert [job.ended_by for job in host.jobs.values()] == ["cancelled"]
    assert not (exp.path / "pending_batches.json").exists()
    assert _uncertain_usd(exp) > 0
