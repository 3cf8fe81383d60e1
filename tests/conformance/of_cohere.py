"""Cohere's chat, version 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from conformance.interface import SECRET, Behaviour, Heard, Interface, Said
from fakes.cohere_chat import CohereHost, Replied, Trouble, cohere_fake
from fakes.openai_chat import Asked

__all__ = ["CohereInterface"]

_NAMES = {
    "temperature": "temperature",
    "p": "top_p",
    "k": "top_k",
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
    "seed": "seed",
}
_ENDINGS = {"stop": "COMPLETE", "length": "MAX_TOKENS", "stop sequence": "STOP_SEQUENCE"}


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

    def heard(self, asked: Asked) -> Heard:
        body = asked.body
        sampling = {_NAMES[name]: value for name, value in body.items() if name in _NAMES}
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
            key=asked.headers.get("Authorization", "").removeprefix("Bearer "),
        )

    def says(self, said: Said) -> Behaviour:
        usage = said.usage
        cached = None if usage.cached_tokens is msgspec.UNSET else usage.cached_tokens
        counts = usage.input_tokens, usage.output_tokens
        return Replied(said.text, _ENDINGS[said.ends], said.reasoning, counts, cached, said.logprobs)

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Trouble(status, message, headers or {})

    def filters(self) -> Sequence[Behaviour]:
        return [Trouble(498, "blocked: a deny-listed token"), Replied("", "ERROR_TOXIC")]
