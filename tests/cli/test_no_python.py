"""What the command prints is English, not Python: no reprs of records, tuples, enums or paths."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, quiz, task

PYTHON = re.compile(
    r"\b[A-Z]\w+\(\w+="  # Converted(counts=…
    r"|<\w+[.:] ?\w+"  # <Stance.REFUSE: 'refuse'>
    r"|\b(?:None|True|False|PosixPath|Counter|OrderedDict|frozenset|dict_keys)\b"
    r"|\(\d+, \d+\)"  # (1, 2)
    r"|\('\w|\['\w|\{'\w"
)
LEGACY = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "legacy_run"


@pytest.fixture
def lab(here: Path) -> Lab:
    """Two models, of which one fails now and then, a label task, and one whose rubric is proposed."""
    models = [model("ann"), model("ben", failure_rate=0.3, malformed_rate=0.3)]
    tasks = [task(rubric="auto", evaluation_mode="per_factor"), quiz()]
    return Lab(here, models, tasks, {"probe_mode": "disable", "generation_retries": 0})


@pytest.mark.slow
def test_no_command_speaks_python(lab: Lab, coeval: Command) -> None:
    said = []

    def say(*words: object) -> None:
        ended = coeval(*words)
        said.append(f"$ coeval {' '.join(map(str, words))}\n{ended.out}{ended.err}")

    say("run", "--config", lab.file, "--dry-run")
    say("run", "--config", lab.file)
    say("run", "--config", lab.file)
    path = next((lab.path / "phase5_evaluations").glob("*.jsonl"))
    path.write_text(path.read_text() + '{"id": 1}\nno record\n')
    for words in (("status",), ("results",), ("results", "--by", "judge"), ("show", "--worst", "3")):
        say(words[0], "--run", lab.path, *words[1:])
    say("repair", "--run", lab.path, "--stats", "--breakdown", "--examples", "1")
    lab.models[0]["parameters"]["skill"] = 0.4
    say("run", "--config", lab.file, "--continue")
    say("run", "--config", lab.file, "--continue", "--redo-changed")
    say("run", "--config", lab.file, "--continue", "--only-models", "nobody")
    lab.tasks[0]["sampling"] = {"target": [3, 1], "total": -2, "nuance": "some"}
    lab.models[0] |= {"roles": "teacher", "interface": ["a", "b"], "access_key": 5}
    lab.settings |= {"quota": {"ann": {"max_calls": True}}, "seed": None}
    say("run", "--config", lab.file, "--dry-run")
    assert len(said) == 12
    assert [line for text in said for line in text.splitlines() if PYTHON.search(line)] == []


@pytest.mark.skipif(not LEGACY.is_dir(), reason=f"the run in an older layout is not at {LEGACY}")
def test_nor_does_taking_over_an_older_run(here: Path, coeval: Command) -> None:
    shutil.copytree(LEGACY, here / "runs" / "old")
    lab = Lab(here, [model("ann")], [task("haiku_writing", total=2)], {"resume_from": "old"})
    told = coeval("run", "--config", lab.file).err
    assert "converted from an older layout" in told
    assert not PYTHON.search(told)


def test_what_it_looks_for_is_found() -> None:
    for leak in ("Converted(counts={})", "(1, 2)", "['student']", "<Mode.NEW: 1>", "it is None", "('a',)"):
        assert PYTHON.search(leak), leak
    assert not PYTHON.search("0.90 [.86, .93] (removed), run_0/ (see [a, b]); {task}")
