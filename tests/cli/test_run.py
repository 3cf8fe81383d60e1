"""``coeval run`` and ``coeval status``: what is printed, what lies on disk, how it exits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cli.coeval_process import called
from cli.invoked import Command
from pipeline.experiments import FOLDERS, Lab, content, model

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart.yaml"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def lab(here: Path) -> Lab:
    return Lab(here, [model("tea", "teacher"), model("ann", "student", "judge")])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.process
def test_the_quickstart_from_end_to_end(here: Path, coeval: Command) -> None:
    first = coeval("run", "--config", QUICKSTART)
    assert first.code == 0
    run = here / "runs" / "quickstart"
    assert first.err.splitlines()[-1] == f"Artifacts: {run.relative_to(here)}"
    assert all(name in first.out for name in ("sim-large", "sim-medium", "sim-small"))
    layout_of_the_quickstart(run)
    fields_of_the_quickstart(run)
    meta = json.loads((run / "meta.json").read_text())
    assert meta["experiment_id"] == "quickstart"
    assert (meta["status"], meta["simulated"]) == ("completed", True)
    assert meta["phases_completed"] == [
        "attribute_mapping", "rubric_mapping", "data_generation", "response_collection", "evaluation",
    ]  # fmt: skip
    assert UTC.fullmatch(meta["created_at"])

    again = coeval("run", "--config", QUICKSTART)
    assert again.code == 1
    assert re.match(r".*quickstart\.yaml:\d+  experiment\.id  V-11  .*--continue.*--overwrite", again.err)
    before = {path: path.read_bytes() for path in run.glob("phase*/*")}
    going_on = coeval("run", "--config", QUICKSTART, "--continue")
    assert going_on.code == 0
    assert {path: path.read_bytes() for path in run.glob("phase*/*")} == before
    anew = coeval("run", "--config", QUICKSTART, "--overwrite")
    assert anew.code == 0
    [replaced] = (run / "replaced").iterdir()
    assert {replaced / path.relative_to(run): text for path, text in before.items()} == {
        path: path.read_bytes() for path in replaced.glob("phase*/*")
    }


def layout_of_the_quickstart(run: Path) -> None:
    """Every file that the running guide names, and no other."""
    models, tasks = ("sim-large", "sim-medium", "sim-small"), ("explain_concept", "ticket_triage")
    judges = {"explain_concept": models, "ticket_triage": (*models, "exact_match")}
    expected = {
        "meta.json", "config.yaml", "probe_results.json", "usage.json", "recipes.json", "run.log", ".lock",
        *(f"phase1_attributes/{t}_{kind}_attrs.json" for t in tasks for kind in ("target", "nuanced")),
        *(f"phase2_rubric/{t}.rubric.json" for t in tasks),
        *(f"phase3_datapoints/{t}.{m}.datapoints.jsonl" for t in tasks for m in models),
        *(f"phase4_responses/{t}.{m}.responses.jsonl" for t in tasks for m in models),
        *(f"phase5_evaluations/{t}.{m}.{j}.evaluations.jsonl"
          for t in tasks for m in models for j in judges[t]),
    }  # fmt: skip
    assert {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()} == expected
    rubric = json.loads((run / "phase2_rubric" / "ticket_triage.rubric.json").read_text())
    assert list(rubric) == ["team", "brevity"]


def fields_of_the_quickstart(run: Path) -> None:
    making = {"recipe", "usage", "latency_s", "attempts", "finish_reason"}
    items = lines(run / "phase3_datapoints" / "explain_concept.sim-small.datapoints.jsonl")
    assert [item["id"] for item in items] == [f"explain_concept__sim-small__{n:05}" for n in range(1, 13)]
    assert items[0].keys() == making | {
        "id", "task_id", "teacher_model_id", "sampled_target_attributes", "prompt", "reference_response",
        "generated_at",
    }  # fmt: skip
    answers = lines(run / "phase4_responses" / "explain_concept.sim-large.responses.jsonl")
    assert len(answers) == 36
    answer = next(answer for answer in answers if answer["datapoint_id"] == items[0]["id"])
    assert answer.keys() == making | {
        "id", "datapoint_id", "task_id", "teacher_model_id", "student_model_id", "input", "response",
        "generated_at", "input_hash",
    }  # fmt: skip
    assert answer["id"] == "explain_concept__sim-small__00001__sim-large"
    assert answer["input"] == items[0]["prompt"]
    judged = lines(run / "phase5_evaluations" / "explain_concept.sim-small.sim-large.evaluations.jsonl")
    assert len(judged) == 36
    evaluation = next(record for record in judged if record["response_id"] == answer["id"])
    identity = {"id", "response_id", "datapoint_id", "task_id", "teacher_model_id", "student_model_id"}
    assert evaluation.keys() == making | identity | {
        "judge_model_id", "scores", "criteria", "reasons", "evaluated_at", "input_hash", "raw",
    }  # fmt: skip
    assert evaluation["id"] == f"{answer['id']}__sim-large"
    assert set(evaluation["scores"].values()) <= {"High", "Medium", "Low"}
    assert set(evaluation["usage"]) >= {"input_tokens", "output_tokens"}
    assert UTC.fullmatch(evaluation["evaluated_at"])
    labels = lines(run / "phase5_evaluations" / "ticket_triage.sim-small.exact_match.evaluations.jsonl")
    assert labels[0].keys() == identity | {
        "judge_model_id", "scores", "label_scores", "evaluated_at", "input_hash", "recipe",
    }  # fmt: skip
    assert labels[0]["label_scores"]["team"].keys() == {"expected", "predicted", "match"}
    brief = lines(run / "phase5_evaluations" / "ticket_triage.sim-small.sim-large.evaluations.jsonl")
    assert all(set(record["scores"]) == {"brevity"} for record in brief), "the label is not judged"


@pytest.mark.process
def test_gaps_are_told_with_their_reason_and_the_command_that_fills_them(lab: Lab, coeval: Command) -> None:
    lab.settings["quota"] = {"ann": {"max_calls": 1 + 3}}
    ended = coeval("run", "--config", lab.file)
    assert ended.code == 3
    assert "warning: Some requested records are missing:" in ended.err
    assert re.search(r"evaluation +3 +\d +[1-3] +\d not requested: quota", ended.err)
    assert "experiment.quota.ann.max_calls" in ended.err
    assert "First raise the limits that the warnings above name.\nAfter that: coeval run " in ended.err
    assert f"After that: coeval run --config {lab.file} --continue" in ended.err
    status = coeval("status", "--run", lab.path)
    assert status.code == 0
    way_on = "Raise these limits first: experiment.quota.ann.max_calls.\nAfter that: coeval run "
    assert way_on in status.out
    assert "exp: incomplete (simulated models)" in status.out
    lab.settings["quota"] = {"ann": {"max_calls": 50}}
    assert coeval("run", "--config", lab.file, "--continue").code == 0
    assert "exp: completed" in coeval("status", "--run", lab.path).out


@pytest.mark.process
def test_failures_are_shown_by_status(lab: Lab, coeval: Command) -> None:
    lab.models[1]["parameters"]["failure_rate"] = 1
    ended = coeval("run", "--config", lab.file, "--probe", "disable")
    assert ended.code == 3
    assert "3 failed: server" in ended.err
    assert "3 wait for what they need" in ended.err
    status = coeval("status", "--run", lab.path)
    assert re.search(r"response_collection +ann +server +3", status.out)
    assert "Last 3:" in status.out
    assert "story__tea__00001__ann" in status.out


@pytest.mark.process
def test_a_changed_configuration_needs_a_word(lab: Lab, coeval: Command) -> None:
    assert coeval("run", "--config", lab.file).code == 0
    lab.models[1]["role_parameters"] = {"judge": {"temperature": 0.1}}
    refused = coeval("run", "--config", lab.file, "--continue")
    assert refused.code == 1
    assert "models.ann.parameters.temperature (judge) (evaluations): 3" in refused.err
    assert "Traceback" not in refused.err
    assert coeval("run", "--config", lab.file, "--continue", "--keep-changed").code == 0
    assert coeval("run", "--config", lab.file, "--continue", "--redo-changed").code == 0
    assert coeval("run", "--config", lab.file, "--continue").code == 0


@pytest.mark.parametrize(
    "flags",
    [("--continue", "--overwrite"), ("--continue", "--resume", "old"), ("--redo-changed", "--keep-changed")],
)
def test_flags_that_exclude_each_other(lab: Lab, coeval: Command, flags: tuple[str, ...]) -> None:
    ended = coeval("run", "--config", lab.file, *flags)
    assert ended.code == 1
    assert "exclude each other" in ended.err
    assert not lab.path.exists()


@pytest.mark.process
def test_resume_takes_over_another_run(lab: Lab, coeval: Command) -> None:
    assert coeval("run", "--config", lab.file).code == 0
    second = Lab(lab.folder, lab.models, lab.tasks, id="second")
    second.settings["phases"] = {"data_generation": "Keep", "response_collection": "Extend"}
    ended = coeval("run", "--config", second.file, "--resume", "exp")
    assert ended.code == 0
    assert "reused" in ended.err
    assert (lab.counts(), second.counts()) == ((3, 3, 3), (3, 3, 3))
    assert second.lines("data_generation") == lab.lines("data_generation")


@pytest.mark.process
def test_only_models_are_named_with_commas(lab: Lab, coeval: Command) -> None:
    lab.models += [model("cat", "student"), model("dan", "student"), model("eve", "student")]
    assert coeval("run", "--config", lab.file, "--only-models", "cat, dan").code == 0
    assert lab.counts() == (0, 0, 0), "no item is theirs to write"
    assert coeval("run", "--config", lab.file, "--continue", "--only-models", "tea,cat").code == 0
    assert lab.counts() == (3, 12, 12)


def own_items(here: Path, *items: str) -> Lab:
    """A task whose items are one's own, of which so many are there."""
    exam = {"name": "exam", "interface": "benchmark", "roles": ["teacher"], "parameters": {"task": "story"}}
    lab = Lab(here, [exam, model("ann", "student", "judge")])
    path = lab.path / "phase3_datapoints" / "story.exam.datapoints.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(items))
    return lab


