"""What OpenAI's reference lets a chat completions request hold, and nothing else."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct


class Misfit(NamedTuple):
    """Why a body is answered with 400."""

    message: str
    code: str | None = None
    param: str | None = None


class _Message(Struct, forbid_unknown_fields=True):
    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class _JsonSchema(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any]
    strict: bool | None = None
    description: str | None = None


class _Format(Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


_Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
_Count: TypeAlias = Annotated[int, Meta(ge=1)]


class _ChatRequest(Struct, forbid_unknown_fields=True):
    """The fields of OpenAI's reference, of the types it gives."""

    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    frequency_penalty: _Penalty | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    max_completion_tokens: _Count | None = None
    max_tokens: _Count | None = None
    metadata: dict[str, str] | None = None
    modalities: list[str] | None = None
    n: _Count | None = None
    parallel_tool_calls: bool | None = None
    prediction: dict[str, Any] | None = None
    presence_penalty: _Penalty | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | None = None
    response_format: _Format | None = None
    safety_identifier: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    user: str | None = None
    verbosity: str | None = None


def misfit_of(body: dict[str, Any]) -> Misfit | None:
    """The first thing that is wrong with a request's body, or None."""
    try:
        requested = msgspec.convert(body, _ChatRequest)
    except msgspec.ValidationError as error:
        return Misfit(f"Invalid request: {error}")
    if requested.top_logprobs is not None and not requested.logprobs:
        return Misfit("top_logprobs needs logprobs to be true.", param="top_logprobs")
    if requested.max_tokens is not None and re.match(r"o\d|gpt-5", requested.model):
        message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return Misfit(message, "unsupported_parameter", "max_tokens")
    return _misfit_of_format(requested)


def _misfit_of_format(requested: _ChatRequest) -> Misfit | None:
    form = requested.response_format
    if form is None:
        return None
    said = " ".join(message.content for message in requested.messages if isinstance(message.content, str))
    if form.type == "json_object" and "json" not in said.lower():
        return Misfit("A message must contain the word 'json' for json_object.", param="messages")
    schema = form.json_schema
    open_ended = schema is not None and schema.schema.get("additionalProperties") is not False
    if schema is not None and schema.strict and open_ended:
        message = f"Invalid schema for response_format '{schema.name}': additionalProperties must be false."
        return Misfit(message, param="response_format")
    return None
