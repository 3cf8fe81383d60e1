"""Results of batch jobs that are short, late or damaged: what can be had is had, and what may have been paid
is booked as perhaps spent, never as nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.warm_process import WarmProcess
from fakes.anthropic_batches import BatchServer
from fakes.batch_jobs import DAMAGES, LOST, Belied, Gives
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer, Fault, Raw
from fakes.openai_hosts import Reported
from fakes.scripted import Refusal
from pipeline.batched_lab import (
    AZURE,
    ENVIRONMENT,
    FILES,
    GEMINI,
    KEY,
    TOTAL,
    VERDICT,
    Provider,
    lab_at,
    sent,
)
from pipeline.batched_lab import account as account_of
from pipeline.batched_lab import serving as served
from pipeline.experiments import Lab, model

from coeval.core.errors import ModelUnavailable
from coeval.engine.progress import Unwatched
from coeval.models.batch import batch_job_runner
from coeval.models.keys import Keys
from coeval.pipeline.upkeep.batch_jobs import fetch_or_cancel_batches
from coeval.store.rundir import RunDir

PLACES = [*FILES, GEMINI]
each = pytest.mark.parametrize("place", PLACES, ids=repr)
slow = pytest.mark.system


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@asynccontextmanager
async def serving(
    place: Provider, folder: Path, gives: Gives | None = None
) -> AsyncIterator[tuple[Any, Lab]]:
    """A host whose judgments all succeed, and an experiment that is judged there, under a budget."""
    async with served(place) as host:
        host.gives = gives
        yield host, lab_at(place, host, folder, batch_poll_s=[0.001, 0.002], budget_usd=100)


def account(exp: Lab) -> dict[str, Any]:
    found = account_of(exp, "judge")
    assert found["jobs"] == {}
    return found


def errors(exp: Lab) -> list[dict[str, Any]]:
    path = exp.path / "run_errors.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


SHORT: dict[str, Gives] = {
    "no line": lambda _, __: [],
    "all but two": lambda _, lines: lines[:-2],
    "204": lambda _, __: None,
}


@pytest.mark.process
@each
@pytest.mark.parametrize(
    "how", ["all but two", *(pytest.param(how, marks=slow) for how in ("no line", "204"))]
)
async def test_what_the_provider_counts_and_does_not_give_is_perhaps_spent(
    place: Provider, how: str, tmp_path: Path
) -> None:
    missing = 2 if how == "all but two" else TOTAL
    async with serving(place, tmp_path, SHORT[how]) as (host, exp):
        first = await exp.arun()
        assert first.exit_code == 3
        assert len(exp.records("evaluation")) == TOTAL - missing
        before = account(exp)
        assert before["requests"] == TOTAL
        assert before["uncertain_usd"] > 0
        [reported] = errors(exp)
        assert f"{missing} requests without a result" in reported["message"]
        host.gives = None
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0, again.summary
        assert len(sent(host)) == TOTAL
    after = account(exp)
    assert after["requests"] == TOTAL + missing
    assert after["uncertain_usd"] == before["uncertain_usd"]


@pytest.mark.process
@each
async def test_what_is_late_is_waited_for(place: Provider, tmp_path: Path) -> None:
    def late(times: int, lines: list[bytes]) -> list[bytes]:
        return lines if times > 4 else lines[: -2 * (5 - times)]

    async with serving(place, tmp_path, late) as (host, exp):
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert set(sent(host).values()) == {1}
    assert (account(exp)["uncertain_usd"], errors(exp)) == (0, [])


@pytest.mark.process
@each
@pytest.mark.parametrize(
    "damage",
    [
        "cut",
        "not UTF-8",
        "a number for an id",
        *(pytest.param(damage, marks=slow) for damage in ("null", "deep", "no answer")),
    ],
)
async def test_a_damaged_result_costs_that_result_alone(place: Provider, damage: str, tmp_path: Path) -> None:
    def damaged(_: int, lines: list[bytes]) -> list[bytes]:
        return [*map(DAMAGES[damage], lines[:1]), *lines[1:]]

    async with serving(place, tmp_path, damaged) as (host, exp):
        first = await exp.arun()
        assert first.exit_code == 3
        assert len(exp.records("evaluation")) == TOTAL - 1
        before = account(exp)
        assert before["requests"] == TOTAL
        assert before["uncertain_usd"] > 0
        [reported] = errors(exp)
        assert "1 request without a result (1 result cannot be read" in reported["message"]
        host.gives = None
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0, again.summary
    assert account(exp)["requests"] == TOTAL + 1


@pytest.mark.process
@each
async def test_what_is_said_to_have_expired_costs_nothing(place: Provider, tmp_path: Path) -> None:
    """The same number of lines as where two are missing; the provider says what became of the others."""
    async with serving(place, tmp_path) as (host, exp):
        words = {"gemini": "EXPIRED", "mistral": "TIMEOUT_EXCEEDED"}
        if isinstance(host, BatchServer):
            fates = iter([*[place.says(VERDICT)] * (TOTAL - 2), "expired", "expired"])
            host.fate = lambda _: next(fates)
        else:
            host.states, host.done = (words.get(place.interface, "expired"),), TOTAL - 2
        await exp.arun()
    gone = place.interface == "gemini"  # which counts what was done, and gives nothing of it
    assert len(exp.records("evaluation")) == (0 if gone else TOTAL - 2)
    assert account(exp)["requests"] == TOTAL - 2
    assert (account(exp)["uncertain_usd"] > 0) is gone
    assert len(errors(exp)) == gone


async def test_errors_that_are_counted_and_not_given_are_owed_and_not_paid(tmp_path: Path) -> None:
    async with serving(FILES[0], tmp_path) as (host, exp):
        host.script.extend([Fault(500, "oh"), Fault(500, "oh")])
        host.gives = lambda _, lines: [line for line in lines if b'"status_code":200' in line]
        await exp.arun()
    assert len(exp.records("evaluation")) == TOTAL - 2
    assert (account(exp)["requests"], account(exp)["uncertain_usd"]) == (TOTAL - 2, 0)


@pytest.mark.process
@each
@pytest.mark.parametrize("status", [400, 401])
async def test_a_job_that_was_refused_and_made_all_the_same_is_not_made_again(
    place: Provider, status: int, tmp_path: Path
) -> None:
    async with serving(place, tmp_path) as (host, exp):
        if isinstance(host, BatchServer):
            host.losses.append("belied")
        else:
            host.troubles.append(("create", Belied(place.refuses(status, "It cannot be made."))))
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert set(sent(host).values()) == {1}
        assert len(sent(host)) == TOTAL
    assert account(exp)["requests"] == TOTAL


# Providers of batches that are in the way: nothing is paid twice for it, and what can be had is had.


def azure_lab(folder: Path, host: OpenAiBatchHost, **settings: Any) -> Lab:
    host.says = lambda _: Answer(VERDICT)
    return lab_at(AZURE, host, folder, batch_poll_s=[0.01, 0.02], **settings)


@pytest.mark.process
async def test_a_job_that_may_have_been_made_and_cannot_be_looked_for_is_not_made_again(
    tmp_path: Path,
) -> None:
    """The answer to its creation is lost, and the key may not list: it stays on the list of pending jobs."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = azure_lab(tmp_path, host)
        host.troubles = [("create", LOST), ("list", Fault(403, "this key may not list"))]
        run = await exp.arun()
        assert run.exit_code == 3
        assert (len(host.jobs), exp.counts()[2]) == (1, 0)
        assert "may not list" in (exp.path / "pending_batches.json").read_text()
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0, again.summary
        assert (len(host.jobs), exp.counts()[2]) == (1, TOTAL)
    assert set(sent(host).values()) == {1}