@pytest.mark.process
def test_items_of_ones_own_are_counted_read_and_what_lacks_is_told(here: Path, coeval: Command) -> None:
    lab = own_items(here, '{"id": 1, "prompt": "One?"}', "", '{"id": 2, "prompt": "Two?", "answer": "2"}')
    counted = coeval("run", "--config", lab.file, "--dry-run")
    words = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)  # whose log is its own
    assert (counted.code, ended.returncode) == (0, 3)
    assert "4 calls, excluding probes" in counted.out
    for shown in (counted.err, ended.stderr):
        assert "story.exam.datapoints.jsonl:2: the line is blank" in shown
        assert shown.count("story.exam.datapoints.jsonl:3: the field `answer` is not used") == 1
        assert "story.exam.datapoints.jsonl holds 2 of the 3 items that sampling.total requires" in shown
    assert re.search(r"data_generation +3 +2 +1 +1 not supplied", ended.stderr)
    assert "ann" in ended.stdout


def test_items_that_cannot_be_used_end_a_run_before_it_starts(here: Path, coeval: Command) -> None:
    lab = own_items(here, '{"id": 1, "task_id": "essay", "prompt": "One?"}')
    for words in ([], ["--dry-run"]):
        ended = coeval("run", "--config", lab.file, *words)
        assert ended.code == 1
        assert 'story.exam.datapoints.jsonl:1: its `task_id` is "essay"' in ended.err
        assert "--overwrite" not in ended.err
    shown = coeval("status", "--run", lab.path)
    assert "your items are read when the run starts" in shown.out


