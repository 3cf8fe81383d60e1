"""The providers' own clients, pointed at the fakes that we are tried against: they keep the fakes honest.

For the same call a client sends the body that we send, after what is written in `IGNORED`; and it reads the
fake's answers as we do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cohere
import huggingface_hub
import openai
import pytest
from conformance.interface import SECRET, Behaviour, Interface, Said
from conformance.registered import REGISTERED
from fakes.openai_chat import Asked
from mistralai.client import Mistral

from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, Usage
from coeval.models.keys import Keys
from coeval.models.open import Models

HELLO = (Message("system", "Be brief."), Message("user", "Grüß Gott, in JSON please"))
TURNS: Any = [{"role": message.role, "content": message.content} for message in HELLO]
LEVELS = Schema(
    "scores",
    {
        "type": "object",
        "properties": {"tone": {"type": "string", "enum": ["High", "Low"]}},
        "required": ["tone"],
        "additionalProperties": False,
    },
)
STRICT = {"type": "json_schema", "json_schema": {"name": "scores", "schema": LEVELS.body, "strict": True}}
SAMPLING = {"temperature": 0.3, "top_p": 0.9, "max_tokens": 321, "stop": ["END", "###"], "seed": 7}
AZURE_VERSION = "2025-04-01-preview"

IGNORED: Mapping[str, frozenset[str]] = {
    "azure_openai": frozenset(),
    "azure_openai v1": frozenset(),
    # Whether an answer comes in pieces: it does not, said or not.
    "mistral": frozenset({"stream"}),
    "cohere": frozenset({"stream"}),
    "huggingface_api": frozenset({"stream"}),
}


@dataclass(frozen=True)
class Told:
    """What a client makes of an answer."""

    text: str | None
    finish: str | None
    tokens: tuple[int, int]
    reasoning: str | None = None


Call = Callable[[str, str, Mapping[str, Any]], Awaitable[Told]]
"""One request by a client, to a base URL and a model, with parameters by our names; ``schema`` and
``top_logprobs`` among them."""


async def _openai(client: openai.AsyncOpenAI, model: str, asked: Mapping[str, Any]) -> Told:
    named = dict(asked)
    if named.pop("schema", None) is not None:
        named["response_format"] = STRICT
    if "top_logprobs" in named:
        named["logprobs"] = True
    async with client:
        answer = await client.chat.completions.create(model=model, messages=TURNS, **named)
    choice = answer.choices[0]
    assert answer.usage is not None
    tokens = answer.usage.prompt_tokens, answer.usage.completion_tokens
    thought = getattr(choice.message, "reasoning_content", None)
    return Told(choice.message.content, choice.finish_reason, tokens, thought)


async def by_azure_openai(url: str, model: str, asked: Mapping[str, Any]) -> Told:
    client = openai.AsyncAzureOpenAI(
        azure_endpoint=url, api_key=SECRET, api_version=AZURE_VERSION, max_retries=0
    )
    return await _openai(client, model, asked)


async def by_openai_at_azure(url: str, model: str, asked: Mapping[str, Any]) -> Told:
    """As Azure's guide has it for the newer API, but for the header that shows the key."""
    client = openai.AsyncOpenAI(
        base_url=f"{url}/openai/v1/", api_key=SECRET, default_headers={"api-key": SECRET}, max_retries=0
    )
    return await _openai(client, model, asked)


async def by_mistral(url: str, model: str, asked: Mapping[str, Any]) -> Told:
    named = dict(asked)
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
        return Told(content or None, choice.finish_reason, tokens)
    text = "".join(part.text for part in content if part.type == "text")
    thought = "".join(inner.text for part in content if part.type == "thinking" for inner in part.thinking)
    return Told(text, choice.finish_reason, tokens, thought)


async def by_cohere(url: str, model: str, asked: Mapping[str, Any]) -> Told:
    names = {"top_p": "p", "top_k": "k", "stop": "stop_sequences"}
    named = {names.get(name, name): value for name, value in asked.items()}
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
    return Told(text, answer.finish_reason, tokens, thought or None)


