"""Several samples of each prompt: standard errors over prompts against an analysis of variance."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli.invoked import Command
from cli.written_output import output
from numpy.typing import NDArray
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from written_run import Run

import coeval as api
from coeval.analysis.breakdown import break_down_scores_and_labels
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import clustered_mean, clustered_standard_error, mean_over_strata
from coeval.analysis.readers.run_reader import RunReader
from coeval.reports.result_tables import read_results

SHARE, POINTS, FITTED = "accuracy", "overall", "length_controlled"


def written(folder: Path, scores: NDArray[np.float64], lacking: dict[int, set[int]] | None = None) -> Path:
    """Scores (prompts, samples) of a task as eval-framework leaves them, on two scales; and a fitted figure,
    which no prompt has a score in. ``lacking``: by sample, the prompts that it has no score of."""
    for sample, of_sample in enumerate(scores.T):
        there = [n for n in range(len(of_sample)) if n not in (lacking or {}).get(sample, ())]
        items = {str(n): {SHARE: of_sample[n], POINTS: 1 + 9 * of_sample[n]} for n in there}
        run = output(folder / f"run_{sample}", "m.1", items, task="made")
        path = run / "made" / "summary.json"
        summary = json.loads(path.read_text())
        mean = float(of_sample[there].mean())
        summary["metrics"] = {
            SHARE: {"value": mean, "n": len(there), "unit": "share"},
            POINTS: {"value": 1 + 9 * mean, "n": len(there), "unit": "points"},
            FITTED: {"value": 40.0 + sample, "n": len(there), "unit": "percent", "ci95": [30 + sample, 50]},
        }
        path.write_text(json.dumps(summary))
    return folder


def drawn(prompts: int, samples: int, seed: int = 3) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    chance = random.beta(1.5, 1.0, size=(prompts, 1))
    return (random.random((prompts, samples)) < chance).astype(np.float64)


def between_prompts(scores: NDArray[np.float64]) -> float:
    """√(MSB / (prompts · samples))"""
    frame = pd.DataFrame({"y": scores.ravel(), "prompt": np.repeat(np.arange(len(scores)), scores.shape[1])})
    table = anova_lm(ols("y ~ C(prompt)", frame).fit())
    return float(np.sqrt(table.loc["C(prompt)", "mean_sq"] / len(frame)))


@pytest.mark.process
@pytest.mark.parametrize(("prompts", "samples"), [(40, 4), (12, 2), (100, 3)])
def test_the_standard_error_is_that_of_an_analysis_of_variance(
    prompts: int, samples: int, tmp_path: Path, coeval: Command
) -> None:
    scores = drawn(prompts, samples)
    folder = written(tmp_path / "outputs", scores)
    found = json.loads(coeval("analyze", "--run", folder, "--format", "json").out)
    assert found == api.open_run(folder).measures()
    metrics, reported = found["metrics"]["m.1"], found["samples"]["m.1"]["made"]
    per_run = scores.mean(axis=0)
    assert metrics["made"][SHARE] == pytest.approx(scores.mean(), abs=1e-12)
    assert reported[SHARE]["per_run"] == pytest.approx(per_run.tolist(), abs=1e-12)
    assert reported[SHARE]["std"] == pytest.approx(per_run.std(ddof=1), abs=1e-12)
    assert reported[SHARE]["sem"] == pytest.approx(per_run.std(ddof=1) / np.sqrt(samples), abs=1e-12)
    assert reported[SHARE]["n_runs"] == samples
    assert reported[SHARE]["item_se"] == pytest.approx(between_prompts(scores), abs=1e-9)
    assert reported[POINTS]["item_se"] == pytest.approx(9 * between_prompts(scores), abs=1e-9)
    assert (metrics["n"]["made"][SHARE], metrics["missing"]["made"][SHARE]) == (prompts, 0)
    interval = clustered_mean(scores.mean(axis=1), np.arange(prompts))
    assert metrics["ci95"]["made"][SHARE] == pytest.approx([interval.low, interval.high], abs=1e-12)
    assert metrics["ci95"]["made"][POINTS] == pytest.approx(
        [1 + 9 * (interval.low or 0), 1 + 9 * (interval.high or 0)], abs=1e-9
    )


def test_samples_of_a_prompt_do_not_make_an_interval_narrower_than_prompts_allow(tmp_path: Path) -> None:
    """A model that always says the same to a prompt: ten samples say as much as one."""
    once = np.repeat([[1.0], [0.0]], [15, 10], axis=0)
    often = api.open_run(written(tmp_path / "often", np.repeat(once, 10, axis=1))).measures()
    alone = clustered_mean(once[:, 0], np.arange(25))
    assert often["metrics"]["m.1"]["ci95"]["made"][SHARE] == pytest.approx([alone.low, alone.high])
    assert often["samples"]["m.1"]["made"][SHARE]["std"] == 0


def test_prompts_that_a_sample_lacks_count_as_often_as_they_are_there(tmp_path: Path) -> None:
    scores = drawn(30, 3)
    lacking = {1: {0, 4, 9}, 2: {4}}
    found = api.open_run(written(tmp_path / "outputs", scores, lacking)).measures()
    for sample, prompts in lacking.items():
        scores[list(prompts), sample] = np.nan
    reported = found["samples"]["m.1"]["made"][SHARE]
    place = np.nonzero(np.isfinite(scores))
    fitted = ols("y ~ 1", pd.DataFrame({"y": scores[place]})).fit(
        cov_type="cluster", cov_kwds={"groups": place[0]}
    )
    assert reported["item_se"] == pytest.approx(fitted.bse["Intercept"], abs=1e-9)
    assert reported["per_run"] == pytest.approx(np.nanmean(scores, axis=0).tolist(), abs=1e-12)


def test_a_fitted_figure_has_the_interval_of_its_samples(tmp_path: Path) -> None:
    found = api.open_run(written(tmp_path / "outputs", drawn(10, 3))).measures()
    assert found["metrics"]["m.1"]["made"][FITTED] == 41
    assert found["metrics"]["m.1"]["ci95"]["made"][FITTED] == [31, 50]
    assert found["samples"]["m.1"]["made"][FITTED]["item_se"] is None


@pytest.mark.process
def test_a_single_sample_is_shown_as_it_always_was(tmp_path: Path, coeval: Command) -> None:
    folder = written(tmp_path / "outputs", drawn(10, 2))
    shutil.rmtree(folder / "run_0")
    found = api.open_run(folder).measures()
    assert found["samples"] == {}
    assert found["metrics"]["m.1"]["ci95"]["made"][FITTED] == [31, 50]
    assert "samples" not in coeval("analyze", "--run", folder).out


@pytest.mark.process
def test_people_see_both_errors(tmp_path: Path, coeval: Command) -> None:
    folder = written(tmp_path / "outputs", drawn(40, 4))
    reported = api.open_run(folder).measures()["samples"]["m.1"]["made"][SHARE]
    shown = coeval("analyze", "--run", folder).out
    row = next(line for line in shown.splitlines() if line.split()[:3] == ["m.1", "made", SHARE])
    errors = [f"{100 * reported['item_se']:.1f}", f"{100 * reported['std']:.1f}"]
    assert row.split()[-3:] == [*errors, "4"], "the last: samples of each prompt"
    lines = csv.DictReader(io.StringIO(coeval("analyze", "--run", folder, "--format", "csv").out))
    cells = {(line["part"], line["measure"], line["of"]): line["value"] for line in lines}
    assert float(cells["samples", "made", f"{SHARE} / item_se"]) == reported["item_se"]


def test_weights_are_units() -> None:
    """Three units of one value are one value that counts three times."""
    values, items = np.array([0.2, 0.2, 0.2, 0.9, 0.4, 0.4]), np.array([0, 0, 0, 1, 2, 2])
    each, weights = np.array([0.2, 0.9, 0.4]), np.array([3.0, 1.0, 2.0])
    assert clustered_standard_error(each, np.arange(3), weights) == pytest.approx(
        clustered_standard_error(values, items)
    )
    whole, weighted = clustered_mean(values, items), clustered_mean(each, np.arange(3), weights=weights)
    assert (weighted.mean, weighted.low, weighted.high) == pytest.approx((whole.mean, whole.low, whole.high))
    assert clustered_standard_error([0.5, 0.7], [1, 1]) is None


# Items that nearly repeat each other are one cluster: in intervals, ranks, labels and comparisons alike.

STUDENTS, JUDGES, GROUPS, EACH = ("a", "b", "c"), ("j", "k"), 12, 4
LEVELS = ("Low", "Medium", "High")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve prompts, each asked four times in nearly the same words, and scored and labelled alike."""
    made = Run(tmp_path_factory.mktemp("repeated") / "run")
    drawn = random.Random(4)
    words = [f"word{n}" for n in range(300)]
    for group in range(GROUPS):
        prompt = " ".join(drawn.choices(words, k=25))
        level = {name: drawn.randrange(3) for name in STUDENTS}
        label = {name: drawn.random() < 0.6 for name in STUDENTS}
        for turn in range(EACH):
            n = 1 + turn * GROUPS + group
            made.datapoint(n, prompt=f"{prompt} {'please' * turn}", sampled_target_attributes={"tone": "yes"})
            for name in STUDENTS:
                made.response(n, name)
                for judge in JUDGES:
                    made.evaluation(n, name, judge, {"f": LEVELS[level[name]]})
                said = "yes" if label[name] else "no"
                made.evaluation(
                    n,
                    name,
                    "exact_match",
                    {},
                    label_scores={"tone": {"expected": "yes", "predicted": said, "match": label[name]}},
                )
    return made


