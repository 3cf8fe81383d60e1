"""`coeval sweep judges`: two judges on the same answers, against oracles and planted differences."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.invoked import Command
from cli.written_training import JUDGE, write_run
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from coeval.analysis.training.judge_agreement import (
    Grade,
    icc,
    item_agreement,
    kendall_tau_b,
    rank_agreement,
    spearman,
)

ROOT = Path(__file__).resolve().parents[3]
STEPS = (120, 240, 360, 480)
Array = NDArray[np.float64]


def judged(
    root: Path, name: str, scores: Array, *, criteria: int = 0, folders: tuple[int, ...] = STEPS
) -> Path:
    """A judge's folder: scores (items, checkpoints), and of each answer judgments of so many criteria, met
    where the score says so."""
    for at, step in enumerate(folders):
        where = write_run(
            root / f"step_{step}" / "run_0",
            scores[:, at],
            task="healthbench",
            metric="overall_score",
            judge=JUDGE | {"model": name, "recipe": "r1"},
        )
        lines = [
            {
                "id": f"{item}__{criterion}",
                "item": str(item),
                "judge": name,
                "recipe": "r1",
                "input_hash": f"{step} {item} {criterion}",
                "value": {"criteria_met": bool(criterion < round(scores[item, at] * criteria))},
            }
            for item in range(len(scores))
            for criterion in range(criteria)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (where / "healthbench" / f"judgments.{name}-r1.jsonl").write_text(text)
    return root


def drawn(items: int = 40, seed: int = 0) -> tuple[Array, Array]:
    """A stricter and a milder judge, in fifths."""
    generator = np.random.default_rng(seed)
    quality = generator.normal(0, 0.15, (items, 1)) + np.array([0.4, 0.5, 0.6, 0.7])
    both = [quality + shift + generator.normal(0, 0.1, quality.shape) for shift in (0.0, 0.15)]
    a, b = (np.round(5 * np.clip(one, 0, 1)) / 5 for one in both)
    return a, b


@pytest.mark.process
def test_differences_ranks_and_agreement_are_those_of_the_oracles(tmp_path: Path, coeval: Command) -> None:
    a, b = drawn()
    judged(tmp_path / "flash", "flash-1", a, criteria=5)
    judged(tmp_path / "plus", "plus-1", b, criteria=5)
    for path in (tmp_path / "flash").rglob("judgments.*"):  # as a copy that was judged again holds them
        shutil.copy(path, tmp_path / "plus" / path.relative_to(tmp_path / "flash"))
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
        assert step["same_answers"] == 1
        met = [[c < round(5 * one[n, at]) for n in range(40) for c in range(5)] for one in (a, b)]
        agreement = step["agreement"]
        assert agreement["units"] == 200
        assert agreement["kappa"] == pytest.approx(cohen_kappa_score(*met))
        assert agreement["kappa_ci95"][0] < agreement["kappa"] < agreement["kappa_ci95"][1]
        assert agreement["correlation"] == pytest.approx(np.corrcoef(a[:, at], b[:, at])[0, 1])
    ranks = task["ranks"]
    assert ranks["kendall"] == pytest.approx(stats.kendalltau(a.mean(axis=0), b.mean(axis=0)).statistic)
    worst = max(abs(b - a).max(axis=1))
    assert abs(task["disputed"][0]["b"] - task["disputed"][0]["a"]) == pytest.approx(worst)
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
    judged(tmp_path / "again", "flash", b[:, :3], folders=STEPS[:3])
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
    judged(tmp_path / "a", "a-judge-of-a-long-name", a, criteria=5)
    judged(tmp_path / "b", "b", b, criteria=5)
    tool = [sys.executable, str(ROOT / "tools" / "judge_compare.py")]
    words = ["--judges", "the-flash-judge=a", "--judges", "plus=b", "--out", "judge_compare.json"]
    ended = subprocess.run([*tool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    tables = [line for line in lines if line[:4].strip().isdigit() or line.startswith("step ")]
    assert len(tables) >= 5
    assert max(map(len, tables)) <= 80
    assert json.loads((tmp_path / "judge_compare.json").read_text())["judges"]["plus"] == "b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--judges", "a=DIR"), "give two judges or more"),
        (("--judges", "DIR"), "give a name and a folder"),
        (("--judges", "a=DIR", "--judges", "a=DIR"), "the name a already refers to"),
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


@pytest.mark.process
def test_rank_correlations_are_scipys() -> None:
    generator = np.random.default_rng(2)
    a, b = generator.integers(0, 4, (2, 9)).astype(np.float64)
    assert kendall_tau_b(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert np.isnan(kendall_tau_b(a, np.ones(9)))
    scores = generator.random((200, 5)) + np.arange(5)
    found = rank_agreement(scores, 5 - scores)
    assert found is not None
    assert (found.kendall, found.kendall_ci95) == (-1.0, (-1.0, -1.0))
    assert found.spearman == pytest.approx(-1)
    assert rank_agreement(scores[:, :2], scores[:, :2]) is None
    flat = rank_agreement(scores, np.ones((200, 5)))
    assert flat is not None
    assert (flat.kendall, flat.kendall_ci95) == (None, None)


def test_agreement_of_answers_is_an_analysis_of_variance() -> None:
    """ICC(2,1) of Shrout and Fleiss (1979) on judges 1 and 4 of their example, by their mean squares."""
    scores = np.array([[9, 8], [6, 2], [8, 6], [7, 6], [10, 9], [6, 7]], np.float64)
    rows, columns, grand = scores.mean(axis=1), scores.mean(axis=0), scores.mean()
    between, raters = 2 * ((rows - grand) ** 2).sum() / 5, 6 * ((columns - grand) ** 2).sum()
    error = ((scores - rows[:, None] - columns + grand) ** 2).sum() / 5
    expected = (between - error) / (between + error + 2 / 6 * (raters - error))
    assert icc(scores) == pytest.approx(expected)
    assert icc(scores[[0, 1, 1, 2, 3, 4, 5, 5, 5]]) == pytest.approx(
        icc(scores, np.array([1.0, 2, 1, 1, 1, 3]))
    )


def test_weighted_kappa_is_sklearns_and_what_one_alone_was_shown_does_not_count() -> None:
    generator = np.random.default_rng(3)
    levels: Any = generator.integers(0, 3, (2, 60))
    levels[1, :40] = levels[0, :40]
    a, b = ({(n, "f"): Grade(str(n // 3), int(level)) for n, level in enumerate(of)} for of in levels)
    found = item_agreement(a | {(99, "f"): Grade("z", 2)}, b, [])
    assert (found.units, found.answers, found.icc) == (60, 0, None)
    assert found.kappa == pytest.approx(cohen_kappa_score(*levels))
    assert found.weighted_kappa == pytest.approx(cohen_kappa_score(*levels, weights="linear"))
