"""Google's generateContent: the Gemini API, and Vertex AI with a service account's tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from conformance.interface import SECRET, Behaviour, Heard, Host, Interface, Said
from fakes.gemini import Answer, Blocked, Fault, GeminiHost, fake
from fakes.openai_chat import Asked
from fakes.vertex import VertexHost, fake_vertex, key_file

__all__ = ["GeminiInterface", "VertexInterface"]

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

    def heard(self, asked: Asked) -> Heard:
        config = asked.body.get("generationConfig", {})
        sampling = {ours: config[theirs] for theirs, ours in _NAMES.items() if theirs in config}
        thinking = config.get("thinkingConfig", {})
        if "thinkingBudget" in thinking:
            sampling["thinking_budget"] = thinking["thinkingBudget"]
        if "thinkingLevel" in thinking:
            sampling["reasoning_effort"] = thinking["thinkingLevel"].lower()
        system = asked.body.get("systemInstruction")
        return Heard(
            model=asked.path.rpartition("/")[2].partition(":")[0],
            turns=[(_ROLES[turn["role"]], _text(turn)) for turn in asked.body["contents"]],
            system=_text(system) if system is not None else None,
            sampling=sampling,
            schema=config.get("responseJsonSchema"),
            top_logprobs=config.get("logprobs"),
            key=asked.headers.get("x-goog-api-key"),
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

    def heard(self, asked: Asked) -> Heard:
        key = asked.headers["Authorization"].removeprefix("Bearer ")
        return msgspec.structs.replace(super().heard(asked), key=key)

    def expire(self, host: Host) -> None:
        assert isinstance(host, VertexHost)
        host.expire()


def _text(content: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in content["parts"])
