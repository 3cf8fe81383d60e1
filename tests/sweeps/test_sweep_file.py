"""The sweep as a file: its keys are the flags, and a mistake is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.invoked import Command

from coeval.cli.commands.sweep.sweep_report import read_sweep_settings
from coeval.core.errors import ConfigError
from coeval.models.keys import Keys
from coeval.sweeps.sweep_choice import make_sweep_request


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    return file


def test_keys_are_the_flags_and_flags_go_over_them(tmp_path: Path) -> None:
    text = """
out: outputs/run_a
checkpoints:
  - {step: 0, path: Qwen/Qwen3-4B}
steps: [120, 240]
tasks: {ifeval: 8, alpaca-eval: 1}
gpus: [0, 1]
judge_base_url: http://localhost:9000/v1
timeout: 30
task_options: {ifeval-input: prompts.jsonl}
"""
    read = read_sweep_settings({}, written(tmp_path, text))
    assert read.out == "outputs/run_a"
    assert read.checkpoints == [{"step": 0, "path": "Qwen/Qwen3-4B"}]
    assert read.steps == [120, 240]
    assert (read.tasks, read.gpus, read.timeout) == ({"ifeval": 8, "alpaca-eval": 1}, [0, 1], 30.0)
    over = read_sweep_settings({"gpus": "3", "max_examples": 4}, tmp_path / "sweep.yaml")
    assert (over.gpus, over.max_examples, over.tasks) == ("3", 4, read.tasks)


def test_credentials_for_servers_are_a_list_with_commas_in_a_file(tmp_path: Path) -> None:
    text = "out: o\ntasks: ifeval\nbase_model: m\ngpus: 0\nserver_env: HF_TOKEN, WANDB_API_KEY\n"
    settings = read_sweep_settings({}, written(tmp_path, text))
    request = make_sweep_request(settings, Keys.load(None, env={}, cwd=tmp_path, home=tmp_path))
    assert request.sweep.server is not None
    assert request.sweep.server.passed == ("HF_TOKEN", "WANDB_API_KEY")


WATCHED = ("--out", "o", "--tasks", "ifeval", "--checkpoints", ".", "--watch")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "out: x\nnum-samples: 3\n",
            "sweep.yaml:2  num-samples  V-18  the key 'num-samples' is unknown; did you",
        ),
        ("judge_modell: j\n", "did you mean 'judge_model'?"),
        ("checkpoints:\n- {step: 0, path: a}\n- {step: 1, pth: b}\n", "checkpoints[1].pth"),
        ("shards: many\n", "sweep.yaml:1  shards  V-20  is text, and must be a whole number"),
        ("slots: 0\n", "sweep.yaml:1  slots  V-20  must be a whole number of at least 1"),
        ("watch_interval: -1\n", "must be a number of at least 0.1"),
        ("top_p: 1.5\n", "must be a number of at most 1"),
        ("tasks: {ifeval: 0}\n", "must be a whole number of at least 1"),
        ("out: a\nout: b\n", "the key is on line 1 already"),
        ("", "write checkpoints:, out: and tasks:"),
        ("- a\n", "is not a mapping; write checkpoints:, out: and tasks: at its left margin"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_the_way_out(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_sweep_settings({}, written(tmp_path, text))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--out is missing"),
        (("--out", "o"), "a judge is needed"),
        (("--output-dir", "o", "--tasks", "ifeval", "--n-samples", "3"), "no checkpoint is named"),
        (("--out", "o", "--tasks", "ifeval", "--num-runs", "0"), "give a number above 0"),
        (("--out", "o", "--tasks", "ifevil"), "did you mean ifeval?"),
        (("--out", "o", "--tasks", "ifeval", "--n-samples", "ifbench=2"), "not among the tasks: ifeval"),
        (
            ("--out", "o", "--tasks", "ifeval", "--task-option", "ifeval-inputs=x"),
            "did you mean ifeval-input?",
        ),
        (("--out", "o", "--tasks", "ifeval", "--checkpoints", "c", "--until-step", "9"), "--watch"),
        ((*WATCHED, "--external", "http://127.0.0.1:9/v1", "--served-name", "m"), "under one name, m"),
        ((*WATCHED, "--external", "5=http://127.0.0.1:9/v1"), "no server has the steps to come"),
        (
            ("--out", "o", "--tasks", "ifeval", "--base-model", "m", "--server-command", "vllm serve"),
            "{port}",
        ),
        (
            ("--out", "o", "--tasks", "alpaca-eval", "--judge-model", "j", "--base-model", "m"),
            "--judge-base-url",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coeval: Command, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = coeval("sweep", "--gpus", "0", *words)
    assert ended.code == 1
    assert said in ended.err
    assert not list(tmp_path.iterdir())


def test_two_checkpoints_under_one_name_need_a_server_each(tmp_path: Path, coeval: Command) -> None:
    file = written(
        tmp_path,
        "checkpoints: [{step: 0, path: a/b}, {step: 9, path: a/c}]\n"
        "tasks: ifeval\nexternal: http://127.0.0.1:9/v1\nserved_name: tiny\n",
    )
    ended = coeval("sweep", "--config", file, "--out", tmp_path / "out")
    assert ended.code == 1
    assert "2 checkpoints would be served under one name, tiny" in ended.err
    assert "--external 0=URL" in ended.err


def test_a_pace_that_is_none_is_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coeval: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIN_INTERVAL_S", "often")
    ended = coeval("sweep", "--out", "o", "--tasks", "ifeval", "--base-model", "m", "--gpus", "0")
    assert (ended.code, list(tmp_path.iterdir())) == (1, [])
    assert "MIN_INTERVAL_S in the environment is not a number of seconds" in ended.err
