"""A host that speaks Anthropic's Messages API: strict about requests, model by model, and faulty on demand.

Written from the reference, the pages on thinking, effort, structured outputs and prompt caching, and the
migration guides, as of November 2026; the words of the errors are those that users report.

It keeps prompts as Anthropic's cache does, for what a request marks: up to the mark, from the answer on that
wrote it. A token is four characters of text here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from fakes.scripted import Broken, Raw, Refusal, ScriptedHost, serving

VERSIONS = ("2023-06-01", "2026-10-21")

_FOUR = (
    *("claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2025"),
    *("claude-sonnet-4-0", "claude-sonnet-4-2025"),
)
_FOUR_FIVE = ("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5")
_FOUR_SIX = ("claude-opus-4-6", "claude-sonnet-4-6")
_SAMPLED = ("claude-3", *_FOUR, *_FOUR_FIVE, *_FOUR_SIX)
"""The last models that take temperature, top_p and top_k."""
_NOT_BOTH = ("claude-opus-4-1", *_FOUR_FIVE, *_FOUR_SIX)
_EXTENDED_ONLY = ("claude-3-7", *_FOUR, *_FOUR_FIVE)
_BOTH_WAYS = (*_FOUR_SIX, "claude-mythos-preview")
_NEVER_OFF = ("claude-fable", "claude-mythos", "claude-opus-5-5")
_NO_THINKING = ("claude-3-5", "claude-3-haiku", "claude-3-opus")
_NO_EFFORT = ("claude-3", *_FOUR, "claude-sonnet-4-5", "claude-haiku-4-5")
_NO_SCHEMA = ("claude-3", *_FOUR)
_PREFILLED = ("claude-3", *_FOUR, *_FOUR_FIVE)
_NOT_FORCED = ("claude-opus-5-5", "claude-fable", "claude-mythos")

_FLOORS = {
    4096: ("claude-opus-4-5", "claude-opus-4-6", "claude-haiku-4-5"),
    2048: ("claude-opus-4-7", "claude-3-haiku", "claude-3-5-haiku"),
    512: ("claude-opus-5", "claude-fable-5", "claude-mythos-5"),
}

_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class _Cache(Struct, forbid_unknown_fields=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class _Text(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str
    cache_control: _Cache | None = None
    citations: list[dict[str, Any]] | None = None


class _Message(Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[_Text], Meta(min_length=1)]


class _Thinking(Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class _Format(Struct, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class _Output(Struct, forbid_unknown_fields=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class _Tool(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: _Cache | None = None


class _Choice(Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Metadata(Struct, forbid_unknown_fields=True):
    user_id: str | None = None


class _MessagesRequest(Struct, forbid_unknown_fields=True):
    """The fields of the reference, of the types it gives."""

    model: str
    max_tokens: Annotated[int, Meta(ge=1)]
    messages: Annotated[list[_Message], Meta(min_length=1)]
    system: str | list[_Text] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: _Share | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    metadata: _Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: _Cache | None = None


def misfit_of(body: Mapping[str, Any], version: str) -> str | None:
    """The message of the 400 that a request's body is answered with, or None."""
    try:
        requested = msgspec.convert(body, _MessagesRequest)
    except msgspec.ValidationError as error:
        reason = str(error)
        if "unknown field" in reason:
            return f"{reason.split('`')[1]}: Extra inputs are not permitted"
        return f"Invalid request: {reason}"
    rules = (_of_messages, _of_drawing, _of_thinking, _of_output, _of_tools)
    if version != VERSIONS[0] and (name := next(iter(_drawn(requested)), None)) is not None:
        return f"{name}: Extra inputs are not permitted"
    return next((misfit for rule in rules if (misfit := rule(requested)) is not None), None)


def cache_floor(model: str) -> int:
    """The least number of tokens in a prefix that the cache keeps; a shorter one is priced as any other."""
    for tokens, models in _FLOORS.items():
        if model.startswith(models):
            return tokens
    return 1024


