"""Choosing answers by what they scored, with the whole records behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_run import Run

from coeval.analysis.judged_answers import AnswerChoice, ChosenAnswers, read_chosen_answers
from coeval.analysis.planned_names import Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader


def choose(folder: Path, planned: Planned | None = None, **choice: object) -> ChosenAnswers:
    with RunReader(folder, planned) as reader:
        return read_chosen_answers(reader, AnswerChoice(**choice))  # type: ignore[arg-type]


def shown(found: ChosenAnswers) -> list[tuple[str, float | None]]:
    assert all(judged.answer is not None for judged in found.answers)
    return [(judged.answer.id, judged.score) for judged in found.answers if judged.answer is not None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "run")
    made.judged(1, "s", "j", {"a": "High", "b": "Medium"})
    made.evaluation(1, "s", "k", {"a": "Low", "b": "Medium"})
    made.judged(2, "s", "j", {"a": "Low"})
    made.judged(2, "z", "j", {"a": "High"})
    made.evaluation(2, "z", "k", {"a": "Medium"})
    made.datapoint(3)
    made.response(3, "s", status="failed", error={"kind": "timeout", "message": "no answer"})
    Run(made.folder, task="sum").judged(1, "s", "j", {"a": "Medium"})
    return made


@pytest.mark.process
def test_the_worst_come_first_and_the_unscored_last(run: Run) -> None:
    found = choose(run.folder, order="worst")
    assert shown(found) == [
        ("haiku__t.1__00002__s", 0.0),
        ("haiku__t.1__00001__s", 0.5),
        ("sum__t.1__00001__s", 0.5),
        ("haiku__t.1__00002__z", 0.75),
        ("haiku__t.1__00003__s", None),
    ]
    few = choose(run.folder, order="worst", most=2)
    assert (shown(few), few.found) == (shown(found)[:2], 5)
    assert shown(choose(run.folder, order="worst", students=("z",))) == [("haiku__t.1__00002__z", 0.75)]
    assert shown(choose(run.folder, tasks=("sum",))) == [("sum__t.1__00001__s", 0.5)]


def test_disagreement_is_how_far_judges_scores_lie_apart(run: Run) -> None:
    found = choose(run.folder, order="disagreement")
    assert [(j.answer and j.answer.id, j.disagreement) for j in found.answers] == [
        ("haiku__t.1__00001__s", 0.5),  # a differs by 1, b by 0
        ("haiku__t.1__00002__z", 0.5),
    ]


@pytest.mark.process
def test_an_id_is_that_of_an_item_an_answer_or_a_judgment(run: Run) -> None:
    item = choose(run.folder, id="haiku__t.1__00002")
    assert [name for name, _ in shown(item)] == ["haiku__t.1__00002__s", "haiku__t.1__00002__z"]
    for key in ("haiku__t.1__00002__z", "haiku__t.1__00002__z__k"):
        assert shown(choose(run.folder, id=key)) == [("haiku__t.1__00002__z", 0.75)]
    assert choose(run.folder, id="haiku__t.1__0000") == ((), 0)


def test_an_item_without_answers_is_found_by_its_id_alone(run: Run) -> None:
    run.datapoint(9)
    [found] = choose(run.folder, id="haiku__t.1__00009").answers
    assert (found.item.prompt, found.answer, found.judgments) == ("prompt 9", None, ())
    assert len(choose(run.folder).answers) == 5


def test_where_nothing_but_labels_is_scored_they_decide(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n, match in ((1, True), (2, False)):
        run.datapoint(n)
        run.response(n, "s")
        label = {"colour": {"expected": "red", "predicted": "red" if match else "blue", "match": match}}
        run.evaluation(n, "s", "exact_match", {}, label_scores=label)
    assert [score for _, score in shown(choose(run.folder, order="worst"))] == [0.0, 1.0]


def test_judges_that_no_longer_count_are_in_neither_score_nor_judgments(run: Run) -> None:
    task = PlannedTask(teachers=None, judges=frozenset({"j"}), factors=None, labels=None)
    [judged] = choose(run.folder, Planned(None, {"haiku": task}), id="haiku__t.1__00001").answers
    assert [judgment.judge_model_id for judgment in judged.judgments] == ["j"]
    assert (judged.score, judged.disagreement) == (0.75, None)
