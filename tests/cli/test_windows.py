"""A server's window: refused before the first request, else at the first refusal, and never a score of 0."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import surroundings, write_prompts
from cli.invoked import Command, Ended
from fakes.openai_chat import Answer, Behaviour, Fault, Server, fake
from fakes.threaded import in_a_thread
from fakes.vllm import VllmServer, vllm

from coeval.cli.eval_framework.command import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NLTK_DATA", surroundings(tmp_path)["NLTK_DATA"])
    prompts = [f"Say something about {n}." for n in range(12)]
    return write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", prompts)


@pytest.fixture
def small() -> Iterator[VllmServer]:
    with in_a_thread(vllm(640)) as server:
        yield server


@pytest.fixture
def silent() -> Iterator[VllmServer]:
    """As vLLM behind a proxy whose list names no windows."""
    with in_a_thread(vllm(640, lists_window=False)) as server:
        yield server


class Evaluated:
    """``eval-framework`` on IFEval's prompts, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prompts: Path):
        self._monkeypatch, self._capsys, self._prompts = monkeypatch, capsys, prompts

    def __call__(self, server: Server, *words: object, name: str = "tiny") -> Ended:
        words = ("--tasks", "ifeval", "--ifeval-input", self._prompts, "--model", name, *words)
        arguments = ["eval-framework", *map(str, words), "--base-url", server.url]
        self._monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit) as end:
            main()
        said = self._capsys.readouterr()
        return Ended(int(end.value.code or 0), said.out, said.err)


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: Path) -> Evaluated:
    return Evaluated(monkeypatch, capsys, here)


def summary(folder: str = "outputs") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "ifeval", "summary.json").read_text())
    return found


@pytest.mark.parametrize("probing", [(), ("--probe", "disable")])
@pytest.mark.parametrize("name", ["tiny", "polite"])
def test_answers_above_a_window_are_refused_before_the_first_request(
    small: VllmServer, evaluated: Evaluated, name: str, probing: tuple[str, ...]
) -> None:
    """The window of an adapter is its parent's."""
    ended = evaluated(small, *probing, name=name)
    assert ended.code == 1, ended
    said = " ".join(ended.err.split())
    assert f"{name}: an answer may have 2,048 tokens, and its server's window (max_model_len) has 640" in said
    assert "Use --max-tokens 320, or serve it with a larger --max-model-len" in said
    assert small.requested == []
    assert evaluated(small, "--max-tokens", 320, *probing, name=name).code == 0


def test_where_a_failed_probe_only_warns_a_window_does_too(small: VllmServer, evaluated: Evaluated) -> None:
    """A gateway's list may be wrong."""
    ended = evaluated(small, "--probe-on-fail", "warn", "--num-threads", 1)
    assert ended.code == 3, ended
    assert "an answer may have 2,048 tokens" in " ".join(ended.err.split())
    assert len(small.requested) == 1


def test_a_list_that_bounds_prompts_or_some_providers_ends_nothing(evaluated: Evaluated) -> None:
    providers = [{"status": "live", "context_length": length} for length in (1024, 131072)]
    with in_a_thread(fake(extra_fields=["top_k"], listed=[{"id": "tiny", "providers": providers}])) as server:
        assert evaluated(server).code == 0


def test_without_a_window_in_the_list_the_first_refusal_ends_the_work(
    silent: VllmServer, evaluated: Evaluated
) -> None:
    ended = evaluated(silent, "--num-threads", 1)
    assert ended.code == 3, ended
    said = " ".join((ended.out + ended.err).split())
    assert "max_tokens=2048 cannot be greater than max_model_len=640" in said
    assert "Correct --max-tokens, and run again" in said
    assert len(silent.requested) == 1
    assert "not measured: 1 bad_request, 11 missing" in " ".join(ended.out.split())


def test_a_long_prompt_is_one_items_affair(evaluated: Evaluated, here: Path) -> None:
    """The host names its window, and not a limit below what was sent: the others are asked."""
    lines = [json.loads(line) for line in here.read_text().splitlines()]
    lines[0]["prompt"] = "word " * 700
    here.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with in_a_thread(vllm(640)) as server:
        ended = evaluated(server, "--max-tokens", 64)
    assert ended.code == 3, ended
    assert (summary()["not_measured"], summary()["n_failed"]) == ("", {"bad_request": 1})
    assert "refuses requests" not in ended.err, "one refusal is in the file of errors"


REFUSED = Fault(400, "At most 0 image(s) may be provided in one prompt, 14 were found.", param="messages")


def test_a_refusal_that_repeats_is_printed_once_and_no_score_is(
    evaluated: Evaluated, coeval: Command
) -> None:
    """Seven of twelve: the other five do not stand for them."""
    script: list[Behaviour] = [*[REFUSED] * 7, *[Answer("fine")] * 5]
    with in_a_thread(fake(*script, extra_fields=["top_k"], listed=[{"id": "tiny"}])) as server:
        ended = evaluated(server, "--num-threads", 1)
    assert ended.code == 3, ended
    assert ended.err.count("At most 0 image(s) may be provided in one prompt") == 1
    assert "ifeval not measured: 7 bad_request 12 prompts 7" in " ".join(ended.out.split())
    assert "ifeval: not measured: 7 bad_request" in ended.err
    found = summary()
    assert found["not_measured"] == "7 bad_request"
    assert {metric["value"] for metric in found["metrics"].values()} == {None}
    scores = [json.loads(line) for line in Path("outputs/ifeval/scores.jsonl").read_text().splitlines()]
    assert [line["scores"] for line in scores] == [{}] * 12
    shown = coeval("results", "--run", "outputs")
    assert "ifeval not measured: 7 bad_request" in " ".join(shown.out.split())
    told = json.loads(coeval("results", "--run", "outputs", "--json").out)
    assert {metric["value"] for metric in told["metrics"]} == {None}
    with in_a_thread(fake(extra_fields=["top_k"], listed=[{"id": "tiny"}])) as mended:
        assert evaluated(mended, "--output-dir", "other").code == 0
        compared = coeval("compare", "other", "outputs")
        assert "not measured: 7 bad_request" in " ".join((compared.out + compared.err).split())
        assert evaluated(mended).code == 0
    assert (summary()["not_measured"], summary()["n_failed"]) == ("", {})


