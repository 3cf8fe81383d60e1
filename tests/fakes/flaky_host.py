"""Simulated models behind HTTP on loopback, with every request counted and any fault in its way."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec
from aiohttp import web

from coeval.core.model import ModelSpec
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel

MODELS = ("teacher", "student-1", "student-2", "judge-1", "judge-2")
"""Each plays one role, so who is asked says in which phase."""
PHASE_OF = {
    "teacher": "data_generation",
    "student-1": "response_collection",
    "student-2": "response_collection",
    "judge-1": "evaluation",
    "judge-2": "evaluation",
}


class Requested(NamedTuple):
    """A request as it arrived: the number ``n`` counts from 1, ``text`` is its last message.

    ``times`` is how often exactly this was asked, this time included.
    """

    n: int
    model: str
    text: str
    digest: str
    times: int
    web: web.Request


Fault: TypeAlias = Callable[[Requested], Awaitable[web.StreamResponse | None]]
"""What happens instead of an answer; None: the model answers."""


Billed: TypeAlias = Callable[[Requested, int, int], bool]
"""A request, and the tokens of its prompt and its answer."""


Tells: TypeAlias = Callable[[dict[str, Any]], Any]
"""What the host reports as the usage of an answer, whatever it bills; None is no usage at all."""


class _Answer(msgspec.Struct):
    usage: dict[str, int]


class _Body(msgspec.Struct):
    model: str
    messages: list[dict[str, str]]


@dataclass
class Host:
    """A running host. ``fault`` may be changed at any time; None is good health. ``billed`` is told of each
    answer that was made; where it returns True, the connection breaks before it is sent. ``tells`` changes
    the usage that is reported of it."""

    url: str = ""
    fault: Fault | None = None
    billed: Billed | None = None
    tells: Tells | None = None
    requested: list[Requested] = field(default_factory=list)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)
    _times: Counter[str] = field(default_factory=Counter)

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come in all."""
        while len(self.requested) < count:
            self._arrival.clear()
            await self._arrival.wait()

    def count(self, model: str) -> int:
        return sum(requested.model == model for requested in self.requested)

    @web.middleware
    async def take(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        content = await request.read()
        body = msgspec.json.decode(content, type=_Body)
        digest = hashlib.blake2b(content).hexdigest()
        self._times[digest] += 1
        text = body.messages[-1]["content"]
        requested = Requested(len(self.requested) + 1, body.model, text, digest, self._times[digest], request)
        self.requested.append(requested)
        self._arrival.set()
        reply = await self.fault(requested) if self.fault is not None else None
        if reply is not None:
            return reply
        reply = await handler(request)
        if self.billed is not None and isinstance(reply, web.Response) and reply.status == 200:
            usage = msgspec.json.decode(reply.text or "", type=_Answer).usage
            if self.billed(requested, usage["prompt_tokens"], usage["completion_tokens"]):
                return cut(requested)
            if self.tells is not None:
                answer = msgspec.json.decode(reply.text or "")
                return web.json_response(answer | {"usage": self.tells(dict(usage))})
        return reply


@asynccontextmanager
async def hosted(
    models: Sequence[str] = MODELS, *, latency_s: float = 0.0, fault: Fault | None = None, port: int = 0
) -> AsyncIterator[Host]:
    """Serve simulated models of these names."""
    specs = [
        ModelSpec(name=name, interface="simulated", model=name, options={"latency_s": latency_s})
        for name in models
    ]
    app = make_app(SimulatedModel(spec) for spec in specs)
    host = Host(fault=fault)
    app.middlewares.append(host.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        host.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield host
    finally:
        await runner.cleanup()


def error(status: int, message: str = "out of order", **headers: str) -> web.Response:
    """An error in OpenAI's shape; ``retry_after="0"`` becomes the header Retry-After."""
    return web.json_response(
        {"error": {"message": message, "type": "error", "param": None, "code": None}},
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def cut(requested: Requested) -> web.Response:
    """The connection breaks before an answer."""
    assert isinstance(requested.web.transport, asyncio.Transport)
    requested.web.transport.abort()
    return web.Response()


async def torn(requested: Requested) -> web.StreamResponse:
    """The connection breaks in the middle of the body."""
    reply = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await reply.prepare(requested.web)
    await reply.write(b'{"choices": [{"message": {"content": "The answ')
    cut(requested)
    return reply


def said(requested: Requested, text: str) -> web.Response:
    """Another answer than the model's own."""
    message = {"role": "assistant", "content": text}
    return web.json_response(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": requested.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    )
