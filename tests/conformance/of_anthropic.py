"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from conformance.interface import SECRET, Behaviour, Heard, Interface, Said
from fakes.anthropic_messages import AnthropicServer, Error, Spoken, anthropic_fake
from fakes.openai_chat import Asked

__all__ = ["AnthropicInterface"]

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
}
_ENDINGS = {"stop": "end_turn", "length": "max_tokens", "stop sequence": "stop_sequence"}


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

    def heard(self, asked: Asked) -> Heard:
        body = asked.body
        sampling = {_NAMES[name]: value for name, value in body.items() if name in _NAMES}
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
            key=asked.headers.get("x-api-key"),
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
        return Spoken(said.text, _ENDINGS[said.ends], thinking, usage=counts)

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Error(status, message, headers=headers or {})

    def filters(self) -> Sequence[Behaviour]:
        details = {"type": "refusal", "category": "bio", "explanation": "It may be put to no good use."}
        return [
            Spoken("", "refusal"),
            Spoken("As far as", "refusal", body={"stop_details": details}),
            Error(400, "Output blocked by content filtering policy"),
        ]
