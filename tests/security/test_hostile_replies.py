"""What models say is data: a judge that says two things has said neither, and no reply breaks a run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Raw, Server, fake
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from coeval.api import arun
from coeval.core.errors import AskError, ModelError, RateLimited, ReplyError, ServerFault, Unparsable
from coeval.core.model import MAX_ANSWER_BYTES, ModelSpec
from coeval.core.records import Completion, Message, Request, Usage
from coeval.core.scale import HIGH_MEDIUM_LOW
from coeval.judging.verdict import (
    Levels,
    parse_criteria_met,
    parse_criterion_score,
    parse_level,
    parse_levels,
)
from coeval.models.address import ModelAddress
from coeval.models.catalog import HOSTS
from coeval.models.dialects.openai_chat import OPENAI_CHAT
from coeval.models.hosted import HostedModel
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http
from coeval.pipeline.phases.proposals import parse_attributes, parse_item, parse_rubric


def find_levels(reply: str, factors: Iterable[str]) -> Levels:
    """Read a reply about factors on the default scale."""
    return parse_levels(reply, dict.fromkeys(factors, HIGH_MEDIUM_LOW))


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


@pytest.mark.parametrize("reply", TWICE.values(), ids=TWICE)
def test_a_factor_scored_twice_and_differently_is_missing(reply: str) -> None:
    assert find_levels(reply, ["tone", "plot"])[:2] == ({"plot": "Low"}, ("tone",))


@pytest.mark.parametrize("reply", TWICE.values(), ids=TWICE)
def test_a_factor_scored_twice_and_alike_is_scored(reply: str) -> None:
    alike = reply.replace("High", "Low").replace("HIGH", "low")
    assert find_levels(alike, ["tone", "plot"]).scores["tone"] == "Low"


def test_factors_that_differ_in_case_alone_are_two() -> None:
    reply = '{"tone": "High", "Tone": "Low"}'
    assert find_levels(reply, ["tone", "Tone"])[:2] == ({"tone": "High", "Tone": "Low"}, ())
    assert find_levels(reply[:-1] + ', "Tone": "High"}', ["tone", "Tone"]).missing == ("Tone",)


def test_what_is_said_about_a_factor_is_no_second_score() -> None:
    reply = '{"tone": {"score": "High", "why": "Low notes: style is Low", "value": 3}, "value": "Low"}'
    assert find_levels(reply, ["tone", "value"]).scores == {"tone": "High", "value": "Low"}


@given(st.data())
def test_no_spelling_of_a_contradiction_is_a_score(data: st.DataObject) -> None:
    """Two levels of one factor, each stated in a way and at a depth of its own."""
    levels = data.draw(st.permutations(["High", "Medium", "Low"]))[:2]
    parts = [_spelt(level, random.Random(data.draw(st.integers(0, 2**32)))) for level in levels]
    reply = "{" + ", ".join([*parts, '"plot": "Medium"']) + "}"
    assert "tone of voice" in find_levels(reply, ["tone of voice", "plot"]).missing


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


def test_judges_of_benchmarks_cannot_say_two_things_either() -> None:
    with pytest.raises(Unparsable, match="more than one"):
        parse_criteria_met('{"criteria_met": true, "criteria_met": false}')
    with pytest.raises(Unparsable, match="more than one"):
        parse_criterion_score('{"score": 9, "reason": "so", "score": 2}')
    assert parse_criterion_score('{"score": 9, "score": 9}').value == 9


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
    for parse in (parse_level, lambda text: find_levels(text, ["tone", "tone of voice"])):
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


# What a host sends is data: whatever its bytes are, they become an answer or the model's error. Every body
# is sent as an answer and as each kind of refusal, through the whole of our HTTP layer.

DEEP = 100_000
GOOD = json.dumps(
    {
        "choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3},
    }
).encode()


def content(value: bytes) -> bytes:
    return GOOD.replace(b'"ok"', value)


def usage(value: bytes) -> bytes:
    return GOOD.replace(b'{"prompt_tokens": 11, "completion_tokens": 3}', value)


def beside(value: bytes) -> bytes:
    """A good answer with one field more, which we do not read."""
    return GOOD[:-1] + b', "more": ' + value + b"}"


def refusal_of(value: bytes) -> bytes:
    return b'{"error": {"message": "slow down", "code": ' + value + b"}}"


ENDLESS = b"1" + b"0" * 5000
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "blank": b" \n",
    "a NUL": b"\0",
    "NULs": b"\0" * 4096,
    "no UTF-8": b"\xff\xfe\xfd",
    "no UTF-8 in the text": content(b'"\xff\xfe"'),
    "a cut-off character": content(b'"\xe2\x82"'),
    "an overlong character": content(b'"\xc0\xaf"'),
    "a surrogate in bytes": content(b'"\xed\xa0\x80"'),
    "a lone surrogate": content(rb'"\ud800"'),
    "a lone low surrogate": content(rb'"\udc00"'),
    "no UTF-8 in a key": b'{"\xff": 1, ' + GOOD[1:],
    "no UTF-8 in a message": refusal_of(b'"\xff\xfe"'),
    "UTF-16 that ends within a character": GOOD.decode().encode("utf-16")[:-1],
    "UTF-32 of no characters": b"\xff\xfe\0\0" + b"\xff" * 64,
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep lists left open": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a deep content": content(b"[" * DEEP + b"]" * DEEP),
    "something deep beside": beside(b"[" * DEEP + b"]" * DEEP),
    "a deep error": b'{"error": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "1e400": b"1e400",
    "1e400 as the content": content(b"1e400"),
    "1e400 as an error's code": refusal_of(b"1e400"),
    "endless digits": ENDLESS,
    "endless digits as an error's code": refusal_of(ENDLESS),
    "endless digits beside": beside(ENDLESS),
    "many digits as an error's code": refusal_of(b"9" * 4000),
    "NaN": content(b"NaN"),
    "infinity": content(b"-Infinity"),
    "two values": GOOD + GOOD,
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "no choices": b'{"choices": []}',
    "choices of another kind": b'{"choices": {"message": 1}}',
    "a finish reason of another kind": GOOD.replace(b'"stop"', b"[1e400]"),
    "an error of another kind": b'{"error": [[["' + b"x" * 70_000 + b'"]]]}',
}
STATUSES = (200, 400, 404, 429, 500)


async def no_wait(seconds: float) -> None:
    """A retry's wait, without the waiting."""


def resolve_address(spec: ModelSpec, server: Server) -> ModelAddress:
    path = OPENAI_CHAT.path(spec)
    return ModelAddress(spec, HOSTS["openai"], OPENAI_CHAT, server.url, path, None, None)


async def requested(*script: Raw | Answer) -> Completion:
    async with fake(*script) as server:
        http = Http(sleep=no_wait)
        endpoint = Endpoint(server.url, None, Limiter())
        spec = ModelSpec(name="m", interface="openai", model="gpt-4o-mini", timeout_s=30.0)
        model = HostedModel(resolve_address(spec, server), http, endpoint, Admission("m"))
        try:
            return await model.complete(Request((Message("user", "hello"),)))
        finally:
            await http.aclose()


async def outcome(*script: Raw | Answer) -> Completion | ModelError:
    try:
        return await requested(*script)
    except ModelError as refusal_of:
        return refusal_of


@pytest.mark.process
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("status", STATUSES)
async def test_any_body_is_an_answer_or_the_error_of_its_status(status: int, body: bytes) -> None:
    reported = await outcome(*[Raw(body, status)] * 8)
    if isinstance(reported, ModelError):
        inner = {502} if status == 200 and body.startswith(b'{"error"') else set()
        assert reported.status in {status} | inner
        assert len(str(reported)) < 1000
        str(reported).encode()  # it can be written to any file
    else:
        assert status == 200
        reported.text.encode()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("status", [429, 500])
