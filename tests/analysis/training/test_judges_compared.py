"""`coeval sweep judges`: two judges on the same answers, against oracles and planted differences."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.invoked import Command
from cli.written_training import JUDGE, write_run
from numpy.typing import NDArray
from scipy import stats

from coeval.analysis.training.judge_comparison import kendall_tau_b

ROOT = Path(__file__).resolve().parents[3]
STEPS = (120, 240, 360, 480)
Array = NDArray[np.float64]


def judged(root: Path, name: str, scores: Array, folders: tuple[int, ...] = STEPS) -> Path:
    """A judge's folder, of scores (items, checkpoints)."""
    for at, step in enumerate(folders):
        write_run(
            root / f"step_{step}" / "run_0",
            scores[:, at],
            task="healthbench",
            metric="overall_score",
            judge=JUDGE | {"model": name, "recipe": "r1"},
        )
    return root


def drawn(items: int = 40, seed: int = 0) -> tuple[Array, Array]:
    """A stricter and a milder judge, in fifths."""
    generator = np.random.default_rng(seed)
    quality = generator.normal(0, 0.15, (items, 1)) + np.array([0.4, 0.5, 0.6, 0.7])
    both = [quality + shift + generator.normal(0, 0.1, quality.shape) for shift in (0.0, 0.15)]
    a, b = (np.round(5 * np.clip(one, 0, 1)) / 5 for one in both)
    return a, b


@pytest.mark.process
def test_differences_and_ranks_are_those_of_the_oracles(tmp_path: Path, coeval: Command) -> None:
    a, b = drawn()
    judged(tmp_path / "flash", "flash-1", a)
    judged(tmp_path / "plus", "plus-1", b)
    file = tmp_path / "out" / "judges.json"
    folders = [f"{name}={tmp_path / name}" for name in ("flash", "plus")]
    ended = coeval("sweep", "judges", "--judges", folders[0], "--judges", folders[1], "--out", file)
    assert ended.code == 0, ended.err
    found = json.loads(file.read_text())
    [task] = found["tasks"]
    assert (task["task"], task["a"], task["b"], task["judges"]) == (
        "healthbench", "flash", "plus", ["flash-1", "plus-1"],
    )  # fmt: skip
    for at, step in enumerate(task["steps"]):
        assert step["step"] == STEPS[at]
        assert step["difference"] == pytest.approx((b[:, at] - a[:, at]).mean())
        low, high = stats.ttest_rel(b[:, at], a[:, at]).confidence_interval(0.95)
        assert step["ci95"] == pytest.approx([low, high], abs=1e-6)
        assert (step["mean_a"], step["mean_b"]) == pytest.approx((a[:, at].mean(), b[:, at].mean()))
        assert step["same_answers"] == 1
    ranks = task["ranks"]
    assert ranks["checkpoints"] == 4
    assert ranks["kendall"] == pytest.approx(stats.kendalltau(a.mean(axis=0), b.mean(axis=0)).statistic)
    assert "healthbench: plus is the milder judge at 4 of 4 steps: plus − flash is" in ended.out
    assert "they order the 4 checkpoints with Kendall τ-b 1.00" in ended.out
    for sentence in task["sentences"]:
        assert sentence in ended.out


@pytest.mark.process
def test_an_output_folder_is_one_step_and_other_answers_are_told(tmp_path: Path, coeval: Command) -> None:
    a, b = drawn()
    judged(tmp_path / "flash", "flash", a)
    judged(tmp_path / "plus", "plus", b)
    path = tmp_path / "plus" / "step_120" / "run_0" / "healthbench" / "responses.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([line.replace("xxx", "yyy") for line in lines[:10]] + lines[10:]) + "\n")
    folders = [f"{name}={tmp_path / name / 'step_120'}" for name in ("flash", "plus")]
    ended = coeval("sweep", "judges", "--judges", folders[0], "--judges", folders[1])
    assert ended.code == 0, ended.err
    row = next(line for line in ended.out.splitlines() if line.startswith("all "))
    assert row.split()[-1] == "40"
    assert "only 75% of the answers are the same in both folders" in ended.out
    assert "checkpoints with" not in ended.out


