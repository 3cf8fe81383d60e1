"""`coeval sweep` from checkpoints to scored samples, over servers that it starts itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pipeline.experiments import Lab, model, task
from sweeping import Sweeping, judge_host, needs

pytestmark = pytest.mark.slow


SKILLS = (30, 40, 50, 60, 70, 80)
SAMPLES = {
    "ifeval": 2,
    "ifbench": 2,
    "healthbench": 2,
    "writingbench": 1,
    "arena-hard": 1,
    "alpaca-eval": 1,
}


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
        asked = judge.asked
        again = await sweeping.run(*how, *judge.flags, "--no-plot")
    assert "54 of 54 jobs done" in first.out
    assert (again.code, judge.asked) == (0, asked), again
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


async def test_a_run_of_ones_own_is_a_task_that_is_answered_now_and_judged_later(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=3)])
    assert (await asyncio.to_thread(lab.run)).exit_code == 0
    sweeping = Sweeping(tmp_path)
    sweeping.trained(20, 90)
    how = ("--tasks", f"coeval:{lab.path}", "--n-samples", "", "--no-plot", "--served-name", "tiny")
    label = f"coeval-{lab.path.name}"
    async with judge_host(["tiny:skill=0.2"]) as low, judge_host(["tiny:skill=0.9"]) as high:
        external = (*how, "--external", f"20={low.url}", "--external", f"90={high.url}")
        ended = await sweeping.run(*external)
        assert ended.code == 1
        assert "a judge is needed" in ended.err
        ended = await sweeping.run(*external, "--no-judge")
        assert (ended.code, low.asked) == (0, 3), ended
        assert "2 jobs answered and not judged" in ended.out
        async with judge_host() as judge:
            ended = await sweeping.run(*external, *judge.flags, "--no-inference")
        assert (ended.code, low.asked) == (0, 3), ended
    assert sweeping.concluded() == [(20, label, 0), (90, label, 0)]
    assert sweeping.value(90, label) > sweeping.value(20, label)


async def test_what_is_planned_shown_and_left_undone(tmp_path: Path) -> None:
    """A dry run writes nothing; what a phase left out is made up for; the status is told from disk."""
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 80)
    ended = await sweeping.run("--dry-run")
    assert ended.code == 0, ended
    assert "2 checkpoints (steps 30, 80), 2 with something owed, 2 server starts" in ended.out
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
        assert (low.asked, high.asked) == (12, 12), "two samples of six prompts"

        ended = await sweeping.run(*external, "--temperature", "0.1")
        assert ended.code == 0, ended
        assert "4 jobs were done before with other settings" in ended.err
        assert (low.asked, high.asked) == (24, 24)
        kept = [len(sweeping.set_aside(step, "ifeval")) for step in (30, 80)]
        assert kept == [1, 1], "the earlier answers lie aside"
        ended = await sweeping.run(*external)
        assert (ended.code, low.asked, high.asked) == (0, 24, 24), "and are taken up again"
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
        assert process.poll() is None, process.so_far()
        await asyncio.sleep(0.1)
    assert sweeping.concluded() == [(30, "ifeval", 0), (30, "ifeval", 1)]
    assert not (sweeping.out / "step_50").exists()
    being_written.unlink()
    ended = await process.output()
    assert process.wait() == 0, ended
    assert [step for step, _, run in sweeping.concluded() if run == 0] == [30, 50]
    assert "4 of 4 jobs done" in ended.out


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
