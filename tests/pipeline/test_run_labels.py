"""Labels in a run: what natural wording counts as, and which values an answer is held against."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, Requested, listen, model, quiz, task

from coeval.cli.commands.results import results
from coeval.core.errors import UsageError
from coeval.pipeline.config.load_file import load_config, read_config
from coeval.pipeline.start.partial_starts import ProposedPart
from coeval.pipeline.start.proposed_file import (
    FileWithProposals,
    insert_proposed_parts,
    refuse_credentials_in_addresses,
)

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


@pytest.mark.process
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


# The nuance an item was written with, as students and judges are told it, stored or not.

TOLD = "<nuance>{nuanced_attributes}</nuance>"
PROMPTS = {
    "sample": f"{TOLD} Write an item with attributes: {{target_attributes}}. JSON with prompt and response.",
    "test": f"{TOLD} {{input}}",
    "evaluate_single": f"{TOLD} Score {{response}} by {{rubric}} as JSON, one of High, Medium, Low each.",
}
NUANCE: dict[str, Any] = {
    "nuanced_attributes": {"tone": ["dry", "warm", "curt"], "place": ["home", "work"]},
    "sampling": {"target": [1, 1], "nuance": [1, 2], "total": 6},
}


def tasks(**changes: Any) -> list[dict[str, Any]]:
    return [task(prompt_library=PROMPTS, **{**NUANCE, **changes})]


def reported(requested: Requested, purpose: str) -> list[str]:
    """What the models were told of the nuance in requests of a phase, in a fixed order."""
    texts = [r.messages[-1].content for _, r in requested.requests if r.purpose == purpose]
    return sorted(text.partition("<nuance>")[2].partition("</nuance>")[0] for text in texts)


@pytest.mark.parametrize("barriers", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_students_and_judges_are_told_what_the_teacher_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, barriers: bool
) -> None:
    lab = Lab(tmp_path, [model("ann")], tasks(store_nuanced=stored))
    requested = listen(monkeypatch)
    assert lab.run(phase_barriers=barriers).exit_code == 0
    given = reported(requested, "data_generation")
    assert "none" not in given
    assert len(set(given)) > 3
    assert reported(requested, "response_collection") == given
    assert reported(requested, "evaluation") == given
    items = lab.records("data_generation").values()
    assert all(("sampled_nuanced_attributes" in item) == stored for item in items)


@pytest.mark.parametrize("proposed", [False, True])
def test_a_run_that_goes_on_knows_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proposed: bool
) -> None:
    lab = Lab(tmp_path, [model("ann"), model("ben", "teacher")], tasks())
    if proposed:
        lab.tasks[0]["nuanced_attributes"] = "auto"
    requested = listen(monkeypatch)
    lab.run()
    given = reported(requested, "data_generation")
    for phase in ("response_collection", "evaluation"):
        for key in lab.records(phase):
            lab.lose(phase, key)
    requested.clear()
    lab.models.append(model("cat", "student"))
    assert lab.run(continue_run=True).exit_code == 0
    assert reported(requested, "data_generation") == []
    assert (
        reported(requested, "response_collection")
        == reported(requested, "evaluation")
        == sorted([*given, *given])
    )
    other = Lab(tmp_path, [model("dan", "student")], lab.tasks, {"resume_from": "exp"}, id="other")
    other.settings["phases"] = {"data_generation": "Keep", "evaluation": "Keep"}
    requested.clear()
    other.run()
    assert reported(requested, "response_collection") == given, "in another run, without the teachers"


def test_of_items_that_were_put_there_none_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exam = {"name": "exam", "interface": "benchmark", "roles": ["teacher"]}
    changes = {"category": "benchmark", "sampling": NUANCE["sampling"] | {"total": 1}}
    lab = Lab(tmp_path, [exam, model("ann", "student", "judge")], tasks(**changes))
    file = lab.path / "phase3_datapoints" / "story.exam.datapoints.jsonl"
    file.parent.mkdir(parents=True)
    item = {"id": "story__exam__00001", "task_id": "story", "teacher_model_id": "exam"}
    item |= {"sampled_target_attributes": {}, "prompt": "Why?"}  # type: ignore[dict-item]
    file.write_text(json.dumps(item) + "\n")
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert reported(requested, "response_collection") == reported(requested, "evaluation") == ["none"]


def test_of_items_of_another_plan_none_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's nuances have changed since: what these items were written with is not known."""
    lab = Lab(tmp_path, [model("ann")], tasks())
    lab.run()
    lab.tasks = tasks(nuanced_attributes={"weather": ["rain", "sun"]}, sampling={"nuance": [1], "total": 8})
    lab.models.append(model("cat", "student"))
    requested = listen(monkeypatch)
    lab.run(continue_run=True)
    old, new = reported(requested, "response_collection")[:6], reported(requested, "response_collection")[6:]
    assert old == ["none"] * 6
    assert len(new) == 4
    assert all(nuance.startswith("weather: ") for nuance in new)


