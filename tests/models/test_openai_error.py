"""What is made of answers and errors of hosts of OpenAI's shape, each in the form it documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.openai_chat import Raw, fake
from hypothesis import given
from hypothesis import strategies as st
from opened import opened

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    ContentFiltered,
    ModelError,
    NotFound,
    RateLimited,
    ServerFault,
    Undecodable,
    Unreadable,
)
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, Usage
from coeval.core.redaction import Redactor
from coeval.models.dialects.dialect import FieldRejected, LimitRenamed, SchemaRejected
from coeval.models.dialects.openai_answer import decode, explain, explain_missing_version
from coeval.models.dialects.openai_chat import OPENAI_CHAT


def reply(message: dict[str, Any], finish_reason: str | None = "stop", **body: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish_reason}], **body}).encode()


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "<think>hm</think>\n4"}, "4", "hm"),
        ({"content": "hm</think>4"}, "4", "hm"),
        ({"content": "<think>more</think>4", "reasoning": "hm"}, "4", "hm\nmore"),
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
        ({"content": None, "tool_calls": [{"function": {"arguments": '{"a":1}'}}]}, '{"a":1}', None),
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


def test_reasoning_that_never_ends_is_a_truncated_answer() -> None:
    completion = decode(reply({"content": "<think>and then"}), Redactor())
    assert (completion.text, completion.truncated, completion.reasoning) == ("", True, "and then")


@pytest.mark.parametrize(
    "body",
    [
        {"usage": None},
        {"usage": {}},
        {"usage": {"prompt_tokens": None, "completion_tokens": 0, "cost": {"total_cost": 0.1}}},
        {"error": None, "provider": "somewhere", "choices_left": 3},
    ],
)
def test_what_a_host_leaves_out_or_adds_does_no_harm(body: dict[str, Any]) -> None:
    completion = decode(reply({"content": "x", "annotations": [1], "audio": None}, **body), Redactor())
    assert (completion.text, completion.usage) == ("x", Usage(uncounted=True))


CACHED = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}


@pytest.mark.parametrize(
    ("reported", "usage"),
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
    reported: dict[str, Any], usage: Usage
) -> None:
    assert decode(reply({"content": "x"}, usage=reported), Redactor()).usage == usage


@pytest.mark.parametrize(
    ("reported", "usd"),
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
    reported: dict[str, Any], usd: float | None
) -> None:
    body = reply({"content": "x"}, usage={"prompt_tokens": 5, "completion_tokens": 2, **reported})
    assert OPENAI_CHAT.decode(body, Redactor()).usage == Usage(5, 2, usd)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"choices": {}}', b'{"choices": [{"message": {"content": 3}}]}']
)
def test_a_body_that_is_no_answer_is_not_taken_for_one(body: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(body, Redactor())


def test_an_answer_without_choices_has_been_paid_for() -> None:
    body = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.01}}
    with pytest.raises(Unreadable) as raised:
        OPENAI_CHAT.decode(json.dumps(body).encode(), Redactor())
    assert raised.value.usage == Usage(7, 2, 0.01)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": {"code": 502, "message": "upstream is gone"}}, ServerFault),
        ({"error": {"code": 429, "message": "slow down"}}, RateLimited),
        ({"error": {"code": 401, "message": "who are you"}}, AccessDenied),
        ({"error": {"message": "no code"}}, ServerFault),
        ({"error": "in a word"}, ServerFault),
        ({"error": {"code": "429", "message": "slow down"}}, RateLimited),
        ({"error": {"code": 1301, "message": "unsafe or sensitive content"}}, ContentFiltered),
        ({"error": {"message": "Input data may contain inappropriate content."}}, ContentFiltered),
        ({"error": {"code": "content_filter", "message": "no"}}, ContentFiltered),
        ({"choices": [{"message": {"content": "x"}, "finish_reason": "error"}]}, ServerFault),
        ({"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}, ContentFiltered),
    ],
)
def test_an_error_inside_a_200_is_an_error(body: dict[str, Any], error: type[ModelError]) -> None:
    with pytest.raises(error):
        decode(json.dumps(body).encode(), Redactor())


@pytest.mark.process
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


KEY = "sk-test-0123456789abcdef"


def explained(status: int, body: Any, redactor: Redactor | None = None) -> ModelError | None:
    return explain(status, json.dumps(body).encode(), redactor or Redactor())


def openai(message: str, **fields: Any) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | fields
    }


FORBIDDEN = "Extra inputs are not permitted"
BEHIND = json.dumps(openai("Unsupported parameter: 'top_p' is not supported with this model."))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (openai("Unrecognized request argument supplied: top_k"), "top_k"),
        (openai("Unrecognized request argument supplied: stop_words"), "stop_words"),
        (openai("Unknown parameter: 'min_p'.", code="unknown_parameter", param="min_p"), "min_p"),
        (
            openai(
                "Unsupported value: 'temperature' does not support 0.2 with this model.", param="temperature"
            ),
            "temperature",
        ),
        (
            openai("Unsupported value: 'messages[0].role' does not support 'system' with this model."),
            "system_prompt",
        ),
        (openai("System role not supported"), "system_prompt"),
        (openai("property 'logprobs' is unsupported"), "logprobs"),
        (openai('"llama3" does not support thinking'), "reasoning_effort"),
        ({"detail": "Unexpected fields in the request: {'top_k'}"}, "top_k"),
        ({"detail": [{"loc": ["body", "top_k"], "msg": FORBIDDEN}]}, "top_k"),
        ({"object": "error", "message": {"detail": [{"loc": ["body", "min_p"], "msg": FORBIDDEN}]}}, "min_p"),
        ({"message": "min_p is not supported", "param": "min_p", "code": "x"}, "min_p"),
        (
            {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": BEHIND}}},
            "top_p",
        ),
        (openai("top_k must be at least 1"), None),
        (openai("Unexpected message in messages[1]"), None),
        ({"error": "Input validation error: `top_p` must be > 0.0 and < 1.0"}, None),
    ],
)
def test_a_parameter_that_is_not_taken_is_named_with_the_way_out(
    body: dict[str, Any], field: str | None
) -> None:
    error = explained(422 if "detail" in body else 400, body)
    if field is None:
        assert error is None
        return
    assert isinstance(error, FieldRejected)
    assert error.field == field
    assert f"leave {field} out of the model's parameters" in str(error)


def test_what_a_host_behind_the_host_said_is_told() -> None:
    raw = json.dumps({"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]})
    body = {"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": raw}}}
    error = explained(400, body)
    assert str(error).startswith("Provider returned error; seed: Extra inputs are not permitted;")


OWN_WORDS: list[tuple[Any, str]] = [
    (
        json.dumps({"error": {"message": "outer", "metadata": {"raw": '{"detail": "inner"}'}}}),
        "outer; inner",
    ),
    ("qwen/qwen3 is temporarily rate-limited upstream", "qwen/qwen3 is temporarily rate-limited upstream"),
    ('{"error": {"message": "too many tokens", "type": "x"}}', "too many tokens"),
    ('{"errors": [{"code": 7009, "message": "Upstream away"}]}', "Upstream away"),
    ('{"title": "Bad luck", "status": "BAD"}', '{"title": "Bad luck", "status": "BAD"}'),
    ('"in a word"', "in a word"),
    ({"error": {"message": "too long"}}, "too long"),
    ({"reason": "NO_CAPACITY"}, "{'reason': 'NO_CAPACITY'}"),
]


@pytest.mark.parametrize(
    ("status", "raw", "words"),
    [
        *((400, *each) for each in OWN_WORDS),
        *((status, *OWN_WORDS[0]) for status in (403, 404, 429, 500, 529)),
    ],
)
async def test_a_providers_own_words_are_in_what_its_router_refuses_with(
    status: int, raw: Any, words: str
) -> None:
    metadata = {"provider_name": "Chutes", "raw": raw}
    body = {"error": {"message": "Provider returned error", "code": status, "metadata": metadata}}
    for reply in (Raw(json.dumps(body).encode(), status), Raw(json.dumps(body).encode(), 200)):
        async with fake(*[reply] * 8) as server:
            spec = ModelSpec(name="m", interface="openrouter", model="m", base_url=server.url)
            async with opened(spec, {}) as model:
                with pytest.raises(ModelError) as raised:
                    await model.complete(Request((Message("user", "hello"),)))
        assert f"Provider returned error; {words}" in str(raised.value)


FILTERED = {
    "code": "ResponsibleAIPolicyViolation",
    "content_filter_result": {
        "hate": {"filtered": True, "severity": "high"},
        "jailbreak": {"filtered": True, "detected": True},
        "violence": {"filtered": False, "severity": "safe"},
    },
}
FLAGGED = {"code": 403, "message": "flagged", "metadata": {"flagged_input": "x", "reasons": ["hate"]}}
RENAMED = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (
            400,
            openai("It was filtered.", code="content_filter", param="prompt", innererror=FILTERED),
            ContentFiltered,
            "It was filtered. (hate: high, jailbreak: detected)",
        ),
        (400, openai("Content Exists Risk"), ContentFiltered, "Content Exists Risk"),
        (403, {"error": FLAGGED}, ContentFiltered, "flagged"),
        (
            404,
            {"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist."}},
            NotFound,
            "does not exist. (`model` is the name of the deployment)",
        ),
        (
            400,
            openai("Failed to generate JSON.", code="json_validate_failed"),
            Unreadable,
            "Failed to generate",
        ),
        (400, openai("It does not support response format `json_schema`."), SchemaRejected, "json_schema"),
        (400, openai(RENAMED, param="max_tokens"), LimitRenamed, "max_completion_tokens"),
        (400, openai("Model Not Exist"), NotFound, "Model Not Exist"),
        (400, {"message": "Invalid model: x", "type": "invalid_model", "code": "1500"}, NotFound, "model: x"),
        (400, {"error": {"code": "unknown_model", "message": "Unknown model: phi-9"}}, NotFound, "phi-9"),
        (400, openai("no such", code="model_not_supported"), NotFound, "no such"),
        (429, openai("You have no credit left.", code="insufficient_quota"), AccountSpent, "no credit"),
    ],
)
def test_an_error_is_what_it_says_beyond_its_status(
    status: int, body: dict[str, Any], kind: type[ModelError], words: str
) -> None:
    error = explained(status, body)
    assert type(error) is kind
    assert words in str(error)
    assert error.status == status


def test_no_part_of_an_error_shows_a_credential() -> None:
    redactor = Redactor(["abcdef0123456789abcdef", KEY])
    for body in (
        openai("Unknown parameter", param="abcdef0123456789abcdef"),
        openai(f"Unknown parameter: '{KEY}'"),
        openai(
            "filtered",
            code="content_filter",
            innererror={"content_filter_result": {"hate": {"filtered": True, "severity": KEY}}},
        ),
        {"error": {"message": "x", "metadata": {"raw": f"unknown parameter: {KEY}"}}},
    ):
        said = str(explained(400, body, redactor))
        assert KEY not in said
        assert "abcdef0123456789abcdef" not in said


def test_a_404_of_an_api_that_was_reached_names_no_other_url() -> None:
    for code in ("DeploymentNotFound", "404"):
        body = json.dumps({"error": {"code": code, "message": "Resource not found"}}).encode()
        assert explain_missing_version(404, body, "https://res.openai.azure.com", Redactor()) is None


def test_a_choice_that_was_broken_off_fails_as_its_own_error_says() -> None:
    choice = {
        "message": {"content": ""},
        "finish_reason": "error",
        "error": {"code": 429, "message": "upstream is busy"},
    }
    body = {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 0}}
    with pytest.raises(RateLimited, match="upstream is busy") as raised:
        decode(json.dumps(body).encode(), Redactor())
    assert raised.value.usage is not None
    assert raised.value.usage.input_tokens == 7


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"error": [1, {"loc": 3}]}', b'{"detail": {"detail": {"detail": 1}}}']
)
def test_an_error_of_no_known_form_is_left_to_its_status(body: bytes) -> None:
    assert explain(400, body, Redactor()) is None