def test_half_is_a_score_and_what_a_model_does_is_one(evaluated: Evaluated) -> None:
    filtered = Fault(400, "The response was filtered.", code="content_filter")
    with in_a_thread(
        fake(*[filtered] * 6, *[REFUSED] * 6, extra_fields=["top_k"], listed=[{"id": "tiny"}])
    ) as server:
        evaluated(server, "--num-threads", 1)
    assert summary()["not_measured"] == ""
    assert summary()["n_failed"] == {"content_filter": 6, "bad_request": 6}


def test_an_experiment_is_refused_too(small: VllmServer, coeval: Command, tmp_path: Path) -> None:
    """Each role by its own limit, each model with its own window."""
    with Path("items.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["prompt", "reference"], ["What?", "That."], ["Who?", "She."]])
    at = f"interface: vllm\n    parameters: {{model: tiny, base_url: '{small.url}', max_tokens: "
    Path("exp.yaml").write_text(
        f"""
models:
  - name: fits
    roles: [student]
    {at}64}}
  - name: pupil
    roles: [student]
    {at}700}}
  - name: judge
    roles: [judge]
    {at}5000}}
tasks:
  - name: qa
    description: Answer.
    items: {{path: items.csv, prompt: prompt, reference: reference}}
    rubric: {{right: Is it right?}}
experiment: {{id: exp, storage_folder: runs}}
"""
    )
    ended = coeval("run", "--config", "exp.yaml")
    assert ended.code == 1, ended.err
    said = " ".join(ended.err.split())
    assert "pupil: an answer may have 700 tokens" in said
    assert "judge: an answer may have 5,000 tokens" in said
    assert "Use parameters.max_tokens 320" in said
    assert "fits" not in said
    assert small.requested == []


def test_answers_that_fill_the_window_are_not_cut_off_at_max_tokens(
    evaluated: Evaluated, coeval: Command, here: Path
) -> None:
    """vLLM shortens the limit without a word where prompt and limit exceed its window."""
    lines = [json.loads(line) for line in here.read_text().splitlines()]
    for line in lines[:3]:
        line["prompt"] = "word " * 400
    here.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with in_a_thread(vllm(640)) as server:
        ended = evaluated(server, "--max-tokens", 300)
    assert ended.code == 0, ended
    said = " ".join(ended.out.split())
    assert "Cut off by the server's window: 3 of 12 answers to ifeval." in said
    assert "Raise the server's --max-model-len before trusting these scores." in said
    assert "max_tokens" not in said
    assert "cut off by the server's window: 3 of 12 answers" in said
    assert summary()["truncated"] == {"n": 3, "answers": 12, "share": 0.25, "by_window": 3}
    shown = coeval("results", "--run", "outputs")
    assert "cut off by the server's window" in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("output", "window"),
    [(300, False), (299, False), (290, False), (240, True), (12, True)],
)
def test_who_counts_a_token_less_was_cut_off_at_its_limit(
    evaluated: Evaluated, output: int, window: bool
) -> None:
    cut = Answer("a b", finish_reason="length", usage=(20, output))
    with in_a_thread(fake(reply=lambda _: cut, extra_fields=["top_k"], listed=[{"id": "tiny"}])) as server:
        ended = evaluated(server, "--max-tokens", 300)
    where = "by the server's window" if window else "at max_tokens"
    assert f"Cut off {where}: 12 of 12 answers to ifeval." in " ".join(ended.out.split())


def test_judgments_that_fill_the_window_fail_by_that_name(coeval: Command, tmp_path: Path) -> None:
    """A larger max_tokens, which a cut-off judgment calls for, would not help them."""
    Path("items.csv").write_text("prompt,answer\n" + "".join(f"What is {n}?,It is {n}.\n" for n in range(3)))
    cut = Answer("The answer is", finish_reason="length", usage=(200, 30))
    with in_a_thread(fake(reply=lambda _: cut, listed=[{"id": "tiny"}])) as server:
        Path("exp.yaml").write_text(
            f"""
models:
  - {{name: judge, roles: [judge], interface: vllm,
     parameters: {{model: tiny, base_url: '{server.url}', max_tokens: 400}}}}
students: [{{name: given, responses: {{path: items.csv, prompt: prompt, response: answer}}}}]
tasks:
  - {{name: qa, description: Answer., items: {{path: items.csv, prompt: prompt}}, rubric: {{right: Is it?}}}}
experiment: {{id: exp, storage_folder: runs}}
"""
        )
        ended = coeval("run", "--config", "exp.yaml")
    assert ended.code == 3, ended
    errors = [json.loads(line) for line in Path("runs/exp/run_errors.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in errors} == {"window"}, ended
    assert "filled its server's window (--max-model-len)" in errors[0]["message"]
    assert "raise it before" not in " ".join(ended.err.split())
