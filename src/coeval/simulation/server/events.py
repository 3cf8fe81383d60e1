"""Server-sent events at the pace of a model's tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from coeval.simulation.simulated_model import CHARACTERS_PER_TOKEN

# Events that need no waiting go out together, up to about so many bytes.
_HELD_BYTES = 1 << 14


class Timed(NamedTuple):
    """An event: its body, and the characters of text in it."""

    body: dict[str, Any]
    characters: int = 0

    def written(self) -> bytes:
        return b"data: %s\n\n" % msgspec.json.encode(self.body)


def tokens(text: str) -> Iterator[str]:
    """Split a text into tokens."""
    return (text[at : at + CHARACTERS_PER_TOKEN] for at in range(0, len(text), CHARACTERS_PER_TOKEN))


async def stream(
    request: web.Request, events: Iterable[Timed], tokens_per_s: float, *, done: bytes = b""
) -> web.StreamResponse:
    """Send the events at this pace; 0 tokens a second means without waiting."""
    with suppress(ConnectionError):  # a client may leave at any moment, and nobody is left to be told
        return await _sent(request, events, tokens_per_s, done)
    return web.StreamResponse()


async def _sent(
    request: web.Request, events: Iterable[Timed], tokens_per_s: float, done: bytes
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    began, characters, held = loop.time(), 0, b""
    for event in events:
        characters += event.characters
        held += event.written()
        wait_s = (
            began + characters / (CHARACTERS_PER_TOKEN * tokens_per_s) - loop.time() if tokens_per_s else 0.0
        )
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if tokens_per_s or len(held) > _HELD_BYTES:
            await response.write(held)
            held = b""
    await response.write(held + done)
    await response.write_eof()
    return response


# --- Errors in OpenAI's shape

INVALID = "invalid_request_error"


class Refusal(Exception):
    """A request that is refused; ``response`` says why."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }
        self._headers = headers

    @property
    def response(self) -> web.Response:
        return json_response(self.body, self.status, self._headers)


def json_response(
    body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )
