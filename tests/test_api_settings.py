"""``coeval.evaluate`` and ``coeval.sweep``: the keywords are the settings, the results are typed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, assert_type

import pytest
from cli.eval_process import surroundings, write_prompts
from fakes.simulated_host import simulated_host

import coeval
from coeval.benchmarks.benchmark import Metric
from coeval.benchmarks.run.eval_settings import EvalSettings
from coeval.benchmarks.run.task_summary import TaskSummary
from coeval.benchmarks.task_registry import TASKS
from coeval.cli.eval_framework.command import make_app
from coeval.cli.main import build_app
from coeval.core.settings import read_settings
from coeval.engine.progress import Board
from coeval.sweeps.scheduler import SweepBoard
from coeval.sweeps.sweep_settings import SweepSettings

WATCHED = {"progress", "watcher", "interrupt"}
LEVELS = [
    f"{level}_level_{how}_accuracy" for how in ("strict", "loose") for level in ("prompt", "instruction")
]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in surroundings(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(6)])


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with simulated_host("tiny:skill=0.9", "step_10:skill=0.2", "step_20:skill=0.9") as url:
        yield url


@pytest.mark.parametrize(
    ("function", "record"), [(coeval.evaluate, EvalSettings), (coeval.sweep, SweepSettings)]
)
def test_the_keywords_are_the_settings_and_each_is_explained(function: Any, record: Any) -> None:
    keywords = signature(function).parameters
    assert keywords.keys() == read_settings(record).keys() | WATCHED
    assert all(keywords[name].default == field.default for name, field in read_settings(record).items())
    explained = (getdoc(function) or "").splitlines()
    assert all(f"{name}:" in explained for name in read_settings(record))
    assert not any(re.search("--[a-z]", line) for line in explained)


def test_every_flag_of_the_commands_is_a_setting_or_known_to_belong_to_the_command_line() -> None:
    import typer.main

    evaluating: Any = typer.main.get_command(make_app())
    sweeping: Any = typer.main.get_command(build_app())
    of_tasks = {option.parameter for row in TASKS.values() for option in row.options}
    flags = {parameter.name for parameter in evaluating.params} - of_tasks
    assert flags - {"estimate_only", "as_json", "log_level", "version"} == read_settings(
        EvalSettings
    ).keys() - {"task_options"}
    flags = {parameter.name for parameter in sweeping.commands["sweep"].params}
    assert flags - {"config", "dry_run", "status", "log_level"} == read_settings(SweepSettings).keys() - {
        "slurm"
    }


@pytest.mark.process
def test_an_evaluation_is_typed_and_asks_nothing_twice(host: str, prompts: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"base_url": host, "task_options": {"ifeval_input": prompts}, "num_runs": 2}
    done = coeval.evaluate(tasks="ifeval", model="tiny", output_dir=tmp_path / "out", **how)
    assert_type(done, coeval.EvaluationRun)
    assert (done.exit_code, done.gaps, list(done.tasks)) == (0, (), ["run_0 ifeval", "run_1 ifeval"])
    summary = done.tasks["run_0 ifeval"]
    assert_type(summary, TaskSummary)
    metric = summary.metrics["prompt_level_strict_accuracy"]
    assert_type(metric, Metric)
    assert metric.ci95 is not None
    assert (metric.n, metric.ci95[0] <= (metric.value or 0) <= metric.ci95[1]) == (6, True)
    assert [(row.metric, row.samples) for row in done.results().metrics] == [(name, 2) for name in LEVELS]
    assert len(done.run.table("answers").fetchall()) == 12
    assert "prompt_level_strict_accuracy" in done._repr_html_()
    requested = json.loads((tmp_path / "out" / "usage.json").read_text())
    coeval.evaluate(tasks=["ifeval"], model="tiny", output_dir="out", **how)
    assert json.loads((tmp_path / "out" / "usage.json").read_text()) == requested


class Witness:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.boards: list[Board | SweepBoard] = []

    def note(self, message: str) -> None:
        self.reported.append(message)

    def warn(self, message: str) -> None:
        self.reported.append(message)

    def begin(self, board: Board | SweepBoard) -> None:
        self.boards.append(board)


async def test_it_works_where_a_loop_is_running_and_is_watched(
    host: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = Witness()
    done = coeval.evaluate(
        tasks="ifeval", model="tiny", base_url=host, task_options={"ifeval-input": prompts},
        watcher=witness, progress=True,
    )  # fmt: skip
    assert done.exit_code == 0
    assert [type(board) for board in witness.boards] == [Board]
    assert "6/6" in capsys.readouterr().err.replace(" of ", "/")
    event = asyncio.Event()
    event.set()
    stopped = coeval.evaluate(
        tasks="ifeval", model="tiny", base_url=host, task_options={"ifeval-input": prompts},
        output_dir="other", interrupt=event,
    )  # fmt: skip
    assert stopped.exit_code == 130


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tasks": "ifeval"}, "^model is needed for ifeval"),
        ({"tasks": "ifevil", "model": "m"}, "^tasks: there is no task 'ifevil'; did you mean ifeval"),
        ({"tasks": "ifeval", "model": "m", "temperature": -1}, "temperature must be a number of at least 0"),
        ({"tasks": "ifeval", "model": "m", "num_runs": "2"}, "num_runs is text, and must be a whole number"),
        ({"tasks": "ifeval", "model": "m", "probe": "never"}, "^probe cannot be used"),
        ({"tasks": "healthbench", "model": "m", "judge_only": True, "inference_only": True},
         "^inference_only and judge_only exclude each other"),
        ({"tasks": "ifeval", "model": "m", "task_options": {"ifeval-inputs": "x"}}, "^task_options ifeval"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_the_words_of_python(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(coeval.UsageError, match=said):
        coeval.evaluate(**wrong)


def test_keywords_are_known_to_type_checkers() -> None:
    with pytest.raises(TypeError):
        coeval.evaluate(taks="ifeval")  # type: ignore[call-arg]
    with pytest.raises(coeval.UsageError):
        coeval.evaluate(tasks="ifeval", model="m", max_tokens="9")  # type: ignore[arg-type]
    with pytest.raises(coeval.UsageError):
        coeval.sweep(out="o", tasks={"ifeval": "2"})  # type: ignore[dict-item]


@pytest.mark.process
def test_a_model_that_does_not_answer_raises(prompts: Path) -> None:
    with pytest.raises(coeval.ModelUnavailable):
        coeval.evaluate(
            tasks="ifeval",
            model="m",
            base_url="http://127.0.0.1:9/v1",
            task_options={"ifeval-input": prompts},
        )


@pytest.mark.system
async def test_a_sweep_over_servers_that_run(host: str, prompts: Path, tmp_path: Path) -> None:
    witness = Witness()
    swept = coeval.sweep(
        checkpoints=[{"step": 10, "path": "ann/ten"}, {"step": 20, "path": "ann/twenty"}],
        external=host, tasks={"ifeval": 2}, task_options={"ifeval-input": prompts}, out=tmp_path / "out",
        watcher=witness,
    )  # fmt: skip
    assert_type(swept, coeval.SweepRun)
    assert (swept.exit_code, swept.gaps) == (0, ())
    rows = swept.results()
    assert [(row.step, row.task, row.n_runs, row.n_items) for row in rows] == [
        (10, "ifeval", 2, 6),
        (20, "ifeval", 2, 6),
    ]
    assert all(row.ci95 is not None for row in rows)
    assert (tmp_path / "out" / "plots" / "curves.html").exists()
    assert [type(board) for board in witness.boards] == [SweepBoard]
    assert "4 jobs to do for 2 checkpoints" in witness.reported
    with pytest.raises(coeval.UsageError, match="no server has step 20"):
        coeval.sweep(
            checkpoints=[{"step": 20, "path": "ann/twenty"}], external=f"10={host}", out="o", tasks="ifeval"
        )
