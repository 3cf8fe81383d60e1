"""Labels in a run: what natural wording counts as, and which values an answer is held against."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pipeline.experiments import Lab, model, quiz

from coeval.cli.commands.results import results

COLOURS = {"colour": ["light_blue", "blue", "red"]}


def predictions(lab: Lab) -> dict[str, tuple[str | None, bool]]:
    """What the comparisons on record say: predicted, and whether it is right, by answer."""
    answers = lab.records("response_collection")
    compared = [e for e in lab.records("evaluation").values() if e["judge_model_id"] == "exact_match"]
    scores = {answers[e["response_id"]]["response"]: e["label_scores"]["colour"] for e in compared}
    return {answer: (score["predicted"], score["match"]) for answer, score in scores.items()}


def reworded(lab: Lab, answers: list[str]) -> None:
    """Let the students have answered so."""
    for key, answer in zip(lab.records("response_collection"), answers, strict=True):
        lab.edit("response_collection", key, response=answer)


def test_natural_wording_is_recognised_and_none_of_the_labels_is_marked(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=4, target_attributes=COLOURS)])
    lab.run()
    answers = ["The answer is light blue.", "\\boxed{Blue}", "Violet, I think", "blue or red?"]
    reworded(lab, answers)
    assert lab.run(continue_run=True).exit_code == 0
    found = predictions(lab)
    assert [found[answer][0] for answer in answers] == ["light_blue", "blue", None, None]
    assert [found[answer][1] for answer in answers[2:]] == [False, False]


def test_values_that_teachers_proposed_are_those_an_answer_may_have(tmp_path: Path) -> None:
    seed = {"colour": ["red", "blue"]}
    tasks = [quiz(total=2, target_attributes="auto", target_attributes_seed=seed)]
    lab = Lab(tmp_path, [model("ann")], tasks)
    lab.run()
    artifact = lab.path / "phase1_attributes" / "quiz_target_attrs.json"
    declared = json.loads(artifact.read_text())
    declared["colour"].append("violet")
    artifact.write_text(json.dumps(declared))
    reworded(lab, ["It is violet.", "It is violet, or rather red."])
    lab.run(continue_run=True)
    assert {answer: value for answer, (value, _) in predictions(lab).items()} == {
        "It is violet.": "violet",
        "It is violet, or rather red.": None,
    }


def test_what_was_compared_by_other_rules_or_values_is_compared_again_unasked(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=2, target_attributes=COLOURS)])
    lab.run()
    reworded(lab, ["It is red.", "It is violet."])
    lab.run(continue_run=True)
    key = next(iter(lab.records("evaluation")))
    wrong = {"colour": {"expected": "red", "predicted": None, "match": False}}
    lab.edit("evaluation", key, recipe="labels-1.abcdef", label_scores=wrong)
    lab.run(continue_run=True)
    assert predictions(lab)["It is red."][0] == "red"
    lab.tasks[0]["target_attributes"] = {"colour": [*COLOURS["colour"], "violet"]}
    lab.run(continue_run=True)
    assert predictions(lab)["It is violet."] == ("violet", False)


def test_answers_that_failed_stand_beside_the_accuracies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure is no wrong answer, and who failed at some items is compared over fewer of them."""
    students = [
        model("odd", "student", failure_rate=0.6),
        model("silent", "student", failure_rate=1.0),
    ]
    lab = Lab(tmp_path, [model("ann"), *students], [quiz(total=12, target_attributes=COLOURS)])
    lab.settings |= {"generation_retries": 0, "probe_mode": "disable"}
    run = lab.run()
    assert run.exit_code == 3
    labels = {label.student: label for label in run.results().labels}
    assert (labels["ann"].n, labels["ann"].failed) == (12, 0)
    assert labels["odd"].n + labels["odd"].failed == 12
    assert 0 < labels["odd"].failed < 12
    assert (labels["silent"].accuracy, labels["silent"].n, labels["silent"].failed) == (None, 0, 12)
    results(lab.path, as_json=False, as_csv=False, by=None)
    shown = capsys.readouterr().out
    assert re.search(r"student +accuracy +right +(no label +)?(bounds +)?failed", shown), shown
    assert "under nine tenths of another student's scores or labels in some task" in shown