# However a file is written, what is proposed comes to stand in it, and the rest says what it said.

MODELS = "models:\n- {name: ann, interface: simulated, roles: [teacher, student, judge]}\n"
EXPERIMENT = "experiment: {id: x, storage_folder: runs}  # last"
PARTS = [
    ProposedPart("t", "target", {"mood": ["glad", "no"], "a: b": ["#1", "null", "ü"]}, ("ann",)),
    ProposedPart("t", "rubric", {"plot": 'It\'s "so": # [1]\n  two', "yes": " lead"}, ()),
]
REST = "description: D.\n  output_description: O.\n  nuanced_attributes: {}\n"

LAYOUTS = {
    "block": f"- name: t\n  {REST}  target_attributes: auto\n  sampling: {{total: 2}}\n  rubric: auto\n",
    "seeds before the next key": f"- name: t\n  {REST}  target_attributes: auto\n"
    "  target_attributes_seed:\n    mood: [glad]\n\n  # kept\n  sampling: {total: 2}\n  rubric: auto\n",
    "complete, with a range to replace": f"- name: t\n  {REST}  target_attributes: complete # all\n"
    "  sampling:\n    target: [1, 2]\n    total: 2\n  rubric: auto\n",
    "complete, without a range": f"- name: t\n  {REST}  target_attributes: complete # all\n"
    "  sampling:\n    total: 2\n  rubric: auto\n",
    "flow": "- {name: t, description: D., target_attributes_seed: {mood: [glad]}, target_attributes: auto, "
    "rubric: 'auto', sampling: {total: 2}}\n",
    "seed at the end": f"- name: t\n  {REST}  rubric: auto\n  sampling: {{total: 2}}\n"
    "  target_attributes: auto\n  target_attributes_seed: {mood: [glad]}",
    "a word that stands elsewhere": "- name: t\n  description: &word auto\n  target_attributes: *word\n"
    "  sampling: {total: 2}\n  rubric: *word\n",
    "a seed that begins its task": "- target_attributes_seed: {mood: [glad]}\n  name: t\n"
    f"  {REST}  target_attributes: auto\n  sampling: {{total: 2}}\n  rubric: auto\n",
    "words over lines": f"- name: t\n  {REST}  target_attributes: >-\n    auto\n"
    "  sampling: {total: 2}\n  rubric: auto\n",
    "lines of another system": f"- name: t\n  {REST}  target_attributes: auto # x\n"
    "  sampling: {total: 2}\n  rubric: auto # y\n".replace("\n", "\r\n"),
}
MERGED = (
    f"- &t\n  name: t\n  {REST}  target_attributes: auto\n  target_attributes_seed: {{mood: [glad]}}\n"
    "  sampling: {total: 2}\n  rubric: auto\n- {<<: *t, name: u}\n"
)


def settled(tmp_path: Path, task: str) -> tuple[str, FileWithProposals]:
    text = f"# first\n{MODELS}tasks:\n{task}\n{EXPERIMENT}\n"
    file = tmp_path / "draft.yaml"
    file.write_bytes(text.encode())
    return text, insert_proposed_parts(file, read_config(file), PARTS)


def holds(tmp_path: Path, found: FileWithProposals) -> None:
    file = tmp_path / "settled.yaml"
    file.write_bytes(found.text.encode())
    task = load_config(file).tasks[0]
    assert (task.target_attributes, task.rubric) == (PARTS[0].value, PARTS[1].value)
    assert (task.target_attributes_seed, task.sampling.total) == (None, 2)
    assert load_config(file) == found.config


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_what_was_left_to_teachers_changes(layout: str, tmp_path: Path) -> None:
    text, found = settled(tmp_path, LAYOUTS[layout])
    assert not found.rewritten
    holds(tmp_path, found)
    touched = ("auto", "complete", "_seed", "mood:", "target: [", "sampling", ">-", "*word")
    stays = [line.strip(" -") for line in text.splitlines() if not any(part in line for part in touched)]
    kept = [line.strip(" -") for line in found.text.splitlines()]  # which are indented alike
    assert [line for line in stays if line not in kept] == []
    walks = "complete" in layout
    assert (found.config.tasks[0].sampling.target == "all") is walks


def test_where_a_task_merges_another_all_is_written_anew(tmp_path: Path) -> None:
    _, found = settled(tmp_path, MERGED)
    assert found.rewritten
    holds(tmp_path, found)


def test_a_key_in_an_address_is_refused(tmp_path: Path) -> None:
    key = "sk-" + "Ab1" * 15
    address = (
        f"- {{name: eve, interface: vllm, roles: [judge], parameters: {{base_url: 'http://u:{key}@h'}}}}\n"
    )
    file = tmp_path / "draft.yaml"
    file.write_text(f"{MODELS}{address}tasks:\n{LAYOUTS['block']}{EXPERIMENT}")
    with pytest.raises(UsageError, match=r"models\.eve\.parameters holds a credential") as caught:
        refuse_credentials_in_addresses(read_config(file))
    assert key not in str(caught.value)
