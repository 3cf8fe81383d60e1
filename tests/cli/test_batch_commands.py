"""Batch jobs from the command line: a mixed run, how it stands, jobs collected or cancelled later."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from cli.coeval_process import called
from cli.eval_process import finish, start
from cli.warm_process import WarmProcess
from fakes.bedrock import fake_bedrock
from fakes.gemini import fake
from fakes.openai_batches import OpenAiBatchHost
from fakes.vertex import fake_vertex, key_file
from pipeline.batched_lab import KEY, account, judging, sent

from coeval.cli.commands.status import _cancel_jobs_and_count_failures
from coeval.core.errors import UsageError
from coeval.models.batch.job_list import PendingJob
from coeval.pricing.pricing_file import read_merged_pricing
from coeval.store.rundir import RunDir


class Said(NamedTuple):
    code: int
    text: str


def started(*words: object, cwd: Path | None = None, **env: str) -> WarmProcess:
    environment = {"OPENAI_API_KEY": KEY, "COLUMNS": "200", **env}
    return WarmProcess(*words, cwd=cwd, env=environment, err_to_out=True)


async def ended(process: WarmProcess) -> Said:
    written = await process.output()
    return Said(process.wait(), written.out)


async def coeval(*words: object, cwd: Path | None = None, **env: str) -> Said:
    return await ended(started(*words, cwd=cwd, **env))


@pytest.mark.process
async def test_status_tells_how_a_mixed_run_stands(tmp_path: Path) -> None:
    """A free teacher, a live student, a batched judge: while the job runs, when it has ended, at the end."""
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
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
        assert "(6 requests): in_progress" in first.text, "the provider's word is not told"
        left = await coeval("plan", "--config", exp.file, "--continue", "--estimate-samples", 0)
        assert "6 requests are in batch jobs already (batch_0001)" in left.text, left.text
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
    assert len(host.requested) == 12


@pytest.mark.process
async def test_cancelled_jobs_keep_what_they_have_done(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states, host.done = ("in_progress",), 2
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


@pytest.mark.process
async def test_ctrl_c_says_that_jobs_go_on_and_how_to_collect_them(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        process = started("run", "--config", exp.file)
        async with asyncio.timeout(60):
            await host.arrived(6)
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        said = await ended(process)
    assert said.code == 130, said.text
    assert "batch_0001" in said.text
    assert "continue at their providers" in said.text
    assert f"coeval run --config {exp.file} --continue" in said.text


@pytest.mark.process
async def test_there_may_be_nothing_to_fetch(tmp_path: Path) -> None:
    async with judging(tmp_path) as (_, exp):
        assert (await coeval("run", "--config", exp.file)).code == 0
    assert not RunDir(exp.path).pending_batches.exists()
    said = await coeval("status", "--run", exp.path, "--fetch-batches")
    assert said.code == 0
    assert "There are no batch jobs." in said.text


async def evaluated(folder: Path, run: Path, host: OpenAiBatchHost) -> Path:
    """An output folder of eval-framework with a job under way."""
    flags = ("--tasks", f"coeval:{run}", "--model", "gpt-4o-mini", "--base-url", host.url, "--api-key", KEY)
    more = ("--max-tokens", 100, "--judge-max-tokens", 200, "--batch", "--no-wait", "--probe", "disable")
    done = await finish(await start(folder, *flags, *more, "--output-dir", "outputs"))
    assert done.code == 3, done.err
    return folder / "outputs"


@pytest.mark.system
async def test_a_job_of_eval_framework_can_be_cancelled(tmp_path: Path) -> None:
    """By whoever has the folder and a key; without one it is left, which is no success."""
    async with judging(tmp_path, batch={}) as (host, exp):
        exp.models[2]["batch_enabled"] = False
        assert (await coeval("run", "--config", exp.file)).code == 0
        host.states = ("in_progress",)
        output = await evaluated(tmp_path, exp.path, host)
        words = ("status", "--run", output)
        fetched = await coeval(*words, "--fetch-batches")
        refused = await coeval(*words, "--cancel-batches")
        (tmp_path / "keys.yaml").write_text(f"providers: {{vllm: {KEY}}}")
        cancelled = await coeval(*words, "--cancel-batches", "--keys", tmp_path / "keys.yaml")
    assert fetched.code == 1
    assert "collected by the eval-framework command" in fetched.text, fetched.text
    assert refused.code == 1
    assert "VLLM_API_KEY" in refused.text, refused.text
    assert cancelled.code == 0, cancelled.text
    assert "is being cancelled" in cancelled.text
    assert [job.ended_by for job in host.jobs.values()] == ["cancelled"]
    given_up = await coeval(*words, "--cancel-batches", "--keys", tmp_path / "keys.yaml")
    assert given_up.code == 0, given_up.text
    assert "is given up" in given_up.text
    assert not (output / "pending_batches.json").exists()
    assert all(not row["jobs"] for row in json.loads((output / "usage.json").read_text())["models"].values())


def test_while_jobs_are_cancelled_nobody_else_works_on_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ifeval").mkdir()
    (tmp_path / "ifeval" / "responses.jsonl").touch()
    job = PendingJob(
        tag="t", state="submitted", interface="openai", name="m", model="m", endpoint="http://127.0.0.1",
        phases={}, requests=1, bytes=1, written_at=0.0,
    )  # fmt: skip
    RunDir(tmp_path).pending_batches.write_bytes(msgspec.json.encode({"jobs": [job]}))

    async def cancelled(*_: object) -> int:
        with pytest.raises(UsageError, match="is in use by process"), RunDir(tmp_path / "ifeval").hold_lock():
            pass
        return 7

    monkeypatch.setattr("coeval.cli.commands.status.cancel_jobs_and_count_left", cancelled)
    assert _cancel_jobs_and_count_failures(RunDir(tmp_path), None, None) == 7
    assert RunDir(tmp_path / "ifeval").writer_pid() is None, "afterwards they may"


@pytest.mark.process
async def test_what_excludes_each_other_is_refused(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        assert (await coeval("run", "--config", exp.file, "--no-wait")).code == 3
        words = ("status", "--run", exp.path, "--fetch-batches")
        both = await coeval(*words, "--cancel-batches")
        watched = await coeval(*words, "--watch")
        assert not any(job.ended_by for job in host.jobs.values())
    assert (both.code, watched.code) == (1, 1)
    assert "exclude each other" in both.text
    assert "--watch" in watched.text


@pytest.mark.process
async def test_a_job_that_cannot_be_looked_at_is_no_success(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        assert (await coeval("run", "--config", exp.file, "--no-wait")).code == 3
        words = ("status", "--run", exp.path, "--fetch-batches")
        wrong = await coeval(*words, OPENAI_API_KEY="sk-of-nobody-5512-aa31-9f04")
        without = await coeval(*words, OPENAI_API_KEY="")
        right = await coeval(*words)
    assert wrong.code == 1, wrong.text
    assert "is left as it is" in wrong.text
    assert without.code == 1, without.text
    assert "OPENAI_API_KEY" in without.text, without.text
    assert right.code == 0, right.text


@pytest.mark.process
async def test_status_says_when_a_job_was_looked_at(tmp_path: Path) -> None:
    """Looked at an hour ago; its state is of then, until somebody looks again."""
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        assert (await coeval("run", "--config", exp.file, "--no-wait")).code == 3
        pending = RunDir(exp.path).pending_batches
        jobs = json.loads(pending.read_text())
        jobs["jobs"][0]["checked_at"] -= 3600
        pending.write_text(json.dumps(jobs))
        words = ("status", "--run", exp.path)
        old = await coeval(*words)
        machine = json.loads((await coeval(*words, "--json")).text)
        assert (await coeval(*words, "--fetch-batches")).code == 0
        looked = json.loads((await coeval(*words, "--json")).text)
    assert "1:00:0" in old.text, old.text
    assert "--fetch-batches checks again" in old.text
    assert machine["batches"][0]["look_age_s"] >= 3600
    assert looked["batches"][0]["look_age_s"] < 600


@pytest.mark.process
async def test_a_job_without_an_id_leaves_the_table_room(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        assert (await coeval("run", "--config", exp.file, "--no-wait")).code == 3
    pending = RunDir(exp.path).pending_batches
    jobs = json.loads(pending.read_text())
    jobs["jobs"][0] |= {"id": None, "state": "written", "shown": "", "checked_at": None}
    pending.write_text(json.dumps(jobs))
    shown = await coeval("status", "--run", exp.path)
    tag = jobs["jobs"][0]["tag"]
    row = next(line for line in shown.text.splitlines() if "being submitted" in line)
    assert row.startswith(f"{tag[:8]}… "), row
    assert "never" in row


@pytest.mark.process
async def test_batches_that_save_nothing_are_told(tmp_path: Path) -> None:
    """A server that is none of ours, priced by the user's file: until the file says what its jobs cost."""
    prices = {"overrides": {"gpt-4o-mini": {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0}}}
    file = tmp_path / "Config" / "provider_pricing.yaml"
    file.parent.mkdir()
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        exp.models[2]["batch_enabled"] = False
        assert (await coeval("run", "--config", exp.file)).code == 0
        prompts = ("--tasks", f"coeval:{exp.path}", "--model", "gpt-4o-mini", "--base-url", host.url)
        flags = (
            *prompts,
            "--api-key",
            KEY,
            "--max-tokens",
            100,
            "--batch",
            "--no-wait",
            "--probe",
            "disable",
        )
        file.write_text(json.dumps(prices))
        reported = await finish(await start(tmp_path, *flags, "--output-dir", "first"))
        file.write_text(json.dumps(prices | {"batch_multipliers": {"vllm": 0.5}}))
        quiet = await finish(await start(tmp_path, *flags, "--output-dir", "second"))
    assert "at the live price" in reported.err, reported.err
    assert "batch_multipliers: {vllm: 0.5}" in " ".join(reported.err.split())
    assert "at the live price" not in quiet.err
    assert read_merged_pricing(tmp_path).batch_multipliers["openai"] == 0.5


