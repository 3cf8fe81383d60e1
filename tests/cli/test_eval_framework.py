"""`eval-framework` as a user sees it."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.eval_process import COMMAND, surroundings
from cli.terminal import on_terminal
from fakes.simulated_host import simulated_host

from coeval.benchmarks.run.eval_choice import make_evaluation
from coeval.benchmarks.run.eval_settings import EvalSettings
from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.run.task_summary import Outcome, TaskOutcome, TaskSummary
from coeval.cli import streams
from coeval.cli.eval_framework.command import main
from coeval.cli.eval_framework.command import make_app as eval_framework
from coeval.cli.eval_framework.eval_report import print_outcome
from coeval.cli.settings_flags import read_set_flags
from coeval.core.errors import UsageError
from coeval.models.keys import Keys
from coeval.models.transport.network import SourceFailed

SMALL = "all of this is written in small letters, as it should be"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache, keys or language data of this machine; and nothing to be fetched."""
    monkeypatch.setenv("NLTK_DATA", surroundings(tmp_path)["NLTK_DATA"])
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "VLLM_API_KEY", "COEVAL_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    records = [
        {"key": n, "prompt": f"Prompt {n}.", "instruction_id_list": [kind], "kwargs": [{}]}
        for n, kind in enumerate(("punctuation:no_comma", "change_case:english_lowercase"))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["eval-framework", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def requested(*arguments: object, keys: dict[str, str] | None = None) -> EvalSpec:
    """What a command line asks for."""
    import typer.main

    command = typer.main.get_command(eval_framework())
    context: Any = command.make_context("eval-framework", [str(argument) for argument in arguments])
    found = Keys.load(None, env=keys or {}, cwd=Path.cwd(), home=Path.cwd())
    return make_evaluation(EvalSettings(**read_set_flags(context, EvalSettings)), found)


def test_the_defaults_are_those_of_the_guide() -> None:
    evaluation = requested("--tasks", "ifeval", "--model", "Qwen3-4B")
    assert evaluation.sampling.to_dict() == {
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
        "max_tokens": 2048,
    }
    assert evaluation.tested is not None
    assert evaluation.tested.base_url == "http://localhost:8000/v1"
    assert (evaluation.tested.max_concurrency, evaluation.tested.start_concurrency) == (64, 64)
    assert (evaluation.judge, evaluation.judge_sampling.to_dict(), evaluation.mode) == (None, {}, "all")


def test_tasks_in_any_form() -> None:
    said = ["--tasks", "ifeval, ifbench", "--task", "arena_hard", "--tasks", "ifeval,coeval:runs/a_b"]
    names = [task.name for task in requested(*said, "--model", "m").tasks]
    assert names == ["ifeval", "ifbench", "arena-hard", "coeval:runs/a_b"]


def test_the_judge_is_like_the_model_where_nothing_else_is_said() -> None:
    url, other = "http://a.example/v1", "http://b.example/v1"
    mine = ["--tasks", "healthbench", "--model", "m", "--base-url", url, "--api-key", "key-a"]
    judge = requested(*mine, "--judge-model", "j", "--judge-temperature", "0.5").judge
    assert judge is not None
    assert (judge.model, judge.base_url, judge.access_key) == ("j", url, "key-a")
    judge = requested(*mine, "--judge-base-url", other).judge
    assert judge is not None
    assert (judge.name, judge.model, judge.base_url, judge.access_key) == ("m (judge)", "m", other, "key-a")
    assert requested(*mine, "--judge-model", "m").judge is None
    evaluation = requested(*mine, "--judge-model", "j", "--judge-top-k", "5", "--judge-max-tokens", "7")
    assert evaluation.judge_sampling.to_dict() == {"top_k": 5, "max_tokens": 7}


def test_a_server_is_waited_for_as_long_as_the_user_says() -> None:
    how = ("--tasks", "alpaca-eval", "--model", "m", "--judge-model", "j")
    for words, wait_s in (((), None), (("--wait-for-server", "600"), 600.0)):
        evaluation = requested(*how, *words)
        assert evaluation.tested is not None
        assert evaluation.judge is not None
        assert (evaluation.tested.wait_s, evaluation.judge.wait_s) == (wait_s, wait_s)


def test_a_known_host_is_asked_with_its_own_key_and_without_what_it_refuses() -> None:
    openai = "https://api.openai.com/v1"
    evaluation = requested(
        "--tasks", "alpaca-eval", "--model", "m", "--judge-model", "gpt-4.1", "--judge-base-url", openai,
        "--api-key", "for-the-model", keys={"OPENAI_API_KEY": "sk-judge"},
    )  # fmt: skip
    assert evaluation.judge is not None
    assert (evaluation.judge.interface, evaluation.judge.access_key) == ("openai", None)
    assert (
        "top_k" not in requested("--tasks", "ifeval", "--model", "m", "--base-url", openai).sampling.to_dict()
    )
    given = requested(
        "--tasks", "ifeval", "--model", "m", "--base-url", openai, "--top-k", "3"
    ).sampling.to_dict()
    assert given["top_k"] == 3


def test_sampling_that_nobody_asked_for_may_go_where_a_host_refuses_it() -> None:
    usual = requested("--tasks", "ifeval", "--model", "m")
    assert usual.sampling.to_dict() == {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "max_tokens": 2048}
    assert set(usual.droppable) == {"temperature", "top_p", "top_k"}
    wished = requested("--tasks", "ifeval", "--model", "m", "--temperature", "0.7", "--top-k", "0")
    assert wished.sampling.to_dict() == usual.sampling.to_dict() | {"top_k": 0}
    assert wished.droppable == ("top_p",)


@pytest.mark.parametrize(
    ("url", "interface"),
    [
        ("https://api.anthropic.com", "anthropic"),
        ("https://api.anthropic.com/v1/", "anthropic"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://llm.example/v1", "vllm"),
    ],
)
def test_an_address_says_whose_manners_it_has(url: str, interface: str) -> None:
    tested = requested("--tasks", "ifeval", "--model", "m", "--base-url", url).tested
    assert tested is not None
    assert tested.interface == interface


def test_local_models_are_loaded_here() -> None:
    tested = requested("--tasks", "ifeval", "--model", "q", "--local", "--device", "cpu").tested
    assert tested is not None
    assert (tested.interface, tested.base_url, tested.options) == ("huggingface", None, {"device": "cpu"})


@pytest.mark.parametrize("written", ["ckpt", "./ckpt", "ckpt/", "runs/../ckpt"])
def test_a_local_folder_is_one_model_in_any_spelling(written: str) -> None:
    Path("ckpt").mkdir()
    Path("runs").mkdir()
    evaluation = requested("--tasks", "healthbench", "--model", written, "--local", "--judge-model", written)
    assert evaluation.tested is not None
    assert (evaluation.tested.model, evaluation.judge) == ("ckpt", None)


def test_checkouts_are_used_where_the_cache_has_nothing(tmp_path: Path) -> None:
    data = tmp_path / ".external" / "IFBench" / "data" / "IFBench_test.jsonl"
    data.parent.mkdir(parents=True)
    data.touch()
    (task,) = requested("--tasks", "ifbench", "--model", "m").tasks
    assert task.given["ifbench/prompts"].resolve() == data
    own = tmp_path / "own.jsonl"
    own.touch()
    (task,) = requested("--tasks", "ifbench", "--model", "m", "--ifbench-input", own).tasks
    assert task.given == {"ifbench/prompts": own}


def test_an_arena_hard_checkout(tmp_path: Path) -> None:
    folder = tmp_path / "arena" / "data" / "arena-hard-v9"
    (folder / "model_answer").mkdir(parents=True)
    for name in ("question.jsonl", "model_answer/o3-mini-2025-01-31.jsonl",
                 "model_answer/gemini-2.0-flash-001.jsonl"):  # fmt: skip
        (folder / name).touch()
    how = ["--tasks", "arena-hard", "--model", "m", "--arena-hard-benchmark", "arena-hard-v9"]
    (task,) = requested(*how, "--arena-hard-dir", tmp_path / "arena").tasks
    assert task.given["arena-hard/questions"] == folder / "question.jsonl"
    assert len(task.given) == 3
    with pytest.raises(UsageError, match="--arena-hard-dir"):
        requested(*how)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "m"], "name the tasks"),
        (["--tasks", "ifval", "--model", "m"], "did you mean ifeval?"),
        (["--tasks", "ifeval"], "--model is needed"),
        (["--tasks", "ifeval", "--model", "m", "--judge-only"], "without a judge"),
        (["--tasks", "healthbench", "--model", "m", "--judge-only", "--inference-only"], "exclude"),
        (["--tasks", "ifeval", "--model", "m", "--local", "--base-url", "http://h/v1"], "give one of them"),
        (["--tasks", "ifeval", "--model", "m", "--ifeval-input", "nowhere.jsonl"], "no file nowhere.jsonl"),
        (["--tasks", "ifbench", "--model", "m", "--ifbench-dir", "nowhere"], "--ifbench-dir"),
        (["--tasks", "ifeval", "--ifeval-responses", "nowhere.jsonl"], "no file nowhere.jsonl"),
        (["--tasks", "coeval:nowhere", "--model", "m"], "config.yaml"),
        (["--tasks", "ifeval", "--model", "m", "--base-url", "ftp://h"], "http://"),
        (["--tasks", "ifeval", "--model", "m", "--num-threads", "0"], "num-threads"),
        (["--tasks", "ifeval", "--model", "./typo", "--local"], "there is no folder ./typo"),
        (["--tasks", "ifeval", "--model", "m", "--base-url", "https://api.openai.com/v1"], "OPENAI_API_KEY"),
        (["--bogus"], "--bogus"),
    ],
)
def test_wrong_requests_end_before_anything_is_asked(
    arguments: list[str],
    message: str,
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "ifeval" in arguments and "--ifeval-input" not in arguments:
        arguments = [*arguments, "--ifeval-input", str(prompts)]
    assert run(monkeypatch, *arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> bytes:
        raise SourceFailed("no network here")

    monkeypatch.setattr("coeval.benchmarks.assets.cache.Fetcher._download_verified", nothing)


@pytest.mark.usefixtures("no_network")
def test_assets_that_cannot_be_had_are_named_at_once_with_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--tasks", "ifeval,healthbench", "--model", "m") == 1
    error = capsys.readouterr().err
    assert "coeval datasets fetch ifeval/prompts healthbench/examples healthbench/grader" in error
    assert "--ifeval-input, --healthbench-data" in error


@pytest.mark.usefixtures("no_network")
def test_what_is_done_without_is_said_once(
    host: str, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once in all: the next command, within the hour in which nothing is tried again, is silent."""
    monkeypatch.delenv("NLTK_DATA")
    monkeypatch.setenv("COEVAL_CACHE", str(prompts.parent / "cache"))
    monkeypatch.setenv("HOME", "/nowhere")
    how = ["--tasks", "ifeval,ifbench", "--ifeval-input", prompts, "--ifbench-input", prompts]
    assert run(monkeypatch, *how, "--model", "sim-a", "--base-url", host) == 0
    said = " ".join(capsys.readouterr().err.split())
    names = "nltk/punkt_tab, nltk/stopwords, nltk/averaged_perceptron_tagger_eng"
    assert (
        f"continuing without {names} (no network here); `coeval datasets fetch {names.replace(',', '')}`"
        in said
    )
    assert (said.count("continuing without"), said.count("http")) == (1, said.count(host))
    assert run(monkeypatch, *how, "--model", "sim-a", "--base-url", host) == 0
    assert "continuing without" not in capsys.readouterr().err, "the first command has said so"


@pytest.fixture
def host() -> Iterator[str]:
    with simulated_host("sim-a:skill=0.9", "sim-judge") as url:
        yield url


def test_from_prompts_to_a_table(
    host: str, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--tasks", "ifeval", "--model", "sim-a", "--base-url", host, "--ifeval-input", prompts]
    assert run(monkeypatch, *how, "--output-dir", "out") == 0
    shown = capsys.readouterr().out
    assert "prompt_level_strict_accuracy" in shown
    assert "Not comparable with published numbers" in shown
    names = {path.name for path in Path("out/ifeval").iterdir() if not path.name.startswith(".")}
    assert names == {
        "summary.json", "responses.jsonl", "scores.jsonl",
        "eval_results_strict.jsonl", "eval_results_loose.jsonl",
    }  # fmt: skip
    found = json.loads(Path("out/ifeval/summary.json").read_text())
    used = found["assets"]["ifeval/prompts"]
    assert used["sha256"] == hashlib.sha256(prompts.read_bytes()).hexdigest()
    assert used["origin"] == "given by the user"
    assert found["coeval_version"]


@pytest.mark.process
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_bars_go_to_the_terminal_and_only_figures_into_a_pipe(
    host: str, prompts: Path, tmp_path: Path, columns: int
) -> None:
    command = [sys.executable, "-m", "coeval.cli.eval_framework", "--tasks", "ifeval", "--model", "sim-a"]
    words = [*command, "--base-url", host, "--ifeval-input", prompts]
    seen = on_terminal(words, columns, cwd=tmp_path, out_piped=True)
    assert seen.code == 0
    assert any(re.match(r"ifeval .* 2/2 +2/2 ", line) for line in seen.written)
    assert "…" not in "\n".join(seen.written)
    assert seen.screen[-2] == "Results: outputs/ifeval"
    assert not re.search(r"[\x1b\r━]|records|Results", seen.piped)
    assert re.search(r"^  instruction_level_strict_accuracy +\d+\.\d +\[", seen.piped, re.MULTILINE)
    assert "n: prompts (instructions in instruction_level rows);" in " ".join(seen.piped.split())
    whole = on_terminal(words, columns, cwd=tmp_path)
    assert max(len(line) for line in whole.screen if not line.startswith("/")) <= columns, "paths are whole"
    assert "  instruction_level_strict_accuracy" in "\n".join(whole.screen)


def test_options_of_tasks_that_are_not_asked_for_are_told(
    host: str, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--tasks", "ifeval", "--model", "sim-a", "--base-url", host, "--ifeval-input", prompts]
    assert run(monkeypatch, *how) == 0
    assert "without effect" not in capsys.readouterr().err
    others = ["--writingbench-write-excel", "--arena-hard-dir", "nowhere"]
    assert run(monkeypatch, *how, *others) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "warning: without effect, since their tasks are not among --tasks" in shown
    assert "--tasks: --writingbench-write-excel, --arena-hard-dir" in shown


def test_json_on_stdout_and_the_rest_on_stderr(
    host: str, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--tasks", "ifeval", "--model", "sim-a", "--base-url", host, "--ifeval-input", prompts, "--json"]
    assert run(monkeypatch, *how) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["exit_code"] == 0
    assert reported["tasks"]["ifeval"]["summary"]["n_expected"] == 2
    assert reported["tasks"]["ifeval"]["folder"] == "outputs/ifeval"


def test_mean_and_spread_over_samples_as_json(
    host: str, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--tasks", "ifeval", "--model", "sim-a", "--base-url", host, "--ifeval-input", prompts, "--json"]
    assert run(monkeypatch, *how, "--num-runs", 3) == 0
    reported = json.loads(capsys.readouterr().out)
    name = "prompt_level_strict_accuracy"
    single = [reported["tasks"][f"run_{k} ifeval"]["summary"]["metrics"][name]["value"] for k in range(3)]
    spread = reported["over_runs"]["ifeval"][name]
    assert (spread["per_run"], spread["n_runs"], spread["unit"]) == (single, 3, "share")
    assert spread["mean"] == pytest.approx(statistics.fmean(single))
    assert spread["std"] == pytest.approx(statistics.stdev(single))


@pytest.mark.process
def test_mean_and_spread_over_samples_within_80_columns(host: str, prompts: Path, tmp_path: Path) -> None:
    how = ["--tasks", "ifeval", "--model", "sim-a", "--base-url", host, "--ifeval-input", prompts]
    seen = on_terminal([*COMMAND, *how, "--num-runs", 2], 80, cwd=tmp_path)
    assert seen.code == 0
    assert max(len(line) for line in seen.written if not line.startswith("/")) <= 80, "paths are whole"
    heading = seen.screen.index("Over runs")
    rows = [line.split() for line in seen.screen[heading + 1 : heading + 6]]
    assert rows[0] == ["task", "metric", "mean", "SEM", "runs", "items"]
    assert [(*row[:2], len(row), row[-2]) for row in rows[1:]] == [
        ("ifeval", f"{level}_level_{reading}_accuracy", 8, "2")
        for reading in ("strict", "loose")
        for level in ("prompt", "instruction")
    ]


def given(tmp_path: Path, *records: dict[str, Any]) -> Path:
    path = tmp_path / "given.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.process
def test_given_responses_are_scored_without_a_model_and_gaps_are_told(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = given(
        tmp_path,
        {"key": 1, "response": "NO"},
        {"prompt": "Prompt 1.", "response": SMALL},
        {"key": "99", "response": "?"},
    )
    how = ["--tasks", "ifeval", "--ifeval-input", prompts, "--ifeval-responses", path]
    assert run(monkeypatch, *how) == 3
    shown = " ".join(capsys.readouterr().err.split())
    assert "1 missing (add the responses to the file)" in shown
    assert "not used of the file's 3 records: 1 replaced by a later one" in shown
    assert "1 for prompts that the task lacks" in shown
    assert "is asked for" not in shown
    found = json.loads(Path("outputs/ifeval/summary.json").read_text())
    assert found["metrics"]["prompt_level_strict_accuracy"]["value"] == 0.5
    assert found["metrics"]["prompt_level_strict_accuracy"]["n"] == 2
    assert (found["n_expected"], found["n_scored"]) == (2, 1)
    assert found["n_failed"] == found["missing"] == {"missing": 1}
    assert found["given"] == {"records": 3, "doubled": 1, "unknown": 1, "missing": 1}
    assert not found["complete"]
    assert not found["comparable"]
    assert "records without a value: 1 missing" in found["reasons"]


def test_only_responses_that_the_file_lacks_are_to_be_added_to_it(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = given(tmp_path, {"key": 0, "response": "fine"})
    assert run(monkeypatch, "--ifeval-input", prompts, "--ifeval-responses", path) == 3
    summary = msgspec.json.decode(Path("outputs/ifeval/summary.json").read_bytes(), type=TaskSummary)
    summary = msgspec.structs.replace(summary, missing={"missing": 3, "timeout": 2})
    capsys.readouterr()
    print_outcome(Outcome([TaskOutcome("ifeval", tmp_path, summary)]), streams.results(), streams.messages())
    shown = capsys.readouterr().err
    assert "1 missing (add the responses to the file), 2 missing, 2 timeout" in shown
    assert "To fill the gaps, run the same command" in shown


def test_given_responses_beyond_the_first_prompts_are_not_unknown(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = given(tmp_path, *({"key": key, "response": "fine"} for key in (0, 1)))
    how = ["--ifeval-input", prompts, "--ifeval-responses", path, "--max-examples", "1"]
    assert run(monkeypatch, *how) == 0
    assert "for prompts that" not in capsys.readouterr().out
    found = json.loads(Path("outputs/ifeval/summary.json").read_text())
    assert (found["n_expected"], found["complete"], found["given"]["unknown"]) == (1, True, 0)


def test_given_responses_by_key_and_an_empty_one_that_stays_in(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = given(tmp_path, {"key": 0, "response": "fine"}, {"key": 1, "response": None})
    assert run(monkeypatch, "--ifeval-input", prompts, "--ifeval-responses", path) == 0
    found = json.loads(Path("outputs/ifeval/summary.json").read_text())
    assert found["metrics"]["prompt_level_strict_accuracy"]["value"] == 0.5
    assert found["n_failed"] == {}


@pytest.mark.parametrize("record", [{"key": 0, "answer": "x"}, {"key": 5, "response": "x"}])
def test_given_responses_that_fit_nothing_are_refused(
    record: dict[str, Any], prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = given(tmp_path, record)
    assert run(monkeypatch, "--ifeval-input", prompts, "--ifeval-responses", path) == 1


def test_version_and_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert "coeval" in capsys.readouterr().out
    assert run(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    for flag in ("--tasks", "--judge-max-tokens", "--alpaca-eval-hf-dataset", "--ifbench-responses"):
        assert flag in shown


@pytest.mark.parametrize("url", ["host", "http://h/v1#x", "http://h/v1?key=1", "http://h /v1"])
def test_a_wrong_address_is_told_in_the_words_of_the_command_line(
    prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    how = ["--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", url]
    assert run(monkeypatch, *how) == 1
    said = capsys.readouterr().err
    assert "--base-url" in said
    assert "parameters." not in said


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_given_responses_in_another_encoding_are_refused_by_name(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    encoding: str,
) -> None:  # fmt: skip
    path = tmp_path / "given.jsonl"
    path.write_bytes('{"key": 0, "response": "caf\u00e9"}\n'.encode(encoding))
    assert run(monkeypatch, "--ifeval-input", prompts, "--ifeval-responses", path) == 1
    assert f"{path} is not in UTF-8; save it as UTF-8" in capsys.readouterr().err
