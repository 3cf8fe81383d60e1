"""A host that speaks Google's generateContent: strict about requests, and faulty on demand.

What it accepts and answers follows the Gemini API's reference (v1beta, whose fields v1 has by now too).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from fakes.scripted import Behaviour, Refusal, ScriptedHost, serving

_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Fixed(Struct, rename="camel", forbid_unknown_fields=True):
    """Fields in camel case, as the reference spells them."""


class _PartSent(_Fixed):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: dict[str, Any] | None = None
    function_call: dict[str, Any] | None = None
    function_response: dict[str, Any] | None = None


class _ContentSent(_Fixed):
    parts: Annotated[list[_PartSent], Meta(min_length=1)]
    role: str | None = None


class _ThinkingSent(_Fixed):
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
    thinking_config: _ThinkingSent | None = None
    media_resolution: str | None = None
    speech_config: dict[str, Any] | None = None
    enable_enhanced_civic_answers: bool | None = None


class _Request(_Fixed):
    contents: list[_ContentSent] = []
    system_instruction: _ContentSent | None = None
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
        requested = msgspec.convert(in_camel_case(body), _Request)
    except msgspec.ValidationError as error:
        unknown = re.search(r"unknown field `(\w+)`(?: - at `\$\.?([^`]*)`)?", str(error))
        if unknown is not None:
            at = f" at '{unknown[2]}'" if unknown[2] else ""
            return f'Invalid JSON payload received. Unknown name "{unknown[1]}"{at}: Cannot find field.'
        return f"Invalid value: {error}"
    return next(_misfits(requested, model), None)


def _misfits(requested: _Request, model: str) -> Iterator[str]:
    if not requested.contents:
        yield "* GenerateContentRequest.contents: contents is not specified\n"
    if any(content.role not in ("user", "model", None) for content in requested.contents):
        yield "Please use a valid role: user, model."
    for content in requested.contents:
        if any(part.text is None and part.inline_data is None for part in content.parts):
            yield "required oneof field 'data' must have one initialized field"
    if requested.system_instruction is not None and model.startswith("gemma-3"):
        yield f"Developer instruction is not enabled for models/{model}"
    if requested.generation_config is not None:
        yield from _misfits_of_config(requested.generation_config, model)


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


def _misfits_of_thinking(thinking: _ThinkingSent, model: str) -> Iterator[str]:
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


STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True)
class Answer:
    """A good answer. ``usage`` is prompt and answer; ``thought_tokens`` and ``cached`` are told where set,
    and ``logprobs`` are pairs of a token and its log-probability."""

    text: str | None = "ok"
    finish_reason: str = "STOP"
    usage: tuple[int, int] = (11, 3)
    thoughts: str | None = None
    thought_tokens: int | None = None
    cached: int | None = None
    logprobs: Sequence[tuple[str, float]] = ()
    candidate: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocked:
    """A prompt that is not answered."""

    reason: str = "SAFETY"


@dataclass(frozen=True)
class Fault:
    """An error in Google's shape; ``details`` are those of google.rpc."""

    code: int
    message: str = "something went wrong"
    status: str | None = None
    details: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


def info(reason: str) -> Mapping[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }


