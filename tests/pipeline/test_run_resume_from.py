"""resume_from: another run's artifacts, under a new id."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import cast

import pytest
from pipeline.experiments import FOLDERS, PHASES, Lab, content, listen, model, task
from rich.console import Console

from coeval.api import Run, load_config, open_run, run
from coeval.cli.views.results_view import print_results
from coeval.core.errors import UsageError
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.run_options import RunOptions

ROOT = Path(__file__).resolve().parents[2]
LEGACY = ROOT.parent / "shared" / "reference" / "legacy_run"
legacy = pytest.mark.skipif(not LEGACY.is_dir(), reason=f"the run in an older layout is not at {LEGACY}")


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples of the running guide, their models simulated, and the first of them run."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2, 5):
        text = (ROOT / "examples" / f"summarise-v{number}.yaml").read_text()
        Path(f"v{number}.yaml").write_text(text.replace("interface: openai", "interface: simulated"))
    assert run("v1.yaml").exit_code == 0
    return tmp_path / "eval_runs"


def test_example_2_goes_on_under_another_id(guide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted v1, models and tasks inherited: only what is missing is made."""
    responses = next((guide / "summarise-v1" / FOLDERS["response_collection"]).iterdir())
    lines = responses.read_text().splitlines(keepends=True)
    responses.write_text("".join(lines[:4]))
    evaluations = next((guide / "summarise-v1" / FOLDERS["evaluation"]).iterdir())
    evaluations.write_text("".join(evaluations.read_text().splitlines(keepends=True)[:3]))
    before = {path: path.read_bytes() for path in (guide / "summarise-v1").rglob("*") if path.is_file()}
    requested = listen(monkeypatch)
    assert run("v2.yaml").exit_code == 0
    assert requested.phases() == (0, 0, 0, 6, 7)
    assert (
        (guide / "summarise-v2" / FOLDERS["response_collection"] / responses.name)
        .read_text()
        .startswith("".join(lines[:4]))
    )
    assert {path: path.read_bytes() for path in before} == before, "the source is only read"
    meta = json.loads((guide / "summarise-v2" / "meta.json").read_text())
    assert (meta["resume_from"], meta["status"]) == ("summarise-v1", "completed")
    requested.clear()
    assert run("v2.yaml", continue_run=True).exit_code == 0
    assert requested.requests == []


def test_example_3_adds_a_student_and_nothing_else(guide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = listen(monkeypatch)
    result = run("v5.yaml")
    assert result.exit_code == 0
    assert requested.phases() == (0, 0, 0, 10, 10)
    students = {r.student_model_id for r in result.records("response_collection")}
    assert students == {"gpt4o", "llama3-8b"}, "the older student's answers are taken over"
    names = [path.name for path in sorted((guide / "summarise-v5").glob("phase4_responses/*"))]
    assert names == ["summarise.gpt4o.responses.jsonl", "summarise.llama3-8b.responses.jsonl"]


@pytest.mark.process
def test_example_3_has_one_table_however_it_was_last_started(guide: Path) -> None:
    """The student and the judge that were taken over count before and after a start that does nothing."""
    judge = "  - {name: jud, interface: simulated, roles: [judge], parameters: {severity: 0.9}}\n"
    Path("v1.yaml").write_text(Path("v1.yaml").read_text().replace("\ntasks:", f"\n{judge}\ntasks:"))
    assert run("v1.yaml", continue_run=True).exit_code == 0
    table = shown(run("v5.yaml"))
    assert re.search(r"^ *gpt4o +\d\d\.\d", table, re.MULTILINE), table
    assert "removed" not in table
    assert "in no mean:" not in table
    assert shown(run("v5.yaml", continue_run=True)) == table
    alone = open_run(guide / "summarise-v5").results()
    [old] = [score for score in alone.students if (score.student, score.task) == ("gpt4o", None)]
    assert old.valid_evals == 10 * 2 * 2, "both judges are in its mean"


def shown(result: Run) -> str:
    console = Console(file=io.StringIO(), width=100)
    print_results(result.results(), console)
    return cast("io.StringIO", console.file).getvalue()


def test_phases_1_and_2_alone_are_taken_over_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = task(target_attributes="auto", rubric="auto")
    Lab(tmp_path, [model("ann")], [auto], id="old").run()
    lab = Lab(tmp_path, [model("ann")], [auto], {"resume_from": "old", "seed": 1})
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.phases() == (0, 0, 3, 3, 3)
    for name in ("phase1_attributes/story_target_attrs.json", "phase2_rubric/story.rubric.json"):
        assert (lab.path / name).read_bytes() == (tmp_path / "runs" / "old" / name).read_bytes()


def test_models_and_tasks_are_inherited_and_a_path_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Lab(tmp_path / "elsewhere", [model("ann")], id="old")
    old.folder.mkdir()
    old.run()
    phases = dict.fromkeys(PHASES, "Extend")
    lab = Lab(tmp_path, [], [], {"resume_from": str(old.path), "phases": phases})
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.requests == []
    assert content(lab) == content(old)


def test_resume_on_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    for name in ("first", "second"):
        Lab(tmp_path, [model("ann")], [task(name)], id=name).run()
    lab = Lab(tmp_path, [], [], {"resume_from": "first"})
    assert [t.name for t in load_config(lab.file).tasks] == ["first"]
    assert [t.name for t in read_config(lab.file, resume_from="second").config.tasks] == ["second"]


def test_changed_records_are_refused_before_they_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lab(tmp_path, [model("ann")], id="old").run()
    phases = dict.fromkeys(PHASES, "Extend")
    lab = Lab(tmp_path, [model("ann", temperature=0.2)], settings={"resume_from": "old", "phases": phases})
    with pytest.raises(UsageError, match=r"runs/old holds 9 records.*\n.*models.ann.parameters.temperature"):
        lab.run()
    assert not (lab.path / "meta.json").exists()
    assert not list(lab.path.glob("phase*"))
    requested = listen(monkeypatch)
    assert lab.run(changed="redo").exit_code == 0
    assert requested.phases() == (0, 0, 3, 3, 3)


@pytest.mark.parametrize("barriers", [False, True])
def test_taken_over_answers_to_items_that_are_made_anew_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, barriers: bool
) -> None:
    """Their ids are the same, the items are not."""
    Lab(tmp_path, [model("ann")], id="old").run()
    phases = {"data_generation": "New", "response_collection": "Extend", "evaluation": "Extend"}
    lab = Lab(tmp_path, [model("ann")], settings={"resume_from": "old", "phases": phases, "seed": 1})
    requested = listen(monkeypatch)
    assert lab.run(phase_barriers=barriers).exit_code == 0
    assert requested.phases() == (0, 0, 3, 3, 3)
    items, responses = lab.records("data_generation"), lab.records("response_collection")
    assert all(r["input"] == items[r["datapoint_id"]]["prompt"] for r in responses.values())


