"""The providers' own clients, pointed at the fakes that we are tried against: they keep the fakes honest.

For the same call a client sends the body that we send, after what is written in `IGNORED`; and it reads the
fake's answers and errors as we do. AWS's is in `test_bedrock`, where signatures are made again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import cohere
import huggingface_hub
import openai
import pytest
from conformance.interface import LEVELS, SECRET, Behaviour, Interface, Said
from conformance.registered import REGISTERED
from fakes.gemini import in_camel_case
from fakes.openai_chat import Requested
from google import genai
from google.genai import types
from mistralai.client import Mistral

from coeval.core.errors import ModelError
from coeval.core.records import Completion, Message, Request, SamplingParameters
from coeval.models.keys import Keys
from coeval.models.open import Models

HELLO = (Message("system", "Be brief."), Message("user", "Grüß Gott, in JSON please"))
TURNS: Any = [{"role": message.role, "content": message.content} for message in HELLO]
STRICT = {"type": "json_schema", "json_schema": {"name": "scores", "schema": LEVELS.body, "strict": True}}
SAMPLING = {"temperature": 0.3, "top_p": 0.9, "max_tokens": 321, "stop": ["END", "###"], "seed": 7}
AZURE_VERSION = "2025-04-01-preview"

IGNORED: Mapping[str, frozenset[str]] = {
    # Whether an answer comes in pieces: it does not, said or not.
    "mistral": frozenset({"stream"}),
    "cohere": frozenset({"stream"}),
    "huggingface_api": frozenset({"stream"}),
}


@dataclass(frozen=True)
class Reported:
    """What a client makes of an answer."""

    text: str | None
    finish: str | None
    tokens: tuple[int, int]
    reasoning: str | None = None


Call = Callable[[str, str, Mapping[str, Any]], Awaitable[Reported]]
"""One request by a client, to a base URL and a model, with parameters by our names; ``schema`` and
``top_logprobs`` among them."""


async def _openai(client: openai.AsyncOpenAI, model: str, requested: Mapping[str, Any]) -> Reported:
    named, turns = dict(requested), TURNS
    if model == "o4-mini":
        named["max_completion_tokens"] = named.pop("max_tokens")
        turns = [{**TURNS[0], "role": "developer"}, TURNS[1]]
    if named.pop("schema", None) is not None:
        named["response_format"] = STRICT
    if "top_logprobs" in named:
        named["logprobs"] = True
    async with client:
        answer = await client.chat.completions.create(model=model, messages=turns, **named)
    choice = answer.choices[0]
    assert answer.usage is not None
    tokens = answer.usage.prompt_tokens, answer.usage.completion_tokens
    thought = getattr(choice.message, "reasoning_content", None)
    return Reported(choice.message.content, choice.finish_reason, tokens, thought)


async def by_openai(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    return await _openai(openai.AsyncOpenAI(base_url=url, api_key=SECRET, max_retries=0), model, requested)


async def by_anthropic(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    """By the older version of the API: models of the newer one take no temperature, top_p and top_k."""
    named = {{"stop": "stop_sequences"}.get(name, name): value for name, value in requested.items()}
    drawn = {name: named.pop(name) for name in ("temperature", "top_k") if name in named}
    if named.pop("schema", None) is not None:
        named["output_config"] = {"format": {"type": "json_schema", "schema": LEVELS.body}}
    if "thinking_budget" in named:
        named["thinking"] = {"type": "enabled", "budget_tokens": named.pop("thinking_budget")}
    if "reasoning_effort" in named:
        named["output_config"] = {"effort": named.pop("reasoning_effort")}
        named["thinking"] = {"type": "adaptive"}
    version = {"anthropic-version": "2023-06-01"}
    client = anthropic.AsyncAnthropic(base_url=url, api_key=SECRET, max_retries=0, default_headers=version)
    async with client:
        answer = await client.messages.create(
            **{"max_tokens": 8192, "extra_body": drawn, **named},
            model=model,
            system=HELLO[0].content,
            messages=TURNS[1:],
        )
    text = "".join(block.text for block in answer.content if block.type == "text")
    thought = "".join(block.thinking for block in answer.content if block.type == "thinking")
    usage = answer.usage
    prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    return Reported(text, answer.stop_reason, (prompt, usage.output_tokens), thought or None)


async def by_google(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    names = {
        "max_tokens": "max_output_tokens",
        "stop": "stop_sequences",
        "presencePenalty": "presence_penalty",
    }
    named = {names.get(name, name): value for name, value in requested.items()}
    if named.pop("schema", None) is not None:
        named |= {"response_mime_type": "application/json", "response_json_schema": LEVELS.body}
    if "top_logprobs" in named:
        named |= {"response_logprobs": True, "logprobs": named.pop("top_logprobs")}
    if "thinking_budget" in named:
        budget = named.pop("thinking_budget")
        named["thinking_config"] = {"thinking_budget": budget, "include_thoughts": True}
    if "reasoning_effort" in named:
        level = named.pop("reasoning_effort")
        named["thinking_config"] = {"thinking_level": level, "include_thoughts": True}
    options = types.HttpOptions(base_url=url, api_version="v1beta")
    client = genai.Client(api_key=SECRET, http_options=options).aio
    try:
        answer = await client.models.generate_content(
            model=model,
            contents=[types.Content(role="user", parts=[types.Part(text=HELLO[1].content)])],
            config=types.GenerateContentConfig(system_instruction=HELLO[0].content, **named),
        )
    finally:
        await client.aclose()
    assert answer.candidates is not None
    [candidate] = answer.candidates
    assert candidate.content is not None
    assert candidate.finish_reason is not None
    parts = candidate.content.parts or []
    thought = "".join(part.text or "" for part in parts if part.thought)
    usage = answer.usage_metadata
    assert usage is not None
    made = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return Reported(
        answer.text, candidate.finish_reason.name, (usage.prompt_token_count or 0, made), thought or None
    )


async def by_azure_openai(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    client = openai.AsyncAzureOpenAI(
        azure_endpoint=url, api_key=SECRET, api_version=AZURE_VERSION, max_retries=0
    )
    return await _openai(client, model, requested)


async def by_openai_at_azure(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    """As Azure's guide has it for the newer API, but for the header that shows the key."""
    client = openai.AsyncOpenAI(
        base_url=f"{url}/openai/v1/", api_key=SECRET, default_headers={"api-key": SECRET}, max_retries=0
    )
    return await _openai(client, model, requested)


