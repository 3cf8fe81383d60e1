"""Variants of a prompt: `name@variant` are students of one model, answered on the same items."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, calls, content, listen, model, quiz, task

import coeval
from coeval.api import load_config
from coeval.core.errors import ConfigError

TEA = model("tea", "teacher")
TWO: dict[str, Any] = {
    "plain": {},
    "kind": {
        "system_prompt": "Be kind.",
        "prompt": "Politely: {input}",
        "parameters": {"temperature": 0.1, "skill": 0.9},
    },
}


def varied(variants: dict[str, Any] = TWO, **parameters: Any) -> dict[str, Any]:
    return model("ben", **parameters) | {"variants": variants}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """1 teacher and a model in all roles, whose answers two variants of its prompt give."""
    return Lab(tmp_path, [TEA, varied()], [task(total=3)])


def test_variants_answer_the_same_items_and_are_judged(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, requested = calls(lab), listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.phases() == counted == (0, 0, 6, 12, 12)
    answers = lab.records("response_collection")
    assert {(a["datapoint_id"], a["student_model_id"]) for a in answers.values()} == {
        (item, f"ben@{variant}") for item in lab.records("data_generation") for variant in TWO
    }
    assert all(key == f"{a['datapoint_id']}__{a['student_model_id']}" for key, a in answers.items())
    asked = {
        request.call.key: request
        for _, request in requested.requests
        if request.purpose == "response_collection" and request.call is not None
    }
    for key, request in asked.items():
        words = [(message.role, message.content) for message in request.messages]
        if key.endswith("@kind"):
            assert words == [("system", "Be kind."), ("user", f"Politely: {answers[key]['input']}")]
            assert request.sampling.temperature == 0.1
        else:
            assert [role for role, _ in words] == ["user"]
            assert not words[0][1].startswith("Politely")
    assert requested.models() == {"tea", "ben"}, "both are one model"


def test_the_account_and_the_probe_are_the_models(lab: Lab) -> None:
    lab.settings["quota"] = {"ben": {"max_calls": 8}}
    run = lab.run()
    assert run.exit_code == 3
    usage = json.loads((lab.path / "usage.json").read_text())
    assert usage["models"].keys() == {"tea", "ben"}
    assert usage["models"]["ben"]["requests"] == 8
    probed = json.loads((lab.path / "probe_results.json").read_text())["models"]
    assert [each["name"] for each in probed] == ["tea", "ben"]


def test_a_variant_added_owes_its_answers_and_judgments_alone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run()
    before = content(lab)
    lab.models[1]["variants"]["brief"] = {"system_prompt": "Be brief."}
    counted, requested = calls(lab, continue_run=True), listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == counted == (0, 0, 0, 6, 6)
    after = content(lab)
    assert all(after[key] == record for key, record in before.items())
    assert all("ben@brief" in key for key in after.keys() - before.keys())


def test_a_changed_variant_is_named_and_only_it_is_made_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run()
    lab.models[1]["variants"]["kind"]["system_prompt"] = "Be very kind."
    with pytest.raises(coeval.UsageError, match=r"models\.ben@kind\.parameters\.system_prompt"):
        lab.run(continue_run=True)
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert requested.phases()[:4] == (0, 0, 0, 6)
    assert all("__ben@kind" in str(request.call) for _, request in requested.requests)


def test_a_variant_removed_is_marked_and_the_others_stay(lab: Lab) -> None:
    lab.run()
    del lab.models[1]["variants"]["kind"]
    run = lab.run(continue_run=True)
    removed = {score.student: score.removed for score in run.results().students}
    assert (bool(removed["ben@kind"]), bool(removed["ben@plain"])) == (True, False)


@pytest.mark.parametrize(("only", "added"), [("ben@kind", {"ben@kind"}), ("ben", {"ben@kind", "ben@brief"})])
def test_only_models_takes_a_variant_or_all_of_a_model(tmp_path: Path, only: str, added: set[str]) -> None:
    lab = Lab(tmp_path, [TEA, varied({"plain": {}}) | {"roles": ["student"]}, model("joe", "judge")])
    lab.run()
    lab.models[1]["variants"] |= {
        "kind": {"system_prompt": "Be kind."},
        "brief": {"prompt": "Short: {input}"},
    }
    lab.run(continue_run=True, only_models=[only])
    answers, judged = lab.records("response_collection"), lab.records("evaluation")
    assert {answer["student_model_id"] for answer in answers.values()} == {"ben@plain"} | added
    assert {each["student_model_id"] for each in judged.values()} == {"ben@plain"} | added


def test_a_task_may_have_a_template_for_one_variant(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.tasks[0]["prompt_library"] = {"test.ben@kind": "Mine: {input}", "test.ben": "All: {input}"}
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    begins = {
        str(request.call).split("__")[3]: request.messages[-1].content.split()[0]
        for _, request in requested.requests
        if request.purpose == "response_collection"
    }
    assert begins == {"ben@kind": "Mine:", "ben@plain": "All:"}


def test_what_a_prompt_is_worth_shows_in_the_scores(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [TEA, varied(skill=0.4) | {"roles": ["student"]}, model("joe", "judge")])
    lab.tasks = [task(total=30), quiz(total=30)]
    results = lab.run().results()
    means = {score.student: score.score or 0.0 for score in results.students if score.task == "story"}
    assert means["ben@kind"] > means["ben@plain"] + 0.3  # 0.9 against 0.4
    right = {label.student: label.correct for label in results.labels}
    assert right["ben@kind"] > right["ben@plain"]


@pytest.mark.parametrize(
    ("variants", "path", "rule"),
    [
        ({"a b": {}}, "variants.a b", "V-04"),
        ({"a@b": {}}, "variants.a@b", "V-04"),
        ({"a": {"sytem_prompt": "x"}}, "variants.a.sytem_prompt", "V-18"),
        ({"a": {"prompt": "{inputs} {input}"}}, "variants.a.prompt", "V-22"),
        ({"a": {"prompt": "Hello."}}, "variants.a.prompt", "V-35"),
        ({"a": {"parameters": {"noise": 0.5}}}, "variants.a.parameters.noise", "V-26"),
        ({"a": {"parameters": {"skill": 1.5}}}, "variants.a.parameters.skill", "V-21"),
        ({"a": {"parameters": {"api_key": "sk-0123456789abcdef0123"}}}, "variants.a.parameters", "V-26"),
    ],
)
def test_what_is_wrong_with_a_variant_is_said_where_it_stands(
    lab: Lab, variants: dict[str, Any], path: str, rule: str
) -> None:
    lab.models[1]["variants"] = variants
    with pytest.raises(ConfigError) as caught:
        load_config(lab.file)
    assert f"models[1].{path}" in str(caught.value)
    assert rule in str(caught.value)


def test_only_students_have_variants(lab: Lab) -> None:
    lab.models[1]["roles"] = ["judge"]
    lab.models.append(model("eve", "student"))
    with pytest.raises(ConfigError, match=r"variants  V-05  are prompts of a student"):
        load_config(lab.file)


def test_a_template_for_a_variant_is_inherited_with_its_task(lab: Lab) -> None:
    lab.tasks[0]["prompt_library"] = {"test.ben@kind": "Mine: {input}", "test.ben@gone": "Old: {input}"}
    lab.models[1]["variants"] = TWO | {"gone": {}}
    lab.run()
    heir = Lab(lab.folder, [TEA, varied()], [], {"resume_from": "exp"}, id="heir")
    assert load_config(heir.file).tasks[0].prompt_library == {"test.ben@kind": "Mine: {input}"}
