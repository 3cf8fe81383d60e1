from __future__ import annotations

from pathlib import Path

import pytest
from written_run import Run

from coeval.analysis.planned_names import ItemsBeyondTotal, LeftOut, Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.html_table import MeasureRow
from coeval.reports.result_tables import Results, read_results

ALL = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def read(run: Run, planned: Planned | None = None) -> Results:
    with RunReader(run.folder, planned) as reader:
        return read_results(reader)


def one(found: Results, student: str, task: str | None) -> MeasureRow:
    [score] = [score for score in found.students if (score.student, score.task) == (student, task)]
    return score


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_an_item_counts_once_however_many_judged_it(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High", "b": "High"})
    run.evaluation(1, "s", "k", {"a": "High", "b": "High"})
    run.judged(2, "s", "j", {"a": "Low"})
    score = one(read(run), "s", "haiku")
    assert (score.score, score.n, score.valid_evals, score.failed) == (0.5, 2, 5, 0)
    assert score.low is not None
    assert score.low < 0.1, "two items say little, however often they were judged"


def test_the_headline_is_the_mean_over_tasks_not_over_items(run: Run) -> None:
    other = Run(run.folder, task="sum")
    for n in range(1, 13):
        run.judged(n, "s", "j", {"a": "High" if n % 2 else "Medium"})
    for n in range(1, 3):
        other.judged(n, "s", "j", {"a": "Low" if n % 2 else "Medium"})
    score = one(read(run), "s", None)
    assert (score.score, score.n, score.valid_evals) == (0.5, 14, 14)
    assert score.low is not None
    assert score.high is not None
    assert score.low < 0.5 < score.high


def test_failures_are_counted_where_they_belong_and_score_nothing(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High"})
    run.evaluation(1, "s", "k", {"a": "High"}, missing=["b", "c"])
    run.datapoint(2)
    run.response(2, "s")
    run.evaluation(2, "s", "j", {}, status="failed")
    run.datapoint(3)
    run.response(3, "s", status="failed")
    run.response(3, "silent", status="failed")
    found = read(run)
    score = one(found, "s", None)
    assert (score.score, score.n, score.valid_evals, score.failed) == (1.0, 1, 2, 2)
    assert score.low == pytest.approx(0.1467, abs=1e-4), "one item says little"
    assert score.high == 1.0
    silent = one(found, "silent", None)
    assert (silent.score, silent.low, silent.high, silent.n, silent.failed) == (None, None, None, 0, 1)


@pytest.mark.process
def test_near_the_end_of_the_scale_an_interval_reaches_further_to_the_middle(run: Run) -> None:
    for n in range(1, 21):
        run.judged(n, "good", "j", {"a": "High" if n > 1 else "Medium"})
        run.judged(n, "poor", "j", {"a": "Low" if n > 1 else "Medium"})
        run.judged(n, "best", "j", {"a": "High"})
    for task in ("haiku", None):
        best, good, poor = (one(read(run), student, task) for student in ("best", "good", "poor"))
        assert good.score == 0.975
        assert good.low is not None
        assert good.high is not None
        assert 0.82 < good.low < 0.86
        assert 0.99 < good.high < 1
        assert (poor.score, poor.low, poor.high) == pytest.approx((0.025, 1 - good.high, 1 - good.low))
        assert best.low == pytest.approx(0.8834, abs=1e-4)
        assert (best.score, best.high) == (1.0, 1.0)


def test_answers_that_were_cut_off_are_counted(run: Run) -> None:
    other = Run(run.folder, task="sum")
    for n in (1, 2):
        run.datapoint(n)
        other.datapoint(n)
        other.response(n, "s", truncated=n == 1)
    run.response(1, "s", truncated=True)
    run.response(2, "s", truncated=True, status="failed")
    found = read(run)
    counts = {(s.task, s.answers, s.truncated) for s in found.students}
    assert counts == {(None, 3, 2), ("haiku", 1, 1), ("sum", 2, 1)}


@pytest.mark.process
def test_removed_judges_teachers_and_factors_are_in_no_mean_and_no_failure(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High", "old": "Low"})
    run.evaluation(1, "s", "gone", {"a": "Low"})
    run.judged(2, "s", "j", {"a": "Medium"})
    run.evaluation(2, "s", "j", {"a": "Medium"}, missing=["old"])
    run.evaluation(2, "s", "gone", {}, status="failed")
    other = Run(run.folder, teacher="t.2")
    other.judged(1, "s", "j", {"a": "Low"})
    other.datapoint(2)
    other.response(2, "s", status="failed")
    before = one(read(run), "s", None)
    assert (before.n, before.valid_evals, before.failed) == (3, 5, 2)
    plan = PlannedTask(frozenset({"t.1"}), frozenset({"j"}), frozenset({"a", "new"}), labels=None)
    found = read(run, Planned(None, {"haiku": plan}))
    for task in (None, "haiku"):
        score = one(found, "s", task)
        assert (score.score, score.n, score.valid_evals, score.failed) == (0.75, 2, 2, 0)
        assert (score.answers, score.removed) == (2, ())
    assert found.left_out == (
        LeftOut("teacher", "haiku", "t.2"),
        LeftOut("judge", "haiku", "gone"),
        LeftOut("factor", "haiku", "old"),
    )
    assert found.notes == (), "what is left out is no orphan"


def test_of_supplied_items_the_first_on_record_count_whatever_their_ids(run: Run) -> None:
    for n, level in ((9, "High"), (7, "Low"), (1, "High"), (2, "High")):
        run.judged(n, "s", "j", {"a": level})
    run.datapoint(7)  # mended: it keeps its place
    run.datapoint(5, status="failed")
    plan = PlannedTask(frozenset({"t.1"}), None, None, None, total=2, supply=frozenset({"t.1"}))
    found = read(run, Planned(None, {"haiku": plan}))
    score = one(found, "s", "haiku")
    assert (score.score, score.n, score.answers) == (0.5, 2, 2)
    assert found.beyond_total == (ItemsBeyondTotal("haiku", 2),), "one that failed is not told"
    held = [
        plan.is_counted_item("t.1", run.datapoint_id(n), place) for place, n in enumerate((9, 7, 1, 2, 5), 1)
    ]
    assert held == [True, True, False, False, False]


def test_removed_students_and_tasks_stand_last_marked_and_out_of_overall_scores(run: Run) -> None:
    other = Run(run.folder, task="a-removed-one")
    for student, level in (("s", "Low"), ("gone", "High")):
        run.judged(1, student, "j", {"a": level})
        other.judged(1, student, "k", {"b": "Medium"})
    found = read(run, Planned(frozenset({"s"}), {"haiku": ALL}))
    shown = [(score.task, score.student, score.score, score.n, score.removed) for score in found.students]
    assert shown == [
        (None, "s", 0.0, 1, ()),
        (None, "gone", 1.0, 1, ("student",)),
        ("haiku", "s", 0.0, 1, ()),
        ("haiku", "gone", 1.0, 1, ("student",)),
        ("a-removed-one", "s", 0.5, 1, ("task",)),
        ("a-removed-one", "gone", 0.5, 1, ("student", "task")),
    ]


def test_best_first_ties_by_name_unscored_last_overall_before_tasks(run: Run) -> None:
    other = Run(run.folder, task="aaa")
    for student, level in [("beta", "High"), ("gamma", "Low"), ("alpha", "High")]:
        run.judged(1, student, "j", {"a": level})
    other.judged(1, "gamma", "j", {"a": "High"})
    run.response(1, "unjudged")
    order = [(score.task, score.student) for score in read(run).students]
    assert order == [
        (None, "alpha"),
        (None, "beta"),
        (None, "gamma"),
        (None, "unjudged"),
        ("aaa", "gamma"),
        ("haiku", "alpha"),
        ("haiku", "beta"),
        ("haiku", "gamma"),
        ("haiku", "unjudged"),
    ]


def test_label_accuracy_stands_beside_the_scores(run: Run) -> None:
    for n, match in enumerate([True, True, True, False], start=1):
        run.judged(n, "s", "j", {"a": "Low"})
        label = {"expected": "x", "predicted": "x" if match else "y", "match": match}
        run.evaluation(n, "s", "exact_match", {}, label_scores={"form": label})
    found = read(run)
    [label_accuracy] = found.labels
    assert (label_accuracy.accuracy, label_accuracy.n, label_accuracy.correct) == (0.75, 4, 3)
    assert label_accuracy.low == pytest.approx(0.30064, abs=1e-5)  # Wilson, 3 of 4
    assert label_accuracy.high == pytest.approx(0.95441, abs=1e-5)
    assert one(found, "s", None).score == 0.0


def test_answers_that_are_none_of_the_labels_are_wrong_and_counted(run: Run) -> None:
    for n, predicted in enumerate(["x", "y", None, None], start=1):
        run.datapoint(n)
        run.response(n, "s")
        label = {"expected": "x", "predicted": predicted, "match": predicted == "x"}
        run.evaluation(n, "s", "exact_match", {}, label_scores={"form": label})
    [label_accuracy] = read(run).labels
    assert (label_accuracy.correct, label_accuracy.none_of_the_labels, label_accuracy.n) == (1, 2, 4)
