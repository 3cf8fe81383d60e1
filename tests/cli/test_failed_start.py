"""A start that fails leaves the folders as they were, and can be repeated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import typer
from cli.invoked import Command
from pipeline.experiments import Lab, model, quiz, task
from typer.core import TyperGroup

from coeval import load_config, open_run, run
from coeval.cli.eval_framework.command import make_app
from coeval.cli.main import build_app

NOBODY = "http://127.0.0.1:9/v1"


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def lab(here: Path) -> Lab:
    return Lab(here, [model("tea", "teacher"), model("ann", "student", "judge")])


def hosted(lab: Lab, **changes: object) -> None:
    lab.models[1] |= {"interface": "openai", "parameters": {"model": "gpt-4o-mini"}, **changes}


@pytest.mark.process
def test_a_wrong_file_a_missing_key_and_an_unknown_name_create_nothing(lab: Lab, coeval: Command) -> None:
    file = lab.file
    before = below(lab.folder)
    assert coeval("run", "--config", file, "--only-models", "nobody").code == 1
    assert below(lab.folder) == before
    lab.tasks[0]["sampling"]["total"] = -1
    assert coeval("run", "--config", lab.file).code == 1
    lab.tasks[0]["sampling"]["total"] = 3
    hosted(lab)
    for flags in ((), ("--overwrite",)):
        ended = coeval("run", "--config", lab.file, *flags)
        assert ended.code == 1
        for place in ("OPENAI_API_KEY", "access_key", "keys.yaml", "model ann"):
            assert place in ended.err
    lab.settings["quota"] = {"tea": {"max_cost_usd": 1.0}}
    assert coeval("run", "--config", lab.file).code == 1
    assert below(lab.folder) == before


@pytest.mark.process
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


@pytest.mark.process
def test_what_a_run_in_an_older_layout_gave_is_told_in_words(here: Path, coeval: Command) -> None:
    """Evaluations without a student are of the older layout; a line that is not a record is pointed at."""
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
    reported = ended.err
    assert "Converted(" not in reported
    assert (
        "converted from an older layout: 2 files of attribute_mapping, 1 file of rubric_mapping" in reported
    )
    assert (
        "2 records of data_generation, 2 records of response_collection, 2 records of evaluation" in reported
    )
    assert "warning: 1 line is not a record and was left out, the first at byte" in reported


@pytest.mark.process
@pytest.mark.parametrize("command", ["results", "status"])
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_full_device_is_no_bug_of_ours(lab: Lab, command: str, unbuffered: str) -> None:
    lab.run()
    with Path("/dev/full").open("w") as full:
        shown = subprocess.run(
            [sys.executable, "-m", "coeval", command, "--run", str(lab.path)],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert shown.returncode == 1
    assert shown.stderr.count("No space left on device") == 1
    assert "internal error" not in shown.stderr


# What a terminal, a folder's name or a daemon's start must not do to a run.

PROGRAM = [sys.executable, "-m", "coeval", "run", "--config", "e.yaml"]


def write(folder: Path, storage: str, skill: float = 0.9, **experiment: object) -> Path:
    """An experiment of one simulated model on four items."""
    model = {
        "name": "m",
        "interface": "simulated",
        "roles": ["teacher", "student", "judge"],
        "parameters": {"skill": skill},
    }
    task = {
        "name": "t",
        "description": "Say something.",
        "target_attributes": {"a": ["x", "y"]},
        "sampling": {"total": 4},
        "rubric": {"good": "It is good."},
    }
    data = {
        "models": [model],
        "tasks": [task],
        "experiment": {"id": "e", "storage_folder": storage, **experiment},
    }
    path = folder / "e.yaml"
    path.write_bytes(msgspec.json.encode(data))
    return path


def overall(folder: Path) -> float | None:
    score: float | None = open_run(folder).results().students[0].score
    return score


@pytest.mark.process
@pytest.mark.parametrize(("plain", "pattern"), [("runs1", "runs[1]"), ("ra", "r*"), ("rb", "r?")])
def test_a_folder_named_like_a_pattern_is_read_as_itself(tmp_path: Path, plain: str, pattern: str) -> None:
    for name, skill in ((plain, 1.0), (pattern, 0.0)):
        run(load_config(write(tmp_path, str(tmp_path / name), skill)))
    high, low = overall(tmp_path / plain / "e"), overall(tmp_path / pattern / "e")
    assert high is not None
    assert low is not None
    assert high > 0.5 > low


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "~/kept")
    assert run(load_config(path)).exit_code == 0
    assert (tmp_path / "home" / "kept" / "e" / "meta.json").exists()
    assert not (tmp_path / "~").exists()


@pytest.mark.process
def test_a_terminal_without_these_characters_and_one_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "runs")
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(PROGRAM, cwd=tmp_path, env=narrow, capture_output=True, check=False)
    assert shown.returncode == 0, shown.stderr
    closed = ["sh", "-c", 'exec "$@" --continue >&- 2>&-', "sh", *PROGRAM]
    assert subprocess.run(closed, cwd=tmp_path, check=False).returncode == 0


@pytest.mark.process
def test_what_a_file_says_moves_no_cursor(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text('experiment: {"\\e[2Jid": x}\n')
    reported = subprocess.run(PROGRAM, cwd=tmp_path, capture_output=True, check=False)
    assert reported.returncode == 1
    assert b"\x1b" not in reported.stderr


# What the message of a bug of ours recommends is understood by every command.


def commands() -> Iterator[tuple[str, ...]]:
    """The words that call each command that is shown."""
    whole = typer.main.get_command(build_app())
    assert isinstance(whole, TyperGroup)
    for name, command in whole.commands.items():
        if command.hidden:
            continue
        below = command.commands if isinstance(command, TyperGroup) else {}
        yield from ((name, each) for each in below) if below else [(name,)]


@pytest.mark.process
def test_every_command_takes_a_log_level(here: Path, coeval: Command) -> None:
    words = list(commands())
    assert ("run",) in words
    assert ("view",) in words
    assert ("datasets", "list") in words
    for command in words:
        ended = coeval(*command, "--log-level", "DEBUG", "--help")
        assert ended.code == 0, (command, ended.err)
        refused = coeval(*command, "--log-level", "LOUD")
        assert refused.code == 1, command
        assert "'DEBUG', 'INFO', 'WARNING', 'ERROR'" in refused.err, (command, refused.err)
    shown = typer.main.get_command(make_app())
    assert any("--log-level" in parameter.opts for parameter in shown.params)


def test_a_bug_is_traced_by_a_command_that_has_no_log(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("what nobody thought of")

    monkeypatch.setattr("coeval.cli.commands.results.require_results", broken)
    quiet = coeval("results", "--run", here)
    assert "internal error" in quiet.err
    assert "Traceback" not in quiet.err
    assert "--log-level DEBUG" in quiet.err
    assert "Traceback" in coeval("results", "--run", here, "--log-level", "DEBUG").err


# What the command prints is English, not Python: no reprs of records, tuples, enums or paths.

PYTHON = re.compile(
    r"\b[A-Z]\w+\(\w+="  # Converted(counts=…
    r"|<\w+[.:] ?\w+"  # <Stance.REFUSE: 'refuse'>
    r"|\b(?:None|True|False|PosixPath|Counter|OrderedDict|frozenset|dict_keys)\b"
    r"|\(\d+, \d+\)"  # (1, 2)
    r"|\('\w|\['\w|\{'\w"
)
LEGACY = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "legacy_run"


@pytest.fixture
def troubled(here: Path) -> Lab:
    """Two models, of which one fails now and then, a label task, and one whose rubric is proposed."""
    models = [model("ann"), model("ben", failure_rate=0.3, malformed_rate=0.3)]
    tasks = [task(rubric="auto", evaluation_mode="per_factor"), quiz()]
    return Lab(here, models, tasks, {"probe_mode": "disable", "generation_retries": 0})


@pytest.mark.process
def test_no_command_speaks_python(troubled: Lab, coeval: Command) -> None:
    said = []

    def say(*words: object) -> None:
        ended = coeval(*words)
        said.append(f"$ coeval {' '.join(map(str, words))}\n{ended.out}{ended.err}")

    say("run", "--config", troubled.file, "--dry-run")
    say("run", "--config", troubled.file)
    say("run", "--config", troubled.file)
    path = next((troubled.path / "phase5_evaluations").glob("*.jsonl"))
    path.write_text(path.read_text() + '{"id": 1}\nno record\n')
    for words in (("status",), ("results",), ("results", "--by", "judge"), ("show", "--worst", "3")):
        say(words[0], "--run", troubled.path, *words[1:])
    say("repair", "--run", troubled.path, "--stats", "--breakdown", "--examples", "1")
    troubled.models[0]["parameters"]["skill"] = 0.4
    say("run", "--config", troubled.file, "--continue")
    say("run", "--config", troubled.file, "--continue", "--redo-changed")
    say("run", "--config", troubled.file, "--continue", "--only-models", "nobody")
    troubled.tasks[0]["sampling"] = {"target": [3, 1], "total": -2, "nuance": "some"}
    troubled.models[0] |= {"roles": "teacher", "interface": ["a", "b"], "access_key": 5}
    troubled.settings |= {"quota": {"ann": {"max_calls": True}}, "seed": None}
    say("run", "--config", troubled.file, "--dry-run")
    assert len(said) == 12
    assert [line for text in said for line in text.splitlines() if PYTHON.search(line)] == []


@pytest.mark.process
@pytest.mark.skipif(not LEGACY.is_dir(), reason=f"the run in an older layout is not at {LEGACY}")
def test_nor_does_taking_over_an_older_run(here: Path, coeval: Command) -> None:
    shutil.copytree(LEGACY, here / "runs" / "old")
    troubled = Lab(here, [model("ann")], [task("haiku_writing", total=2)], {"resume_from": "old"})
    reported = coeval("run", "--config", troubled.file).err
    assert "converted from an older layout" in reported
    assert not PYTHON.search(reported)


def test_what_it_looks_for_is_found() -> None:
    for leak in ("Converted(counts={})", "(1, 2)", "['student']", "<Mode.NEW: 1>", "it is None", "('a',)"):
        assert PYTHON.search(leak), leak
    assert not PYTHON.search("90.1 [86.0, 93.2] (removed), run_0/ (see [a, b]); {task}")


@pytest.mark.parametrize("command", ["status", "results", "analyze", "compare"])
def test_a_sweep_is_told_with_the_commands_that_show_it(
    tmp_path: Path, coeval: Command, command: str
) -> None:
    sweep = tmp_path / "out"
    for name in ("sweep", "step_5", "step_30", "step_last"):
        (sweep / name).mkdir(parents=True)
    ended = coeval(command, sweep)
    assert ended.code == 1
    assert f"`coeval sweep --out {sweep} --status`" in ended.err
    assert f"`coeval compare {sweep}/step_5 {sweep}/step_30`" in ended.err