# One run of `coeval` whose students are on three clouds, as a user starts it: a process of its own, keys in
# the environment, fakes of the hosts on loopback.

ACCESS_KEY, SECRET = "AKIAMADEUP0EXAMPLE07", "s3cr3t/Made+Up0123456789abcdefghijklmnop"
GEMINI_KEY = "AIzaSyTest-0123456789abcdefghijklmnopqrs"

EXPERIMENT = """
models:
  - {{name: writer, interface: simulated, parameters: {{model: sim}}, roles: [teacher, judge]}}
  - name: gem
    interface: gemini
    parameters: {{model: gemini-2.5-flash, base_url: "{gemini}"}}
    roles: [student]
  - name: ver
    interface: vertex
    parameters: {{model: gemini-2.5-flash, base_url: "{vertex}"}}
    roles: [student]
  - name: bed
    interface: bedrock
    parameters: {{model: us.anthropic.claude-sonnet-4-5-20250929-v1:0, base_url: "{bedrock}"}}
    roles: [student]
tasks:
  - name: explain
    description: Explain a concept
    output_description: a paragraph
    target_attributes: {{level: [easy, hard]}}
    sampling: {{total: 3}}
    rubric: {{clear: Is it clear?}}
experiment: {{id: clouds, storage_folder: "{runs}"}}
"""


