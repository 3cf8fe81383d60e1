"""A host that speaks Cohere's chat, version 2: strict about requests, and faulty on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from fakes.scripted import Behaviour, Refusal, ScriptedHost, serving


@dataclass(frozen=True)
class Replied:
    """A good answer; ``body`` is laid over the whole, ``usage`` over the counts."""

    text: str = "ok"
    finish_reason: str = "COMPLETE"
    thinking: str | None = None
    usage: tuple[int, int] = (11, 3)
    cached: int | None = None
    logprobs: Sequence[tuple[str, float]] = ()
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trouble:
    """An error in Cohere's shape."""

    status: int
    message: str = "something went wrong"
    headers: Mapping[str, str] = field(default_factory=dict)


class _Turn(Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]


class _Form(Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object"]
    json_schema: dict[str, Any] | None = None


class _Thinking(Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "disabled"]
    token_budget: Annotated[int, Meta(ge=1)] | None = None


class _ChatV2(Struct, forbid_unknown_fields=True):
    """The fields of Cohere's reference, of the types and limits it gives."""

    model: str
    messages: Annotated[list[_Turn], Meta(min_length=1)]
    stream: bool
    temperature: Annotated[float, Meta(ge=0)] | None = None
    p: Annotated[float, Meta(ge=0.01, le=0.99)] | None = None
    k: Annotated[int, Meta(ge=0, le=500)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=5)] | None = None
    seed: Annotated[int, Meta(ge=0)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=0, le=1)] | None = None
    response_format: _Form | None = None
    thinking: _Thinking | None = None
    logprobs: bool | None = None
    safety_mode: Literal["CONTEXTUAL", "STRICT", "OFF"] | None = None
    documents: list[Any] | None = None
    citation_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    strict_tools: bool | None = None
    priority: int | None = None


@dataclass
class CohereHost(ScriptedHost):
    """A running host; ``keys`` are those that it knows."""

    keys: frozenset[str] | None = None

    usual: ClassVar[Behaviour] = Replied()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/models", self._list), *super().routes()]

    async def _list(self, request: web.Request) -> web.Response:
        """Two pages of models, one of them no longer served."""
        assert request.query["endpoint"] == "chat"
        first = {"models": [_model("command-a"), _model("command", old=True)], "next_page_token": "p 2"}
        second = {"models": [_model("command-r7b")], "next_page_token": ""}
        return web.json_response(second if request.query.get("page_token") == "p 2" else first)

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.keys is not None and key not in self.keys:
            raise Refusal(Trouble(401, "invalid api token"))
        if request.path != "/v2/chat":
            raise Refusal(Trouble(404, "404 page not found"))
        try:
            msgspec.convert(body, _ChatV2)
        except msgspec.ValidationError as error:
            raise Refusal(Trouble(400, f"invalid request: {error}")) from error

    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        match behaviour:
            case Replied():
                return web.json_response(_chat(behaviour, body))
            case Trouble():
                error = {"id": "e1", "message": behaviour.message}
                return web.json_response(error, status=behaviour.status, headers=behaviour.headers)
            case _:
                raise TypeError(f"no behaviour of Cohere's: {behaviour!r}")

    def no_json(self) -> Behaviour:
        return Trouble(400, "invalid json syntax")


def _model(name: str, *, old: bool = False) -> dict[str, Any]:
    about = {"endpoints": ["chat"], "context_length": 256_000.0, "is_deprecated": old, "finetuned": False}
    return {"name": name, **about}


def _chat(said: Replied, body: Mapping[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": said.text}]
    if said.thinking is not None:
        content.insert(0, {"type": "thinking", "thinking": said.thinking})
    counts = {"input_tokens": float(said.usage[0]), "output_tokens": float(said.usage[1])}
    usage: dict[str, Any] = {"billed_units": counts, "tokens": {**counts, "input_tokens": 600.0}}
    if said.cached is not None:
        usage["cached_tokens"] = float(said.cached)
    answer: dict[str, Any] = {
        "id": "c1",
        "finish_reason": said.finish_reason,
        "message": {"role": "assistant", "content": content},
        "usage": usage,
    }
    if body.get("logprobs"):
        answer["logprobs"] = [
            {"text": text, "token_ids": [n], "logprobs": [logprob]}
            for n, (text, logprob) in enumerate(said.logprobs)
        ]
    return {**answer, **said.body}


@asynccontextmanager
async def cohere_fake(*script: Behaviour, keys: Iterable[str] | None = None) -> AsyncIterator[CohereHost]:
    host = CohereHost(deque(script), keys=None if keys is None else frozenset(keys))
    async with serving(host):
        yield host
