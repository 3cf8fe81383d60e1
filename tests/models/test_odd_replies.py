"""Replies as hosts write them: what cannot be read of one is left out, and the text stays."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conformance.interface import Interface
from conformance.registered import REGISTERED
from fakes.openai_chat import Raw, fake
from opened import opened
from pipeline.experiments import Lab, model

from coeval.core.errors import ContentFiltered, ModelError, ServerFault, Unreadable
from coeval.core.records import Completion, Message, Request, Usage
from coeval.core.redaction import Redactor
from coeval.models.address import load_dialect
from coeval.models.catalog import HOSTS
from coeval.models.dialects.openai_answer import FROM_REASONING
from perf.dialects import SAID, TYPICAL

INTERFACES: Mapping[str, Interface] = {interface.name: interface for interface in REGISTERED}
HELLO = Request((Message("user", "hello"),))
ABSENT = object()
NO_TOKEN = {"token": None, "logprob": None, "top_logprobs": None}


def changed(interface: str, place: str, value: Any) -> dict[str, Any]:
    """What the host of an interface sends for `SAID`, with a value put at, or taken from, ``place``."""
    reply: Any = copy.deepcopy(dict(TYPICAL[interface].answer))
    *path, last = (int(name) if name.isdigit() else name for name in place.split("."))
    inner = reply
    for name in path:
        inner = inner[name]
    if value is ABSENT:
        del inner[last]
    else:
        inner[last] = value
    return dict(reply)


async def answers(interface: str, reply: Mapping[str, Any] | bytes, requests: int = 1) -> Completion:
    """The answer of a model whose host sends this reply; it is asked so often."""
    at = INTERFACES[interface]
    raw = Raw(reply if isinstance(reply, bytes) else json.dumps(reply).encode())
    async with at.serve(*[raw] * 8) as host, opened(at.spec(host.url), at.env) as student:
        try:
            return await student.complete(HELLO)
        finally:
            assert len(host.requested) == requests


def decoded(interface: str, reply: Mapping[str, Any]) -> Completion:
    return load_dialect(HOSTS[interface]).decode(json.dumps(reply).encode(), Redactor())


MESSAGE, CHOICE = "choices.0.message", "choices.0"
ODD: list[tuple[str, str, Any]] = [
    ("openai", f"{MESSAGE}.tool_calls", [{"id": "1", "function": {"name": "f", "arguments": None}}]),
    ("openai", f"{MESSAGE}.tool_calls", [{"function": {"arguments": {"a": 1}}}, None, "f()"]),
    ("openai", f"{MESSAGE}.tool_calls", "none"),
    ("openai", f"{MESSAGE}.reasoning", [{"type": "reasoning.text", "text": "why"}]),
    ("openai", f"{MESSAGE}.reasoning_content", {"summary": "why"}),
    ("openai", f"{MESSAGE}.refusal", False),
    ("openai", f"{MESSAGE}.content", [SAID[:9], SAID[9:]]),
    ("openai", f"{MESSAGE}.content", {"type": "text", "text": SAID}),
    ("openai", f"{MESSAGE}.content", [{"type": "output_text", "text": {"value": SAID, "annotations": []}}]),
    ("openai", f"{MESSAGE}.content", [None, {"type": "image_url"}, {"type": "text", "text": SAID}, 7]),
    ("openai", f"{MESSAGE}.content", [{"type": "text", "text": {"text": None, "value": SAID}}]),
    ("openai", MESSAGE, SAID),
    ("openai", "choices", TYPICAL["openai"].answer["choices"][0]),
    ("openai", f"{CHOICE}.finish_reason", 1),
    ("openai", f"{CHOICE}.finish_reason", {"type": "stop"}),
    ("openai", f"{CHOICE}.finish_reason", ["stop"]),
    ("openai", f"{CHOICE}.logprobs", {"content": [NO_TOKEN]}),
    ("openai", f"{CHOICE}.logprobs", {"content": [{"token": "a", "logprob": float("nan")}]}),
    ("openai", f"{CHOICE}.logprobs", [-0.1, None]),
    ("openai", "model", {"id": "gpt"}),
    ("anthropic", "content", SAID),
    ("anthropic", "content", [SAID]),
    ("anthropic", "content.0.type", None),
    ("anthropic", "content.0.type", ABSENT),
    ("anthropic", "content.0.text", {"value": SAID}),
    ("anthropic", "content", [{"type": "thinking", "thinking": {"text": "why"}}, {"text": SAID}]),
    ("anthropic", "content", [{"type": "server_tool_use", "text": 1}, {"type": "text", "text": SAID}]),
    ("anthropic", "stop_reason", 0),
    ("gemini", "candidates.0.content", SAID),
    ("gemini", "candidates.0.content.parts", {"text": SAID}),
    ("gemini", "candidates.0.content.parts", [SAID]),
    ("gemini", "candidates.0.content.parts.0.thought", "no"),
    ("gemini", "candidates.0.finishReason", 1),
    ("gemini", "candidates.0.finishMessage", ["ok"]),
    ("gemini", "candidates.0.logprobsResult", {"chosenCandidates": [{"token": None}]}),
    ("gemini", "promptFeedback", []),
    ("cohere", "message", SAID),
    ("cohere", "message.content", {"type": "text", "text": SAID}),
    ("cohere", "message.content", [{"type": "thinking", "thinking": ["a", "b"]}, {"text": SAID}]),
    ("cohere", "logprobs", [{"text": "a", "logprobs": [None]}]),
    ("cohere", "finish_reason", True),
    ("bedrock", "output.message.content", SAID),
    ("bedrock", "output.message.content", [{"reasoningContent": "why"}, {"text": {"text": SAID}}]),
    ("bedrock", "output.message.content", [{"citationsContent": {"content": [SAID]}}]),
    ("bedrock", "stopReason", 3),
]


@pytest.mark.parametrize(
    ("interface", "place", "value"), ODD, ids=lambda value: "absent" if value is ABSENT else str(value)[:40]
)
async def test_an_odd_field_costs_neither_the_answer_nor_its_count(
    interface: str, place: str, value: Any
) -> None:
    answer = await answers(interface, changed(interface, place, value))
    assert answer.text == SAID
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (500, 20)
    assert answer.logprobs == ()


@pytest.mark.parametrize(
    ("interface", "place", "value"),
    [
        ("openai", f"{MESSAGE}.content", 3),
        ("openai", f"{MESSAGE}.content", [{"type": "text", "text": 3}]),
        ("anthropic", "content", [7]),
        ("gemini", "candidates.0.content.parts", 7),
        ("cohere", "message.content", [[]]),
        ("bedrock", "output.message.content", 7),
    ],
)
async def test_where_no_text_can_be_read_the_reply_is_no_answer(
    interface: str, place: str, value: Any
) -> None:
    with pytest.raises(Unreadable, match="an invalid answer"):
        await answers(interface, changed(interface, place, value), requests=2)


@pytest.mark.parametrize(
    ("interface", "call", "place"),
    [
        ("openai", {"function": {"arguments": {"a": 1}}}, f"{MESSAGE}.tool_calls"),
        ("openai", {"function": {"arguments": '{"a":1}'}}, f"{MESSAGE}.tool_calls"),
        ("anthropic", {"type": "tool_use", "input": '{"a":1}'}, "content"),
        ("anthropic", {"type": "tool_use", "input": {"a": 1}}, "content"),
        ("gemini", {"functionCall": {"args": '{"a":1}'}}, "candidates.0.content.parts"),
        ("bedrock", {"toolUse": {"input": '{"a":1}'}}, "output.message.content"),
    ],
)
def test_arguments_of_a_tool_are_json_whether_they_come_as_an_object_or_a_text(
    interface: str, call: Any, place: str
) -> None:
    reply = changed(interface, place, [call])
    if interface == "openai":
        reply["choices"][0]["message"]["content"] = None
    assert decoded(interface, reply).text == '{"a":1}'


def test_what_was_left_out_is_noted_once() -> None:
    reply = changed("openai", f"{MESSAGE}.content", [7, {"text": SAID}, 8])
    assert decoded("openai", reply).notes == ("choices.message.content could not be read and was left out",)
    assert decoded("openai", changed("openai", f"{MESSAGE}.content", SAID)).notes == ()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (rb"a \ud83d b", "a � b"),
        (rb"\udc00", "�"),
        (rb"\ud83d\ud83d\ude00", "�😀"),
        (rb"a \\ud83d \ud83d", "a \\ud83d �"),
        (b"a \xed\xa0\xbd b", "a � b"),
        (b"\xed\xa0\xbd\xed\xb8\x80", "😀"),
    ],
)
@pytest.mark.parametrize("interface", TYPICAL)
def test_half_a_surrogate_pair_becomes_the_replacement_character_and_is_noted(
    interface: str, written: bytes, text: str
) -> None:
    reply = json.dumps(TYPICAL[interface].answer).encode()
    reply = reply.replace(json.dumps(SAID).encode(), b'"' + written + b'"')
    answer = load_dialect(HOSTS[interface]).decode(reply, Redactor())
    assert answer.text == text
    assert answer.notes == ("invalid characters were replaced",)


async def test_a_run_says_at_its_end_what_was_odd_in_how_many_replies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = changed("openai", f"{MESSAGE}.content", None)
    reply["choices"][0]["message"]["reasoning"] = "Glad."
    async with fake(*[Raw(json.dumps(reply).encode())] * 8) as host:
        parameters = {"model": "m", "base_url": host.url}
        served = {"name": "sam", "interface": "vllm", "roles": ["student"], "parameters": parameters}
        lab = Lab(tmp_path, [model("ann", "teacher", "judge"), served], settings={"probe_mode": "disable"})
        await lab.arun()
    assert f"sam: {FROM_REASONING} (3 answers; see `notes` in records)" in caplog.messages
    assert {tuple(line["notes"]) for line in lab.lines("response_collection")} == {(FROM_REASONING,)}


# How it ended

REASON = {
    "openai": f"{CHOICE}.finish_reason",
    "anthropic": "stop_reason",
    "gemini": "candidates.0.finishReason",
    "cohere": "finish_reason",
    "bedrock": "stopReason",
}
ENDINGS: dict[str, str | type[ModelError]] = {
    "STOP": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "FinishReason.STOP": "stop",
    "eos_token": "stop",
    "COMPLETE": "stop",
    "MAX_TOKENS": "length",
    "length": "length",
    "max_output_tokens": "length",
    "maxTokens": "length",
    "model_length": "length",
    "token_limit_reached": "length",
    "model_context_window_exceeded": "length",
    "TOOL_CALL": "tool_calls",
    "toolUse": "tool_calls",
    "function_call": "tool_calls",
    "SAFETY": ContentFiltered,
    "RECITATION": ContentFiltered,
    "PROHIBITED_CONTENT": ContentFiltered,
    "BLOCKLIST": ContentFiltered,
    "SPII": ContentFiltered,
    "sensitive": ContentFiltered,
    "content-filter": ContentFiltered,
    "content_filtered": ContentFiltered,
    "guardrail_intervened": ContentFiltered,
    "FINISH_REASON_SAFETY": ContentFiltered,
    "ERROR_TOXIC": ContentFiltered,
    "network_error": ServerFault,
    "abort": ServerFault,
    "insufficient_system_resource": ServerFault,
    "TIMEOUT": ServerFault,
    "ERROR": ServerFault,
    "MALFORMED_FUNCTION_CALL": Unreadable,
    "malformed_model_output": Unreadable,
}


def test_an_unclear_reason_takes_no_text_away() -> None:
    assert decoded("openai", changed("openai", REASON["openai"], "other")).text == SAID
    assert decoded("openai", changed("openai", REASON["openai"], None)).finish_reason == "stop"
    nothing = changed("openai", f"{MESSAGE}.content", "")
    nothing["choices"][0]["finish_reason"] = "other"
    with pytest.raises(Unreadable):
        decoded("openai", nothing)


@pytest.mark.parametrize("interface", REASON)
@pytest.mark.parametrize(("reason", "ending"), ENDINGS.items())
def test_how_an_answer_ended_is_read_in_the_words_of_any_house(
    interface: str, reason: str, ending: str | type[ModelError]
) -> None:
    reply = changed(interface, REASON[interface], reason)
    if isinstance(ending, str):
        answer = decoded(interface, reply)
        assert (answer.text, answer.finish_reason, answer.truncated) == (SAID, ending, ending == "length")
        return
    with pytest.raises(ending, match=reason) as raised:
        decoded(interface, reply)
    assert raised.value.usage is not None
    assert raised.value.usage.output_tokens == 20


@pytest.mark.parametrize("interface", REASON)
def test_a_finish_reason_that_nobody_knows_stays_as_it_came(interface: str) -> None:
    assert decoded(interface, changed(interface, REASON[interface], "Novel-1")).finish_reason == "Novel-1"


# Reasoning


@pytest.mark.parametrize(
    ("prompt", "completion", "reasoning", "total", "output"),
    [
        (10, 5, 100, 115, 105),  # xAI
        (10, 120, 100, 230, 220),
        (10, 5, 100, None, 105),
        (10, 120, 100, 130, 120),  # OpenAI
        (10, 5, None, 300, 290),  # Google's endpoint of OpenAI's shape
        (10, 5, 0, 15, 5),
        (10, 5, None, None, 5),
        (10, 5, None, 12, 5),
    ],
)
def test_reasoning_that_is_counted_beside_the_completion_is_output(
    prompt: int, completion: int, reasoning: int | None, total: int | None, output: int
) -> None:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    counted = decoded("openai", changed("openai", "usage", usage)).usage
    assert (counted.input_tokens, counted.output_tokens) == (prompt, output)
    if reasoning is None:
        del usage["completion_tokens_details"]
        plain = {name: count for name, count in usage.items() if count is not None}
        assert decoded("openai", changed("openai", "usage", plain)).usage == Usage(prompt, output)


def test_what_a_cache_read_is_no_output_where_the_prompt_leaves_it_out() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 415}
    usage = counts | {"prompt_tokens_details": {"cached_tokens": 400}}
    assert decoded("openai", changed("openai", "usage", usage)).usage.output_tokens == 5


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("content", [None, ABSENT], ids=["null", "absent"])
async def test_what_a_parser_took_for_reasoning_is_the_answer_where_there_is_no_other(
    name: str, content: Any
) -> None:
    reply = changed("openai", f"{MESSAGE}.content", content)
    reply["choices"][0]["message"][name] = SAID
    answer = await answers("vllm", reply)
    assert (answer.text, answer.reasoning) == (SAID, None)
    assert answer.notes == (FROM_REASONING,)


@pytest.mark.parametrize(
    "fields",
    [
        {"finish_reason": "length"},
        {"message": {"content": "", "reasoning": "why"}},
        {"message": {"content": None, "reasoning": "why", "refusal": "no"}},
        {"message": {"content": None, "reasoning": "why", "tool_calls": [{"function": {"arguments": "{}"}}]}},
    ],
    ids=["cut off", "an empty answer", "refused", "a tool was called"],
)
def test_other_reasoning_is_no_answer(fields: dict[str, Any]) -> None:
    reply = changed("openai", f"{MESSAGE}", {"content": None, "reasoning": "why"})
    reply["choices"][0].update(fields)
    answer = decoded("openai", reply)
    assert "why" not in answer.text
    assert answer.reasoning == "why"
    assert answer.truncated == ("finish_reason" in fields)