@pytest.mark.process
async def test_three_clouds_answer_in_one_run_and_no_output_holds_a_credential(tmp_path: Path) -> None:
    async with (
        fake_bedrock(keys={ACCESS_KEY: SECRET}) as bedrock,
        fake(keys=[GEMINI_KEY]) as gemini,
        fake_vertex() as vertex,
    ):
        account = tmp_path / "account"
        account.mkdir()
        env = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "GEMINI_API_KEY": GEMINI_KEY,
            "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(account, vertex.token_url)),
        }
        urls = {"bedrock": bedrock.url, "gemini": gemini.url, "vertex": vertex.url}
        runs, file = tmp_path / "runs", tmp_path / "clouds.yaml"
        file.write_text(EXPERIMENT.format(runs=runs, **urls))
        ended = await called(tmp_path, "run", "--config", file, "--log-level", "DEBUG", env=env)
    assert ended.code == 0, ended.err
    requested = [len(host.requested) for host in (bedrock, gemini, vertex)]
    assert requested == [4, 4, 4]  # a probe and three items each
    assert vertex.token_requested == 1
    kept = [path.read_text() for path in runs.rglob("*") if path.is_file()]
    everything = "\n".join([ended.out, ended.err, *kept])
    assert "explain__writer__00003__bed" in everything
    for secret in (ACCESS_KEY, SECRET, GEMINI_KEY, *vertex.issued, "PRIVATE KEY"):
        assert secret not in everything