def test_a_new_run_of_models_that_can_do_nothing_yet_is_refused_and_moves_nothing(
    lab: Lab, coeval: Command
) -> None:
    lab.run()
    before = lab.counts()
    ended = coeval("run", "--config", lab.file, "--overwrite", "--only-models", "ann")
    assert ended.code == 1
    assert "--only-models ann leaves nothing to do" in ended.err
    assert lab.counts() == before
    assert not (lab.path / "replaced").exists()


@pytest.mark.process
def test_records_without_a_meta_json_are_told_how_they_can_be_saved(lab: Lab, coeval: Command) -> None:
    lab.run()
    (lab.path / "meta.json").unlink()
    ended = coeval("run", "--config", lab.file, "--continue")
    assert ended.code == 1
    assert f"resume_from: {lab.path}" in ended.err
    original, lab.id = lab.path, "saved"
    flowing = ("data_generation", "response_collection", "evaluation")
    lab.settings |= {"resume_from": str(original), "phases": dict.fromkeys(flowing, "Extend")}
    assert "0 calls" in coeval("run", "--config", lab.file, "--dry-run").out
    assert coeval("run", "--config", lab.file).code == 0


@pytest.mark.process
def test_the_way_on_is_the_way_it_began(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("tea", "teacher", "student"), model("jud", "judge")])
    lab.run()
    lab.models[1]["parameters"] = {"failure_rate": 1.0}
    lab.settings["probe_mode"] = "disable"
    lab.tasks[0]["rubric"]["plot"] = "Another criterion."
    ended = coeval("run", "--config", lab.file, "--continue", "--redo-changed")
    assert ended.code == 3
    assert f"Fill the gaps with: coeval run --config {lab.file} --continue --redo-changed\n" in ended.err
    assert f"What failed, and why: coeval status --run {lab.path}\n" in ended.err


