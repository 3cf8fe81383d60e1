"""The nuance an item was written with, as students and judges are told it, stored or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Asked, Lab, listen, model, task

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


def told(asked: Asked, purpose: str) -> list[str]:
    """What the models were told of the nuance in requests of a phase, in a fixed order."""
    texts = [r.messages[-1].content for _, r in asked.requests if r.purpose == purpose]
    return sorted(text.partition("<nuance>")[2].partition("</nuance>")[0] for text in texts)


@pytest.mark.parametrize("barriers", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_students_and_judges_are_told_what_the_teacher_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, barriers: bool
) -> None:
    lab = Lab(tmp_path, [model("ann")], tasks(store_nuanced=stored))
    asked = listen(monkeypatch)
    assert lab.run(phase_barriers=barriers).exit_code == 0
    given = told(asked, "data_generation")
    assert "none" not in given
    assert len(set(given)) > 3
    assert told(asked, "response_collection") == given
    assert told(asked, "evaluation") == given
    items = lab.records("data_generation").values()
    assert all(("sampled_nuanced_attributes" in item) == stored for item in items)


@pytest.mark.parametrize("proposed", [False, True])
def test_a_run_that_goes_on_knows_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proposed: bool
) -> None:
    lab = Lab(tmp_path, [model("ann"), model("ben", "teacher")], tasks())
    if proposed:
        lab.tasks[0]["nuanced_attributes"] = "auto"
    asked = listen(monkeypatch)
    lab.run()
    given = told(asked, "data_generation")
    for phase in ("response_collection", "evaluation"):
        for key in lab.records(phase):
            lab.lose(phase, key)
    asked.clear()
    lab.models.append(model("cat", "student"))
    assert lab.run(continue_run=True).exit_code == 0
    assert told(asked, "data_generation") == []
    assert told(asked, "response_collection") == told(asked, "evaluation") == sorted([*given, *given])
    other = Lab(tmp_path, [model("dan", "student")], lab.tasks, {"resume_from": "exp"}, id="other")
    other.settings["phases"] = {"data_generation": "Keep", "evaluation": "Keep"}
    asked.clear()
    other.run()
    assert told(asked, "response_collection") == given, "in another run, without the teachers"


def test_of_items_that_were_put_there_none_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exam = {"name": "exam", "interface": "benchmark", "roles": ["teacher"]}
    changes = {"category": "benchmark", "sampling": NUANCE["sampling"] | {"total": 1}}
    lab = Lab(tmp_path, [exam, model("ann", "student", "judge")], tasks(**changes))
    file = lab.path / "phase3_datapoints" / "story.exam.datapoints.jsonl"
    file.parent.mkdir(parents=True)
    item = {"id": "story__exam__00001", "task_id": "story", "teacher_model_id": "exam"}
    item |= {"sampled_target_attributes": {}, "prompt": "Why?"}  # type: ignore[dict-item]
    file.write_text(json.dumps(item) + "\n")
    asked = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert told(asked, "response_collection") == told(asked, "evaluation") == ["none"]


def test_of_items_of_another_plan_none_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's nuances have changed since: what these items were written with is not known."""
    lab = Lab(tmp_path, [model("ann")], tasks())
    lab.run()
    lab.tasks = tasks(nuanced_attributes={"weather": ["rain", "sun"]}, sampling={"nuance": [1], "total": 8})
    lab.models.append(model("cat", "student"))
    asked = listen(monkeypatch)
    lab.run(continue_run=True)
    old, new = told(asked, "response_collection")[:6], told(asked, "response_collection")[6:]
    assert old == ["none"] * 6
    assert len(new) == 4
    assert all(nuance.startswith("weather: ") for nuance in new)