@pytest.fixture(scope="module")
def measures(run: Run) -> dict[str, Any]:
    return api.open_run(run.folder).measures()


def of_groups(run: Run, student: str) -> list[float]:
    """Its score in each of the twelve."""
    with RunReader(run.folder) as reader:
        rows = reader.rows(
            "SELECT item, avg(value) FROM scores WHERE model = ? GROUP BY item ORDER BY item", [student]
        )
    return [value for _, value in rows][:GROUPS]


@pytest.mark.process
def test_the_finder_sees_them(run: Run, measures: dict[str, Any]) -> None:
    assert measures["coverage"]["haiku"]["near_duplicates"] == GROUPS * (EACH - 1)
    with RunReader(run.folder) as reader:
        names = [run.datapoint_id(n) for n in range(1, 1 + GROUPS * EACH)]
        clusters = reader.item_clusters(names)
    assert clusters is not None
    assert len(set(clusters.tolist())) == GROUPS


@pytest.mark.process
def test_every_mean_has_the_interval_of_as_many_independent_items(run: Run, measures: dict[str, Any]) -> None:
    for name in STUDENTS:
        expected = mean_over_strata([of_groups(run, name)])
        found = measures["students"][name]
        bounds = pytest.approx([expected.low, expected.high], abs=1e-9)
        assert found["score"] == pytest.approx(expected.mean)
        for path in (["score"], ["overall"], ["by_task", "haiku"], ["by_judge", "j"], ["by_aspect", "f"]):
            value: Any = found["ci95"]
            for part in path:
                value = value[part]
            assert value == bounds, path
        assert found["n"]["score"] == GROUPS * EACH
    with RunReader(run.folder) as reader:
        scores = {one.student: one for one in read_results(reader).students if one.task is None}
        parts = {
            one.student: one
            for one in break_down_scores_and_labels(reader, "judge").scores
            if one.part == "j"
        }
    for name in STUDENTS:
        shown = measures["students"][name]["ci95"]["score"]
        assert [scores[name].low, scores[name].high] == pytest.approx(shown)
        assert [parts[name].low, parts[name].high] == pytest.approx(shown)
        assert scores[name].n == parts[name].n == GROUPS * EACH