def passages(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The text of a request in its order, each with whether the cache is to keep all up to its end."""
    system = body.get("system", "")
    for content in (system, *(message["content"] for message in body["messages"])):
        for block in [{"text": content}] if isinstance(content, str) else content:
            yield block["text"], "cache_control" in block


def _drawn(requested: _MessagesRequest) -> dict[str, float]:
    named = {"temperature": requested.temperature, "top_p": requested.top_p, "top_k": requested.top_k}
    return {name: value for name, value in named.items() if value is not None}


def _of_messages(requested: _MessagesRequest) -> str | None:
    if requested.messages[0].role != "user":
        return 'messages: first message must use the "user" role'
    marks = 0
    contents = [message.content for message in requested.messages]
    for content in (*contents, *([requested.system] if requested.system is not None else [])):
        for block in [_Text("text", content)] if isinstance(content, str) else content:
            marks += block.cache_control is not None
            if not block.text.strip():
                return "messages: text content blocks must contain non-whitespace text"
    if marks > 4:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    if any(message.role == "system" for message in requested.messages):
        return "messages: role 'system' is not supported on this model"
    last = requested.messages[-1]
    if last.role == "assistant":
        if not requested.model.startswith(_PREFILLED):
            return "This model does not support assistant message prefill."
        text = last.content if isinstance(last.content, str) else last.content[-1].text
        if text != text.rstrip():
            return "messages: final assistant content cannot end with trailing whitespace"
    if any(not text.strip() for text in requested.stop_sequences or ()):
        return "stop_sequences: each stop sequence must contain non-whitespace"
    return None


def _of_drawing(requested: _MessagesRequest) -> str | None:
    drawn = _drawn(requested)
    if drawn and not requested.model.startswith(_SAMPLED):
        return f"`{next(iter(drawn))}` is deprecated for this model."
    if {"temperature", "top_p"} <= drawn.keys() and requested.model.startswith(_NOT_BOTH):
        return "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    if requested.thinking is not None and requested.thinking.type in ("enabled", "adaptive"):
        if drawn.get("temperature", 1) != 1:
            return "`temperature` may only be set to 1 when thinking is enabled."
        if "top_k" in drawn:
            return "`top_k` must be unset when thinking is enabled."
        if drawn.get("top_p", 1) < 0.95:
            return "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled."
    return None


def _of_thinking(requested: _MessagesRequest) -> str | None:
    thinking, model = requested.thinking, requested.model
    if thinking is None:
        return None
    untaken = f'"thinking.type.{thinking.type}" is not supported for this model.'
    match thinking.type:
        case "enabled":
            adaptive_only = not model.startswith((*_EXTENDED_ONLY, *_BOTH_WAYS))
            if adaptive_only or model.startswith(_NO_THINKING):
                return untaken
            if thinking.budget_tokens is None or thinking.budget_tokens < 1024:
                return "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            if thinking.budget_tokens >= requested.max_tokens:
                return "`max_tokens` must be greater than `thinking.budget_tokens`."
            return None
        case "adaptive":
            return untaken if model.startswith((*_EXTENDED_ONLY, *_NO_THINKING)) else None
        case "disabled":
            off = not model.startswith((*_NEVER_OFF, "claude-sonnet-5-5"))
            return None if off else untaken
        case "between_tools":
            return None if model.startswith("claude-sonnet-5-5") else untaken


def _of_output(requested: _MessagesRequest) -> str | None:
    output = requested.output_config
    if output is None:
        return None
    if output.effort is not None and requested.model.startswith(_NO_EFFORT):
        return "This model does not support the effort parameter."
    if output.format is None:
        return None
    if requested.model.startswith(_NO_SCHEMA):
        return "output_config.format: this model does not support structured outputs."
    if not _is_closed(output.format.schema):
        return (
            "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly "
            "set to false"
        )
    return None


def _is_closed(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    return all(map(_is_closed, schema.values()))


def _of_tools(requested: _MessagesRequest) -> str | None:
    for tool in requested.tools or ():
        if tool.input_schema.get("type") != "object":
            return "tools.0.custom.input_schema.type: Field required"
    choice = requested.tool_choice
    if choice is None:
        return None
    if not requested.tools:
        return "tool_choice may only be specified while providing tools."
    if choice.type in ("any", "tool"):
        if requested.thinking is not None and requested.thinking.type in ("enabled", "adaptive"):
            return "Thinking may not be enabled when tool_choice forces tool use."
        if requested.model.startswith(_NOT_FORCED):
            return "tool_choice forces tool use is not supported on this model."
    if choice.type == "tool" and choice.name not in {tool.name for tool in requested.tools}:
        return f"Tool '{choice.name}' not found in provided tools"
    return None


CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Spoken:
    """A good answer. ``usage`` is laid over the token counts, ``body`` over the whole."""

    text: str = "ok"
    stop_reason: str = "end_turn"
    thinking: tuple[str, ...] = ()
    redacted: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass(frozen=True)
class Error:
    """An error in Anthropic's shape."""

    status: int
    message: str = "something went wrong"
    kind: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Behaviour: TypeAlias = Spoken | Error | Raw | Broken

_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass
class AnthropicServer(ScriptedHost):
    """A running fake; ``keys`` and ``models`` are those that are known (None: any). Requests are answered by
    the script first, then by ``reply``."""

    keys: frozenset[str] | None = None
    models: tuple[str, ...] | None = None
    reply: Callable[[dict[str, Any]], Behaviour] = lambda _: Spoken()
    pages: list[str] = field(default_factory=list)
    _kept: set[str] = field(default_factory=set)

    usual: ClassVar[Behaviour] = Spoken()

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/messages", self.handle), web.get("/v1/models", self.list_models)]

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        return self.reply(body)

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        if (why := self.denial(request)) or (
            why := self.refusal_of(body, request.headers["anthropic-version"])
        ):
            raise Refusal(why)

    def no_json(self) -> Behaviour:
        return Error(400, "The request body is not valid JSON.")

    async def _behave(
        self, request: web.Request, behaviour: Any, body: Mapping[str, Any]
    ) -> web.StreamResponse:
        if not isinstance(behaviour, Spoken):
            return await super()._behave(request, behaviour, body)
        message = self.message(dict(body), behaviour)  # by what the cache held when it was asked
        await asyncio.sleep(behaviour.delay_s)
        self.keep(dict(body))
        return web.json_response(message, headers=behaviour.headers)

    def behave(self, behaviour: Any, body: dict[str, Any]) -> web.Response:
        if isinstance(behaviour, Error):
            return error_answer(behaviour)
        return web.json_response(self.message(body, behaviour), headers=behaviour.headers)

    async def list_models(self, request: web.Request) -> web.Response:
        """Two models a page, or as many as are asked for: the real default is 20."""
        if (refusal := self.denial(request)) is not None:
            return error_answer(refusal)
        self.pages.append(request.path_qs)
        known = list(self.models or ())
        limit, after = int(request.query.get("limit", "20")), request.query.get("after_id")
        if not 1 <= limit <= 1000 or set(request.query) - {"limit", "after_id", "before_id", "lifecycle"}:
            return error_answer(Error(400, "limit: Input should be less than or equal to 1000"))
        start = known.index(after) + 1 if after is not None else 0
        shown = known[start : start + min(limit, 2)]
        data = [
            {
                "type": "model",
                "id": model,
                "display_name": model.title(),
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": 200_000,
                "max_tokens": 64_000,
            }
            for model in shown
        ]
        first, last = (shown[0], shown[-1]) if shown else (None, None)
        more = start + len(shown) < len(known)
        return web.json_response({"data": data, "has_more": more, "first_id": first, "last_id": last})

    def refusal_of(self, body: dict[str, Any], version: str) -> Error | None:
        """Why a request is not answered: its fields, its model."""
        misfit = misfit_of(body, version)
        if misfit is not None:
            return Error(400, misfit)
        if self.models is not None and body["model"] not in self.models:
            return Error(404, f"model: {body['model']}")
        return None

    def denial(self, request: web.Request) -> Error | None:
        """Why nothing is told here: the key, the version."""
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        key = request.headers.get("x-api-key", bearer)
        if self.keys is not None and key not in self.keys:
            return Error(401, f"invalid x-api-key {key}")
        version = request.headers.get("anthropic-version")
        if version is None:
            return Error(400, "anthropic-version: header is required")
        if version not in VERSIONS:
            return Error(400, f'anthropic-version: "{version}" is not a valid version')
        return None

    def keep(self, body: dict[str, Any]) -> None:
        """Have the cache hold what a request that was answered marks."""
        if marked := _marked(body):
            self._kept.add(marked)

    def message(self, body: dict[str, Any], spoken: Spoken, tier: str = "standard") -> dict[str, Any]:
        """The answer to a request, as JSON."""
        whole, marked = sum(len(text) for text, _ in passages(body)), _marked(body)
        known = max((len(kept) for kept in self._kept if marked.startswith(kept)), default=0)
        usage = {
            "input_tokens": (whole - len(marked)) // CHARS_PER_TOKEN,
            "cache_creation_input_tokens": (len(marked) - known) // CHARS_PER_TOKEN,
            "cache_read_input_tokens": known // CHARS_PER_TOKEN,
            "output_tokens": len(spoken.text) // CHARS_PER_TOKEN + 1,
            "service_tier": tier,
        }
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": list(_blocks_of(body, spoken)),
            "stop_reason": spoken.stop_reason,
            "stop_sequence": None,
            "usage": {**usage, **spoken.usage},
            **spoken.body,
        }
        if body.get("tool_choice", {}).get("type") == "tool" and spoken.stop_reason == "end_turn":
            message["stop_reason"] = "tool_use"
        return message