@pytest.mark.process
async def test_a_job_that_fills_the_providers_queue_by_itself_is_split(tmp_path: Path) -> None:
    """Azure refuses by 400 what has more tokens than may be enqueued."""

    async with openai_batches("azure_openai", keys=[KEY]) as host:

        async def watch(kind: str, done: bool) -> None:
            newest = list(host.files.values())[-1] if host.files else None
            if kind == "create" and not done and newest is not None and newest.content.count(b"\n") > 2:
                raise Refusal(
                    Reported(400, "The number of enqueued tokens is too large.", "token_limit_exceeded")
                )

        host.watch = watch
        exp = azure_lab(tmp_path, host)
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL
        assert all(job.total <= 2 for job in host.jobs.values())
    assert set(sent(host).values()) == {1}


@pytest.mark.process
async def test_a_deployment_for_batches_is_asked_nothing_live(tmp_path: Path) -> None:
    """Neither to be probed, nor where a reply could not be read: it goes into a following job."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = azure_lab(tmp_path, host)
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
        exp = azure_lab(tmp_path, host)
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


@pytest.mark.process
async def test_what_a_host_refuses_is_remembered_with_the_jobs_that_run(tmp_path: Path) -> None:
    """Each start ends when its jobs are submitted: what one learned, the next has to know, or it would ask in
    vain, or twice."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = azure_lab(tmp_path, host)
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


