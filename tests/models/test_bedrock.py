"""Bedrock's Converse against a strict fake that makes each signature again, and both against boto3."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.auth import BearerAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.tokens import FrozenAuthToken
from conformance.interface import LEVELS
from fakes.bedrock import Answer, BedrockHost, Fault, fake_bedrock
from opened import answer, keys_of, opened

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    NotFound,
    RateLimited,
    ServerFault,
    UsageError,
)
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters
from coeval.models.address import ModelAddress, resolve_address
from coeval.models.catalog import HOSTS
from coeval.models.signers import INSTALL

ID, SECRET = "AKIAMADEUP0EXAMPLE07", "made/up+Secret0123456789abcdefghijklmnop"
IAM = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
API_KEY = "ABSKmadeUpBedrockKey0123456789"
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
PROFILE = (
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-7-sonnet-20250219-v1:0"
)
TURNS = (
    Message("system", "Be brief."),
    Message("user", "Grüß Gott"),
    Message("assistant", "Servus"),
    Message("user", "Level, as JSON?"),
)


def spec(url: str | None, model: str = CLAUDE, **fields: Any) -> ModelSpec:
    return ModelSpec(name="m", interface="bedrock", model=model, base_url=url, timeout_s=30.0, **fields)


def ask(sampling: dict[str, Any] | None = None, **fields: Any) -> Request:
    return Request(messages=TURNS, sampling=SamplingParameters.of(sampling or {}), **fields)


async def body_for(request: Request, model: str = CLAUDE, **fields: Any) -> dict[str, Any]:
    """The body that the fake took."""
    async with fake_bedrock(keys={ID: SECRET}) as host:
        await answer(spec(host.url, model, **fields), IAM, request)
    return host.bodies[0]


def boto(host: BedrockHost, token: str | None = None) -> Any:
    return boto3.client(
        "bedrock-runtime",
        endpoint_url=host.url,
        region_name="us-east-1",
        aws_access_key_id=ID,
        aws_secret_access_key=SECRET,
        aws_session_token=token,
        config=Config(retries={"max_attempts": 0}),
    )


# What is sent

SAID = [
    {"role": "user", "content": [{"text": "Grüß Gott"}]},
    {"role": "assistant", "content": [{"text": "Servus"}]},
    {"role": "user", "content": [{"text": "Level, as JSON?"}]},
]
SCHEMA_TEXT = (
    '{"type":"object","properties":{"tone":{"type":"string","enum":["High","Medium","Low"]}},'
    '"required":["tone"],"additionalProperties":false}'
)


@pytest.mark.parametrize(
    ("request_", "model", "call"),
    [
        (ask(), CLAUDE, {}),
        (
            ask({"temperature": 0.7, "top_k": 40, "max_tokens": 512, "stop": ["END"]}),
            CLAUDE,
            {
                "inferenceConfig": {"temperature": 0.7, "maxTokens": 512, "stopSequences": ["END"]},
                "additionalModelRequestFields": {"top_k": 40},
            },
        ),
        (
            ask({"temperature": 0.7, "top_p": 0.9, "top_k": 40}),
            "amazon.nova-lite-v1:0",
            {
                "inferenceConfig": {"temperature": 0.7, "topP": 0.9},
                "additionalModelRequestFields": {"inferenceConfig": {"topK": 40}},
            },
        ),
        (
            ask(schema=LEVELS),
            CLAUDE,
            {
                "outputConfig": {
                    "textFormat": {
                        "type": "json_schema",
                        "structure": {"jsonSchema": {"schema": SCHEMA_TEXT, "name": "scores"}},
                    }
                }
            },
        ),
        (
            ask(schema=LEVELS),
            PROFILE,
            {
                "toolConfig": {
                    "tools": [
                        {
                            "toolSpec": {
                                "name": "scores",
                                "description": "Give the answer, in the form that is asked for.",
                                "inputSchema": {"json": LEVELS.body},
                            }
                        }
                    ],
                    "toolChoice": {"tool": {"name": "scores"}},
                }
            },
        ),
        (
            ask({"thinking_budget": 2048}),
            PROFILE,
            {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2048}}},
        ),
        (
            ask({"reasoning_effort": "low"}),
            "us.amazon.nova-2-lite-v1:0",
            {
                "additionalModelRequestFields": {
                    "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}
                }
            },
        ),
        (
            ask({"reasoning_effort": "high"}),
            "openai.gpt-oss-120b-1:0",
            {"additionalModelRequestFields": {"reasoning_effort": "high"}},
        ),
        (ask({"top_k": 9}), "cohere.command-r-plus-v1:0", {"additionalModelRequestFields": {"k": 9}}),
    ],
    ids=["plain", "claude", "nova", "format", "tool", "budget", "nova effort", "gpt effort", "command"],
)
async def test_the_request_is_what_boto3_sends_for_the_same_call(
    request_: Request, model: str, call: dict[str, Any]
) -> None:
    async with fake_bedrock(keys={ID: SECRET}) as host:
        await answer(spec(host.url, model), IAM, request_)
        client = boto(host)
        said = {"modelId": model, "messages": SAID, "system": [{"text": "Be brief."}]}
        theirs = await asyncio.to_thread(client.converse, **said, **call)
        mine, other = host.requested
    assert theirs["output"]["message"]["content"] == [{"text": "ok"}]
    assert mine.body == other.body
    assert mine.path == other.path
    named = [requested.headers["Authorization"].split(", ")[0] for requested in (mine, other)]
    assert named[0][:60] == named[1][:60]
    assert mine.headers["Content-Type"] == other.headers["Content-Type"]


async def test_boto3_reads_the_fakes_answers_and_errors_as_we_do() -> None:
    said = Answer("4", reasoning="2 + 2", usage=(4, 5), cache_read=16, cache_write=8)
    fault = Fault(400, "too many", "ServiceQuotaExceededException")
    in_body = Fault(429, "slow down", "ThrottlingException", in_body=True)
    async with fake_bedrock(said, fault, in_body, keys={ID: SECRET}) as host:
        client = boto(host)

        def say() -> Any:
            return client.converse(modelId=CLAUDE, messages=SAID)

        theirs = await asyncio.to_thread(say)
        reasoning, text = theirs["output"]["message"]["content"]
        assert reasoning["reasoningContent"]["reasoningText"]["text"] == "2 + 2"
        assert text == {"text": "4"}
        assert theirs["usage"]["cacheReadInputTokens"] == 16
        for kind in ("ServiceQuotaExceededException", "ThrottlingException"):
            with pytest.raises(ClientError) as refused:
                await asyncio.to_thread(say)
            assert refused.value.response["Error"]["Code"] == kind


async def test_turns_of_one_role_are_joined_and_empty_answers_left_out() -> None:
    turns = (
        Message("user", "One?"),
        Message("user", "Two?"),
        Message("assistant", " "),
        Message("user", "Three?"),
    )
    body = await body_for(Request(messages=turns))
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "One?"}, {"text": "Two?"}, {"text": "Three?"}]}]
    }


async def test_a_model_without_system_prompts_is_told_in_its_first_turn() -> None:
    body = await body_for(ask(), "mistral.mixtral-8x7b-instruct-v0:1")
    assert "system" not in body
    assert body["messages"][0]["content"] == [{"text": "Be brief.\n\nGrüß Gott"}]


async def test_what_requests_share_ends_at_a_cache_point_where_claude_may_keep_it() -> None:
    shared = "An item to be judged. " * 300
    request = Request(messages=(Message("user", shared + "Is it clear?"),), shared=len(shared))
    [turn] = (await body_for(request))["messages"]
    assert turn["content"] == [
        {"text": shared},
        {"cachePoint": {"type": "default"}},
        {"text": "Is it clear?"},
    ]
    [turn] = (await body_for(request, "meta.llama3-3-70b-instruct-v1:0"))["messages"]
    assert turn["content"] == [{"text": shared + "Is it clear?"}]


async def test_parameters_that_only_a_model_knows_go_where_converse_hands_them_on() -> None:
    guardrail = {"guardrailIdentifier": "abc123", "guardrailVersion": "1"}
    body = await body_for(
        ask({"temperature": 0.5, "k": 5, "guardrailConfig": guardrail}),
        "cohere.command-r-v1:0",
        extra_body={"inferenceConfig": {"maxTokens": 9}, "additionalModelRequestFields": {"p": 0.5}},
    )
    assert body["guardrailConfig"] == guardrail
    assert body["inferenceConfig"] == {"temperature": 0.5, "maxTokens": 9}
    assert body["additionalModelRequestFields"] == {"k": 5, "p": 0.5}


@pytest.mark.parametrize(
    ("model", "sampling", "said"),
    [
        (CLAUDE, {"seed": 7}, "does not support seed; leave it out"),
        (CLAUDE, {"temperature": 0.5, "top_p": 0.5}, "temperature or top_p, not both"),
        ("us.anthropic.claude-opus-4-7-v1", {"temperature": 0.5}, "takes no temperature; leave it out"),
        ("meta.llama3-3-70b-instruct-v1:0", {"top_k": 9}, "does not support top_k; leave it out"),
        ("meta.llama3-3-70b-instruct-v1:0", {"reasoning_effort": "low"}, "does not support reasoning_effort"),
        ("amazon.nova-pro-v1:0", {"thinking_budget": 2048}, "does not support thinking_budget; leave it out"),
    ],
)
async def test_what_a_family_has_nothing_for_is_refused_by_name_and_not_sent(
    model: str, sampling: dict[str, Any], said: str
) -> None:
    async with fake_bedrock(keys={ID: SECRET}) as host:
        with pytest.raises(BadRequest, match=said):
            await answer(spec(host.url, model), IAM, ask(sampling))
    assert not host.requested


async def test_an_empty_message_of_the_users_is_refused_before_it_is_sent() -> None:
    async with fake_bedrock(keys={ID: SECRET}) as host:
        with pytest.raises(BadRequest, match="takes no empty message"):
            await answer(spec(host.url), IAM, Request(messages=(Message("user", " \n"),)))
    assert not host.requested


# Where, and as whom


def address(env: Mapping[str, str], model: str = CLAUDE, **options: Any) -> ModelAddress:
    return resolve_address(spec(None, model, options=options), HOSTS["bedrock"], keys_of(env))


def test_the_region_is_the_models_own_else_that_of_the_environment() -> None:
    there = "https://bedrock-runtime.{}.amazonaws.com"
    assert address(IAM).url == there.format("us-east-1")
    assert address(IAM | {"AWS_DEFAULT_REGION": "eu-west-1"}).url == there.format("us-east-1")
    only_default = {name: value for name, value in IAM.items() if name != "AWS_REGION"}
    assert address(only_default | {"AWS_DEFAULT_REGION": "eu-west-1"}).url == there.format("eu-west-1")
    own = address(IAM, region="ap-south-1")
    assert own.url == there.format("ap-south-1")
    assert own.signer is not None
    assert own.path == f"/model/{CLAUDE.replace(':', '%3A')}/converse"


def test_an_arn_is_quoted_as_a_whole() -> None:
    quoted = PROFILE.replace(":", "%3A").replace("/", "%2F")
    assert address(IAM, PROFILE).path == f"/model/{quoted}/converse"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "needs a key and none was found.*AWS_BEARER_TOKEN_BEDROCK"),
        ({"AWS_REGION": "us-east-1"}, "needs a key and none was found"),
        ({"AWS_ACCESS_KEY_ID": ID, "AWS_REGION": "r"}, "are a pair, and secret_access_key was not found"),
        ({"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET}, "needs region.*AWS_DEFAULT_REGION"),
        ({"AWS_BEARER_TOKEN_BEDROCK": API_KEY}, "needs region and none was found.*parameters.region"),
    ],
)
def test_what_is_missing_is_asked_for_by_name(env: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        address(env)
    assert SECRET not in str(raised.value)


async def test_an_api_key_goes_before_iam_and_is_shown_as_botocore_shows_it() -> None:
    async with fake_bedrock(api_keys=[API_KEY]) as host:
        env = {"AWS_BEARER_TOKEN_BEDROCK": API_KEY, **IAM}
        assert (await answer(spec(host.url), env, ask())).text == "ok"
    theirs = AWSRequest(method="POST", url="https://127.0.0.1/")  # they show such a key to https only
    BearerAuth(FrozenAuthToken(API_KEY)).add_auth(theirs)
    assert host.requested[0].headers["Authorization"] == theirs.headers["Authorization"]


async def test_a_session_token_is_sent_and_signed() -> None:
    async with fake_bedrock(keys={ID: SECRET}, session_token="made-up-session-token-0123456789") as host:
        env = IAM | {"AWS_SESSION_TOKEN": "made-up-session-token-0123456789"}
        assert (await answer(spec(host.url, PROFILE), env, ask())).text == "ok"
    assert "x-amz-security-token" in host.requested[0].headers["Authorization"]


WITHOUT = """
import importlib.util, sys
from coeval.core.errors import UsageError
from coeval.models import signers as aws_signer
from coeval.models.keys import Credential

