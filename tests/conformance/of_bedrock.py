"""Amazon Bedrock's Converse, with IAM credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec
from conformance.interface import SECRET, Behaviour, Heard, Interface, Said
from fakes.bedrock import Answer, BedrockHost, Fault, fake_bedrock
from fakes.openai_chat import Requested

ACCESS_KEY = "AKIAMADEUP0EXAMPLE07"
_NAMES = {"temperature": "temperature", "topP": "top_p", "maxTokens": "max_tokens", "stopSequences": "stop"}
_ENDINGS = {"stop": "end_turn", "length": "max_tokens", "stop sequence": "stop_sequence"}


@dataclass(frozen=True, kw_only=True, repr=False)
class BedrockInterface(Interface):
    """The secret half of the pair of keys is `SECRET`, which no request shows."""

    name: str = "bedrock"
    model: str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    env: Mapping[str, str] = field(
        default_factory=lambda: {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
    )
    refuses: frozenset[str] = frozenset({"seed"})
    tells: frozenset[str] = frozenset({"cached_tokens", "cache_write_tokens"})
    models: Mapping[str, str] = field(
        default_factory=lambda: {"reasoning_effort": "global.anthropic.claude-opus-4-6-v1"}
    )
    schema_refusals: Sequence[str] = (
        "This model doesn't support the outputConfig.textFormat field. Remove it and try again.",
        "This model doesn't support tool use.",
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set",
    )
    field_refusals: Mapping[str, str] = field(
        default_factory=lambda: {
            "This model doesn't support the stopSequences field. Remove stopSequences and try again.": "stop",
            "The model returned the following errors: temperature is deprecated for it.": "temperature",
            "Malformed input request: #: extraneous key [top_k] is not permitted, please reformat": "top_k",
            "Malformed input request: #/thinking/budget_tokens: 1 is not greater": "thinking_budget",
        }
    )

    def serve(self, *script: Behaviour) -> AbstractAsyncContextManager[BedrockHost]:
        return fake_bedrock(*script, keys={ACCESS_KEY: SECRET})

    def heard(self, requested: Requested) -> Heard:
        body = requested.body
        config = body.get("inferenceConfig", {})
        sampling = {ours: config[theirs] for theirs, ours in _NAMES.items() if theirs in config}
        extra, output = body.get("additionalModelRequestFields", {}), body.get("outputConfig", {})
        if "top_k" in extra:
            sampling["top_k"] = extra["top_k"]
        if "budget_tokens" in extra.get("thinking", {}):
            sampling["thinking_budget"] = extra["thinking"]["budget_tokens"]
        if "effort" in output:
            sampling["reasoning_effort"] = output["effort"]
        form = output.get("textFormat")
        return Heard(
            model=unquote(requested.path.split("/")[2]),
            turns=[(turn["role"], _text(turn["content"])) for turn in body["messages"]],
            system=_text(body["system"]) if "system" in body else None,
            sampling=sampling,
            schema=msgspec.json.decode(form["structure"]["jsonSchema"]["schema"]) if form else None,
        )

    def says(self, said: Said) -> Behaviour:
        read, write = said.usage.cached_tokens, said.usage.cache_write_tokens
        cached = None if read is msgspec.UNSET else read
        written = None if write is msgspec.UNSET else write
        fresh = said.usage.input_tokens - (cached or 0) - (written or 0)
        return Answer(
            said.text,
            stop_reason=_ENDINGS[said.ends],
            usage=(fresh, said.usage.output_tokens),
            reasoning=said.reasoning,
            cache_read=cached,
            cache_write=written,
        )

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Fault(status, message, headers=headers or {})

    def filters(self) -> Sequence[Behaviour]:
        return [Answer("Sorry.", stop_reason="guardrail_intervened"), Answer(stop_reason="content_filtered")]


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join(block["text"] for block in blocks)
