"""Records of another configuration are noticed, named, and redone or kept as the user says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import FOLDERS, PHASES, Lab, content, listen, model, quiz, task

from coeval import open_run
from coeval.core.errors import StoreError, UsageError
from coeval.pipeline.config.schema import Phase

Edit = Callable[[Lab], Any]


def finished(folder: Path, **parts: Any) -> Lab:
    """1 teacher × 3 items × 2 students × 2 judges, done."""
    models = [model("tea", "teacher"), model("ann", "student", "judge"), model("ben", "student", "judge")]
    lab = Lab(folder, **{"models": models, **parts})
    assert lab.run().exit_code == 0
    return lab


def parameters(lab: Lab, index: int, role: str, **values: Any) -> None:
    lab.models[index]["role_parameters"] = {role: values}


def template(lab: Lab, name: str, text: str) -> None:
    lab.tasks[0]["prompt_library"] = {name: text}


CHANGES: list[tuple[str, Edit, str, tuple[int, int, int]]] = [
    # what is changed, its name in the refusal, and the calls that redoing it takes in phases 3–5
    ("judge temperature", lambda lab: parameters(lab, 1, "judge", temperature=0.3),
     "models.ann.parameters.temperature (judge) (evaluations): 6", (0, 0, 6)),
    ("parameter of the same value", lambda lab: parameters(lab, 0, "teacher", top_p=0.5),
     "models.tea.parameters.top_p (teacher) (datapoints): 3", (3, 6, 12)),
    ("judge template", lambda lab: template(lab, "evaluate_single", "Judge {response} by {rubric}"),
     "tasks.story.prompt_library.evaluate_single (evaluations): 12", (0, 0, 12)),
    ("template of one student", lambda lab: template(lab, "test.ben", "Answer: {input}"),
     "tasks.story.prompt_library.test (responses): 3", (0, 3, 6)),
    ("criterion", lambda lab: lab.tasks[0]["rubric"].update(style="It sings."),
     "tasks.story.rubric.style (evaluations): 12", (0, 0, 12)),
    ("task description", lambda lab: lab.tasks[0].update(description="Tell a long story."),
     "tasks.story.description (datapoints): 3", (3, 6, 12)),
    ("system prompt", lambda lab: parameters(lab, 2, "student", system_prompt="Be brief."),
     "models.ben.parameters.system_prompt (student) (responses): 3", (0, 3, 6)),
    ("model id", lambda lab: lab.models[2]["parameters"].update(model="ben-2"),
     "models.ben.parameters.model (responses): 3", (0, 3, 9)),
    ("prompt of a datapoint", lambda lab: lab.edit("data_generation", "story__tea__00002", prompt="Once"),
     "the content of the datapoint they were made from (task story, responses): 2", (0, 2, 4)),
    ("reference of a datapoint",
     lambda lab: lab.edit("data_generation", "story__tea__00002", reference_response="End"),
     "the content of the datapoint or response they were made from (task story, evaluations): 4", (0, 0, 4)),
    ("answer", lambda lab: lab.edit("response_collection", "story__tea__00001__ann", response="No."),
     "the content of the datapoint or response they were made from (task story, evaluations): 2", (0, 0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("change", "named", "redone"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_is_refused_with_its_name_then_redone_with_what_follows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Edit,
    named: str,
    redone: tuple[int, int, int],
) -> None:
    lab = finished(tmp_path)
    change(lab)
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.suffix in (".json", ".jsonl")}
    requested = listen(monkeypatch)
    with pytest.raises(UsageError) as refusal:
        lab.run(continue_run=True)
    assert named in str(refusal.value)
    for way in (str(lab.path), 'changed="redo"', 'changed="keep"', "another experiment id"):
        assert way in str(refusal.value)
    usage = lab.path / "usage.json"  # counts probes
    assert {path: path.read_bytes() for path in before if path != usage} == {
        path: text for path, text in before.items() if path != usage
    }, "a refused start changes nothing"
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert requested.phases() == (0, 0, *redone)
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == (0,) * 5, "what was redone is not redone again"


def test_kept_records_stay_as_they_are_and_are_noticed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = finished(tmp_path)
    parameters(lab, 1, "judge", temperature=0.3)
    before, requested = content(lab), listen(monkeypatch)
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
    assert (content(lab), requested.requests) == (before, [])
    with pytest.raises(UsageError, match="temperature"):
        lab.run(continue_run=True)


def test_kept_scores_are_not_relabelled_when_a_factor_joins_them(tmp_path: Path) -> None:
    """A record that holds scores of the old configuration goes on saying so."""
    lab = finished(tmp_path)
    old = {r["recipe"] for r in lab.records("evaluation").values() if r["judge_model_id"] == "ann"}
    parameters(lab, 1, "judge", temperature=0.3)
    lab.tasks[0]["rubric"]["ending"] = "It ends well."
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
    joined = [record for record in lab.records("evaluation").values() if record["judge_model_id"] == "ann"]
    assert {record["recipe"] for record in joined} == old
    assert all(set(record["scores"]) == {"plot", "style", "ending"} for record in joined)
    with pytest.raises(UsageError, match="temperature"):
        lab.run(continue_run=True)


def test_redone_evaluations_hold_no_score_of_a_removed_factor(tmp_path: Path) -> None:
    lab = finished(tmp_path)
    del lab.tasks[0]["rubric"]["style"]
    assert lab.run(continue_run=True).exit_code == 0
    assert all(set(r["scores"]) == {"plot", "style"} for r in lab.records("evaluation").values())
    parameters(lab, 1, "judge", temperature=0.3)
    lab.run(continue_run=True, changed="redo")
    scores = {r["judge_model_id"]: set(r["scores"]) for r in lab.records("evaluation").values()}
    assert scores == {"ann": {"plot"}, "ben": {"plot", "style"}}


def test_only_the_changed_criterion_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = finished(tmp_path, tasks=[task(evaluation_mode="per_factor")])
    plots = {key: record["scores"]["plot"] for key, record in lab.records("evaluation").items()}
    lab.tasks[0]["rubric"]["style"] = "It sings."
    requested = listen(monkeypatch)
    lab.run(continue_run=True, changed="redo")
    assert requested.phases() == (0, 0, 0, 0, 12)
    assert all("It sings." in request.messages[-1].content for _, request in requested.requests)
    assert {key: record["scores"]["plot"] for key, record in lab.records("evaluation").items()} == plots


def test_a_changed_scale_is_said_to_have_changed(tmp_path: Path) -> None:
    lab = finished(tmp_path)
    lab.tasks[0]["rubric"]["style"] = {"criterion": lab.tasks[0]["rubric"]["style"], "scale": "1-5"}
    with pytest.raises(UsageError) as refusal:
        lab.run(continue_run=True)
    said = "tasks.story.rubric.style: its scale was Low, Medium, High, now 1 to 5 (evaluations): 12"
    assert said in str(refusal.value)
    assert "rubric.plot" not in str(refusal.value)


def test_what_shapes_no_answer_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = finished(tmp_path)
    lab.models[0]["account"] = "team-b"
    lab.models[1]["access_key"] = "sk-another"
    limits = {"timeout_s": 5, "max_concurrency": 3, "requests_per_minute": 99, "latency_s": 0}
    lab.models[1]["parameters"] |= limits
    lab.settings = {"generation_retries": 0, "quota": {"ann": {"max_calls": 500}}, "log_level": "DEBUG"}
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []


def test_one_parameter_in_place_of_another_is_a_change(tmp_path: Path) -> None:
    """The recipe holds the names, not only the values."""
    lab = Lab(tmp_path, [model("ann", temperature=0.5)])
    lab.run()
    lab.models = [model("ann", top_p=0.5)]
    with pytest.raises(UsageError, match="top_p") as refusal:
        lab.run(continue_run=True)
    assert "temperature" in str(refusal.value)


def test_labels_are_compared_again_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = finished(tmp_path, tasks=[quiz()])
    key = "quiz__tea__00001__ann"
    right = lab.records("evaluation")[f"{key}__exact_match"]["label_scores"]["colour"]["expected"]
    lab.edit("response_collection", key, response=right)
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []
    assert lab.records("evaluation")[f"{key}__exact_match"]["label_scores"]["colour"]["match"]


async def test_a_redone_item_is_answered_anew_with_barriers_too(tmp_path: Path) -> None:
    labs = []
    for name, barriers in (("flow", False), ("steps", True)):
        lab = Lab(tmp_path, id=name)
        await lab.arun(phase_barriers=barriers)
        lab.tasks[0]["description"] = "Tell a long story."
        run = await lab.arun(continue_run=True, changed="redo", phase_barriers=barriers)
        assert run.exit_code == 0
        labs.append(lab)
    assert content(labs[0]) == content(labs[1])


ITEM, ANSWER = "story__tea__00002", "story__tea__00002__ann"


@pytest.mark.parametrize("barriers", [False, True])
def test_what_followed_from_a_lost_item_is_not_kept_under_the_new_one(tmp_path: Path, barriers: bool) -> None:
    lab = finished(tmp_path)
    lab.lose("data_generation", ITEM)
    lab.tasks[0]["description"] = "Tell a long story."
    assert lab.run(continue_run=True, changed="keep", phase_barriers=barriers).exit_code == 0
    items, answers = lab.records("data_generation"), lab.records("response_collection")
    assert all(answer["input"] == items[answer["datapoint_id"]]["prompt"] for answer in answers.values())
    evaluations = [line["id"] for line in lab.lines("evaluation") if line["datapoint_id"] == ITEM]
    assert len(evaluations) == 2 * len(set(evaluations)) == 8


@pytest.mark.parametrize("barriers", [False, True])
def test_labels_of_a_remade_answer_are_compared_again_with_barriers_too(
    tmp_path: Path, barriers: bool
) -> None:
    lab = finished(tmp_path, tasks=[quiz()])
    lab.lose("response_collection", "quiz__tea__00002__ann")
    parameters(lab, 1, "student", temperature=0.3)
    run = lab.run(continue_run=True, changed="redo", phase_barriers=barriers)
    assert (run.exit_code, lab.meta()["status"]) == (0, "completed")


@pytest.mark.parametrize("barriers", [False, True])
@pytest.mark.parametrize("mode", ["single", "per_factor"])
def test_a_lost_answer_that_comes_again_the_same_keeps_its_judgments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, barriers: bool
) -> None:
    """They were made from its words, which are the same; only what else was lost is judged."""
    lab = finished(tmp_path, tasks=[task(evaluation_mode=mode)])
    before = content(lab)
    (path,) = lab.path.glob("phase4_responses/*.ann.*")
    lines = path.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])["id"]
    path.write_bytes(b"".join(lines)[:-40])
    requested = listen(monkeypatch)
    run = lab.run(continue_run=True, phase_barriers=barriers)
    assert run.exit_code == 0
    assert [request.purpose for _, request in requested.requests] == ["response_collection"]
    assert content(lab) == before
    assert run.summary is not None
    judged = run.summary.phases["evaluation"]
    assert (judged.missing, judged.made) == (0, 0)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    lab.models[1]["parameters"]["skill"] = 0.1
    requested.clear()
    assert lab.run(continue_run=True, changed="redo", phase_barriers=barriers).exit_code == 0
    assert "evaluation" in {request.purpose for _, request in requested.requests}, (
        "another answer is judged anew"
    )
    assert lab.records("response_collection")[last]["response"] != before[last]["response"]


def made_anew(lab: Lab, phase: Phase, key: str, **changes: Any) -> None:
    """Add a record that takes the place of ``key``, made at the same second."""
    record = lab.records(phase)[key]
    (path,) = [p for p in (lab.path / FOLDERS[phase]).iterdir() if f'"id":"{key}"' in p.read_text()]
    with path.open("a") as file:
        file.write(json.dumps(record | changes) + "\n")


def test_answers_to_an_earlier_item_are_owed_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ended after an item was made anew, and before anything could follow."""
    lab = finished(tmp_path)
    made_anew(lab, "data_generation", ITEM, prompt="Another one.")
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert len(requested.requests) == 2 + 4
    assert lab.records("response_collection")[ANSWER]["input"] == "Another one."


