"""What Google's reference lets a generateContent request hold, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

__all__ = ["in_camel_case", "misfit_of"]

_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Fixed(Struct, rename="camel", forbid_unknown_fields=True):
    """Fields in camel case, as the reference spells them."""


class _Part(_Fixed):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: dict[str, Any] | None = None
    function_call: dict[str, Any] | None = None
    function_response: dict[str, Any] | None = None


class _Content(_Fixed):
    parts: Annotated[list[_Part], Meta(min_length=1)]
    role: str | None = None


class _Thinking(_Fixed):
    include_thoughts: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=-1)] | None = None
    thinking_level: Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"] | None = None


class _Config(_Fixed):
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[float, Meta(ge=1)] | None = None
    candidate_count: _Count | None = None
    max_output_tokens: _Count | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=5)] | None = None
    seed: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, lt=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, lt=2)] | None = None
    response_mime_type: Literal["text/plain", "application/json", "text/x.enum"] | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    response_modalities: list[str] | None = None
    response_logprobs: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    thinking_config: _Thinking | None = None
    media_resolution: str | None = None
    speech_config: dict[str, Any] | None = None
    enable_enhanced_civic_answers: bool | None = None


class _Request(_Fixed):
    contents: list[_Content] = []
    system_instruction: _Content | None = None
    generation_config: _Config | None = None
    safety_settings: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_config: dict[str, Any] | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: str | None = None
    store: bool | None = None


_TAKEN_AS_IT_IS = ("labels", "responseJsonSchema", "responseSchema")


def in_camel_case(value: Any) -> Any:
    """A request as the reference spells it: protobuf's JSON takes the names of fields in snake case too."""
    if isinstance(value, list):
        return [in_camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub(r"_([a-z])", lambda found: found[1].upper(), name): item for name, item in value.items()}
    return {name: item if name in _TAKEN_AS_IT_IS else in_camel_case(item) for name, item in named.items()}


def misfit_of(body: dict[str, Any], model: str) -> str | None:
    """The first thing that is wrong with a request for a model, or None."""
    try:
        asked = msgspec.convert(in_camel_case(body), _Request)
    except msgspec.ValidationError as error:
        unknown = re.search(r"unknown field `(\w+)`(?: - at `\$\.?([^`]*)`)?", str(error))
        if unknown is not None:
            at = f" at '{unknown[2]}'" if unknown[2] else ""
            return f'Invalid JSON payload received. Unknown name "{unknown[1]}"{at}: Cannot find field.'
        return f"Invalid value: {error}"
    return next(_misfits(asked, model), None)


def _misfits(asked: _Request, model: str) -> Iterator[str]:
    if not asked.contents:
        yield "* GenerateContentRequest.contents: contents is not specified\n"
    if any(content.role not in ("user", "model", None) for content in asked.contents):
        yield "Please use a valid role: user, model."
    for content in asked.contents:
        if any(part.text is None and part.inline_data is None for part in content.parts):
            yield "required oneof field 'data' must have one initialized field"
    if asked.system_instruction is not None and model.startswith("gemma-3"):
        yield f"Developer instruction is not enabled for models/{model}"
    if asked.generation_config is not None:
        yield from _misfits_of_config(asked.generation_config, model)


def _misfits_of_config(config: _Config, model: str) -> Iterator[str]:
    has_schema = config.response_json_schema is not None or config.response_schema is not None
    if has_schema and config.response_mime_type not in ("application/json", "text/x.enum"):
        yield "Function calling config or response_schema needs response mime type 'application/json'"
    if config.response_json_schema is not None and config.response_schema is not None:
        yield "response_json_schema and response_schema cannot both be set"
    if config.response_mime_type == "application/json" and model.startswith("gemma-3"):
        yield f"JSON mode is not enabled for models/{model}"
    if config.logprobs is not None and not config.response_logprobs:
        yield "Logprobs requires response_logprobs to be true."
    if config.thinking_config is not None:
        yield from _misfits_of_thinking(config.thinking_config, model)


def _misfits_of_thinking(thinking: _Thinking, model: str) -> Iterator[str]:
    budget, level = thinking.thinking_budget, thinking.thinking_level
    if re.match(r"gemini-(1|2\.0)|gemma-3", model):
        yield "Thinking is not enabled for this model."
    if budget is not None and level is not None:
        yield "You can only set only one of thinking budget and thinking level."
    if level is not None and model.startswith("gemini-2"):
        yield "Thinking level is not supported for this model."
    if budget == 0 and re.match(r"gemini-(2\.5-pro|3)", model):
        yield "Budget 0 is invalid. This model only works in thinking mode."
    if budget == 0 and thinking.include_thoughts:
        yield "thinking_config.include_thoughts is only enabled when thinking is enabled."
    longest = 32768 if model.startswith("gemini-2.5-pro") else 24576
    if budget is not None and model.startswith("gemini-2.5") and budget > longest:
        yield f"The thinking budget ({budget}) is invalid."
