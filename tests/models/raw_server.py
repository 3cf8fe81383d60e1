"""A raw loopback server that misbehaves byte by byte, and a client whose time is the test's own."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from coeval.core import foreign
from coeval.core.errors import ModelError
from coeval.core.redaction import Redactor
from coeval.models.pacing.limits import EndpointLimits, Limiter
from coeval.models.signers import Signer
from coeval.models.transport.call import Answered, Call
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http

KEY = "sk-very-secret-1234567890"


@dataclass
class Requested:
    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Answers each request with the next of ``answers``; the last one again and again."""

    answers: list[bytes | Script]
    requested: list[Requested] = field(default_factory=list)
    connections: int = 0
    serving: set[asyncio.Task[None]] = field(default_factory=set)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requested.append(Requested(head[0], headers, body, connection))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def server(*answers: bytes | Script, on: socket.socket | None = None) -> AsyncIterator[Server]:
    """``on`` is a bound socket to listen on; None: one of its own."""
    fake = Server(list(answers))
    bound = on or socket.create_server(("127.0.0.1", 0))
    async with await asyncio.start_server(fake.accept, sock=bound, limit=1 << 22) as listening:
        fake.port = listening.sockets[0].getsockname()[1]
        try:
            yield fake
        finally:
            serving = list(fake.serving)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            await asyncio.sleep(0)  # an aborted transport closes its socket a turn later


def reply(status: int, body: object = None, **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Words", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


OK = reply(200, {"text": "fine"})


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.write(OK[:-5])
    await writer.drain()
    writer.close()


async def cut_in_the_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(OK[:20])
    await writer.drain()
    writer.close()


async def hang(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def endless_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"X-Slow: yes\r\n")
        await writer.drain()
        await asyncio.sleep(0.005)


class Time:
    """A clock that only sleeping moves, and a record of the sleeps, each longer by ``drag``; none ends while
    ``gate`` is shut."""

    def __init__(self) -> None:
        self.now = self.drag = 0.0
        self.slept: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.gate.is_set():
            self.now += seconds + self.drag
            await asyncio.sleep(0)
        else:
            await self.gate.wait()


def decode(reply: HttpReply, redactor: Redactor) -> str:
    return foreign.decode(reply.body, dict[str, str])["text"]


def call(**changes: Any) -> Call[str]:
    plain: dict[str, Any] = {
        "decode": decode,
        "explain": lambda reply, redactor: None,
        "timeout_s": 20.0,
        "priority": 0,
        "permit": lambda: None,
    }
    return Call(**(plain | changes))


class Client:
    """An Http with its own time, one endpoint, and the permits it took."""

    def __init__(self, url: str, **limits: Any) -> None:
        self.time = Time()
        self.http = Http(clock=self.time.clock, rng=random.Random(0), sleep=self.time.sleep)
        self.limiter = Limiter(EndpointLimits(**limits), clock=self.time.clock)
        self.endpoint = Endpoint(url, Signer({"Authorization": f"Bearer {KEY}"}), self.limiter)
        self.permits = 0

    def permit(self) -> None:
        self.permits += 1

    async def post(self, body: bytes = b"{}", **changes: Any) -> Answered[str]:
        changes = {"permit": self.permit} | changes
        return await self.http.post(self.endpoint, "/chat", body, call(**changes))

    async def while_time_passes(self, *tasks: asyncio.Task[Answered[str]]) -> None:
        """Wait for answers, a hundredth of a second at a time."""
        while not all(task.done() for task in tasks):
            self.time.now += 0.01
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    async def get(self, **changes: Any) -> Answered[str]:
        return await self.http.get(self.endpoint, "/models", call(**({"permit": self.permit} | changes)))

    async def error(self, **changes: Any) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.post(**changes)
        assert self.limiter.in_flight == 0
        return caught.value


@asynccontextmanager
async def client(fake: Server, **limits: Any) -> AsyncIterator[Client]:
    asking = Client(fake.url, **limits)
    try:
        yield asking
    finally:
        await asking.http.aclose()


async def until(true: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened that nobody announces."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)
