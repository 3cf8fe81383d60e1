"""What is made of the bodies that hosts answer with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.errors import (
    AccessDenied,
    ContentFiltered,
    ModelError,
    RateLimited,
    ServerFault,
    Undecodable,
    Unreadable,
)
from coeval.core.records import Usage
from coeval.core.redaction import Redactor
from coeval.models.dialects.openai_answer import UNCOUNTED, decode
from coeval.models.dialects.openai_chat import OPENAI_CHAT, OPENROUTER_CHAT
from coeval.models.dialects.openai_error import explain


def reply(message: dict[str, Any], finish_reason: str | None = "stop", **body: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish_reason}], **body}).encode()


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "<think>hm</think>\n4"}, "4", "hm"),
        ({"content": "hm</think>4"}, "4", "hm"),
        ({"content": "4", "reasoning_content": "hm"}, "4", "hm"),
        ({"content": "4", "reasoning": "hm"}, "4", "hm"),
        ({"content": "write </think> last", "reasoning": "hm"}, "write </think> last", "hm"),
        ({"content": "4", "reasoning": "", "reasoning_content": None}, "4", None),
        ({"content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}, "42", None),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "4"},
                ]
            },
            "4",
            "hm",
        ),
        ({"content": None}, "", None),
        ({}, "", None),
    ],
)
def test_reasoning_is_kept_apart_from_the_answer(
    message: dict[str, Any], text: str, reasoning: str | None
) -> None:
    completion = decode(reply(message), Redactor())
    assert (completion.text, completion.reasoning, completion.truncated) == (text, reasoning, False)


def test_a_refusal_in_parts_is_a_refusal() -> None:
    completion = decode(reply({"content": [{"type": "refusal", "refusal": "No."}]}), Redactor())
    assert (completion.text, completion.refusal) == ("", "No.")


@pytest.mark.parametrize(
    ("given_", "finish", "truncated"),
    [
        ("stop", "stop", False),
        ("length", "length", True),
        ("model_length", "length", True),
        ("eos_token", "stop", False),
        ("stop_sequence", "stop", False),
        ("end_turn", "stop", False),
        (None, "stop", False),
        ("function_call", "tool_calls", False),
        ("peculiar", "peculiar", False),
    ],
)
def test_finish_reasons_have_one_spelling(given_: str | None, finish: str, truncated: bool) -> None:
    completion = decode(reply({"content": "x"}, given_), Redactor())
    assert (completion.finish_reason, completion.truncated) == (finish, truncated)


def test_reasoning_that_never_ends_is_a_truncated_answer() -> None:
    completion = decode(reply({"content": "<think>and then"}), Redactor())
    assert (completion.text, completion.truncated, completion.reasoning) == ("", True, "and then")


@pytest.mark.parametrize(
    "body",
    [
        {"usage": None},
        {"usage": {}},
        {"usage": {"prompt_tokens": None, "completion_tokens": 0, "cost": 0.1}},
        {"error": None, "provider": "somewhere", "choices_left": 3},
    ],
)
def test_what_a_host_leaves_out_or_adds_does_no_harm(body: dict[str, Any]) -> None:
    completion = decode(reply({"content": "x", "annotations": [1], "audio": None}, **body), Redactor())
    assert (completion.text, completion.usage) == ("x", UNCOUNTED)


CACHED = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (CACHED, Usage(100, 20, cached_tokens=64)),
        (
            CACHED | {"completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": 0}},
            Usage(100, 20, cached_tokens=64, reasoning_tokens=12),
        ),
        (
            CACHED | {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 30}},
            Usage(100, 20, cached_tokens=0, cache_write_tokens=30),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 80},
            Usage(100, 20, cached_tokens=80),
        ),
        (CACHED | {"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(100, 20)),
        (
            CACHED | {"prompt_tokens_details": [1], "completion_tokens_details": "x"},
            Usage(100, 20, uncounted=True),
        ),
        (
            CACHED | {"prompt_tokens_details": {"cached_tokens": -5}},
            Usage(100, 20, cached_tokens=0, uncounted=True),
        ),
        (
            CACHED | {"prompt_tokens_details": {"cached_tokens": "many"}},
            Usage(100, 20, cached_tokens=0, uncounted=True),
        ),
    ],
)
def test_cached_and_reasoning_tokens_are_told_apart_where_the_host_tells_them(
    told: dict[str, Any], usage: Usage
) -> None:
    assert decode(reply({"content": "x"}, usage=told), Redactor()).usage == usage


@pytest.mark.parametrize(
    ("told", "usd"),
    [
        ({"cost": 0.00078}, 0.00078),
        ({"cost": 0}, 0.0),
        ({"cost": 0.001, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.001}}, 0.001),
        ({"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}, 0.021),
        ({"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
        ({"cost": 0.001, "is_byok": True}, None),
        ({}, None),
        ({"cost": None}, None),
        ({"cost": -1}, None),
        ({"cost": "free"}, None),
        ({"cost": 1e300}, None),
    ],
)
def test_what_a_host_charges_is_taken_from_the_one_that_says_so(
    told: dict[str, Any], usd: float | None
) -> None:
    body = reply({"content": "x"}, usage={"prompt_tokens": 5, "completion_tokens": 2, **told})
    assert OPENROUTER_CHAT.decode(body, Redactor()).usage == Usage(5, 2, usd)
    assert OPENAI_CHAT.decode(body, Redactor()).usage == Usage(5, 2)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"choices": {}}', b'{"choices": [{"message": {"content": 3}}]}']
)
def test_a_body_that_is_no_answer_is_not_taken_for_one(body: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(body, Redactor())


def test_an_answer_without_choices_has_been_paid_for() -> None:
    body = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.01}}
    with pytest.raises(Unreadable) as raised:
        OPENROUTER_CHAT.decode(json.dumps(body).encode(), Redactor())
    assert raised.value.usage == Usage(7, 2, 0.01)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": {"code": 502, "message": "upstream is gone"}}, ServerFault),
        ({"error": {"code": 429, "message": "slow down"}}, RateLimited),
        ({"error": {"code": 401, "message": "who are you"}}, AccessDenied),
        ({"error": {"message": "no code"}}, ServerFault),
        ({"error": "in a word"}, ServerFault),
        ({"error": {"code": "content_filter", "message": "no"}}, ContentFiltered),
        ({"choices": [{"message": {"content": "x"}, "finish_reason": "error"}]}, ServerFault),
        ({"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}, ContentFiltered),
    ],
)
def test_an_error_inside_a_200_is_an_error(body: dict[str, Any], error: type[ModelError]) -> None:
    with pytest.raises(error):
        decode(json.dumps(body).encode(), Redactor())


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "choices", "content"]), inner, max_size=3
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_body_breaks_the_reading(body: bytes) -> None:
    explain(400, body, Redactor())
    try:
        decode(body, Redactor())
    except (ModelError, Undecodable):
        return
