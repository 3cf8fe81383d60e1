"""A page's opening says no more than is known of few items, and of students who share none."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_run import Run

from coeval.analysis.measures.measured import Measured
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_evidence import run_evidence
from coeval.reports.experiment.value_section import _Valued, on_line
from coeval.store.rundir import RunDir


def said(folder: Path) -> list[str]:
    with run_evidence(RunDir(folder)) as evidence:
        return [one.text for one in experiment_report(evidence).lead]


@pytest.mark.parametrize("judges", ["j", "jk"])
def test_of_one_item_no_gap_is_called_significant(tmp_path: Path, judges: str) -> None:
    run = Run(tmp_path / "run")
    for judge in judges:
        for student, level in (("a", "High"), ("b", "Medium"), ("c", "Low")):
            run.judged(1, student, judge, {"x": level})
    first, change, panel = said(run.folder)
    assert "statistically tied" in first
    assert change == "One shared item cannot show a gap: more are needed."
    assert panel.startswith(("Only one judge", "Too few items have scores of both by two judges"))


def test_the_order_of_those_who_share_no_item_is_open(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 41):
        run.judged(n, "a", "j", {"x": "High"})
        run.judged(n, "b" if n <= 20 else "c", "j", {"x": "Low" if n % 3 else "Medium"})
    first, change, _ = said(run.folder)
    assert first.startswith("a leads with 100.0")
    assert change == "The order behind the leader is open: c and b share no scored items."


def test_labels_of_no_shared_item_show_no_significant_gap(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 21):
        student, predicted = "a" if n <= 10 else "b", "red" if n <= 15 else "blue"
        run.datapoint(n, sampled_target_attributes={"colour": "red"})
        run.response(n, student)
        label = {"expected": "red", "predicted": predicted, "match": predicted == "red"}
        run.evaluation(n, student, "exact_match", {}, label_scores={"colour": label})
    first, *rest = said(run.folder)
    assert first == "a is right most often (colour: 100.0); no items are shared with b."
    assert rest == ["Labels are compared by rule, so no judge's opinion enters."]


def test_who_does_some_tasks_only_is_on_no_line_of_the_best_for_a_price() -> None:
    """Its mean is over other tasks than those that it would be held against."""
    score = Measured(0.5, 0.4, 0.6, 10, 0)
    whole = [_Valued("a", score, "1", 2.0, None), _Valued("b", score, "2", 3.0, None)]
    partial = _Valued("c", Measured(0.9, 0.8, 1.0, 10, 0), None, 1.0, None)
    assert on_line([*whole, partial], "usd") == {"a"}
