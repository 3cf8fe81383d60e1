"""`coeval sweep` from checkpoints to scored samples, over servers that it starts itself."""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli.terminal import on_terminal
from left_behind import MARK, marked, none_left
from pipeline.experiments import Lab, model, task
from rich.console import Console
from sweeping import JUDGE, Sweeping, judge_host, needs
from workers import odd

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.cli.commands.sweep.sweep_report import make_slot_table, print_sweep_outcome, read_sweep_settings
from coeval.sweeps.engine import WorkerSlot
from coeval.sweeps.judging_run import SampleConcluded
from coeval.sweeps.scheduler import SweepBoard
from coeval.sweeps.server_command import HOST
from coeval.sweeps.server_process import find_free_port
from coeval.sweeps.sweep import Sweep
from coeval.sweeps.worker_files import Worker, WorkerProgress, write_progress

SKILLS = (30, 40, 50, 60, 70, 80)
SAMPLES = {
    "ifeval": 2,
    "ifbench": 2,
    "healthbench": 2,
    "writingbench": 1,
    "arena-hard": 1,
    "alpaca-eval": 1,
}


@pytest.mark.system
async def test_six_checkpoints_are_served_asked_judged_and_scored_once(tmp_path: Path) -> None:
    needs("ifbench/prompts", "healthbench/grader", "writingbench/queries", "arena-hard/questions")
    needs("alpaca-eval/judge", "alpaca-eval/baseline")
    sweeping = Sweeping(tmp_path)
    sweeping.trained(*SKILLS)
    samples = ",".join(f"{name}={n}" for name, n in SAMPLES.items())
    how = ("--tasks", ",".join(SAMPLES), "--n-samples", samples, "--max-examples", "4", "--slots", "4")
    async with judge_host() as judge:
        first = await sweeping.run(*how, *judge.flags)
        assert first.code == 0, first
        requested = judge.requested
        again = await sweeping.run(*how, *judge.flags, "--no-plot")
    assert "54 of 54 jobs done" in first.out
    assert (again.code, judge.requested) == (0, requested), again
    jobs = [(step, name, run) for step in SKILLS for name, n in SAMPLES.items() for run in range(n)]
    assert sweeping.concluded() == sorted(jobs)
    for step, name, run in jobs:
        answers = sweeping.answers(step, name, run)
        identity = f"{sweeping.checkpoints}/global_step_{step}/actor_hf@{step}"
        assert ({line["model"] for line in answers}, len(answers)) == ({identity}, 4)
    for name in ("healthbench", "writingbench", "arena-hard", "alpaca-eval"):
        assert sweeping.value(80, name) > sweeping.value(30, name)
    assert (sweeping.out / "plots" / "all_tasks.png").stat().st_size > 10_000
    assert (sweeping.out / "plots" / "curves.html").exists()
    assert not list(sweeping.out.rglob("server.json")), "no server is left"


@pytest.mark.process
async def test_a_run_of_ones_own_is_a_task_that_is_answered_now_and_judged_later(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=3)])
    assert (await asyncio.to_thread(lab.run)).exit_code == 0
    sweeping = Sweeping(tmp_path)
    sweeping.trained(20, 90)
    how = ("--tasks", f"coeval:{lab.path}", "--n-samples", "", "--no-plot", "--served-name", "tiny")
    label = f"coeval-{lab.path.name}"
    async with judge_host(["tiny:skill=0.2"]) as low, judge_host(["tiny:skill=0.9"]) as high:
        external = (*how, "--external", f"20={low.url}", "--external", f"90={high.url}")
        ended = await sweeping.run(*external, "--no-judge")
        assert (ended.code, low.requested) == (0, 3), ended
        assert "2 jobs answered but not judged" in ended.out
        async with judge_host() as judge:
            ended = await sweeping.run(*external, *judge.flags, "--no-inference")
        assert (ended.code, low.requested) == (0, 3), ended
    assert sweeping.concluded() == [(20, label, 0), (90, label, 0)]
    assert sweeping.value(90, label) > sweeping.value(20, label)