def _marked(body: dict[str, Any]) -> str:
    """The beginning of a request that the cache is to keep; nothing where it is too short for that."""
    marked, whole = "", ""
    for text, mark in passages(body):
        whole += text
        marked = whole if mark else marked
    return marked if len(marked) // CHARS_PER_TOKEN >= cache_floor(body["model"]) else ""


def _blocks_of(body: dict[str, Any], spoken: Spoken) -> Iterable[dict[str, Any]]:
    for thought in spoken.thinking:
        yield {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}
    if spoken.redacted:
        yield {"type": "redacted_thinking", "data": "b3BhcXVl"}
    choice = body.get("tool_choice", {})
    if choice.get("type") == "tool":
        arguments = msgspec.json.decode(spoken.text)
        yield {"type": "tool_use", "id": "toolu_1", "name": choice["name"], "input": arguments}
    elif spoken.text:
        yield {"type": "text", "text": spoken.text}


def error_answer(error: Error) -> web.Response:
    return web.json_response(error_body(error), status=error.status, headers=error.headers)


def error_body(error: Error) -> dict[str, Any]:
    """An error as JSON."""
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    problem: dict[str, Any] = {
        "type": error.kind or _KINDS.get(error.status, usual),
        "message": error.message,
    }
    if error.code is not None:
        problem["details"] = {"error_code": error.code}
    return {"type": "error", "error": problem, "request_id": "req_1"}


@asynccontextmanager
async def anthropic_fake(
    *script: Behaviour,
    keys: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    always: Behaviour | None = None,
) -> AsyncIterator[AnthropicServer]:
    """Serve on loopback, with the fields of `AnthropicServer`. What is asked beyond the script is answered
    ``always`` so."""
    server = AnthropicServer(
        deque(script),
        keys=None if keys is None else frozenset(keys),
        models=None if models is None else tuple(models),
        reply=lambda _: always or Spoken(),
    )
    async with serving(server):
        yield server