@pytest.mark.process
def test_every_pair_is_tested_as_on_so_many_items(run: Run, measures: dict[str, Any]) -> None:
    for pair, found in measures["ranking"]["differences"].items():
        a, b = (np.array(of_groups(run, name)) for name in pair.split("|"))
        expected = paired_difference([PairedScores(a, b, np.ones(GROUPS))], family_size_for_detectable=3)
        assert found["difference"] == pytest.approx(expected.difference)
        assert found["ci95"] == pytest.approx([expected.low, expected.high])
        assert found["p"] == pytest.approx(expected.p)
        assert found["minimum_detectable"] == pytest.approx(expected.minimum_detectable)
        assert found["n"] == GROUPS * EACH


@pytest.mark.process
def test_labels_and_comparisons_count_groups(run: Run, measures: dict[str, Any]) -> None:
    found = measures["labels"]["haiku"]["tone"]
    with RunReader(run.folder) as reader:
        shown = {one.student: (one.low, one.high) for one in read_results(reader).labels}
    for name in STUDENTS:
        low, high = found["students"][name]["ci95"]["accuracy"]
        assert high - low > 0.3, "twelve answers, and not forty-eight"
        assert shown[name] == pytest.approx((low, high))
    report = api.compare(run.folder)
    for one in report.comparisons:
        if one.task == "haiku" and one.metric == "score":
            pair = measures["ranking"]["differences"][f"{one.a}|{one.b}"]
            assert one.p == pytest.approx(pair["p"])
            assert one.ci95 == pytest.approx(tuple(pair["ci95"]))


@pytest.mark.process
def test_agreement_of_judges_counts_groups(tmp_path: Path) -> None:
    """The same scores on prompts that are unlike each other have narrower intervals."""
    widths = []
    for name, again in (("alike", True), ("unlike", False)):
        made, drawn = Run(tmp_path / name), random.Random(1)
        words = [f"word{n}" for n in range(300)]
        for n in range(1, 81):
            if n % EACH == 1 or not again:
                prompt = " ".join(drawn.choices(words, k=25))
            made.datapoint(n, prompt=prompt)
            made.response(n, "a")
            group = random.Random((n - 1) // EACH)
            for judge in JUDGES:
                made.evaluation(n, "a", judge, {"f": group.choice(LEVELS)})
        low, high = api.open_run(made.folder).measures()["agreement"]["j|k"]["ci95"]["wpa"]
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1]
