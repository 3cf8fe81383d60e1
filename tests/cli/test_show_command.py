"""``coeval show``: items, answers and judgments for reading; hostile text is text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.invoked import Command
from cli.terminal import on_terminal
from pipeline.experiments import Lab, model, quiz, task

HOSTILE = "safe\r\nstart \x1b[2J\x9b31m[bold]:smile: \u202egnirts\u2028line\x00 tab\tend\nanswer of nobody"


@pytest.fixture
def lab(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=4), quiz(total=2)])
    assert made.run().exit_code == 0
    return made


def show(lab: Lab, coeval: Command, *arguments: object) -> str:
    ended = coeval("show", "--run", lab.path, *arguments)
    assert ended.code == 0, ended.err
    return ended.out


def answers(out: str) -> int:
    return sum(line.startswith("answer of ") for line in out.splitlines())


def test_an_item_with_its_answers_and_what_judges_said(lab: Lab, coeval: Command) -> None:
    key = "quiz__ann__00001"
    item = lab.records("data_generation")[key]
    raw = '{"plot": "Low", "why": "It ends where it began."}'
    out = show(lab, coeval, "--id", key).splitlines()
    assert out[0] == key
    assert f"  {item['prompt'].splitlines()[0]}" in out
    assert f"  {item['reference_response'].splitlines()[0]}" in out
    assert {f"{key}__ann", f"{key}__ben"} <= set(out)
    labels = lab.records("evaluation")[f"{key}__ben__exact_match"]["label_scores"]["colour"]
    verdict = "right" if labels["match"] else "wrong"
    assert any(
        line.startswith(f"exact_match: colour: expected {labels['expected']}, given ") and verdict in line
        for line in out
    )
    story = "story__ann__00001__ben"
    lab.edit("evaluation", f"{story}__ann", raw=raw)
    out = show(lab, coeval, "--id", story).splitlines()
    scores = lab.records("evaluation")[f"{story}__ann"]["scores"]
    assert f"ann: plot {scores['plot']}, style {scores['style']}" in out
    assert f"  {raw}" in out


def test_the_worst_answers_of_a_student(lab: Lab, coeval: Command) -> None:
    values = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    scores: dict[str, list[float]] = {}
    for record in lab.records("evaluation").values():
        if record["task_id"] == "story" and record["student_model_id"] == "ben":
            scores.setdefault(record["response_id"], []).extend(values[v] for v in record["scores"].values())
    expected = sorted((sum(found) / len(found), key) for key, found in scores.items())
    lines = show(lab, coeval, "--worst", 3, "--student", "ben", "--task", "story", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [(each["score"], each["answer"]["id"]) for each in found] == expected[:3]
    assert all(len(each["judgments"]) == 2 for each in found)
    stored = lab.records("response_collection")[found[0]["answer"]["id"]]
    assert {name: found[0]["answer"][name] for name in stored} == stored


def test_disagreement_comes_most_first(lab: Lab, coeval: Command) -> None:
    found = [json.loads(line) for line in show(lab, coeval, "--disagreement", "--json").splitlines()]
    apart = [each["disagreement"] for each in found]
    assert apart == sorted(apart, reverse=True)
    assert min(apart) > 0


def test_few_are_shown_unless_more_are_asked_for(lab: Lab, coeval: Command) -> None:
    ended = coeval("show", "--run", lab.path)
    assert answers(ended.out) == 10
    assert "14 more answers; --limit 24 shows all of them" in ended.err
    assert answers(show(lab, coeval, "--limit", 24)) == 24
    assert len(show(lab, coeval, "--json").splitlines()) == 24


def test_long_texts_are_cut_unless_they_are_asked_for(lab: Lab, coeval: Command) -> None:
    key = "story__ann__00001__ann"
    lab.edit("response_collection", key, response="x" * 10_000)
    out = show(lab, coeval, "--id", key)
    assert "x" * 3_000 in out
    assert "… 7,000 more characters (--full shows them)" in out
    assert "x" * 10_000 in show(lab, coeval, "--id", key, "--full")
    assert json.loads(show(lab, coeval, "--id", key, "--json"))["answer"]["response"] == "x" * 10_000


def test_hostile_text_is_escaped_and_cannot_pass_for_a_heading(lab: Lab, coeval: Command) -> None:
    key = "story__ann__00001__ann"
    lab.edit("response_collection", key, response=HOSTILE)
    lab.edit("data_generation", "story__ann__00001", prompt=HOSTILE)
    lab.edit("evaluation", f"{key}__ben", raw=HOSTILE)
    lines = show(lab, coeval, "--id", key).splitlines()
    shown = r"  start \x1b[2J\x9b31m[bold]:smile: \u202egnirts\u2028line\x00 tab    end"
    assert lines.count(shown) == 3
    assert lines.count("  answer of nobody") == 3
    assert "answer of nobody" not in lines
    told = show(lab, coeval, "--id", key, "--json")
    assert all(character.isprintable() for character in told.rstrip("\n"))
    assert json.loads(told)["item"]["prompt"].startswith("safe\r\nstart \x1b[2J")


def test_failed_records_say_why(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("tea", "teacher"), model("ann", "student", failure_rate=1), model("jud", "judge")])
    lab.settings["probe_mode"] = "disable"
    assert lab.run().exit_code == 3
    assert "failed (server): simulated failure" in show(lab, coeval)


def test_names_that_are_not_there_are_pointed_out(lab: Lab, coeval: Command) -> None:
    for flags, told in (
        (("--student", "bem"), "did you mean ben?"),
        (("--task", "haiku"), "there are quiz, story"),
        (("--id", "story__ann__99999"), "has this id"),
        (("--worst", 1, "--disagreement"), "two orders"),
    ):
        ended = coeval("show", "--run", lab.path, *flags)
        assert (ended.code, ended.out) == (1, "")
        assert told in ended.err


def test_nothing_that_judges_differ_about_is_no_error(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")])
    lab.run()
    ended = coeval("show", "--run", lab.path, "--disagreement")
    assert (ended.code, ended.out) == (0, "")
    assert "no two judges differ" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_text_is_folded_on_a_terminal_and_stays_in_one_piece_in_a_pipe(lab: Lab, columns: int) -> None:
    words = [sys.executable, "-m", "coeval", "show", "--run", "runs/exp", "--worst", "2"]
    seen = on_terminal(words, columns, cwd=lab.folder)
    assert seen.code == 0
    assert max(map(len, seen.screen)) <= columns
    piped = subprocess.run(words, cwd=lab.folder, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    assert " ".join(piped.split()) == " ".join(" ".join(seen.screen).split())
    prompts = [record["prompt"].splitlines()[0] for record in lab.records("data_generation").values()]
    assert any(f"  {prompt}" in piped.splitlines() for prompt in prompts)
    answers = [key for key in lab.records("response_collection") if key in piped]
    assert len(answers) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("show", "--run", "runs/exp"),
        ("show", "--run", "runs/exp", "--json"),
        ("results", "--run", "runs/exp"),
        ("status", "--run", "runs/exp"),
        ("datasets", "list"),
        ("run", "--config", "exp.yaml", "--continue"),
        ("--help",),
    ],
    ids=" ".join,
)
def test_an_output_that_nobody_reads_is_no_error(lab: Lab, words: tuple[str, ...]) -> None:
    """As `coeval … | head -1` in a shell with `set -o pipefail`, where the reader has gone already."""
    reading, writing = os.pipe()
    os.close(reading)
    words = tuple(str(lab.file) if word == "exp.yaml" else word for word in words)
    done = subprocess.run(
        [sys.executable, "-m", "coeval", *words], cwd=lab.folder, stdout=writing,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert "Broken pipe" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(lab: Lab) -> None:
    """As `coeval show … | head -1`."""
    command = f"{sys.executable} -m coeval show --run runs/exp --json | head -c 10"
    done = subprocess.run(command, shell=True, cwd=lab.folder, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.stdout[:2], done.stderr) == ('{"', "")
