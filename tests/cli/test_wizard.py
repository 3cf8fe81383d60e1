"""`coeval wizard`: questions answered, a file that runs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coeval.pipeline.config.load_file import load_config

PLAIN = ["", 'Translate a proverb: keep its "sense" & <tone>', "", "", "n"]


def wizard(
    folder: Path, *answers: str, arguments: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coeval", "wizard", *arguments],
        input="\n".join(answers) + "\n",
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_return_alone_makes_an_experiment_that_runs(tmp_path: Path) -> None:
    done = wizard(tmp_path, *PLAIN, "", "", "", "4", "")
    assert done.returncode == 0, done.stderr
    assert "coeval run --config my-benchmark.yaml" in done.stderr
    config = load_config(tmp_path / "my-benchmark.yaml")
    assert [model.name for model in config.models] == ["sim-large", "sim-medium", "sim-small"]
    assert (config.tasks[0].target_attributes, config.tasks[0].rubric) == ("auto", "auto")
    run = subprocess.run(
        [sys.executable, "-m", "coeval", "run", "--config", "my-benchmark.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "runs" / "my-benchmark" / "report.html").exists()


def test_every_answer_stands_in_the_file(tmp_path: Path) -> None:
    models = ["openai/gpt-4o-mini", "vllm/Qwen/Qwen3-4B@http://localhost:8000/v1", ""]
    done = wizard(
        tmp_path, "proverbs", "Sort: #1 'messages'", "triage", "One word.",
        "y", "team: billing, sales", "mood: calm, annoyed", "tone: plain, 3.10", "",
        *models, "students, judge", "teacher,student", "brevity: Nothing is said: beyond it.", "",
        "30", "$2.50", "",
        env={"OPENAI_API_KEY": "sk-" + "a" * 40},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Credentials were found for: openai" in done.stderr
    assert "aaaa" not in done.stderr
    config = load_config(tmp_path / "proverbs.yaml")
    first, second = config.models
    assert (first.name, first.interface, list(first.roles)) == ("gpt-4o-mini", "openai", ["student", "judge"])
    assert second.spec().base_url == "http://localhost:8000/v1"
    assert second.spec().model == "Qwen/Qwen3-4B"
    task = config.tasks[0]
    assert task.description == "Sort: #1 'messages'"
    assert task.target_attributes == {
        "mood": ["calm", "annoyed"], "tone": ["plain", "3.10"], "team": ["billing", "sales"]
    }  # fmt: skip
    assert list(task.label_attributes) == ["team"]
    assert isinstance(task.rubric, dict)
    assert task.rubric["brevity"] == "Nothing is said: beyond it."
    assert (task.sampling.total, config.experiment.budget_usd) == (30, 2.5)


def test_what_cannot_be_used_is_asked_again(tmp_path: Path) -> None:
    done = wizard(
        tmp_path, "my exp", "a__b", "exp", *PLAIN[1:], "tone", "tone: one", "",
        "gpt-4o", "simulated/x", "simulated/x", "", "cook", "judge", "judge", "", "zero", "-3", "5", "",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for said in (
        "'my exp' is no name",
        "holds '__'",
        "`reader: child, expert`",
        "INTERFACE/MODEL",
        "some of",
    ):
        assert said in done.stderr
    assert "Nobody is teacher or student: x is, then." in done.stderr
    assert [model.name for model in load_config(tmp_path / "exp.yaml").models] == ["x", "x-2"]


def test_answers_that_end_write_nothing_and_name_the_question(tmp_path: Path) -> None:
    done = wizard(tmp_path, "exp")
    assert done.returncode == 1
    assert "the answers end at 'What are the models to do? One sentence.'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_left(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    done = wizard(tmp_path, *PLAIN, "", "", "", "4", arguments=("--out", "mine.yaml"))
    assert done.returncode == 1
    assert "mine.yaml is there already" in done.stderr
    assert (tmp_path / "mine.yaml").read_text() == "mine"


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_it_without_a_file(tmp_path: Path) -> None:
    mine, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "coeval", "wizard"],
        cwd=tmp_path, stdin=its, stdout=its, stderr=its, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(its)
        shown = b""
        while b"my-benchmark" not in shown:
            shown += os.read(mine, 1000)
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    os.close(mine)
    assert code == 130
    assert list(tmp_path.iterdir()) == []
