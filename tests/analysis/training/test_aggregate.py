"""`coeval sweep aggregate`: what counts, what is told, and the figures against an analysis of variance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.invoked import Command
from cli.written_training import JUDGE, STRICT, drawn, write_run, write_training

from coeval.analysis.intervals import clustered_mean

ROOT = Path(__file__).resolve().parents[3]


def read(root: Path, step: int, task: str = "ifeval") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / f"step_{step}" / task / "summary_agg.json").read_text())
    return found


@pytest.mark.process
def test_the_figures_are_those_of_an_analysis_of_variance(tmp_path: Path, coeval: Command) -> None:
    scores = drawn({120: 0.5, 240: 0.7}, items=40, samples=4)
    write_training(tmp_path, scores)
    ended = coeval("sweep", "aggregate", "--out", tmp_path)
    assert (ended.code, "2 files" in ended.err) == (0, True)
    for step, values in scores.items():
        found, per_run, of_items = read(tmp_path, step), values.mean(axis=0), values.mean(axis=1)
        assert found["per_run"] == pytest.approx(per_run.tolist())
        assert found["mean"] == pytest.approx(values.mean())
        assert found["std"] == pytest.approx(per_run.std(ddof=1))
        assert found["sem"] == pytest.approx(per_run.std(ddof=1) / 2)
        between = 4 * of_items.var(ddof=1)
        assert found["item_se"] == pytest.approx(np.sqrt(between / (40 * 4)))
        interval = clustered_mean(of_items, np.arange(40))
        assert found["ci95"] == pytest.approx([interval.low, interval.high])
        assert (found["n_runs"], found["n_items"], found["missing"], found["complete"]) == (4, 40, 0, True)
        assert found["metrics"][STRICT]["mean"] == found["mean"]
        assert (found["task"], found["step"], found["model"], found["judge"]) == ("ifeval", step, "m", None)
        assert f"{step}" in ended.out
        assert f"{100 * values.mean():.1f}" in ended.out
        assert f" {100 * found['sem']:.1f} " in ended.out


@pytest.mark.process
def test_one_sample_has_no_spread_and_the_interval_of_its_items(tmp_path: Path, coeval: Command) -> None:
    scores = drawn({60: 0.5}, items=30, samples=1)
    write_training(tmp_path, scores)
    ended = coeval("sweep", "aggregate", "--out", tmp_path)
    assert ended.code == 0
    found, interval = read(tmp_path, 60), clustered_mean(scores[60][:, 0], np.arange(30))
    assert (found["std"], found["sem"], found["n_runs"]) == (None, None, 1)
    [row] = [line.split() for line in ended.out.splitlines() if line.startswith("60 ")]
    assert row[-3:] == ["1", "30", "0"]
    assert "SEM" not in ended.out, "a single sample has no standard error"
    assert found["ci95"] == pytest.approx([interval.low, interval.high])


@pytest.mark.process
def test_a_checkpoint_without_folders_of_samples_has_one(tmp_path: Path, coeval: Command) -> None:
    """As eval-framework leaves it without --num-runs; what lies beside samples is none of them."""
    scores = drawn({1: 0.5, 2: 0.6}, items=10, samples=2)
    write_run(tmp_path / "step_1", scores[1][:, 0])
    write_run(tmp_path / "step_2" / "run_0", scores[2][:, 0])
    write_run(tmp_path / "step_2", scores[2][:, 1])
    assert coeval("sweep", "aggregate", "--out", tmp_path).code == 0
    assert [read(tmp_path, step)["per_run"] for step in (1, 2)] == [
        [pytest.approx(scores[1][:, 0].mean())],
        [pytest.approx(scores[2][:, 0].mean())],
    ]


@pytest.mark.process
def test_a_single_samples_own_interval_stands(tmp_path: Path, coeval: Command) -> None:
    """Arena-Hard's bootstrap, or that of a figure which no item has a score in."""
    metrics = {
        "length_controlled_winrate": {"value": 40.0, "n": 9, "unit": "percent", "ci95": [35.0, 46.0]},
        "win_rate": {"value": 44.0, "n": 9, "unit": "percent", "ci95": [36.5, 50.0]},
    }
    scores = 100 * drawn({1: 0.5}, items=9, samples=1)[1][:, 0]
    write_run(tmp_path / "step_1" / "run_0", scores, task="alpaca-eval", metric="win_rate", metrics=metrics)
    assert coeval("sweep", "aggregate", "--out", tmp_path).code == 0
    found = read(tmp_path, 1, "alpaca-eval")
    assert (found["metric"], found["mean"], found["ci95"]) == ("length_controlled_winrate", 40, [35, 46])
    assert found["metrics"]["win_rate"]["ci95"] == [36.5, 50.0]


