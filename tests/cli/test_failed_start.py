"""A start that fails leaves the folders as they were, and can be repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

NOBODY = "http://127.0.0.1:9/v1"


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def lab(here: Path) -> Lab:
    return Lab(here, [model("tea", "teacher"), model("ann", "student", "judge")])


def hosted(lab: Lab, **changes: object) -> None:
    lab.models[1] |= {"interface": "openai", "parameters": {"model": "gpt-4o-mini"}, **changes}


def test_a_wrong_file_a_missing_key_and_an_unknown_name_create_nothing(lab: Lab, coeval: Command) -> None:
    file = lab.file
    before = below(lab.folder)
    assert coeval("run", "--config", file, "--only-models", "nobody").code == 1
    assert below(lab.folder) == before
    lab.tasks[0]["sampling"]["total"] = -1
    assert coeval("run", "--config", lab.file).code == 1
    lab.tasks[0]["sampling"]["total"] = 3
    hosted(lab)
    assert coeval("run", "--config", lab.file).code == 1
    assert coeval("run", "--config", lab.file, "--overwrite").code == 1
    lab.settings["quota"] = {"tea": {"max_cost_usd": 1.0}}
    assert coeval("run", "--config", lab.file).code == 1
    assert below(lab.folder) == before


def test_a_failed_probe_leaves_what_it_found_and_what_it_spent(lab: Lab, coeval: Command) -> None:
    """Requests count towards a ceiling whether or not the run began. No lock lies about."""
    hosted(lab, parameters={"model": "m", "base_url": NOBODY}, access_key="sk-1")
    lab.models[1]["interface"] = "vllm"
    assert coeval("run", "--config", lab.file).code == 2
    assert below(lab.path) == {"probe_results.json", "usage.json", "run.log"}


def test_what_stood_before_a_failed_start_stands_as_it_did(lab: Lab, coeval: Command) -> None:
    lab.run()
    before = below(lab.path)
    lab.models[1]["parameters"]["failure_rate"] = 1
    assert coeval("run", "--config", lab.file, "--overwrite").code == 2
    assert below(lab.path) == before
    assert coeval("status", "--run", lab.path).code == 0


def test_what_a_run_in_an_older_layout_gave_is_told_in_words(here: Path, coeval: Command) -> None:
    """Evaluations without a student are of the older layout; a line that is no record is pointed at."""
    old = Lab(here, [model("ann")], [task(total=2)], id="old")
    old.run()
    [path] = (old.path / "phase5_evaluations").glob("*.jsonl")
    path.write_text(path.read_text().replace('"student_model_id":"ann",', "") + "garbage\n")
    (old.path / "meta.json").unlink()
    names = old.path / "phase1_attributes"
    (names / "story_target_attrs.json").rename(names / "story.target_attrs.json")
    new = Lab(here, [model("ann")], [task(total=2)], id="new")
    new.settings = {
        "resume_from": "old",
        "phases": {"data_generation": "Keep", "response_collection": "Keep", "evaluation": "Extend"},
    }
    ended = coeval("run", "--config", new.file)
    assert ended.code == 0
    told = ended.err
    assert "Converted(" not in told
    assert "converted from an older layout: 2 files of attribute_mapping, 1 file of rubric_mapping" in told
    assert "2 records of data_generation, 2 records of response_collection, 2 records of evaluation" in told
    assert "warning: 1 line is no record and was left out, the first at byte" in told


@pytest.mark.slow
def test_a_full_device_is_no_bug_of_ours(lab: Lab) -> None:
    lab.run()
    with Path("/dev/full").open("w") as full:
        shown = subprocess.run(
            [sys.executable, "-m", "coeval", "results", "--run", str(lab.path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert shown.returncode == 1
    assert "No space left on device" in shown.stderr
    assert "internal error" not in shown.stderr
