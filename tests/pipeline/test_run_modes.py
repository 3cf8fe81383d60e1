"""New, Keep, Model and Extend: at which grain what exists counts as done, phase by phase."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pipeline.experiments import FOLDERS, PHASES, Lab, calls, content, listen, model, task

import coeval
from coeval.core.errors import ModelUnavailable, UsageError
from coeval.pipeline.config.schema import Mode, Phase
from coeval.pipeline.upkeep.repair import RepairOptions, repair_run
from coeval.reports.result_tables import Results
from coeval.store.rundir import RunDir

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
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    return requested.phases()[2:]


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
    requested = listen(monkeypatch)
    assert lab.run(phase_barriers=barriers).exit_code == 0
    assert requested.phases()[2:] == (2, 0, 0)
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases()[2:] == (0, 4, 8)


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
    requested = listen(monkeypatch)
    lab.run()
    assert requested.phases() == (1, 1, 3, 6, 12)
    requested.clear()
    assert again(lab, monkeypatch, modes("Keep", "Keep", "Keep")) == (0, 0, 0)
    anew = modes("New", "New", "New", blueprint="New")
    other = Lab(tmp_path, CAST, lab.tasks, {"resume_from": "source", "phases": anew}, id="anew")
    requested.clear()
    assert other.run().exit_code == 0
    assert requested.phases() == (1, 1, 3, 6, 12)


@pytest.mark.parametrize("phase", ["attribute_mapping", "rubric_mapping"])
def test_model_is_no_mode_of_phases_1_and_2(tmp_path: Path, phase: str) -> None:
    lab = Lab(tmp_path, settings={"phases": {phase: "Model"}})
    with pytest.raises(UsageError, match="V-08"):
        lab.run()


# --overwrite moves what New phases hold, and what follows from it; all else stays.
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


def test_a_kept_blueprint_stays_and_calls_go_on_being_counted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, records, counted = tree(lab.path), content(lab), requests(lab)
    lab.settings |= {"phases": BLUEPRINT, "seed": 1}
    expected, requested = calls(lab, overwrite=True), listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert requested.phases() == expected == (0, 0, 3, 6, 12)
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
    expected, requested = calls(lab, overwrite=True), listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert requested.phases() == expected == (0, 0, 0, 0, 12)
    after = tree(lab.path)
    for name in before:
        if name.startswith(("phase3", "phase4", "recipes")):
            assert after[name] == before[name]
    assert [name for name in tree(replaced(lab)) if name.startswith("phase")] == [
        name for name in before if name.startswith("phase5")
    ]
    requested.clear()
    assert (lab.run(continue_run=True).exit_code, requested.requests) == (0, [])


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
    requested = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert (requested.requests, content(lab)) == ([], before)
    assert not (lab.path / "replaced").exists()


def test_a_ceiling_is_for_the_life_of_the_folder(lab: Lab) -> None:
    spent = requests(lab)["tea"]
    lab.settings["quota"] = {"tea": {"max_calls": spent + 2}}
    again = lab.run(overwrite=True)
    assert again.exit_code == 3
    assert requests(lab)["tea"] == spent + 2


@pytest.mark.process
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


# A redo that fails never hides the good record: not from the plan, nor from whoever reads the run.


def finished(folder: Path, **changes: Any) -> Lab:
    models = [
        model("tea", "teacher"),
        model("ann", "student"),
        model("ben", "student"),
        model("jud", "judge"),
    ]
    lab = Lab(folder, models, [task(**changes)], {"probe_mode": "disable", "generation_retries": 1})
    assert lab.run().exit_code == 0
    return lab


def parameters(lab: Lab, name: str) -> dict[str, Any]:
    [found] = [entry["parameters"] for entry in lab.models if entry["name"] == name]
    values: dict[str, Any] = found
    return values


def redo_in_vain(lab: Lab, name: str) -> None:
    """Change a model, which then fails whatever it is asked; and take both back."""
    values = parameters(lab, name)
    before = dict(values)
    values |= {"temperature": 0.3, "failure_rate": 1.0}
    assert lab.run(continue_run=True, changed="redo").exit_code == 3
    values.clear()
    values.update(before)


def read_back(lab: Lab) -> tuple[Results, list[Any]]:
    """The scores, without what was paid and what is said of them, and every record that counts."""
    run = coeval.open_run(lab.path)
    return msgspec.structs.replace(run.results(), costs=(), notes=()), [
        record for phase in PHASES for record in run.records(phase)
    ]


@pytest.mark.process
@pytest.mark.parametrize("name", ["tea", "ann", "jud"])
def test_it_hides_nothing_in_any_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lab = finished(tmp_path)
    before, lines = read_back(lab), lab.counts()
    redo_in_vain(lab, name)
    assert sum(lab.counts()) > sum(lines), "the failures stand beside the good records"
    assert read_back(lab) == before
    [reported] = coeval.open_run(lab.path).results().notes
    assert "of another configuration" in reported, "than that which failed, and which the folder holds"
    counted = repair_run(RunDir(lab.path), RepairOptions(dry_run=True))
    assert sum(file.owed for file in counted.files) == 0
    requested = listen(monkeypatch)
    again = lab.run(continue_run=True)
    assert (again.exit_code, requested.requests) == (0, [])
    assert lab.meta()["status"] == "completed"


def test_status_counts_the_good_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from coeval.cli.commands.status import status

    lab = finished(tmp_path)
    redo_in_vain(lab, "ann")
    status(lab.path)
    shown = capsys.readouterr().out
    assert re.search(r"response_collection +\S+ +6 +6 +0 +0 *$", shown, re.MULTILINE)


@pytest.mark.process
def test_a_run_that_takes_over_takes_the_good_one(tmp_path: Path) -> None:
    lab = finished(tmp_path)
    before = read_back(lab)
    redo_in_vain(lab, "jud")
    heir = Lab(
        tmp_path, lab.models, lab.tasks, lab.settings | {"phases": dict.fromkeys(PHASES, "Extend")}, "heir"
    )
    heir.settings["resume_from"] = lab.id
    assert heir.run().exit_code == 0
    assert read_back(heir) == before


def test_the_next_redo_asks_what_no_host_answered_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds move with replies that cannot be used, and there was none."""
    lab = finished(tmp_path)
    parameters(lab, "ann")["temperature"] = 0.3
    seeds: list[set[int | None]] = []
    for rate in (1.0, 0.0):
        parameters(lab, "ann")["failure_rate"] = rate
        requested = listen(monkeypatch)
        lab.run(continue_run=True, changed="redo")
        seeds.append({request.seed for name, request in requested.requests if name == "ann"})
    assert seeds[0] == seeds[1]
    assert len(seeds[0]) == 3


def test_a_factor_that_fails_to_join_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = finished(tmp_path, evaluation_mode="per_factor")
    before = {key: record["scores"] for key, record in lab.records("evaluation").items()}
    lab.tasks[0]["rubric"]["ending"] = "It ends well."
    parameters(lab, "jud")["failure_rate"] = 1.0
    assert lab.run(continue_run=True, changed="keep").exit_code == 3
    parameters(lab, "jud")["failure_rate"] = 0.0
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
    assert requested.phases() == (0, 0, 0, 0, 6), "only the new factor"
    joined = lab.records("evaluation")
    assert all(joined[key]["scores"].items() >= scores.items() for key, scores in before.items())