@pytest.mark.process
def test_what_does_not_fit_is_told(tmp_path: Path, coeval: Command) -> None:
    a, b = drawn()
    judged(tmp_path / "flash", "flash", a)
    judged(tmp_path / "again", "flash", b[:, :3], STEPS[:3])
    write_run(tmp_path / "flash" / "step_120" / "run_0", a[:, 0], task="ifeval")
    write_run(tmp_path / "flash" / "step_120" / "run_0", a[:, 0], task="writingbench", judge=JUDGE)
    judges = [f"--judges={name}={tmp_path / name}" for name in ("flash", "again")]
    ended = coeval("sweep", "judges", *judges)
    assert ended.code == 0, ended.err
    assert "healthbench, flash and again: only one of them judged step 480" in ended.out
    assert "step 120: both were judged by flash in the same way" in ended.out
    assert "writingbench: nothing was judged in the folder of again" in ended.out
    assert "ifeval" not in ended.out


@pytest.mark.process
def test_the_table_fits_eighty_columns(tmp_path: Path) -> None:
    a, b = drawn()
    judged(tmp_path / "a", "a-judge-of-a-long-name", a)
    judged(tmp_path / "b", "b", b)
    tool = [sys.executable, str(ROOT / "tools" / "judge_compare.py")]
    words = ["--judges", "the-flash-judge=a", "--judges", "plus=b", "--out", "judge_compare.json"]
    ended = subprocess.run([*tool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    tables = [line for line in lines if line[:4].strip().isdigit() or line.startswith("step ")]
    assert len(tables) == 5
    assert max(map(len, tables)) <= 80
    assert json.loads((tmp_path / "judge_compare.json").read_text())["judges"]["plus"] == "b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--judges", "a=DIR"), "give two judges or more"),
        (("--judges", "DIR"), "give a name and a folder"),
        (("--judges", "a=DIR", "--judges", "a=DIR"), "a already names"),
        (("--judges", "a=DIR", "--judges", "b=nowhere"), "there is no folder nowhere"),
        (("--judges", "a=DIR", "--judges", "b=DIR", "--tasks", "x"), "no two judges scored the same answers"),
        (("--judges", "a=DIR", "--judges", "b=DIR", "--out", "DIR"), "is a folder; name a file"),
    ],
)
def test_a_wrong_request_is_one_message(
    words: tuple[str, ...], said: str, tmp_path: Path, coeval: Command
) -> None:
    judged(tmp_path, "flash", drawn(4)[0])
    ended = coeval("sweep", "judges", *(word.replace("DIR", str(tmp_path)) for word in words))
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_the_rank_correlation_is_scipys() -> None:
    generator = np.random.default_rng(2)
    a, b = generator.integers(0, 4, (2, 9)).astype(np.float64)
    assert kendall_tau_b(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert kendall_tau_b(a, 5 - a) == pytest.approx(-1)
    assert kendall_tau_b(a, np.ones(9)) is None


@pytest.mark.process
@pytest.mark.parametrize(("checkpoints", "flat"), [(2, False), (4, True)])
def test_no_order_is_told_of_two_checkpoints_or_of_a_judge_who_sees_no_difference(
    tmp_path: Path, checkpoints: int, flat: bool, coeval: Command
) -> None:
    a, b = drawn()
    steps = STEPS[:checkpoints]
    folders = [judged(tmp_path / name, name, of, steps) for name, of in (("a", a), ("b", b * (not flat)))]
    file = tmp_path / "judges.json"
    words = [f"--judges={folder.name}={folder}" for folder in folders]
    assert coeval("sweep", "judges", *words, "--out", file).code == 0
    [task] = json.loads(file.read_text())["tasks"]
    assert task["ranks"] is None
