"""Several answers to an item: pass@k and pass^k by enumeration, standard errors by their formulas."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, stdev, variance

import numpy as np
import pytest
from cli.invoked import Command
from hypothesis import given
from hypothesis import strategies as st
from pipeline.experiments import Lab, model, quiz, task
from rich.console import Console

from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.sampled_answers import SampledPart, estimate_pass_all, estimate_pass_at
from coeval.cli.views.results_view import print_results
from coeval.core.html_table import MeasureRow
from coeval.pipeline.plan.what_counts import read_planned_names
from coeval.reports.result_tables import read_results
from coeval.store.rundir import RunDir

VALUE = {"High": 1.0, "Medium": 0.5, "Low": 0.0}


def share_of_draws(answers: Sequence[bool | None], k: int, of: Callable[[Iterable[bool]], bool]) -> float:
    """How often any, or all, of k answers pass; None: judges are evenly divided, so half the time it does."""
    even = [at for at, one in enumerate(answers) if one is None]
    worlds = [
        [bool(passes[even.index(at)]) if at in even else bool(one) for at, one in enumerate(answers)]
        for passes in product([True, False], repeat=len(even))
    ]
    draws = [of(draw) for world in worlds for draw in combinations(world, k)]
    return float(Fraction(sum(draws), len(draws)))


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=7), st.data())
def test_pass_rates_are_the_shares_of_all_draws(answers: Sequence[bool | None], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    passed, halves = (np.array([float(sum(one is kind for one in answers))]) for kind in (True, None))
    n = np.array([float(len(answers))])
    assert estimate_pass_at(n, passed, halves, k)[0] == pytest.approx(
        share_of_draws(answers, k, any), abs=1e-12
    )
    assert estimate_pass_all(n, passed, halves, k)[0] == pytest.approx(
        share_of_draws(answers, k, all), abs=1e-12
    )


def test_a_thousand_samples_are_no_overflow() -> None:
    n, passed, none = np.array([1000.0, 1000.0]), np.array([500.0, 999.0]), np.zeros(2)
    assert estimate_pass_at(n, passed, none, 1000).tolist() == [1.0, 1.0]
    assert estimate_pass_all(n, passed, none, 2).tolist() == pytest.approx([500 * 499 / 999e3, 0.998])
    assert estimate_pass_all(n, none, n, 1).tolist() == pytest.approx([0.5, 0.5])


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """5 answers of ann and 1 of ben to each of 12 items of three tasks: graded, passed or not, labelled."""
    models = [
        model("tea", "teacher"),
        model("ann", "student", skill=0.5) | {"samples": 5},
        model("ben", "student"),
        model("joe", "judge"),
        model("jim", "judge", severity=0.1),
    ]
    passed = task("passed", total=12, scale=["fail", "pass"])
    lab = Lab(tmp_path, models, [task(total=12), passed, quiz(total=12)])
    assert lab.run().exit_code == 0
    return lab


def by_item(lab: Lab, name: str, student: str = "ann") -> dict[str, dict[int, list[float]]]:
    """The scores of a student's answers to the items of a task, by item and sample."""
    found: dict[str, dict[int, list[float]]] = {}
    for record in lab.records("evaluation").values():
        if record["task_id"] == name and record["student_model_id"] == student:
            scores = [VALUE[level] for level in record["scores"].values()] + list(
                record.get("values", {}).values()
            )
            scores += [float(label["match"]) for label in record.get("label_scores", {}).values()]
            found.setdefault(record["datapoint_id"], {}).setdefault(record.get("sample", 0), []).extend(
                scores
            )
    return found


def sampled(lab: Lab) -> dict[tuple[str, str | None], MeasureRow]:
    return {(each.task, each.factor): each for each in lab.run(continue_run=True).results().sampled}


def test_the_mean_and_its_errors_are_those_of_the_items(lab: Lab) -> None:
    found = sampled(lab)
    assert {each.student for each in found.values()} == {"ann"}, "ben gave one answer to each"
    items = by_item(lab, "story")
    means = [fmean(fmean(scores) for scores in samples.values()) for samples in items.values()]
    within = [variance([fmean(scores) for scores in samples.values()]) for samples in items.values()]
    whole = found["story", None]
    assert (whole.samples, whole.n) == (5, 12)
    assert whole.mean == pytest.approx(fmean(means))
    assert whole.item_se == pytest.approx(stdev(means) / 12**0.5)
    assert whole.sample_sd == pytest.approx(fmean(within) ** 0.5)
    assert whole.pass_at is None
    assert not found["story", "plot"].pass_at, "High, Medium and Low are no pass and fail"


