"""New, Keep, Model and Extend: at which grain what exists counts as done, phase by phase."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import FOLDERS, PHASES, Lab, content, listen, model, task

from coeval.core.errors import UsageError
from coeval.pipeline.config.schema import Mode, Phase

CAST = [model("tea", "teacher"), model("ann", "student", "judge"), model("ben", "student", "judge")]
FILES: dict[Phase, str] = {
    "data_generation": "story.tea.datapoints.jsonl",
    "response_collection": "story.ann.responses.jsonl",
    "evaluation": "story.tea.ann.evaluations.jsonl",
}


def modes(*three: Mode, blueprint: Mode = "Keep") -> dict[str, Mode]:
    """Modes of all phases: 1–2 alike, then 3–5."""
    return {
        "attribute_mapping": blueprint,
        "rubric_mapping": blueprint,
        **dict(zip(PHASES, three, strict=True)),
    }


@pytest.fixture
def source(tmp_path: Path) -> Lab:
    """A finished run: 3 items, 2 students, 2 judges."""
    lab = Lab(tmp_path, CAST, [task(), task("essay")], id="source")
    assert lab.run().exit_code == 0
    return lab


def cut(lab: Lab, phase: Phase, lines: int) -> None:
    """Leave only the first lines of one file of the phase."""
    path = lab.path / FOLDERS[phase] / FILES[phase]
    kept = path.read_text().splitlines(keepends=True)[:lines]
    path.write_text("".join(kept))


def follow(lab: Lab, phase: Phase, field: str, of: Phase) -> None:
    """Leave only the records of the phase whose ``field`` names a record of the phase ``of``."""
    there = lab.records(of)
    for path in (lab.path / FOLDERS[phase]).glob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if json.loads(line)[field] in there))


def again(source: Lab, monkeypatch: pytest.MonkeyPatch, modes: dict[str, Mode]) -> tuple[int, ...]:
    """Go on from the source under another id; the calls that phases 3–5 made."""
    lab = Lab(source.folder, CAST, source.tasks, {"phases": modes, "resume_from": "source"}, id="again")
    asked = listen(monkeypatch)
    assert lab.run().exit_code == 0
    return asked.phases()[2:]


@pytest.mark.parametrize(
    ("left", "mode", "calls"),
    [
        (1, "Keep", (0, 0, 0)),
        (1, "Model", (0, 0, 0)),
        (1, "Extend", (2, 4, 8)),
        (0, "Keep", (3, 6, 12)),
        (0, "Model", (3, 6, 12)),
        (0, "Extend", (3, 6, 12)),
    ],
)
def test_phase_3_by_task_or_teacher_or_item(
    source: Lab, monkeypatch: pytest.MonkeyPatch, left: int, mode: Mode, calls: tuple[int, ...]
) -> None:
    """One item of three is left, or none."""
    cut(source, "data_generation", left)
    follow(source, "response_collection", "datapoint_id", "data_generation")
    follow(source, "evaluation", "datapoint_id", "data_generation")
    assert again(source, monkeypatch, modes(mode, "Extend", "Extend")) == calls


@pytest.mark.parametrize(
    ("left", "mode", "calls"),
    [
        (1, "Keep", (0, 0, 0)),
        (1, "Model", (0, 0, 0)),
        (1, "Extend", (0, 2, 4)),
        (0, "Keep", (0, 0, 0)),  # the task has the other student's
        (0, "Model", (0, 3, 6)),
        (0, "Extend", (0, 3, 6)),
    ],
)
def test_phase_4_by_task_or_student_or_response(
    source: Lab, monkeypatch: pytest.MonkeyPatch, left: int, mode: Mode, calls: tuple[int, ...]
) -> None:
    """One of a student's three responses is left, or none; what is new is judged by both judges."""
    cut(source, "response_collection", left)
    follow(source, "evaluation", "response_id", "response_collection")
    assert again(source, monkeypatch, modes("Extend", mode, "Extend")) == calls