def test_judgments_of_an_earlier_answer_are_owed_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = finished(tmp_path)
    made_anew(lab, "response_collection", ANSWER, response="Made anew.")
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert len(requested.requests) == 2


def test_judgments_that_saw_an_earlier_item_are_owed_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Students do not see the reference response: their answers stay."""
    lab = finished(tmp_path)
    made_anew(lab, "data_generation", ITEM, reference_response="Another one.")
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert [request.purpose for _, request in requested.requests] == ["evaluation"] * 4


@pytest.mark.parametrize("barriers", [False, True])
def test_a_lost_item_that_comes_again_the_same_keeps_all_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, barriers: bool
) -> None:
    lab = finished(tmp_path)
    before = content(lab)
    lab.lose("data_generation", ITEM)
    requested = listen(monkeypatch)
    run = lab.run(continue_run=True, phase_barriers=barriers)
    assert [request.purpose for _, request in requested.requests] == ["data_generation"]
    assert content(lab) == before
    assert run.summary is not None
    assert [run.summary.phases[phase].missing for phase in PHASES] == [0, 0, 0]
    lab.lose("data_generation", ITEM)
    lab.tasks[0]["prompt_library"] = {"sample": "{target_attributes} Another way."}
    requested.clear()
    run = lab.run(continue_run=True, changed="keep", phase_barriers=barriers)
    assert len(requested.requests) == 1 + 2 + 4, "another item is answered and judged anew"


@pytest.mark.process
def test_scores_that_mix_two_configurations_say_so(tmp_path: Path) -> None:
    lab = finished(tmp_path)
    parameters(lab, 1, "judge", temperature=0.3)
    kept = lab.run(continue_run=True, changed="keep")
    assert kept.summary is not None
    mixed = 'of another configuration, but counted: 6 evaluations; changed="redo" regenerates them'
    assert kept.summary.notes == [mixed]
    assert kept.results().notes == open_run(lab.path).results().notes == (mixed,)
    lab.settings["quota"] = {"ann": {"max_calls": 14}}  # 1 + 3 + 6 of the first start, and 4 more
    part = lab.run(continue_run=True, changed="redo")
    assert part.summary is not None
    assert part.summary.notes == [mixed.replace("6", str(part.summary.phases["evaluation"].missing))]
    lab.settings.clear()
    whole = lab.run(continue_run=True, changed="redo")
    assert (whole.exit_code, whole.summary and whole.summary.notes) == (0, [])
    assert open_run(lab.path).results().notes == ()


def test_recipes_that_cannot_be_read_are_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = finished(tmp_path)
    recipes = lab.path / "recipes.json"
    recipes.write_text("")
    lab.tasks[0]["sampling"]["total"] += 1
    requested = listen(monkeypatch)
    with pytest.raises(StoreError, match=r"recipes\.json is damaged"):
        lab.run(continue_run=True)
    assert requested.requests == []
    recipes.unlink()
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
