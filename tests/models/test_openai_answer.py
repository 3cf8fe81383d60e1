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
)
from coeval.core.records import Usage
from coeval.core.secrets.redaction import Redactor
from coeval.models.dialects.openai_answer import decode, explain


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
    assert (completion.text, completion.usage) == ("x", Usage())


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"content": 3}}]}']
)
def test_a_body_that_is_no_answer_is_not_taken_for_one(body: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(body, Redactor())


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
