"""Functions and programs in every role of a run: planned, asked, recorded, noticed when they change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

import coeval as package
from coeval.api import load_config
from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.run_options import ChangePolicy, RunOptions

APP = """
import json, re

def answer(prompt):
    if "Broken" in prompt:
        raise ValueError("no such order")
    return "Ada." if "Broken" not in prompt else None

def judge(prompt, schema):
    names = list(schema["properties"])
    return json.dumps({name: "High" for name in names if name != "missing"})

def teach(prompt):
    return json.dumps({"prompt": "Tell of Ada.", "response": "Ada."})
"""


def own(name: str, function: Any, *roles: str, **parameters: Any) -> dict[str, Any]:
    given = {"callable": function, **parameters}
    return {"name": name, "interface": "python", "roles": list(roles or ["student"]), "parameters": given}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    return Lab(tmp_path, [model("ann", "teacher", "judge"), own("mine", "app.py:answer")], [task(total=3)])


def calls(lab: Lab, **how: Any) -> tuple[int, int]:
    total = forecast_start(load_config(lab.file), RunOptions(**how)).total
    return total.low, total.high


def test_a_function_is_a_student(lab: Lab) -> None:
    assert calls(lab) == (9, 9)
    run = lab.run()
    assert run.exit_code == 0
    records = lab.records("response_collection").values()
    assert {record["response"] for record in records} == {"Ada."}
    assert {record["usage"]["cost_usd"] for record in records} == {0.0}
    usage = json.loads((lab.path / "usage.json").read_text())["models"]["mine"]
    assert (usage["requests"], usage["cost_usd"]) == (3, 0.0), "it is not called to be probed"
    assert calls(lab, continue_run=True) == (0, 0)


def test_a_function_is_a_teacher_and_a_judge(lab: Lab) -> None:
    lab.models = [
        own("t", "app.py:teach", "teacher"),
        own("j", "app.py:judge", "judge"),
        own("mine", "app.py:answer"),
    ]
    run = lab.run()
    assert run.exit_code == 0
    assert {line["prompt"] for line in lab.lines("data_generation")} == {"Tell of Ada."}
    assert {score.score for score in run.results().students} == {1.0}


def test_a_changed_function_owes_its_answers(lab: Lab) -> None:
    assert lab.run().exit_code == 0
    (lab.folder / "app.py").write_text(APP.replace("Ada.", "Eve."))
    with pytest.raises(UsageError, match=r"models\.mine\.source of parameters\.callable \(responses\): 3"):
        lab.run(continue_run=True)
    assert calls(lab, continue_run=True, change_policy=ChangePolicy.REDO) == (6, 6)
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert {record["response"] for record in lab.records("response_collection").values()} == {"Eve."}


@pytest.mark.parametrize("command", ["status", "results", "repair", "analyze"])
def test_a_run_is_read_where_its_function_is_not(
    lab: Lab, command: str, monkeypatch: pytest.MonkeyPatch, coeval: Command
) -> None:
    assert lab.run().exit_code == 0
    (elsewhere := lab.folder / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    read = coeval(command, "--run", lab.path)
    assert read.code == 0
    assert "another configuration" not in read.out + read.err
    with pytest.raises(ConfigError, match=r"models\[1\]\.parameters\.callable  V-39  .* no file app\.py"):
        lab.run(continue_run=True)
    (lab.folder / "app.py").write_text(APP.replace("Ada.", "Eve."))
    monkeypatch.chdir(lab.folder)
    assert "3 responses" in (said := coeval("status", "--run", lab.path)).out + said.err


def test_what_raises_costs_only_its_item(lab: Lab) -> None:
    rows = ["Who?", "Broken", "When?", "Where?"]
    (lab.folder / "q.csv").write_text("q,l\n" + "".join(f"{row},Ada.\n" for row in rows))
    lab.models = [own("mine", "app.py:answer")]
    items = {"path": "q.csv", "prompt": "q", "label": "l"}
    lab.tasks = [{"name": "t", "description": "Answer.", "items": items}]
    run = lab.run()
    assert run.exit_code == 3
    (failed,) = [each for each in lab.records("response_collection").values() if each.get("status")]
    assert failed["error"]["message"] == "app.py:answer raised ValueError: no such order"
    (found,) = run.results().labels
    assert (found.correct, found.n) == (3, 3)


def test_functions_themselves_from_python(lab: Lab) -> None:
    async def later(prompt: str) -> dict[str, Any]:
        return {"text": prompt.upper(), "usage": {"input_tokens": 3, "output_tokens": 1}, "cost_usd": 0.5}

    experiment = {
        "models": [model("ann", "teacher", "judge"), own("now", lambda prompt: "x"), own("later", later)],
        "tasks": [task(total=2)],
        "experiment": {"id": "given", "storage_folder": str(lab.folder / "runs"), "budget_usd": 5},
    }
    run = package.run(experiment)
    assert run.exit_code == 0
    costs = {record.student_model_id: record.usage for record in run.records("response_collection")}
    assert costs["later"] is not None
    assert (costs["later"].cost_usd, costs["later"].input_tokens) == (0.5, 3)
    assert package.run(experiment, continue_run=True).exit_code == 0


def test_a_budget_ends_a_run_of_what_costs(lab: Lab, coeval: Command) -> None:
    (lab.folder / "app.py").write_text("def answer(prompt): return {'text': 'a', 'cost_usd': 0.3}")
    lab.tasks, lab.settings = [task(total=40)], {"budget_usd": 1.0, "generation_retries": 0}
    run = lab.run()
    assert run.exit_code == 3
    assert run.summary is not None
    assert "experiment.budget_usd is $1" in run.summary.stopped["mine"]
    assert len(lab.lines("response_collection")) == 3
    assert lab.run(continue_run=True).exit_code == 3
    assert json.loads((lab.path / "usage.json").read_text())["models"]["mine"]["requests"] == 3
    result = coeval("plan", "--config", lab.file, "--continue")
    assert "does not fit into the budget" in result.err
    assert "the mean of reported costs" in result.out


@pytest.mark.parametrize(
    ("interface", "parameters", "said"),
    [
        (
            "python",
            {},
            "models[1].parameters  V-39  lacks `callable`, which python needs; write {callable: app",
        ),
        (
            "command",
            {"callable": "a:b"},
            "models[1].parameters.callable  V-39  'callable' belongs to the interface python",
        ),
        (
            "simulated",
            {"argv": ["ls"]},
            "models[1].parameters.argv  V-39  'argv' belongs to the interface command",
        ),
        ("command", {"argv": []}, "models[1].parameters.argv  V-20  is empty"),
        (
            "command",
            {"argv": "ls -l"},
            "models[1].parameters.argv  V-20  is 'ls -l', not a list; write [ls, -l]",
        ),
        ("command", {"argv": ["ls"], "protocol": "http"}, "V-20  'http' is not valid; use stdin | jsonl"),
        (
            "python",
            {"callable": "a:b", "base_url": "http://h/v1"},
            "V-39  python has no address; remove it",
        ),
    ],
)
def test_mistakes_of_the_file(lab: Lab, interface: str, parameters: dict[str, Any], said: str) -> None:
    lab.models[1] |= {"interface": interface, "parameters": parameters}
    with pytest.raises(ConfigError) as error:
        lab.run()
    assert said in str(error.value)


@pytest.mark.process
def test_the_commands_say_which_code_is_run(lab: Lab, coeval: Command) -> None:
    (lab.folder / "bot.py").write_text("print(input())")
    argv = [sys.executable, "bot.py"]
    lab.models.append(
        {"name": "bot", "interface": "command", "roles": ["student"], "parameters": {"argv": argv}}
    )
    for command in ("run", "plan"):
        shown = coeval(command, "--config", lab.file, *(["--dry-run"] if command == "run" else [])).out
        assert "mine runs app.py:answer in this process; it is free unless it reports a cost" in shown
        assert "bot.py as a program, without a sandbox; it is free" in shown
    shown = coeval("probe", "--config", lab.file).out
    assert "app.py:answer" in shown
    assert "found" in shown
    assert lab.run().exit_code == 0
    answers = {
        each["response"] for each in lab.records("response_collection").values() if "bot" in each["id"]
    }
    assert answers
    assert "mine" in coeval("results", "--run", lab.path).out


@pytest.mark.process
@pytest.mark.parametrize("roles", ["student", "teacher", "judge"])
@pytest.mark.parametrize(
    "words",
    [("plan",), ("plan", "--estimate-samples", "5"), ("run", "--estimate-only"), ("run", "--dry-run")],
    ids=" ".join,
)
def test_what_only_counts_runs_no_code(lab: Lab, coeval: Command, words: tuple[str, ...], roles: str) -> None:
    """Neither functions nor programs nor checks, in no role; each would leave a file where it ran."""
    (lab.folder / "app.py").write_text("open('ran-app', 'w')\n" + APP)
    (lab.folder / "package").mkdir()
    (lab.folder / "package" / "__init__.py").write_text("open('ran-package', 'w')\n")
    (lab.folder / "package" / "bot.py").write_text(
        "open('ran-module', 'w')\ndef answer(prompt): return prompt\n"
    )
    (lab.folder / "grade.py").write_text("open('ran-check', 'w')\ndef score(response): return 1.0\n")
    argv = ["sh", "-c", "touch ran-program; cat"]
    lab.models[1] = own("mine", "app.py:answer", roles)
    lab.models += [
        own("packaged", "package.bot:answer", roles),
        {"name": "shell", "interface": "command", "roles": [roles], "parameters": {"argv": argv}},
        model("ben", "student"),
    ]
    lab.tasks[0]["rubric"] = {
        "tone": "It is kind.",
        "ours": {"check": "python", "function": "grade.py:score"},
    }
    shown = coeval(*words, "--config", lab.file)
    assert shown.code == 0, shown.err
    assert sorted(file.name for file in lab.folder.glob("ran-*")) == []


@pytest.mark.process
def test_a_function_that_ends_the_process_loses_nothing(lab: Lab) -> None:
    """`os._exit` cannot be caught; what was recorded stands, and the run goes on from there."""
    (lab.folder / "app.py").write_text("import os\ndef answer(prompt): os._exit(9)")
    command = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file)]
    assert subprocess.run(command, cwd=lab.folder, capture_output=True, check=False).returncode == 9
    items = lab.records("data_generation")
    (lab.folder / "app.py").write_text(APP)
    assert lab.run(continue_run=True).exit_code == 0
    assert items.items() <= lab.records("data_generation").items()
    assert len(lab.records("response_collection")) == 3


@pytest.mark.process
@pytest.mark.parametrize("barriers", [False, True])
def test_a_function_that_changes_the_working_directory_tears_no_run(lab: Lab, barriers: bool) -> None:
    """Teacher, student and judge each go elsewhere; a check's worker starts from the run's directory."""
    where, away = Path.cwd(), lab.folder / "away"
    away.mkdir()
    leave = f"    os.chdir({str(away)!r})\n"
    Path("app.py").write_text("import os\n" + leave.strip() + APP.replace("):\n", "):\n" + leave))
    Path("graders.py").write_text("def score(response):\n    return 'Ada' in response\n")
    named = {"check": "python", "function": "graders.py:score"}
    lab.tasks = [task(total=3, rubric={"clear": "It is clear.", "named": named})]
    lab.models = [
        own("t", "app.py:teach", "teacher"),
        own("j", "app.py:judge", "judge"),
        own("mine", "app.py:answer"),
    ]
    lab.settings = {"storage_folder": "runs"}
    run = lab.run(phase_barriers=barriers)
    assert (run.exit_code, run.path, Path.cwd()) == (0, Path("runs/exp"), where)
    assert not [*away.iterdir()]
    assert lab.counts() == (3, 3, 6)
    assert {score.score for score in run.results().students} == {1.0}
    assert calls(lab, continue_run=True) == (0, 0)


@pytest.mark.process
def test_a_changed_program_owes_its_answers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, coeval: Command
) -> None:
    """Its script counts by what it holds; an argument too long for a name of a file is none."""
    Path("bot.py").write_text("print('Ada.')")
    argv = [sys.executable, "bot.py", "x" * 5_000]
    lab.models[1] = {
        "name": "mine",
        "interface": "command",
        "roles": ["student"],
        "parameters": {"argv": argv},
    }
    assert lab.run().exit_code == 0
    (elsewhere := lab.folder / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    read = coeval("status", "--run", lab.path)
    assert "another configuration" not in read.out + read.err
    monkeypatch.chdir(lab.folder)
    Path("bot.py").write_text("print('Eve.')")
    assert "another configuration" in (read := coeval("status", "--run", lab.path)).out + read.err
    with pytest.raises(UsageError, match=r"models\.mine\.source of parameters\.argv \(responses\): 3"):
        lab.run(continue_run=True)
    assert calls(lab, continue_run=True, change_policy=ChangePolicy.REDO) == (6, 6)
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert {record["response"] for record in lab.records("response_collection").values()} == {"Eve."}


@pytest.mark.process
def test_what_a_function_prints_is_no_result(lab: Lab) -> None:
    """Neither what it prints itself nor what a program does that it starts, nor what its module prints."""
    shout = "import os\nprint('noise')\n" + APP.replace(
        "):\n", "):\n    print('noise'); os.system('echo noise')\n"
    )
    (lab.folder / "app.py").write_text(shout)
    command = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file)]
    ended = subprocess.run(command, cwd=lab.folder, capture_output=True, text=True, check=True)
    assert "noise" not in ended.stdout
    assert "Scores" in ended.stdout
    assert ended.stderr.count("noise") == 7