async def by_mistral(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    named = dict(requested)
    if "seed" in named:
        named["random_seed"] = named.pop("seed")
    if named.pop("schema", None) is not None:
        named["response_format"] = STRICT
    if "top_logprobs" in named:
        named["logprobs"] = True
    async with Mistral(api_key=SECRET, server_url=url.removesuffix("/v1")) as client:
        answer = await client.chat.complete_async(model=model, messages=TURNS, **named)
    choice = answer.choices[0]
    assert choice.message is not None
    content = choice.message.content
    tokens = answer.usage.prompt_tokens or 0, answer.usage.completion_tokens or 0
    if not isinstance(content, list):
        return Reported(content or None, choice.finish_reason, tokens)
    text = "".join(part.text for part in content if part.type == "text")
    thought = "".join(inner.text for part in content if part.type == "thinking" for inner in part.thinking)
    return Reported(text, choice.finish_reason, tokens, thought)


async def by_cohere(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    names = {"top_p": "p", "top_k": "k", "stop": "stop_sequences"}
    named = {names.get(name, name): value for name, value in requested.items()}
    if named.pop("schema", None) is not None:
        named["response_format"] = {"type": "json_object", "json_schema": LEVELS.body}
    if "thinking_budget" in named:
        named["thinking"] = {"type": "enabled", "token_budget": named.pop("thinking_budget")}
    if named.pop("top_logprobs", None) is not None:
        named["logprobs"] = True
    async with cohere.AsyncClientV2(SECRET, base_url=url) as client:
        answer = await client.chat(model=model, messages=TURNS, **named)
    content = answer.message.content or []
    text = "".join(part.text for part in content if part.type == "text")
    thought = "".join(part.thinking for part in content if part.type == "thinking")
    assert answer.usage is not None
    assert answer.usage.billed_units is not None
    billed = answer.usage.billed_units
    tokens = int(billed.input_tokens or 0), int(billed.output_tokens or 0)
    return Reported(text, answer.finish_reason, tokens, thought or None)


async def by_huggingface(url: str, model: str, requested: Mapping[str, Any]) -> Reported:
    """Without a schema: at an address of one's own the client writes one as text-generation-inference did
    before it took OpenAI's form, which is the router's."""
    named = dict(requested)
    if "top_logprobs" in named:
        named["logprobs"] = True
    async with huggingface_hub.AsyncInferenceClient(base_url=url, api_key=SECRET) as client:
        answer = await client.chat_completion(TURNS, model=model, **named)
    choice = answer.choices[0]
    tokens = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return Reported(choice.message.content, choice.finish_reason, tokens, choice.message.reasoning)


CLIENTS: Mapping[str, Call] = {
    "openai": by_openai,
    "anthropic": by_anthropic,
    "gemini": by_google,
    "azure_openai": by_azure_openai,
    "azure_openai v1": by_openai_at_azure,
    "mistral": by_mistral,
    "cohere": by_cohere,
    "huggingface_api": by_huggingface,
}
INTERFACES = {repr(interface): interface for interface in REGISTERED if repr(interface) in CLIENTS}
each = pytest.mark.parametrize("name", CLIENTS)
# Google's client makes a subclass of aiohttp's session when it is first used.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class Aiohttp:DeprecationWarning")


async def both(
    interface: Interface, call: Call, requested: Mapping[str, Any], answer: Behaviour
) -> tuple[Completion, Reported, Requested, Requested]:
    """The same call by us and by the client: what each made of the answer, and what each sent."""
    requested = dict(requested)
    model = requested.pop("model", interface.model)
    named = {name: value for name, value in requested.items() if name not in ("schema", "top_logprobs")}
    request = Request(
        messages=HELLO,
        sampling=SamplingParameters.of(named),
        schema=LEVELS if "schema" in requested else None,
        top_logprobs=requested.get("top_logprobs"),
    )
    nowhere = Path("/nonexistent")
    async with interface.serve(answer, answer) as host:
        keys = Keys.load(None, env=interface.env, cwd=nowhere, home=nowhere)
        async with Models([interface.spec(host.url, model=model)], keys) as models:
            ours = await models["m"].complete(request)
        theirs = await call(host.url, model, requested)
        sent, witnessed = host.requested
    return ours, theirs, sent, witnessed


SAMPLED = {"anthropic": {"temperature": 0.3, "top_k": 5, "max_tokens": 321, "stop": ["END", "###"]}}
MORE: Mapping[str, list[Mapping[str, Any]]] = {
    "openai": [{"top_logprobs": 5}, {"reasoning_effort": "low", "max_tokens": 512, "model": "o4-mini"}],
    "anthropic": [
        {"thinking_budget": 2048, "max_tokens": 4096},
        {"reasoning_effort": "low", "model": "claude-sonnet-4-6"},
    ],
    "gemini": [
        {"top_k": 40},
        {"presencePenalty": 0.5, "top_logprobs": 5, "model": "gemini-2.0-flash"},
        {"thinking_budget": 2048, "model": "gemini-2.5-pro"},
        {"reasoning_effort": "low", "model": "gemini-3-pro-preview"},
    ],
    "azure_openai": [{"top_logprobs": 5}, {"reasoning_effort": "low"}],
    "azure_openai v1": [{"top_logprobs": 5}],
    "mistral": [{"top_logprobs": 5}, {"reasoning_effort": "high"}, {"top_k": 5}],
    "cohere": [{"top_logprobs": 1}, {"thinking_budget": 500}, {"top_k": 5}],
    "huggingface_api": [{"top_logprobs": 5}],
}
WITNESSED = [
    pytest.param(name, requested, id=f"{name}-{title}")
    for name in CLIENTS
    for title, requested in [
        ("plain", {}),
        ("sampling", SAMPLED.get(name, SAMPLING)),
        ("schema", {"schema": True}),
        *((" ".join(more), more) for more in MORE[name]),
    ]
    if (name, title) != ("huggingface_api", "schema")
]


@pytest.mark.process
@pytest.mark.parametrize(("name", "requested"), WITNESSED)
async def test_the_body_is_what_the_official_client_sends_for_the_same_call(
    name: str, requested: Mapping[str, Any]
) -> None:
    interface = INTERFACES[name]
    _, _, sent, witnessed = await both(interface, CLIENTS[name], requested, interface.says(Said()))
    assert _compared(sent.body, name) == _compared(witnessed.body, name)
    assert sent.path == witnessed.path
    header = {"gemini": "x-goog-api-key"}.get(
        name, "api-key" if name.startswith("azure") else "Authorization"
    )
    if (
        name != "anthropic"
    ):  # whose client shows the key as a bearer token, we as `x-api-key`: either is taken
        assert sent.headers[header] == witnessed.headers[header]
    assert sent.headers["Content-Type"] == witnessed.headers["Content-Type"]


def _compared(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    if name != "gemini":
        return {field: value for field, value in body.items() if field not in IGNORED.get(name, ())}
    # Its client says a role where the reference has none, says an empty config, and spells in snake case.
    body = in_camel_case(body)
    body["systemInstruction"].pop("role", None)
    return {field: value for field, value in body.items() if (field, value) != ("generationConfig", {})}


@each
@pytest.mark.parametrize("said", [Said("Servus"), Said("Once", ends="length"), Said("4", reasoning="2 + 2")])
async def test_the_official_client_reads_the_fakes_answers_as_we_do(name: str, said: Said) -> None:
    interface = INTERFACES[name]
    ours, theirs, _, _ = await both(interface, CLIENTS[name], {}, interface.says(said))
    assert (ours.text, ours.reasoning) == (theirs.text, theirs.reasoning) == (said.text, said.reasoning)
    counts = ours.usage.input_tokens, ours.usage.output_tokens
    assert counts == theirs.tokens == (said.usage.input_tokens, said.usage.output_tokens)
    assert (ours.finish_reason == "length") == (theirs.finish in ("length", "max_tokens", "MAX_TOKENS"))


@pytest.mark.process
@each
@pytest.mark.parametrize("status", [400, 403, 404])
async def test_the_official_client_reads_the_fakes_errors_as_we_do(name: str, status: int) -> None:
    interface = INTERFACES[name]
    fault = interface.fails(status, "no, thank you")
    with pytest.raises(ModelError, match="no, thank you"):
        await both(interface, CLIENTS[name], {}, fault)
    async with interface.serve(fault) as host:
        with pytest.raises(Exception, match="no, thank you"):
            await CLIENTS[name](host.url, interface.model, {})