@pytest.mark.process
def test_win_rates_whose_prompts_count_unequally_are_resampled(tmp_path: Path, coeval: Command) -> None:
    generator = np.random.default_rng(4)
    wins, weights = generator.choice([0.0, 50.0, 100.0], (60, 2)), generator.choice([2, 4, 6], (60, 2))
    for run in (0, 1):
        where = write_run(
            tmp_path / "step_1" / f"run_{run}",
            wins[:, run],
            task="arena-hard",
            metric="win_rate",
            unit="percent",
        )
        lines = [
            {
                "id": str(n),
                "scores": {"win_rate": wins[n, run]},
                "weights": {"win_rate": int(weights[n, run])},
            }
            for n in range(60)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (where / "arena-hard" / "scores.jsonl").write_text(text)
    assert coeval("sweep", "aggregate", "--out", tmp_path).code == 0
    low, high = read(tmp_path, 1, "arena-hard")["ci95"]
    place = np.repeat(np.arange(60), 2)
    analytic = clustered_mean(wins.ravel() / 100, place, weights=weights.ravel())
    assert (low, high) == pytest.approx((100 * (analytic.low or 0), 100 * (analytic.high or 0)), abs=1.5)


OTHERWISE: dict[str, tuple[dict[str, Any], str]] = {
    "sampling": (
        {"inference": {"model": "m", "sampling": {"temperature": 1.0}, "parts": {}}},
        "made with other sampling (max_tokens, temperature)",
    ),
    "judge": ({"judge": {**JUDGE, "model": "strict"}}, "judged by strict, the others by judge"),
    "judge's prompt": (
        {"judge": {**JUDGE, "parts": {"template": "t2"}}},
        "judged by judge with other settings (template)",
    ),
    "model": ({"model": "another"}, "answered by another, the others by m"),
    "refused": (
        {"inference": {"model": "m", "sampling": {"max_tokens": 2048}, "dropped": {"temperature": 3}}},
        "made with other sampling (temperature)",
    ),
    "unfinished": ({"missing": {"missing": 7}}, "unfinished: 7 answers or judgments are missing"),
    "not scored": ({"metrics": {}}, "not scored yet"),
    "another task's": ({"summary_task": "ifbench"}, "its summary.json is of the task ifbench"),
}


@pytest.mark.process
@pytest.mark.parametrize("what", OTHERWISE)
def test_a_sample_made_otherwise_is_left_out_and_told(what: str, tmp_path: Path, coeval: Command) -> None:
    scores = drawn({1: 0.5}, items=10, samples=3)
    differs, why = OTHERWISE[what]
    for run in range(3):
        more = {"judge": JUDGE | {"parts": {"template": "t1", "seed": str(run)}}} | (
            differs if run == 1 else {}
        )
        write_run(tmp_path / "step_1" / f"run_{run}", scores[1][:, run], **more)
    ended = coeval("sweep", "aggregate", "--out", tmp_path)
    found = read(tmp_path, 1)
    assert found["runs"] == [0, 2]
    assert found["mean"] == pytest.approx(scores[1][:, [0, 2]].mean())
    assert found["ci95"] == pytest.approx(_interval(scores[1][:, [0, 2]]))
    assert found["left_out"] == [{"run": 1, "why": why}]
    assert f"warning: ifeval, step 1: run_1 is left out: {why}" in ended.err
    assert ended.code == 0


@pytest.mark.process
def test_a_sample_whose_scores_are_gone_counts_nowhere(tmp_path: Path, coeval: Command) -> None:
    scores = drawn({1: 0.5, 2: 0.6}, items=10, samples=2)
    write_training(tmp_path / "one", scores)
    write_training(tmp_path / "other", scores)
    (tmp_path / "one" / "step_1" / "run_1" / "ifeval" / "scores.jsonl").unlink()
    ended = coeval("sweep", "aggregate", "--out", tmp_path / "one", "--n-samples", "ifeval=2")
    found, left = read(tmp_path / "one", 1), scores[1][:, 0].mean()
    assert ended.code == 3
    assert (found["runs"], found["mean"], found["complete"]) == ([0], pytest.approx(left), False)
    assert "warning: ifeval, step 1: run_1 is left out: its scores.jsonl is missing" in ended.err
    for command, *folders in ("results", "step_1"), ("compare", "step_1", "step_2"):
        ended = coeval(command, *(tmp_path / "one" / each for each in folders))
        assert "run_1 ifeval is left out: its scores.jsonl is missing" in ended.err + ended.out
        assert f"{100 * left:.1f}" in ended.out
    ended = coeval("compare", tmp_path / "one", tmp_path / "other")
    assert "one: ifeval, step 1: run_1 is left out: its scores.jsonl is missing" in ended.err + ended.out
    (tmp_path / "one" / "step_1" / "run_0" / "ifeval" / "scores.jsonl").unlink()
    ended = coeval("sweep", "aggregate", "--out", tmp_path / "one")
    assert read(tmp_path / "one", 1)["runs"] == [0, 1]
    assert "ifeval, step 1: run_0: its scores.jsonl is missing, so no item's score is known" in ended.err


def _interval(scores: Any) -> list[float | None]:
    found = clustered_mean(scores.mean(axis=1), np.arange(len(scores)))
    return [found.low, found.high]


@pytest.mark.process
def test_failures_and_what_lacks_are_told(tmp_path: Path, coeval: Command) -> None:
    scores = drawn({1: 0.5}, items=10, samples=2)
    scores[1][3, 1] = np.nan
    write_run(tmp_path / "step_1" / "run_0", scores[1][:, 0])
    write_run(tmp_path / "step_1" / "run_1", scores[1][:, 1], missing={"timeout": 1}, complete=False)
    ended = coeval(
        "sweep",
        "aggregate",
        "--out",
        tmp_path,
        "--n-samples",
        "ifeval=4",
        "--steps",
        "1,2",
        "--tasks",
        "ifeval,x",
    )
    assert ended.code == 3
    assert f"{tmp_path} holds no results of step 2" in ended.err
    assert "ifeval, step 1: run_1: without a value, of 9 records: 1 timeout" in ended.err
    assert "ifeval, step 1: 2 of the 4 requested samples exist" in ended.err
    assert "x, step 1: no results" in ended.err
    found = read(tmp_path, 1)
    assert (found["runs"], found["missing"], found["complete"]) == ([0, 1], 1, False)


@pytest.mark.process
def test_samples_beyond_those_asked_for_do_not_count(tmp_path: Path, coeval: Command) -> None:
    write_training(tmp_path, scores := drawn({1: 0.5}, items=10, samples=3))
    ended = coeval("sweep", "aggregate", "--out", tmp_path, "--n-samples", "ifeval=2")
    assert (ended.code, read(tmp_path, 1)["mean"]) == (0, pytest.approx(scores[1][:, :2].mean()))
    assert "run_2 is left out: 2 samples were requested" in ended.err


@pytest.mark.process
def test_the_tool_takes_the_flags_of_the_readme(tmp_path: Path) -> None:
    write_training(tmp_path / "outputs" / "run_a", drawn({120: 0.5, 240: 0.6}, items=10, samples=2))
    command = (
        "tools/aggregate_runs.py --out-dir outputs/run_a --steps 120,240,360,480,600 "
        "--tasks ifeval,ifbench,healthbench,writingbench,arena-hard,alpaca-eval "
        "--n-samples ifeval=8,ifbench=8,healthbench=8,writingbench=4,arena-hard=1,alpaca-eval=1"
    )
    tool, *flags = command.split()
    ended = subprocess.run(
        [sys.executable, ROOT / tool, *flags], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 3, ended.stderr
    assert read(tmp_path / "outputs" / "run_a", 240)["n_runs"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--steps", "x"), "--steps x: steps are whole numbers"),
        (("--n-samples", "ifeval"), "--n-samples ifeval: give a task and a number above 0"),
        (("--n-samples", "ifeval=0"), "--n-samples ifeval=0: give a task and a number above 0"),
        (("--name-pattern", "../{step}"), "is not a folder pattern"),
        (("--name-pattern", "step"), "is not a folder pattern"),
        (("--name-pattern", "global_{step}"), "holds no results in folders global_{step}"),
        (("--steps", "7"), "has no results for the steps 7; it has 1"),
    ],
)
def test_a_wrong_request_is_one_message(
    words: tuple[str, ...], said: str, tmp_path: Path, coeval: Command
) -> None:
    write_training(tmp_path, drawn({1: 0.5}, items=4, samples=1))
    ended = coeval("sweep", "aggregate", "--out", tmp_path, *words)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.process
def test_checkpoints_are_known_by_any_pattern(tmp_path: Path, coeval: Command) -> None:
    pattern = "a[b]/global_step_{step}/eval"
    write_training(tmp_path, drawn({5: 0.5, 10: 0.5}, items=4, samples=1), pattern=pattern)
    assert coeval("sweep", "aggregate", "--out", tmp_path, "--name-pattern", pattern).code == 0
    assert (tmp_path / "a[b]" / "global_step_10" / "eval" / "ifeval" / "summary_agg.json").is_file()


def test_nothing_is_written_beyond_the_folder(tmp_path: Path, coeval: Command) -> None:
    write_training(tmp_path / "out", drawn({1: 0.5}, items=4, samples=1))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "step_1" / "ifeval").symlink_to(tmp_path / "elsewhere")
    ended = coeval("sweep", "aggregate", "--out", tmp_path / "out")
    assert ended.code == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