def retry_in(delay: str) -> Mapping[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(*ids: str, value: str = "50") -> Mapping[str, Any]:
    metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
    dimensions = {"location": "global", "model": "gemini-2.5-flash"}
    named = [
        {"quotaMetric": metric, "quotaId": name, "quotaDimensions": dimensions, "quotaValue": value}
        for name in ids
    ]
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": named}


NO_KEY = Fault(403, "Method doesn't allow unregistered callers (callers without established identity).")
WRONG_KEY = Fault(400, "API key not valid. Please pass a valid API key.", details=[info("API_KEY_INVALID")])


@dataclass
class GeminiHost(ScriptedHost):
    """The Gemini API; ``keys`` and ``models`` are those that are known (None: any). ``listed`` are the models
    of its list, two a page."""

    keys: frozenset[str] | None = None
    models: frozenset[str] | None = None
    listed: Sequence[Mapping[str, Any]] = ()

    usual: ClassVar[Behaviour] = Answer()
    paths: ClassVar[str] = r"/v1(beta)?/models/(?P<model>[\w.-]+):generateContent"

    def routes(self) -> list[web.RouteDef]:
        return [*super().routes(), web.get("/v1beta/models", self.list_models)]

    def no_json(self) -> Behaviour:
        return Fault(400, "Invalid JSON payload received. Unexpected token.")

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        found = re.fullmatch(self.paths, unquote(request.raw_path))
        if found is None:
            raise Refusal(Fault(404, "The requested URL was not found on this server."))
        self.check_caller(request)
        model = found["model"]
        if self.models is not None and model not in self.models:
            raise Refusal(
                Fault(404, f"models/{model} is not found for API version v1beta, or is not supported.")
            )
        misfit = misfit_of(body, model)
        if misfit is not None:
            raise Refusal(Fault(400, misfit))

    def check_caller(self, request: web.Request) -> None:
        """Raise the Refusal of whoever may not ask."""
        key = request.headers.get("x-goog-api-key")
        if key is None:
            raise Refusal(NO_KEY)
        if self.keys is not None and key not in self.keys:
            raise Refusal(WRONG_KEY)

    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        match behaviour:
            case Answer():
                return web.json_response(_answer(behaviour))
            case Blocked():
                feedback = {"blockReason": behaviour.reason, "safetyRatings": []}
                usage = {"promptTokenCount": 7, "totalTokenCount": 7}
                return web.json_response({"promptFeedback": feedback, "usageMetadata": usage})
            case Fault():
                return _error(behaviour)
            case _:
                raise AssertionError(f"no behaviour of this host: {behaviour!r}")

    async def list_models(self, request: web.Request) -> web.Response:
        try:
            self.check_caller(request)
        except Refusal as refusal:
            return _error(refusal.args[0])
        start = int(request.query.get("pageToken", 0))
        page: dict[str, Any] = {"models": self.listed[start : start + 2]}
        if start + 2 < len(self.listed):
            page["nextPageToken"] = str(start + 2)
        return web.json_response(page)


def _answer(answer: Answer) -> dict[str, Any]:
    prompt, made = answer.usage
    parts: list[dict[str, Any]] = []
    if answer.thoughts is not None:
        parts.append({"text": answer.thoughts, "thought": True})
    if answer.text is not None:
        parts.append({"text": answer.text})
    candidate: dict[str, Any] = {
        "content": {"parts": parts, "role": "model"},
        "finishReason": answer.finish_reason,
        "index": 0,
    }
    if answer.logprobs:
        chosen = [{"token": token, "tokenId": 7, "logProbability": value} for token, value in answer.logprobs]
        candidate["logprobsResult"] = {
            "chosenCandidates": chosen,
            "topCandidates": [{"candidates": [token]} for token in chosen],
        }
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": made,
        "totalTokenCount": prompt + made + (answer.thought_tokens or 0),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    if answer.thought_tokens is not None:
        usage["thoughtsTokenCount"] = answer.thought_tokens
    if answer.cached is not None:
        usage["cachedContentTokenCount"] = answer.cached
    return {
        "candidates": [{**candidate, **answer.candidate}],
        "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "bWFkZSB1cA",
    }


def _error(fault: Fault) -> web.Response:
    status = fault.status or STATUSES.get(fault.code, "UNKNOWN")
    error: dict[str, Any] = {"code": fault.code, "message": fault.message, "status": status}
    if fault.details:
        error["details"] = list(fault.details)
    return web.json_response({"error": error}, status=fault.code, headers=fault.headers)


@asynccontextmanager
async def fake(
    *script: Behaviour,
    keys: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    listed: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[GeminiHost]:
    """Serve on loopback; ``url`` is the host's, without a version."""
    known = None if keys is None else frozenset(keys)
    host = GeminiHost(
        script=deque(script), keys=known, models=None if models is None else frozenset(models), listed=listed
    )
    async with serving(host):
        yield host
