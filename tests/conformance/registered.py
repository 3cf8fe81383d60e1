"""The interfaces of other dialects than OpenAI's, and all that the suite is run against."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from conformance.interface import SECRET, Behaviour, Heard, Host, Interface, Said
from conformance.of_bedrock import BedrockInterface
from conformance.of_openai import SHAPED
from fakes.anthropic_messages import AnthropicServer, Error, Spoken, anthropic_fake
from fakes.cohere_chat import CohereHost, Replied, Trouble, cohere_fake
from fakes.gemini import Answer, Blocked, Fault, GeminiHost, fake
from fakes.openai_chat import Requested
from fakes.vertex import VertexHost, fake_vertex, key_file

_NAMES_OF_CLAUDE = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
}
_ENDINGS_OF_CLAUDE = {"stop": "end_turn", "length": "max_tokens", "stop sequence": "stop_sequence"}


@dataclass(frozen=True, kw_only=True, repr=False)
class AnthropicInterface(Interface):
    name: str = "anthropic"
    model: str = "claude-haiku-4-5"
    env: Mapping[str, str] = field(default_factory=lambda: {"ANTHROPIC_API_KEY": SECRET})
    refuses: frozenset[str] = frozenset({"seed"})
    tells: frozenset[str] = frozenset({"cached_tokens", "cache_write_tokens", "reasoning_tokens"})
    values: Mapping[str, Any] = field(default_factory=lambda: {"stop": ("END", "###")})
    models: Mapping[str, str] = field(default_factory=lambda: {"reasoning_effort": "claude-sonnet-4-6"})
    schema_refusals: Sequence[str] = (
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set",
    )

    def serve(self, *script: Behaviour) -> AbstractAsyncContextManager[AnthropicServer]:
        return anthropic_fake(*script, keys=[SECRET])

    def heard(self, requested: Requested) -> Heard:
        body = requested.body
        sampling = {_NAMES_OF_CLAUDE[name]: value for name, value in body.items() if name in _NAMES_OF_CLAUDE}
        output = body.get("output_config", {})
        if "effort" in output:
            sampling["reasoning_effort"] = output["effort"]
        if "budget_tokens" in (thinking := body.get("thinking", {})):
            sampling["thinking_budget"] = thinking["budget_tokens"]
        forms = [output["format"]["schema"]] if "format" in output else []
        forms += [tool["input_schema"] for tool in body.get("tools", ())]
        return Heard(
            model=body["model"],
            turns=[(message["role"], message["content"]) for message in body["messages"]],
            system=body.get("system"),
            sampling=sampling,
            schema=forms[0] if forms else None,
            key=requested.headers.get("x-api-key"),
        )

    def says(self, said: Said) -> Behaviour:
        usage = said.usage
        written, read = usage.cache_write_tokens or 0, usage.cached_tokens or 0
        counts: dict[str, Any] = {
            "input_tokens": usage.input_tokens - read - written,
            "output_tokens": usage.output_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens_details": None,
        }
        counts = {name: None if value is msgspec.UNSET else value for name, value in counts.items()}
        if usage.reasoning_tokens is not msgspec.UNSET:
            counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
        thinking = () if said.reasoning is None else (said.reasoning,)
        return Spoken(said.text, _ENDINGS_OF_CLAUDE[said.ends], thinking, usage=counts)

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Error(status, message, headers=headers or {})

    def filters(self) -> Sequence[Behaviour]:
        details = {"type": "refusal", "category": "bio", "explanation": "It may be put to no good use."}
        return [
            Spoken("", "refusal"),
            Spoken("As far as", "refusal", body={"stop_details": details}),
            Error(400, "Output blocked by content filtering policy"),
        ]


_NAMES_OF_COHERE = {
    "temperature": "temperature",
    "p": "top_p",
    "k": "top_k",
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
    "seed": "seed",
}
_ENDINGS_OF_COHERE = {"stop": "COMPLETE", "length": "MAX_TOKENS", "stop sequence": "STOP_SEQUENCE"}


@dataclass(frozen=True, kw_only=True, repr=False)
class CohereInterface(Interface):
    name: str = "cohere"
    model: str = "command-a-03-2025"
    env: Mapping[str, str] = field(default_factory=lambda: {"CO_API_KEY": SECRET})
    tells: frozenset[str] = frozenset({"cached_tokens"})
    values: Mapping[str, Any] = field(default_factory=lambda: {"reasoning_effort": "none"})
    field_refusals: Mapping[str, str] = field(
        default_factory=lambda: {"unknown field: parameter 'min_p' is not a valid field": "min_p"}
    )

    def serve(self, *script: Behaviour) -> AbstractAsyncContextManager[CohereHost]:
        return cohere_fake(*script, keys=[SECRET])

    def heard(self, requested: Requested) -> Heard:
        body = requested.body
        sampling = {_NAMES_OF_COHERE[name]: value for name, value in body.items() if name in _NAMES_OF_COHERE}
        thinking = body.get("thinking", {})
        if thinking.get("type") == "disabled":
            sampling["reasoning_effort"] = "none"
        if "token_budget" in thinking:
            sampling["thinking_budget"] = thinking["token_budget"]
        system = [turn["content"] for turn in body["messages"] if turn["role"] == "system"]
        form = body.get("response_format")
        return Heard(
            model=body["model"],
            turns=[(turn["role"], turn["content"]) for turn in body["messages"] if turn["role"] != "system"],
            system="\n".join(system) if system else None,
            sampling=sampling,
            schema=form["json_schema"] if form is not None else None,
            key=requested.headers.get("Authorization", "").removeprefix("Bearer "),
        )

    def says(self, said: Said) -> Behaviour:
        usage = said.usage
        cached = None if usage.cached_tokens is msgspec.UNSET else usage.cached_tokens
        counts = usage.input_tokens, usage.output_tokens
        return Replied(
            said.text, _ENDINGS_OF_COHERE[said.ends], said.reasoning, counts, cached, said.logprobs
        )

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Trouble(status, message, headers or {})

    def filters(self) -> Sequence[Behaviour]:
        return [Trouble(498, "blocked: a deny-listed token"), Replied("", "ERROR_TOXIC")]


_NAMES = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
_ROLES = {"user": "user", "model": "assistant"}
_ENDINGS = {"stop": "STOP", "length": "MAX_TOKENS", "stop sequence": "STOP"}


@dataclass(frozen=True, kw_only=True, repr=False)
class GeminiInterface(Interface):
    name: str = "gemini"
    model: str = "gemini-2.5-flash"
    env: Mapping[str, str] = field(default_factory=lambda: {"GEMINI_API_KEY": SECRET})
    tells: frozenset[str] = frozenset({"cached_tokens", "reasoning_tokens"})
    logprobs: bool = True
    models: Mapping[str, str] = field(default_factory=lambda: {"reasoning_effort": "gemini-3-flash-preview"})
    schema_refusals: Sequence[str] = (
        "* GenerateContentRequest.generation_config.response_json_schema: too deep.",
    )
    field_refusals: Mapping[str, str] = field(
        default_factory=lambda: {
            "Invalid JSON payload received. Unknown name \"topK\" at 'generation_config'": "top_k",
            "`temperature` is deprecated for this model.": "temperature",
            "The thinking budget (52428) is invalid.": "thinking_budget",
            "Thinking level is not supported for this model.": "reasoning_effort",
            "* GenerateContentRequest.generation_config.stop_sequences: too many.": "stop",
        }
    )

    def serve(self, *script: Behaviour) -> AbstractAsyncContextManager[GeminiHost]:
        return fake(*script, keys=[SECRET])

    def heard(self, requested: Requested) -> Heard:
        config = requested.body.get("generationConfig", {})
        sampling = {ours: config[theirs] for theirs, ours in _NAMES.items() if theirs in config}
        thinking = config.get("thinkingConfig", {})
        if "thinkingBudget" in thinking:
            sampling["thinking_budget"] = thinking["thinkingBudget"]
        if "thinkingLevel" in thinking:
            sampling["reasoning_effort"] = thinking["thinkingLevel"].lower()
        system = requested.body.get("systemInstruction")
        return Heard(
            model=requested.path.rpartition("/")[2].partition(":")[0],
            turns=[(_ROLES[turn["role"]], _text(turn)) for turn in requested.body["contents"]],
            system=_text(system) if system is not None else None,
            sampling=sampling,
            schema=config.get("responseJsonSchema"),
            top_logprobs=config.get("logprobs"),
            key=requested.headers.get("x-goog-api-key"),
        )

    def says(self, said: Said) -> Behaviour:
        usage = said.usage
        thought = None if usage.reasoning_tokens is msgspec.UNSET else usage.reasoning_tokens
        return Answer(
            said.text,
            finish_reason=_ENDINGS[said.ends],
            usage=(usage.input_tokens, usage.output_tokens - (thought or 0)),
            thoughts=said.reasoning,
            thought_tokens=thought,
            cached=None if usage.cached_tokens is msgspec.UNSET else usage.cached_tokens,
            logprobs=said.logprobs,
        )

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Fault(status, message, headers=headers or {})

    def filters(self) -> Sequence[Behaviour]:
        withheld = [Answer(None, finish_reason=why) for why in ("SAFETY", "RECITATION", "SPII", "BLOCKLIST")]
        return [Blocked(), Blocked("PROHIBITED_CONTENT"), *withheld]


@dataclass(frozen=True, kw_only=True, repr=False)
class VertexInterface(GeminiInterface):
    """The first token that is handed out is `SECRET`; each is good for a single request by its own word."""

    name: str = "vertex"
    env: dict[str, str] = field(default_factory=dict)
    renews: bool = True

    @asynccontextmanager
    async def serve(self, *script: Behaviour) -> AsyncIterator[VertexHost]:
        with TemporaryDirectory() as folder:
            async with fake_vertex(*script, lifetime_s=0, first_token=SECRET) as host:
                self.env["GOOGLE_APPLICATION_CREDENTIALS"] = str(key_file(Path(folder), host.token_url))
                yield host

    def heard(self, requested: Requested) -> Heard:
        key = requested.headers["Authorization"].removeprefix("Bearer ")
        return msgspec.structs.replace(super().heard(requested), key=key)

    def expire(self, host: Host) -> None:
        assert isinstance(host, VertexHost)
        host.expire()


def _text(content: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in content["parts"])


REGISTERED: tuple[Interface, ...] = (
    *SHAPED,
    CohereInterface(),
    AnthropicInterface(),
    GeminiInterface(),
    VertexInterface(),
    BedrockInterface(),
)

NOT_ASKED_OVER_HTTP = frozenset({"simulated", "benchmark", "huggingface", "python", "command"})
