"""``coeval judges check``: an anchor judged again, priced, continued, and told by its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

from coeval.pipeline.upkeep.judge_check import RESULT

pytestmark = pytest.mark.process
STUDENT, JUDGE = "Qwen/Qwen2.5-72B-Instruct-Turbo", "acme/judge-v1"


APP = """
import json

def teach(prompt):
    return json.dumps({"prompt": "Tell of Ada.", "response": "Ada."})

def answer(prompt):
    return "Ada."

def judge(prompt, schema):
    return json.dumps({name: "High" for name in schema["properties"]})
"""


def own(name: str, function: str, role: str) -> dict[str, Any]:
    return {"name": name, "interface": "python", "roles": [role], "parameters": {"callable": function}}


def judge(**parameters: Any) -> dict[str, Any]:
    return model(JUDGE, "judge", noise=0.1, **parameters)


@pytest.fixture
def lab(here: Path) -> Lab:
    """A run of two students and two judges, 12 items, with its records."""
    made = Lab(here)
    made.models = [model("ann", "teacher", "student"), model(STUDENT, "student", skill=0.4), judge()]
    made.models.append(model("other", "judge"))
    made.tasks = [task(sampling={"target": [1, 1], "total": 12})]
    made.run()
    return made


def checked(coeval: Command, lab: Lab, *words: object) -> tuple[int, dict[str, Any]]:
    ended = coeval("judges", "check", "--judge", JUDGE, "--anchor", lab.path, *words, "--json")
    return ended.code, json.loads(ended.out)


def test_the_same_judge_has_not_moved_and_each_check_is_a_run_of_its_own(lab: Lab, coeval: Command) -> None:
    code, found = checked(coeval, lab)
    assert (code, found["items"], found["answers"], found["missing"]) == (0, 12, 24, 0)
    assert found["flips"]["mean"] == found["shift"]["difference"] == 0
    first = lab.path.with_name("exp-check-acme-judge-v1-1")
    assert json.loads((first / RESULT).read_text()) == found
    assert {path.name.rpartition(".")[2] for path in first.rglob("*.jsonl")} == {"jsonl"}
    judges = {
        json.loads(line)["judge_model_id"]
        for file in (first / "phase5_evaluations").glob("*.jsonl")
        for line in file.read_text().splitlines()
    }
    assert judges <= {JUDGE, "exact_match"}
    assert checked(coeval, lab)[0] == 0
    assert lab.path.with_name("exp-check-acme-judge-v1-2").is_dir()


@pytest.fixture
def coded(here: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A run with a function as teacher and student, a program as student, and checks that are code."""
    made = Lab(here, id="coded")
    (made.folder / "app.py").write_text(APP)
    (made.folder / "grade.py").write_text("def score(response): return 1.0\n")
    monkeypatch.chdir(made.folder)
    made.models = [
        own("mine", "app.py:teach", "teacher"),
        own("bot", "app.py:answer", "student"),
        {"name": "sh", "interface": "command", "roles": ["student"], "parameters": {"argv": ["cat"]}},
        judge(),
        own("strict", "app.py:judge", "judge"),
    ]
    rubric = {"tone": "It is kind.", "ours": {"check": "python", "function": "grade.py:score"}}
    made.tasks = [task(sampling={"target": [1, 1], "total": 6}, rubric=rubric)]
    assert made.run().exit_code == 0
    return made


def test_a_judge_is_checked_on_a_run_of_code_without_that_code(coded: Lab, coeval: Command) -> None:
    """Neither of its teacher and students nor of its checks; ``inherited`` code is not run."""
    (coded.folder / "app.py").unlink()
    (coded.folder / "grade.py").unlink()
    counted = coeval("judges", "check", "--judge", JUDGE, "--anchor", coded.path, "--dry-run")
    assert counted.code == 0
    assert "12 calls" in counted.out
    assert "app.py" not in counted.out
    code, found = checked(coeval, coded)
    assert (code, found["items"], found["answers"], found["missing"]) == (0, 6, 12, 0)
    assert [factor["factor"] for factor in found["factors"]] == ["tone"]


