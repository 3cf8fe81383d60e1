"""A host that speaks Anthropic's Messages API: strict about requests, and faulty on demand.

It keeps prompts as Anthropic's cache does, for what a request marks: up to the mark, from the answer on that
wrote it. A token is four characters of text here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import msgspec
from aiohttp import web

from fakes.anthropic_request import VERSIONS, cache_floor, misfit_of, passages
from fakes.scripted import Broken, Raw, Refusal, ScriptedHost, serving

__all__ = ["AnthropicServer", "Behaviour", "Error", "Spoken", "anthropic_fake", "error_answer", "error_body"]

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
            "content": list(_content(body, spoken)),
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


def _content(body: dict[str, Any], spoken: Spoken) -> Iterable[dict[str, Any]]:
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
