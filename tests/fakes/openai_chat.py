"""A host that speaks OpenAI's chat completions: strict about requests, and faulty on demand.

What it accepts and answers follows OpenAI's API reference; ``extra_fields`` are the additions of
another host (vLLM's ``top_k``). Requests are answered by the script first, then by ``reply``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgspec
from aiohttp import web

from fakes.openai_request import misfit_of

__all__ = ["Answer", "Asked", "Broken", "Fault", "Raw", "Server", "completion_of", "fake"]


@dataclass(frozen=True)
class Answer:
    """A good answer; ``message`` is laid over the fields of its message, ``body`` over the whole."""

    text: str | None = "ok"
    finish_reason: str | None = "stop"
    usage: tuple[int, int] = (11, 3)
    message: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass(frozen=True)
class Fault:
    """An error in OpenAI's shape."""

    status: int
    message: str = "something went wrong"
    code: str | None = None
    param: str | None = None
    kind: str = "invalid_request_error"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Any body at all."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


class Broken(Enum):
    RESET = auto()
    """the connection is cut before an answer"""
    TORN = auto()
    """the connection is cut in the middle of the body"""
    HANG = auto()
    """nothing comes until `Server.release`"""


Behaviour: TypeAlias = Answer | Fault | Raw | Broken
Reply: TypeAlias = Callable[[list[dict[str, Any]]], Behaviour]

CONTENT_FILTER = Fault(400, "The prompt was filtered.", code="content_filter", param="prompt")
SPENT = Fault(429, "You have no credit left.", code="insufficient_quota", kind="insufficient_quota")


class Asked(NamedTuple):
    """A request as it arrived; ``body`` is the parsed JSON."""

    headers: Mapping[str, str]
    body: dict[str, Any]
    path: str


@dataclass
class Server:
    """A running fake; ``asked`` holds every request for an answer in order of arrival, refused ones included,
    and ``lists`` counts those for its list of models."""

    url: str
    reply: Reply
    script: deque[Behaviour]
    keys: frozenset[str] | None
    models: frozenset[str] | None
    extra_fields: frozenset[str]
    asked: list[Asked] = field(default_factory=list)
    listed: Sequence[Mapping[str, Any]] | None = None
    lists: int = 0
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.asked]

    def release(self) -> None:
        """Let every request that hangs go on to a good answer."""
        self._released.set()

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come in."""
        while len(self.asked) < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        if (denial := self._denial(request)) is not None:
            return _error(denial)
        if self.listed is None:
            return _error(Fault(404, f"Invalid URL (GET {request.path})"))
        usual = {"object": "model", "created": 1_700_000_000, "owned_by": "system"}
        return web.json_response({"object": "list", "data": [{**usual, **model} for model in self.listed]})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        try:
            body = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError:
            return _error(Fault(400, "We could not parse the JSON body of your request."))
        self.asked.append(Asked(request.headers, body, request.path))
        self._arrival.set()
        refusal = self._refusal(request, body)
        if refusal is not None:
            return _error(refusal)
        behaviour = self.script.popleft() if self.script else self.reply(body["messages"])
        return await self._behave(request, body, behaviour)

    async def _behave(
        self, request: web.Request, body: dict[str, Any], behaviour: Behaviour
    ) -> web.StreamResponse:
        match behaviour:
            case Answer():
                await asyncio.sleep(behaviour.delay_s)
                return web.json_response(completion_of(body, behaviour), headers=behaviour.headers)
            case Fault():
                return _error(behaviour)
            case Raw():
                return web.Response(
                    body=behaviour.body, status=behaviour.status, content_type=behaviour.content_type
                )
            case Broken.RESET:
                return _cut(request)
            case Broken.TORN:
                torn = web.StreamResponse(
                    headers={"Content-Length": "1000", "Content-Type": "application/json"}
                )
                await torn.prepare(request)
                await torn.write(b'{"choices": [')
                _cut(request)
                return torn
            case Broken.HANG:
                await self._released.wait()
                return web.json_response(completion_of(body, Answer()))
            case _:
                assert_never(behaviour)

    def _refusal(self, request: web.Request, body: dict[str, Any]) -> Fault | None:
        """Why this request is not answered: its key, its fields, its model."""
        if (denial := self._denial(request)) is not None:
            return denial
        plain = {name: value for name, value in body.items() if name not in self.extra_fields}
        misfit = misfit_of(plain)
        if misfit is not None:
            return Fault(400, misfit.message, misfit.code, misfit.param)
        if self.models is not None and body["model"] not in self.models:
            return Fault(404, f"The model `{body['model']}` does not exist.", code="model_not_found")
        return None

    def _denial(self, request: web.Request) -> Fault | None:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.keys is not None and key not in self.keys:
            return Fault(401, f"Incorrect API key provided: {key}.", code="invalid_api_key")
        return None


def completion_of(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    logprobs = None
    if body.get("logprobs"):
        logprobs = {
            "content": [_token(token, body.get("top_logprobs", 0)) for token in (answer.text or "").split()],
            "refusal": None,
        }
    prompt, completion = answer.usage
    message = {
        "role": "assistant",
        "content": answer.text,
        "refusal": None,
        "annotations": [],
        **answer.message,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": logprobs,
                "finish_reason": answer.finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
        "system_fingerprint": None,
        **answer.body,
    }


def _token(token: str, alternatives: int) -> dict[str, Any]:
    tops = [(token, -0.1), *((f"alternative-{n}", -2.0 - n) for n in range(1, alternatives))]
    return {
        **_likelihood(token, -0.1),
        "top_logprobs": [_likelihood(*top) for top in tops[:alternatives]],
    }


def _likelihood(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _error(fault: Fault) -> web.Response:
    problem = {"message": fault.message, "type": fault.kind, "param": fault.param, "code": fault.code}
    return web.json_response({"error": problem}, status=fault.status, headers=fault.headers)


def _cut(request: web.Request) -> web.Response:
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def fake(
    *script: Behaviour,
    reply: Reply = lambda _: Answer(),
    keys: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    extra_fields: Iterable[str] = (),
    listed: Sequence[Mapping[str, Any]] | None = None,
) -> AsyncIterator[Server]:
    """Serve on loopback; ``keys`` and ``models`` are those that are known (None: any). ``listed`` are the
    entries of its list of models (None: it has none)."""
    server = Server(
        url="",
        reply=reply,
        script=deque(script),
        keys=None if keys is None else frozenset(keys),
        models=None if models is None else frozenset(models),
        extra_fields=frozenset(extra_fields),
        listed=listed,
    )
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    app.router.add_get("/v1/models", server.list_models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        server.release()
        await runner.cleanup()