async def test_a_passing_refusal_is_tried_again_whatever_its_body(status: int, body: bytes) -> None:
    answer = await requested(Raw(body, status), Answer("fine"))
    assert (answer.text, answer.attempts) == ("fine", 2)


@pytest.mark.system
async def test_random_damage_of_bodies_never_ends_in_anything_else() -> None:
    """600 answers and errors with bytes changed, cut, repeated or put in; each is asked for at most twice."""
    draw = random.Random(9)
    bodies = [
        _damaged(draw.choice([GOOD, refusal_of(b'"rate_limit"'), usage(b"{}")]), draw) for _ in range(600)
    ]
    async with fake() as server:
        http = Http(sleep=no_wait)
        spec = ModelSpec(name="m", interface="openai", model="gpt-4o-mini", timeout_s=30.0)
        try:
            for body in bodies:
                endpoint = Endpoint(server.url, None, Limiter())
                model = HostedModel(resolve_address(spec, server), http, endpoint, Admission("m"))
                server.script.extend([Raw(body, draw.choice(STATUSES))] * 2)
                try:
                    (await model.complete(Request((Message("user", "hello"),)))).text.encode()
                except AskError as reported:
                    str(reported).encode()
                server.script.clear()
        finally:
            await http.aclose()


def _damaged(body: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(body) + 1)
        to = min(len(body), at + draw.randint(0, 8))
        given = [b"", b"1e999", ENDLESS, b"[" * DEEP, b"\\ud800", b'"', b"-", b"null"]
        put = draw.choice([*given, draw.randbytes(3), body[at:to] * 3])
        body = body[:at] + put + body[to:]
    return body


NOT_BOOKED = {
    "left out": b"{}",
    "null": b"null",
    "null counts": b'{"prompt_tokens": null, "completion_tokens": null}',
    "negative": b'{"prompt_tokens": -5, "completion_tokens": -1}',
    "over 2**53": b'{"prompt_tokens": 9007199254740993, "completion_tokens": 99999999999999999999999}',
    "endless digits": b'{"prompt_tokens": %b, "completion_tokens": -1}' % ENDLESS,
    "1e400": b'{"prompt_tokens": 1e400, "completion_tokens": 1e-1}',
    "more than any context": b'{"prompt_tokens": 1000000000, "completion_tokens": 1000000000}',
    "half a token": b'{"prompt_tokens": 11.5, "completion_tokens": 0.5}',
    "text": b'{"prompt_tokens": "11", "completion_tokens": "3"}',
    "truth values": b'{"prompt_tokens": true, "completion_tokens": true}',
    "a list": b"[11, 3]",
    "deep": b"[" * 500 + b"]" * 500,
}


@pytest.mark.parametrize("reported", NOT_BOOKED.values(), ids=NOT_BOOKED)
async def test_token_counts_that_cannot_be_are_not_booked_and_cost_no_answer(reported: bytes) -> None:
    answer = await requested(Raw(usage(reported)))
    assert (answer.text, answer.usage, answer.attempts) == ("ok", Usage(0, 0, uncounted=True), 1)


async def test_one_count_that_cannot_be_does_not_spoil_the_other() -> None:
    answer = await requested(Raw(usage(b'{"prompt_tokens": 11, "completion_tokens": -3}')))
    assert answer.usage == Usage(11, 0, uncounted=True)
    answer = await requested(Raw(usage(b'{"prompt_tokens": 11.0, "completion_tokens": 3}')))
    assert answer.usage == Usage(11, 3)


@pytest.mark.process
async def test_the_reason_is_told_in_words() -> None:
    with pytest.raises(ServerFault, match="nested too deep"):
        await requested(*[Raw(BODIES["something deep beside"])] * 2)
    with pytest.raises(ServerFault, match="not UTF-8"):
        await requested(*[Raw(BODIES["no UTF-8 in the text"])] * 2)
    with pytest.raises(RateLimited, match="429"):
        await requested(*[Raw(BODIES["deep lists"], 429)] * 8)
