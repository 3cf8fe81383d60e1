"""What models say is data: a judge that says two things has said neither, and no reply breaks a run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, fake
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from coeval.api import arun
from coeval.core.errors import ReplyError, Unparsable
from coeval.core.model import MAX_ANSWER_BYTES
from coeval.judging.verdict import parse_criteria_met, parse_criterion_score, parse_level, parse_levels
from coeval.pipeline.phases.proposals import parse_attributes, parse_item, parse_rubric

TWICE: dict[str, str] = {
    "a repeated key": '{"tone": "High", "plot": "Low", "tone": "Low"}',
    "a repeated key, escaped": r'{"tone": "High", "plot": "Low", "to\u006ee": "Low"}',
    "another case": '{"tone": "High", "plot": "Low", "Tone": "Low"}',
    "another case of the level": '{"tone": "HIGH", "plot": "Low", "tone": "low"}',
    "blanks around": '{"tone": "High", "plot": "Low", " tone ": "Low"}',
    "another form of the letters": '{"tone": "High", "plot": "Low", "ｔｏｎｅ": "Low"}',
    "an object and a word": '{"tone": "High", "plot": "Low", "TONE": {"score": "Low"}}',
    "two objects": '{"tone": {"score": "High"}, "plot": "Low", "tone": {"score": "Low"}}',
    "a repeated score": '{"tone": {"score": "High", "score": "Low"}, "plot": "Low"}',
    "two score keys": '{"tone": {"score": "High", "level": "Low"}, "plot": "Low"}',
    "a list": '[{"factor": "tone", "score": "High"}, {"factor": "Tone", "score": "Low"}, '
    '{"factor": "plot", "score": "Low"}]',
    "further in": '{"tone": "High", "plot": "Low", "scores": {"tone": "Low"}}',
    "much further in": '{"tone": "High", "plot": "Low", "a": {"b": [{"c": {"Tone": "Low"}}]}}',
    "another object": '{"tone": "High", "plot": "Low"}\nOn reflection: {"tone": "Low", "plot": "Low"}',
    "another fence": '```json\n{"tone": "High", "plot": "Low"}\n```\n```json\n{"tone": "Low"}\n```',
    "damaged JSON": "{'tone': 'High', 'plot': 'Low', 'tone': 'Low'}",
    "damaged JSON, another case": "{'tone': 'High', 'plot': 'Low', 'TONE': {'score': 'Low'}}",
    "cut-off JSON": '{"tone": "High", "plot": "Low", "tone": "Low',
}
TEACHERS: dict[str, str] = {
    "endless digits": '{"prompt": 1N, "response": "x", "plot": [1N]}'.replace("N", "0" * 5000),
    "many digits": '{"prompt": "x", "response": 1%s}' % ("0" * 4200),
    "1e400": '{"prompt": "x", "response": 1e400}',
    "NaN": '{"prompt": "x", "response": NaN, "a": [NaN]}',
    "deep lists": '{"prompt": %s, "response": "x"}' % ("[" * 100_000 + "]" * 100_000),
    "left open": "[" * 100_000,
    "lone surrogates": r'{"prompt": "a\ud800b", "response": "\udfff", "attributes": {"\ud800": ["\udc00"]}}',
    "NULs": r'{"prompt": "a\u0000b", "response": "\u0000", "plot": "\u0000"}',
    "only keys": '{"": "", " ": []}',
    "many braces": "{" * 200_000,
}


def test_there_are_as_many_replies_as_the_page_on_security_says() -> None:
    assert len(TWICE) + len(TEACHERS) == 28


@pytest.mark.parametrize("reply", TWICE.values(), ids=TWICE)
def test_a_factor_scored_twice_and_differently_is_missing(reply: str) -> None:
    assert parse_levels(reply, ["tone", "plot"]) == ({"plot": "Low"}, ("tone",))


@pytest.mark.parametrize("reply", TWICE.values(), ids=TWICE)
def test_a_factor_scored_twice_and_alike_is_scored(reply: str) -> None:
    alike = reply.replace("High", "Low").replace("HIGH", "low")
    assert parse_levels(alike, ["tone", "plot"]).scores["tone"] == "Low"


def test_factors_that_differ_in_case_alone_are_two() -> None:
    reply = '{"tone": "High", "Tone": "Low"}'
    assert parse_levels(reply, ["tone", "Tone"]) == ({"tone": "High", "Tone": "Low"}, ())
    assert parse_levels(reply[:-1] + ', "Tone": "High"}', ["tone", "Tone"]).missing == ("Tone",)


def test_what_is_said_about_a_factor_is_no_second_score() -> None:
    reply = '{"tone": {"score": "High", "why": "Low notes: style is Low", "value": 3}, "value": "Low"}'
    assert parse_levels(reply, ["tone", "value"]).scores == {"tone": "High", "value": "Low"}


@given(st.data())
def test_no_spelling_of_a_contradiction_is_a_score(data: st.DataObject) -> None:
    """Two levels of one factor, each stated in a way and at a depth of its own."""
    levels = data.draw(st.permutations(["High", "Medium", "Low"]))[:2]
    parts = [_spelt(level, random.Random(data.draw(st.integers(0, 2**32)))) for level in levels]
    reply = "{" + ", ".join([*parts, '"plot": "Medium"']) + "}"
    assert "tone of voice" in parse_levels(reply, ["tone of voice", "plot"]).missing


def _spelt(level: str, draw: random.Random) -> str:
    name = draw.choice(["tone of voice", "Tone of Voice", "TONE_OF_VOICE", "tone-of-voice", " tone of voice"])
    level = draw.choice([level, level.upper(), level.lower(), f" {level}"])
    pair = draw.choice(
        [
            f'"{name}": "{level}"',
            f'"{name}": {{"score": "{level}", "why": "so"}}',
            f'"list": [{{"factor": "{name}", "level": "{level}"}}]',
            f'"x": {{"{name}": "{level}"}}',
        ]
    )
    for depth in range(draw.randrange(4)):
        pair = f'"d{depth}": {{{pair}}}'
    return pair


@pytest.mark.parametrize(
    "reply",
    [
        '{"score": "High", "score": "Low"}',
        '{"score": "High"} {"score": "Low"}',
        "{'score': 'High', 'score': 'Low'}",
        "High: Low",
        '{"score": ["High", "Low"]}',
    ],
)
def test_a_word_asked_for_and_two_given_is_none(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_level(reply)


def test_judges_of_benchmarks_cannot_say_two_things_either() -> None:
    with pytest.raises(Unparsable, match="both"):
        parse_criteria_met('{"criteria_met": true, "criteria_met": false}')
    with pytest.raises(Unparsable, match="more than one"):
        parse_criterion_score('{"score": 9, "reason": "so", "score": 2}')
    assert parse_criterion_score('{"score": 9, "score": 9}').score == 9


@pytest.mark.parametrize("reply", TEACHERS.values(), ids=TEACHERS)
def test_what_a_teacher_says_is_text_that_a_file_can_hold_or_is_refused(reply: str) -> None:
    for parse in (parse_item, parse_attributes, parse_rubric):
        try:
            found: Any = parse(reply)
        except ReplyError as error:
            str(error).encode()
        else:
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


RUNS = ['"', "'", ":", " ", "{", "[", "tone ", "tone:", '{"tone":', ": {", ":{a=", "`*", "tone-"]


@pytest.mark.parametrize("end", ["", "{", '{"tone": "High"}'])
@pytest.mark.parametrize("part", RUNS)
def test_a_mebibyte_of_anything_is_read_in_time_that_grows_with_its_length(part: str, end: str) -> None:
    """What takes its square runs into the limit that every test has."""
    reply = part * (MAX_ANSWER_BYTES // len(part)) + end
    for parse in (parse_level, lambda text: parse_levels(text, ["tone", "tone of voice"])):
        with suppress(ReplyError):
            parse(reply)


async def test_a_run_on_such_replies_ends_with_a_reason_for_everything_it_lacks(tmp_path: Path) -> None:
    """Teacher and judge say nothing else; the probe, the students and every file stay sound."""
    replies = cycle([*TEACHERS.values(), *TWICE.values(), '{"prompt": "x", "response": "y"}'])
    async with fake(reply=lambda _: Answer(next(replies))) as host:
        config = {
            "models": [_model("teach", "teacher", host.url), _model("judge", "judge", host.url), STUDENT],
            "tasks": [TASK],
            "experiment": {"id": "x", "storage_folder": str(tmp_path), "generation_retries": 1},
        }
        file = tmp_path / "x.yaml"
        with file.open("w") as out:
            YAML(typ="safe").dump(config, out)
        run = await arun(file)
    kinds = {record["error"]["kind"] for record in _records(run.path) if "error" in record}
    assert kinds <= {"unparsable", "empty"}
    assert {phase.name for phase in run.path.glob("phase*")} >= {"phase3_datapoints", "phase4_responses"}


STUDENT = {"name": "pupil", "interface": "simulated", "roles": ["student"], "parameters": {}}
TASK = {
    "name": "story",
    "description": "Tell a short story.",
    "output_description": "A story.",
    "target_attributes": {"mood": ["glad", "sad"]},
    "sampling": {"target": [1, 1], "total": 29},
    "rubric": {"tone": "It fits.", "plot": "Things happen."},
}


def _model(name: str, role: str, url: str) -> dict[str, Any]:
    parameters = {"model": name, "base_url": url}
    return {"name": name, "interface": "vllm", "roles": [role], "parameters": parameters}


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("phase[345]*/*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line:
                yield json.loads(line)
