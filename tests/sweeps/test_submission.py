"""Snapshots that a trainer submits: kept, served once, another when overwritten, merged."""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import sys
import time
from pathlib import Path

import pytest
from cli.invoked import Ended
from cli.warm_process import WarmProcess
from sweeping import Sweeping

import coeval
from coeval.core.errors import StoreError, UsageError
from coeval.sweeps.checkpoints import Checkpoint, CheckpointPlaces, CheckpointWatch, hash_file_stamps
from coeval.sweeps.job_table import JobTable
from coeval.sweeps.server_command import MergeCommand
from coeval.sweeps.submission import submit_checkpoint
from coeval.sweeps.sweep import JobPlan, SweepTask, queue_folder, sweep_folder


def saved(folder: Path, weights: str = "weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(weights)
    return folder


def watch(out: Path, folder: Path | None = None) -> CheckpointWatch:
    return CheckpointWatch(CheckpointPlaces(folder=folder, queue=queue_folder(out)), interval_s=1)


def test_a_submission_is_one_small_file_that_a_watch_takes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, folder = tmp_path / "out", saved(tmp_path / "snapshot; $(touch x) ü")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", None)  # the trainer waits for no disk
        assert coeval.submit_checkpoint(out, 240, folder) == 0
    [file] = [path for path in out.rglob("*") if path.is_file()]
    assert (file.name, file.stat().st_size < 1000) == ("step_240.json", True)
    [found] = watch(out).find_newly_ready()
    assert (found.step, found.path, found.content) == (240, str(folder), hash_file_stamps(folder))


def test_an_overwritten_snapshot_is_another_and_the_trainers_own_state_is_no_part_of_it(
    tmp_path: Path,
) -> None:
    out, folder = tmp_path / "out", saved(tmp_path / "latest")
    looking = watch(out)
    submit_checkpoint(out, 1, folder)
    [first] = looking.find_newly_ready()
    assert looking.find_newly_ready() == []
    (folder / "rng_state_3.pth").write_text("another rank is still writing")
    assert hash_file_stamps(folder) == first.content
    saved(folder, "other weights")
    submit_checkpoint(out, 1, folder)
    [second] = looking.find_newly_ready()
    assert second.path_and_step == first.path_and_step
    assert second.identity != first.identity
    assert [each.identity for each in watch(out).find_newly_ready()] == [second.identity], (
        "after a restart too"
    )


def test_a_submitted_one_is_not_taken_from_the_folder_too(tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = saved(tmp_path / "run" / "step_5")
    saved(tmp_path / "run" / "step_6")
    submit_checkpoint(out, 5, folder)
    places = CheckpointPlaces(folder=tmp_path / "run", queue=queue_folder(out))
    assert [(each.step, bool(each.content)) for each in places.find_all()] == [(5, True), (6, False)]
    submit_checkpoint(out, 6, saved(tmp_path / "elsewhere"))
    assert places.explain_skipped() == {
        str(tmp_path / "elsewhere"): f"it was submitted as step 6, which is {tmp_path / 'run' / 'step_6'}"
    }


def test_what_cannot_be_submitted_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", saved(tmp_path / "a")
    for path in (tmp_path / "absent", folder / "config.json"):
        with pytest.raises(UsageError, match="is not a folder with files in it"):
            submit_checkpoint(out, 1, path)
    assert not out.exists()
    submit_checkpoint(out, 1, folder)
    with pytest.raises(UsageError, match=r"step 1 of .*out is .*a already; give .*b another step"):
        submit_checkpoint(out, 1, saved(tmp_path / "b"))
    with pytest.raises(UsageError, match="is not a sweep's folder"):
        submit_checkpoint(folder, 1, folder)
    with pytest.raises(UsageError, match="is a file"):
        submit_checkpoint(folder / "config.json", 1, folder)


@pytest.mark.parametrize("link", ["sweep", "sweep/queue", "sweep/queue/step_10.json"])
def test_nothing_is_submitted_through_a_link(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    target = elsewhere / "kept" if link.endswith(".json") else elsewhere
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    place = tmp_path / "out" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    with pytest.raises(StoreError, match="is a link"):
        submit_checkpoint(tmp_path / "out", 10, saved(tmp_path / "at-10"))
    assert [file.name for file in elsewhere.iterdir()] == ["kept"]
    assert (elsewhere / "kept").read_text() == "kept"


def test_a_damaged_file_of_the_queue_is_told_and_the_others_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    submit_checkpoint(out, 2, saved(tmp_path / "a"))
    (queue_folder(out) / "step_1.json").write_text("{")
    assert [each.step for each in watch(out).find_newly_ready()] == [2]
    assert "step_1.json is damaged" in caplog.text


@pytest.mark.parametrize(("unanswered", "code"), [(0, 0), (1, 3)])
def test_a_wait_ends_where_the_sweep_answers_and_does_not_judge(
    unanswered: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, folder, said = tmp_path / "out", saved(tmp_path / "a"), list[str]()
    submit_checkpoint(out, 10, folder)
    [checkpoint] = watch(out).find_newly_ready()
    task = SweepTask(task="t", label="t", samples=1, judged=True, requested_with="a", judged_with="j")
    plan = JobPlan(checkpoints=(checkpoint,), tasks=(task,), judges=False)
    plan.write(sweep_folder(out))

    def answered(_: float) -> None:
        """The sweep asks it while somebody waits."""
        responses = out / "step_10" / "run_0" / "t" / "responses.jsonl"
        assert not responses.exists(), "it waits on"
        responses.parent.mkdir(parents=True)
        responses.write_text("{}\n")
        JobTable(out, plan).note_answered(checkpoint, task, 0, 0, unanswered)

    monkeypatch.setattr(time, "sleep", answered)
    assert submit_checkpoint(out, 10, folder, wait=True, say=said.append) == code
    assert said[-1].startswith("step_10: 0 of 1 jobs scored")
    assert ("1 answered and not judged: the sweep runs with --no-judge" in said[-1]) == (code == 0)


def test_the_end_of_an_overwritten_snapshot_is_not_that_of_the_new_one(tmp_path: Path) -> None:
    """Not even within one second, the grain of the journal's times."""
    out, folder = tmp_path / "out", saved(tmp_path / "a")
    task = SweepTask(task="t", label="t", samples=1, judged=False, requested_with="a", judged_with="")
    ended = []
    for weights in ("first", "the second"):
        checkpoint = Checkpoint(step=10, path=str(folder), content=hash_file_stamps(saved(folder, weights)))
        table = JobTable(out, JobPlan(checkpoints=(checkpoint,), tasks=(task,), judges=False))
        ended.append(table.is_whole_or_ended_since(checkpoint, 0.0))
        table.note_failed(checkpoint, task, 0, "the server died")
        ended.append(table.is_whole_or_ended_since(checkpoint, 0.0))
        table.close()
    assert ended == [False, True, False, True]


def test_values_of_a_merge_command_are_no_code() -> None:
    with pytest.raises(UsageError, match=r"--merge-command needs \{merged\}: it is what is served"):
        MergeCommand("merge {path}")
    values = {"path": "/a; rm b", "merged": "/m"}
    assert MergeCommand("merge {path} --to {merged}").fill_placeholders(values) == (
        "merge",
        "/a; rm b",
        "--to",
        "/m",
    )
    with pytest.raises(UsageError, match=r"--merge-command: \{path\} stands inside"):
        MergeCommand("sh -c 'merge {path} {merged}'").fill_placeholders(values)


class Submitting(Sweeping):
    """A sweep that watches nothing but its queue."""

    def watching(self, *more: object) -> WarmProcess:
        words = self.flags("--watch", "--watch-interval", "0.3", "--no-plot", *more)
        at = words.index("--checkpoints")
        return WarmProcess(*words[:at], *words[at + 2 :], cwd=self.folder, env=self.environment())

    async def submit(self, step: int, path: Path, *more: str) -> Ended:
        words = ("sweep", "submit", "--out", str(self.out), "--step", str(step), "--path", str(path), *more)
        process = WarmProcess(*words, cwd=self.folder, env=self.environment())
        written = await process.output()
        return Ended(process.wait(), *written)


@pytest.mark.system
async def test_submitted_before_and_while_it_watches_each_is_scored_once(tmp_path: Path) -> None:
    sweeping = Submitting(tmp_path)
    early = await sweeping.submit(30, saved(tmp_path / "a"))
    assert (early.code, early.out.strip()) == (0, f"step 30 submitted to {sweeping.out}")
    assert "no sweep runs in" in early.err
    process = sweeping.watching("--until-step", "70")
    latest = saved(tmp_path / "latest")
    waited = await sweeping.submit(50, latest, "--wait")
    assert waited.code == 0, waited
    assert "step_50: 2 of 2 jobs scored" in waited.err
    first = sweeping.answers(50, "ifeval")[0]["model"]
    saved(latest, "overwritten")
    waited = await sweeping.submit(50, latest, "--wait")
    assert waited.code == 0, waited
    second = sweeping.answers(50, "ifeval")[0]["model"]
    assert first.rpartition("#")[0] == second.rpartition("#")[0] == f"{latest}@50"
    assert first != second
    gone = saved(tmp_path / "gone")
    (gone / "config.json").unlink()
    failed = await sweeping.submit(60, gone, "--wait")
    assert (failed.code, "it has no config.json" in failed.err) == (3, True), failed
    submit_checkpoint(sweeping.out, 70, saved(tmp_path / "b"))
    ended = await process.output()
    assert process.wait() == 3, ended
    assert [step for step, _, run in sweeping.concluded() if run == 0] == [30, 50, 50, 70]


@pytest.mark.system
async def test_sharded_checkpoints_are_merged_and_a_failure_is_theirs_alone(tmp_path: Path) -> None:
    sweeping = Submitting(tmp_path)
    script = tmp_path / "merge.py"
    script.write_text(
        "import pathlib, shutil, sys\n"
        "source, merged = map(pathlib.Path, sys.argv[1:])\n"
        "print('merging', len(list(source.glob('*.pt'))), 'shards')\n"
        "if not (source / 'rank_1.pt').exists(): sys.exit('rank_1.pt is missing')\n"
        "merged.mkdir()\n"
        "for name in ('config.json', 'model.safetensors'): (merged / name).write_text('{}')\n"
    )
    for name, ranks in (("whole; $x", 2), ("half", 1)):
        (tmp_path / name).mkdir()
        for rank in range(ranks):
            (tmp_path / name / f"rank_{rank}.pt").write_text("part")
    submit_checkpoint(sweeping.out, 30, tmp_path / "whole; $x")
    submit_checkpoint(sweeping.out, 50, tmp_path / "half")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{path}} {{merged}}"
    process = sweeping.watching("--merge-command", command, "--until-step", "50")
    ended = await process.output()
    assert process.wait() == 3, ended
    assert [step for step, _, run in sweeping.concluded() if run == 0] == [30]
    assert "--merge-command failed (exit code 1)" in ended.err
    assert "rank_1.pt is missing" in ended.err
    merging = sweeping.out / "sweep" / "workers" / "step_30.merge"
    assert "merging 2 shards" in (merging / "server.log").read_text()
    assert not list(merging.glob("merged-*")), "what was merged takes a model's room"


@pytest.mark.system
async def test_killed_at_twenty_moments_all_that_was_submitted_is_scored_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    sweeping = Submitting(tmp_path, prompts=4)
    trainer = tmp_path / "trainer.py"
    trainer.write_text(
        "import sys, time\nfrom pathlib import Path\nimport coeval\n"
        "for step in range(10, 100, 10):\n"
        "    folder = Path(sys.argv[1]) / f'step_{step}'\n"
        "    if folder.exists(): continue\n"
        "    making = folder.with_suffix('.tmp'); making.mkdir(exist_ok=True)\n"
        "    (making / 'config.json').write_text('{}')\n"
        "    (making / 'model.safetensors').write_text(str(step))\n"
        "    coeval.submit_checkpoint(sys.argv[2], step, making.rename(folder))\n"
        "    time.sleep(1)\n"
    )

    async def training() -> asyncio.subprocess.Process:
        words = (str(trainer), str(tmp_path), str(sweeping.out))
        return await asyncio.create_subprocess_exec(sys.executable, *words, env=sweeping.environment())

    sweep, train = sweeping.watching("--slots", "2"), await training()
    for kill in range(20):
        await asyncio.sleep(chance.uniform(0.1, 2.0))
        if kill % 2 or train.returncode is not None:
            sweep.kill()
            await sweep.output()
            sweep = sweeping.watching("--slots", "2")
        else:
            train.kill()
            await train.wait()
            train = await training()
    sweep.kill()
    await sweep.output()
    await train.wait()
    for step in range(10, 100, 10):  # killed between saving and submitting, it would submit again
        submit_checkpoint(sweeping.out, step, tmp_path / f"step_{step}")
    process = sweeping.watching("--slots", "2", "--until-step", "90")
    ended = await process.output()
    assert process.wait() == 0, ended
    needed = [(step, "ifeval", run) for step in range(10, 100, 10) for run in range(2)]
    assert sweeping.concluded() == needed
    for step, name, run in needed:
        ids = [line["id"] for line in sweeping.answers(step, name, run) if line["response"]]
        assert sorted(ids) == ["0", "1", "2", "3"], (step, run)


def test_a_checkpoint_without_content_keeps_its_identity() -> None:
    assert Checkpoint(step=3, path="/a").identity == "/a@3"
