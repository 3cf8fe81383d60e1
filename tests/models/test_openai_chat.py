"""The dialect of OpenAI against the fake: what the conformance suite does not ask of every interface."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conformance.interface import LEVELS
from fakes.openai_chat import Answer, Fault, Server, fake
from opened import opened

from coeval.core.errors import BadRequest, NotFound
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema
from coeval.core.redaction import Redactor
from coeval.models.catalog import HOSTS
from coeval.models.dialects.openai_answer import explain_missing_version
from coeval.models.dialects.openai_chat import OPENAI_CHAT
from coeval.models.metering.meter import Ledger

KEY = "sk-test-0123456789abcdef"
SPEC = ModelSpec(name="m", interface="openai", model="gpt-4o-mini", timeout_s=30.0, access_key=KEY)
HELLO = (Message("system", "Be brief."), Message("user", "Grüß Gott, in JSON please"))
OPEN = Schema("rubric", {"type": "object", "additionalProperties": {"type": "string"}})


def ask(*, sampling: dict[str, Any] | None = None, **fields: Any) -> Request:
    return Request(messages=HELLO, sampling=SamplingParameters.of(sampling or {}), **fields)


def asking(
    server: Server, spec: ModelSpec = SPEC, ledger: Ledger | None = None
) -> AbstractAsyncContextManager[Model]:
    return opened(msgspec.structs.replace(spec, base_url=server.url), {}, ledger=ledger)


async def complete(server: Server, request: Request, spec: ModelSpec = SPEC) -> Completion:
    async with asking(server, spec) as model:
        return await model.complete(request)


def sent(request: Request, interface: str = "openai", **spec: Any) -> dict[str, Any]:
    """The body that a host of this interface is sent."""
    fields = {"name": "m", "interface": interface, "model": "some-model"} | spec
    body: dict[str, Any] = json.loads(OPENAI_CHAT.encode(request, ModelSpec(**fields), HOSTS[interface]))
    return body


# What is sent


def test_parameters_go_by_the_names_of_the_host_and_those_that_only_some_have_as_they_stand() -> None:
    every = {"temperature": 0, "top_p": 0.9, "top_k": 5, "max_tokens": 7, "stop": "END", "seed": 3}
    body = sent(ask(sampling={**every, "min_p": 0.1, "user": None}), "mistral")
    del body["model"], body["messages"], every["seed"]
    assert body == {**every, "stop": ["END"], "random_seed": 3, "min_p": 0.1}
    reasoning = sent(ask(sampling={"max_new_tokens": 7, "top_p": None}), model="o3-mini")
    assert reasoning.keys() - {"model", "messages"} == {"max_completion_tokens"}


@pytest.mark.parametrize(
    "limits", [{"max_completion_tokens": 9, "max_tokens": 5}, {"max_tokens": 5, "max_completion_tokens": 9}]
)
def test_what_is_named_as_the_provider_names_it_goes_over_what_is_ours(limits: dict[str, int]) -> None:
    request = ask(sampling={**limits, "min_p": 0.1}, top_logprobs=5)
    body = sent(request, model="gpt-5-chat-latest", extra_body={"min_p": 0.2})
    assert (body["max_completion_tokens"], body["min_p"]) == (9, 0.2)


def test_no_seed_is_sent_that_was_not_asked_for_and_the_requests_own_wins() -> None:
    assert "seed" not in sent(ask())
    assert sent(ask(sampling={"seed": 3}))["seed"] == 3
    assert sent(ask(sampling={"seed": 3}, seed=0))["seed"] == 0
    assert sent(ask(seed=5), "mistral")["random_seed"] == 5


def test_a_schema_is_left_out_where_it_cannot_be_taken() -> None:
    silent = Request(messages=(Message("user", "Score this."),), schema=LEVELS)
    assert "response_format" not in sent(silent, "deepseek")
    assert "response_format" not in sent(ask(schema=LEVELS), structured_output=False)


@pytest.mark.parametrize(
    ("body", "closed"),
    [
        (LEVELS.body, True),
        (OPEN.body, False),
        ({"type": "array", "items": LEVELS.body}, True),
        ({"type": "array", "items": OPEN.body}, False),
        (LEVELS.body | {"required": []}, False),
        (LEVELS.body | {"properties": {"tone": {"type": "object"}}}, False),
    ],
)
def test_strict_is_asked_only_of_schemas_that_list_every_key(body: dict[str, Any], closed: bool) -> None:
    form = sent(ask(schema=Schema("s", body)))["response_format"]
    assert form["json_schema"]["strict"] is closed


# What goes wrong


async def test_a_base_url_without_v1_is_told_which_one_to_try() -> None:
    async with fake() as server:
        server.url = server.url.removesuffix("/v1")
        with pytest.raises(NotFound) as failure:
            await complete(server, ask())
    place = server.url.removeprefix("http://")
    assert f"POST {place}/chat/completions answered 404" in str(failure.value)
    assert f"try {server.url}/v1" in str(failure.value)


@pytest.mark.parametrize(
    ("status", "body", "url"),
    [
        (404, b"", "http://h:8000/v1"),
        (404, b"", "http://h/openai/v1beta"),
        (404, b'{"error": {"message": "The model `x` does not exist."}}', "http://h:8000"),
        (400, b"", "http://h:8000"),
    ],
)
def test_what_is_not_for_want_of_v1_names_no_other_url(status: int, body: bytes, url: str) -> None:
    assert explain_missing_version(status, body, url, Redactor()) is None


def test_a_host_called_v1_is_not_a_path() -> None:
    assert "try http://v1.example/v1" in str(
        explain_missing_version(404, b'{"detail": "Not Found"}', "http://v1.example", Redactor())
    )


async def test_a_format_of_the_users_own_that_is_rejected_is_an_error() -> None:
    spec = msgspec.structs.replace(SPEC, extra_body={"response_format": {"type": "nonsense"}})
    async with fake() as server:
        with pytest.raises(BadRequest, match="response_format"):
            await complete(server, ask(), spec)
    assert len(server.requested) == 1


async def test_a_parameter_that_nobody_asked_for_and_the_host_does_not_know_is_left_out() -> None:
    request = ask(sampling={"temperature": 0.7, "top_k": 20}, droppable=("top_k",))
    async with fake(keys=[KEY]) as server, asking(server) as model:
        assert [(await model.complete(request)).dropped for _ in range(2)] == [("top_k",)] * 2
        assert (await model.complete(ask(sampling={"temperature": 0.7}))).dropped == ()
    assert ["top_k" in body for body in server.bodies] == [True, False, False, False]
    assert all(body["temperature"] == 0.7 for body in server.bodies)


async def test_a_parameter_that_the_host_takes_is_not_said_to_be_dropped() -> None:
    request = ask(sampling={"top_k": 20}, droppable=("top_k",))
    async with fake(keys=[KEY], extra_fields=["top_k"]) as server, asking(server) as model:
        assert (await model.complete(request)).dropped == ()
    assert server.bodies[0]["top_k"] == 20


async def test_labels_are_told_where_simulated_models_may_stand_until_the_host_refuses_them() -> None:
    request = msgspec.structs.replace(ask(), labels={"tone": ["warm", "cold"]})
    refused = Fault(422, "Unsupported fields in the request: {'metadata'}")
    spec = msgspec.structs.replace(SPEC, interface="vllm")
    async with fake(refused) as server, asking(server, spec) as model:
        assert (await model.complete(request)).text == "ok"
        assert (await model.complete(request)).text == "ok"
    first, *others = server.bodies
    assert first["metadata"] == {"coeval_labels": '{"tone":["warm","cold"]}'}
    assert all("metadata" not in body for body in others)
    assert len(others) == 2
    assert "metadata" not in sent(request, "openai")


async def test_a_parameter_that_the_dialect_has_no_word_for_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json", {})
    async with fake() as server, asking(server, ledger=ledger) as model:
        with pytest.raises(BadRequest, match="thinking_budget"):
            await model.complete(ask(sampling={"thinking_budget": 20}))
        assert (server.requested, ledger.meter("m").requests) == ([], 0)


async def test_a_parameter_that_was_asked_for_is_never_left_out() -> None:
    async with fake(keys=[KEY]) as server, asking(server) as model:
        with pytest.raises(BadRequest, match="top_k"):
            await model.complete(ask(sampling={"top_k": 20}))
        assert len(server.requested) == 1
        # Not even after the host was found to refuse it where nobody had asked for it.
        await model.complete(ask(sampling={"top_k": 20}, droppable=("top_k",)))
        with pytest.raises(BadRequest, match="top_k"):
            await model.complete(ask(sampling={"top_k": 20}))
    assert len(server.requested) == 4


RENAMED = Fault(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    code="unsupported_parameter",
    param="max_tokens",
)


async def test_a_deployment_whose_name_hides_a_reasoning_model_is_asked_by_the_other_limit() -> None:
    spec = msgspec.structs.replace(SPEC, interface="azure_openai", model="team-reasoner")
    request = ask(sampling={"max_tokens": 64})
    async with fake(RENAMED, RENAMED) as server, asking(server, spec) as model:
        first = await asyncio.gather(model.complete(request), model.complete(request))
        assert [completion.text for completion in first] == ["ok", "ok"]
        await model.complete(request)
    assert ["max_completion_tokens" in body for body in server.bodies] == [False, False, True, True, True]
    assert server.bodies[-1]["max_completion_tokens"] == 64


async def test_a_host_that_takes_neither_name_of_the_limit_is_asked_twice() -> None:
    async with fake(*[RENAMED] * 5) as server:
        with pytest.raises(BadRequest, match="max_completion_tokens"):
            await complete(server, ask(sampling={"max_tokens": 64}))
    assert len(server.requested) == 2


async def test_what_only_we_put_in_and_a_family_refuses_is_left_out_before_anything_is_sent() -> None:
    spec = msgspec.structs.replace(SPEC, model="o3")
    request = ask(sampling={"temperature": 0.0, "max_tokens": 9}, droppable=("temperature",))
    async with fake() as server, asking(server, spec) as model:
        assert (await model.complete(request)).dropped == ("temperature",)
        with pytest.raises(BadRequest, match="o3 takes no temperature other than 1"):
            await model.complete(ask(sampling={"temperature": 0.0}))
    assert [body.get("temperature") for body in server.bodies] == [None]


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        ("gpt-4o-mini", ""),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini-2024-07-18"),
        (f"served with {KEY}", "served with [redacted]"),
        ("x" * 10_000, "x" * 200),
        (7, ""),
        (None, ""),
    ],
)
async def test_the_model_that_a_reply_names_is_kept_where_it_is_another(reported: object, kept: str) -> None:
    async with fake() as server:
        server.reply = lambda _: Answer(body={"model": reported})
        assert (await complete(server, ask())).served_by == kept
