"""--overwrite moves what New phases hold, and what follows from it; all else stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import PHASES, Lab, content, listen, model, task

from coeval.core.errors import ModelUnavailable, UsageError
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.plan.forecast import forecast
from coeval.pipeline.run_options import RunOptions

CAST = [model("tea", "teacher"), model("ann", "student", "judge"), model("ben", "student", "judge")]
BLUEPRINT = {"attribute_mapping": "Keep", "rubric_mapping": "Keep"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A finished run of 3 items, 6 answers and 12 judgments, its attributes and rubric a teacher's."""
    made = Lab(tmp_path, CAST, [task(target_attributes="auto", rubric="auto")])
    assert made.run().exit_code == 0
    return made


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def requests(lab: Lab) -> dict[str, int]:
    usage: dict[str, Any] = json.loads((lab.path / "usage.json").read_text())["models"]
    return {name: counted["requests"] for name, counted in usage.items()}


def replaced(lab: Lab) -> Path:
    [path] = (lab.path / "replaced").iterdir()
    return path


def foretold(lab: Lab) -> int:
    expected = forecast(load_config(lab.file), RunOptions(overwrite=True)).total
    assert expected.low == expected.high
    return expected.low


def test_a_kept_blueprint_stays_and_calls_go_on_being_counted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, records, counted = tree(lab.path), content(lab), requests(lab)
    lab.settings |= {"phases": BLUEPRINT, "seed": 1}
    expected, asked = foretold(lab), listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert asked.phases() == (0, 0, 3, 6, 12)
    assert expected == 21
    assert content(lab).keys() == records.keys()
    assert content(lab) != records
    stays = [name for name in before if name.startswith(("phase1", "phase2"))]
    assert {name: tree(lab.path)[name] for name in stays} == {name: before[name] for name in stays}
    assert sum(requests(lab).values()) == sum(counted.values()) + 21 + 3, "three probes"
    moved = tree(replaced(lab))
    assert {name: moved[name] for name in moved if name.startswith("phase")} == {
        name: text for name, text in before.items() if name.startswith("phase") and name not in stays
    }
    assert moved["meta.json"] == before["meta.json"]
    assert moved["config.yaml"] == before["config.yaml"]


@pytest.mark.parametrize("mode", ["Keep", "Model", "Extend"])
def test_only_the_judgments_are_made_anew(lab: Lab, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    before = tree(lab.path)
    lab.settings["phases"] = BLUEPRINT | dict.fromkeys(PHASES[:2], mode)
    expected, asked = foretold(lab), listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert (expected, asked.phases()) == (12, (0, 0, 0, 0, 12))
    after = tree(lab.path)
    for name in before:
        if name.startswith(("phase3", "phase4", "recipes")):
            assert after[name] == before[name]
    assert [name for name in tree(replaced(lab)) if name.startswith("phase")] == [
        name for name in before if name.startswith("phase5")
    ]
    asked.clear()
    assert (lab.run(continue_run=True).exit_code, asked.requests) == (0, [])


@pytest.mark.parametrize(
    ("phase", "before"), [("response_collection", "data_generation"), ("evaluation", "response_collection")]
)
def test_what_was_made_from_records_that_are_made_anew_cannot_be_kept(
    lab: Lab, phase: str, before: str
) -> None:
    stood = content(lab)
    lab.settings["phases"] = BLUEPRINT | {before: "New", phase: "Keep"}
    with pytest.raises(UsageError, match=f"V-31.*{before}: New.*Extend"):
        lab.run(overwrite=True)
    assert content(lab) == stood
    lab.settings["phases"] |= {phase: "Extend"}
    assert lab.run(overwrite=True).exit_code == 0


def test_where_no_phase_is_new_nothing_moves(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(lab)
    lab.settings["phases"] = BLUEPRINT | dict.fromkeys(PHASES, "Extend")
    asked = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert (asked.requests, content(lab)) == ([], before)
    assert not (lab.path / "replaced").exists()


def test_a_ceiling_is_for_the_life_of_the_folder(lab: Lab) -> None:
    spent = requests(lab)["tea"]
    lab.settings["quota"] = {"tea": {"max_calls": spent + 2}}
    again = lab.run(overwrite=True)
    assert again.exit_code == 3
    assert requests(lab)["tea"] == spent + 2


def test_a_run_that_cannot_start_moves_nothing(lab: Lab) -> None:
    before = content(lab)
    lab.models[1] = model("ann", "student", "judge", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelUnavailable):
        lab.run(overwrite=True)
    assert content(lab) == before
    assert lab.meta()["status"] == "completed"
    assert not (lab.path / "replaced").exists()


def test_kept_records_of_another_configuration_are_refused_before_anything_moves(lab: Lab) -> None:
    before = tree(lab.path)
    lab.settings["phases"] = BLUEPRINT | {"data_generation": "Extend", "response_collection": "Extend"}
    lab.models[1]["parameters"]["temperature"] = 0.2
    with pytest.raises(UsageError, match=r"3 records of another configuration.*\n.*temperature"):
        lab.run(overwrite=True)
    after = tree(lab.path)
    assert all(after[name] == text for name, text in before.items() if name.startswith(("phase", "meta")))


def test_what_was_taken_over_and_has_given_way_is_inherited_no_more(lab: Lab) -> None:
    extend = BLUEPRINT | dict.fromkeys(PHASES, "Extend")
    heir = Lab(lab.folder, CAST, lab.tasks, {"resume_from": lab.id, "phases": extend}, "heir")
    assert heir.run().exit_code == 0
    names = json.loads((heir.path / "inherited.json").read_text())
    assert set(names) == {"rubric_mapping", *PHASES}
    heir.settings = {"phases": BLUEPRINT | {"data_generation": "Keep"}}
    assert heir.run(overwrite=True).exit_code == 0
    left = json.loads((heir.path / "inherited.json").read_text())
    assert left == {phase: names[phase] for phase in ("rubric_mapping", "data_generation")}
    heir.settings = {}
    assert heir.run(overwrite=True).exit_code == 0
    assert not (heir.path / "inherited.json").exists()