@pytest.mark.process
async def test_a_sweep_is_logged_though_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    tracking = {"MLFLOW_TRACKING_URI": (tmp_path / "ml").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    sweeping = Sweeping(tmp_path, prompts=2)
    environment = sweeping.environment() | tracking
    monkeypatch.setattr(sweeping, "environment", lambda: environment)
    sweeping.trained(30, 80)
    ended = await sweeping.run("--no-plot", "--log-to", "mlflow:mine")
    assert ended.code == 0, ended
    assert not (sweeping.out / "plots").exists()
    [file] = (tmp_path / "ml").glob("*/*/metrics/ifeval/prompt_level_strict_accuracy_n")
    logged = [line.split()[1:] for line in file.read_text().splitlines()]
    assert [(int(step), float(n)) for n, step in logged] == [(30, 2.0), (80, 2.0)]


@pytest.mark.process
async def test_a_judge_that_does_not_answer_is_told_before_a_server_starts(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=3)])
    assert (await asyncio.to_thread(lab.run)).exit_code == 0
    sweeping = Sweeping(tmp_path)
    sweeping.trained(20)
    nobody = f"http://127.0.0.1:{find_free_port(HOST)}/v1"
    how = ("--tasks", f"coeval:{lab.path}", "--n-samples", "", "--judge-model", "x", "--judge-base-url")
    ended = await sweeping.run(*how, nobody)
    assert (ended.code, "the judge does not answer: x: POST" in ended.err) == (2, True), ended
    assert "--no-judge" in ended.err
    assert not list(sweeping.out.rglob("server*")), "no server was started"
    assert not list(sweeping.out.glob("step_*"))


@pytest.mark.system
async def test_what_is_planned_shown_and_left_undone(tmp_path: Path) -> None:
    """A dry run writes nothing; what a phase left out is made up for; the status is told from disk."""
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 80)
    ended = await sweeping.run("--dry-run")
    assert ended.code == 0, ended
    assert "2 checkpoints (steps 30, 80), 2 with something missing, 2 server starts" in ended.out
    assert [line.split() for line in ended.out.splitlines() if line.startswith("ifeval")] == [
        ["ifeval", "4", "24", "0"]
    ]
    ended = await sweeping.run("--dry-run", "--server-command", "nosuchserver {port}")
    assert (ended.code, "nosuchserver, which is to start the servers, is not there" in ended.err) == (0, True)
    assert not sweeping.out.exists()

    ended = await sweeping.run("--server-command", "nosuchserver {port}")
    assert (ended.code, "nosuchserver, which is to start the servers, is not there" in ended.err) == (1, True)
    assert not list(sweeping.out.glob("step_*"))

    ended = await sweeping.run("--no-inference", "--no-plot")
    assert (ended.code, sweeping.concluded()) == (0, []), ended
    ended = await sweeping.run("--no-plot", "--steps", "80")
    assert (ended.code, len(sweeping.concluded())) == (0, 2), ended
    assert not (sweeping.out / "plots").exists()
    ended = await sweeping.run("--status")
    assert ["30", "0", "of", "2"] in [line.split() for line in ended.out.splitlines()]
    assert ["80", "2", "of", "2"] in [line.split() for line in ended.out.splitlines()]
    assert "1 of 2 checkpoints complete" in ended.out

    ended = await sweeping.run("--log-dir", tmp_path / "logs")
    assert ended.code == 0, ended
    assert len(sweeping.concluded()) == 4, "those of step 80 are not done again"
    assert (sweeping.out / "plots" / "curves.html").exists()
    assert (sweeping.out / "step_30" / "ifeval" / "summary_agg.json").exists()
    assert "simulated models at" in (tmp_path / "logs" / "step_30.server.log").read_text()


@pytest.mark.process
async def test_a_key_in_the_servers_command_is_written_nowhere(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30)
    for how in ((), ("--dry-run",)):
        ended = await sweeping.run(
            *how, "--server-command", "serve {checkpoint} {port} --api-key hunter2hunter2"
        )
        assert (ended.code, "holds a credential (api-key)" in ended.err) == (1, True), ended
        assert "hunter2" not in ended.out + ended.err
    assert not sweeping.out.exists()