@pytest.mark.parametrize(
    ("left", "mode", "calls"),
    [
        (2, "Keep", 0),
        (2, "Model", 3),
        (2, "Extend", 4),
        (0, "Keep", 0),  # the task has the other judge's
        (0, "Model", 6),
        (0, "Extend", 6),
    ],
)
def test_phase_5_by_task_or_student_and_judge_or_evaluation(
    source: Lab, monkeypatch: pytest.MonkeyPatch, left: int, mode: Mode, calls: int
) -> None:
    """Two of a judge's six evaluations are left, both of one student, or none."""
    path = source.path / FOLDERS["evaluation"] / FILES["evaluation"]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(sorted(lines, key=lambda line: json.loads(line)["student_model_id"])))
    cut(source, "evaluation", left)
    assert again(source, monkeypatch, modes("Extend", "Extend", mode)) == (0, 0, calls)


@pytest.mark.parametrize("phase", PHASES)
def test_a_kept_task_does_not_keep_another(
    source: Lab, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    """Keep is per task: a task without any record of the phase is done."""
    later = PHASES[PHASES.index(phase) :]
    for of in later:
        for path in (source.path / FOLDERS[of]).glob("essay.*"):
            path.unlink()
    kept = modes(*("Keep" if of == phase else "Extend" for of in PHASES))
    expected = tuple(count if of in later else 0 for of, count in zip(PHASES, (3, 6, 12), strict=True))
    assert again(source, monkeypatch, kept) == expected


@pytest.mark.parametrize("barriers", [False, True])
@pytest.mark.parametrize("mode", ["Keep", "Model"])
def test_what_is_kept_is_not_extended_by_new_items(
    source: Lab, monkeypatch: pytest.MonkeyPatch, mode: Mode, barriers: bool
) -> None:
    """Phase 3 grows, phase 4 is left as it is: the new items wait for another time."""
    tasks = [task(total=5), task("essay")]
    settings = {"resume_from": "source", "phases": modes("Extend", mode, "Extend")}
    lab = Lab(source.folder, CAST, tasks, settings, id="grown")
    asked = listen(monkeypatch)
    assert lab.run(phase_barriers=barriers).exit_code == 0
    assert asked.phases()[2:] == (2, 0, 0)
    asked.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert asked.phases()[2:] == (0, 4, 8)


def test_new_refuses_what_stands_there_and_overwrite_moves_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CAST)
    lab.run()
    before = content(lab)
    with pytest.raises(UsageError, match="V-11") as refusal:
        lab.run()
    assert all(way in str(refusal.value) for way in ("continue_run=True", "overwrite=True", "another id"))
    assert content(lab) == before
    lab.settings["seed"] = 1
    assert lab.run(overwrite=True).exit_code == 0
    assert content(lab).keys() == before.keys()
    assert content(lab) != before
    [replaced] = (lab.path / "replaced").iterdir()
    moved = Lab(tmp_path)
    moved.id = f"exp/replaced/{replaced.name}"
    assert content(moved) == before
    assert (replaced / "meta.json").exists()
    usage = json.loads((lab.path / "usage.json").read_text())["models"]
    assert usage["tea"]["requests"] == 2 * (3 + 1), "calls are counted for the life of the folder"


def test_phases_1_and_2_are_kept_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep leaves an artifact as it is, whatever the file says now; New asks again."""
    auto: dict[str, Any] = {"target_attributes": "auto", "rubric": "auto"}
    lab = Lab(tmp_path, CAST, [task(**auto)], id="source")
    asked = listen(monkeypatch)
    lab.run()
    assert asked.phases() == (1, 1, 3, 6, 12)
    asked.clear()
    assert again(lab, monkeypatch, modes("Keep", "Keep", "Keep")) == (0, 0, 0)
    anew = modes("New", "New", "New", blueprint="New")
    other = Lab(tmp_path, CAST, lab.tasks, {"resume_from": "source", "phases": anew}, id="anew")
    asked.clear()
    assert other.run().exit_code == 0
    assert asked.phases() == (1, 1, 3, 6, 12)


@pytest.mark.parametrize("phase", ["attribute_mapping", "rubric_mapping"])
def test_model_is_no_mode_of_phases_1_and_2(tmp_path: Path, phase: str) -> None:
    lab = Lab(tmp_path, settings={"phases": {phase: "Model"}})
    with pytest.raises(UsageError, match="V-08"):
        lab.run()
