"""What is done of a sweep, by its journal and its files: nothing is believed that these do not bear out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.job_table import JobTable, OwedJobs
from coeval.sweeps.sweep import JobPlan, SweepTask

TASKS = (
    SweepTask(task="ifeval", label="ifeval", samples=2, judged=False, requested_with="a", judged_with=""),
    SweepTask(
        task="alpaca-eval", label="alpaca-eval", samples=1, judged=True, requested_with="a", judged_with="j"
    ),
)
ONE, TWO = Checkpoint(step=10, path="/ckpt/10"), Checkpoint(step=20, path="/ckpt/20")
PLAN = JobPlan(checkpoints=(ONE, TWO), tasks=TASKS, served_name="step_{step}")
NOTHING = OwedJobs({}, {})
ALL = OwedJobs({0: {"ifeval": (0, 1), "alpaca-eval": (0,)}}, {"ifeval": (0, 1), "alpaca-eval": (0,)})


def files(out: Path, step: int, task: str, run: int, *names: str) -> None:
    folder = out / f"step_{step}" / f"run_{run}" / task
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}\n")


def done(out: Path, plan: JobPlan = PLAN, *, unscored: int = 0) -> JobTable:
    """All of step 10 is concluded, and of step 20 the first sample of IFEval answered."""
    table = JobTable(out, plan)
    for task in TASKS:
        for run in range(task.samples):
            files(out, 10, task.label, run, "responses.jsonl", "summary.json")
            table.note_answered(ONE, task, run, 0, 0)
            table.note_concluded(ONE, task, run, 0, unscored)
    files(out, 20, "ifeval", 0, "responses.jsonl")
    table.note_answered(TWO, TASKS[0], 0, 0, 0)
    table.close()
    return again(out, plan)


def again(out: Path, plan: JobPlan = PLAN) -> JobTable:
    """As the next start reads it."""
    return JobTable(out, plan)


def test_what_was_done_with_other_settings_is_counted(tmp_path: Path) -> None:
    assert again(tmp_path).count_done_with_other_settings((ONE, TWO)) == 0
    assert done(tmp_path).count_done_with_other_settings((ONE, TWO)) == 0
    warmer = replace(PLAN, tasks=(replace(TASKS[0], requested_with="b"), TASKS[1]))
    assert again(tmp_path, warmer).count_done_with_other_settings((ONE, TWO)) == 3
    assert again(tmp_path, warmer).count_done_with_other_settings((ONE,)) == 2


def test_a_checkpoint_that_was_written_again_is_named(tmp_path: Path) -> None:
    weights = tmp_path / "10" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_text("")
    os.utime(weights, (1, 1))
    here = replace(ONE, path=str(weights.parent))
    table = done(tmp_path / "out", replace(PLAN, checkpoints=(here, TWO)))
    assert table.find_newer_than_first_job((here, TWO)) == []
    os.utime(weights, (4e9, 4e9))
    assert table.find_newer_than_first_job((here, TWO)) == [here]


def test_what_is_done_is_not_owed_and_all_else_is(tmp_path: Path) -> None:
    assert again(tmp_path).find_owed(ONE) == ALL
    table = done(tmp_path)
    assert table.find_owed(ONE) == NOTHING
    assert table.find_owed(TWO) == OwedJobs({0: {"ifeval": (1,), "alpaca-eval": (0,)}}, ALL.conclusions)
    standing = table.summarise_task(TWO, TASKS[0])
    assert (standing.samples, standing.answered, standing.concluded) == (2, 1, 0)


def test_a_job_with_gaps_is_owed_again(tmp_path: Path) -> None:
    table = done(tmp_path, unscored=1)
    assert table.find_owed(ONE) == OwedJobs({}, ALL.conclusions)
    assert table.summarise_task(ONE, TASKS[0]).missing == 2


def test_scores_and_judgments_that_are_gone_are_made_again(tmp_path: Path) -> None:
    files(tmp_path, 10, "alpaca-eval", 0, "scores.jsonl", "judgments.j-1.jsonl")
    done(tmp_path)
    (tmp_path / "step_10" / "run_0" / "alpaca-eval" / "judgments.j-1.jsonl").unlink()
    assert again(tmp_path).find_owed(ONE) == OwedJobs({}, {"alpaca-eval": (0,)})


@pytest.mark.parametrize("how", ["removed", "rewritten", "damaged journal"])
def test_files_that_are_not_what_the_journal_says_make_a_job_owed(tmp_path: Path, how: str) -> None:
    done(tmp_path)
    answers = tmp_path / "step_10" / "run_0" / "ifeval" / "responses.jsonl"
    match how:
        case "removed":
            answers.unlink()
        case "rewritten":
            os.utime(answers, ns=(1, 1))
        case "damaged journal":
            (tmp_path / "sweep" / "jobs.jsonl").write_bytes(b'{"step": 10, "lab\xff\n[]\n{}')
    owed = again(tmp_path).find_owed(ONE)
    assert owed == (ALL if how == "damaged journal" else OwedJobs({0: {"ifeval": (0,)}}, {"ifeval": (0,)}))


def test_other_settings_owe_again_what_hangs_on_them(tmp_path: Path) -> None:
    done(tmp_path)
    requested, judged = (
        (replace(TASKS[0], requested_with="b"), TASKS[1]),
        (TASKS[0], replace(TASKS[1], judged_with="k")),
    )
    assert again(tmp_path, replace(PLAN, tasks=requested)).find_owed(ONE) == OwedJobs(
        {0: {"ifeval": (0, 1)}}, {"ifeval": (0, 1)}
    )
    assert again(tmp_path, replace(PLAN, tasks=judged)).find_owed(ONE) == OwedJobs({}, {"alpaca-eval": (0,)})
    moved = Checkpoint(step=10, path="/elsewhere/10")
    assert again(tmp_path).find_owed(moved) == ALL, "another checkpoint at the same step"
    assert again(tmp_path, replace(PLAN, served_name="x")).find_owed(ONE) == ALL


def test_another_number_of_shards_asks_for_no_answer_twice(tmp_path: Path) -> None:
    done(tmp_path)
    halved = again(tmp_path, replace(PLAN, shards=2))
    assert halved.find_owed(ONE) == NOTHING
    assert halved.find_owed(TWO).answers == dict.fromkeys((0, 1), ALL.answers[0])


def test_a_thousand_checkpoints_are_planned_without_looking_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks at a file for each job that is done, none for others; nothing is opened but the journal."""
    samples = {
        "ifeval": 8,
        "ifbench": 8,
        "healthbench": 8,
        "writingbench": 4,
        "arena-hard": 1,
        "alpaca-eval": 1,
    }
    tasks = tuple(
        SweepTask(task=name, label=name, samples=n, judged=False, requested_with="a", judged_with="")
        for name, n in samples.items()
    )
    checkpoints = tuple(Checkpoint(step=step, path=f"/ckpt/{step}") for step in range(1_000))
    plan = JobPlan(checkpoints=checkpoints, tasks=tasks)
    table = JobTable(tmp_path, plan)
    for step in range(10):
        for task in tasks:
            for run in range(task.samples):
                files(tmp_path, step, task.label, run, "responses.jsonl", "summary.json")
                table.note_answered(checkpoints[step], task, run, 0, 0)
                table.note_concluded(checkpoints[step], task, run, 0, 0)
    table.close()
    looks = 0
    stat = os.stat

    def counted(*of: object, **more: object) -> os.stat_result:
        nonlocal looks
        looks += 1
        return stat(*of, **more)  # type: ignore[arg-type]

    table = again(tmp_path, plan)
    monkeypatch.setattr("coeval.sweeps.job_table.os.stat", counted)
    owed = [table.find_owed(checkpoint) for checkpoint in checkpoints]
    assert looks == 10 * 30 * 2
    assert [any(each) for each in owed] == [False] * 10 + [True] * 990
    assert sum(sum(map(len, each.conclusions.values())) for each in owed) == 990 * 30
