"""A page's opening says no more than is known of few items, and of students who share none."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_evidence import run_evidence
from written_run import Run

from coeval.analysis.measures.measure_tree import Measured
from coeval.reports.experiment.cost_section import _StudentValue, pareto_students
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.store.rundir import RunDir


def said(folder: Path) -> list[str]:
    with run_evidence(RunDir(folder)) as evidence:
        return [one.text for one in experiment_report(evidence).lead]


@pytest.mark.process
@pytest.mark.parametrize("judges", ["j", "jk"])
def test_of_one_item_no_gap_is_called_significant(tmp_path: Path, judges: str) -> None:
    run = Run(tmp_path / "run")
    for judge in judges:
        for student, level in (("a", "High"), ("b", "Medium"), ("c", "Low")):
            run.judged(1, student, judge, {"x": level})
    first, change, panel = said(run.folder)
    assert "tied" in first
    assert change == "One shared item cannot show a gap: more are needed."
    assert panel.startswith(("Only one judge", "Too few items have scores from two judges for both"))


def test_labels_of_no_shared_item_show_no_significant_gap(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 21):
        student, predicted = "a" if n <= 10 else "b", "red" if n <= 15 else "blue"
        run.datapoint(n, sampled_target_attributes={"colour": "red"})
        run.response(n, student)
        label = {"expected": "red", "predicted": predicted, "match": predicted == "red"}
        run.evaluation(n, student, "exact_match", {}, label_scores={"colour": label})
    first, *_ = said(run.folder)
    assert first == "a is right most often in haiku (colour) (100.0); b shares no scored items with it."


def scored(run: Run, student: str, judges: str, levels: str, first: int = 1) -> None:
    """Each letter of ``levels`` is what all judges give the answer to one item."""
    whole = {"H": "High", "M": "Medium", "L": "Low"}
    for n, level in enumerate(levels, start=first):
        for judge in judges:
            run.judged(n, student, judge, {"x": whole[level]})


@pytest.mark.parametrize(
    ("judges", "reported"),
    [
        (("jk", "jl"), "Only one judge scored both a and b, so agreement cannot be measured."),
        (("j", "jkl"), "Only one judge scored both a and b, so agreement cannot be measured."),
        (("j", "j"), "Only one judge was used, so agreement cannot be measured."),
    ],
)
def test_judges_that_scored_one_of_the_two_were_used_too(
    tmp_path: Path, judges: tuple[str, str], reported: str
) -> None:
    run = Run(tmp_path / "run")
    scored(run, "a", judges[0], "HHHMHHHHLH" * 2)
    scored(run, "b", judges[1], "LMLLHMLLLM" * 2)
    assert said(run.folder)[-1] == reported


@pytest.mark.parametrize("rivals", [1, 2])
def test_a_leader_beats_everyone(tmp_path: Path, rivals: int) -> None:
    """The next in the order is far behind, and so is a third, but on so few items that it may be first."""
    run = Run(tmp_path / "run")
    scored(run, "a", "jk", "HHMHHHHMHH" * 4)
    scored(run, "b", "jk", "MMMMLMMMMM" * 4)
    for rival in "cd"[:rivals]:
        scored(run, rival, "jk", "LHM")
    first, *_ = said(run.folder)
    assert "leads" not in first
    assert " and c (" in first
    assert "tied" in first


def test_judges_who_see_no_difference_put_nobody_ahead(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    scored(run, "a", "jkl", "HMLH" * 5)
    scored(run, "b", "jkl", "HLMH" * 5)
    *_, panel = said(run.folder)
    assert panel.startswith("The 3 judges together put neither ahead; ")


@pytest.mark.parametrize(
    ("levels", "change"),
    [
        (
            {"a": ("HMHM", "HMMH", "MHHM"), "b": ("MHMH", "MHHM", "HMMH")},
            "The gap is too small to settle with more items",
        ),
        (
            {"a": ("HHHH", "LLLL", "HHMH"), "b": ("LLML", "HHHH", "MLLM")},
            "more items cannot settle it, more judges can",
        ),
    ],
)
def test_more_items_are_advised_only_where_they_would_settle_it(
    tmp_path: Path, levels: dict[str, tuple[str, ...]], change: str
) -> None:
    """By judges: in the first run all see next to nothing, in the second they contradict each other."""
    run = Run(tmp_path / "run")
    for student, of_judges in levels.items():
        for judge, given in zip("jkl", of_judges, strict=True):
            scored(run, student, judge, given * 10 + ("H" if student == "a" else "M"))
    assert change in " ".join(said(run.folder)[1:])


def test_who_does_some_tasks_only_is_on_no_line_of_the_best_for_a_price() -> None:
    """Its mean is over other tasks than those that it would be held against."""
    score = Measured(0.5, 0.4, 0.6, 10, 0)
    whole = [_StudentValue("a", score, "1", 2.0, None), _StudentValue("b", score, "2", 3.0, None)]
    partial = _StudentValue("c", Measured(0.9, 0.8, 1.0, 10, 0), None, 1.0, None)
    assert pareto_students([*whole, partial], "usd") == {"a"}


def costing(folder: Path, usd: dict[str, float | None], levels: dict[str, str]) -> list[str]:
    """What is said of quality and cost, of twelve items."""
    run = Run(folder)
    for n in range(1, 13):
        run.datapoint(n)
        for student, price in usd.items():
            run.response(n, student, usage={"cost_usd": price})
            run.evaluation(n, student, "j", {"x": levels[student] if n % 4 else "Medium"})
    with run_evidence(RunDir(run.folder)) as evidence:
        report = experiment_report(evidence)
    found = [section.sentences for section in report.sections if section.anchor == "value"]
    return [one.text for sentences in found for one in sentences]


@pytest.mark.process
@pytest.mark.parametrize(
    ("usd", "levels", "said"),
    [
        (
            (2.0, 1.0, None),
            "HML",
            "b costs 50% less than a ($1.00 instead of $2.00 per 1,000 answers) and scores 37.5",
        ),
        (
            (2.0, 1.0, 3.0),
            "HHL",
            "b is tied with a and costs $1.00 per 1,000 answers instead of $2",
        ),
        (
            (1.0, 2.0, None),
            "HML",
            "a has the highest score and is cheapest of the 2 that can be compared: $1.00",
        ),
        ((None, 2.0, 1.0), "HML", "c is cheapest of the 2 that can be compared: $1.00 per 1,000 answers."),
        ((1.0, 2.0, 3.0), "HML", "a has the highest score and is cheapest: $1.00 per 1,000 answers."),
    ],
)
def test_nobody_is_cheapest_whose_rivals_have_no_price(
    tmp_path: Path, usd: tuple[float | None, ...], levels: str, said: str
) -> None:
    whole = {"H": "High", "M": "Medium", "L": "Low"}
    prices = {name: None if one is None else one / 1000 for name, one in zip("abc", usd, strict=True)}
    found = costing(
        tmp_path / "run", prices, {name: whole[one] for name, one in zip("abc", levels, strict=True)}
    )
    assert " ".join(found).startswith(said)