@pytest.mark.parametrize(("name", "factor"), [("quiz", "colour"), ("passed", "plot")])
def test_what_passes_is_counted_by_k(lab: Lab, name: str, factor: str) -> None:
    lab.run(continue_run=True)
    with RunReader(lab.path, read_planned_names(RunDir(lab.path))) as reader:
        score = (compute_run_measures(reader).measures.samples or {})[SampledPart("ann", name, factor)]
    at, every = score.pass_at_k or {}, score.pass_all_k or {}
    assert list(at) == list(every) == ["1", "2", "4", "5"]
    assert (score.pass_at, score.pass_all) == (at["5"], every["5"])
    step = 2 if name == "passed" else 1  # of two factors, whose scores stand in order
    passing = [
        [None if fmean(scores[::step]) == 0.5 else fmean(scores[::step]) > 0.5 for scores in samples.values()]
        for samples in by_item(lab, name).values()
    ]
    assert (name == "passed") == any(None in answers for answers in passing), "two judges are evenly divided"
    assert at["1"].value == pytest.approx(score.mean.value), "pass@1 is the mean of verdicts"
    for k, rate in at.items():
        assert rate.value == pytest.approx(fmean(share_of_draws(one, int(k), any) for one in passing))
        assert every[k].value == pytest.approx(fmean(share_of_draws(one, int(k), all) for one in passing))
        assert rate.n == 12
        assert (rate.low or 0) <= (rate.value or 0) <= (rate.high or 1)


@pytest.mark.process
def test_the_table_is_there_where_there_are_samples(lab: Lab, coeval: Command) -> None:
    shown = coeval("results", "--run", lab.path)
    assert "Several answers to an item" in shown.out
    assert "pass^N" in shown.out
    with RunReader(lab.path, read_planned_names(RunDir(lab.path))) as reader:
        found = read_results(reader)
    for width in (80, 200):
        text = io.StringIO()
        print_results(found, Console(width=width, file=text))
        table = text.getvalue().partition("Several answers to an item")[2].partition("Scores in points")[0]
        names = {name for one in found.sampled for name in (one.task, one.factor or "(whole answer)")}
        assert all(name in table for name in {"pass@N", "pass^N", "ann", *names})
        assert "[" in table
    lab.models[1]["samples"] = 1
    lab.run(continue_run=True)
    assert "Several answers" not in coeval("results", "--run", lab.path).out


def test_analyze_and_results_agree_and_pairs_are_of_pooled_items(lab: Lab) -> None:
    results = lab.run(continue_run=True).results()
    with RunReader(lab.path, read_planned_names(RunDir(lab.path))) as reader:
        measures = compute_run_measures(reader).measures
    for score in results.students:
        found = measures.students[score.student]
        mine = found.score if score.task is None else found.score_by_task.get(score.task)
        if mine is not None and mine.value is not None:
            assert (mine.value, mine.low, mine.high) == pytest.approx((score.score, score.low, score.high))
            assert (mine.n, mine.missing) == (score.n, 0)
    means = {
        name: {
            item: fmean(score for scores in samples.values() for score in scores)
            for part in ("story", "passed")
            for item, samples in by_item(lab, part, name).items()
        }
        for name in ("ann", "ben")
    }
    [gap] = measures.ranking.differences.values()
    better, other = measures.ranking.order
    differences = [means[better][item] - means[other][item] for item in means["ann"]]
    assert gap.difference == pytest.approx(fmean(differences))
    assert gap.n == 24


def test_an_answer_that_is_lost_is_missing_and_in_no_pair(lab: Lab) -> None:
    lab.lose("response_collection", "story__tea__00003__ann#4")
    with RunReader(lab.path, read_planned_names(RunDir(lab.path))) as reader:
        measures = compute_run_measures(reader).measures
    assert measures.students["ann"].score_by_task["story"].missing == 4  # two judges, two factors
    assert measures.students["ben"].score_by_task["story"].missing == 0
    assert not measures.ranking.adjusted, "another answer to the item has the same scores"
