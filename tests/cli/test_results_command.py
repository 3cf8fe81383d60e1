"""``coeval results``: the scores of a run again, in every shape, without asking anybody."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, quiz, task

import coeval as api


@pytest.fixture
def lab(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=4), quiz()])
    assert made.run().exit_code == 0
    return made


def test_the_table_is_that_of_the_run(lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    anew = coeval("run", "--config", lab.file, "--overwrite")
    asked = listen(monkeypatch)
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()}
    again = coeval("results", "--run", lab.path)
    assert (again.code, again.out, again.err) == (0, anew.out, "")
    assert asked.requests == []
    assert {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()} == before


def test_json_is_what_python_gives(lab: Lab, coeval: Command) -> None:
    found = json.loads(coeval("results", "--run", lab.path, "--json").out)
    assert found == json.loads(json.dumps(api.open_run(lab.path).results().as_dict()))
    assert {score["student"] for score in found["students"]} == {"ann", "ben"}


def test_csv_has_a_line_for_each_score_and_each_accuracy(lab: Lab, coeval: Command) -> None:
    rows = list(csv.DictReader(coeval("results", "--run", lab.path, "--csv").out.splitlines()))
    assert [(row["measure"], row["task"], row["student"]) for row in rows[-2:]] == [
        ("label accuracy", "quiz", "ann"),
        ("label accuracy", "quiz", "ben"),
    ]
    found = api.open_run(lab.path).results()
    assert len(rows) == len(found.students) + len(found.labels)
    assert float(rows[0]["mean"]) == found.students[0].mean
    assert rows[-1]["mean"] == str(found.labels[-1].accuracy)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("factor", {"plot", "style"}),
        ("attribute", {"mood=glad", "mood=sad", "length=short", "length=long"}),
        ("judge", {"ann", "ben"}),
        ("teacher", {"ann", "ben"}),
    ],
)
def test_what_scores_are_made_of(lab: Lab, coeval: Command, by: str, names: set[str]) -> None:
    shown = coeval("results", "--run", lab.path, "--by", by)
    assert shown.code == 0
    assert f"Scores in story by {by}" in shown.out
    rows = [line.split() for line in shown.out.splitlines() if line.split()[0] in names]
    assert {row[0] for row in rows} == names
    assert all(row[1] in ("ann", "ben") for row in rows), "every row names its student"
    parts = json.loads(coeval("results", "--run", lab.path, "--by", by, "--json").out)["by"]
    assert {part["part"] for part in parts} == names
    assert all(part["n"] > 0 and part["low"] <= part["mean"] <= part["high"] for part in parts)
    table = list(csv.DictReader(coeval("results", "--run", lab.path, "--by", by, "--csv").out.splitlines()))
    assert [float(row["mean"]) for row in table] == [part["mean"] for part in parts]


def test_flags_that_exclude_each_other(lab: Lab, coeval: Command) -> None:
    assert "exclude each other" in coeval("results", "--run", lab.path, "--json", "--csv").err


def test_what_a_teacher_named_moves_no_cursor(lab: Lab, coeval: Command) -> None:
    """Names and values of attributes may be model-made."""
    value = {"=mood": "\x1b[2J\u202eglad"}
    lab.edit("data_generation", "story__ann__00001", sampled_target_attributes=value)
    for flags in ((), ("--json",), ("--csv",)):
        shown = coeval("results", "--run", lab.path, "--by", "attribute", *flags)
        assert shown.code == 0
        assert not {"\x1b", "\u202e"} & set(shown.out)
        formula = "\n=mood" in shown.out.replace(",", "\n")
        assert not formula or flags != ("--csv",), "no formula for a spreadsheet"
    [part] = [
        part
        for part in json.loads(coeval("results", "--run", lab.path, "--by", "attribute", "--json").out)["by"]
        if "\x1b" in part["part"] and part["student"] == "ann"
    ]
    assert part["part"] == "=mood=\x1b[2J\u202eglad"


def test_a_folder_that_is_no_run_is_told_with_the_runs_close_by(lab: Lab, coeval: Command) -> None:
    runs, other = lab.path.parent, lab.folder / "empty"
    other.mkdir()
    for command in (("results",), ("show",), ("status",), ("repair", "--dry-run")):
        ended = coeval(*command, "--run", runs)
        assert ended.code == 1
        assert f"{runs} is not a run folder" in ended.err
        assert f"there is: {lab.path}" in ended.err
        assert f"there is no folder {runs / 'epx'}" in coeval(*command, "--run", runs / "epx").err
        assert "is a file; a run is a folder" in coeval(*command, "--run", lab.file).err
        assert "there is: runs/exp" in coeval(*command, "--run", "exp").err, "an id is not a folder"
        assert coeval(*command, "--run", other).err.startswith(f"{other} is not a run folder: it holds no")


def test_items_of_ones_own_have_no_attributes(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("own", "teacher"), model("ann", "student", "judge")], [task(category="benchmark")])
    lab.models[0] = {"name": "own", "interface": "benchmark", "roles": ["teacher"]}
    items = lab.path / "phase3_datapoints" / "story.own.datapoints.jsonl"
    items.parent.mkdir(parents=True)
    items.write_text("".join(json.dumps({"id": n, "prompt": f"Tell {n}."}) + "\n" for n in range(3)))
    assert lab.run().exit_code == 0
    assert "without any" in coeval("results", "--run", lab.path, "--by", "attribute").out
    assert "Tell 2." in coeval("show", "--run", lab.path, "--id", "story__own__2").out


def test_labels_alone_have_no_parts(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")], [quiz()])
    lab.run()
    shown = coeval("results", "--run", lab.path, "--by", "factor")
    assert shown.code == 0
    assert "labels are compared here" in shown.out


def test_a_run_without_any_score_says_so(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann", failure_rate=1)], settings={"probe_mode": "disable"})
    assert lab.run().exit_code == 3
    for flags in ((), ("--by", "judge")):
        shown = coeval("results", "--run", lab.path, *flags)
        assert (shown.code, "no scores yet: no answer has been judged" in shown.out) == (0, True)