def test_a_judge_that_is_code_is_asked_where_a_file_that_is_given_names_it(
    coded: Lab, coeval: Command
) -> None:
    words = ("judges", "check", "--judge", "strict", "--anchor", coded.path)
    refused = coeval(*words)
    assert refused.code == 1
    assert "give the experiment file that names it: --config FILE" in " ".join(refused.err.split())
    ended = coeval(*words, "--config", coded.file, "--json")
    assert (ended.code, json.loads(ended.out)["answers"]) == (0, 12)


def test_a_judge_that_has_moved_ends_with_4_and_is_allowed_so_much(lab: Lab, coeval: Command) -> None:
    lab.models[2] = judge(severity=0.2)
    code, found = checked(coeval, lab, "--config", lab.file)
    assert code == 4
    assert found["shift"]["high"] < 0
    assert checked(coeval, lab, "--config", lab.file, "--max-shift", "60")[0] == 0
    said = coeval("judges", "check", "--judge", JUDGE, "--anchor", lab.path, "--config", lab.file).out
    assert f"{JUDGE} judges lower than the anchor: −" in said
    assert "With this anchor, a true shift of" in said


def test_fewer_items_are_the_same_ones_each_time_and_a_dry_run_writes_nothing(
    lab: Lab, coeval: Command
) -> None:
    before = sorted(lab.path.parent.iterdir())
    words = ("judges", "check", "--judge", JUDGE, "--anchor", lab.path, "--items", "5")
    counted = coeval(*words, "--dry-run")
    assert counted.code == 0
    assert "10 calls" in counted.out
    assert sorted(lab.path.parent.iterdir()) == before
    assert [checked(coeval, lab, "--items", "5")[1]["items"] for _ in range(2)] == [5, 5]
    items = [
        {
            json.loads(line)["id"]
            for file in (lab.path.with_name(f"exp-check-acme-judge-v1-{n}") / "phase3_datapoints").glob(
                "*.jsonl"
            )
            for line in file.read_text().splitlines()
        }
        for n in (1, 2)
    ]
    assert items[0] == items[1]
    assert len(items[0]) == 5


def test_a_check_without_an_end_is_continued_and_asks_for_nothing_twice(lab: Lab, coeval: Command) -> None:
    checked(coeval, lab)
    folder = lab.path.with_name("exp-check-acme-judge-v1-1")
    (folder / RESULT).unlink()
    [file] = [path for path in (folder / "phase5_evaluations").glob("*.jsonl") if "judge-v1" in path.name]
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-4]))
    other = coeval("judges", "check", "--judge", JUDGE, "--anchor", lab.path, "--items", "5")
    assert other.code == 1
    assert "was begun with other items and did not finish; give the same --items, or" in other.err
    lab.models[2] = judge(severity=0.2)
    moved = coeval("judges", "check", "--judge", JUDGE, "--anchor", lab.path, "--config", lab.file)
    assert moved.code == 1
    assert "It did not end; --start-over begins" in moved.err
    assert "--redo-changed" not in moved.err  # which this command has not
    ended = coeval("judges", "check", "--judge", JUDGE, "--anchor", lab.path, "--json")
    assert "exp-check-acme-judge-v1-1 is continued. Scores it has since 20" in " ".join(ended.err.split())
    code, found = ended.code, json.loads(ended.out)
    assert (code, found["missing"]) == (0, 0)
    assert len(file.read_text().splitlines()) == len(lines)
    assert not lab.path.with_name("exp-check-acme-judge-v1-2").exists()
    (folder / RESULT).unlink()
    assert checked(coeval, lab, "--items", "5", "--start-over")[1]["items"] == 5
    assert lab.path.with_name("exp-check-acme-judge-v1-2").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--judge", "nobody"), "no judge of that name; there are: acme/judge-v1, other"),
        (("--judge", "other", "--anchor", "."), "is not a run"),
        (("--judge", "other", "--anchor", "runs/exp/labels.jsonl"), "holds no score of people"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    words: tuple[str, ...], said: str, lab: Lab, coeval: Command
) -> None:
    given = words if "--anchor" in words else (*words, "--anchor", lab.path)
    ended = coeval("judges", "check", *given)
    assert ended.code == 1
    assert said in " ".join(ended.err.split())
    assert [path.name for path in lab.path.parent.iterdir()] == ["exp"]