def test_debug_shows_where_an_error_comes_from(here: Path, coeval: Command) -> None:
    lab = Lab(here)
    arguments = ("run", "--config", lab.file, "--only-models", "nobody")
    assert "Traceback" not in coeval(*arguments).err
    assert "Traceback" in coeval(*arguments, "--log-level", "DEBUG").err


@pytest.mark.process
def test_a_move_that_was_cut_short_is_finished_by_the_next_start(lab: Lab, coeval: Command) -> None:
    """As a kill between two renames leaves it: the judgments are gone, the rest still stands."""
    lab.run()
    before = content(lab)
    gone = [path.name for path in lab.path.iterdir() if path.name.startswith(("phase", "meta"))]
    step = {"to": "replaced/then", "move": gone, "copy": []}
    moved = lab.path / "replaced" / "then"
    moved.mkdir(parents=True)
    (lab.path / FOLDERS["evaluation"]).rename(moved / FOLDERS["evaluation"])
    (lab.path / ".replacing.json").write_text(json.dumps(step))
    refused = coeval("run", "--config", lab.file, "--continue")
    assert refused.code == 1
    assert re.search(r"there is no run in .* to continue", refused.err)
    old = Lab(lab.folder, id=f"{lab.id}/replaced/then")
    assert content(old) == before
    assert coeval("run", "--config", lab.file).code == 0
    assert content(lab).keys() == before.keys()


@pytest.mark.process
async def test_a_run_of_a_parquet_table_ends_without_a_word_on_what_duckdb_leaves(tmp_path: Path) -> None:
    rows = "SELECT 'How much is ' || range || '?' AS q, 'good' AS mood FROM range(3)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path}/reviews.parquet'")
    items = {"path": "reviews.parquet", "prompt": "q", "label": "mood"}
    lab = Lab(tmp_path, [model("ann", "student")], [{"name": "t", "description": "Rate it.", "items": items}])
    done = await called(tmp_path, "run", "--config", lab.file)
    assert done.code == 0, done.err
    assert "leaked" not in done.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("run", "three.yaml"), "did you mean coeval run --config three.yaml?"),
        (("run", "my file.yaml", "--dry-run"), "did you mean coeval run --config 'my file.yaml'?"),
        (("probe", "three.yaml"), "did you mean coeval probe --config three.yaml?"),
    ],
)
def test_a_file_without_its_option_is_told_how_it_is_given(
    words: tuple[str, ...], hint: str, coeval: Command
) -> None:
    done = coeval(*words)
    assert (done.code, done.out) == (1, "")
    assert hint in done.err