@pytest.mark.system
async def test_checkpoints_under_one_name_are_two_and_changed_settings_relabel_nothing(
    tmp_path: Path,
) -> None:
    """Servers that the user runs: one for each checkpoint, all of one name."""
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 80)
    how = ("--served-name", "tiny", "--no-plot")
    async with judge_host(["tiny:skill=0.1"]) as low, judge_host(["tiny:skill=0.95"]) as high:
        external = (*how, "--external", f"30={low.url}", "--external", f"80={high.url}")
        ended = await sweeping.run(*external)
        assert ended.code == 0, ended
        first = {step: sweeping.answers(step, "ifeval") for step in (30, 80)}
        assert [{line["model"] for line in first[step]} for step in (30, 80)] == [
            {f"{sweeping.checkpoints}/global_step_{step}/actor_hf@{step}"} for step in (30, 80)
        ]
        assert (low.requested, high.requested) == (12, 12), "two samples of six prompts"

        ended = await sweeping.run(*external, "--temperature", "0.1")
        assert ended.code == 0, ended
        assert "4 jobs were done before with other settings" in ended.err
        assert (low.requested, high.requested) == (24, 24)
        kept = [len(sweeping.set_aside(step, "ifeval")) for step in (30, 80)]
        assert kept == [1, 1], "the earlier answers lie aside"
        ended = await sweeping.run(*external)
        assert (ended.code, low.requested, high.requested) == (0, 24, 24), "and are taken up again"
        assert {step: sweeping.answers(step, "ifeval") for step in (30, 80)} == first

    other = tmp_path / "other" / "actor_hf"
    other.mkdir(parents=True)
    ended = await sweeping.run(
        *how, "--steps", "80", "--base-model", other, "--external", "http://127.0.0.1:9/v1"
    )
    assert ended.code == 1
    sweeping.checkpoints.rename(tmp_path / "run_b")
    ended = await sweeping.run("--checkpoints", tmp_path / "run_b", *external)
    assert ended.code == 1
    assert f"holds answers of {sweeping.checkpoints}/global_step_30/actor_hf@30, not of" in ended.err


@pytest.mark.system
async def test_a_checkpoint_is_swept_once_it_is_whole(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30)
    process = sweeping.start("--watch", "--watch-interval", "1.5", "--until-step", "50", "--no-plot")
    place = sweeping.checkpoints / "global_step_50" / "actor_hf"
    place.mkdir(parents=True)
    being_written = place / "optimizer.pt.tmp"
    for name in ("config.json", "model.safetensors", being_written.name):
        (place / name).write_text("{}")
    while len(sweeping.concluded()) < 2:
        assert process.poll() is None, process.continue_if_started()
        await asyncio.sleep(0.1)
    assert sweeping.concluded() == [(30, "ifeval", 0), (30, "ifeval", 1)]
    assert not (sweeping.out / "step_50").exists()
    being_written.unlink()
    ended = await process.output()
    assert process.wait() == 0, ended
    assert [step for step, _, run in sweeping.concluded() if run == 0] == [30, 50]
    assert "4 of 4 jobs done" in ended.out


@pytest.mark.system
async def test_shards_of_one_checkpoint_are_put_together_whatever_their_number(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(60)
    ended = await sweeping.run("--slots", "3", "--shards", "3", "--no-plot", "--max-examples", "4")
    assert ended.code == 0, ended
    answered = sweeping.answers(60, "ifeval")
    assert sorted(line["id"] for line in answered) == ["0", "1", "2", "3"]
    ended = await sweeping.run("--slots", "2", "--shards", "2", "--no-plot")
    assert ended.code == 0, ended
    assert sweeping.answers(60, "ifeval")[:4] == answered, "only what is new is asked"
    assert len(sweeping.answers(60, "ifeval")) == 6
    assert not list(sweeping.out.rglob("shards"))


# Kills and interruptions of a sweep and of its processes: what is finished stays, each job is done once,
# and nothing is left running.

STEPS = (30, 50, 70)


class Marked(Sweeping):
    """Of which all processes can be told."""

    mark: str = ""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), MARK: self.mark}

    def of(self, what: str) -> list[int]:
        return [pid for pid, command in marked(self.mark).items() if what in command]


