"""Ctrl-C at any moment of a command's first second ends it with a sentence: no traceback, no silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from cli.invoked import Ended
from pipeline.experiments import Lab, model, task

from coeval.cli.ending import ALL_SAVED, run_to_exit
from coeval.core.options import Frontend

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

AT_AN_EVENT = """
import atexit, os, signal, sys
from {module} import {function}
at, seen = int(sys.argv.pop(1)), 0
def count(event, arguments):
    global seen
    seen += 1
    if seen == at:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(count)
atexit.register(lambda: print(seen, "events", file=sys.stderr))
{function}()
"""
"""A command that interrupts itself at the n-th thing that Python's audit hooks see (imports, files, …)."""


def at_an_event(number: int, words: Sequence[str]) -> Ended:
    module, _, function = SCRIPTS[words[0]].partition(":")
    program = AT_AN_EVENT.format(module=module, function=function)
    command = [sys.executable, "-c", program, str(number), *words[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def after(delay_s: float, words: Sequence[str]) -> Ended:
    """Interrupt the command so long after its first line ran, which Python's list of imports shows."""
    module, _, function = SCRIPTS[words[0]].partition(":")
    program = f"from {module} import {function}; {function}()"
    command = [sys.executable, "-X", "importtime", "-c", program, *words[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).endswith("coeval.cli.entry\n"):
            assert line, "the command ended without its first line"
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    reported = [line for line in err.splitlines() if not line.startswith("import time:")]
    return Ended(process.returncode, out, "\n".join(reported))


@pytest.fixture
def slow_lab(here: Path) -> Lab:
    """A run that lasts longer than anybody waits before interrupting it."""
    models = [model("tea", "teacher", latency_s=0.5), model("ann", "student", "judge", latency_s=0.5)]
    models[1]["parameters"]["max_concurrency"] = 4
    return Lab(here, models, [task(total=200)])


@pytest.fixture
def start(request: pytest.FixtureRequest, slow_lab: Lab) -> tuple[list[str], list[str]]:
    """A command, and one that ends by itself where the first would begin to ask."""
    prompts = slow_lab.folder / "prompts.jsonl"
    prompts.write_text('{"key": 1, "prompt": "Go.", "instruction_id_list": [], "kwargs": []}\n')
    evaluate = ["eval-framework", "--tasks", "ifeval", "--model", "m", "--ifeval-input", str(prompts)]
    run = ["coeval", "run", "--config", str(slow_lab.file)]
    return {
        "coeval": (run, [*run, "--dry-run"]),
        "eval-framework": (evaluate, [*evaluate, "--judge-only"]),
    }[request.param]


both_commands = pytest.mark.parametrize("start", ["coeval", "eval-framework"], indirect=True)


def ended_with_a_sentence(ended: Ended) -> bool:
    reported = [line for line in ended.err.splitlines() if not line.endswith(" events")]
    return (ended.code, ended.out) == (130, "") and reported == [ALL_SAVED]


@both_commands
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((4, 12), marks=pytest.mark.process, id="two"),
        pytest.param(range(20), marks=pytest.mark.system, id="every step"),
    ],
)
def test_ctrl_c_while_a_command_is_loaded(
    start: tuple[list[str], list[str]], here: Path, parts: Iterable[int]
) -> None:
    command, counted = start
    events = int(at_an_event(0, counted).err.split()[-2])
    for part in parts:
        ended = at_an_event(100 + events * part // 21, command)
        assert ended_with_a_sentence(ended), (part, ended)
    assert not (here / "runs").exists()


@pytest.mark.system
def test_ctrl_c_at_any_moment_of_the_first_second(slow_lab: Lab, here: Path) -> None:
    stages = set()
    for number in range(1, 31):  # at the very moment of its first line, the door is not open yet
        slow_lab.id = f"run-{number}"
        ended = after(number * 0.05, ["coeval", "run", "--config", str(slow_lab.file)])
        shown = ended.out + ended.err
        assert ended.code == 130, ended
        assert "Traceback" not in shown
        assert "Warning" not in shown
        stages |= {word for word in ("Interrupted", "stopping: waiting") if word in shown}
        assert shown.strip(), f"silent {number * 0.05:.2f} s after the first line"
    assert "Interrupted" in stages, "no interruption came early enough"


@pytest.mark.system
def test_ctrl_c_while_the_results_are_shown(here: Path) -> None:
    words = ["coeval", "run", "--overwrite", "--config", str(Lab(here, [model("ann")]).file)]
    events = int(at_an_event(0, words).err.split()[-2])
    ended = at_an_event(int(0.985 * events), words)
    assert ended.code == 130, ended
    assert ended.err.splitlines()[-2:-1] == [ALL_SAVED], ended


@pytest.mark.process
def test_an_overwrite_that_is_stopped_at_its_start_shows_nothing_of_the_old_run(slow_lab: Lab) -> None:
    slow_lab.models = [model("ann")]
    assert slow_lab.run().exit_code == 0
    before = slow_lab.meta()
    slow_lab.models[0]["parameters"]["latency_s"] = 600
    command = [sys.executable, "-u", "-m", "coeval", "run", "--config", str(slow_lab.file), "--overwrite"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        while "probing" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        shown = process.stdout.read()
    assert process.returncode == 130
    assert "Continue with: the same command; no record has changed, only the run's log and account" in shown
    assert "overall" not in shown
    assert "--continue" not in shown
    assert slow_lab.meta() == before


@pytest.mark.process
def test_a_second_ctrl_c_ends_at_once_and_says_how_to_go_on(slow_lab: Lab) -> None:
    slow_lab.models[0]["parameters"]["latency_s"] = 600
    slow_lab.settings["probe_mode"] = "disable"
    command = [sys.executable, "-u", "-m", "coeval", "run", "--config", str(slow_lab.file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        while not (slow_lab.path / "meta.json").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        while "stopping" not in (line := process.stdout.readline()):
            assert line, "it ended at the first"
        process.send_signal(signal.SIGINT)
        reported, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped at once; finished work is on disk; --continue resumes it." in reported
    assert "Traceback" not in reported
    assert slow_lab.meta()["status"] == "interrupted"


@pytest.mark.process
def test_a_background_job_that_ignores_ctrl_c_goes_on_ignoring_it(slow_lab: Lab) -> None:
    """As a shell starts it with ``&``."""
    module, _, function = SCRIPTS["coeval"].partition(":")
    command = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [*command, "run", "--config", str(slow_lab.file), "--dry-run"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"COLUMNS": "200"},
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, "No model was called" in out) == (0, True)


MADE_OF_IT = {
    "ImportError": "raise ImportError('no C extensions')",
    "RuntimeError": "raise RuntimeError('Query interrupted')",
    "UsageError": "from coeval.core.errors import UsageError; raise UsageError('this needs pyarrow')",
    "OSError": "raise OSError(4, 'interrupted', 'file')",
}


@pytest.mark.process
@pytest.mark.parametrize("made", MADE_OF_IT)
@pytest.mark.parametrize("where", ["coeval.cli.main", "command"])
def test_what_a_library_makes_of_ctrl_c_is_an_interruption(here: Path, made: str, where: str) -> None:
    """While its modules are loaded, and while a command runs."""
    swallows = (
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(9)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    body = textwrap.indent(f"{swallows}{MADE_OF_IT[made]}\n", "    ")
    program = f"""
import importlib, os, signal, sys, time
import coeval.cli.entry as entry
def breaks(*_):
{body}
class Module:
    @staticmethod
    def main():
        from coeval.cli.ending import run_to_exit
        from coeval.core.options import Frontend
        run_to_exit(breaks, Frontend.COEVAL)
importlib.import_module = breaks if {where == "coeval.cli.main"} else lambda _: Module
entry.coeval()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.splitlines()) == (130, "", [ALL_SAVED])


def test_ctrl_c_while_a_class_is_made_is_an_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    """Until Python 3.12, whatever ``__set_name__`` raises comes out as a RuntimeError caused by it."""

    def making_a_class() -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    with pytest.raises(SystemExit) as end:
        run_to_exit(making_a_class, Frontend.COEVAL)
    assert end.value.code == 130
    assert ALL_SAVED in capsys.readouterr().err
