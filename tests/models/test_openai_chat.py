"""The dialect against the fake, and both against OpenAI's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from fakes.openai_chat import CONTENT_FILTER, SPENT, Answer, Broken, Fault, Raw, Server, fake
from msgspec.structs import asdict

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    ModelError,
    NotFound,
    RateLimited,
    Unreadable,
)
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.models.catalog import HOSTS, Host
from coeval.models.dialects.openai_chat import OPENAI_CHAT, OpenAIChat
from coeval.models.dialects.openai_error import astray, explain
from coeval.models.hosted import HostedModel
from coeval.models.hosts.address import ModelAddress
from coeval.models.hosts.signers import Signer
from coeval.models.metering.ledger import Ledger
from coeval.models.metering.meter import Meter
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.http import Endpoint, Http

KEY = "sk-test-0123456789abcdef"
SPEC = ModelSpec(name="m", interface="openai", model="gpt-4o-mini", timeout_s=30.0)
HELLO = (Message("system", "Be brief."), Message("user", "Grüß Gott, in JSON please"))
LEVELS = Schema(
    "scores",
    {
        "type": "object",
        "properties": {"tone": {"enum": ["High", "Medium", "Low"]}},
        "required": ["tone"],
        "additionalProperties": False,
    },
)
OPEN = Schema("rubric", {"type": "object", "additionalProperties": {"type": "string"}})


def ask(*, sampling: dict[str, Any] | None = None, **fields: Any) -> Request:
    return Request(messages=HELLO, sampling=SamplingParameters.of(sampling or {}), **fields)


async def no_wait(seconds: float) -> None:
    """A retry's wait, without the waiting."""


@asynccontextmanager
async def asking(
    server: Server, spec: ModelSpec = SPEC, meter: Meter | None = None, dialect: OpenAIChat = OPENAI_CHAT
) -> AsyncIterator[HostedModel]:
    http = Http(sleep=no_wait)
    endpoint = Endpoint(server.url, Signer({"Authorization": f"Bearer {KEY}"}), Limiter())
    try:
        admission = Admission(spec.name, meter)
        host, path = HOSTS[spec.interface], dialect.path(spec)
        spec = msgspec.structs.replace(spec, base_url=server.url)
        address = ModelAddress(spec, host, dialect, server.url, path, None, None)
        yield HostedModel(address, http, endpoint, admission)
    finally:
        await http.aclose()


async def complete(server: Server, request: Request, spec: ModelSpec = SPEC) -> Completion:
    async with asking(server, spec) as model:
        return await model.complete(request)


def sent(request: Request, interface: str = "openai", **spec: Any) -> dict[str, Any]:
    """The body that a host of this interface is sent."""
    fields = {"name": "m", "interface": interface, "model": "some-model"} | spec
    body: dict[str, Any] = json.loads(OPENAI_CHAT.encode(request, ModelSpec(**fields), HOSTS[interface]))
    return body


# What is sent


@pytest.mark.parametrize(
    ("request_", "spec", "call"),
    [
        (ask(), SPEC, {}),
        (
            ask(
                sampling={"temperature": 0.7, "top_p": 0.9, "max_tokens": 512, "stop": ["\n", "END"]},
                seed=7,
            ),
            SPEC,
            {"temperature": 0.7, "top_p": 0.9, "max_tokens": 512, "stop": ["\n", "END"], "seed": 7},
        ),
        (
            ask(sampling={"max_tokens": 512, "reasoning_effort": "low"}),
            msgspec.structs.replace(SPEC, model="o4-mini"),
            {
                "model": "o4-mini",
                "messages": [{"role": "developer", "content": HELLO[0].content}, asdict(HELLO[1])],
                "max_completion_tokens": 512,
                "reasoning_effort": "low",
            },
        ),
        (ask(top_logprobs=5), SPEC, {"logprobs": True, "top_logprobs": 5}),
        (
            ask(schema=LEVELS),
            SPEC,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "scores", "schema": LEVELS.body, "strict": True},
                }
            },
        ),
        (
            ask(sampling={"temperature": 0.0, "user": None}),
            msgspec.structs.replace(SPEC, extra_body={"top_k": 4, "temperature": 1.5}),
            {"temperature": 0.0, "extra_body": {"top_k": 4, "temperature": 1.5}},
        ),
    ],
    ids=["plain", "sampling", "reasoning model", "logprobs", "schema", "extra_body"],
)
async def test_the_body_is_what_openais_client_sends_for_the_same_call(
    request_: Request, spec: ModelSpec, call: dict[str, Any]
) -> None:
    async with fake(keys=[KEY], extra_fields=["top_k"]) as server:
        await complete(server, request_, spec)
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            messages = [{"role": m.role, "content": m.content} for m in request_.messages]
            await client.chat.completions.create(**({"model": SPEC.model, "messages": messages} | call))
        ours, theirs = server.asked
    assert ours.body == theirs.body
    assert ours.path == theirs.path
    assert ours.headers["Authorization"] == theirs.headers["Authorization"]
    assert ours.headers["Content-Type"] == theirs.headers["Content-Type"]


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


