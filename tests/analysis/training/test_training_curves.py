"""Training runs read from their folders, and what `coeval sweep aggregate` says follows from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli.invoked import Command
from cli.written_training import JUDGE, STRICT, drawn, write_run, write_training

from coeval import open_run
from coeval.analysis.training.aggregate import aggregate_checkpoint, find_evaluated_steps
from coeval.analysis.training.sweep_comparison import compare_checkpoints, compare_sweeps, read_sweeps
from coeval.analysis.training.training_curves import build_training_run, read_training_curves
from coeval.core.errors import UsageError
from coeval.reports.training_report import training_report
from coeval.reports.view.viewed_folder import read_summary

STEPS = (120, 240, 360, 480, 600)
FALLING = dict(zip(STEPS, (0.7, 0.66, 0.6, 0.55, 0.5), strict=True))
RISING = dict(zip(STEPS, (0.4, 0.42, 0.6, 0.62, 0.62), strict=True))


def two_tasks(root: Path) -> Path:
    """A judged task that rises, and one by rules that falls."""
    write_training(root, drawn(FALLING, 250, 2, seed=1))
    for step, scores in drawn(RISING, 250, 2, seed=2).items():
        for run, of_run in enumerate(scores.T):
            folder = root / f"step_{step}" / f"run_{run}"
            names = {"task": "healthbench", "metric": "overall_score"}
            write_run(folder, of_run, judge=JUDGE, **names)
    return root


@pytest.mark.process
def test_what_follows_is_told_and_drawn_alike(tmp_path: Path, coeval: Command) -> None:
    two_tasks(tmp_path / "run_a")
    ended = coeval("sweep", "aggregate", "--out", tmp_path / "run_a")
    assert ended.code == 0, ended.err
    [run] = read_training_curves({"a": tmp_path / "run_a"}, ["ifeval", "healthbench"])
    assert list(run.curves) == ["ifeval", "healthbench"]
    judged, rules = run.curves["healthbench"], run.curves["ifeval"]
    assert judged.first_better is not None
    assert judged.first_better.step == 360
    assert rules.first_better is not None
    assert rules.first_better.step is None
    for task, curve in run.curves.items():
        assert len(curve.conclusions) == 1
        for sentence in curve.conclusions:
            assert f"{task}: {sentence}" in ended.out
        assert curve.steps == STEPS
        for point in curve.points:
            written = json.loads((run.folders[point.step] / task / "summary_agg.json").read_text())
            assert (point.mean, list(point.ci95 or ())) == (written["mean"], written["ci95"])
            assert (point.n_items, point.n_runs, point.step in curve.alike) == (250, 2, True)
            assert len(curve.columns[point.step].values) == 250


def test_every_face_of_a_checkpoint_has_the_same_figure(tmp_path: Path) -> None:
    """The curve, the results of its folder, its measures, and its line in the list of `coeval view`."""
    [run] = read_training_curves({"a": two_tasks(tmp_path)})
    compared = compare_checkpoints([run])
    listed = {step: read_summary(folder).best for step, folder in run.folders.items()}
    for one in compared.overall:
        best = listed[one.step]
        assert best is not None
        assert best.score == pytest.approx(one.mean, abs=1e-12)
        opened = open_run(run.folders[one.step])
        measures = opened.measures()["metrics"]["m"]
        for metric in opened.results().metrics:
            [point] = [point for point in run.curves[metric.task].points if point.step == one.step]
            assert (metric.value, (metric.low, metric.high)) == (point.mean, point.ci95)
            assert (metric.n, metric.samples) == (point.n_items, point.n_runs)
            assert measures[metric.task][metric.metric] == point.mean
    highest = max(listed, key=lambda step: listed[step].score if listed[step] else 0.0)  # type: ignore[union-attr]
    assert compared.choices[0].best.step == highest


@pytest.mark.process
def test_figures_and_conclusions_are_the_same_with_and_without_aggregates(
    tmp_path: Path, coeval: Command
) -> None:
    two_tasks(tmp_path)
    found: list[list[object]] = [[], []]
    for figures in found:
        [run] = read_training_curves({"a": tmp_path}, steps=STEPS[:4])
        curve = run.curves["ifeval"]
        figures += [curve.conclusions, *((point.mean, point.sem, point.ci95) for point in curve.points)]
        assert coeval("sweep", "aggregate", "--out", tmp_path).code == 0
    assert found[0] == found[1]
    for point in curve.points:
        runs = [run.folders[point.step] / f"run_{k}" / "ifeval" / "summary.json" for k in range(2)]
        values = [json.loads(file.read_text())["metrics"][STRICT]["value"] for file in runs]
        assert point.mean == pytest.approx(np.mean(values))


@pytest.mark.process
def test_a_checkpoint_judged_otherwise_is_drawn_and_counts_in_no_conclusion(tmp_path: Path) -> None:
    for step, scores in drawn(RISING, 100, 1).items():
        judge = JUDGE | ({"model": "strict"} if step == 600 else {})
        write_run(tmp_path / f"step_{step}" / "run_0", scores[:, 0], judge=judge)
    [run] = read_training_curves({"a": tmp_path})
    curve = run.curves["ifeval"]
    assert [step in curve.alike for step in curve.steps] == [True] * 4 + [False]
    assert curve.notes == (
        "step 600 is judged by strict otherwise than most checkpoints: no conclusion counts it",
    )
    assert curve.first_better is not None
    assert [*curve.first_better.gaps] == [240, 360, 480]
    assert curve.points[-1].judge is not None
    assert curve.points[-1].judge.model == "strict"
    steps = [aggregate_checkpoint(step) for step in find_evaluated_steps(tmp_path, required_step=600)]
    run = build_training_run("a", tmp_path, steps, base=600)
    assert run.curves["ifeval"].first_better is None
    assert "nothing is compared with step 600, which no conclusion counts" in run.curves["ifeval"].notes


@pytest.mark.process
def test_curves_are_of_the_samples_that_are_there_not_of_an_older_aggregate(
    tmp_path: Path, coeval: Command
) -> None:
    scores = drawn({1: 0.5, 2: 0.6, 3: 0.6}, 20, 3)
    write_training(tmp_path, {step: of[:, :2] for step, of in scores.items()})
    assert coeval("sweep", "aggregate", "--out", tmp_path).code == 0
    write_run(tmp_path / "step_2" / "run_0", scores[2][:, 2])  # another answer
    write_run(tmp_path / "step_3" / "run_2", scores[3][:, 2])  # one sample more
    [run] = read_training_curves({"a": tmp_path})
    curve = run.curves["ifeval"]
    assert [point.n_runs for point in curve.points] == [2, 2, 3]
    assert curve.points[1].mean == pytest.approx(scores[2][:, [2, 1]].mean())
    assert curve.points[2].mean == pytest.approx(scores[3].mean())
    assert curve.notes == ()


@pytest.mark.process
def test_samples_that_were_not_asked_for_count_nowhere(tmp_path: Path, coeval: Command) -> None:
    write_training(tmp_path, scores := drawn({1: 0.5, 2: 0.6}, 20, 3))
    assert coeval("sweep", "aggregate", "--out", tmp_path, "--n-samples", "ifeval=2").code == 0
    [run] = read_training_curves({"a": tmp_path})
    assert run.curves["ifeval"].columns[2].values.mean() == pytest.approx(scores[2][:, :2].mean())


@pytest.mark.process
def test_a_fitted_headline_has_conclusions_by_the_next_metric(tmp_path: Path) -> None:
    for step, scores in drawn(RISING, 60, 1).items():
        values = 100 * scores[:, 0]
        fitted = {"value": 40.0, "n": 60, "unit": "percent"}
        mean = {"value": float(values.mean()), "n": 60, "unit": "percent"}
        metrics = {"length_controlled_winrate": fitted, "win_rate": mean}
        write_run(tmp_path / f"step_{step}" / "run_0", values, metric="win_rate", metrics=metrics)
    [run] = read_training_curves({"a": tmp_path})
    curve = run.curves["ifeval"]
    assert curve.metric == "length_controlled_winrate"
    assert {column.metric for column in curve.columns.values()} == {"win_rate"}
    assert curve.first_better is not None
    assert any("conclusions use win_rate" in note for note in curve.notes)


SHIPPED = [
    ({50: 0.4, 65: 0.9, 80: 0.6}, "Ship step 65", "Falling at the last step"),
    ({10: 0.3, 20: 0.35, 30: 0.9}, "Ship step 30", "Rising at the last step"),
    ({1: 0.8, 2: 0.8, 3: 0.2, 4: 0.21}, "Ship step", "No significant change at the last step"),
]


@pytest.mark.process
@pytest.mark.parametrize(("means", "shipped", "last"), SHIPPED)
def test_the_sweep_its_curves_and_a_comparison_ship_the_same_checkpoint(
    tmp_path: Path, coeval: Command, means: dict[int, float], shipped: str, last: str
) -> None:
    """Over two tasks, and the last step is held against the one before."""
    for name, seed in (("a", 4), ("b", 5)):
        root = write_training(tmp_path / name, drawn(means, 120, 1, seed))
        for step, of in drawn(means, 80, 1, seed + 9).items():
            folder = root / f"step_{step}" / "run_0"
            write_run(folder, of[:, 0], task="writing", metric="score", judge=JUDGE)
    told = [
        coeval("sweep", "aggregate", "--out", tmp_path / "a").out,
        coeval("sweep", "plot", "--runs", f"a={tmp_path / 'a'}", "--plot-dir", tmp_path / "plots").out,
    ]
    runs = read_training_curves({"a": tmp_path / "a"})
    page = [sentence.text for sentence in training_report(runs, compare_checkpoints(runs)).lead]
    for first, second, *_ in [*(out.splitlines() for out in told), page]:
        assert first == page[0]
        assert first.startswith(shipped)
        assert second == page[1]
        assert second.startswith(f"{last}: step {max(means)} − step {sorted(means)[-2]} is ")
    assert not any("still gained" in out or "scores highest" in out for out in told)
    both = compare_sweeps(read_sweeps([tmp_path / "a", tmp_path / "b"]))
    assert both.choices[0].best.step in {int(word) for word in re.findall(r"\d+", page[0])}


@pytest.mark.process
def test_a_checkpoint_has_one_figure_in_table_plot_and_sentence(tmp_path: Path, coeval: Command) -> None:
    """HealthBench clips the mean of each sample: of means of −0.05 and 0.25 it is 0.125, not 0.10."""
    generator = np.random.default_rng(0)
    for step, means in ((100, (-0.2, -0.3)), (200, (-0.05, 0.25))):
        for sample, mean in enumerate(means):
            scores = generator.permutation(np.linspace(mean - 0.5, mean + 0.5, 40))
            reported = {"value": max(mean, 0.0), "n": 40, "unit": "share"}
            metrics = {"overall_score": reported}
            folder = tmp_path / f"step_{step}" / f"run_{sample}"
            write_run(
                folder, scores, task="healthbench", metric="overall_score", metrics=metrics, judge=JUDGE
            )
    ended = coeval("sweep", "aggregate", "--out", tmp_path)
    [run] = read_training_curves({"a": tmp_path})
    curve = run.curves["healthbench"]
    assert [point.mean for point in curve.points] == pytest.approx([0.0, 0.125])
    assert ended.out.startswith("Ship step 200, 12.5 on healthbench: it leads the other by this judge.")
    report = training_report([run], compare_checkpoints([run]))
    [row] = report.table("ship-table").to_flat_dicts()
    assert (row["best"], row["score"]) == ("step 200", curve.points[1].mean)


def test_scores_from_1_to_10_are_shown_in_points_and_what_they_cost(tmp_path: Path) -> None:
    for step, mean in ((100, 5.0), (200, 8.2)):
        values = np.linspace(mean - 1, mean + 1, 40)
        metrics = {"overall": {"value": mean, "n": 40, "unit": "points"}}
        folder = tmp_path / f"step_{step}" / "run_0"
        write_run(folder, values, task="writingbench", metric="overall", metrics=metrics, judge=JUDGE)
        account = tmp_path / "sweep" / "accounts" / f"step_{step}" / "writingbench" / "usage.json"
        account.parent.mkdir(parents=True)
        account.write_text(
            json.dumps({"models": {"gpt-4.1": {"requests": 200, "cost_usd": 0.6, "unpriced": 0}}})
        )
    [run] = read_training_curves({"a": tmp_path})
    report = training_report([run], compare_checkpoints([run]))
    [best] = report.table("ship-table").to_flat_dicts()
    assert best["score"] == pytest.approx(0.8), "of the scale from 1 to 10"
    shown = [row["mean"] for row in report.table("points-writingbench").to_flat_dicts()]
    assert shown == pytest.approx([4 / 9, 0.8])
    assert "80.0" in report.lead[0].text
    assert report.facts[-1] == "$1.20"


def test_several_runs_have_patterns_and_steps_of_their_own(tmp_path: Path) -> None:
    write_training(tmp_path / "a", drawn({1: 0.5, 2: 0.5}, 10, 1))
    write_training(tmp_path / "b", drawn({2: 0.5}, 10, 1), pattern="global_step_{step}/hf", metric=STRICT)
    a, b = read_training_curves(
        {"a": tmp_path / "a", "b": tmp_path / "b"}, ["ifeval", "x"], {2, 3}, {"b": "global_step_{step}/hf"}
    )
    assert (a.curves["ifeval"].steps, b.curves["ifeval"].steps) == ((2,), (2,))
    assert b.notes == (
        f"{tmp_path / 'b'} holds no results of step 3",
        f"{tmp_path / 'b'} holds no scores of x",
    )
    with pytest.raises(UsageError, match="holds no scores of x yet"):
        read_training_curves({"a": tmp_path / "a"}, ["x"])
    with pytest.raises(UsageError, match=r"--base 7: .* has no results for this step; it has 1, 2"):
        find_evaluated_steps(tmp_path / "a", required_step=7)


@pytest.mark.process
def test_a_wrong_base_is_told_before_anything_is_written(tmp_path: Path, coeval: Command) -> None:
    write_training(tmp_path, drawn({1: 0.5, 2: 0.5}, 10, 1))
    assert coeval("sweep", "aggregate", "--out", tmp_path, "--base", "9").code == 1
    assert not list(tmp_path.rglob("summary_agg.json"))
    ended = coeval("sweep", "aggregate", "--out", tmp_path, "--base", "2")
    assert "significantly better than step 2" in ended.out
