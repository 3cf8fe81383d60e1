"""Refusals in the words of many hosts and gateways: what is left out, what is given up, what is said."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from fakes.openai_chat import Answer, Behaviour, Fault, Server, fake
from fakes.scripted import serving
from opened import opened

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    BadRequest,
    ContentFiltered,
    ModelError,
    ModelStopped,
    NotFound,
    RateLimited,
    ServerFault,
)
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Message, Request, SamplingParameters, Schema
from coeval.core.redaction import Redactor
from coeval.models.dialects.dialect import FieldRejected, SchemaRejected
from coeval.models.dialects.openai_answer import explain
from coeval.models.dialects.refusals import classify_refusal

HELLO = (Message("user", "Grade it, in JSON."),)
LEVELS = Schema("scores", {"type": "object", "properties": {"tone": {"enum": ["High", "Low"]}}})
SPEC = ModelSpec(name="m", interface="vllm", model="m-1", timeout_s=30.0)


@dataclass
class Picky(Server):
    """Refuses each request that has the field ``refuses``, with ``fault``."""

    refuses: str = ""
    fault: Behaviour = field(default_factory=lambda: Fault(400))

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        return self.fault if self.refuses in body else Answer()


@asynccontextmanager
async def picky(refuses: str, fault: Behaviour) -> AsyncIterator[tuple[Picky, Model]]:
    server = Picky(deque(), extra_fields=frozenset({"top_k"}), refuses=refuses, fault=fault)
    async with serving(server, "/v1"), opened(at(server), {}) as model:
        yield server, model


def at(server: Server) -> ModelSpec:
    return msgspec.structs.replace(SPEC, base_url=server.url)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Provider returned error; Invalid value at 'generation_config.response_schema'"),
        (400, "The specified schema produces a constraint that has too many states for serving."),
        (400, "The request contains features not handled by xgrammar."),
        (400, "JSON mode is not supported for this model"),
        (400, "guided_json is unavailable: start the server with --guided-decoding-backend"),
        (400, "Grammar error: Unimplemented keys: ['minLength']"),
        (422, "tool_choice 'required' needs --enable-auto-tool-choice"),
        (400, "Failed to compile the constraint of this request"),
        (400, "litellm.UnsupportedParamsError: m-1 does not support parameters: ['response_format']"),
        (400, "Der Parameter für das Ausgabeformat wird nicht unterstützt"),
        (422, "[{'loc': ('body', 'response_format', 'json_schema'), 'msg': 'Field required'}]"),
        (400, "bad request"),
        (404, "No endpoints found that support tool use. Try disabling one."),
        (500, "failed to parse grammar"),
        (500, "Failed to initialize samplers: JSON schema conversion failed: unresolved $ref"),
        (501, "outlines is not installed"),
    ],
)
async def test_a_schema_refused_in_any_words_is_left_out_from_then_on(status: int, words: str) -> None:
    async with picky("response_format", Fault(status, words)) as (server, model):
        for _ in range(3):
            completion = await model.complete(Request(messages=HELLO, schema=LEVELS))
            assert (completion.text, completion.attempts) == ("ok", 1)
    assert ["response_format" in body for body in server.bodies] == [True, False, False, False]


async def test_a_refusal_for_another_reason_is_told_and_costs_one_request_more() -> None:
    uneven = Fault(400, "Conversation roles must alternate user/assistant")
    async with picky("messages", uneven) as (server, model):
        with pytest.raises(BadRequest, match="roles must alternate"):
            await model.complete(Request(messages=HELLO, schema=LEVELS))
        assert len(server.requested) == 2
        server.fault = Fault(
            400, "This model's maximum context length is 4096 tokens, and your prompt has 4097."
        )
        with pytest.raises(BadRequest, match="context length is 4096"):
            await model.complete(Request(messages=HELLO, schema=LEVELS))
        assert len(server.requested) == 3, "a schema makes no prompt too long"
        server.fault = Answer()
        await model.complete(Request(messages=HELLO, schema=LEVELS))
    assert "response_format" in server.bodies[-1], "nothing was learnt of it"


async def test_an_engine_that_breaks_without_naming_a_grammar_is_tried_again() -> None:
    broken = Fault(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
    async with fake(broken) as server, opened(at(server), {}) as model:
        completion = await model.complete(Request(messages=HELLO, schema=LEVELS))
    assert (completion.text, completion.attempts) == ("ok", 2)
    assert all("response_format" in body for body in server.bodies)


SEED_REFUSALS = [
    Fault(400, "Torch XLA does not support per-request seed."),
    Fault(500, "Per-request seed is not supported on this device"),
    Fault(
        400, "litellm.UnsupportedParamsError: anthropic does not support parameters: ['seed'], for model=x."
    ),
    Fault(422, "seed: Extra inputs are not permitted"),
    Fault(400, "[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs'}]"),
    Fault(400, "Unknown parameter: 'seed'.", "unknown_parameter", "seed"),
    Fault(400, "Invalid value: seed must be between 0 and 65535", param="seed"),
    Fault(400, "Random seeds are disabled on this deployment."),
    Fault(501, "generate() got an unexpected keyword argument 'seed'"),
    Fault(400, "random_seed: unrecognized field"),
]


@pytest.mark.parametrize("refusal", SEED_REFUSALS, ids=lambda fault: fault.message[:24])
async def test_a_seed_that_nobody_set_is_left_out_where_it_is_refused(refusal: Fault) -> None:
    request = Request(messages=HELLO, seed=7, droppable=("seed",))
    async with picky("seed", refusal) as (server, model):
        answers = [await model.complete(request) for _ in range(3)]
    assert [body.get("seed") for body in server.bodies] == [7, None, None, None]
    assert {answer.dropped for answer in answers} == {("seed",)}


async def test_a_seed_of_the_users_is_not_left_out() -> None:
    request = Request(messages=HELLO, seed=7, sampling=SamplingParameters(seed=7))
    async with picky("seed", SEED_REFUSALS[0]) as (server, model):
        with pytest.raises(FieldRejected, match="leave seed out of the model's parameters"):
            await model.complete(request)
    assert len(server.requested) == 1


GATEWAY_TAIL = " Received Model Group=m\nAvailable Model Group Fallbacks=None LiteLLM Retried: 2 times"
OVER = (
    "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check "
    "your plan and billing details."
)


@pytest.mark.parametrize(
    ("status", "words", "code", "kind"),
    [
        (429, OVER, "429", AccountSpent),
        (429, "No deployments available - crossed budget: Exceeded", None, AccountSpent),
        (400, "Budget has been exceeded! Current cost: 0.02, Max budget: 0.01", "400", AccountSpent),
        (500, "Your credit balance is too low to access the API", None, AccountSpent),
        (403, "You have run out of credits on this key", None, AccountSpent),
        (402, "Payment Required", None, AccountSpent),
        (429, "Your team has used all available credits or its spending limit", None, AccountSpent),
        (403, "Insufficient Balance", "1113", AccountSpent),
        (429, "quota", "insufficient_quota", AccountSpent),
        (429, "billing hard limit has been reached", None, AccountSpent),
        (429, "Rate limit reached for requests per minute", None, RateLimited),
        (400, "You passed in model=nosuch. There are no healthy deployments for it", "400", NotFound),
        (400, "The model `llama-9` does not exist or you do not have access to it.", None, NotFound),
        (400, "No connected db.", "400", AccessDenied),
        (400, "Authentication Error, Invalid proxy server token passed", None, AccessDenied),
        (500, "Authentication Error, No connected db.", None, AccessDenied),
        (400, "The response was filtered due to the prompt triggering it", "400", ContentFiltered),
        (400, "litellm.ContentPolicyViolationError: AzureException - blocked", "400", ContentFiltered),
        (400, "Input data may contain inappropriate content.", "data_inspection_failed", ContentFiltered),
        (400, "系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入", "1301", ContentFiltered),
        (400, "System detected potentially unsafe or sensitive content in input", "1301", ContentFiltered),
        (400, "Output data may contain inappropriate content.", "DataInspectionFailed", ContentFiltered),
        (400, "The request failed because of its input text", "SensitiveContentDetected", ContentFiltered),
        (400, "The request was rejected because it was considered high risk", None, ContentFiltered),
        (400, "Your prompt was flagged as potentially violating our usage policy.", None, ContentFiltered),
        (403, "Output blocked by content filtering policy", None, ContentFiltered),
        (500, "litellm.ContentPolicyViolationError: VertexAIException - SAFETY", "500", ContentFiltered),
        (503, "the content filter service is away", None, ServerFault),
    ],
)  # fmt: skip
async def test_words_go_before_the_status_that_a_gateway_gives_them(
    status: int, words: str, code: str | None, kind: type[ModelError]
) -> None:
    fault = Fault(status, words, code, headers={"x-should-retry": "false"} if status >= 429 else {})
    async with fake(fault) as server, opened(at(server), {}) as model:
        with pytest.raises(kind) as raised:
            await model.complete(Request(messages=HELLO))
    assert type(raised.value) is kind
    assert raised.value.status == status


@pytest.mark.parametrize(
    ("headers", "words"), [({"Retry-After": "3"}, OVER), ({}, f"{OVER} Please retry in 3.2s.")]
)
async def test_a_quota_that_comes_back_in_seconds_is_waited_for(headers: dict[str, str], words: str) -> None:
    async with fake(Fault(429, words, headers=headers)) as server, opened(at(server), {}) as model:
        assert (await model.complete(Request(messages=HELLO))).attempts == 2


@pytest.mark.parametrize("answered", [False, True])
async def test_a_spent_account_ends_the_model_with_the_way_out(answered: bool) -> None:
    async with (
        fake(*[Answer()] * answered, *[Fault(429, OVER)] * 9) as server,
        opened(at(server), {}) as model,
    ):
        for _ in range(answered):
            await model.complete(Request(messages=HELLO))
        for _ in range(3):
            with pytest.raises(AccountSpent):
                await model.complete(Request(messages=HELLO))
        with pytest.raises(
            ModelStopped, match=r"account or budget is used up .*Add credit, or raise the limit"
        ):
            await model.complete(Request(messages=HELLO))
    assert len(server.requested) == 3 + answered


@pytest.mark.parametrize(
    "tail",
    [
        GATEWAY_TAIL,
        ". LiteLLM: model group 'm' has no fallbacks. Add a fallbacks entry to your config",
        ". To drop these, set `litellm.drop_params=True` or for proxy:\n`drop_params: true`",
    ],
)
def test_the_gateways_own_advice_is_cut_off_a_message(tail: str) -> None:
    body = (
        b'{"error": {"message": "%s", "code": "400"}}'
        % f"m does not support parameters: ['top_k']{tail}".encode().replace(b"\n", b"\\n")
    )
    error = explain(400, body, Redactor())
    assert str(error).startswith("m does not support parameters: ['top_k'];")
    assert "itellm" not in str(error).lower()


@pytest.mark.parametrize("status", [400, 422])
def test_a_prompt_that_speaks_of_seeds_is_no_refusal_of_one(status: int) -> None:
    assert classify_refusal(status, "The prompt 'When do I sow seeds?' is empty") is None
    assert isinstance(classify_refusal(status, "guided_grammar is set twice"), SchemaRejected)


@pytest.mark.parametrize(
    ("words", "param", "kind"),
    [
        ("'top_k' is not supported when tools are given", "", FieldRejected),
        ("not supported with this schema", "top_k", FieldRejected),
        ("Unknown parameter: 'tools'", "", SchemaRejected),
        ("Invalid schema for function 'f': property 'top_k' is not supported", "", SchemaRejected),
    ],
)
def test_a_field_in_quotes_is_refused_rather_than_the_schema(
    words: str, param: str, kind: type[BadRequest]
) -> None:
    assert type(classify_refusal(400, words, param=param)) is kind


async def test_a_limit_that_was_raised_for_one_answer_ends_no_model() -> None:
    too_large = Fault(400, "max_tokens=128 cannot be greater than max_model_len=100")
    asked = Request(HELLO, sampling=SamplingParameters(max_tokens=128), raised=True)
    async with fake(too_large, Answer(), too_large) as server, opened(at(server), {}) as model:
        with pytest.raises(BadRequest, match="max_model_len=100"):
            await model.complete(asked)
        assert (await model.complete(Request(HELLO))).text
        with pytest.raises(BadRequest, match="max_model_len=100"):
            await model.complete(msgspec.structs.replace(asked, raised=False))
        with pytest.raises(ModelStopped, match="its host refuses answers of that length"):
            await model.complete(Request(HELLO))


@pytest.mark.parametrize("then", [Fault(400, "malformed"), Answer()])
async def test_a_host_that_broke_at_a_schema_is_asked_without_it_for_good_where_that_helps(
    then: Behaviour,
) -> None:
    broken = Fault(500, "xgrammar: out of memory")
    asked = Request(HELLO, schema=LEVELS)
    async with fake(broken, then, Answer()) as server, opened(at(server), {}) as model:
        with suppress(BadRequest):
            await model.complete(asked)
        assert (await model.complete(asked)).text
        sent = ["response_format" in each.body for each in server.requested]
    assert sent == [True, False, isinstance(then, Fault)]
