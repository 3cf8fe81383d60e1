"""What every fake host has in common: a script of behaviours, faults below HTTP, a record of what came."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec
from aiohttp import web


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
    """nothing comes until `ScriptedHost.release`"""


Behaviour: TypeAlias = Any
"""`Raw`, `Broken`, or what the host itself calls an answer and an error."""


class Requested(NamedTuple):
    """A request as it arrived; ``body`` is the parsed JSON."""

    headers: Mapping[str, str]
    body: dict[str, Any]
    path: str


class Refusal(Exception):
    """A request that the provider's documentation answers with an error; ``args[0]`` is that error."""


@dataclass
class ScriptedHost(ABC):
    """A running fake; ``requested`` holds every request for an answer in order of arrival, refused ones
    included.

    ``url`` is what a ``base_url`` is set to. Requests are answered by the script first, then by `usual`.
    """

    script: deque[Behaviour]
    url: str = ""
    requested: list[Requested] = field(default_factory=list)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    usual: ClassVar[Behaviour]

    @abstractmethod
    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        """Raise the `Refusal` of a request that breaks the documentation."""

    @abstractmethod
    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        """A behaviour of the host's own as an HTTP answer."""

    @abstractmethod
    def no_json(self) -> Behaviour:
        """The error for a body that is not a JSON object."""

    def routes(self) -> list[web.RouteDef]:
        """All that is served; every POST is a request for an answer where a host says no more."""
        return [web.post("/{path:.*}", self.handle)]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [requested.body for requested in self.requested]

    def release(self) -> None:
        """Let every request that hangs go on to a good answer."""
        self._released.set()

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come in."""
        while len(self.requested) < count:
            self._arrival.clear()
            await self._arrival.wait()

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        """What a request gets beyond the script."""
        return self.usual

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        try:
            body = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError:
            return self.behave(self.no_json(), {})
        self.requested.append(Requested(request.headers, body, request.raw_path))
        self._arrival.set()
        try:
            self.check(request, content, body)
        except Refusal as refusal:
            return self.behave(refusal.args[0], body)
        behaviour = self.script.popleft() if self.script else self.answer_to(body)
        return await self._behave(request, behaviour, body)

    async def _behave(
        self, request: web.Request, behaviour: Behaviour, body: Mapping[str, Any]
    ) -> web.StreamResponse:
        match behaviour:
            case Raw():
                return web.Response(
                    body=behaviour.body, status=behaviour.status, content_type=behaviour.content_type
                )
            case Broken.RESET:
                return cut(request)
            case Broken.TORN:
                torn = web.StreamResponse(
                    headers={"Content-Length": "1000", "Content-Type": "application/json"}
                )
                await torn.prepare(request)
                await torn.write(b'{"half": [')
                cut(request)
                return torn
            case Broken.HANG:
                await self._released.wait()
                return self.behave(self.usual, dict(body))
            case _:
                await asyncio.sleep(getattr(behaviour, "delay_s", 0.0))
                return self.behave(behaviour, dict(body))


def cut(request: web.Request) -> web.Response:
    """Break the connection."""
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    """Serve on loopback; the URL, without a path."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving(host: ScriptedHost, path: str = "") -> AsyncIterator[None]:
    """Serve on loopback; ``path`` is appended to the host's URL."""
    app = web.Application(client_max_size=1 << 30)
    app.add_routes(host.routes())
    async with listening(app) as url:
        host.url = url + path
        try:
            yield
        finally:
            host.release()