@pytest.mark.parametrize(
    ("interface", "schema", "expected"),
    [
        ("vllm", LEVELS, {"name": "scores", "schema": LEVELS.body, "strict": True}),
        ("openrouter", OPEN, {"name": "rubric", "schema": OPEN.body, "strict": False}),
        ("deepseek", LEVELS, None),
        ("groq", LEVELS, None),
    ],
)
def test_a_schema_goes_in_the_form_that_the_host_takes(
    interface: str, schema: Schema, expected: dict[str, Any] | None
) -> None:
    form = sent(ask(schema=schema), interface)["response_format"]
    if expected is None:
        assert form == {"type": "json_object"}
    else:
        assert form == {"type": "json_schema", "json_schema": expected}


def test_a_schema_is_left_out_where_it_cannot_be_taken() -> None:
    silent = Request(messages=(Message("user", "Score this."),), schema=LEVELS)
    assert "response_format" not in sent(silent, "deepseek")
    assert "response_format" not in sent(ask(schema=LEVELS), structured_output=False)


@pytest.mark.parametrize(
    ("body", "closed"),
    [
        (LEVELS.body, True),
        ({"type": "array", "items": LEVELS.body}, True),
        ({"type": "array", "items": OPEN.body}, False),
        (LEVELS.body | {"required": []}, False),
        (LEVELS.body | {"properties": {"tone": {"type": "object"}}}, False),
    ],
)
def test_strict_is_asked_only_of_schemas_that_list_every_key(body: dict[str, Any], closed: bool) -> None:
    form = sent(ask(schema=Schema("s", body)))["response_format"]
    assert form["json_schema"]["strict"] is closed


# What comes back


async def test_an_answer_is_read_whole() -> None:
    async with fake(Answer("Servus du", usage=(20, 4)), keys=[KEY]) as server:
        completion = await complete(server, ask(top_logprobs=2))
    assert completion.text == "Servus du"
    assert completion.usage == Usage(20, 4)
    assert (completion.finish_reason, completion.attempts, completion.truncated) == ("stop", 1, False)
    assert completion.latency_s > 0
    assert completion.logprobs == (
        TokenLogprob("Servus", -0.1, {"Servus": -0.1, "alternative-1": -3.0}),
        TokenLogprob("du", -0.1, {"du": -0.1, "alternative-1": -3.0}),
    )


ANSWERS = {
    "plain": Answer("hello"),
    "cut": Answer("hel", finish_reason="length"),
    "empty": Answer(None),
    "refused": Answer(None, message={"refusal": "I will not."}),
    "tool": Answer(
        None,
        finish_reason="tool_calls",
        message={
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
        },
    ),
    "reasoning field": Answer("4", message={"reasoning_content": "2+2"}),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_openais_client_reads_the_fakes_answers_as_we_do(answer: Answer) -> None:
    async with fake(answer, answer, keys=[KEY]) as server:
        ours = await complete(server, ask(top_logprobs=2))
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            theirs = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=2
            )
    choice = theirs.choices[0]
    calls = choice.message.tool_calls or []
    arguments = [call.function.arguments for call in calls if call.type == "function"]
    assert ours.text == (choice.message.content or "".join(arguments))
    assert ours.refusal == choice.message.refusal
    assert ours.finish_reason == choice.finish_reason
    assert theirs.usage is not None
    assert ours.usage == Usage(theirs.usage.prompt_tokens, theirs.usage.completion_tokens)
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    assert [(token.token, token.logprob) for token in ours.logprobs] == [
        (token.token, token.logprob) for token in tokens
    ]
    assert [token.top for token in ours.logprobs] == [
        {top.token: top.logprob for top in token.top_logprobs} for token in tokens
    ]


# What goes wrong


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (CONTENT_FILTER, ContentFiltered),
        (Fault(400, "flagged", code="content_policy_violation"), ContentFiltered),
        (SPENT, RateLimited),
        (Fault(400, "no"), BadRequest),
        (Fault(401, "no"), AccessDenied),
        (Fault(404, "no", code="model_not_found"), NotFound),
    ],
)
async def test_an_error_that_asking_again_cannot_mend_is_asked_once(
    fault: Fault, error: type[ModelError]
) -> None:
    async with fake(*[fault] * 8, keys=[KEY]) as server:
        with pytest.raises(error, match=fault.message) as raised:
            await complete(server, ask())
    assert len(server.asked) == 1
    assert raised.value.status == fault.status


async def test_a_flagged_input_is_no_lack_of_access() -> None:
    body = {"error": {"code": 403, "message": "flagged", "metadata": {"flagged_input": "text"}}}
    async with fake(Raw(json.dumps(body).encode(), 403)) as server:
        with pytest.raises(ContentFiltered, match="flagged"):
            await complete(server, ask())


