"""The typed parameters as each host of OpenAI's shape takes them, or refuses them by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coeval.core.errors import BadRequest
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters, Schema
from coeval.models.catalog import HOSTS
from coeval.models.dialects.dialect import FieldRejected
from coeval.models.dialects.openai_chat import OPENAI_CHAT

HELLO = (Message("system", "Be brief."), Message("user", "Say hello, as JSON."))
CLOSED = Schema("s", {"type": "object", "properties": {}, "required": [], "additionalProperties": False})
EVERY = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["a", "b"], "seed": 3}


def sent(
    interface: str, sampling: dict[str, Any], model: str = "some-model", **fields: Any
) -> dict[str, Any]:
    """The body, less what every request has."""
    request = Request(messages=HELLO, sampling=SamplingParameters.of(sampling), **fields)
    spec = ModelSpec(name="m", interface=interface, model=model)
    body: dict[str, Any] = json.loads(OPENAI_CHAT.encode(request, spec, HOSTS[interface]))
    assert body.pop("model") == model
    return body


def parameters(interface: str, sampling: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = sent(interface, sampling, **fields)
    del body["messages"]
    return body


@pytest.mark.parametrize(
    ("interface", "sampling", "expected"),
    [
        ("openai", EVERY, EVERY),
        ("azure_openai", EVERY, EVERY),
        ("azure_ai", {**EVERY, "top_k": 5}, {**EVERY, "top_k": 5}),
        ("openrouter", {**EVERY, "top_k": 5}, {**EVERY, "top_k": 5}),
        ("openrouter", {"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}),
        ("openrouter", {"thinking_budget": 2048}, {"reasoning": {"max_tokens": 2048}}),
        ("openrouter", {"thinking_budget": 0}, {"reasoning": {"effort": "none"}}),
        ("groq", EVERY, EVERY),
        ("groq", {"reasoning_effort": "default"}, {"reasoning_effort": "default"}),
        (
            "deepseek",
            {"reasoning_effort": "max"},
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        ("deepseek", {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("mistral", {"seed": 3, "top_k": 5}, {"random_seed": 3, "top_k": 5}),
        ("mistral", {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ("deepinfra", {**EVERY, "top_k": 5}, {**EVERY, "top_k": 5}),
        ("cerebras", {"max_tokens": 7, "seed": 3}, {"max_completion_tokens": 7, "seed": 3}),
        ("huggingface_api", EVERY, EVERY),
        ("ollama", {**EVERY, "reasoning_effort": "none"}, {**EVERY, "reasoning_effort": "none"}),
        ("vllm", {**EVERY, "top_k": 5}, {**EVERY, "top_k": 5}),
    ],
)
def test_parameters_go_in_the_words_of_the_host(
    interface: str, sampling: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert parameters(interface, sampling) == expected


@pytest.mark.parametrize(
    ("interface", "name", "value"),
    [
        *[(host, "top_k", 5) for host in ("openai", "azure_openai", "groq", "deepseek", "cerebras")],
        *[(host, "top_k", 5) for host in ("huggingface_api", "ollama")],
        *[
            (name, "thinking_budget", 9)
            for name, host in HOSTS.items()
            if "openai" in host.dialect and name != "openrouter"
        ],
        ("deepseek", "seed", 3),
        ("openai", "stop", list("abcde")),
        ("groq", "stop", list("abcde")),
        ("deepseek", "stop", [str(n) for n in range(17)]),
    ],
)
def test_what_a_host_has_nothing_for_is_refused_by_name(interface: str, name: str, value: Any) -> None:
    with pytest.raises(FieldRejected, match=rf"{interface} .*\b{name}\b") as raised:
        sent(interface, {"temperature": 0.5, name: value})
    assert raised.value.field == name


def test_a_host_without_log_probabilities_says_so() -> None:
    with pytest.raises(BadRequest, match="groq does not support logprobs"):
        sent("groq", {}, top_logprobs=5)


def test_an_effort_and_a_budget_at_once_are_refused_where_the_host_takes_one() -> None:
    with pytest.raises(BadRequest, match="reasoning_effort or thinking_budget, not both"):
        sent("openrouter", {"reasoning_effort": "low", "thinking_budget": 5})


def test_behind_an_address_of_the_users_own_openais_limits_are_not_those_of_the_server() -> None:
    request = Request(messages=HELLO, sampling=SamplingParameters.of({"top_k": 5, "stop": list("abcde")}))
    spec = ModelSpec(name="m", interface="openai", model="some-model", base_url="http://localhost:1/v1")
    body = json.loads(OPENAI_CHAT.encode(request, spec, HOSTS["openai"]))
    assert (body["top_k"], body["stop"]) == (5, list("abcde"))


# Families of models


@pytest.mark.parametrize("interface", ["openai", "azure_openai"])
@pytest.mark.parametrize(
    ("model", "sampling", "named"),
    [
        ("o1", {"temperature": 0.2}, "temperature other than 1"),
        ("o1-2024-12-17", {"top_p": 0.5}, "top_p other than 1"),
        ("o1-mini", {"reasoning_effort": "low"}, "reasoning_effort"),
        ("o3-mini", {"temperature": 0}, "temperature other than 1"),
        ("o3", {"stop": "END"}, "stop"),
        ("o4-mini-2025-04-16", {"temperature": 0.2}, "temperature other than 1"),
        ("ft:o4-mini:acme::1", {"temperature": 0.2}, "temperature other than 1"),
        ("GPT-5", {"temperature": 0.2}, "temperature other than 1"),
        ("gpt-5-nano", {"stop": "END"}, "stop"),
        ("gpt-5.2", {"temperature": 0.2, "reasoning_effort": "high"}, "temperature other than 1"),
    ],
)
def test_a_reasoning_model_is_not_sent_what_it_refuses(
    interface: str, model: str, sampling: dict[str, Any], named: str
) -> None:
    with pytest.raises(FieldRejected, match=f"takes no {named}; leave"):
        sent(interface, sampling, model=model)


@pytest.mark.parametrize(
    ("model", "sampling"),
    [
        ("o3", {"temperature": 1, "top_p": 1.0, "reasoning_effort": "low"}),
        ("o1", {"stop": ["END"]}),
        ("gpt-5-chat-latest", {"temperature": 0.2, "stop": ["END"]}),
        ("gpt-5.2", {"temperature": 0.2}),
        ("gpt-5.1", {"temperature": 0.2, "reasoning_effort": "none"}),
        ("gpt-4.1", {"temperature": 0.2, "stop": ["END"]}),
        ("o3x-of-somebody", {"temperature": 0.2}),
    ],
)
def test_a_model_is_sent_what_it_takes(model: str, sampling: dict[str, Any]) -> None:
    assert parameters("openai", sampling, model=model) == sampling


@pytest.mark.parametrize(
    ("interface", "model", "name", "value"),
    [("deepseek", "deepseek-reasoner", "temperature", 0.2), ("deepseek", "deepseek-reasoner", "top_p", 0.2)],
)
def test_a_parameter_that_would_be_passed_over_is_refused(
    interface: str, model: str, name: str, value: Any
) -> None:
    with pytest.raises(FieldRejected, match=f"{model} takes no {name};"):
        sent(interface, {name: value}, model=model)
    assert parameters(interface, {name: value}) == {name: value}


@pytest.mark.parametrize(
    ("interface", "model"), [("openai", "o3"), ("openai", "gpt-5-mini"), ("deepseek", "deepseek-reasoner")]
)
def test_a_model_without_log_probabilities_says_so(interface: str, model: str) -> None:
    with pytest.raises(BadRequest, match=f"{model} takes no logprobs"):
        sent(interface, {}, model=model, top_logprobs=5)


SYSTEM, USER = ({"role": m.role, "content": m.content} for m in HELLO)


@pytest.mark.parametrize(
    ("interface", "model", "messages"),
    [
        ("openai", "gpt-4o", [SYSTEM, USER]),
        ("openai", "o3", [SYSTEM | {"role": "developer"}, USER]),
        ("azure_openai", "gpt-5", [SYSTEM | {"role": "developer"}, USER]),
        ("openrouter", "openai/o3", [SYSTEM, USER]),
        ("openai", "o1-mini", [{"role": "user", "content": "Be brief.\n\nSay hello, as JSON."}]),
        ("vllm", "google/gemma-2-9b-it", [{"role": "user", "content": "Be brief.\n\nSay hello, as JSON."}]),
        ("vllm", "google/gemma-3-4b-it", [SYSTEM, USER]),
        ("ollama", "gemma2:9b", [SYSTEM, USER]),
    ],
)
def test_the_system_prompt_is_said_by_whom_the_model_listens_to(
    interface: str, model: str, messages: list[dict[str, str]]
) -> None:
    assert sent(interface, {}, model=model)["messages"] == messages


def test_a_system_prompt_without_a_user_after_it_becomes_a_turn() -> None:
    messages = (Message("system", "Be brief."), Message("assistant", "Yes?"))
    spec = ModelSpec(name="m", interface="vllm", model="google/gemma-2-9b-it")
    body = json.loads(OPENAI_CHAT.encode(Request(messages=messages), spec, HOSTS["vllm"]))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("interface", "model", "form", "strict"),
    [
        ("openai", "gpt-4o-mini", "json_schema", True),
        ("openai", "gpt-4o-2024-05-13", "json_object", None),
        ("openai", "gpt-4-turbo", "json_object", None),
        ("openai", "gpt-3.5-turbo", "json_object", None),
        ("openai", "gpt-4", None, None),
        ("openai", "gpt-4.1", "json_schema", True),
        ("openai", "o1-preview", None, None),
        ("groq", "openai/gpt-oss-120b", "json_schema", True),
        ("groq", "meta-llama/llama-4-scout-17b-16e-instruct", "json_schema", False),
        ("groq", "llama-3.3-70b-versatile", "json_object", None),
        ("deepseek", "deepseek-chat", "json_object", None),
        ("mistral", "mistral-large-latest", "json_schema", True),
        ("vllm", "some-model", "json_schema", True),
    ],
)
def test_a_schema_goes_in_the_form_that_the_model_takes(
    interface: str, model: str, form: str | None, strict: bool | None
) -> None:
    sent_form = sent(interface, {}, model=model, schema=CLOSED).get("response_format", {})
    assert sent_form.get("type") == form
    assert sent_form.get("json_schema", {}).get("strict") is strict


def test_a_deployment_is_asked_as_the_model_that_it_is() -> None:
    """Its name tells nothing; the first request goes as that model takes it."""
    request = Request(messages=HELLO, sampling=SamplingParameters.of({"max_tokens": 7}))
    spec = ModelSpec(name="m", interface="azure_openai", model="our-judge", base_model="o3-mini")
    body = json.loads(OPENAI_CHAT.encode(request, spec, HOSTS["azure_openai"]))
    assert (body["model"], body["max_completion_tokens"]) == ("our-judge", 7)
    assert body["messages"][0]["role"] == "developer"
    with pytest.raises(FieldRejected, match="o3-mini takes no temperature"):
        OPENAI_CHAT.encode(
            Request(messages=HELLO, sampling=SamplingParameters.of({"temperature": 0})),
            spec,
            HOSTS["azure_openai"],
        )
