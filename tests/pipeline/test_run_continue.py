"""--continue: owed = planned − recorded, whatever was added to the file or taken out of it since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import PHASES, Lab, content, listen, model, quiz, task

TEA, ANN, BEN = model("tea", "teacher"), model("ann", "student", "judge"), model("ben", "student", "judge")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A finished run: 1 teacher × 3 items × 2 students × 2 judges."""
    lab = Lab(tmp_path, [TEA, ANN, BEN])
    assert lab.run().exit_code == 0
    return lab


def test_a_finished_run_owes_nothing_and_nobody_is_probed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before, requested = content(lab), listen(monkeypatch)
    lines, probes = lab.counts(), lab.path / "probe_results.json"
    probes.unlink()
    run = lab.run(continue_run=True)
    assert (run.exit_code, requested.requests, probes.exists()) == (0, [], False)
    assert (content(lab), lab.counts()) == (before, lines)
    assert lab.meta()["status"] == "completed"


@pytest.mark.parametrize("level", ["Great", "high"])
def test_a_score_that_is_none_of_the_levels_is_asked_for_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    key = "story__tea__00001__ann__ben"
    lab.edit("evaluation", key, scores={"plot": level, "style": "High"})
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert [name for name, _ in requested.requests] == ["ben"]
    assert set(lab.records("evaluation")[key]["scores"].values()) <= {"High", "Medium", "Low"}


def test_a_label_added_is_compared_in_every_answer_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, [TEA, ANN], [quiz(target_attributes={"colour": ["red"], "size": ["big", "small"]})])
    lab.tasks[0]["sampling"]["target"] = "all"
    lab.run()
    lab.tasks[0]["label_attributes"] = ["colour", "size"]
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []
    labels = [line["label_scores"] for line in lab.records("evaluation").values()]
    assert [set(scores) for scores in labels] == [{"colour", "size"}] * 3


def test_with_probe_mode_resume_only_models_with_work_are_probed(lab: Lab) -> None:
    probes = lab.path / "probe_results.json"
    assert [m["name"] for m in json.loads(probes.read_text())["models"]] == ["tea", "ann", "ben"]
    probes.unlink()
    lab.settings["probe_mode"] = "resume"
    lab.run(continue_run=True)
    assert not probes.exists(), "nobody has work, so nobody is probed"
    lab.models[1]["roles"] = ["student"]
    lab.models.append(model("cat", "judge"))
    assert lab.run(continue_run=True).exit_code == 0
    assert [m["name"] for m in json.loads(probes.read_text())["models"]] == ["cat"]


@pytest.mark.parametrize(
    ("added", "calls"),
    [
        (model("cat", "student"), (0, 0, 0, 3, 6)),
        (model("cat", "judge"), (0, 0, 0, 0, 6)),
        (model("cat", "teacher"), (0, 0, 3, 6, 12)),
        (model("cat"), (0, 0, 3, 3 + 9, 2 * 3 + 2 * 3 + 3 * 3 + 2 * 3 * 3)),
    ],
    ids=["student", "judge", "teacher", "all roles"],
)
def test_an_added_model_is_picked_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, added: dict[str, Any], calls: tuple[int, ...]
) -> None:
    lab.models.append(added)
    whole = Lab(lab.folder, lab.models, id="whole")
    whole.run()
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert (requested.phases()[:4], sum(requested.phases())) == (calls[:4], sum(whole.counts()) - 3 - 6 - 12)
    assert content(lab) == content(whole), "a run that grew is the run that was planned so from the start"


def test_an_added_task_and_a_larger_total_are_picked_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.tasks = [task(total=5), quiz(total=2)]
    whole = Lab(lab.folder, lab.models, lab.tasks, id="whole")
    whole.run()
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == (0, 0, 2 + 2, 4 + 4, 8)
    assert content(lab) == content(whole)