@pytest.mark.parametrize(
    "trouble",
    [
        Fault(500),
        Fault(429, headers={"Retry-After": "0"}),
        Broken.RESET,
        Broken.TORN,
        Raw(b'{"error": {"code": 503, "message": "busy"}}'),
    ],
    ids=str,
)
async def test_passing_trouble_is_asked_again(trouble: Any) -> None:
    async with fake(trouble, trouble, keys=[KEY]) as server:
        completion = await complete(server, ask())
    assert (completion.text, completion.attempts) == ("ok", 3)
    assert server.bodies[0] == server.bodies[2]


async def test_a_page_in_place_of_an_answer_is_asked_for_once_more() -> None:
    page = Raw(b"<html>gateway</html>")
    async with fake(page, keys=[KEY]) as server:
        assert (await complete(server, ask())).attempts == 2
    async with fake(page, page, page, keys=[KEY]) as server:
        with pytest.raises(Unreadable, match="gateway"):
            await complete(server, ask())
        assert len(server.bodies) == 2


async def test_the_key_is_in_no_message() -> None:
    async with fake(keys=["another"]) as server:
        with pytest.raises(AccessDenied, match="Incorrect API key") as raised:
            await complete(server, ask())
    assert KEY not in str(raised.value)
    echoed = explain(400, json.dumps({"error": {"message": f"json_schema {KEY}"}}).encode(), Redactor([KEY]))
    assert echoed is not None
    assert KEY not in str(echoed)


async def test_a_model_that_takes_no_schema_is_asked_without_it_from_then_on(tmp_path: Path) -> None:
    rejection = Fault(400, "'response_format' of type 'json_schema' is not supported with this model.")
    ledger = Ledger(tmp_path / "usage.json", {})
    async with (
        fake(rejection, keys=[KEY]) as server,
        asking(server, meter=ledger.meter("m")) as model,
    ):
        assert (await model.complete(ask(schema=LEVELS))).text == "ok"
        assert (await model.complete(ask(schema=LEVELS))).text == "ok"
        await model.complete(ask(schema=OPEN))
    assert ["response_format" in body for body in server.bodies] == [True, False, False, True]
    assert ledger.meter("m").requests == 4


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
    assert astray(status, body, url, Redactor()) is None


def test_a_host_called_v1_is_not_a_path() -> None:
    assert "try http://v1.example/v1" in str(
        astray(404, b'{"detail": "Not Found"}', "http://v1.example", Redactor())
    )


async def test_a_format_of_the_users_own_that_is_rejected_is_an_error() -> None:
    spec = msgspec.structs.replace(SPEC, extra_body={"response_format": {"type": "nonsense"}})
    async with fake() as server:
        with pytest.raises(BadRequest, match="response_format"):
            await complete(server, ask(), spec)
    assert len(server.asked) == 1


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


class _WithoutTopK(OpenAIChat):
    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        if request.sampling.top_k is not None:
            raise BadRequest(f"{host.name} has no top_k")
        return super().encode(request, spec, host, structured=structured)


async def test_a_parameter_that_the_dialect_has_no_word_for_is_refused_by_name_and_costs_nothing(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "usage.json", {})
    async with fake() as server, asking(server, meter=ledger.meter("m"), dialect=_WithoutTopK()) as model:
        with pytest.raises(BadRequest, match="openai has no top_k"):
            await model.complete(ask(sampling={"top_k": 20}))
        assert (server.asked, ledger.meter("m").requests) == ([], 0)
        assert (await model.complete(ask(sampling={"top_p": 0.5}))).text == "ok"


async def test_a_parameter_that_was_asked_for_is_never_left_out() -> None:
    async with fake(keys=[KEY]) as server, asking(server) as model:
        with pytest.raises(BadRequest, match="top_k"):
            await model.complete(ask(sampling={"top_k": 20}))
        assert len(server.asked) == 1
        # Not even after the host was found to refuse it where nobody had asked for it.
        await model.complete(ask(sampling={"top_k": 20}, droppable=("top_k",)))
        with pytest.raises(BadRequest, match="top_k"):
            await model.complete(ask(sampling={"top_k": 20}))
    assert len(server.asked) == 4


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
    assert len(server.asked) == 2


async def test_what_only_we_put_in_and_a_family_refuses_is_left_out_before_anything_is_sent() -> None:
    spec = msgspec.structs.replace(SPEC, model="o3")
    request = ask(sampling={"temperature": 0.0, "max_tokens": 9}, droppable=("temperature",))
    async with fake() as server, asking(server, spec) as model:
        assert (await model.complete(request)).dropped == ("temperature",)
        with pytest.raises(BadRequest, match="o3 takes no temperature other than 1"):
            await model.complete(ask(sampling={"temperature": 0.0}))
    assert [body.get("temperature") for body in server.bodies] == [None]
