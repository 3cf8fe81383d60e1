"""Answers without any text count like all others, and whoever looks is told how many there are, and why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import finish, start, write_prompts
from cli.invoked import Command
from fakes.openai_chat import Answer, Behaviour, fake
from pipeline.experiments import Lab, model, task

from coeval.api import Run, open_run

pytestmark = pytest.mark.process

SILENT = "Empty, and counted like all others: 3 of 3 answers of mute."
CUT = "Likely cause: reasoning that used all of max_tokens (raise it)."
ENDED = "Likely cause: a filter of the host, or a chat template that does not fit the model."


def said(*texts: str) -> str:
    return " ".join(" ".join(texts).split())


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Answer(None), ENDED),
        (Answer(" \n"), ENDED),
        (Answer(None, finish_reason="length", message={"reasoning": "let me see"}), CUT),
    ],
)
def test_every_command_says_how_many_answers_are_empty_and_why(
    here: Path, coeval: Command, answer: Behaviour, cause: str
) -> None:
    lab = Lab(here, [model("ann")], [task(total=3)])

    async def run() -> Run:
        async with fake(reply=lambda _: answer) as host:
            mute = {"interface": "vllm", "parameters": {"base_url": host.url, "model": "mute"}}
            lab.models.append(model("mute", "student") | mute)
            return await lab.arun()

    assert asyncio.run(run()).exit_code == 0, "they are answers, and nothing is missing"
    before = lab.counts()
    for words in (
        ("run", "--config", lab.file, "--continue", "--dry-run"),
        ("run", "--config", lab.file, "--continue", "--probe", "disable"),
        ("status", "--run", lab.path),
        ("results", "--run", lab.path),
    ):
        shown = coeval(*words)
        assert f"warning: {SILENT} {cause}" in said(shown.out, shown.err), shown
    assert lab.counts() == before

    [score] = [s for s in open_run(lab.path).results().students if s.student == "mute" and s.task is None]
    assert (score.answers, score.empty, score.n) == (3, 3, 3), "judged like all others"
    assert score.empty_truncated == (3 if cause == CUT else 0)
    assert SILENT in open_run(lab.path).results()._repr_html_()


def test_a_run_without_empty_answers_does_not_speak_of_them(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")], [task(total=2)])
    lab.run()
    for command in ("status", "results"):
        shown = coeval(command, "--run", lab.path)
        assert "Empty" not in shown.out + shown.err


def test_a_failed_or_replaced_answer_is_not_an_empty_one(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann"), model("ben")], [task(total=2)])
    lab.run()
    [first, second] = [f"story__ann__{n:05d}__ben" for n in (1, 2)]
    [path] = lab.path.glob("phase4_responses/*.ben.*")
    good = next(line for line in path.read_text().splitlines() if json.loads(line)["id"] == first)
    lab.edit("response_collection", first, response="")
    lab.edit("response_collection", second, response=None, status="failed")
    with path.open("a") as file:
        file.write(good + "\n")
    shown = coeval("status", "--run", lab.path)
    assert "Empty" not in shown.out + shown.err
    assert {s.empty for s in open_run(lab.path).results().students} == {0}


def test_a_line_too_long_for_tables_is_none_of_the_empty_ones(here: Path) -> None:
    lab = Lab(here, [model("ann"), model("ben")], [task(total=2)])
    lab.run()
    huge: dict[str, Any] = {"response": " " * (1 << 17) + "x" * (1 << 24)}
    lab.edit("response_collection", "story__ann__00001__ben", **huge)
    lab.edit("response_collection", "story__ann__00002__ben", response=" " * (1 << 24))
    [score] = [s for s in open_run(lab.path).results().students if s.student == "ben" and s.task is None]
    assert (score.answers, score.empty) == (4, 1)


async def test_the_benchmarks_tell_them_too(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Prompt {n}." for n in range(4)])

    def reply(messages: list[dict[str, Any]]) -> Answer:
        last = messages[-1]["content"].endswith("3.")
        return Answer("fine") if last else Answer("", message={"reasoning_content": "hm"})

    async with fake(reply=reply, extra_fields={"top_k"}) as server:
        how = ["--tasks", "ifeval", "--model", "m", "--base-url", server.url, "--ifeval-input", prompts]
        ended = await finish(await start(tmp_path, *how))
    assert ended.code == 0, ended
    cause = "Likely cause: a filter of the host, or a chat template that does not fit the model."
    assert f"warning: Empty, and counted like all others: 3 of 4 answers to ifeval. {cause}" in ended.out
    summary = json.loads((tmp_path / "outputs" / "ifeval" / "summary.json").read_text())
    assert summary["empty"] == {"n": 3, "answers": 4, "share": 0.75, "truncated": 0}
    assert summary["n_scored"] == 4

    given = tmp_path / "responses.jsonl"
    given.write_text("".join(json.dumps({"key": n, "response": None}) + "\n" for n in range(4)))
    how = [
        "--tasks",
        "ifeval",
        "--ifeval-input",
        prompts,
        "--ifeval-responses",
        given,
        "--output-dir",
        "given",
    ]
    ended = await finish(await start(tmp_path, *how))
    assert "4 of 4 answers to ifeval. Likely cause: they are empty in the file of responses." in ended.out