assert "botocore" not in sys.modules
found = importlib.util.find_spec
aws_signer.find_spec = lambda name: None if name == "botocore" else found(name)
assert aws_signer.make_aws_signer(Credential({"api_key": "k"})).fixed == {"Authorization": "Bearer k"}
try:
    aws_signer.make_aws_signer(Credential({"access_key_id": "a", "secret_access_key": "b", "region": "r"}))
except UsageError as error:
    print(error)
assert "botocore" not in sys.modules
"""


@pytest.mark.process
def test_an_api_key_needs_no_botocore_and_for_iam_it_is_said_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60
    )
    assert INSTALL in done.stdout
    assert "or use an API key of Bedrock" in done.stdout


# What comes back


async def said(behaviour: Any, request: Request | None = None, model: str = CLAUDE) -> Completion:
    async with fake_bedrock(behaviour, keys={ID: SECRET}) as host:
        return await answer(spec(host.url, model), IAM, request or ask())


async def test_every_kind_of_content_is_read_for_what_it_is() -> None:
    content: list[dict[str, Any]] = [
        {"reasoningContent": {"redactedContent": "AAAA"}},
        {"reasoningContent": {"reasoningText": {"text": "hm"}}},
        {"text": "one "},
        {"citationsContent": {"content": [{"text": "two"}], "citations": []}},
        {"somethingNew": {"of": "tomorrow"}},
    ]
    completion = await said(Answer(content=content))
    assert completion.text == "one two"
    assert completion.reasoning == "[a part of the reasoning is withheld by the provider]\nhm"


# What goes wrong


@pytest.mark.parametrize("in_body", [False, True])
@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (
            Fault(403, "The security token is expired", "ExpiredTokenException"),
            AccessDenied,
            "renew the cred",
        ),
        (Fault(403, "not authorized to perform", "AccessDeniedException"), AccessDenied, "not authorized"),
        (
            Fault(400, "The security token is invalid.", "UnrecognizedClientException"),
            AccessDenied,
            "invalid",
        ),
        (Fault(404, "Model use case details", "ResourceNotFoundException"), NotFound, "use case"),
        (Fault(400, "The provided model identifier is invalid.", None), NotFound, "identifier is invalid"),
        (
            Fault(400, "Invocation of model ID m with on-demand throughput isn't supported."),
            NotFound,
            "on-dem",
        ),
        (Fault(400, "You exceeded it.", "ServiceQuotaExceededException"), RateLimited, "quota is used up"),
        (Fault(429, "Too many tokens per day, please wait."), RateLimited, "the daily quota is used up"),
        (Fault(400, "Input is too long for requested model."), BadRequest, "too long"),
    ],
)
async def test_an_error_is_what_it_means_whatever_its_status(
    fault: Fault, error: type[Exception], words: str, in_body: bool
) -> None:
    fault = Fault(fault.status, fault.message, fault.kind, in_body=in_body)
    async with fake_bedrock(fault, keys={ID: SECRET}) as host:
        with pytest.raises(error, match=words):
            await answer(spec(host.url), IAM, ask())
    assert len(host.requested) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, "Too many requests, please wait before trying again."),
        Fault(429, "The model is starting.", "ModelNotReadyException"),
        Fault(408, "The model timed out."),
        Fault(424, "The model failed.", body={"originalStatusCode": 500}),
        Fault(503, "Bedrock is unable to process your request."),
    ],
    ids=lambda fault: fault.kind or str(fault.status),
)
async def test_trouble_that_passes_is_waited_for(fault: Fault) -> None:
    async with fake_bedrock(fault, keys={ID: SECRET}) as host, opened(spec(host.url), IAM) as model:
        assert (await model.complete(ask())).attempts == 2


async def test_a_models_own_refusal_is_not_asked_again() -> None:
    fault = Fault(424, "prompt is too long", body={"originalStatusCode": 400})
    async with fake_bedrock(fault, keys={ID: SECRET}) as host:
        with pytest.raises(BadRequest, match="prompt is too long"):
            await answer(spec(host.url), IAM, ask())
    assert len(host.requested) == 1


async def test_a_model_that_is_always_busy_is_told_as_such() -> None:
    async with fake_bedrock(*[Fault(424, "The model failed.")] * 8, keys={ID: SECRET}) as host:
        with pytest.raises(ServerFault, match="The model failed"):
            await answer(spec(host.url), IAM, ask())


async def test_no_error_repeats_a_credential() -> None:
    env = IAM | {"AWS_SESSION_TOKEN": "made-up-session-token-0123456789"}
    echo = Fault(400, f"you sent {ID} {SECRET} made-up-session-token-0123456789, did you not")
    async with fake_bedrock(echo, keys={ID: SECRET}, session_token=env["AWS_SESSION_TOKEN"]) as host:
        with pytest.raises(BadRequest, match="did you not") as raised:
            await answer(spec(host.url), env, ask())
    for value in (ID, SECRET, env["AWS_SESSION_TOKEN"]):
        assert value not in str(raised.value)