@pytest.fixture
def sweeping(tmp_path: Path) -> Marked:
    made = Marked(tmp_path, prompts=24)
    made.mark = uuid.uuid4().hex
    made.trained(*STEPS)
    made.words = ["--slots", "2", "--num-threads", "4", "--no-plot"]
    made.server_options = "latency_s=0.1"
    return made


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def done_once(sweeping: Sweeping, tasks: dict[str, int]) -> None:
    """Every job is concluded, by one line of the journal; no prompt is answered twice."""
    needed = sorted((step, task, run) for step in STEPS for task, n in tasks.items() for run in range(n))
    assert sweeping.concluded() == needed
    for step, name, run in needed:
        answered = Counter(line["id"] for line in sweeping.answers(step, name, run) if line["response"])
        assert set(answered.values()) == {1}, (step, name, run)


@pytest.mark.system
async def test_killed_at_random_moments_a_sweep_does_each_job_once(sweeping: Marked) -> None:
    needs("alpaca-eval/judge", "alpaca-eval/baseline")
    chance = random.Random(5)
    tasks = ("--tasks", "ifeval,alpaca-eval", "--n-samples", "ifeval=2", "--max-examples", "24")
    early = ["worker_process"] * 5 + ["sweep"] * 4
    chance.shuffle(early)
    struck: Counter[str] = Counter()
    async with judge_host([f"{JUDGE}:latency_s=1"]) as judge:
        process = sweeping.start(*tasks, *judge.flags)
        for target in (*early, "judging_process", "sweep", "judging_process", "judging_process"):
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            while not (pids := [process.pid] if target == "sweep" else sweeping.of(target)):
                assert process.poll() is None, (target, process.continue_if_started())
                await asyncio.sleep(0.05)
            kill(chance.choice(pids))
            struck[target] += 1
            if target == "sweep":
                await process.output()
                process = sweeping.start(*tasks, *judge.flags)
        await process.output()
        ended = await sweeping.run(*tasks, *judge.flags)
    assert ended.code == 0, ended
    assert struck == {"worker_process": 5, "sweep": 5, "judging_process": 3}
    done_once(sweeping, {"ifeval": 2, "alpaca-eval": 1})
    none_left(sweeping.mark)
    assert not list(sweeping.out.rglob("server.json"))


@pytest.mark.system
@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_ends_workers_and_keeps_what_is_finished(sweeping: Marked, times: int) -> None:
    if times == 2:
        sweeping.served_otherwise("latency_s=3")  # so that the first one is still waiting for answers
    process = sweeping.start()
    while not sweeping.answers(30, "ifeval"):
        assert process.poll() is None, process.continue_if_started()
        await asyncio.sleep(0.05)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.3)
    err = (await process.output()).err
    assert process.wait() == 130, err
    assert ("Interrupted; fin" if times == 1 else "Stopped at once; fin") in err, err
    assert "finished work is on disk; the same command resumes" in err
    none_left(sweeping.mark)
    kept = sweeping.answers(30, "ifeval")
    assert kept
    sweeping.served_otherwise("")
    ended = await sweeping.run()
    assert ended.code == 0, ended
    assert sweeping.answers(30, "ifeval")[: len(kept)] == kept, "nothing is asked again"
    done_once(sweeping, {"ifeval": 2})


@pytest.mark.process
async def test_a_second_sweep_is_told_who_is_at_work(sweeping: Marked) -> None:
    first = sweeping.start()
    while not sweeping.of("worker_process"):
        assert first.poll() is None, first.continue_if_started()
        await asyncio.sleep(0.05)
    second = await sweeping.run()
    assert second.code == 1
    assert f"is in use by process {first.pid} on" in second.err
    status = await sweeping.run("--status")
    assert f"process {first.pid} is running it" in status.out
    kill(first.pid)
    await first.output()
    none_left(sweeping.mark)


# What a sweep shows of itself: a table on a terminal, plain lines elsewhere.