@pytest.mark.process
async def test_one_request_whose_schema_is_refused_does_not_ask_the_others_anew(tmp_path: Path) -> None:
    refusal = Fault(400, "Invalid schema for response_format 'scores'.", param="response_format")
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        exp = azure_lab(tmp_path, host)
        host.script.extend([Answer('{"plot": "High", "style": "Low"}'), refusal])
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL
    assert [job.total for job in host.jobs.values()] == [TOTAL, 1]


@pytest.mark.process
async def test_a_job_that_its_provider_has_forgotten_is_given_up_only_when_asked_to(tmp_path: Path) -> None:
    """Nobody knows what it has cost: it is not submitted again by itself."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        usual, host.states = host.states, ("in_progress",)
        exp = azure_lab(tmp_path, host)
        await exp.arun(wait=False)
        forgotten = dict(host.jobs)
        host.jobs.clear()
        host.states = usual
        run = await exp.arun(continue_run=True)
        assert (run.exit_code, host.jobs) == (3, {})
        assert "--cancel-batches" in (exp.path / "pending_batches.json").read_text()
        keys = Keys.load(None, env={**os.environ}, cwd=tmp_path, home=tmp_path)
        await fetch_or_cancel_batches(RunDir(exp.path), keys, Unwatched(), asyncio.Event(), cancel=True)
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


@pytest.mark.process
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
        exp = azure_lab(tmp_path, host)
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
        assert account(exp)["uncertain_usd"] > 0
        host.troubles.clear()
        run = await exp.arun(continue_run=True)
        assert run.exit_code == 0, run.summary
        assert exp.counts()[2] == TOTAL


@pytest.mark.process
async def test_a_job_that_never_ends_is_not_waited_for_and_can_be_given_up(tmp_path: Path) -> None:
    """It was submitted long ago, and its provider says that it runs, whatever it is told."""
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        host.states, host.cancelled = ("in_progress",), "cancelling"
        exp = azure_lab(tmp_path, host)
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
    assert account(exp)["uncertain_usd"] > 0


@pytest.mark.process
async def test_a_job_of_a_model_that_is_there_no_more_can_be_given_up(tmp_path: Path) -> None:
    async with openai_batches("azure_openai", keys=[KEY]) as host:
        host.states = ("in_progress",)
        exp = azure_lab(tmp_path, host)
        exp.settings["budget_usd"] = 10
        await exp.arun(wait=False)
        exp.models[2] = model("jim", "judge")
        assert (await exp.arun(continue_run=True)).exit_code in (0, 3)
        code, said = await _status(exp, "--cancel-batches")
    assert code == 0, said
    assert "is given up" in said
    assert [job.ended_by for job in host.jobs.values()] == ["cancelled"]
    assert not (exp.path / "pending_batches.json").exists()
    assert account(exp)["uncertain_usd"] > 0