def test_a_smaller_total_takes_nothing_away(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.tasks = [task(total=1)]
    before, requested = content(lab), listen(monkeypatch)
    run = lab.run(continue_run=True)
    assert (run.exit_code, requested.requests, content(lab)) == (0, [], before)
    assert run.summary is not None
    assert [run.summary.phases[phase].planned for phase in PHASES] == [1, 2, 4]


@pytest.mark.parametrize("mode", ["single", "per_factor"])
def test_only_an_added_factor_is_asked_for(lab: Lab, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    first = {key: record["scores"] for key, record in lab.records("evaluation").items()}
    lab.tasks[0]["rubric"] = {"ending": "It ends well.", **lab.tasks[0]["rubric"]}
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == (0, 0, 0, 0, 12)
    questions = [request.messages[-1].content for _, request in requested.requests]
    assert all("It ends well." in text and "It reads well." not in text for text in questions)
    assert len(lab.lines("evaluation")) == 24, "one more record for each, the last of an id counts"
    for key, record in lab.records("evaluation").items():
        assert list(record["scores"]) == ["ending", "plot", "style"]
        assert record["scores"].items() >= first[key].items()
        assert set(record["criteria"]) == set(record["scores"])
        assert "missing" not in record
    rubric = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    assert set(rubric) == {"ending", "plot", "style"}


def test_what_was_removed_stays_on_disk_and_out_of_the_plan(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.models = [TEA, ANN]
    del lab.tasks[0]["rubric"]["style"]
    before, requested = content(lab), listen(monkeypatch)
    run = lab.run(continue_run=True)
    assert (run.exit_code, requested.requests, content(lab)) == (0, [], before)
    assert run.summary is not None
    assert [run.summary.phases[phase].planned for phase in PHASES] == [3, 3, 3]
    rubric = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    assert set(rubric) == {"plot", "style"}


def test_the_file_is_kept_as_it_was_at_each_start(lab: Lab) -> None:
    first = (lab.path / "config.yaml").read_text()
    lab.models[1]["access_key"] = "sk-very-secret"
    lab.tasks = [task(total=4)]
    lab.run(continue_run=True)
    assert "total: 4" in (lab.path / "config.yaml").read_text()
    assert "sk-very-secret" not in (lab.path / "config.yaml").read_text()
    assert [path.read_text() for path in lab.path.glob("config.*.yaml")] == [first]


def test_seeds_of_attributes_spoil_no_rubric(tmp_path: Path) -> None:
    """Seeds may grow on --continue; the rubric that teachers proposed stays what it is."""
    auto: dict[str, Any] = {"rubric": "auto", "nuanced_attributes": "auto"}
    lab = Lab(tmp_path, [model("ann")], [task(**auto, nuanced_attributes_seed={"tone": ["dry"]})])
    lab.run()
    rubric = (lab.path / "phase2_rubric" / "story.rubric.json").read_text()
    lab.tasks[0]["nuanced_attributes_seed"] = {"tone": ["dry", "warm"]}
    assert lab.run(continue_run=True).exit_code == 0
    assert (lab.path / "phase2_rubric" / "story.rubric.json").read_text() == rubric
    nuances = json.loads((lab.path / "phase1_attributes" / "story_nuanced_attrs.json").read_text())
    assert {"dry", "warm"} <= set(nuances["tone"])


def test_only_named_models_work_and_the_rest_is_not_called_done(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.models += [model("cat", "student"), model("dan", "judge")]
    requested = listen(monkeypatch)
    run = lab.run(continue_run=True, only_models=["cat"])
    assert run.exit_code == 0
    assert requested.phases()[2:] == (0, 3, 9), "cat's answers, judged by all three"
    assert run.summary is not None
    assert run.summary.missing == 0
    assert lab.meta()["status"] == "incomplete", "dan has not judged the others yet"
    assert "evaluation" not in lab.meta()["phases_completed"]
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases()[2:] == (0, 0, 6)
    assert lab.meta()["status"] == "completed"


def test_only_models_from_the_start_writes_for_the_named_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, [TEA, model("tom", "teacher"), ANN, BEN])
    requested = listen(monkeypatch)
    assert lab.run(only_models=["tom"]).exit_code == 0
    assert requested.phases()[2:] == (3, 6, 12)
    assert {line["teacher_model_id"] for line in lab.lines("data_generation")} == {"tom"}
    assert lab.meta()["status"] == "incomplete"