@pytest.mark.process
async def test_what_fits_no_window_ends_a_sweep_before_the_first_request(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(*SKILLS)
    served = ("--server-command", odd("narrow"), "--served-name", "tiny")
    ended = await sweeping.run(*served, "--max-tokens", 100)
    assert ended.code == 1, ended
    said = " ".join(ended.err.split())
    assert said.count("an answer may have 100 tokens, and its server's window (max_model_len) has 64") == 1
    assert "Use --max-tokens 32, or serve it with a larger --max-model-len" in said
    assert not list(sweeping.out.rglob("responses.jsonl")), "no request was sent"
    assert (await sweeping.run(*served, "--max-tokens", 32, "--no-plot")).code == 0
    assert len(sweeping.concluded()) == 2 * len(SKILLS)


@pytest.mark.process
async def test_a_server_command_that_cannot_work_is_told_at_once_and_not_tried_for_long(
    tmp_path: Path,
) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 40)
    ended = await sweeping.run("--server-command", odd("wrong"), "--served-name", "tiny")
    assert ended.code == 2, ended
    said = " ".join(ended.err.split())
    assert "step_30: its server ended and is being restarted: RuntimeError: Sleep mode" in said
    assert said.count("is being restarted") == 2, "once for each checkpoint"
    assert "is retried" not in said


@pytest.mark.process
async def test_a_checkpoint_that_was_not_measured_has_no_point(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30)
    served = ("--served-name", "tiny", "--no-plot")
    assert (await sweeping.run("--server-command", odd(), *served)).code == 0
    sweeping.trained(60)
    ended = await sweeping.run("--server-command", odd("picky"), *served)
    assert ended.code == 3, ended
    ended = await sweeping.run("--server-command", odd("picky"), "--served-name", "tiny")
    said = " ".join((ended.out + ended.err).split())
    assert "ifeval, step 60: run_0 is left out: not measured: 5 bad_request" in said
    assert (sweeping.out / "step_30" / "ifeval" / "summary_agg.json").exists()
    assert not (sweeping.out / "step_60" / "ifeval" / "summary_agg.json").exists()
    drawn = (sweeping.out / "plots" / "curves.html").read_text()
    assert "not measured: 5 bad_request" in drawn