async def by_huggingface(url: str, model: str, asked: Mapping[str, Any]) -> Told:
    """Without a schema: at an address of one's own the client writes one as text-generation-inference did
    before it took OpenAI's form, which is the router's."""
    named = dict(asked)
    if "top_logprobs" in named:
        named["logprobs"] = True
    async with huggingface_hub.AsyncInferenceClient(base_url=url, api_key=SECRET) as client:
        answer = await client.chat_completion(TURNS, model=model, **named)
    choice = answer.choices[0]
    tokens = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return Told(choice.message.content, choice.finish_reason, tokens, choice.message.reasoning)


CLIENTS: Mapping[str, Call] = {
    "azure_openai": by_azure_openai,
    "azure_openai v1": by_openai_at_azure,
    "mistral": by_mistral,
    "cohere": by_cohere,
    "huggingface_api": by_huggingface,
}
INTERFACES = {repr(interface): interface for interface in REGISTERED if repr(interface) in CLIENTS}
each = pytest.mark.parametrize("name", CLIENTS)


async def both(
    interface: Interface, call: Call, asked: Mapping[str, Any], answer: Behaviour
) -> tuple[Completion, Told, Asked, Asked]:
    """The same call by us and by the client: what each made of the answer, and what each sent."""
    named = {name: value for name, value in asked.items() if name not in ("schema", "top_logprobs")}
    request = Request(
        messages=HELLO,
        sampling=SamplingParameters.of(named),
        schema=LEVELS if "schema" in asked else None,
        top_logprobs=asked.get("top_logprobs"),
    )
    nowhere = Path("/nonexistent")
    async with interface.serve(answer, answer) as host:
        keys = Keys.load(None, env=interface.env, cwd=nowhere, home=nowhere)
        async with Models([interface.spec(host.url)], keys) as models:
            ours = await models["m"].complete(request)
        theirs = await call(host.url, interface.model, asked)
        sent, witnessed = host.asked
    return ours, theirs, sent, witnessed


CALLS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "sampling": SAMPLING,
    "schema": {"schema": True},
}
MORE: Mapping[str, list[Mapping[str, Any]]] = {
    "azure_openai": [{"top_logprobs": 5}, {"reasoning_effort": "low"}],
    "azure_openai v1": [{"top_logprobs": 5}],
    "mistral": [{"top_logprobs": 5}, {"reasoning_effort": "high"}, {"top_k": 5}],
    "cohere": [{"top_logprobs": 1}, {"thinking_budget": 500}, {"top_k": 5}],
    "huggingface_api": [{"top_logprobs": 5}],
}
WITNESSED = [
    pytest.param(name, asked, id=f"{name}-{title}")
    for name in CLIENTS
    for title, asked in [*CALLS.items(), *((" ".join(more), more) for more in MORE[name])]
    if (name, title) != ("huggingface_api", "schema")
]


@pytest.mark.parametrize(("name", "asked"), WITNESSED)
async def test_the_body_is_what_the_official_client_sends_for_the_same_call(
    name: str, asked: Mapping[str, Any]
) -> None:
    interface = INTERFACES[name]
    _, _, sent, witnessed = await both(interface, CLIENTS[name], asked, interface.says(Said()))
    assert _compared(sent.body, name) == _compared(witnessed.body, name)
    assert sent.path == witnessed.path
    header = "api-key" if name.startswith("azure") else "Authorization"
    assert sent.headers[header] == witnessed.headers[header]
    assert sent.headers["Content-Type"] == witnessed.headers["Content-Type"]


def _compared(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in body.items() if field not in IGNORED[name]}


@each
@pytest.mark.parametrize("said", [Said("Servus"), Said("Once", ends="length"), Said("4", reasoning="2 + 2")])
async def test_the_official_client_reads_the_fakes_answers_as_we_do(name: str, said: Said) -> None:
    interface = INTERFACES[name]
    ours, theirs, _, _ = await both(interface, CLIENTS[name], {}, interface.says(said))
    assert (ours.text, ours.reasoning) == (theirs.text, theirs.reasoning) == (said.text, said.reasoning)
    assert ours.usage == Usage(*theirs.tokens) == said.usage
    assert (ours.finish_reason == "length") == (theirs.finish in ("length", "MAX_TOKENS"))
