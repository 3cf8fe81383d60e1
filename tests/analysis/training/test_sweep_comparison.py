"""Which checkpoint to ship, of which training run: the best and its peers, the last step, run against run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from cli.written_training import JUDGE, drawn, write_run, write_training

from coeval.analysis.comparison.paired_difference import PairedScores, holm_adjust, paired_difference
from coeval.analysis.training.sweep_comparison import (
    SweepComparison,
    compare_checkpoints,
    compare_sweeps,
    read_sweeps,
)
from coeval.analysis.training.training_curves import TrainedCheckpoint, TrainingRun, read_training_curves
from coeval.core.errors import UsageError

pytestmark = pytest.mark.process

RISING = {100: 0.3, 200: 0.5, 300: 0.7}
HIGHER = {100: 0.3, 200: 0.65, 300: 0.72}


def judged(
    root: Path, means: Mapping[int, float], task: str = "writing", judge: str = "judge", items: int = 80
) -> Path:
    for step, scores in drawn(means, items, 1, seed=3).items():
        by = JUDGE | {"model": judge}
        write_run(root / f"step_{step}" / "run_0", scores[:, 0], judge=by, task=task, metric="score")
    return root


def compared(*roots: Path) -> SweepComparison:
    return compare_sweeps(read_sweeps(roots))


def test_the_best_is_named_with_those_tied_with_it(tmp_path: Path) -> None:
    scores = drawn({**RISING, 400: 0.7}, 200, 2)
    write_training(tmp_path / "a", scores)
    found = compare_checkpoints(only(tmp_path / "a"))
    [chosen] = found.choices
    assert (chosen.task, chosen.of, chosen.n_items) == ("ifeval", 4, 200)
    assert {chosen.best.step, *(peer.step for peer in chosen.peers)} == {300, 400}
    pairs = combinations((of.mean(axis=1) for of in scores.values()), 2)
    apart = holm_adjust([paired_difference([PairedScores(*pair, np.ones(200))]).p or 0.0 for pair in pairs])
    assert [p < 0.05 for p in apart] == [True] * 5 + [False], "all pairs but steps 300 and 400"
    [change] = found.changes
    assert (change.a.step, change.b.step, change.trend) == (300, 400, "no significant change")
    assert found.differences == ()
    other = chosen.peers[0].step
    assert found.sentences[0].startswith(f"Ship step {chosen.best.step}, {100 * chosen.mean:.1f} on ifeval, ")
    assert found.sentences[0].endswith(f"or a checkpoint tied with it: step {other}.")
    assert found.sentences[1].startswith(
        "No significant change at the last step on ifeval: step 400 − step 300"
    )


def only(folder: Path) -> tuple[TrainingRun, ...]:
    return read_training_curves({folder.name: folder})


def test_a_leader_without_peers_is_significantly_better_than_each(tmp_path: Path) -> None:
    write_training(tmp_path / "a", drawn({1: 0.2, 2: 0.3, 3: 0.9}, 150, 1))
    found = compare_checkpoints(only(tmp_path / "a"))
    assert found.choices[0].peers == ()
    assert found.sentences[0].endswith(": it leads the 2 others.")
    assert found.sentences[1].startswith("Rising at the last step on ifeval: step 3 − step 2 is ")


def test_runs_are_paired_at_equal_steps(tmp_path: Path) -> None:
    a, b = drawn({**RISING, 400: 0.7}, 200, 1, seed=5), drawn(HIGHER, 200, 1, seed=5)
    found = compared(write_training(tmp_path / "a", a), write_training(tmp_path / "b", b))
    assert [one.b.step for one in found.differences] == [100, 200, 300]
    second = found.differences[1]
    pairs = PairedScores(a[200][:, 0], b[200][:, 0], np.ones(200))
    alone = paired_difference([pairs], 3)
    assert (second.difference, second.ci95) == (alone.difference, (alone.low, alone.high))
    assert second.p == alone.p
    assert alone.p is not None
    ordered = sorted(one.p or 0.0 for one in found.differences)
    assert second.p_adjusted == pytest.approx((3 - ordered.index(alone.p)) * alone.p)
    assert second.significant
    assert found.only_in == {"a": (400,)}
    assert "only a has step 400: no other run is compared with it there" in found.notes
    assert found.choices[0].best.run == "b"
    assert found.sentences[-1].startswith("b leads at step 200 on ifeval: b − a")
    assert all(len(said) <= 200 for said in found.sentences)


def test_over_tasks_each_counts_alike(tmp_path: Path) -> None:
    roots = []
    for name, means in (("a", RISING), ("b", HIGHER)):
        root = write_training(tmp_path / name, drawn(means, 100, 1, seed=2))
        roots.append(judged(root, {step: 1 - mean for step, mean in means.items()}, items=50))
    found = compared(*roots)
    assert [one.task for one in found.choices] == [None, "ifeval", "writing"]
    over, *tasks = found.choices
    at = {(one.task, one.b.step): one for one in found.differences}
    for step in RISING:
        parts = [at[task.task, step].difference for task in tasks]
        assert at[None, step].difference == pytest.approx(sum(parts) / 2)
        assert at[None, step].n == 150
    assert over.metric == "mean over tasks"
    for mean in found.overall:
        assert mean.ci95[0] < mean.mean < mean.ci95[1]
    assert [(one.run, one.step) for one in found.overall] == [(run, step) for run in "ab" for step in RISING]
    assert "overall" in found.sentences[0]


def test_other_judges_and_other_items_are_told_and_not_compared(tmp_path: Path) -> None:
    a = judged(write_training(tmp_path / "a", drawn(RISING, 100, 1)), RISING)
    b = judged(write_training(tmp_path / "b", drawn(RISING, 60, 1)), RISING, judge="strict")
    found = compared(a, b)
    assert {one.task for one in found.differences} == {"ifeval"}
    assert {one.n for one in found.differences} == {60}, "the items that both have"
    assert any(
        "writing is not compared: a and b are judged by judge and by strict" in note for note in found.notes
    )
    assert any(
        "conclusions rest on 60 items that all checkpoints have; 40 more" in note for note in found.notes
    )
    alone = [judged(tmp_path / name, RISING, judge=name) for name in ("c", "d")]
    with pytest.raises(UsageError, match=r"nothing to compare: .*judged by c and by d; judge both alike"):
        compared(*alone)
    apart = compare_checkpoints(read_sweeps(alone))
    assert [one.best.run for one in apart.choices] == ["c", "d"], "each run by itself"


def test_other_sampling_is_told(tmp_path: Path) -> None:
    for name, temperature in (("a", 0.7), ("b", 1.0)):
        made = {"model": "m", "sampling": {"temperature": temperature}, "parts": {}}
        write_training(tmp_path / name, drawn(RISING, 60, 1), inference=made)
    found = compared(tmp_path / "a", tmp_path / "b")
    [note] = found.notes
    assert "ifeval: a and b were sampled differently (temperature)" in note


def test_what_is_shipped_says_which_checkpoints_it_was_not_compared_with(tmp_path: Path) -> None:
    scores = drawn({100: 0.4, 200: 0.5, 300: 0.6}, 200, 1)
    scores[300][:60] = np.nan
    write_training(tmp_path / "grpo", scores)
    first, second, *_ = compare_checkpoints(only(tmp_path / "grpo")).sentences
    assert first.startswith("Ship step 200")
    assert second == ("Not compared, since items or tasks are missing or were made differently: step 300.")


def test_a_single_equal_step_is_named(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        write_training(tmp_path / name, drawn({100: 0.5}, 100, 1, seed))
    said = compared(tmp_path / "a", tmp_path / "b").sentences
    assert any(one.startswith("a and b are tied at step 100 on ifeval") for one in said)


def test_a_checkpoint_that_lacks_a_task_is_in_no_mean_over_tasks(tmp_path: Path) -> None:
    root = judged(write_training(tmp_path / "a", drawn({**RISING, 400: 0.9}, 60, 1)), RISING)
    found = compare_checkpoints(only(root))
    over, ifeval, _ = found.choices
    assert (over.of, ifeval.of) == (3, 4)
    assert ifeval.best == TrainedCheckpoint("a", 400)
    assert "step 400 of a lacks a task, so it is in no mean over tasks" in found.notes


def test_folders_are_named_by_their_ends_and_no_folder_stands_twice(tmp_path: Path) -> None:
    for parent in ("x", "y"):
        write_training(tmp_path / parent / "run", drawn(RISING, 40, 1))
    found = compared(tmp_path / "x" / "run", tmp_path / "y" / "run")
    assert list(found.folders) == ["x/run", "y/run"]
    for folders in ([tmp_path / "x" / "run"], [tmp_path / "x" / "run"] * 2):
        with pytest.raises(UsageError, match="name two sweeps to compare, each once"):
            read_sweeps(folders)


@pytest.mark.parametrize(("changed", "said"), [(0, "have identical scores"), (1, "are tied")])
def test_runs_whose_items_all_score_alike_are_identical(tmp_path: Path, changed: int, said: str) -> None:
    """A single item that scores otherwise at one step makes them a tie."""
    scores = drawn(RISING, 60, 1, seed=8)
    write_training(tmp_path / "a", scores)
    for at in range(changed):
        scores[300][at] = 1 - scores[300][at]
    write_training(tmp_path / "b", scores)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.sentences[-1].startswith(f"a and b {said} at all 3 equal steps on ifeval")
    assert [one.identical for one in found.differences] == [True, True, not changed]


def test_differences_that_cancel_out_are_no_identity() -> None:
    a, once = np.array([0.0, 1.0, 0.5, 0.5]), np.ones(4)
    assert paired_difference([PairedScores(a, a.copy(), once)]).identical
    assert not paired_difference([PairedScores(a, a[::-1].copy(), once)]).identical