def drawn(board: SweepBoard, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(make_slot_table(board, width - 2, height))
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return [line.rstrip() for line in shown.getvalue().splitlines()]


def busy_board(tmp_path: Path, slots: int) -> SweepBoard:
    """All slots but the last one have a worker."""
    board = SweepBoard([WorkerSlot(number, (str(number),)) for number in range(slots)])
    board.expect_work(30 * slots, slots)
    for number in range(slots - 1):
        folder = tmp_path / f"step_{number}"
        folder.mkdir()
        evaluation = EvalSpec(output=tmp_path, tasks=())
        board.running[number] = Worker(name=f"step_{number}", folder=folder, evaluation=evaluation)
        write_progress(
            folder,
            WorkerProgress(
                at=0.0,
                state="asking",
                done=1_312,
                planned=4_328,
                output_tokens_per_s=5_210.4,
                remaining_s=185.0,
                tasks={"run_0 ifeval": (541, 541), "run_1 writingbench\x1b[31m": (3, 541)},
            ),
        )
    return board


def test_each_slot_says_what_it_does_within_a_narrow_terminal(tmp_path: Path) -> None:
    lines = drawn(busy_board(tmp_path, 3), 80, 24)
    assert max(map(len, lines)) <= 78
    assert lines[0].split() == ["slot", "checkpoint", "task", "done", "tokens/s", "left"]
    assert lines[1].split()[:2] == ["0", "step_0"]
    assert "1,312/4,328" in lines[1]
    assert lines[1].split()[-2:] == ["5.2k", "3:05"]
    assert "\x1b[31m" not in "".join(lines), "names obey nothing"
    assert lines[3].split() == ["2", "free"]
    assert lines[-1].endswith("0 of 90 jobs done, 1 waiting for a slot")


def test_of_many_slots_those_with_a_worker_are_shown(tmp_path: Path) -> None:
    lines = drawn(busy_board(tmp_path, 40), 80, 12)
    assert len(lines) <= 12
    assert not any("free" in line for line in lines)
    assert lines[-1].endswith(" more slots")


@pytest.mark.process
async def test_a_sweep_on_a_terminal_leaves_its_results_and_no_table(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(40)
    words = ("python", "-m", "coeval", *sweeping.flags("--no-plot"))
    how: Any = {"cwd": tmp_path, "rows": 24, **sweeping.environment()}
    seen = await asyncio.to_thread(lambda: on_terminal(words, 80, **how))
    assert seen.code == 0, seen.screen
    assert any("step_40" in line for line in seen.written), "while it went on"
    assert not any(line.startswith("slot") for line in seen.screen)
    assert "2 of 2 jobs done" in " ".join(seen.screen)
    assert max(len(line) for line in seen.written if str(tmp_path) not in line) <= 80


@pytest.mark.process
async def test_a_resumed_sweep_counts_what_was_left(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 80, 90)
    process = sweeping.start("--slots", "1", "--no-plot")
    for _ in range(600):
        if len(sweeping.concluded()) >= 2 or process.poll() is not None:
            break
        await asyncio.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stopped = await process.output()
    before = len(sweeping.concluded())
    assert f"{before} of 6 jobs done" in stopped.out
    ended = await sweeping.run("--no-plot")
    left = 6 - before
    assert f"{left} of {left} jobs done; {before} were already done" in ended.out
    assert (
        f"{left} jobs to do for {len({step for step, *_ in sweeping.concluded()[before:]})} ch" in ended.err
    )


def test_a_job_with_gaps_is_not_done_and_one_cause_is_told_once(tmp_path: Path) -> None:
    board = SweepBoard([])
    board.jobs = 3
    board.count_concluded(SampleConcluded(run=0), judged=True)
    board.count_concluded(SampleConcluded(run=1, unscored=26), judged=True)
    for step in (20, 40):
        board.add_problem(f"step_{step}", "there is no such model", given_up=True)
    out, err = io.StringIO(), io.StringIO()
    sweep = Sweep(evaluation=EvalSpec(output=tmp_path, tasks=()), served_name="x")
    code = print_sweep_outcome(board, sweep, Console(file=out, width=200), Console(file=err, width=200))
    assert code == 3
    assert "1 of 3 jobs done, 1 with gaps" in out.getvalue()
    assert err.getvalue().count("there is no such model") == 1
    assert "step_20, step_40: there is no such model" in err.getvalue()


# The page on sweeps, from its first command to its last; what it shows of their output is there.

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
SERVES = "coeval simulate "


def blocks(*languages: str) -> list[tuple[str, str]]:
    return re.findall(rf"^```({'|'.join(languages)})\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "coeval").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coeval "$@"\n', encoding="utf-8")
    (tmp_path / "coeval").chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}


def shown(said: str) -> Iterator[tuple[str, ...]]:
    """The lines, however wide their columns are."""
    return (tuple(line.split()) for line in said.splitlines())


@pytest.mark.system
def test_the_page_on_sweeps_runs_from_top_to_bottom(tmp_path: Path, environment: dict[str, str]) -> None:
    port, said, servers = str(find_free_port(HOST)), "", []
    try:
        for language, block in blocks("bash", "text", "yaml"):
            here = block.replace("8100", port)
            if language == "yaml" and block.startswith("# sweep.yaml"):
                (tmp_path / "sweep.yaml").write_text(here, encoding="utf-8")
            elif language == "bash" and block.startswith(SERVES):
                server = subprocess.Popen(
                    here.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
                )
                servers.append(server)
                assert server.stdout is not None
                server.stdout.readline()
            elif language == "bash":
                ended = subprocess.run(
                    ["bash", "-euc", here], cwd=tmp_path, env=environment, capture_output=True, text=True
                )
                assert ended.returncode == 0, (block, ended.stdout, ended.stderr)
                said = ended.stdout + ended.stderr
            elif language == "text" and not block.startswith(("coeval ", "cp ", "outputs/run_a/\n")):
                assert set(shown(block)) <= set(shown(said)), (block, said)
    finally:
        for server in servers:
            server.terminate()
            server.communicate()
    assert (tmp_path / "outputs" / "run_a" / "plots" / "curves.html").exists()
    assert (tmp_path / "outputs" / "plots" / "coeval-quickstart.svg").exists()


def test_the_files_of_the_page_are_read(tmp_path: Path) -> None:
    for number, (_, block) in enumerate(blocks("yaml")):
        (tmp_path / f"{number}.yaml").write_text(block, encoding="utf-8")
        read_sweep_settings({}, tmp_path / f"{number}.yaml")
