"""For a misspelt command those are named that there are; names that hold slashes lead nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

from coeval.cli.main import COMMANDS, build_app
from coeval.pipeline.config.names import is_valid_model_name


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("list",), "did you mean datasets list?"),
        (("statsu", "--run", "x"), "did you mean status?"),
        (("result",), "did you mean results?"),
        (("fetch", "ifeval"), "did you mean datasets fetch?"),
        (
            ("frobnicate",),
            "there are run, init, plan, describe, generate, ingest, probe, models, status, results",
        ),
        (("datasets", "lst"), "did you mean list?"),
        (("agregate", "--out", "x"), "did you mean sweep aggregate?"),
        (("sweep", "agregate"), "did you mean aggregate?"),
    ],
)
def test_for_a_misspelt_command_those_are_named_that_there_are(
    words: tuple[str, ...], hint: str, here: Path, coeval: Command
) -> None:
    ended = coeval(*words)
    assert (ended.code, ended.out) == (1, "")
    assert hint in ended.err
    assert list(here.iterdir()) == []


@pytest.mark.process
def test_a_warning_that_is_only_logged_looks_like_one(here: Path) -> None:
    lab = Lab(here)
    keys = here / "keys.yaml"
    keys.write_text("providers: {}\n")
    keys.chmod(0o644)
    words = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file), "--dry-run"]
    ended = subprocess.run(words, cwd=here, capture_output=True, text=True, check=True)
    assert ended.stderr == f"warning: {keys} is readable by every user of this machine; `chmod 600` it.\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = Lab(tmp_path_factory.mktemp("finished"))
    assert lab.run().exit_code == 0
    return lab.path


def test_the_list_of_commands_says_what_their_help_begins_with() -> None:
    group: Any = typer.main.get_command(build_app())
    listed = {name: command.get_short_help_str(200) for name, command in group.commands.items()}
    assert {name: about for name, (_, about) in COMMANDS.items()} == listed | {"wizard": ""}


def of_one_folder() -> list[str]:
    """Every command that has ``--run``. `ingest` has it for one of three places of what it is about, and
    `view` and `label` go on until they are ended."""
    group = typer.main.get_command(build_app())
    with_run = [
        name
        for name, command in group.commands.items()  # type: ignore[attr-defined]
        if any("--run" in parameter.opts for parameter in command.params)
    ]
    assert {"status", "results", "show", "repair", "analyze", "compare", "view"} <= {*with_run}
    return [name for name in with_run if name not in ("ingest", "label", "view")]


@pytest.mark.process
@pytest.mark.parametrize("name", of_one_folder())
def test_the_folder_stands_behind_run_or_alone(
    name: str, finished: Path, here: Path, coeval: Command
) -> None:
    (here / "link").symlink_to(finished)
    by_option, alone = coeval(name, "--run", finished), coeval(name, finished)
    assert by_option.code == 0, by_option.err
    assert alone == by_option
    assert coeval(name, f"--run={finished}") == by_option
    none = coeval(name)
    assert (none.code, none.err.startswith(f"name a folder: coeval {name} ")) == (1, True), none.err
    if name != "compare":
        two = coeval(name, here, "--run", finished)
        assert (two.code, "not two; leave out RUN or --run" in two.err) == (1, True)


@pytest.mark.process
def test_an_analysis_and_its_folder_are_told_apart(finished: Path, here: Path, coeval: Command) -> None:
    by_option = coeval("analyze", "students", "--run", finished)
    assert by_option.code == 0
    assert coeval("analyze", "students", finished) == by_option
    assert coeval("analyze", "--run", finished, "students") == by_option
    (here / "exp").symlink_to(finished)
    assert coeval("analyze", "exp").code == 0
    wrong = coeval("analyze", "studnets", finished)
    assert (wrong.code, "no analysis is named studnets; did you mean students?" in wrong.err) == (1, True)
    assert "there is no folder nowhere" in coeval("analyze", "./nowhere").err


@pytest.mark.system
def test_view_takes_its_folders_either_way(finished: Path, tmp_path: Path) -> None:
    for words in (["--run", finished], [finished]):
        command = [sys.executable, "-m", "coeval", "view", "--port", "0", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://127.0.0.1:")
            process.terminate()


QWEN, PHI, DEEP = "Qwen/Qwen2.5-7B-Instruct", "microsoft/Phi-4", "deepseek-ai/DeepSeek-V3-0324"


@pytest.fixture
def lab(here: Path) -> Lab:
    students = [model(QWEN, "student"), {**model("m/x-1", "student"), "variants": {"terse": {}, "kind": {}}}]
    return Lab(here, [model(PHI, "teacher"), *students, model(DEEP, "judge")], [task(total=2)])


@pytest.mark.process
def test_a_run_of_them_goes_on_is_shown_and_stays_in_its_folder(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = coeval("run", "--config", lab.file, "--only-models", f"{PHI},{QWEN},{DEEP}")
    assert first.code == 0, first.err
    assert "nobody/x" in coeval("run", "--config", lab.file, "--continue", "--only-models", "nobody/x").err
    assert lab.counts() == (2, 6, 6)
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []
    names = {path.name for path in lab.path.glob("phase*/*.jsonl")}
    assert "story.Qwen~Qwen2.5-7B-Instruct.responses.jsonl" in names
    assert "story.microsoft~Phi-4.deepseek-ai~DeepSeek-V3-0324.evaluations.jsonl" in names
    assert not [path for path in lab.path.glob("phase*/*") if path.is_dir()]
    item = f"story__{PHI}__00001"
    shown = coeval("show", "--run", lab.path, "--id", item, "--student", QWEN).out
    assert item in shown
    assert QWEN in shown
    assert coeval("repair", "--run", lab.path, "--dry-run").code == 0


@pytest.mark.parametrize("name", ["/a", "a/", "a//b", "../a", "a/../b", "a/.", "a\\b", "~", ""])
def test_a_name_leads_nowhere(name: str) -> None:
    assert not is_valid_model_name(name)