def test_an_extended_rubric_begins_with_that_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lab(tmp_path, [model("ann")], [task()], id="old").run()
    lab = Lab(tmp_path, [model("ann")], [task(rubric="extend")], {"resume_from": "old"})
    expected = forecast_start(load_config(lab.file), RunOptions())
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.phases() == (0, 1, 3, 3, 3)
    assert expected.total.low == expected.total.high == 10
    rubric = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    assert list(rubric)[:2] == ["plot", "style"]
    assert len(rubric) > 2
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []


def older(folder: Path) -> Lab:
    """An experiment on the run in an older layout, its models simulated."""
    shutil.copytree(LEGACY, folder / "runs" / "legacy-sample")
    models = [
        model("alpha-1.5", "teacher", "student", "judge"),
        model("beta", "teacher", "student", "judge"),
        model("gamma.small", "student"),
    ]
    rubrics = {
        "haiku_writing": {"form": "Keeps the 5-7-5 form.", "imagery": "Shows one concrete image."},
        "unit_conversion": {"accuracy": "The number is right.", "clarity": "The working is shown."},
    }
    attributes = {
        name: json.loads((LEGACY / f"phase1_attributes/{name}.target_attrs.json").read_text())
        for name in rubrics
    }
    tasks = [
        task(name, total=6, rubric=rubric, target_attributes=attributes[name])
        for name, rubric in rubrics.items()
    ]
    return Lab(folder, models, tasks, id="new")


@pytest.mark.process
@legacy
def test_an_older_layout_is_converted_and_its_gaps_are_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = older(tmp_path)
    phases = {"data_generation": "Keep", "response_collection": "Extend", "evaluation": "Extend"}
    lab.settings = {"resume_from": "legacy-sample", "phases": phases}
    expected = forecast_start(load_config(lab.file), RunOptions())
    requested = listen(monkeypatch)
    result = lab.run()
    assert result.exit_code == 0
    assert requested.phases()[:3] == (0, 0, 0)
    assert 0 < requested.phases()[3] < len(lab.records("response_collection"))
    assert 0 < requested.phases()[4] < len(lab.records("evaluation"))
    assert (expected.total.low, expected.total.high) == (sum(requested.phases()),) * 2
    assert {line["student_model_id"] for line in lab.records("evaluation").values()} == {
        "alpha-1.5",
        "beta",
        "gamma.small",
    }
    assert result.results().students
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []


@legacy
def test_an_older_layout_is_not_continued_in_place(tmp_path: Path) -> None:
    lab = older(tmp_path)
    lab.id = "legacy-sample"
    with pytest.raises(UsageError, match=r"older layout.*experiment\.resume_from"):
        lab.run(continue_run=True)
    names = {path.relative_to(lab.path) for path in lab.path.rglob("*")}
    assert names == {path.relative_to(LEGACY) for path in LEGACY.rglob("*")}
